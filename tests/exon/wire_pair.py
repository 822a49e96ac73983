"""A few real nodes, virtual time, and a wire between them that a test steers datagram by datagram.

Where :mod:`exon.simulation` draws faults from a seed, here a test says what happens to which datagram: lose it, hold
it, change its order, or write one of its own. The driver also watches that no node *spins*, that is, asks again and
again to be called at a moment that has already passed.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from itertools import count
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import NamedTuple, TypeVar

from exon.addresses import Address
from exon.clock import Clock
from exon.events import Event
from exon.frames import Frame
from exon.options import Options
from exon.plain import read_short
from exon.protocol import Node
from exon.wire import Datagram, Header, decode, encode, encode_frame, is_short, time_until

_MOST_EARLY = 8  # calls in a row that a node may ask for at a moment that has passed
_MOST_AT_ONCE = 20_000  # datagrams that a node may send at one moment

F = TypeVar("F")
E = TypeVar("E")


class Parcel(NamedTuple):
    """One datagram on its way."""

    sent: float
    source: Address
    destination: Address
    data: bytes
    datagram: Datagram

    @property
    def header(self) -> Header:
        return self.datagram.header

    def frames(self, kind: type[F]) -> list[F]:
        """Its frames of one kind."""
        return [frame for frame in self.datagram.frames if isinstance(frame, kind)]

    def has(self, *kinds: type) -> bool:
        """Whether it has a frame of one of these kinds."""
        return any(isinstance(frame, kinds) for frame in self.datagram.frames)


class Wire:
    """Nodes and what is under way between them."""

    def __init__(self, *ids: str, options: Options | None = None, latency: float = 0.005) -> None:
        """With these nodes from the beginning, all of which know each other's address."""
        self.now = 1.0
        self.latency = latency  # one way
        self.mtu = 65507
        self.nodes: dict[str, Node] = {}
        self.addresses: dict[str, Address] = {}
        self.got: dict[str, list[bytes]] = {}
        self.events: dict[str, list[Event]] = {}
        self.log: list[Parcel] = []  # everything that left, lost or not
        self.lose: Callable[[Parcel], bool] = lambda parcel: False
        self.busy: set[str] = set()  # nodes whose application takes nothing
        self.off: set[str] = set()  # nodes that do nothing: dead, or not reachable by anybody
        self._constants: dict[int, Header] = {}  # what short datagrams leave out, by their proof
        self._flying: list[tuple[float, int, Parcel]] = []
        self._sequence = count()
        self._epochs = count(11, 11)
        for node_id in ids:
            self.add(node_id, options)
        self.introduce()

    # -- building ----------------------------------------------------------------------------------------------------

    def add(self, node_id: str, options: Options | None = None, *, clock: Clock | None = None) -> Node:
        """A node, or another life of one: same id and address, nothing in memory."""
        epoch = next(self._epochs)
        node = Node(node_id, epoch=epoch, secret=b"secret %d" % epoch, clock=clock, options=options)
        self.nodes[node_id] = node
        self.addresses.setdefault(node_id, (node_id, 1))
        self.got.setdefault(node_id, [])
        self.events.setdefault(node_id, [])
        return node

    def introduce(self) -> None:
        """Tell every node where every other is."""
        for node in self.nodes.values():
            for other, address in self.addresses.items():
                if other != node.id:
                    node.register(other, address)

    def __getitem__(self, node_id: str) -> Node:
        return self.nodes[node_id]

    # -- acting ------------------------------------------------------------------------------------------------------

    def send(self, source: str, destination: str, *messages: bytes) -> None:
        """Send messages that must be accepted."""
        for message in messages:
            assert self.nodes[source].send(destination, message, self.now)
        self.work(source)

    def close(self, *ids: str) -> None:
        """Begin to close nodes."""
        for node_id in ids:
            self.nodes[node_id].close()
        for node_id in ids:
            self.work(node_id)

    def move(self, node_id: str, host: str, *, aware: bool = False) -> None:
        """Give a node another address; ``aware`` tells it."""
        self.addresses[node_id] = (host, 1)
        if aware:
            self.nodes[node_id].moved()
            self.work(node_id)

    def inject(self, destination: str, data: bytes, source: Address) -> list[Parcel]:
        """Let a datagram arrive that no node sent; what its receiver sends at once."""
        before = len(self.log)
        self.nodes[destination].receive(data, source, self.now)
        self.work(destination)
        return self.log[before:]

    def work(self, node_id: str) -> None:
        """What a driver does after every wake-up."""
        if node_id in self.off:
            return
        node = self.nodes[node_id]
        node.expire(self.now)
        if node_id not in self.busy:
            self.take(node_id)
        for number, (destination, data) in enumerate(node.datagrams(self.now)):
            assert number < _MOST_AT_ONCE, f"{node_id} sends without end at {self.now}"
            self._post(Parcel(self.now, self.addresses[node_id], destination, data, self._decode(data)))
        self.events[node_id] += node.events()

    def _decode(self, data: bytes) -> Datagram:
        """A datagram with everything that its receiver knows about it."""
        if not is_short(data):
            full = decode(data)
            self._constants[full.header.proof] = full.header
            return full
        short = read_short(data)
        near = int(self.now * 1e6) + 1_000_000
        times = time_until(short.time, near), time_until(short.echo, near), short.delay
        header = Header(*self._constants[short.proof][:6], *times)
        return Datagram(header, short.flags, short.frames, short.skipped)

    def take(self, node_id: str) -> None:
        """Let the application take what was delivered."""
        for delivery in self.nodes[node_id].deliveries():
            self.got[node_id] += delivery.messages

    def _post(self, parcel: Parcel) -> None:
        self.log.append(parcel)
        if len(parcel.data) <= self.mtu and not self.lose(parcel):
            self.deliver(parcel, self.latency)

    def deliver(self, parcel: Parcel, after: float = 0.0) -> None:
        """Let a datagram arrive, whatever became of it before: a duplicate, or one that was held back."""
        heappush(self._flying, (self.now + after, next(self._sequence), parcel))

    # -- time --------------------------------------------------------------------------------------------------------

    def run(self, seconds: float) -> None:
        """Let time pass."""
        end = self.now + seconds
        self.run_until(lambda: False, seconds, fail=False)
        self.now = end

    def run_until(self, condition: Callable[[], bool], limit: float = 60.0, *, fail: bool = True) -> None:
        """Let time pass until something is so, which must be within ``limit`` seconds."""
        end = self.now + limit
        early: Counter[str] = Counter()
        for node_id in self.nodes:
            self.work(node_id)
        while not condition():
            deadlines = {node_id: when for node_id in self.nodes if (when := self._deadline(node_id)) is not None}
            upcoming = min((*deadlines.values(), *(entry[0] for entry in self._flying[:1])), default=end + 1)
            if upcoming > end:
                assert not fail, f"not within {limit} s"
                return
            if upcoming > self.now:
                early.clear()
                self.now = upcoming
            for node_id, when in deadlines.items():
                if when <= self.now:
                    early[node_id] += 1
                    assert early[node_id] <= _MOST_EARLY, f"{node_id} spins at {self.now!r}: it is due at {when!r}"
                    self.work(node_id)
            while self._flying and self._flying[0][0] <= self.now:
                self._arrive(heappop(self._flying)[2])

    def _deadline(self, node_id: str) -> float | None:
        return None if node_id in self.off else self.nodes[node_id].deadline()

    def _arrive(self, parcel: Parcel) -> None:
        for node_id, address in self.addresses.items():
            if address == parcel.destination and node_id not in self.off:
                self.nodes[node_id].receive(parcel.data, parcel.source, self.now)
                self.work(node_id)

    # -- looking in --------------------------------------------------------------------------------------------------

    def sent_by(self, node_id: str, since: float = 0.0) -> list[Parcel]:
        """What left a node."""
        return [parcel for parcel in self.log if parcel.header.source == node_id and parcel.sent >= since]

    def events_of(self, node_id: str, kind: type[E]) -> list[E]:
        """The events of one kind that a node reported."""
        return [event for event in self.events[node_id] if isinstance(event, kind)]

    @property
    def oblivious(self) -> bool:
        """Whether every node that is here has forgotten every other."""
        return all(forgot_everything(node) for node_id, node in self.nodes.items() if node_id not in self.off)


def forgot_everything(node: Node) -> bool:
    """Whether nothing is left of any peer, and nothing will ever be due."""
    stats = node.stats()
    left = (stats.peers, stats.send_records, stats.receive_records, stats.buffered_bytes, node.wants_to_send)
    return not any(left) and node.deadline() is None


def reachable(root: object) -> int:
    """How many objects hang on to one, code not counted; grows with whatever leaks."""
    code = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType)
    seen = {id(root)}
    frontier = [root]
    while frontier:
        found = gc.get_referents(*frontier)
        frontier = []
        for item in found:
            if id(item) not in seen and not isinstance(item, code):
                seen.add(id(item))
                frontier.append(item)
    return len(seen)


def forge(
    source: str,
    destination: str,
    *frames: Frame,
    epochs: tuple[int, int],
    time: int = 1,
    tag: int = 0,
    proof: int = 0,
    echo: int = 0,
    flags: int = 0,
) -> bytes:
    """A datagram as anybody can write it; ``epochs`` of the source and of the destination."""
    header = Header(source, destination, *epochs, tag, proof, time, echo, 0)
    return encode(header, [encode_frame(frame) for frame in frames], flags)


def total(parcels: Iterable[Parcel]) -> int:
    """Bytes of some datagrams."""
    return sum(len(parcel.data) for parcel in parcels)
