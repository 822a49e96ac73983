"""A socket as its node and its link manager see it: what comes in, and what becomes of its links.

:class:`LinkEnd` turns messages of the node into calls of the link manager and of the pattern, keeps the credits of
links, and is the :class:`~a3m.link_manager.Port` of its link manager. What an application sees of a socket is
:class:`a3m.socket_core.SocketCore`, on top of it. Whoever calls anything here holds the lock of the node.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import attrs

from a3m import messages
from a3m.core import Core
from a3m.flow import Incoming, Item, Outgoing
from a3m.ids import SocketId
from a3m.link import Link
from a3m.link_machine import State
from a3m.link_manager import LIVE, LinkManager
from a3m.messages import Malformed, Message, Metadata, Reply
from a3m.options import SocketOptions
from a3m.payload import check_run, size_of
from a3m.waitqueue import EVENTS, POLLERR, POLLIN, POLLLINK, POLLOUT, WaitQueue
from exon.log import log

_MOST_EARLY = 65536  # control messages of one link that may overtake others; no transport has more on the way
TAKEN = (State.WAIT_REPLY, State.CANCELLING_REPLY, *LIVE)  # states that use up one of max_links


class LinkEnd:
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
        self.wait_queue = WaitQueue()  # who waits
        self._refused: dict[SocketId, Reply] = {}
        self.closed = False  # or closing
        self._closed = False
        self._abandoned = False  # it belongs to another process
        self._had_links = False
        self._gave_up = False  # whether messages were given up, or their fate is unknown, since it began to close
        self._sent = self._received = self._unknown = 0

    # ==== for patterns: what happens ================================================================================

    def settle(self) -> None:
        """Before links change: give what was accepted in passing to a link. For shells that do that."""

    def discard_held(self) -> int:
        """The socket is closed: give up what was accepted in passing and found no link any more; how many that was."""
        return 0

    def on_control_room(self, link: Link) -> None:
        """The control messages of a link have left, after :meth:`want_control` or one that could not be sent."""

    def read_run(self, first: Any, run: Any) -> tuple[list[Item], bool]:
        """The messages of a run that came, and whether all are plain; :class:`Malformed` if it is no run."""
        return run, check_run(first, run)

    def largest(self, run: list[Item], plain: bool) -> int:
        """The size of the largest message of a run."""
        return max(map(len, run)) if plain else max(map(size_of, run))

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

    def wake(self, events: int, count: int = 1) -> None:
        """Wake whoever waits for these events, ``count`` of those who want to be woken alone."""
        queue = self.wait_queue
        if queue.shared or queue.exclusive:
            queue.wake(events, count)

    @property
    def established(self) -> Iterator[Link]:
        """The links over which messages may be sent."""
        return (link for link in self._links.values() if link.established)

    def _check_closed(self) -> None:
        if self.closed and not self._closed and not self.manager.links:
            self._closed = True
            held = self.discard_held()
            self.core.accounts.given_up += held
            self._gave_up |= held > 0
            self.core.remove(self)
            self.wait_queue.wake_all(EVENTS | POLLLINK)

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
        first, run = message.body
        items, plain = self.read_run(first, run)
        link = self.manager.on_traffic(sender, message)
        if link is not None:
            self._accept(link, first, items, plain)
            self.manager.check_done(link)

    def on_run(self, link: Link, first: Any, run: Any) -> None:
        """A run of messages came over an established link."""
        self._accept(link, first, *self.read_run(first, run))

    def _accept(self, link: Link, first: int, run: list[Item], plain: bool) -> None:
        incoming = link.incoming
        assert incoming is not None
        if not plain:
            incoming.mixed = True
        queue = incoming.queue
        before = len(queue)
        if not incoming.accept(first, run):
            self.core.dropped["message without credit"] += 1
            self.settle()
            self.manager.unlink(link.peer, force=True)
            return
        if run and incoming.most > incoming.capacity:
            incoming.largest = max(incoming.largest, self.largest(run, plain))
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
        self.wait_queue.wake_all(POLLOUT | POLLLINK)

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
        if self.closed:
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
            others = sum(link.state in TAKEN for link in self.manager.links.values() if link.peer != peer)
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
        most = self.options.most_capacity if link.capacity == self.options.capacity else link.capacity
        link.incoming = Incoming(link.capacity, self.options.batch, self.options.ordered, most)
        link.confirmed = False
        link.since = self.core.time()
        self._links[link.peer] = link
        self.core.conversations[link.mine] = self, link
        self._had_links = True
        self._ask_pattern(self.on_link, link)
        self.core.tell("linked", link.peer.node, link.peer, f"by {self.id}")
        self.wait_queue.wake(POLLLINK)
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
        incoming = link.incoming
        assert incoming is not None
        if incoming.all_here and link.replied:  # the only way to end by agreement: see LinkManager.check_done()
            self.core.accounts.follow(link)
            return reason
        self.core.accounts.charge(link)
        self._unknown += link.unknown
        if link.unsent or link.unknown:
            self._gave_up |= self.closed
        if incoming.early:
            self.core.dropped["message after a gap"] += incoming.early  # its sender counts it as unknown
        if link.unsent:
            reason += f"; {link.unsent} messages were not sent"
        return reason + f"; {link.unknown} messages may not have arrived" if link.unknown else reason

    def link_refused(self, link: Link, code: Reply) -> None:
        """A link cannot be."""
        if link.wanted:
            self._refused[link.peer] = code
            self.core.tell("refused", link.peer.node, link.peer, code.advice)
        self.manager.links.pop(link.peer, None)
        self._gone()

    def _gone(self) -> None:
        # Those who wait only while there is a link, and those who wait for the end, all want to look again.
        self.wait_queue.wake_all(POLLLINK | POLLERR | (0 if self.manager.links else POLLIN | POLLOUT))
        self._check_closed()


def _life_in(message: Message) -> Any:
    """The life of its node that a message names which says that a conversation is over; None in all others."""
    ends = message.type == messages.ERROR or (message.type == messages.UNLINK and message.body[1:] == (True,))
    return message.body[0] if ends and message.body else None
