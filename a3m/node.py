"""A node for threads: an Exon node on a UDP socket, an engine thread, and sockets that wait by blocking."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from random import Random
from threading import Lock
from time import monotonic
from types import TracebackType
from typing import Any, Self, TypeVar

import attrs
from attrs import frozen

from a3m.core import Core
from a3m.errors import Closed, NotSupported
from a3m.events import Event
from a3m.ids import check_node
from a3m.lanes import BATCH
from a3m.patterns import (
    DealerSocket,
    PairSocket,
    PubSocket,
    PullSocket,
    PushSocket,
    RepSocket,
    ReqSocket,
    RouterSocket,
    SubSocket,
    XPubSocket,
    XSubSocket,
)
from a3m.signals import Held
from a3m.socket import Socket
from a3m.stats import NodeStats
from exon import Discovery, Options
from exon.addresses import Address
from exon.engine import Engine
from exon.events import Event as TransportEvent
from exon.log import log
from exon.protocol import Node as Transport
from exon.udp import UdpSocket, resolve

PATTERNS: tuple[type[Socket], ...] = (
    PushSocket,
    PullSocket,
    ReqSocket,
    RepSocket,
    DealerSocket,
    RouterSocket,
    PubSocket,
    SubSocket,
    XPubSocket,
    XSubSocket,
    PairSocket,
)

SOCKETS_SHARE = 0.8  # of the time to close
GOODBYE = 2.0  # seconds for peers to confirm a close when no message of the application depends on it

_AnySocket = TypeVar("_AnySocket", bound=Socket)


@frozen
class CloseReport:
    """How a close went.

    ``undelivered`` messages never left. ``unknown`` ones did, and may or may not have arrived: nobody said that they
    were taken. All others have arrived. ``peers`` says which nodes were concerned, and how.

    >>> import a3m
    >>> node = a3m.Node("home", bind="127.0.0.1:0")
    >>> node.close()
    CloseReport(clean=True, undelivered=0, unknown=0, peers={})
    """

    clean: bool
    undelivered: int
    unknown: int
    peers: Mapping[str, str]


def check_arguments(id: str, store: None, options: Options | None) -> None:
    """Raise if no node can be made of these."""
    check_node(id)
    if store is not None:
        raise NotSupported("durable nodes are not there yet; leave store out")
    if options is not None and not isinstance(options, Options):
        raise TypeError(f"options are a3m.Options(name=value, ...), not {type(options).__name__}")


def make_core(id: str, udp: UdpSocket, options: Options | None, time: Callable[[], float]) -> Core:
    """The node itself, in a new life; whoever asks for it has to drive it."""
    options = options if options is not None else Options()
    # What the socket's buffer cannot hold is lost without any congestion, so no sender may have more on the way.
    room = min(options.receive_bytes, udp.receive_buffer // 2)
    transport = Transport(
        id,
        epoch=secrets.randbelow(2**63 - 1) + 1,
        secret=secrets.token_bytes(16),
        options=attrs.evolve(options, receive_bytes=room),
    )
    return Core(transport, random=Random(), time=time)


def check_pattern(pattern: Any) -> type[Socket]:
    """The class itself, if it is a pattern."""
    if not isinstance(pattern, type) or not issubclass(pattern, Socket):
        raise TypeError(f"a pattern is a class derived from a3m.Socket, {pattern!r} is not; see docs/patterns.md")
    missing = [name for name in ("protocol", "compatible") if not hasattr(pattern, name)]
    if missing:
        raise TypeError(f"{pattern.__name__} has no {' and no '.join(missing)}; every pattern sets both")
    return pattern


def find_pattern(known: Mapping[str, type[Socket]], pattern: str | type[Socket]) -> type[Socket]:
    """The class of a pattern that is given by name, or as a class."""
    if not isinstance(pattern, str):
        return check_pattern(pattern)
    if pattern not in known:
        names = ", ".join(sorted(known))
        raise NotSupported(f"no pattern {pattern!r}; there are {names}. Make others known with register_pattern()")
    return known[pattern]


def report_of(core: Core) -> CloseReport:
    """How the close of a node went. With the lock held."""
    report = core.transport.report()
    undelivered, unknown = core.count_undelivered()
    return CloseReport(not undelivered and not unknown, undelivered, unknown, dict(report.peers))


def warn_of(node: str, report: CloseReport) -> None:
    """Log what a close could not deliver, where nobody looks at the report."""
    if report.undelivered or report.unknown:
        log.warning("unclean-close", node=node, undelivered=report.undelivered, unknown=report.unknown)


class Node:
    """Sockets with names, on one UDP port.

    Args:
        id: The node's name, 1 to 255 bytes of UTF-8 without a slash.
        bind: ``"host:port"``, or ``":port"`` for all interfaces; port 0 takes any free one.
        discovery: Asked for the addresses of nodes nobody registered: anything with ``lookup(id) -> "host:port"``.
        store: A durable store; not supported yet.
        options: Limits and time-outs of the transport.
        socket: Opens the UDP socket, here and in :meth:`rebind`; for tests, see :func:`exon.simulation.lossy`.

    >>> with Node("server", bind="127.0.0.1:0") as server, Node("client", bind="127.0.0.1:0") as client:
    ...     client.register("server", f"127.0.0.1:{server.address[1]}")
    ...     with server.rep("echo") as rep, client.req("asker") as req:
    ...         req.link("server/echo")
    ...         req.send(b"hello", timeout=5)
    ...         rep.send(rep.recv(timeout=5))
    ...         req.recv(timeout=5)
    b'hello'
    """

    def __init__(
        self,
        id: str,
        *,
        bind: str = ":0",
        discovery: Discovery | None = None,
        store: None = None,
        options: Options | None = None,
        socket: Callable[[str], UdpSocket] = UdpSocket,
    ) -> None:
        """Running when constructed."""
        check_arguments(id, store, options)
        udp = socket(bind)
        self._open_socket = socket
        self._core = make_core(id, udp, options, monotonic)
        self._patterns = {pattern.protocol: pattern for pattern in PATTERNS}
        self._closing = Lock()
        self._report: CloseReport | None = None
        self._engine = Engine(self._core, udp, self._core.check_closed, self._ignore, discovery)
        # The engine guards the core with a lock of its own; sockets use the same.
        self._core.lock = self._engine.lock
        self._core.work = self._work
        self._core.work_apart = self._work_apart
        self._core.driver = self._engine
        self._engine.on_fork = self._forked

    def _forked(self) -> None:
        """In the child of a fork(), the node is its parent's: two processes must not use the same numbers."""
        self._closing = Lock()
        self._core.abandon()
        if self._report is None:
            self._report = CloseReport(False, 0, 0, {})

    def _work_apart(self) -> bool:
        return self._work(apart=True)

    def _work(self, apart: bool = False) -> bool:
        """Something wants to leave: do it here if nothing is on the way yet, or there is enough of it.

        The rest leaves as soon as somebody hears of the arrival of what is on the way. The answer is whether anything
        may have come in meanwhile.
        """
        core = self._core
        if not (core.dirty or core.speakers or core.outbox):
            return False
        busy = core.busy
        if busy and core.unsent < BATCH:
            return False
        self._engine.run_now(read=busy, apart=apart)
        return True

    def _ignore(self, _: TransportEvent) -> None:
        """The core has taken what it needs."""

    @property
    def id(self) -> str:
        """The node's name."""
        return self._core.id

    @property
    def address(self) -> Address:
        """The local address, as (host, port)."""
        return self._engine.udp.address

    # -- sockets -----------------------------------------------------------------------------------------------------

    def socket(self, pattern: str | type[_AnySocket], tag: str, **options: Any) -> Any:
        """A socket of a pattern: one of :data:`a3m.PUSH` and so on, a registered name, or a class."""
        cls = find_pattern(self._patterns, pattern)
        with Held(self._core.lock):
            return cls(self._core, tag, **options)

    def register_pattern(self, pattern: type[Socket]) -> None:
        """Make a pattern of one's own known by its ``protocol``."""
        self._patterns[check_pattern(pattern).protocol] = pattern

    def push(self, tag: str, **options: Any) -> PushSocket:
        """A socket that hands out work."""
        socket: PushSocket = self.socket(PushSocket, tag, **options)
        return socket

    def pull(self, tag: str, **options: Any) -> PullSocket:
        """A socket that takes work."""
        socket: PullSocket = self.socket(PullSocket, tag, **options)
        return socket

    def req(self, tag: str, **options: Any) -> ReqSocket:
        """A socket that asks."""
        socket: ReqSocket = self.socket(ReqSocket, tag, **options)
        return socket

    def rep(self, tag: str, **options: Any) -> RepSocket:
        """A socket that answers."""
        socket: RepSocket = self.socket(RepSocket, tag, **options)
        return socket

    def dealer(self, tag: str, **options: Any) -> DealerSocket:
        """A socket that asks many questions at a time."""
        socket: DealerSocket = self.socket(DealerSocket, tag, **options)
        return socket

    def router(self, tag: str, **options: Any) -> RouterSocket:
        """A socket that answers in any order, or forwards."""
        socket: RouterSocket = self.socket(RouterSocket, tag, **options)
        return socket

    def pub(self, tag: str, **options: Any) -> PubSocket:
        """A socket that publishes."""
        socket: PubSocket = self.socket(PubSocket, tag, **options)
        return socket

    def sub(self, tag: str, **options: Any) -> SubSocket:
        """A socket that subscribes."""
        socket: SubSocket = self.socket(SubSocket, tag, **options)
        return socket

    def xpub(self, tag: str, **options: Any) -> XPubSocket:
        """A socket that publishes, and receives subscriptions."""
        socket: XPubSocket = self.socket(XPubSocket, tag, **options)
        return socket

    def xsub(self, tag: str, **options: Any) -> XSubSocket:
        """A socket that receives what is published, and sends subscriptions."""
        socket: XSubSocket = self.socket(XSubSocket, tag, **options)
        return socket

    def pair(self, tag: str, **options: Any) -> PairSocket:
        """A socket that talks to exactly one other."""
        socket: PairSocket = self.socket(PairSocket, tag, **options)
        return socket

    # -- peers -------------------------------------------------------------------------------------------------------

    def register(self, id: str, address: str) -> None:
        """Say where another node is, as ``"host:port"``."""
        check_node(id)
        resolved = resolve(address, family=self._engine.udp.family)
        with Held(self._core.lock):
            self._check_open()
            self._core.transport.register(id, resolved)
            self._engine.wake()

    def unregister(self, id: str) -> None:
        """Take a registration back."""
        with Held(self._core.lock):
            self._core.transport.unregister(id)

    def set_discovery(self, service: Discovery | None) -> None:
        """Ask another discovery service from now on."""
        self._engine.set_discovery(service)

    def rebind(self, bind: str) -> None:
        """Move to another local address while everything goes on, as a change of network does."""
        with Held(self._core.lock):
            self._check_open()
        self._engine.rebind(self._open_socket(bind))

    # -- ending ------------------------------------------------------------------------------------------------------

    def close(self, timeout: float | None = None) -> CloseReport:
        """Close all sockets, deliver what was accepted, and stop.

        Args:
            timeout: Seconds after which to give up; None takes the option ``close_timeout``.

        Returns:
            Whether everything was delivered, and what was not. Closing again returns the same report.
        """
        core = self._core
        deadline = monotonic() + (core.transport.options.close_timeout if timeout is None else timeout)
        with self._closing:  # one thread closes, the others wait for its report
            if self._report is not None:
                return self._report
            with Held(core.lock):
                core.closing = True
                sockets = list(core.sockets.values())
                for socket in sockets:
                    socket.begin_close()
            # Some of the time is for saying goodbye to the peers that do answer.
            patience = monotonic() + (deadline - monotonic()) * SOCKETS_SHARE
            for socket in sockets:
                assert isinstance(socket, Socket)
                socket.close(timeout=max(0.0, patience - monotonic()))
            return self._close_transport(deadline)

    def _close_transport(self, deadline: float) -> CloseReport:
        core = self._core
        with Held(core.lock):
            core.finish(monotonic())
            self._engine.run_now()
            done = Lock()
            done.acquire()
            core.when_closed = done.release
            core.check_closed()
        closed = done.acquire(timeout=max(0.0, min(deadline - monotonic(), GOODBYE)))
        if not closed and core.unsettled:
            done.acquire(timeout=max(0.0, deadline - monotonic()))
        with Held(core.lock):
            core.when_closed = None
            if not core.transport.closing:  # it never had room for everything
                core.transport.close()
                self._engine.run_now()
            self._report = report_of(core)
            core.wake_watchers()
        self._engine.stop()
        return self._report

    def _check_open(self) -> None:
        if self._core.closing:
            raise Closed(f"node {self.id!r} is closed")

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close; at once if an exception is on its way. What could not be delivered is logged."""
        warn_of(self.id, self.close(timeout=None if kind is None else 0))

    def __repr__(self) -> str:
        """Who and where."""
        return f"<a3m.Node {self.id!r} at {self.address[0]}:{self.address[1]}>"

    # -- looking in --------------------------------------------------------------------------------------------------

    def events(self, timeout: float | None = None) -> Iterator[Event]:
        """What happens to links and peers, as it happens; ends after ``timeout`` seconds without an event."""
        while True:
            parked = Lock()
            parked.acquire()
            with Held(self._core.lock):
                event = self._core.take_event()
                if event is None:
                    if self._report is not None:
                        return
                    self._core.watchers.append(parked.release)
            if event is not None:
                yield event
            elif not parked.acquire(timeout=-1 if timeout is None else max(0.0, timeout)):
                with Held(self._core.lock), suppress(ValueError):  # it may have been woken just now
                    self._core.watchers.remove(parked.release)
                return

    def stats(self) -> NodeStats:
        """The node, its sockets and its transport in numbers."""
        with Held(self._core.lock):
            return self._core.statistics()
