"""What drives a node inside an event loop, with the loop left out.

The engine of blocking nodes is a thread (:mod:`exon.engine`); here the loop that runs the application's tasks drives
the node as well, between them, and no thread is involved. What a loop has to offer for that is :class:`Loop`:
:mod:`a3m.trio` and :mod:`a3m.asyncio` are two of them and little else.

Whoever wants to send does so in its own task, unless something is on the way already: then the driver sends, in its
next turn, what has come together until then. An idle node sleeps until its next deadline.

Name look-ups may take their time, so they run in threads that last no longer than the look-up; their answers come back
through the loop. All else happens in the loop's thread, and nothing here ever waits.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Protocol, TypeVar

from a3m.core import Core
from exon.addresses import Address, format_address, parse_address
from exon.discovery import Discovery, Lookups
from exon.events import LookupWanted
from exon.log import log
from exon.udp import UdpSocket, resolve

_TRAIN = 64  # datagrams handed to the kernel at a time
_TAKEN = 256 * 1024  # bytes taken in a row, as by exon.engine
_READS = 32  # system calls in a row that only receive, so that tasks and timers run under continuous traffic too
_PAUSE = 0.01  # seconds after an exception of our own
# Seconds until datagrams that the kernel had no room for are tried again. Its buffer holds milliseconds of traffic, and
# waiting for room instead would take a second task in trio.
_FULL = 0.001

BURST = 16
"""Calls that need not wait between two that let others run.

Every call could. But the driver is one of the others, and then each message would leave in a datagram of its own.
"""

_Result = TypeVar("_Result")


class Waiter(Protocol):
    """A task that waits."""

    def wake(self) -> None:
        """Let it go on; once."""

    async def wait(self, deadline: float | None) -> None:
        """Sleep until woken or until the deadline. In the task that made the waiter."""


class Watch(Protocol):
    """Calls back when a descriptor is readable, and at a time that can be brought forward."""

    def alarm(self, when: float) -> None:
        """Call back at ``when`` at the latest; a time that has passed means soon, and never at once."""

    def stop(self) -> None:
        """Never call back again. Before the descriptor is closed."""

    def abandon(self) -> None:
        """In the child of a fork(), never call back again, and do not touch what the loop shares with its parent."""


class Loop(Protocol):
    """What a node needs of an event loop."""

    def time(self) -> float:
        """The loop's own clock, in seconds."""

    async def checkpoint(self) -> None:
        """Be cancelled here if at all, and let others run, once in :data:`BURST` calls."""

    async def turn(self) -> None:
        """Be cancelled here if at all, and let all others run once."""

    def spawn(self, function: Callable[[], Awaitable[None]]) -> Callable[[], object]:
        """Run a function beside all others, that must not fail; what ends it before it does by itself."""

    def waiter(self) -> Waiter:
        """For the task that calls."""

    def watch(self, descriptor: int, ready: Callable[[], None]) -> Watch:
        """Call ``ready()`` as long as a descriptor is readable."""

    def from_thread(self, function: Callable[[], None]) -> None:
        """Call a function in the loop, from another thread; nothing happens if the loop has ended."""

    def in_thread(self, function: Callable[[], _Result]) -> Awaitable[_Result]:
        """Call a function that may block."""


class _Directory:
    """Where nodes are: host names that were registered, and for all others a discovery service."""

    def __init__(self, service: Discovery | None) -> None:
        self.service = service
        self.hosts: dict[str, str] = {}

    def knows(self, node_id: str) -> bool:
        return self.service is not None or node_id in self.hosts

    def lookup(self, node_id: str, /) -> str | None:
        host, service = self.hosts.get(node_id), self.service
        return host if host is not None or service is None else service.lookup(node_id)


class Driver:
    """One node and its UDP socket, in a loop."""

    def __init__(self, core: Core, udp: UdpSocket, discovery: Discovery | None, loop: Loop) -> None:
        """Start driving."""
        self.udp = udp
        self.errors = 0
        self._core = core
        self._loop = loop
        self._directory = _Directory(discovery)
        self._lookups = Lookups(self._found, self._directory)
        self._unsent: Sequence[tuple[Address, bytes]] = ()
        self._stopped = False
        self._watch = loop.watch(udp.fileno(), self._ready)
        core.work = core.work_apart = self.work

    # -- for the node, with the lock held ----------------------------------------------------------------------------

    def work(self) -> bool:
        """Something may want to leave: let it, or leave it to the next turn if it can join what is on the way.

        The answer is whether anything may have come in meanwhile, from a socket of this node.
        """
        if not self._core.wants_to_send or self._stopped:
            return False
        if self._core.busy:
            self._watch.alarm(self._loop.time())
            return False
        self.flush()
        return True

    def flush(self) -> None:
        """Do what is due, and send what can leave."""
        if not self._stopped:
            self._guarded(self._flush)

    def register(self, node_id: str, address: str) -> None:
        """Say where a node is. A host name is looked up in the background, now and whenever the node is lost."""
        host, _ = parse_address(address)
        if _is_numeric(host) or not host:
            self._directory.hosts.pop(node_id, None)
            self._core.transport.register(node_id, resolve(address, family=self.udp.family))
        else:
            self._core.transport.unregister(node_id)
            self._directory.hosts[node_id] = address
            self._lookups.ask(node_id)
        self.flush()

    def unregister(self, node_id: str) -> None:
        """Forget where a node is."""
        self._directory.hosts.pop(node_id, None)
        self._core.transport.unregister(node_id)

    def set_discovery(self, service: Discovery | None) -> None:
        """Ask another service from now on."""
        self._directory.service = service

    def rebind(self, udp: UdpSocket) -> None:
        """Go on with another socket."""
        old, self.udp = self.udp, udp
        udp.dropped.update(old.dropped)
        udp.receive_errors.update(old.receive_errors)
        self._unsent = ()
        self._core.moved()
        self._guarded(lambda: self._read(old))  # whatever the kernel had accepted on the old address is still good
        self._watch.stop()
        old.close()
        self._watch = self._loop.watch(udp.fileno(), self._ready)
        self.flush()

    def stop(self) -> None:
        """Drive no longer, and close the socket."""
        if not self._stopped:
            self._stopped = True
            self._watch.stop()
            self.udp.close()

    def abandon(self) -> None:
        """In the child of a fork(): the loop, the socket and what was about to leave are the parent's."""
        if not self._stopped:
            self._stopped = True
            self._unsent = ()
            self._watch.abandon()
            self.udp.close()

    # -- the turns ---------------------------------------------------------------------------------------------------

    def _ready(self) -> None:
        """Datagrams are here, or the alarm went off."""
        with self._core.lock:
            if not self._stopped:
                self._guarded(self._turn)

    def _guarded(self, work: Callable[[], None]) -> None:
        """Work, and go on whatever happens: a fault of ours is counted and logged, the 1st, 2nd, 4th, ... time."""
        try:
            work()
        except Exception:
            self._count_error("driver-error")
            self._watch.alarm(self._loop.time() + _PAUSE)

    def _count_error(self, kind: str, **where: object) -> None:
        self.errors += 1
        if not self.errors & (self.errors - 1):
            log.exception(kind, node=self._core.id, count=self.errors, **where)

    def _turn(self) -> None:
        self._read(self.udp)
        self._flush()

    def _read(self, udp: UdpSocket) -> None:
        """Take in what has arrived; what is left after so much makes the socket readable again."""
        taken = 0
        for _ in range(_READS):
            datagrams = udp.receive()
            if not datagrams:
                return
            now = self._loop.time()
            at = 0
            while at < len(datagrams):
                try:
                    at += self._core.receive_some(datagrams, at, now)
                except Exception:
                    datagram, source = datagrams[at]
                    self._count_error("datagram-error", source=source, datagram=datagram[:64].hex())
                    at += 1
            taken += sum([len(datagram) for datagram, _ in datagrams])
            if taken >= _TAKEN:
                return  # senders wait for an answer

    def _flush(self) -> None:
        core, now = self._core, self._loop.time()
        core.expire(now)
        if not self._unsent or self._send(self._unsent):
            leaving = core.datagrams(now)
            while batch := list(islice(leaving, _TRAIN)):
                if not self._send(batch):
                    break
        core.check_closed()
        for event in core.events():
            if isinstance(event, LookupWanted) and self._directory.knows(event.peer):
                self._lookups.ask(event.peer)
        deadline = core.deadline()
        if self._unsent:
            deadline = now + _FULL
        if deadline is not None:
            self._watch.alarm(deadline)

    def _send(self, batch: Sequence[tuple[Address, bytes]]) -> bool:
        """Hand datagrams to the kernel; False when it is full and the rest has to wait."""
        sent = self.udp.send(batch)
        self._unsent = batch[sent:]
        return not self._unsent

    # -- discovery ---------------------------------------------------------------------------------------------------

    def _found(self, peer: str, answer: str | None) -> None:
        """A look-up is over; called in a thread of its own."""
        address = resolve(answer, family=self.udp.family) if answer is not None else None

        def tell() -> None:
            with self._core.lock:
                self._core.located(peer, address)
                self.flush()

        self._loop.from_thread(tell)


def _is_numeric(host: str) -> bool:
    with suppress(ValueError):
        ipaddress.ip_address(host)
        return True
    return False


async def open_udp(loop: Loop, bind: str, socket: Callable[[str], UdpSocket]) -> UdpSocket:
    """A UDP socket; a host name to bind to is looked up in a thread."""
    host, _ = parse_address(bind)
    if host and not _is_numeric(host):
        bind = format_address(await loop.in_thread(lambda: resolve(bind)))
    return socket(bind)
