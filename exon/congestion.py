"""How much may be on the way at once, and how fast it may leave.

The rule is one sentence: *random loss alone does not shrink the window, a standing queue does.* Once per round trip
the controller compares the lowest round-trip time of the round with the lowest ever seen. No queue: grow (doubling
until the first queue shows, gently afterwards). A queue: shrink by a tenth. Loss of more than two fifths of a round is
taken for an overrun buffer, which shows no queue, and shrinks the window too.

Deliberately simple and behind three methods, so that a better controller can take its place.
"""

from __future__ import annotations

from typing import Protocol

from exon.rtt import Rtt
from exon.wire import BASE_DATAGRAM

_START = 32 * BASE_DATAGRAM
_LEAST_DATAGRAMS = 4
_MOST = 64 << 20
_QUEUE_FLOOR = 0.002  # seconds: less is the scheduler's noise
_OVERRUN = 0.4
_EVIDENCE = 16  # datagrams: one of two lost says nothing


class Congestion(Protocol):
    """What recovery asks of a congestion controller."""

    window: int
    datagram: int  # bytes in a full datagram

    def on_acked(self, size: int, in_flight: int, rtt: Rtt, now: float) -> None:
        """``size`` bytes arrived; ``in_flight`` were on the way until then."""

    def on_lost(self, size: int) -> None:
        """``size`` bytes were declared lost."""

    def on_silence(self) -> None:
        """Nothing at all came back for several time-outs."""

    def rate(self, rtt: Rtt) -> float:
        """Bytes per second to leave at."""


class DelayWindow:
    """The default controller."""

    def __init__(self, datagram: int = BASE_DATAGRAM) -> None:
        """Start with a window of 32 small datagrams."""
        self.window = _START
        self.datagram = datagram
        self._starting = True
        self._round_ends = 0.0
        self._round_rtt = float("inf")
        self._acked = self._lost = self._most_in_flight = 0

    def on_acked(self, size: int, in_flight: int, rtt: Rtt, now: float) -> None:
        """Gather; judge the round when it is over."""
        self._acked += size
        self._most_in_flight = max(self._most_in_flight, in_flight)
        self._round_rtt = min(self._round_rtt, rtt.latest)
        if now >= self._round_ends:
            self._judge(rtt)
            self._round_ends = now + rtt.smoothed
            self._round_rtt = float("inf")
            self._acked = self._lost = self._most_in_flight = 0

    def _judge(self, rtt: Rtt) -> None:
        seen = self._acked + self._lost
        overrun = seen >= _EVIDENCE * self.datagram and self._lost > _OVERRUN * seen
        queue = self._round_rtt - rtt.minimum > max(_QUEUE_FLOOR, rtt.minimum / 4)
        if overrun or queue:
            self._starting = False
            self._resize(self.window * 9 // 10)
        elif self._most_in_flight * 2 >= self.window:  # else the window was not what held us back
            self._resize(self.window * 2 if self._starting else self.window + max(self.datagram, self.window // 16))

    def on_lost(self, size: int) -> None:
        """Remember for the end of the round."""
        self._lost += size

    def on_silence(self) -> None:
        """Begin again, carefully."""
        self._resize(self.window // 2)

    def rate(self, rtt: Rtt) -> float:
        """Somewhat more than a window per round trip, so that the window and not the pacer is the limit."""
        return (2.0 if self._starting else 1.25) * self.window / max(rtt.smoothed, 1e-4)

    def _resize(self, window: int) -> None:
        self.window = min(_MOST, max(_LEAST_DATAGRAMS * self.datagram, window))


class Pacer:
    """Spreads datagrams over time; short bursts pass, because timers are coarse."""

    _BURST_TIME = 0.002  # seconds worth of sending that may leave at once
    _BURST_BYTES = 10 * BASE_DATAGRAM  # what may always (RFC 9002, section 7.7, allows an initial window)
    _BURST_DATAGRAMS = 2  # however large they are

    def __init__(self) -> None:
        """Let the first datagram go at once."""
        self._next = 0.0

    def ready_at(self) -> float:
        """When the next datagram may leave."""
        return self._next

    def sent(self, size: int, rate: float, now: float) -> None:
        """Account for one datagram."""
        burst = max(self._BURST_TIME, max(self._BURST_BYTES, self._BURST_DATAGRAMS * size) / rate)
        self._next = max(self._next, now - burst) + size / rate
