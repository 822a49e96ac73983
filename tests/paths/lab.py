"""Paths with a bottleneck, in virtual time, and applications that always have something to say."""

from __future__ import annotations

from collections import Counter, deque
from functools import partial

from exon.options import Options
from exon.outbound import Outbound
from exon.simulation.link import Link
from exon.simulation.network import Host, Network

FRAMING = 28  # bytes of IP and UDP headers
MBIT = 1e6 / 8
WITHOUT_LIMIT = Options(receive_bytes=16 << 20, send_bytes=8 << 20)


class Lab(Network):
    """A network on which some hosts stream, and some answer everything they get."""

    def __init__(
        self, *, mbit: float = 100.0, rtt: float = 0.01, loss: float = 0.0, queue: float = 1.0, seed: int = 1
    ) -> None:
        """``queue`` is that of the bottleneck, as a share of what the path holds (but 20 datagrams at least)."""
        super().__init__(seed, latency=rtt / 2, loss=loss, jitter=0.0, mtu=1472)
        self.rtt = rtt
        size = max(queue * mbit * MBIT * rtt, 20 * 1500)
        self.there = Link(mbit * MBIT, queue=size, framing=FRAMING)
        self.back = Link(mbit * MBIT, queue=size, framing=FRAMING)
        self.streams: dict[str, tuple[str, bytes]] = {}
        self.servers: set[str] = set()
        self.clients: dict[str, str] = {}
        self.got: Counter[str] = Counter()  # messages, by who sent them
        self.trips: list[float] = []  # of requests
        self._asked: dict[bytes, float] = {}

    def stream(self, source: str, destination: str, *, size: int = 1000) -> Outbound:
        """Let a host send without end, from now on."""
        self.streams[source] = destination, bytes(size)
        self._work(self[source])
        return self.outbound(source, destination)

    def outbound(self, source: str, destination: str) -> Outbound:
        """A host's sending side, to look into."""
        return self[source].node._state.peers[destination].outbound

    def ask(self, client: str, server: str, actors: int, *, size: int = 1000) -> None:
        """Let so many actors at one host ask another, each again as soon as it has its answer."""
        self.servers.add(server)
        self.clients[client] = server
        for actor in range(actors):
            self._ask(client, actor.to_bytes(4, "big") + bytes(size - 4))
        self._work(self[client])

    def _ask(self, client: str, request: bytes) -> None:
        self._asked[request] = self.now
        self[client].to_send.append((self.clients[client], request))

    def _accept(self, host: Host) -> None:
        super()._accept(host)
        stream = self.streams.get(host.id)
        if stream is not None:
            while host.node.send(*stream, self.now):
                pass

    def _consume(self, host: Host) -> None:
        for delivery in host.node.deliveries():
            self.got[delivery.peer] += len(delivery.messages)
            if host.id in self.servers:
                host.to_send.extend((delivery.peer, message) for message in delivery.messages)
            elif host.id in self.clients:
                for message in delivery.messages:
                    self.trips.append(self.now - self._asked.pop(message))
                    self._ask(host.id, message)
        self._accept(host)

    def rates(self, seconds: float) -> dict[str, float]:
        """Let time pass; messages per second that arrived, by who sent them."""
        before = self.got.copy()
        self.run(until=self.now + seconds)
        return {source: (self.got[source] - before[source]) / seconds for source in self.got}

    def percentile(self, share: float) -> float:
        """Of the round trips of requests so far."""
        return sorted(self.trips)[int(share * len(self.trips))]


class Tcp:
    """A TCP sender with CUBIC's window (RFC 9438) and selective acknowledgements, as a competitor."""

    SIZE = 1500
    MOST = 1 << 16

    def __init__(self, lab: Lab, link: Link) -> None:
        """Send without end from now on, over the lab's path and this link."""
        self.delivered = 0  # segments
        self._lab, self._link = lab, link
        self._window, self._threshold = 10.0, float("inf")
        self._before, self._cut_at, self._since = 0.0, -1.0, 0.0
        self._out: deque[tuple[int, float]] = deque()  # number and time of what is on the way
        self._gone: set[int] = set()
        self._next = 0
        self._send()

    def _send(self) -> None:
        lab = self._lab
        while len(self._out) < self._window:
            number = self._next
            self._next += 1
            self._out.append((number, lab.now))
            left = self._link.depart(self.SIZE - self._link.framing, lab.now)
            if left is not None and lab.random.random() >= lab.loss:
                lab.at(left + 2 * lab.latency, partial(self._acked, number))
        last = self._next
        lab.at(lab.now + 1.0, lambda: self._timeout(last))

    def _timeout(self, last: int) -> None:
        if self._out and self._next == last:
            self._out.clear()
            self._threshold, self._window = self._window / 2, 1.0
            self._send()

    def _acked(self, number: int) -> None:
        while self._out and self._out[0][0] < number - 3:
            _, sent = self._out.popleft()
            if sent > self._cut_at:
                self._before, self._since = self._window, self._lab.now
                self._cut_at = self._lab.now
                self._window = self._threshold = max(2.0, 0.7 * self._window)
        for entry in self._out:
            if entry[0] == number:
                self._out.remove(entry)
                break
            if entry[0] > number:
                break
        self.delivered += 1
        if self._window < self._threshold:
            self._window += 1
        else:
            elapsed = self._lab.now - self._since
            cubic = 0.4 * (elapsed - (0.75 * self._before) ** (1 / 3)) ** 3 + self._before
            reno = 0.7 * self._before + 0.53 * elapsed / self._lab.rtt
            self._window += max(0.0, min(max(cubic, reno), 1.5 * self._window) - self._window) / self._window
        self._send()


def pair(**path: float) -> Lab:
    """Two hosts, each at one end of the bottleneck."""
    lab = Lab(**path)  # type: ignore[arg-type]
    lab.add("a", WITHOUT_LIMIT, link=lab.there)
    lab.add("b", WITHOUT_LIMIT, link=lab.back)
    return lab
