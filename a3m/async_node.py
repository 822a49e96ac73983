"""A node for tasks, the same for every event loop: the names of :class:`a3m.Node`, with coroutines where one waits."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from a3m.async_driver import Driver, Loop, Waiter, open_udp
from a3m.async_socket import ReqSocket, RouterSocket, Socket, SubSocket, XPubSocket, XSubSocket, call
from a3m.errors import Closed, Timeout
from a3m.events import Event
from a3m.ids import check_node
from a3m.node import (
    GOODBYE,
    PATTERNS,
    SOCKETS_SHARE,
    CloseReport,
    check_arguments,
    check_pattern,
    find_pattern,
    make_core,
    report_of,
    warn_of,
)
from a3m.patterns import DealerSocket as DealerPattern
from a3m.patterns import PairSocket as PairPattern
from a3m.patterns import PubSocket as PubPattern
from a3m.patterns import PullSocket as PullPattern
from a3m.patterns import PushSocket as PushPattern
from a3m.patterns import RepSocket as RepPattern
from a3m.patterns import ReqSocket as ReqPattern
from a3m.patterns import RouterSocket as RouterPattern
from a3m.patterns import SubSocket as SubPattern
from a3m.patterns import XPubSocket as XPubPattern
from a3m.patterns import XSubSocket as XSubPattern
from a3m.socket import Socket as Pattern
from a3m.stats import NodeStats
from a3m.waitqueue import POLLHUP
from exon import Discovery, Options, forks
from exon.addresses import Address
from exon.udp import UdpSocket

# Patterns whose sockets have other methods or arguments than most; the first that fits counts.
_SPECIAL: tuple[tuple[type[Pattern], type[Socket[Any]]], ...] = (
    (ReqPattern, ReqSocket),
    (RouterPattern, RouterSocket),
    (XPubPattern, XPubSocket),
    (SubPattern, SubSocket),
    (XSubPattern, XSubSocket),
)


class Node:
    """Sockets with names, on one UDP port, for the tasks of one event loop. Made by ``open_node``."""

    def __init__(
        self,
        loop: Loop,
        id: str = "",
        udp: UdpSocket | None = None,
        discovery: Discovery | None = None,
        options: Options | None = None,
        socket: Callable[[str], UdpSocket] = UdpSocket,
    ) -> None:
        """Running when constructed, in the loop that runs now."""
        if udp is None:
            raise TypeError("a node for tasks is opened, not made: async with open_node('name', bind=...) as node")
        self._loop = loop
        self._core = make_core(id, udp, options, loop.time)
        self._patterns = {pattern.protocol: pattern for pattern in PATTERNS}
        self._open_socket = socket
        self._report: CloseReport | None = None
        self._closers: list[Waiter] = []
        self._driver = Driver(self._core, udp, discovery, loop)
        forks.register(self)

    def renew_locks(self) -> None:
        """In the child of a fork(), the thread that held the lock may not exist."""
        forks.renew(self._core.lock)

    def abandon(self) -> None:
        """In the child of a fork(), the node is its parent's: two processes must not use the same numbers."""
        self._core.abandon()
        self._driver.abandon()
        self._closers.clear()
        if self._report is None:
            self._report = CloseReport(False, 0, 0, {})

    @property
    def id(self) -> str:
        """The node's name."""
        return self._core.id

    @property
    def address(self) -> Address:
        """The local address, as (host, port)."""
        return self._driver.udp.address

    # -- sockets -----------------------------------------------------------------------------------------------------

    def socket(self, pattern: str | type[Pattern], tag: str, **options: Any) -> Any:
        """A socket of a pattern: one of :data:`a3m.PUSH` and so on, a registered name, or a class."""
        cls = find_pattern(self._patterns, pattern)
        with self._core.lock:
            made = cls(self._core, tag, **options)
        wrapper = next((special for base, special in _SPECIAL if isinstance(made, base)), Socket)
        return wrapper(self._loop, made)

    def register_pattern(self, pattern: type[Pattern]) -> None:
        """Make a pattern of one's own known by its ``protocol``."""
        self._patterns[check_pattern(pattern).protocol] = pattern

    def push(self, tag: str, **options: Any) -> Socket[PushPattern]:
        """A socket that hands out work."""
        socket: Socket[PushPattern] = self.socket(PushPattern, tag, **options)
        return socket

    def pull(self, tag: str, **options: Any) -> Socket[PullPattern]:
        """A socket that takes work."""
        socket: Socket[PullPattern] = self.socket(PullPattern, tag, **options)
        return socket

    def req(self, tag: str, **options: Any) -> ReqSocket:
        """A socket that asks."""
        socket: ReqSocket = self.socket(ReqPattern, tag, **options)
        return socket

    def rep(self, tag: str, **options: Any) -> Socket[RepPattern]:
        """A socket that answers."""
        socket: Socket[RepPattern] = self.socket(RepPattern, tag, **options)
        return socket

    def dealer(self, tag: str, **options: Any) -> Socket[DealerPattern]:
        """A socket that asks many questions at a time."""
        socket: Socket[DealerPattern] = self.socket(DealerPattern, tag, **options)
        return socket

    def router(self, tag: str, **options: Any) -> RouterSocket:
        """A socket that answers in any order, or forwards."""
        socket: RouterSocket = self.socket(RouterPattern, tag, **options)
        return socket

    def pub(self, tag: str, **options: Any) -> XPubSocket:
        """A socket that publishes."""
        socket: XPubSocket = self.socket(PubPattern, tag, **options)
        return socket

    def sub(self, tag: str, **options: Any) -> SubSocket:
        """A socket that subscribes."""
        socket: SubSocket = self.socket(SubPattern, tag, **options)
        return socket

    def xpub(self, tag: str, **options: Any) -> XPubSocket:
        """A socket that publishes, and receives subscriptions."""
        socket: XPubSocket = self.socket(XPubPattern, tag, **options)
        return socket

    def xsub(self, tag: str, **options: Any) -> XSubSocket:
        """A socket that receives what is published, and sends subscriptions."""
        socket: XSubSocket = self.socket(XSubPattern, tag, **options)
        return socket

    def pair(self, tag: str, **options: Any) -> Socket[PairPattern]:
        """A socket that talks to exactly one other."""
        socket: Socket[PairPattern] = self.socket(PairPattern, tag, **options)
        return socket

    # -- peers -------------------------------------------------------------------------------------------------------

    def register(self, id: str, address: str) -> None:
        """Say where another node is, as ``"host:port"``. A host name is looked up in the background."""
        check_node(id)
        with self._core.lock:
            self._check_open()
            self._driver.register(id, address)

    def unregister(self, id: str) -> None:
        """Take a registration back."""
        with self._core.lock:
            self._driver.unregister(id)

    def set_discovery(self, service: Discovery | None) -> None:
        """Ask another discovery service from now on."""
        self._driver.set_discovery(service)

    async def rebind(self, bind: str) -> None:
        """Move to another local address while everything goes on, as a change of network does."""
        await self._loop.checkpoint()
        self._check_open()
        udp = await open_udp(self._loop, bind, self._open_socket)
        if self._core.closing:  # meanwhile
            udp.close()
        self._check_open()
        with self._core.lock:
            self._driver.rebind(udp)

    # -- ending ------------------------------------------------------------------------------------------------------

    async def close(self, timeout: float | None = None) -> CloseReport:
        """Close all sockets, deliver what was accepted, and stop.

        If it is cancelled, what is not delivered yet is given up, and the node is closed all the same.

        Args:
            timeout: Seconds after which to give up; None takes the option ``close_timeout``.

        Returns:
            Whether everything was delivered, and what was not. Closing again returns the same report.
        """
        core = self._core
        if core.closing:
            return await self._closed()
        core.closing = True
        deadline = core.time() + (core.transport.options.close_timeout if timeout is None else timeout)
        try:
            await self._close_sockets(deadline)
            await self._close_transport(deadline)
        finally:
            report = self.close_now()
        return report

    async def _closed(self) -> CloseReport:
        """The report of the task that closes."""
        await self._loop.checkpoint()
        while self._report is None:
            waiter = self._loop.waiter()
            self._closers.append(waiter)
            try:
                await waiter.wait(None)
            finally:
                if waiter in self._closers:
                    self._closers.remove(waiter)
        return self._report

    async def _close_sockets(self, deadline: float) -> None:
        core = self._core
        patience = core.time() + (deadline - core.time()) * SOCKETS_SHARE
        with core.lock:
            sockets = list(core.sockets.values())
            for socket in sockets:
                socket.begin_close()
        for socket in sockets:
            assert isinstance(socket, Pattern)
            left = max(0.0, patience - core.time())
            try:
                await call(self._loop, socket, POLLHUP, socket.try_closed, left, closed_is_done=True)
            except Timeout:
                with core.lock:
                    socket.force_close()

    async def _close_transport(self, deadline: float) -> None:
        core, waiter = self._core, self._loop.waiter()
        with core.lock:
            core.finish(core.time())
            core.when_closed = waiter.wake
            self._driver.flush()
        await waiter.wait(min(deadline, core.time() + GOODBYE))
        if not core.closed and core.unsettled:
            waiter = self._loop.waiter()
            with core.lock:
                core.when_closed = waiter.wake
            await waiter.wait(deadline)

    def close_now(self) -> CloseReport:
        """Close, and give up what is not delivered yet. Never waits."""
        core = self._core
        with core.lock:
            if self._report is None:
                core.closing = True
                for socket in list(core.sockets.values()):
                    socket.begin_close()
                    socket.force_close()
                core.when_closed = None
                if not core.closed:
                    core.hand_over_all(core.time())
                    core.transport.close()
                    self._driver.flush()
                self._report = report_of(core)
                self._driver.stop()
                core.wake_watchers()
                closers, self._closers = self._closers, []
                for waiter in closers:
                    waiter.wake()
        return self._report

    def _check_open(self) -> None:
        if self._core.closing:
            raise Closed(f"node {self.id!r} is closed")

    async def __aenter__(self) -> Self:
        """Itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close; at once if an exception is on its way. What could not be delivered is logged."""
        warn_of(self.id, await self.close() if kind is None else self.close_now())

    def __repr__(self) -> str:
        """Who and where."""
        return f"<{type(self).__module__}.Node {self.id!r} at {self.address[0]}:{self.address[1]}>"

    # -- looking in --------------------------------------------------------------------------------------------------

    def events(self, timeout: float | None = None) -> Events:
        """What happens to links and peers, as it happens; ends after ``timeout`` seconds without an event."""
        return Events(self, timeout)

    async def next_event(self, timeout: float | None) -> Event | None:
        """The next event, or None if there is none in time or the node is closed."""
        core = self._core
        await self._loop.checkpoint()
        deadline = None if timeout is None else core.time() + timeout
        while True:
            event = core.take_event()
            if event is not None or self._report is not None or (deadline is not None and deadline <= core.time()):
                return event
            waiter = self._loop.waiter()
            core.watchers.append(waiter.wake)
            try:
                await waiter.wait(deadline)
            finally:
                if waiter.wake in core.watchers:
                    core.watchers.remove(waiter.wake)

    def stats(self) -> NodeStats:
        """The node, its sockets and its transport in numbers."""
        with self._core.lock:
            return self._core.statistics()


class Events:
    """Events of a node, for ``async for``. Cancelling loses none."""

    def __init__(self, node: Node, timeout: float | None) -> None:
        """Made by :meth:`Node.events`."""
        self._node = node
        self._timeout = timeout

    def __aiter__(self) -> Self:
        """Itself."""
        return self

    async def __anext__(self) -> Event:
        """The next one."""
        event = await self._node.next_event(self._timeout)
        if event is None:
            raise StopAsyncIteration
        return event


async def open_node(
    loop: Loop,
    id: str,
    bind: str,
    discovery: Discovery | None,
    store: None,
    options: Options | None,
    socket: Callable[[str], UdpSocket],
) -> Node:
    """A running node."""
    check_arguments(id, store, options)
    udp = await open_udp(loop, bind, socket)
    try:
        return Node(loop, id, udp, discovery, options, socket)
    except BaseException:
        udp.close()
        raise
