"""How much may be on the way at once, and how fast it may leave.

The path is modelled by its bottleneck: the rate at which it delivers (the most seen lately) and its round trip without
a queue (the least seen lately). What leaves is paced at that rate, so no queue stands, and bounded by twice the product
of both, so an error cannot do much harm. The ideas are those of BBR (Cardwell et al., versions 1 to 3), in few phases:

* ``STARTUP`` sends almost three times as fast as data arrives, until that stops growing.
* ``DOWN`` lets a queue drain, by having no more on the way than the path itself holds.
* ``CRUISE`` sends as fast as data arrives, for some round trips.
* ``REFILL`` forgets short-lived bounds, and fills the path for
* ``UP``, which sends a quarter faster, to see whether there is more; then ``DOWN`` again.
* ``EMPTY`` halves what is on the way, to see the round trip without any queue, when that was not seen for long; or
  when a queue stands, to see whether it is one, or the path has become longer.

**Loss** by itself says nothing: radio loses, and so do others' bursts. While cruising without a queue, the controller
learns what the path loses anyway. More than that, when it sends more than the path carries, is an overrun buffer, and
bounds what may be on the way (``_ceiling``). More than that while cruising, or a queue that stands although we send no
faster than data arrives, bounds the rate by what really arrives (``_bound``) until the next ``REFILL``.

**Short paths.** Below a millisecond, timers and schedulers are slower than the path: nothing is paced, and there may be
as much on the way as arrives in some milliseconds. On loopback the controller is out of the way.
"""

from __future__ import annotations

from enum import Enum
from math import sqrt
from typing import Protocol

from exon.delivery import Delivery
from exon.pacing import QUANTUM
from exon.rtt import Rtt
from exon.wire import BASE_DATAGRAM

_START_DATAGRAMS = 16
_LEAST_DATAGRAMS = 3
_MOST = 64 << 20
_GROWTH = 1.25  # of the rate in a round trip, or the path is full
_PLATEAU = 3  # round trips without growth that end the start; and that probing, or letting it drain, may take
_CRUISE = (5, 7, 6, 8)  # round trips; not always the same number, or two flows could keep in step
_THOROUGH = 4  # cycles in which the queue is drained to the last byte once
_EVIDENCE = 20  # datagrams: one of two lost says nothing
_EXCESS = 0.02  # of what was sent, lost in addition to what the path always loses
_UNKNOWN_LOSS = 0.15  # taken for what the path loses until that is known
_MOST_LOSS = 0.1  # that may be usual
_BACK = 0.7  # the bound falls by no more in a round trip
_HEADROOM = 0.85  # of the ceiling, except to probe
_RELEARN = 5.0  # seconds without seeing the round trip without a queue
_EMPTY = 0.1  # seconds for others that share the bottleneck to empty it, too
_NOTICE = 1.0625  # of the shortest round trip: more is a queue, if a short one
_DRAIN = 0.95  # of the rate, to let that drain
_CROWDED = 4  # round trips in a row that replace what was thought of the path
SHORT = 0.001  # seconds: paths shorter than this are not paced
_SCHEDULER = 0.01  # seconds that processes at both ends may not run
_INFINITE = float("inf")


class Phase(Enum):
    """What the controller is after."""

    STARTUP = "startup"
    DOWN = "down"
    CRUISE = "cruise"
    REFILL = "refill"
    UP = "up"
    EMPTY = "empty"


# How fast to send, as a multiple of the bottleneck's rate, and how much, of what the path holds.
_GAINS = {
    Phase.STARTUP: (2.77, 2.0),
    Phase.DOWN: (1.0, 1.0),
    Phase.CRUISE: (1.0, 2.0),
    Phase.REFILL: (1.0, 2.0),
    Phase.UP: (1.25, 2.25),
    Phase.EMPTY: (1.0, 0.5),
}


class Congestion(Protocol):
    """What recovery asks of a congestion controller."""

    window: int  # bytes that may be on the way
    rate: float  # bytes per second to leave at
    datagram: int  # bytes in a full datagram

    def on_acked(self, size: int, in_flight: int, delivery: Delivery, rtt: Rtt, now: float) -> None:
        """``size`` bytes arrived; ``in_flight`` were on the way until then."""

    def on_lost(self, size: int) -> None:
        """``size`` bytes were declared lost."""

    def restart(self, rtt: Rtt, *, silent: bool = False) -> None:
        """The path is another one; or it is ``silent``: nothing at all came back for several time-outs."""


class Bottleneck:
    """The default controller."""

    def __init__(self, datagram: int = BASE_DATAGRAM) -> None:
        """Start with a window of 16 small datagrams."""
        self.datagram = datagram
        self.window = _START_DATAGRAMS * BASE_DATAGRAM
        self.rate = _INFINITE
        self._cycle = 0
        self._begin()

    def _begin(self) -> None:
        self.phase = Phase.STARTUP
        self._now_best = self._then_best = 0.0  # bytes per second: in this cycle, and in the one before
        self._bound = self._ceiling = _INFINITE
        self._usual_loss: float | None = None
        self._rounds = 0  # in this phase
        self._full = 0.0  # the rate from which it has to grow
        self._still = 0  # round trips without growth
        self._crowded = 0  # round trips in a row with a queue, or an overrun one, that is not of our making
        self._emptied = 0.0  # when last
        self._since = 0.0  # when what is on the way had become little enough
        self._acked = self._lost = 0  # since there was evidence last
        self._most_in_flight = 0  # in this round trip
        self._round_rate = 0.0
        self._drains = False  # a little was in the queue throughout the last round trip
        self._lowest = _INFINITE  # round trip, in this round
        self._lowest_full = self._lowest_empty = _INFINITE  # before the path was emptied, and since

    # -- the model ---------------------------------------------------------------------------------------------------

    @property
    def bandwidth(self) -> float:
        """What the bottleneck is taken to deliver, in bytes per second; 0 while nobody knows."""
        return min(max(self._now_best, self._then_best), self._bound)

    def on_acked(self, size: int, in_flight: int, delivery: Delivery, rtt: Rtt, now: float) -> None:
        """Gather; think when a round trip is over, or a phase may be."""
        self._acked += size
        self._most_in_flight = max(self._most_in_flight, in_flight)
        self._lowest = min(self._lowest, rtt.latest)
        rate = delivery.rate
        if rate > self._round_rate:
            self._round_rate = rate
            if rate > self._now_best and (not delivery.limited or rate > self._then_best):
                self._now_best = rate
                self._set(rtt)
        if delivery.new_round:
            self._on_round(delivery.limited, in_flight - size, rtt, now)
        elif (phase := self.phase) is Phase.UP or phase is Phase.DOWN or phase is Phase.EMPTY:
            self._steer(delivery.limited, in_flight - size, rtt, now)
            if self.phase is not phase:
                self._set(rtt)

    def on_lost(self, size: int) -> None:
        """Remember until there is evidence."""
        self._lost += size

    def _on_round(self, limited: bool, in_flight: int, rtt: Rtt, now: float) -> None:
        self._rounds += 1
        overrun = self._overrun(rtt)
        if self.phase is Phase.CRUISE:
            self._heed(overrun or self._queue(rtt))
        elif overrun and self.phase in (Phase.UP, Phase.STARTUP):
            self._ceiling = max(_HEADROOM * self._most_in_flight, self.bandwidth * rtt.minimum)
        elif self.phase is Phase.UP and self._most_in_flight >= _HEADROOM * self._ceiling:
            self._ceiling *= _GROWTH
        self._steer(limited, in_flight, rtt, now, new_round=True, overrun=overrun)
        self._drains = self._lowest > _NOTICE * rtt.minimum + QUANTUM
        self._round_rate = 0.0
        self._most_in_flight = 0
        self._lowest = _INFINITE
        self._set(rtt)

    def _overrun(self, rtt: Rtt) -> bool:
        """Whether clearly more was lost than the path always loses."""
        seen = self._acked + self._lost
        datagrams = seen / self.datagram
        if datagrams < _EVIDENCE:
            return False
        loss = self._lost / seen
        self._acked = self._lost = 0
        usual = self._usual_loss
        # What was lost while a queue was made on purpose is missed in the round trip after that at the latest.
        if self.phase is Phase.CRUISE and self._rounds > 1 and not self._queue(rtt):
            self._usual_loss = min(_MOST_LOSS, loss if usual is None else usual + (loss - usual) / 8)
        if usual is None:
            usual = _UNKNOWN_LOSS
        return loss > usual + _EXCESS + 2.5 * sqrt(max(usual, 0.01) / datagrams)

    def _queue(self, rtt: Rtt) -> bool:
        """Whether a queue stands, as far as the lowest round trip of this round tells."""
        return rtt.minimum >= SHORT and self._lowest > _GROWTH * rtt.minimum + 2 * QUANTUM

    def _heed(self, crowded: bool) -> None:
        """While cruising: take what arrives for the rate, if others need the path or it has become slower."""
        if not crowded:
            self._crowded = 0
            return
        self._crowded += 1
        self._bound = max(self._round_rate, _BACK * self.bandwidth)

    # -- the phases --------------------------------------------------------------------------------------------------

    @property
    def _thorough(self) -> bool:
        """Whether the queue is to be drained to the last byte this time, and not only nearly.

        That costs a few percent of a round trip; but a little that always stands is taken for a part of the path.
        """
        return self.phase is Phase.DOWN and self._cycle % _THOROUGH == 0

    def _enter(self, phase: Phase) -> None:
        self.phase = phase
        self._rounds = 0

    def _steer(
        self, limited: bool, in_flight: int, rtt: Rtt, now: float, *, new_round: bool = False, overrun: bool = False
    ) -> None:
        """Go on to the next phase, if it is time."""
        capacity = self.bandwidth * rtt.minimum
        match self.phase:
            case Phase.STARTUP if new_round and not limited and self._is_full(overrun):
                self._enter(Phase.DOWN)
            case Phase.DOWN if in_flight <= (capacity if self._thorough else self.window) or self._rounds >= _PLATEAU:
                self._enter(Phase.CRUISE)
            case Phase.CRUISE if self._rounds >= _CRUISE[self._cycle % len(_CRUISE)]:
                self._enter(Phase.REFILL)
                self._cycle += 1
                self._bound = _INFINITE
                if not limited:
                    self._then_best, self._now_best = self._now_best, self._round_rate
            case Phase.REFILL if self._rounds:
                self._enter(Phase.UP)
            case Phase.UP if overrun or (self._rounds and (limited or self._has_probed(in_flight, capacity))):
                self._enter(Phase.DOWN)
            case Phase.EMPTY:
                self._refill_when_empty(in_flight, rtt, now)
        if new_round and self.phase is Phase.CRUISE and rtt.minimum >= SHORT:
            since = now - max(rtt.confirmed, self._emptied)
            if since > _RELEARN or (self._crowded >= _CROWDED and now > self._emptied + _RELEARN / 2):
                self._enter(Phase.EMPTY)
                self._since = self._lowest_empty = _INFINITE
                self._lowest_full = self._lowest

    def _is_full(self, overrun: bool) -> bool:
        """Whether the start has found the path's rate: it does not grow any more, or what is added is lost."""
        bandwidth = self.bandwidth
        if bandwidth >= self._full * _GROWTH:
            self._full = bandwidth
            self._still = 0
            return False
        self._still += 1
        return overrun or self._still >= _PLATEAU

    def _has_probed(self, in_flight: int, capacity: float) -> bool:
        """Whether a quarter more than the path holds is on the way, or all that may be."""
        return in_flight >= min(_GROWTH * capacity, self._ceiling) or self._rounds >= _PLATEAU

    def _refill_when_empty(self, in_flight: int, rtt: Rtt, now: float) -> None:
        if in_flight > self.window:
            return
        if self._since == _INFINITE:
            self._since = now
            self._rounds = 0
        elif self._rounds:
            self._lowest_empty = min(self._lowest_empty, rtt.latest)
            if now >= self._since + _EMPTY:
                self._learn_from_emptiness(rtt, now)
                self._emptied = now
                self._crowded = 0
                self._enter(Phase.CRUISE)

    def _learn_from_emptiness(self, rtt: Rtt, now: float) -> None:
        lowest = self._lowest_empty
        if lowest <= _GROWTH * rtt.minimum:
            # There was a queue, and it is gone: the rate that arrived in spite of it was all there is for us.
            self._now_best = self._then_best = self.bandwidth
        elif lowest > 0.9 * self._lowest_full:
            self._bound = _INFINITE  # there was none: the path is longer than it was
        elif now < rtt.confirmed + _RELEARN:
            return  # others fill it
        rtt.relearn(lowest, now)

    # -- what follows from it ----------------------------------------------------------------------------------------

    def _set(self, rtt: Rtt) -> None:
        bandwidth = self.bandwidth
        if not bandwidth:
            return
        pace, share = _GAINS[self.phase]
        if self._thorough:
            pace = _BACK
        bandwidth /= 1 - (self._usual_loss or 0.0)  # for so much to arrive, more has to leave
        capacity = bandwidth * rtt.minimum
        least = _LEAST_DATAGRAMS * self.datagram
        if rtt.minimum < SHORT:
            self.rate = _INFINITE
            window = 2 * capacity + bandwidth * _SCHEDULER
            least = _START_DATAGRAMS * self.datagram
        else:
            # Timers make rate samples vary, and the highest of many is too high: what that puts in the queue must go.
            self.rate = (_DRAIN if self._drains and self.phase is Phase.CRUISE else pace) * bandwidth
            window = share * capacity + 2 * QUANTUM * bandwidth
        if self.phase is Phase.STARTUP:
            least = max(least, _START_DATAGRAMS * BASE_DATAGRAM)
        if self._ceiling < window:
            share = 1.0 if self.phase in (Phase.UP, Phase.STARTUP) else _HEADROOM
            window = min(window, max(share * self._ceiling, capacity))
        self.window = min(_MOST, max(least, int(window)))

    def restart(self, rtt: Rtt, *, silent: bool = False) -> None:
        """Begin again: what was known may be wrong."""
        self._begin()
        self.window = _LEAST_DATAGRAMS * self.datagram if silent else _START_DATAGRAMS * BASE_DATAGRAM
        self.rate = _INFINITE if rtt.minimum < SHORT else _GAINS[Phase.STARTUP][0] * self.window / rtt.smoothed
