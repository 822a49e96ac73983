"""What all sockets have in common, without waiting (003, sections 4.3.4, 4.8 and 4.9).

A pattern is a subclass of :class:`a3m.Socket` that says what it is called, whom it may link with, and where it differs
from the default: send to one link after the other, receive from one after the other. It never waits:
:meth:`SocketCore.try_send` and :meth:`SocketCore.try_receive` do it now or answer :data:`WOULD_BLOCK`. Waiting is added
once for all patterns: for threads by :class:`a3m.Socket`, for tasks by :mod:`a3m.trio` and :mod:`a3m.asyncio`.

Whoever calls anything here holds the lock of the node; :meth:`SocketCore.poll_events` and :meth:`SocketCore.unpoll`
take it themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

from a3m.core import Core
from a3m.errors import Closed, LinkClosed, LinkRefused, NoLinks, NotSupported
from a3m.flow import Item
from a3m.ids import SocketId
from a3m.link import Link
from a3m.link_end import LinkEnd
from a3m.link_machine import State
from a3m.payload import Payload, from_body, size_of, split, to_item
from a3m.signals import Held
from a3m.stats import SocketStats
from a3m.waitqueue import EVENTS, POLLHUP, POLLIN, POLLLINK, POLLOUT, WaitEntry, WaitQueue

WOULD_BLOCK: Any = type("WOULD_BLOCK", (), {"__repr__": lambda _: "WOULD_BLOCK"})()
"""What a method answers that cannot do it now, and never waits."""

MOST_CONTROL = 1024  # control messages of one link that may wait for the transport to have room
MESSAGE_COST = 20  # bytes that a message is taken to be worth beyond its own when batches are made
_UNUSED = (
    State.WAIT_BOTH,
    State.WAIT_METADATA,
    State.WAIT_RETRY,
    State.CANCELLING_BOTH,
    State.CANCELLING_METADATA,
)


class SocketCore(LinkEnd):
    """One end of any number of links, for the application and its pattern."""

    def __init__(self, core: Core, tag: str, **options: Any) -> None:
        """Made by :meth:`a3m.Node.socket`."""
        super().__init__(core, tag, **options)
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
            incoming = link.incoming
            if incoming.capacity < incoming.most and len(incoming.queue) < incoming.batch_size:
                credits += incoming.grow()  # the application takes nearly all that come
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
            raise LinkClosed(
                peer,
                "there is none, nor is one being made; call link() first, or wait_linked() for any link",
            )
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
        if self.closed:
            return
        self.settle()
        self.closed = True
        for peer, link in list(self.manager.links.items()):
            # A link that neither side can have used yet is not worth waiting for; its peer may never answer.
            self.manager.unlink(peer, force=link.state in _UNUSED)
        self._check_closed()
        self.wait_queue.wake_all(EVENTS | POLLLINK)
        self.core.work()

    def force_close(self) -> None:
        """Give up what could not be delivered."""
        self.settle()
        for peer in list(self.manager.links):
            self.manager.unlink(peer, force=True)
        self._check_closed()
        self.core.work()

    def abandon(self) -> None:
        """Be closed, and have nothing, without a word to anybody: what is here belongs to another process."""
        self.closed = self._closed = self._abandoned = True
        for link in {*self.manager.links.values(), *self._links.values(), *self._readable, *self._unread}:
            link.abandon()
        for links in (self.manager.links, self._links, self._sendable, self._readable, self._unread):
            links.clear()
        self.wait_queue = WaitQueue()  # nobody who waits is here

    def try_closed(self) -> Any:
        """None when closed."""
        return None if self._closed else WOULD_BLOCK

    def check_open(self) -> None:
        """Raise if closed."""
        if self.closed:
            raise Closed(f"socket {self.id} is closed")

    # ==== polling ===================================================================================================

    def poll_events(self, entry: WaitEntry | None) -> int:
        """What holds now; ``entry`` is told what happens from now on."""
        with Held(self.core.lock):
            if entry is not None and not self._closed:
                self.wait_queue.add(entry)
            return self.current_events()

    def unpoll(self, entry: WaitEntry) -> None:
        """Tell ``entry`` nothing more."""
        with Held(self.core.lock):
            self.wait_queue.remove(entry)

    def current_events(self) -> int:
        """What holds now. With the lock held."""
        if self._abandoned:  # whatever its pattern may still have
            return POLLHUP
        events = 0
        if self.receives and self.can_receive_now():
            events |= POLLIN
        if self.closed:
            return events | POLLHUP
        if self.sends and self.can_send_now():
            events |= POLLOUT
        return events

    def wait_entry(self, events: int, wake: Callable[[int], bool]) -> WaitEntry:
        """An entry for a call that waits for ``events``."""
        return WaitEntry(events | POLLHUP, wake, exclusive=self.is_exclusive(events))

    def is_exclusive(self, events: int) -> bool:
        """Whether one call that waits for ``events`` is woken at a time.

        One is woken per message or credit. But a change of links concerns all of them, and where it depends on the
        message which credit it can use, the one that was woken alone might be the wrong one.
        """
        return not (events & POLLLINK or (events & POLLOUT and not self.alike))

    def pass_on(self, events: int) -> None:
        """Somebody was woken for these events and left without using them: wake the next. With the lock held."""
        self.wait_queue.pass_on(events & (self.current_events() | POLLLINK))

    # ==== looking in ================================================================================================

    def statistics(self) -> SocketStats:
        """The socket in numbers."""
        return SocketStats(
            sent=self._sent,
            received=self._received,
            unknown=self._unknown,
            links=sum(link.established for link in self._links.values()),
            queued=sum(len(link.incoming.queue) for link in self._links.values() if link.incoming is not None),
            waiting=len(self.wait_queue),
            by_peer={str(peer): link.stats() for peer, link in self.manager.links.items()},
        )
