"""Measures the emulation itself: what it was told, and what came out."""

from __future__ import annotations

import socket
import struct
from statistics import median, quantiles
from threading import Thread
from time import monotonic, sleep
from typing import Any

from attrs import define

from benchmarks.wan.channel import Conditions
from benchmarks.wan.hosts import Wan

SIZE = 1200  # bytes of a datagram
_HEADERS = 28  # of IP and UDP
_UDP_SEGMENT = 103
_SO_RCVBUFFORCE = 33
_TRAIN = 10
_TOO_FAST = 200e6  # bits per second sent where there is no bottleneck


@define
class Arrivals:
    """Counts what arrives at a socket until nothing does for a while."""

    receiver: socket.socket
    datagrams: int = 0
    first: float = 0.0
    last: float = 0.0

    def run(self) -> None:
        """Until there is silence."""
        numbers: set[bytes] = set()
        while True:
            try:
                number = self.receiver.recv(2048)[:4]
            except TimeoutError:
                self.datagrams = len(numbers)
                return
            self.last = monotonic()
            self.first = self.first or self.last
            numbers.add(number)


def check(wan: Wan, conditions: Conditions, seconds: float = 3.0) -> dict[str, Any]:
    """Round trips, then a stream at half the rate, then one at 1.2 times the rate, then one train of segments."""
    with wan.near.socket() as near, wan.far.socket() as far:
        patience = 4 * conditions.delay + conditions.reorder_by + 0.5
        near.settimeout(patience)
        far.settimeout(patience)
        # Else the measurement would lose packets that the path delivered.
        far.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 16 << 20)
        near.connect(far.getsockname())
        facts: dict[str, Any] = {"round_trip": _round_trips(near, far)}
        rate = conditions.rate or _TOO_FAST
        facts["half_rate"] = _stream(wan, (near, far), rate / 2, seconds)
        if conditions.rate is not None:
            facts["overload"] = _stream(wan, (near, far), rate * 1.2, seconds)
        before = wan.statistics()["there"]["arrived"]
        near.sendmsg(
            [bytes(_TRAIN * SIZE)], [(socket.IPPROTO_UDP, _UDP_SEGMENT, struct.pack("H", SIZE))], 0, far.getsockname()
        )
        facts["train"] = {"segments": _TRAIN, "packets": wan.statistics()["there"]["arrived"] - before}
        return facts


def _round_trips(near: socket.socket, far: socket.socket, count: int = 100) -> dict[str, Any]:
    times = []
    for number in range(count):
        begin = monotonic()
        near.send(struct.pack("!I", number))
        try:
            while far.recv(2048) != struct.pack("!I", number):
                pass
            far.sendto(struct.pack("!I", number), near.getsockname())
            while near.recv(2048) != struct.pack("!I", number):
                pass
        except TimeoutError:  # lost
            continue
        times.append(1000 * (monotonic() - begin))
    if len(times) < 2:
        return {"sent": count, "back": len(times)}
    return {
        "sent": count,
        "back": len(times),
        "ms_least": round(min(times), 3),
        "ms_median": round(median(times), 3),
        "ms_p99": round(quantiles(times, n=100)[98], 3),
    }


def _stream(wan: Wan, pair: tuple[socket.socket, socket.socket], rate: float, seconds: float) -> dict[str, Any]:
    """Datagrams at a rate in bits per second of IP packets; how many arrived, and how fast."""
    near, far = pair
    arrivals = Arrivals(far)
    overflowed = -wan.statistics()["there"]["overflowed"]
    thread = Thread(target=arrivals.run)
    thread.start()
    interval = 8 * (SIZE + _HEADERS) / rate
    count = round(seconds / interval)
    padding = bytes(SIZE - 4)
    begin = monotonic()
    for number in range(count):
        while (early := begin + number * interval - monotonic()) > 0:
            sleep(early)
        near.send(struct.pack("!I", number) + padding)
    sent_in = monotonic() - begin
    thread.join()
    took = arrivals.last - arrivals.first
    bits = 8 * (SIZE + _HEADERS)
    return {
        "datagrams": count,
        "missing_per_cent": round(100 * (1 - arrivals.datagrams / count), 2),
        "overflowed_per_cent": round(100 * (overflowed + wan.statistics()["there"]["overflowed"]) / count, 2),
        "sent_mbit_per_s": round(count * bits / sent_in / 1e6, 2),
        "arrived_mbit_per_s": round((arrivals.datagrams - 1) * bits / took / 1e6, 2) if took else None,
    }
