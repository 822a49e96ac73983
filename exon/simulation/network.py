"""A network that exists only in memory: real protocol nodes, virtual time, every fault drawn from one seed.

It is a driver like any other: it feeds datagrams to :class:`exon.protocol.Node` objects and takes theirs, only that
between the two it may lose, double, delay and reorder them, cut the network in two, move nodes to other addresses,
close them or make them forget everything. The same seed always gives the same run, to the last datagram.

What it drives may also sit on such a node and have the same verbs; :mod:`a3m.simulation` does that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from random import Random

from attrs import Factory, define, frozen

from exon.addresses import Address
from exon.clock import Clock
from exon.engine import Driven
from exon.events import Event, LookupWanted, PeerRestarted
from exon.options import Options
from exon.protocol import CloseReport, Node
from exon.simulation.link import Link
from exon.simulation.trace import describe, shorten

_SPIN_SECONDS = 0.001  # of virtual time
_SPIN_WAKES = 1000  # by timers of one node in that time; pacing at a gigabyte per second needs no more
_SPIN_DATAGRAMS = 100_000  # in one go


class Violation(AssertionError):
    """A promise was not kept: a message not delivered exactly once, a node that cannot forget, or one that spins."""


@frozen
class Farewell:
    """How one life of a node ended that was closed, and what it had accepted."""

    report: CloseReport
    accepted: list[tuple[str, bytes]]


@define(eq=False)
class Host:
    """A node and the machine it runs on."""

    id: str
    node: Node
    driven: Driven  # the node itself, or what sits on it
    address: Address
    options: Options | None
    to_send: deque[tuple[str, bytes]] = Factory(deque)
    received: list[tuple[str, bytes]] = Factory(list)
    accepted: list[tuple[str, bytes]] = Factory(list)
    unknown: list[bytes] = Factory(list)  # reported to this sender
    events: list[Event] = Factory(list)
    life: int = 0
    pace: float = 0.0  # seconds that the application takes over each delivery
    busy_until: float = 0.0
    link: Link | None = None  # the line that what it sends has to take
    wakes_at: float = float("inf")
    lives_lost: list[list[tuple[str, bytes]]] = Factory(list)  # what lives that ended without a close had accepted
    farewells: list[Farewell] = Factory(list)  # of lives that were closed
    evictions: int = 0  # in earlier lives
    online: bool = True
    close_by: float = float("inf")
    on_left: Callable[[], None] | None = None
    wakes: int = 0
    wakes_since: float = 0.0


class Network:
    """Nodes on a simulated network.

    >>> net = Network(seed=1, loss=0.3, duplicate=0.2)
    >>> for name in ("a", "b"):
    ...     _ = net.add(name)
    >>> for number in range(10):
    ...     net.send("a", "b", b"message %d" % number)
    >>> net.run()
    >>> len(net["b"].received), net.quiet
    (10, True)
    """

    def __init__(  # a fault each, all of them optional
        self,
        seed: int,
        *,
        loss: float = 0.0,
        duplicate: float = 0.0,
        reorder: float = 0.0,
        latency: float = 0.01,
        bandwidth: float | None = None,
        jitter: float = 0.1,
        mtu: int = 65507,
        discovery: bool = True,
        trace: Callable[[float, str], None] | None = None,
    ) -> None:
        """``latency`` is one way, in seconds, ``jitter`` the share of it that varies; ``bandwidth`` in bytes per second
        is that of every host's own line, with a queue of 100 ms (for other lines see :meth:`add`).

        ``reorder`` is the share of datagrams that take up to five times as long; ``discovery`` lets nodes look up
        each other's address (the answer takes a latency, too), without it see :meth:`introduce`. ``trace`` is told
        everything that happens, with its time.
        """
        self.random = Random(seed)
        self.loss = loss
        self.duplicate = duplicate
        self.reorder = reorder
        self.latency = latency
        self.bandwidth = bandwidth
        self.jitter = jitter
        self.mtu = mtu
        self.discovery = discovery
        self.now = 1.0
        self.hosts: dict[str, Host] = {}
        self.datagrams = 0  # sent, second copies included
        self.lost = 0
        self.trace = trace
        self._started = self.now
        self._at: dict[Address, Host] = {}
        self._cuts: set[tuple[str, str]] = set()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._sequence = count()
        self._next_address = count(1)

    def __getitem__(self, host_id: str) -> Host:
        """The host with this id."""
        return self.hosts[host_id]

    # -- building ----------------------------------------------------------------------------------------------------

    def add(self, host_id: str, options: Options | None = None, *, pace: float = 0.0, link: Link | None = None) -> Host:
        """Add a node; ``pace`` is how long its application takes over each delivery, ``link`` its (shared) line."""
        if link is None and self.bandwidth is not None:
            link = Link(self.bandwidth, queue=0.1 * self.bandwidth)
        node = self._node(host_id, options, Clock())
        host = Host(host_id, node, self._build_on(node), self._address(), options, pace=pace, link=link)
        self.hosts[host_id] = host
        self._at[host.address] = host
        self._note(f"{host_id} starts at {host.address[0]}")
        return host

    def introduce(self) -> None:
        """Tell every node where every other one is now, as people do who register addresses by hand."""
        self._note("everybody is told where everybody is")
        for host in self.hosts.values():
            for other in self.hosts.values():
                if other is not host:
                    host.node.register(other.id, other.address)
            self._work(host)

    def _node(self, host_id: str, options: Options | None, clock: Clock) -> Node:
        epoch = self.random.randrange(1, 2**63)
        return Node(host_id, epoch=epoch, secret=epoch.to_bytes(8, "big"), clock=clock, options=options)

    def _build_on(self, node: Node) -> Driven:
        """What is driven: for layers above to be put on a node that starts, for the first time or again."""
        return node

    def _address(self) -> Address:
        return (f"host-{next(self._next_address)}", 1)

    # -- what applications do ----------------------------------------------------------------------------------------

    def send(self, source: str, destination: str, payload: bytes) -> None:
        """Send as soon as the node takes it; never, if it is closed or closes before that."""
        host = self.hosts[source]
        host.to_send.append((destination, payload))
        self._work(host)

    def close(self, host_id: str, *, timeout: float = 30.0, then: Callable[[], None] | None = None) -> None:
        """Close a node, which leaves the network when that is complete or took too long; ``then`` is called then."""
        host = self.hosts[host_id]
        if not host.online or host.node.closing:
            return
        self._work(host)
        self._note(f"{host_id} closes")
        host.node.close()
        host.close_by = self.now + timeout
        host.on_left = then
        self.at(host.close_by, lambda: self._work(host))
        self._work(host)

    def at(self, when: float, action: Callable[[], None]) -> None:
        """Do something at a virtual time."""
        heappush(self._events, (max(when, self.now), next(self._sequence), action))

    # -- faults ------------------------------------------------------------------------------------------------------

    def cut(self, source: str, destination: str) -> None:
        """Let nothing pass from one host to another any more (one way)."""
        self._note(f"nothing passes from {source} to {destination} any more")
        self._cuts.add((source, destination))

    def heal(self) -> None:
        """Let everything pass again."""
        if self._cuts:
            self._note("everything passes again")
        self._cuts.clear()

    def move(self, host_id: str, *, aware: bool = True) -> None:
        """Give a host another address; ``aware`` tells its node, as the operating system would."""
        host = self.hosts[host_id]
        self._at.pop(host.address, None)
        host.address = self._address()
        if host.online:
            self._at[host.address] = host
        self._note(f"{host_id} moves to {host.address[0]}{'' if aware else ' without being told'}")
        if aware:
            host.driven.moved()
            self._work(host)

    def swap(self, one: str, other: str) -> None:
        """Let two hosts exchange their addresses, without telling them."""
        a, b = self.hosts[one], self.hosts[other]
        a.address, b.address = b.address, a.address
        for host in (a, b):
            self._at.pop(host.address, None)
        self._at |= {host.address: host for host in (a, b) if host.online}
        self._note(f"{one} and {other} exchange their addresses")

    def change_mtu(self, size: int) -> None:
        """Let no datagram pass that has more than ``size`` bytes."""
        self._note(f"the largest datagram that passes has {size} bytes")
        self.mtu = size

    def restart(self, host_id: str) -> None:
        """End a node and start it again under the same id with nothing in memory, as after kill -9."""
        host = self.hosts[host_id]
        if host.online:
            self._work(host)
            host.lives_lost.append(host.accepted)
            host.accepted = []
        self._note(f"{host_id} starts again with nothing in memory")
        host.evictions += host.node.stats().evictions
        host.to_send.clear()
        host.life += 1
        host.wakes_at = host.close_by = float("inf")
        host.online = True
        host.node = self._node(host_id, host.options, Clock())
        host.driven = self._build_on(host.node)
        self._at[host.address] = host

    # -- running -----------------------------------------------------------------------------------------------------

    @property
    def quiet(self) -> bool:
        """Whether every node that is here has forgotten every other, and nothing waits to be sent."""
        return all(
            not host.online
            or (
                not host.to_send
                and not host.node.deliverable
                and not (stats := host.node.stats()).peers
                and not (stats.send_records or stats.receive_records)
            )
            for host in self.hosts.values()
        )

    @property
    def elapsed(self) -> float:
        """Seconds of virtual time since the beginning."""
        return self.now - self._started

    def run(self, until: float = float("inf"), *, limit: float = 3600.0) -> None:
        """Let time pass: to the given moment, or until nothing is left to happen, for ``limit`` seconds at most."""
        end = min(until, self.now + limit)
        while self._events and self._events[0][0] <= end:
            self.now, _, action = heappop(self._events)
            action()
        if until != float("inf"):
            self.now = max(self.now, end)

    def _work(self, host: Host) -> None:
        """The driver's dozen lines."""
        if not host.online:
            return
        self._turn(host)
        node = host.node
        if node.closing and (node.closed or self.now >= host.close_by):
            self._leave(host)
        else:
            self._schedule(host)

    def _turn(self, host: Host) -> None:
        host.driven.expire(self.now)
        self._accept(host)
        self._consume(host)
        self._flush(host)
        self._accept(host)

    def _flush(self, host: Host) -> None:
        """Send everything that may leave, and do what only a driver can."""
        for number, (destination, datagram) in enumerate(host.driven.datagrams(self.now)):
            if number == _SPIN_DATAGRAMS:
                raise Violation(f"{host.id} spins: {number} datagrams at {self.now:.6f} s and no end")
            self._transmit(host, destination, datagram)
        for event in host.driven.events():
            self._note(f"{host.id} reports {type(event).__name__} of {event.peer}")
            host.events.append(event)
            if isinstance(event, LookupWanted):
                self._look_up(host, event.peer)
            elif isinstance(event, PeerRestarted):
                host.unknown += event.unknown

    def _leave(self, host: Host) -> None:
        """What an endpoint does when its close is over: what had arrived can still be taken, the socket is gone."""
        host.busy_until = 0.0
        while host.node.deliverable:
            self._consume(host)
            host.busy_until = 0.0
        report = host.node.report()
        self._note(f"{host.id} leaves: {report}")
        host.farewells.append(Farewell(report, host.accepted))
        host.accepted = []
        host.online = False
        self._at.pop(host.address, None)
        if host.on_left is not None:
            host.on_left()

    def _accept(self, host: Host) -> None:
        """Applications retry in order: a message that finds no room holds up those behind it to the same node."""
        if host.node.closing:
            host.to_send.clear()  # the application is told so
            return
        full = set()
        for _ in range(len(host.to_send)):
            destination, payload = host.to_send.popleft()
            if destination not in full and host.node.send(destination, payload, self.now):
                host.accepted.append((destination, payload))
                if self.trace is not None:
                    self._note(f"{host.id} accepts for {destination}: {shorten(payload)}")
            else:
                full.add(destination)
                host.to_send.append((destination, payload))

    def _consume(self, host: Host) -> None:
        if self.now < host.busy_until:
            return
        for delivery in host.node.deliveries():
            host.received += ((delivery.peer, message) for message in delivery.messages)
            if self.trace is not None:
                self._note(f"{host.id} delivers from {delivery.peer}: {', '.join(map(shorten, delivery.messages))}")
            if host.pace:
                host.busy_until = self.now + host.pace * len(delivery.messages)
                self.at(host.busy_until, lambda: self._work(host))
                return

    def _schedule(self, host: Host) -> None:
        deadline = host.driven.deadline()
        if deadline is None or deadline >= host.wakes_at:
            return
        host.wakes_at = deadline
        self.at(deadline, lambda: self._wake(host, deadline))

    def _wake(self, host: Host, when: float) -> None:
        if when != host.wakes_at:
            return
        host.wakes_at = float("inf")
        host.wakes += 1
        if self.now > host.wakes_since + _SPIN_SECONDS:
            host.wakes, host.wakes_since = 1, self.now
        elif host.wakes > _SPIN_WAKES:
            raise Violation(f"{host.id} spins: its timers went off {host.wakes} times around {self.now:.6f} s")
        self._work(host)

    def _look_up(self, host: Host, peer: str) -> None:
        if not self.discovery:
            return
        life = host.life

        def answer() -> None:
            if host.life == life:
                host.driven.located(peer, self.hosts[peer].address if peer in self.hosts else None)
                self._work(host)

        self.at(self.now + self.latency, answer)

    # -- the wire ----------------------------------------------------------------------------------------------------

    def _note(self, text: str) -> None:
        if self.trace is not None:
            self.trace(self.now, text)

    def _follow(self, text: str, source: Address, destination: Address, datagram: bytes) -> None:
        """Trace what becomes of a datagram."""
        if self.trace is not None:
            route = f"{source[0]} > {destination[0]}"
            self._note(f"{route} {text}, {len(datagram)} bytes {describe(datagram)}")

    def _transmit(self, host: Host, destination: Address, datagram: bytes) -> None:
        random = self.random
        depart = self.now
        source = host.address
        if host.link is not None and len(datagram) <= self.mtu:  # what is too large does not get as far
            left = host.link.depart(len(datagram), self.now)
            if left is None:
                self.datagrams += 1
                self.lost += 1
                self._follow("lost in a full queue", source, destination, datagram)
                return
            depart = left
        copies = 1 + (random.random() < self.duplicate)
        self.datagrams += copies
        for copy in range(copies):
            if random.random() < self.loss or len(datagram) > self.mtu:
                self.lost += 1
                self._follow("lost" if len(datagram) <= self.mtu else "too large", source, destination, datagram)
                continue
            delay = self.latency * random.uniform(1 - self.jitter, 1 + self.jitter)
            if random.random() < self.reorder:
                delay *= random.uniform(1, 5)
            self._follow("doubled" if copy else "sent", source, destination, datagram)
            self.at(depart + delay, lambda: self._arrive(host.id, source, destination, datagram))

    def _arrive(self, sender: str, source: Address, destination: Address, datagram: bytes) -> None:
        host = self._at.get(destination)
        if host is None or (sender, host.id) in self._cuts:
            self.lost += 1
            self._follow("finds nobody" if host is None else "is cut off", source, destination, datagram)
            return
        self._follow(f"arrives at {host.id}", source, destination, datagram)
        host.driven.receive(datagram, source, self.now)
        self._work(host)
