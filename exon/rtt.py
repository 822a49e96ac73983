"""Round-trip time from echoed timestamps: every datagram gives a sample, retransmissions too (no Karn ambiguity)."""

from __future__ import annotations

INITIAL = 0.1  # seconds, before the first sample
FLOOR = 0.002  # of the retransmission time-out: less only measures the scheduler
_MIN_WINDOW = 10.0  # seconds the minimum is remembered, so that a longer new path is believed in the end
_NOISE = 0.0005  # seconds above the minimum that still confirm it


class Rtt:
    """Smoothed, varying, minimum and latest round-trip time (RFC 6298's filter)."""

    __slots__ = ("_min_at", "_min_next", "confirmed", "latest", "minimum", "samples", "smoothed", "variation")

    def __init__(self) -> None:
        """Know nothing yet."""
        self.smoothed = INITIAL
        self.variation = INITIAL / 2
        self.minimum = INITIAL
        self.latest = INITIAL
        self.samples = 0
        self.confirmed = 0.0  # when the minimum was last seen, or nearly
        self._min_at = 0.0
        self._min_next = INITIAL

    def sample(self, rtt: float, now: float) -> None:
        """Learn from one measurement, the peer's own delay already taken off."""
        if rtt < 1e-6:
            rtt = 1e-6
        self.latest = rtt
        if not self.samples:
            self.smoothed, self.variation = rtt, rtt / 2
            self.minimum = self._min_next = rtt
            self._min_at = self.confirmed = now
        else:
            off = rtt - self.smoothed
            self.smoothed += off / 8
            self.variation += ((off if off > 0 else -off) - self.variation) / 4
            if rtt < self._min_next:
                self._min_next = rtt
            if rtt <= self.minimum * 1.0625 + _NOISE:
                self.confirmed = now
                if rtt < self.minimum:
                    self.minimum = rtt
            if now - self._min_at > _MIN_WINDOW:
                self.minimum = self._min_next
                self._min_next = rtt
                self._min_at = now
        self.samples += 1

    def relearn(self, lowest: float, now: float) -> None:
        """The path was kept empty for a while, and this was the lowest: it is the minimum, whatever was before."""
        self.minimum = self._min_next = lowest
        self._min_at = self.confirmed = now

    def restart(self) -> None:
        """The path is another one: the next sample replaces everything, until then the old is the best guess."""
        self.samples = 0

    @property
    def timeout(self) -> float:
        """When an answer is overdue: the peer may wait for a quarter of a round trip, and the path varies."""
        return max(FLOOR, 1.5 * self.smoothed, 1.25 * self.smoothed + 4 * self.variation)

    @property
    def loss_delay(self) -> float:
        """How much later than a successor's answer an answer may come before its datagram counts as lost."""
        return max(FLOOR / 2, 9 / 8 * max(self.smoothed, self.latest))
