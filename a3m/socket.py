"""The socket that applications use, and patterns are derived from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Self

from a3m.core import Core
from a3m.errors import Closed, LinkClosed, NoLinks
from a3m.ids import SocketId
from a3m.lanes import Lanes
from a3m.link import Link, LinkInfo
from a3m.options import SocketOptions
from a3m.payload import Payload, check_metadata
from a3m.signals import Held
from a3m.socket_core import WOULD_BLOCK
from a3m.stats import LinkStats, SocketStats
from a3m.waiting import call
from a3m.waitqueue import POLLHUP, POLLIN, POLLLINK, POLLOUT, WaitEntry

_MANY = 4096  # messages that are given to links at a time


class Socket(Lanes):
    """One end of any number of links. Any number of threads may use it at the same time.

    Subclasses set :attr:`protocol`, :attr:`compatible`, :attr:`sends` and :attr:`receives`, and override what they do
    differently: :meth:`route`, :meth:`try_send`, :meth:`try_receive`, :meth:`on_message`, :meth:`on_control`,
    :meth:`on_link`, :meth:`on_unlink`, :meth:`on_link_request`. See ``docs/patterns.md``.

    >>> import a3m
    >>> class Shout(a3m.PushSocket):
    ...     def prepare(self, payload):
    ...         return super().prepare(payload).upper()
    >>> with a3m.Node("home", bind="127.0.0.1:0") as node:
    ...     loud, pull = node.socket(Shout, "loud"), node.pull("ear")
    ...     loud.link("home/ear")
    ...     loud.send(b"hello", timeout=5)
    ...     pull.recv(timeout=5)
    b'HELLO'
    """

    # ==== sending and receiving, for threads ========================================================================

    def send(self, payload: Payload, *, timeout: float | None = None, require_link: bool = False) -> None:
        """Send a message, to be delivered exactly once.

        Args:
            payload: Bytes, or a sequence of parts that arrive together.
            timeout: Seconds to wait for a link with room; None waits, 0 tries once.
            require_link: Raise :class:`NoLinks` instead of waiting while there is no link, nor one being made.
        """
        lane = self._lane
        if len(lane) < self._limit and type(payload) is bytes and len(payload) <= self._small:
            lane.append(payload)
            if len(lane) <= self._limit or not self._was_too_late(payload):
                return
        self._send_or_wait(payload, timeout, require_link)

    def _send_or_wait(self, payload: Payload, timeout: float | None, require_link: bool) -> None:
        # Apart from send(), where a function that refers to its variables would cost as much as all else.
        item = self.prepare(payload)
        call(self, POLLOUT, lambda: self.try_send(item), timeout, require_link)

    def recv(self, *, timeout: float | None = None, require_link: bool = False) -> Any:
        """Receive the next message: ``bytes``, or a ``tuple`` of them if it was sent in parts."""
        batch = self._batch
        if batch:
            try:
                message = batch.popleft()
            except IndexError:
                pass  # another thread was quicker
            else:
                if not batch:
                    self._finish_batch()
                return message
        self.check_receives()
        return call(self, POLLIN, self.try_receive, timeout, require_link)

    def _finish_batch(self) -> None:
        with Held(self.core.lock) as signals:
            self.repay()
            if not self._batch:
                self._borrow()
            self.core.work()
            signals.done = True  # a message is on its way to the application

    def _was_too_late(self, message: Any) -> bool:
        """Somebody else was quicker to close the lane, or to fill it; whether the message has to be sent again."""
        with Held(self.core.lock) as signals:
            withdrawn = self.withdraw(message)
            self.core.work()
            signals.done = not withdrawn
        return withdrawn

    def recv_parts(self, *, timeout: float | None = None, require_link: bool = False) -> list[bytes]:
        """Receive the next message as a list of its parts, however many they are."""
        message = self.recv(timeout=timeout, require_link=require_link)
        return [message] if type(message) is bytes else list(message)

    def send_many(
        self, payloads: Iterable[Payload], *, timeout: float | None = None, require_link: bool = False
    ) -> int:
        """Send messages one after the other; how many were sent before the time was over, or something went wrong."""
        items, plain = self.prepare_many(payloads)
        sent = 0

        def attempt() -> Any:
            nonlocal sent
            while sent < len(items):
                many = self.try_send_many(items[sent : sent + _MANY]) if plain else 0
                if not many and self.try_send(items[sent]) is WOULD_BLOCK:
                    return WOULD_BLOCK
                sent += many or 1
            return None

        call(self, POLLOUT, attempt, timeout, require_link, partial=lambda: sent > 0)
        return sent

    def recv_many(self, most: int, *, timeout: float | None = None, require_link: bool = False) -> list[Any]:
        """Receive what is here, ``most`` messages at the most; waits for the first one only."""
        self.check_receives()
        if type(most) is not int or most < 1:
            raise ValueError(f"recv_many takes a whole number above 0, not {most!r}")

        received: list[Any] = call(self, POLLIN, lambda: self.try_receive_some(most), timeout, require_link)
        return received

    def __iter__(self) -> Iterator[Any]:
        """Messages as they come, until the last link is gone and everything that came is taken."""
        self.check_receives()
        while True:
            try:
                yield call(self, POLLIN | POLLLINK, self.try_iterate, None, False)
            except (StopIteration, Closed, NoLinks):
                return

    # ==== links =====================================================================================================

    def link(self, peer: str | SocketId, *, metadata: Any = None) -> None:
        """Link with ``"node/tag"``. Returns at once; the link is made in the background, however long that takes.

        It is made again after a crash of the peer's node. It is not made again when either side has ended it, by
        ``unlink()`` or by closing: then a loop over the socket ends, and another ``link()`` is needed to go on.

        Args:
            peer: The other socket.
            metadata: What its :meth:`on_link_request` is told about us; plain data, up to 16 KiB.
        """
        other = SocketId.parse(peer)
        check_metadata(metadata, self.core.transport.options.max_message)
        with Held(self.core.lock):
            self.check_open()
            self._refused.pop(other, None)
            self._had_links = True
            self.manager.link(other, metadata)
            self.core.work()

    def unlink(self, peer: str | SocketId, *, force: bool = False) -> None:
        """End a link, after everything that was sent over it has arrived; with ``force`` at once."""
        other = SocketId.parse(peer)
        with Held(self.core.lock):
            self.settle()
            self.manager.unlink(other, force)
            self.links_changed()
            self.core.work()

    @property
    def links(self) -> tuple[LinkInfo, ...]:
        """The links that are established."""
        with Held(self.core.lock):
            self.settle()
            self.unborrow()
            return tuple(link.info() for link in self._links.values() if link.established)

    @property
    def pending(self) -> tuple[tuple[SocketId, str], ...]:
        """The links that are being made or unmade, and how far they are."""
        with Held(self.core.lock):
            return tuple((link.peer, link.state.value) for link in self.manager.links.values() if not link.established)

    def link_to(self, peer: str | SocketId) -> LinkHandle:
        """The established link with a peer, to look at, poll, or change the capacity of."""
        other = SocketId.parse(peer)
        with Held(self.core.lock):
            link = self._links.get(other)
            if link is None or not link.established:
                raise NoLinks(f"{self.id} has no link with {other}; wait_linked() waits for one")
        return LinkHandle(self, link)

    def wait_linked(self, peer: str | SocketId | None = None, *, timeout: float | None = None) -> SocketId:
        """Wait until there is a link, with ``peer`` or any; whom it is with."""
        other = None if peer is None else SocketId.parse(peer)
        linked: SocketId = call(self, POLLLINK, lambda: self.try_linked(other), timeout, False)
        return linked

    def wait_unlinked(self, peer: str | SocketId | None = None, *, timeout: float | None = None) -> None:
        """Wait until there is no link with ``peer``, or none at all."""
        other = None if peer is None else SocketId.parse(peer)
        call(self, POLLLINK, lambda: self.try_unlinked(other), timeout, False, closed_is_done=True)

    # ==== closing ===================================================================================================

    def close(self, *, timeout: float | None = None) -> bool:
        """End every link, after everything that was sent has arrived, and free the tag.

        Args:
            timeout: Seconds after which to end them by force; None takes the node's option ``close_timeout``.

        Returns:
            Whether nothing had to be given up; False also if a peer ended its link by force meanwhile.
        """
        with Held(self.core.lock):
            self.begin_close()
        if timeout is None:
            timeout = self.core.transport.options.close_timeout
        try:
            call(self, POLLHUP, self.try_closed, timeout, False, closed_is_done=True)
        except TimeoutError:
            with Held(self.core.lock):
                self.force_close()
            return False
        return not self._gave_up

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close; at once if an exception is on its way."""
        self.close(timeout=None if kind is None else 0)

    def __repr__(self) -> str:
        """Which pattern, and its name."""
        return f"<a3m {self.protocol} {self.id}>"

    def stats(self) -> SocketStats:
        """The socket in numbers."""
        with Held(self.core.lock):
            return self.statistics()


class LinkHandle:
    """An established link, for the application: its numbers, its capacity, and something to poll.

    >>> import a3m
    >>> with a3m.Node("home", bind="127.0.0.1:0") as node:
    ...     push, pull = node.push("jobs"), node.pull("worker", capacity=10)
    ...     push.link("home/worker")
    ...     push.send(b"wash up", timeout=5)
    ...     link = pull.link_to(pull.wait_linked(timeout=5))
    ...     link.capacity = 50
    ...     a3m.poll([(link, a3m.POLLIN)], timeout=5) == [(link, a3m.POLLIN)]
    ...     link.info().capacity, link.info().queued
    True
    (50, 1)
    """

    def __init__(self, socket: Socket, link: Link) -> None:
        """Made by :meth:`Socket.link_to`."""
        self._socket = socket
        self._link = link

    @property
    def core(self) -> Core:
        """The node."""
        return self._socket.core

    @property
    def peer(self) -> SocketId:
        """Whom it is with."""
        return self._link.peer

    @property
    def capacity(self) -> int:
        """Messages that may wait here. Setting it gives credits to the peer, or takes some away."""
        assert self._link.incoming is not None
        return self._link.incoming.capacity

    @capacity.setter
    def capacity(self, value: int) -> None:
        checked = SocketOptions(capacity=value).capacity
        with Held(self._socket.core.lock):
            link = self._link
            assert link.incoming is not None
            if not link.established:
                raise LinkClosed(link.peer, "its capacity cannot be changed any more")
            link.incoming.most = checked  # what was set stays as it is
            change = link.incoming.resize(checked)
            if change:
                self._socket.give_credits(link, change)
                self._socket.core.work()

    def info(self) -> LinkInfo:
        """The link as :attr:`Socket.links` has it."""
        with Held(self._socket.core.lock):
            self._socket.settle()
            self._socket.unborrow()
            return self._link.info()

    def stats(self) -> LinkStats:
        """The link in numbers, also after its end."""
        with Held(self._socket.core.lock):
            self._socket.settle()
            self._socket.unborrow()
            return self._link.stats()

    def poll_events(self, entry: WaitEntry | None) -> int:
        """What holds now for this link alone; ``entry`` is told what happens to its socket."""
        with Held(self._socket.core.lock):
            if entry is not None and not self._socket.closed:
                self._socket.wait_queue.add(entry)
            self._socket.unborrow()
            link = self._link
            events = POLLIN if link.incoming is not None and link.incoming.queue else 0
            if not link.established:
                return events | POLLHUP
            return events | (POLLOUT if link.can_send else 0)

    def unpoll(self, entry: WaitEntry) -> None:
        """Tell ``entry`` nothing more."""
        self._socket.unpoll(entry)
