"""Sockets for tasks, the same for every event loop.

Each wraps a socket of :mod:`a3m.patterns`, which knows what to do, and adds how a task waits. What never waits is
passed on as it is; what may wait is a coroutine here, with the names and arguments of :class:`a3m.Socket`.

*Cancellation loses nothing.* A call can be cancelled before it takes effect, where it lets others run or while it
waits, and never afterwards: a cancelled ``recv`` has taken no message, a cancelled ``send`` has sent none. A task that
was woken to take a message and is cancelled before it runs wakes the next one in line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from a3m.async_driver import Loop
from a3m.errors import Closed, NoLinks, NotSupported, Timeout
from a3m.flow import Item
from a3m.ids import SocketId
from a3m.link import LinkInfo
from a3m.options import SocketOptions
from a3m.patterns import ReqSocket as ReqPattern
from a3m.patterns import RouterSocket as RouterPattern
from a3m.patterns import Subscription
from a3m.patterns import SubSocket as SubPattern
from a3m.patterns import XPubSocket as XPubPattern
from a3m.patterns import XSubSocket as XSubPattern
from a3m.payload import Payload
from a3m.socket import LinkHandle
from a3m.socket import Socket as Pattern
from a3m.socket_core import WOULD_BLOCK
from a3m.stats import SocketStats
from a3m.waiting import step
from a3m.waitqueue import POLLHUP, POLLIN, POLLLINK, POLLOUT, WaitEntry


async def call(
    loop: Loop,
    socket: Pattern,
    events: int,
    attempt: Callable[[], Any],
    timeout: float | None,
    require_link: bool = False,
    *,
    closed_is_done: bool = False,
    partial: Callable[[], bool] = lambda: False,
) -> Any:
    """What ``attempt`` answers, as soon as it answers anything but WOULD_BLOCK; waits for ``events`` in between."""
    await loop.checkpoint()
    core = socket.core
    deadline = None if timeout is None else core.time() + timeout
    while True:
        with core.lock:
            result = step(socket, events, attempt, timeout, deadline, require_link, closed_is_done, partial)
            if result is not WOULD_BLOCK:
                return result
        await _park(loop, socket, events, deadline)


async def _park(loop: Loop, socket: Pattern, events: int, deadline: float | None) -> None:
    """Wait until something changed or the time is over; whoever is woken and leaves all the same passes it on."""
    waiter, core = loop.waiter(), socket.core
    woken = False

    def wake(_events: int) -> bool:
        nonlocal woken
        if woken:
            return False
        woken = True
        waiter.wake()
        return True

    entry = socket.wait_entry(events, wake)
    with core.lock:
        socket.wait_queue.add(entry)
    leaving = True
    try:
        await waiter.wait(deadline)
        leaving = False
    finally:
        with core.lock:
            socket.wait_queue.remove(entry)
            if woken and leaving:
                socket.pass_on(events)


_Pattern = TypeVar("_Pattern", bound=Pattern)


class Socket(Generic[_Pattern]):
    """One end of any number of links. Any number of tasks may use it at the same time.

    Every coroutine can be cancelled at any time, and then has done nothing; :meth:`send_many` and :meth:`close` say
    what they have done.
    """

    def __init__(self, loop: Loop, pattern: _Pattern) -> None:
        """Made by the node."""
        self._loop = loop
        self._pattern = pattern

    @property
    def pattern(self) -> _Pattern:
        """What this socket does, without the waiting: for methods that only a pattern of one's own has."""
        return self._pattern

    @property
    def id(self) -> SocketId:
        """Its name."""
        return self._pattern.id

    @property
    def protocol(self) -> str:
        """The name of its pattern."""
        return self._pattern.protocol

    @property
    def options(self) -> SocketOptions:
        """What it allows; can be changed."""
        return self._pattern.options

    @property
    def closed(self) -> bool:
        """Whether it is closed, or closing."""
        return self._pattern.closed

    # -- sending and receiving ---------------------------------------------------------------------------------------

    async def send(self, payload: Payload, *, timeout: float | None = None, require_link: bool = False) -> None:
        """Send a message, to be delivered exactly once.

        Args:
            payload: Bytes, or a sequence of parts that arrive together.
            timeout: Seconds to wait for a link with room; None waits, 0 tries once.
            require_link: Raise :class:`a3m.NoLinks` instead of waiting while there is no link, nor one being made.
        """
        await self._send(self._pattern.prepare(payload), timeout, require_link)

    async def _send(self, item: Item, timeout: float | None, require_link: bool) -> Any:
        pattern = self._pattern
        return await call(self._loop, pattern, POLLOUT, lambda: pattern.try_send(item), timeout, require_link)

    async def recv(self, *, timeout: float | None = None, require_link: bool = False) -> Any:
        """Receive the next message: ``bytes``, or a ``tuple`` of them if it was sent in parts."""
        self._pattern.check_receives()
        return await call(self._loop, self._pattern, POLLIN, self._pattern.try_receive, timeout, require_link)

    async def recv_parts(self, *, timeout: float | None = None, require_link: bool = False) -> list[bytes]:
        """Receive the next message as a list of its parts, however many they are."""
        message = await self.recv(timeout=timeout, require_link=require_link)
        return [message] if type(message) is bytes else list(message)

    async def send_many(
        self, payloads: Iterable[Payload], *, timeout: float | None = None, require_link: bool = False
    ) -> int:
        """Send messages one after the other; how many were sent before the time was over.

        If it is cancelled, so many from the first one on have been sent as ``stats().sent`` has grown by; use a
        ``timeout`` to be told.
        """
        pattern = self._pattern
        items = [pattern.prepare(payload) for payload in payloads]
        sent = 0

        def attempt() -> Any:
            nonlocal sent
            while sent < len(items):
                if pattern.try_send(items[sent]) is WOULD_BLOCK:
                    return WOULD_BLOCK
                sent += 1
            return None

        await call(self._loop, pattern, POLLOUT, attempt, timeout, require_link, partial=lambda: sent > 0)
        return sent

    async def recv_many(self, most: int, *, timeout: float | None = None, require_link: bool = False) -> list[Any]:
        """Receive what is here, ``most`` messages at the most; waits for the first one only."""
        pattern = self._pattern
        pattern.check_receives()
        if type(most) is not int or most < 1:
            raise ValueError(f"recv_many takes a whole number above 0, not {most!r}")
        received: list[Any] = await call(
            self._loop, pattern, POLLIN, lambda: pattern.try_receive_some(most), timeout, require_link
        )
        return received

    def __aiter__(self) -> Self:
        """Messages as they come, until the last link is gone and everything that came is taken."""
        self._pattern.check_receives()
        return self

    async def __anext__(self) -> Any:
        """The next one."""
        try:
            return await call(self._loop, self._pattern, POLLIN | POLLLINK, self._pattern.try_iterate, None)
        except (Closed, NoLinks):
            raise StopAsyncIteration from None

    # -- links -------------------------------------------------------------------------------------------------------

    def link(self, peer: str | SocketId, *, metadata: Any = None) -> None:
        """Link with ``"node/tag"``. Returns at once; the link is made in the background, however long that takes."""
        self._pattern.link(peer, metadata=metadata)

    def unlink(self, peer: str | SocketId, *, force: bool = False) -> None:
        """End a link, after everything that was sent over it has arrived; with ``force`` at once."""
        self._pattern.unlink(peer, force=force)

    @property
    def links(self) -> tuple[LinkInfo, ...]:
        """The links that are established."""
        return self._pattern.links

    @property
    def pending(self) -> tuple[tuple[SocketId, str], ...]:
        """The links that are being made or unmade, and how far they are."""
        return self._pattern.pending

    def link_to(self, peer: str | SocketId) -> LinkHandle:
        """The established link with a peer, to look at, poll, or change the capacity of."""
        return self._pattern.link_to(peer)

    async def wait_linked(self, peer: str | SocketId | None = None, *, timeout: float | None = None) -> SocketId:
        """Wait until there is a link, with ``peer`` or any; whom it is with."""
        other, pattern = None if peer is None else SocketId.parse(peer), self._pattern
        linked: SocketId = await call(self._loop, pattern, POLLLINK, lambda: pattern.try_linked(other), timeout)
        return linked

    async def wait_unlinked(self, peer: str | SocketId | None = None, *, timeout: float | None = None) -> None:
        """Wait until there is no link with ``peer``, or none at all."""
        other, pattern = None if peer is None else SocketId.parse(peer), self._pattern
        attempt = lambda: pattern.try_unlinked(other)  # noqa: E731
        await call(self._loop, pattern, POLLLINK, attempt, timeout, closed_is_done=True)

    # -- closing -----------------------------------------------------------------------------------------------------

    async def close(self, *, timeout: float | None = None) -> bool:
        """End every link, after everything that was sent has arrived, and free the tag.

        If it is cancelled, the links are ended by force.

        Args:
            timeout: Seconds after which to end them by force; None takes the node's option ``close_timeout``.

        Returns:
            Whether nothing had to be given up; False also if a peer ended its link by force meanwhile.
        """
        pattern, core = self._pattern, self._pattern.core
        with core.lock:
            pattern.begin_close()
        if timeout is None:
            timeout = core.transport.options.close_timeout
        try:
            await call(self._loop, pattern, POLLHUP, pattern.try_closed, timeout, closed_is_done=True)
        except Timeout:
            self.close_now()
            return False
        except BaseException:
            self.close_now()
            raise
        return not pattern._gave_up

    def close_now(self) -> None:
        """End every link by force, and free the tag."""
        with self._pattern.core.lock:
            self._pattern.begin_close()
            self._pattern.force_close()

    async def __aenter__(self) -> Self:
        """Itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close; at once if an exception is on its way."""
        if kind is None:
            await self.close()
        else:
            self.close_now()

    # -- looking in --------------------------------------------------------------------------------------------------

    def poll_events(self, entry: WaitEntry | None) -> int:
        """For :class:`a3m.Poller`, whose ``fileno()`` tasks can wait for."""
        return self._pattern.poll_events(entry)

    def unpoll(self, entry: WaitEntry) -> None:
        """Tell ``entry`` nothing more."""
        self._pattern.unpoll(entry)

    def stats(self) -> SocketStats:
        """The socket in numbers."""
        return self._pattern.stats()

    def __repr__(self) -> str:
        """Which pattern, and its name."""
        return repr(self._pattern)


class ReqSocket(Socket[ReqPattern]):
    """Asks, one question at a time."""

    def cancel(self) -> None:
        """Give up on the answer, if one is outstanding; the socket can ask again at once."""
        self._pattern.cancel()


class RouterSocket(Socket[RouterPattern]):
    """Receives with a route, sends along one."""

    async def send(
        self,
        payload: Payload,
        *,
        to: str | SocketId | Sequence[str] = (),
        timeout: float | None = None,
        require_link: bool = False,
    ) -> None:
        """Send to a socket by name, or along the route that came with a message."""
        await self._send(self._pattern.prepare(payload, to=to), timeout, require_link)


class XPubSocket(Socket[XPubPattern]):
    """Publishes, and receives subscriptions."""

    async def send(  # type: ignore[override]  # a message has a topic
        self, topic: str, payload: Payload, *, timeout: float | None = None, require_link: bool = False
    ) -> int:
        """Publish; how many subscribers it goes to. Waits while one of them has no room."""
        reached: int = await self._send(self._pattern.prepare(topic, payload), timeout, require_link)
        return reached

    async def send_many(self, *_: Any, **__: Any) -> int:
        """Each message has a topic of its own, so there is no such call."""
        return self._pattern.send_many()


class XSubSocket(Socket[XSubPattern]):
    """Receives what is published, and sends subscriptions."""

    async def send(  # type: ignore[override]  # it sends nothing but subscriptions
        self, subscription: Subscription, *, timeout: float | None = None, require_link: bool = False
    ) -> None:
        """Subscribe or unsubscribe, at every publisher, present and future. Never waits for one."""
        await self._loop.checkpoint()
        self._pattern.send(subscription, timeout=timeout, require_link=require_link)

    async def send_many(self, *_: Any, **__: Any) -> int:
        """A subscription may have any number of topics, so there is no such call."""
        raise NotSupported("subscribe with send(Subscription(topics, True)), with all topics at a time")


class SubSocket(Socket[SubPattern]):
    """Receives what is published under the topics it subscribed to."""

    def subscribe(self, *topics: str) -> None:
        """Want messages whose topic begins with one of these, from every publisher; ``""`` wants all."""
        self._pattern.subscribe(*topics)

    def unsubscribe(self, *topics: str) -> None:
        """Want them no longer; without arguments, nothing at all."""
        self._pattern.unsubscribe(*topics)

    @property
    def subscriptions(self) -> tuple[str, ...]:
        """What it wants."""
        return self._pattern.subscriptions

    async def send(self, *_: Any, **__: Any) -> None:
        """A SUB socket says what it wants with :meth:`subscribe`."""
        self._pattern.send()

    async def send_many(self, *_: Any, **__: Any) -> int:
        """A SUB socket says what it wants with :meth:`subscribe`."""
        self._pattern.send()
        return 0
