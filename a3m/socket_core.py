"""What all sockets have in common, without waiting (003, sections 4.3.4, 4.8 and 4.9).

A pattern is a subclass of :class:`a3m.Socket` that says what it is called, whom it may link with, and where it differs
from the default: send to one link after the other, receive from one after the other. It never waits:
:meth:`SocketCore.try_send` and :meth:`SocketCore.try_receive` do it now or answer :data:`WOULD_BLOCK`. Waiting is added
once for all patterns: for threads by :class:`a3m.Socket`, for tasks by :mod:`a3m.trio` and :mod:`a3m.asyncio`.

Whoever calls anything here holds the lock of the node; :meth:`SocketCore.poll_events` and :meth:`SocketCore.unpoll`
take it themselves.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any, ClassVar

import attrs

from a3m import messages
from a3m.core import Core
from a3m.errors import Closed, LinkClosed, LinkRefused, NoLinks, NotSupported
from a3m.flow import Incoming, Item, Outgoing
from a3m.ids import SocketId
from a3m.link import Link
from a3m.link_machine import State
from a3m.link_manager import BY_US, LIVE, LinkManager
from a3m.messages import Malformed, Message, Metadata, Reply
from a3m.options import SocketOptions
from a3m.payload import Payload, check_run, from_body, size_of, split, to_item
from a3m.stats import SocketStats
from a3m.waitqueue import EVENTS, POLLERR, POLLHUP, POLLIN, POLLLINK, POLLOUT, WaitEntry, WaitQueue
from exon.log import log

WOULD_BLOCK: Any = type("WOULD_BLOCK", (), {"__repr__": lambda _: "WOULD_BLOCK"})()
"""What a method answers that cannot do it now, and never waits."""

MOST_CONTROL = 1024  # control messages of one link that may wait for the transport to have room
MESSAGE_COST = 117  # bytes that a message is taken to be worth beyond its own when batches are made
_MOST_EARLY = 65536  # control messages of one link that may overtake others; no transport has more on the way
_UNUSED = (
    State.WAIT_BOTH,
    State.WAIT_METADATA,
    State.WAIT_RETRY,
    State.CANCELLING_BOTH,
    State.CANCELLING_METADATA,
)
_TAKEN = (State.WAIT_REPLY, State.CANCELLING_REPLY, *LIVE)  # states that use up one of max_links


class SocketCore:
    """One end of any number of links."""

    protocol: ClassVar[str]
    compatible: ClassVar[frozenset[str]]
    sends: ClassVar[bool] = True
    receives: ClassVar[bool] = True
    alike: ClassVar[bool] = True  # whether any message that waits can use any credit
    defaults: ClassVar[Mapping[str, Any]] = {}
    options_type: ClassVar[type[SocketOptions]] = SocketOptions

    def __init__(self, core: Core, tag: str, **options: Any) -> None:
        """Made by :meth:`a3m.Node.socket`."""
        self.id = SocketId(core.id, tag)
        try:
            self.options = self.options_type(**{**self.defaults, **options})
        except TypeError:
            unknown = sorted(set(options) - {name.name for name in attrs.fields(self.options_type)})
            raise TypeError(f"no such option: {', '.join(unknown)}; see a3m.SocketOptions") from None
        self.manager = LinkManager(self)
        self.core = core
        self._links: dict[SocketId, Link] = {}  # established, or unlinking and still receiving
        self._sendable: OrderedDict[Link, None] = OrderedDict()  # links with credit, in the order of their turns
        self._readable: deque[Link] = deque()  # links with messages, in the order of their turns
        self._unread: set[Link] = set()  # links that are gone, with messages that are still here
        self._queue = WaitQueue()
        self._refused: dict[SocketId, Reply] = {}
        self._closing = False
        self._closed = False
        self._had_links = False
        self._sent = self._received = self._unknown = 0
        core.add(self)

    # ==== for patterns ==============================================================================================

    def route(self, item: Item) -> Link | None:  # noqa: ARG002  # patterns look at it
        """The link to send a message over, or None while there is none; by default each link in turn."""
        if not SocketCore.can_send_now(self):
            return None
        link = next(iter(self._sendable))
        self._sendable.move_to_end(link)
        return link

    def try_send(self, item: Item) -> Any:
        """Send now, or answer :data:`WOULD_BLOCK`."""
        link = self.route(item)
        if link is None:
            return WOULD_BLOCK
        self.push(link, item)
        return None

    def try_receive(self) -> Any:
        """Receive now, or answer :data:`WOULD_BLOCK`."""
        taken = self.take()
        return taken if taken is WOULD_BLOCK else self.present(*taken)

    def present(self, link: Link, item: Item) -> Any:  # noqa: ARG002  # patterns look at it
        """What the application gets of a message."""
        return item if type(item) is bytes else from_body(split(item)[1])

    def push_many(self, items: list[bytes]) -> int:
        """Send plain messages to one link after the other, as far as there is credit; how many were sent."""
        done = 0
        while done < len(items) and SocketCore.can_send_now(self):
            sendable = [link for link in self._sendable if link.can_send]
            turns = min(link.outgoing.credits for link in sendable if link.outgoing is not None)
            some = items[done : done + turns * len(sendable)]
            for at, link in enumerate(sendable):
                share = some[at :: len(sendable)]
                if share and link.outgoing is not None:
                    link.outgoing.push_many(share)
                    self.core.data_waits(self, link, len(share) * (len(share[-1]) + MESSAGE_COST))
            for link in sendable[: len(some) % len(sendable)]:
                self._sendable.move_to_end(link)
            done += len(some)
        self._sent += done
        return done

    def settle(self) -> None:
        """Before links change: give what was accepted in passing to a link. For shells that do that."""

    def discard_held(self) -> int:
        """The socket is closed: give up what was accepted in passing and found no link any more; how many that was."""
        return 0

    def push(self, link: Link, item: Item) -> None:
        """Send over a link that has credit."""
        assert link.outgoing is not None
        link.outgoing.push(item)
        self._sent += 1
        self.core.data_waits(self, link, MESSAGE_COST + (len(item) if type(item) is bytes else size_of(item)))

    def take(self) -> Any:
        """The next message as ``(link, item)``, each link in turn; its credit goes back to the sender."""
        readable = self._readable
        if not readable:
            return WOULD_BLOCK
        link = readable[0]
        assert link.incoming is not None
        item = link.incoming.queue.popleft()
        if link.incoming.queue:
            readable.rotate(-1)
        else:
            readable.popleft()
            self._unread.discard(link)
        self.give_back(link)
        return link, item

    def borrow(self) -> tuple[list[Link], list[Item]]:
        """The next messages, each link in turn, as many as are given back at once; see :meth:`give_back`.

        The first message is of the first link, and so on, around and around. With several links it is one turn less, so
        that no link's credits wait for messages of another one to be taken. None if it is not worth while.
        """
        links = list(self._readable)
        incoming = [link.incoming for link in links if link.incoming is not None]
        turns = min((min(len(side.queue), side.until_batch) for side in incoming), default=0) - (len(links) > 1)
        if turns < 1:
            return [], []
        shares = []
        for link, side in zip(links, incoming, strict=True):
            queue = side.queue
            if len(queue) == turns:
                shares.append(list(queue))
                queue.clear()
                self._readable.remove(link)
                self._unread.discard(link)
            else:
                everything = list(queue)  # a deque lets go of many only by letting go of all, and that is quick
                shares.append(everything[:turns])
                queue.clear()
                queue.extend(everything[turns:])
        return links, shares[0] if len(shares) == 1 else list(chain.from_iterable(zip(*shares, strict=True)))

    def return_unused(self, link: Link, items: list[Item]) -> None:
        """Put messages of a link back that were borrowed last."""
        assert link.incoming is not None
        if items and not link.incoming.queue:
            self._readable.appendleft(link)
        link.incoming.queue.extendleft(reversed(items))

    def give_back(self, link: Link, count: int = 1) -> None:
        """Messages of this link are done with: return their credits, when there is a batch of them."""
        assert link.incoming is not None
        self._received += count
        credits = link.incoming.taken(count)
        if credits and link.state is State.ESTABLISHED:
            self.give_credits(link, credits)

    def send_control(self, link: Link, type_: int, body: tuple[Any, ...]) -> Any:
        """Send a control message of the pattern, of a type from :data:`a3m.messages.FIRST_CONTROL` on.

        Control messages of one link arrive in order, independently of data, and need no credit. While 1024 of them wait
        for the transport to have room, the answer is :data:`WOULD_BLOCK` and nothing was sent; :meth:`on_control_room`
        is called when they have left.
        """
        if len(link.control_queue) >= MOST_CONTROL:
            link.wants_control = True
            return WOULD_BLOCK
        link.control_queue.append((type_, body))
        self.core.control_waits(self, link)
        return None

    def want_control(self, link: Link) -> None:
        """Have :meth:`on_control_room` called as soon as no control message of this link waits, which may be at once.

        For what changes faster than a peer may take it: remember the changes, and say then how things stand.
        """
        link.wants_control = True
        self.core.control_waits(self, link)

    def on_control_room(self, link: Link) -> None:
        """The control messages of a link have left, after :meth:`want_control` or one that could not be sent."""

    def on_message(self, link: Link, items: list[Item]) -> None:
        """Messages came and are in the link's queue. By default they wait there for :meth:`try_receive`."""
        assert link.incoming is not None
        if len(link.incoming.queue) == len(items):  # there was nothing before, so it has no turn yet
            self._readable.append(link)
        self.wake(POLLIN, len(items))

    def on_control(self, link: Link, type_: int, body: tuple[Any, ...]) -> None:  # noqa: ARG002
        """A control message of the pattern came. One that it does not know is counted and dropped."""
        raise Malformed

    def on_link(self, link: Link) -> None:
        """A link is established."""

    def on_unlink(self, link: Link, reason: str) -> None:
        """A link is gone; what it brought can still be received."""

    def on_link_request(self, peer: SocketId, metadata: Any) -> Reply:  # noqa: ARG002
        """Whether to accept a peer that told ``metadata`` about itself; any :class:`Reply` but OK turns it away."""
        return Reply.OK

    def can_send_now(self) -> bool:
        """Whether :meth:`try_send` would succeed, as far as one can know without the message."""
        sendable = self._sendable
        while sendable and not next(iter(sendable)).can_send:
            sendable.popitem(last=False)
        return bool(sendable)

    def why_not(self, events: int) -> str | None:  # noqa: ARG002  # patterns look at it
        """Why such a call could not be done now, where the reason is the pattern's own; for error messages."""
        return None

    def can_receive_now(self) -> bool:
        """Whether :meth:`try_receive` would succeed."""
        return bool(self._readable)

    def wake(self, events: int, count: int = 1) -> None:
        """Wake whoever waits for these events, ``count`` of those who want to be woken alone."""
        self._queue.wake(events, count)

    @property
    def established(self) -> Iterator[Link]:
        """The links over which messages may be sent."""
        return (link for link in self._links.values() if link.established)

    def try_iterate(self) -> Any:
        """The next message of an iteration; :class:`NoLinks` when there will be none."""
        message = self.try_receive()
        if message is WOULD_BLOCK and self._had_links and not self.manager.links:
            raise NoLinks
        return message

    def prepare(self, payload: Payload) -> Item:
        """A payload as it travels, if this socket sends at all."""
        if not self.sends:
            raise NotSupported(f"a {self.protocol} socket does not send; link it with a socket that does")
        return to_item(payload, self.core.transport.options.max_message)

    def check_receives(self) -> None:
        """Raise if this socket never receives."""
        if not self.receives:
            raise NotSupported(f"a {self.protocol} socket does not receive; link it with a socket that does")

    # ==== links ===

    def try_linked(self, peer: SocketId | None) -> Any:
        """Whom there is a link with."""
        if peer is None:
            if not self.manager.links and self._refused:
                raise LinkRefused(*next(iter(self._refused.items())))
            return next((link.peer for link in self.established), WOULD_BLOCK)
        link = self._links.get(peer)
        if link is not None and link.established:
            return peer
        code = self._refused.get(peer)
        if code is not None:
            raise LinkRefused(peer, code)
        if peer not in self.manager.links:
            raise LinkClosed(peer, "there is none, nor is one being made; call link() first")
        return WOULD_BLOCK

    def try_unlinked(self, peer: SocketId | None) -> Any:
        """None when there is no link."""
        links = self.manager.links
        return WOULD_BLOCK if (links if peer is None else peer in links) else None

    def why_no_link(self) -> str:
        """Why there is no link to send over or receive from, and what to do about it."""
        for peer, link in self.manager.links.items():
            if link.put_off:
                return f"{peer} said so far: {link.put_off}"
            if peer.node != self.id.node and self.core.transport.address_of(peer.node) is None:
                return f"nobody knows where node {peer.node!r} is: register() it"
            return f"{peer} is asked for a link ({link.state.value}); is it running, and the tag right?"
        for peer, code in self._refused.items():
            return f"{peer} refused the link: {code.advice}"
        if self._had_links:
            return "its links have ended: call link() again, or let a peer link to it"
        return "it has no link: call link(), or let a peer link to it"

    @property
    def has_links(self) -> bool:
        """Whether there is a link, or one being made."""
        return bool(self.manager.links)

    # ==== closing ====

    def begin_close(self) -> None:
        """Accept nothing new, and unlink."""
        if self._closing:
            return
        self.settle()
        self._closing = True
        for peer, link in list(self.manager.links.items()):
            # A link that neither side can have used yet is not worth waiting for; its peer may never answer.
            self.manager.unlink(peer, force=link.state in _UNUSED)
        self._check_closed()
        self._queue.wake_all(EVENTS | POLLLINK)
        self.core.work()

    def force_close(self) -> None:
        """Give up what could not be delivered."""
        self.settle()
        for peer in list(self.manager.links):
            self.manager.unlink(peer, force=True)
        self._check_closed()
        self.core.work()

    def abandon(self) -> None:
        """Be closed, without a word to anybody."""
        self._closing = self._closed = True
        self.manager.links.clear()

    def try_closed(self) -> Any:
        """None when closed."""
        return None if self._closed else WOULD_BLOCK

    def _check_closed(self) -> None:
        if self._closing and not self._closed and not self.manager.links:
            self._closed = True
            self.core.given_up += self.discard_held()
            self.core.remove(self)
            self._queue.wake_all(EVENTS | POLLLINK)

    @property
    def closed(self) -> bool:
        """Whether the socket is closed, or closing."""
        return self._closing

    def check_open(self) -> None:
        """Raise if closed."""
        if self._closing:
            raise Closed(f"socket {self.id} is closed")

    # ==== polling ===================================================================================================

    def poll_events(self, entry: WaitEntry | None) -> int:
        """What holds now; ``entry`` is told what happens from now on."""
        with self.core.lock:
            if entry is not None and not self._closed:
                self._queue.add(entry)
            return self.current_events()

    def unpoll(self, entry: WaitEntry) -> None:
        """Tell ``entry`` nothing more."""
        with self.core.lock:
            self._queue.remove(entry)

    def current_events(self) -> int:
        """What holds now. With the lock held."""
        events = 0
        if self.receives and self.can_receive_now():
            events |= POLLIN
        if self._closing:
            return events | POLLHUP
        if self.sends and self.can_send_now():
            events |= POLLOUT
        return events

    def wait_entry(self, events: int, wake: Callable[[int], bool]) -> WaitEntry:
        """An entry for a call that waits for ``events``.

        One call is woken per message or credit. But a change of links concerns all of them, and where it depends on
        the message which credit it can use, the one that was woken alone might be the wrong one.
        """
        shared = events & POLLLINK or (events & POLLOUT and not self.alike)
        return WaitEntry(events | POLLHUP, wake, exclusive=not shared)

    @property
    def wait_queue(self) -> WaitQueue:
        """Who waits. With the lock held."""
        return self._queue

    def pass_on(self, events: int) -> None:
        """Somebody was woken for these events and left without using them: wake the next. With the lock held."""
        self._queue.pass_on(events & (self.current_events() | POLLLINK))

    # ==== what the node brings ======================================================================================

    def on_arrival(self, sender: SocketId, message: Message) -> None:
        """A message for this socket came."""
        if message.type != messages.DATA:
            self.settle()
        link = self.manager.links.get(sender)
        if link is not None:
            link.silent = 0
            life = _life_in(message)
            if life is not None and link.metadata is not None and message.yours == link.mine:
                if life != link.metadata.life:  # and this is all that we shall ever hear about it
                    self.manager.lose(sender, "its node restarted")
                    return
                if message.type == messages.ERROR and link.state in LIVE:
                    return  # the conversation ended there in this life, and what ended it is on the way
        match message.type:
            case messages.DATA:
                self._on_data(sender, message)
            case messages.FLOW:
                self._on_flow(sender, message)
            case messages.LINK:
                self.manager.on_link(sender, message)
            case messages.LINKREPLY:
                self.manager.on_reply(sender, message)
            case messages.UNLINK:
                self.manager.on_unlink(sender, message)
                self.links_changed()
            case messages.ERROR:
                self.manager.on_error(sender, message)
            case _:
                self._on_control(sender, message)

    def _on_data(self, sender: SocketId, message: Message) -> None:
        if len(message.body) != 2:
            raise Malformed
        plain = check_run(*message.body)
        link = self.manager.on_traffic(sender, message)
        if link is not None:
            self._accept(link, *message.body, plain)
            self.manager.check_done(link)

    def on_run(self, link: Link, first: Any, run: Any) -> None:
        """A run of messages came over an established link."""
        self._accept(link, first, run, check_run(first, run))

    def _accept(self, link: Link, first: int, run: list[Item], plain: bool) -> None:
        assert link.incoming is not None
        link.incoming.mixed |= not plain
        queue = link.incoming.queue
        before = len(queue)
        if not link.incoming.accept(first, run):
            self.core.dropped["message without credit"] += 1
            self.settle()
            self.manager.unlink(link.peer, force=True)
            return
        fresh = len(queue) - before
        if fresh:
            self.on_message(link, run if fresh == len(run) else [*queue][-fresh:])

    def _on_flow(self, sender: SocketId, message: Message) -> None:
        if len(message.body) != 2 or not all(type(number) is int for number in message.body):
            raise Malformed
        link = self.manager.on_traffic(sender, message)
        if link is not None:
            self.on_credits(link, *message.body)

    def on_credits(self, link: Link, credits: Any, done: Any) -> None:
        """The peer has taken ``done`` messages in all, and lets us send ``credits`` more."""
        if type(credits) is not int or type(done) is not int:
            raise Malformed
        outgoing = link.outgoing
        if outgoing is None:
            return
        if credits < 0:
            self.settle()  # what was accepted is not to be turned back
        outgoing.credits += credits
        # A total and not a difference, so that it does not matter which of two of these comes first.
        outgoing.settled = max(outgoing.settled, min(done, outgoing.sent))
        self.credit_came(link)

    def credit_came(self, link: Link) -> None:
        """A link may have become one to send over."""
        if link.can_send:
            assert link.outgoing is not None
            self._sendable.setdefault(link)
            self.wake(POLLOUT, link.outgoing.credits)

    def _on_control(self, sender: SocketId, message: Message) -> None:
        if not message.body or type(message.body[0]) is not int or message.body[0] < 0:
            raise Malformed
        link = self.manager.on_traffic(sender, message)
        if link is None:
            return
        early = link.control_early
        if message.body[0] < link.control_next or message.body[0] in early:
            raise Malformed
        if len(early) >= _MOST_EARLY:
            self.core.dropped["too many early messages"] += 1
            self.manager.unlink(sender, force=True)
            return
        early[message.body[0]] = message
        while link.state in LIVE and (following := early.pop(link.control_next, None)) is not None:
            link.control_next += 1
            self.on_control(link, following.type, following.body[1:])

    def peer_restarted(self, node: str, life: int) -> None:
        """The node of some peers has lost its memory; links with its next life may be here already."""
        self.settle()
        for peer, link in list(self.manager.links.items()):
            if peer.node == node:
                self.manager.restarted(link, life)

    def links_changed(self) -> None:
        """A link takes no more messages: whoever waits to send over it has to look again."""
        self._queue.wake_all(POLLOUT | POLLLINK)

    def give_credits(self, link: Link, credits: int) -> None:
        """Let the peer send more, or with a negative number less."""
        link.credits_due = (link.credits_due or 0) + credits
        self.core.control_waits(self, link)

    def say_waiting(self, link: Link) -> None:
        """There is room for what a link has to say besides data."""
        self._say_all(link)
        if link.wants_control and link.established:
            link.wants_control = False
            self._ask_pattern(self.on_control_room, link)
            self._say_all(link)

    def _say_all(self, link: Link) -> None:
        if link.credits_due is not None:
            assert link.incoming is not None
            body = (link.credits_due, link.incoming.done)
            link.credits_due = None
            self.post(link.peer, messages.FLOW, link.mine, link.theirs, body)
        queue, link.control_queue = link.control_queue, []
        for type_, body in queue:
            self.post(link.peer, type_, link.mine, link.theirs, (link.control_sent, *body))
            link.control_sent += 1

    # ==== what the link manager needs (Port) ========================================================================

    def post(self, peer: SocketId, type_: int, mine: int, yours: int, body: tuple[Any, ...]) -> None:
        """Send a message that is not data."""
        if type_ == messages.UNLINK:
            link = self._links.get(peer)
            if link is not None and link.mine == mine:
                self._say_all(link)  # it may be the last that the peer hears of it
        self.core.post(self.id, peer, type_, mine, yours, self._naming_life(type_, body))

    def post_answer(self, peer: SocketId, type_: int, mine: int, yours: int, body: tuple[Any, ...]) -> None:
        """Answer somebody who is in no conversation with us, as long as it takes answers."""
        self.core.answer(self.id, peer, type_, mine, yours, self._naming_life(type_, body))

    def _naming_life(self, type_: int, body: tuple[Any, ...]) -> tuple[Any, ...]:
        """A forced UNLINK names our life, so that a restart is not mistaken for the wish to end it."""
        return (self.core.life, True) if type_ == messages.UNLINK and body[1] else body

    def retract_link(self, link: Link) -> None:
        """Do not send LINK any more, if it has not left yet."""
        self.core.retract_link(link)

    def next_incarnation(self) -> int:
        """A fresh name for our end of a conversation."""
        return self.core.next_incarnation()

    def about_us(self, link: Link) -> Metadata:
        """What a peer should know."""
        link.capacity = self.options.capacity if self.receives else 0
        return Metadata(self.protocol, link.capacity, self.core.life, link.custom)

    def judge(self, peer: SocketId, metadata: Metadata, wanted: bool) -> Reply:
        """Whether to link; the worst reason counts, or a peer that can never link would ask for ever."""
        if self._closing:
            return Reply.CLOSED
        if metadata.protocol not in self.compatible:
            return Reply.INCOMPATIBLE
        if not self.options.accept_links and not wanted:
            return Reply.INCOMING_NOT_ALLOWED
        code = self._ask_pattern(self.on_link_request, peer, metadata.custom)
        if not isinstance(code, Reply):
            return Reply.INCOMING_NOT_ALLOWED  # a check that fails lets nobody in
        if code.fatal:
            return code
        if self.core.full(peer.node):
            return Reply.TMP_NAVAIL  # it asks for more than it listens to
        unread = sum(len(link.incoming.queue) for link in self._unread if link.incoming is not None)
        if unread >= max(1, self.options.capacity):
            return Reply.TMP_NAVAIL  # or linking again and again would fill the memory with what nobody reads
        most = self.options.max_links
        if most is not None:
            others = sum(link.state in _TAKEN for link in self.manager.links.values() if link.peer != peer)
            if others >= most:
                return Reply.TMP_NAVAIL
        return code

    def schedule(self, link: Link) -> None:
        """Ask again later."""
        self.core.schedule(self, link)

    def link_up(self, link: Link) -> None:
        """A link is established."""
        assert link.metadata is not None
        link.outgoing = Outgoing(credits=link.metadata.capacity if self.sends else 0)
        link.incoming = Incoming(link.capacity, self.options.batch, self.options.ordered)
        link.since = self.core.time()
        self._links[link.peer] = link
        self.core.conversations[link.mine] = self, link
        self._had_links = True
        self._ask_pattern(self.on_link, link)
        self.core.tell("linked", link.peer.node, link.peer, f"by {self.id}")
        self._queue.wake(POLLLINK)
        self.credit_came(link)

    def link_down(self, link: Link, reason: str) -> None:
        """A link is gone."""
        self.core.link_gone(link)
        if self._links.get(link.peer) is link:
            del self._links[link.peer]
            self.core.conversations.pop(link.mine, None)
            reason = self._account_for(link, reason)
            if link.incoming is not None and link.incoming.queue:
                self._unread.add(link)
            self._sendable.pop(link, None)
            self._ask_pattern(self.on_unlink, link, reason)
            self.core.tell("unlinked", link.peer.node, link.peer, reason)
        self._gone()

    def _ask_pattern(self, method: Callable[..., Any], *arguments: Any) -> Any:
        """Call a pattern; a fault there must not leave a link half made or half unmade."""
        try:
            return method(*arguments)
        except Exception:
            self.core.dropped["internal error"] += 1
            log.exception("pattern-error", socket=str(self.id), method=method.__name__)
            return None

    def _account_for(self, link: Link, reason: str) -> str:
        """Report what was accepted for a link that ended otherwise than by agreement; the reason with the numbers."""
        outgoing, incoming = link.outgoing, link.incoming
        assert outgoing is not None
        assert incoming is not None
        if incoming.all_here:
            return reason  # what waits for the transport is still delivered
        unsent = len(outgoing.queue)
        unsure = outgoing.unsure if reason != BY_US else 0  # whoever ends a link by force knows what that means
        link.unsent, link.unknown = unsent, unsure
        self.core.given_up += unsent
        self.core.unknown += unsure
        self._unknown += unsure
        outgoing.settled = outgoing.sent
        outgoing.queue.clear()
        if unsent:
            reason += f"; {unsent} messages were not sent"
        return reason + f"; {unsure} messages may not have arrived" if unsure else reason

    def link_refused(self, link: Link, code: Reply) -> None:
        """A link cannot be."""
        if link.wanted:
            self._refused[link.peer] = code
            self.core.tell("refused", link.peer.node, link.peer, code.advice)
        self.manager.links.pop(link.peer, None)
        self._gone()

    def _gone(self) -> None:
        # Those who wait only while there is a link, and those who wait for the end, all want to look again.
        self._queue.wake_all(POLLLINK | POLLERR | (0 if self.manager.links else POLLIN | POLLOUT))
        self._check_closed()

    # ==== looking in ================================================================================================

    def statistics(self) -> SocketStats:
        """The socket in numbers."""
        return SocketStats(
            sent=self._sent,
            received=self._received,
            unknown=self._unknown,
            links=sum(link.established for link in self._links.values()),
            queued=sum(len(link.incoming.queue) for link in self._links.values() if link.incoming is not None),
            waiting=len(self._queue),
            by_peer={str(peer): link.stats() for peer, link in self.manager.links.items()},
        )


def _life_in(message: Message) -> Any:
    """The life of its node that a message names which says that a conversation is over; None in all others."""
    ends = message.type == messages.ERROR or (message.type == messages.UNLINK and message.body[1:] == (True,))
    return message.body[0] if ends and message.body else None
