"""One direction of the path. It does no I/O and is told the time, so that a seed repeats everything it does.

A packet goes through three stages, in the order of a real path:

1. *The queue* in front of the bottleneck. A packet that does not fit is dropped (drop-tail).
2. *The bottleneck*, which serialises one packet after the other at the given rate.
3. *The wire*: constant delay; here a packet may be lost, arrive twice, or be held up so that later ones overtake it.

So a packet lost at random has used the bottleneck all the same. What counts against the rate are bytes of IP packets,
as the TUN device hands them over, without what a link layer would add.

The queue needs no list of its own: what waits at a moment is what the bottleneck still has to serialise then. And no
packet needs a timer: one heap has them all by the time of their release. A router that looks late at the heap releases
late, but the times in it are right, so the rate does not suffer.
"""

from __future__ import annotations

from heapq import heappop, heappush
from random import Random
from typing import Any

from attrs import Attribute, asdict, define, field, frozen

LEAST_QUEUE = 32 * 1024


def _share(_: object, attribute: Attribute[Any], value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"{attribute.name} is a probability from 0 to 1, not {value!r}")


def _seconds(_: object, attribute: Attribute[Any], value: float) -> None:
    if not 0 <= value <= 60:
        raise ValueError(f"{attribute.name} is in seconds, from 0 to 60, not {value!r}")


def _rate(_: object, __: Attribute[Any], value: float | None) -> None:
    if value is not None and not value > 0:
        raise ValueError(f"rate is in bits per second, above 0, or None for no limit, not {value!r}")


def _queue(_: object, __: Attribute[Any], value: int | None) -> None:
    if value is not None and value < 0:
        raise ValueError(f"queue is in bytes, from 0, or None for as much as fits on the path, not {value!r}")


@frozen(kw_only=True)
class Conditions:
    """What one direction is like.

    >>> Conditions(rate=100e6, delay=0.005).queue_limit
    125000
    >>> Conditions(loss=5)
    Traceback (most recent call last):
    ValueError: loss is a probability from 0 to 1, not 5
    """

    rate: float | None = field(default=None, validator=_rate)
    """Bits per second of the bottleneck; None is no bottleneck."""

    delay: float = field(default=0.0, validator=_seconds)
    """Seconds on the wire, in this direction."""

    queue: int | None = field(default=None, validator=_queue)
    """Bytes that may wait for the bottleneck. None is what the path holds in one round trip, at least 32 KiB."""

    loss: float = field(default=0.0, validator=_share)
    duplicate: float = field(default=0.0, validator=_share)

    reorder: float = field(default=0.0, validator=_share)
    """The share of packets that is held up by up to :attr:`reorder_by`."""

    reorder_by: float = field(default=0.005, validator=_seconds)

    @property
    def queue_limit(self) -> int | None:
        """Bytes that may wait; None without a bottleneck, where nothing waits."""
        if self.rate is None:
            return None
        if self.queue is not None:
            return self.queue
        return max(LEAST_QUEUE, round(self.rate / 8 * 2 * self.delay))


@define
class Counts:
    """What happened to packets. ``arrived + duplicated == overflowed + lost + released + held``."""

    arrived: int = 0
    arrived_bytes: int = 0
    overflowed: int = 0
    """Found the queue full."""
    lost: int = 0
    duplicated: int = 0
    held_up: int = 0
    """For the sake of reordering."""
    released: int = 0
    released_bytes: int = 0
    held: int = 0
    """On the way now."""
    most_waiting: int = 0
    """Bytes that the queue once had."""


class Channel:
    """One direction of a path.

    >>> channel = Channel(Conditions(rate=8000, delay=1.0), seed=1)
    >>> channel.put(b"a" * 100, now=0.0)
    >>> channel.put(b"b" * 100, now=0.0)
    >>> channel.due
    1.1
    >>> [packet[:1] for packet in channel.take(now=1.1)], channel.due
    ([b'a'], 1.2)
    """

    def __init__(self, conditions: Conditions, seed: int) -> None:
        self.counts = Counts()
        self._random = Random(seed)
        self._heap: list[tuple[float, int, bytes]] = []
        self._number = 0
        self._free_at = 0.0  # when the bottleneck will have serialised everything
        self.change(conditions)

    def change(self, conditions: Conditions) -> None:
        """Other conditions from now on; what is on the way stays as it is."""
        self.conditions = conditions
        self._seconds_per_byte = 0.0 if conditions.rate is None else 8 / conditions.rate
        self._limit = conditions.queue_limit
        self._plain = not (conditions.loss or conditions.duplicate or conditions.reorder)

    @property
    def due(self) -> float:
        """When to take the next packet; infinity if there is none."""
        return self._heap[0][0] if self._heap else float("inf")

    def put(self, packet: bytes, now: float) -> None:
        """A packet comes in."""
        counts = self.counts
        size = len(packet)
        counts.arrived += 1
        counts.arrived_bytes += size
        start = self._free_at
        if start <= now:
            start = now
        else:
            assert self._limit is not None
            waiting = int((start - now) / self._seconds_per_byte + 0.5) + size
            if waiting > self._limit:
                counts.overflowed += 1
                return
            counts.most_waiting = max(counts.most_waiting, waiting)
        self._free_at = start + size * self._seconds_per_byte
        arrival = self._free_at + self.conditions.delay
        if self._plain:
            self._schedule(packet, arrival)
        else:
            self._put_on_bad_wire(packet, arrival)

    def _put_on_bad_wire(self, packet: bytes, arrival: float) -> None:
        conditions, random, counts = self.conditions, self._random.random, self.counts
        # As many random numbers for every packet: with the same seed, its fate does not depend on that of others.
        lost, twice, late, by = random(), random(), random(), random()
        if lost < conditions.loss:
            counts.lost += 1
            return
        if twice < conditions.duplicate:
            counts.duplicated += 1
            self._schedule(packet, arrival)
        if late < conditions.reorder:
            counts.held_up += 1
            arrival += by * conditions.reorder_by
        self._schedule(packet, arrival)

    def _schedule(self, packet: bytes, arrival: float) -> None:
        self._number += 1  # packets due at the same time keep their order
        heappush(self._heap, (arrival, self._number, packet))

    def take(self, now: float) -> list[bytes]:
        """The packets that are due."""
        heap, counts = self._heap, self.counts
        packets = []
        while heap and heap[0][0] <= now:
            packet = heappop(heap)[2]
            packets.append(packet)
            counts.released_bytes += len(packet)
        counts.released += len(packets)
        return packets

    def as_dict(self) -> dict[str, int]:
        """The counts, with what is on the way now."""
        self.counts.held = len(self._heap)
        return asdict(self.counts)
