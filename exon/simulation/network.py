"""A network that exists only in memory: real protocol nodes, virtual time, every fault drawn from one seed.

It is a driver like any other: it feeds datagrams to :class:`exon.protocol.Node` objects and takes theirs, only that
between the two it may lose, double, delay and reorder them, cut the network in two, move nodes to other addresses or
make them forget everything. The same seed always gives the same run, to the last datagram.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from random import Random

from attrs import Factory, define

from exon.addresses import Address
from exon.clock import Clock
from exon.events import Event, LookupWanted, PeerRestarted
from exon.options import Options
from exon.protocol import Node


@define(eq=False)
class Host:
    """A node and the machine it runs on."""

    id: str
    node: Node
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
    link_free_at: float = 0.0
    wakes_at: float = float("inf")
    lives_lost: list[list[tuple[str, bytes]]] = Factory(list)  # what earlier lives had accepted


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
        mtu: int = 65507,
        discovery: bool = True,
    ) -> None:
        """``latency`` is one way, in seconds; ``bandwidth`` in bytes per second, with a queue of 100 ms.

        ``reorder`` is the share of datagrams that take up to five times as long; ``discovery`` lets nodes look up
        each other's address (the answer takes a latency, too).
        """
        self.random = Random(seed)
        self.loss = loss
        self.duplicate = duplicate
        self.reorder = reorder
        self.latency = latency
        self.bandwidth = bandwidth
        self.mtu = mtu
        self.discovery = discovery
        self.now = 1.0
        self.hosts: dict[str, Host] = {}
        self.lost = 0
        self._at: dict[Address, Host] = {}
        self._cuts: set[tuple[str, str]] = set()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._sequence = count()
        self._next_address = count(1)

    def __getitem__(self, host_id: str) -> Host:
        """The host with this id."""
        return self.hosts[host_id]

    # -- building ----------------------------------------------------------------------------------------------------

    def add(self, host_id: str, options: Options | None = None, *, pace: float = 0.0) -> Host:
        """Add a node; ``pace`` is how long its application takes over each delivery."""
        host = Host(host_id, self._node(host_id, options, Clock()), self._address(), options, pace=pace)
        self.hosts[host_id] = host
        self._at[host.address] = host
        return host

    def _node(self, host_id: str, options: Options | None, clock: Clock) -> Node:
        return Node(host_id, epoch=self.random.randrange(1, 2**63), clock=clock, options=options)

    def _address(self) -> Address:
        return (f"host-{next(self._next_address)}", 1)

    # -- what applications do ----------------------------------------------------------------------------------------

    def send(self, source: str, destination: str, payload: bytes) -> None:
        """Send as soon as the node takes it."""
        host = self.hosts[source]
        host.to_send.append((destination, payload))
        self._work(host)

    def at(self, when: float, action: Callable[[], None]) -> None:
        """Do something at a virtual time."""
        heappush(self._events, (max(when, self.now), next(self._sequence), action))

    # -- faults ------------------------------------------------------------------------------------------------------

    def cut(self, source: str, destination: str) -> None:
        """Let nothing pass from one host to another any more (one way)."""
        self._cuts.add((source, destination))

    def heal(self) -> None:
        """Let everything pass again."""
        self._cuts.clear()

    def move(self, host_id: str, *, aware: bool = True) -> None:
        """Give a host another address; ``aware`` tells its node, as the operating system would."""
        host = self.hosts[host_id]
        self._at.pop(host.address, None)
        host.address = self._address()
        self._at[host.address] = host
        if aware:
            host.node.moved()
            self._work(host)

    def swap(self, one: str, other: str) -> None:
        """Let two hosts exchange their addresses, without telling them."""
        a, b = self.hosts[one], self.hosts[other]
        a.address, b.address = b.address, a.address
        self._at[a.address], self._at[b.address] = a, b

    def restart(self, host_id: str) -> None:
        """End a node and start it again under the same id with nothing in memory, as after kill -9."""
        host = self.hosts[host_id]
        self._work(host)
        host.lives_lost.append(host.accepted)
        host.accepted = []
        host.to_send.clear()
        host.life += 1
        host.wakes_at = float("inf")
        host.node = self._node(host_id, host.options, Clock())

    # -- running -----------------------------------------------------------------------------------------------------

    @property
    def quiet(self) -> bool:
        """Whether every node has forgotten every other, and nothing waits to be sent."""
        return all(
            not host.to_send
            and not host.node.deliverable
            and not (stats := host.node.stats()).peers
            and not (stats.send_records or stats.receive_records)
            for host in self.hosts.values()
        )

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
        node = host.node
        node.expire(self.now)
        self._accept(host)
        self._consume(host)
        for destination, datagram in node.datagrams(self.now):
            self._transmit(host, destination, datagram)
        for event in node.events():
            host.events.append(event)
            if isinstance(event, LookupWanted):
                self._look_up(host, event.peer)
            elif isinstance(event, PeerRestarted):
                host.unknown += event.unknown
        self._accept(host)
        self._schedule(host)

    def _accept(self, host: Host) -> None:
        """Applications retry in order: a message that finds no room holds up those behind it to the same node."""
        full = set()
        for _ in range(len(host.to_send)):
            destination, payload = host.to_send.popleft()
            if destination not in full and host.node.send(destination, payload, self.now):
                host.accepted.append((destination, payload))
            else:
                full.add(destination)
                host.to_send.append((destination, payload))

    def _consume(self, host: Host) -> None:
        if self.now < host.busy_until:
            return
        for delivery in host.node.deliveries():
            host.received += ((delivery.peer, message) for message in delivery.messages)
            if host.pace:
                host.busy_until = self.now + host.pace * len(delivery.messages)
                self.at(host.busy_until, lambda: self._work(host))
                return

    def _schedule(self, host: Host) -> None:
        deadline = host.node.deadline()
        if deadline is None or deadline >= host.wakes_at:
            return
        host.wakes_at = deadline
        self.at(deadline, lambda: self._wake(host, deadline))

    def _wake(self, host: Host, when: float) -> None:
        if when == host.wakes_at:
            host.wakes_at = float("inf")
            self._work(host)

    def _look_up(self, host: Host, peer: str) -> None:
        if not self.discovery:
            return
        life = host.life

        def answer() -> None:
            if host.life == life:
                host.node.located(peer, self.hosts[peer].address if peer in self.hosts else None)
                self._work(host)

        self.at(self.now + self.latency, answer)

    # -- the wire ----------------------------------------------------------------------------------------------------

    def _transmit(self, host: Host, destination: Address, datagram: bytes) -> None:
        random = self.random
        depart = self.now
        if self.bandwidth is not None:
            depart = max(depart, host.link_free_at)
            if depart - self.now > 0.1:
                self.lost += 1
                return
            host.link_free_at = depart = depart + len(datagram) / self.bandwidth
        copies = 1 + (random.random() < self.duplicate)
        source = host.address
        for _ in range(copies):
            if random.random() < self.loss or len(datagram) > self.mtu:
                self.lost += 1
                continue
            delay = self.latency * random.uniform(0.9, 1.1)
            if random.random() < self.reorder:
                delay *= random.uniform(1, 5)
            self.at(depart + delay, lambda: self._arrive(host.id, source, destination, datagram))

    def _arrive(self, sender: str, source: Address, destination: Address, datagram: bytes) -> None:
        host = self._at.get(destination)
        if host is None or (sender, host.id) in self._cuts:
            self.lost += 1
            return
        host.node.receive(datagram, source, self.now)
        self._work(host)
