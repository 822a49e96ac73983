"""Which datagrams are on the way, which are lost, and when to try again.

A datagram is known by its timestamp. The receiver echoes the newest one it has seen, so the sender knows exactly
which datagram an answer is about, retransmissions included. A token that is not acknowledged is *lost* when a datagram
sent three or more places later has arrived, or any later one and 9/8 of a round trip has passed; a second copy that is
lost, too, is noticed in the same way. When no answer comes at all, the oldest
token goes again as a probe; only repeated silence declares everything lost, because on a busy machine one silent
time-out is more often the scheduler than the network.
"""

from __future__ import annotations

from collections import deque
from math import ceil
from typing import Any

from exon.congestion import SHORT, Bottleneck, Congestion
from exon.delivery import Delivery, Mark
from exon.pacing import Pacer
from exon.records import Token
from exon.rtt import Rtt
from exon.wire import BASE_DATAGRAM

_UNPACED = float("inf")
_ANY_NUMBER = 1 << 30
_REORDER = 3  # places
_TRIFLE = 16  # times as much may be on the way as is: too little to learn about the path from
_SILENT = 3  # time-outs in a row that mean nothing gets through
_SWALLOWED = 5  # large datagrams lost, and no large one acknowledged, that mean the path carries only small ones now


class Flight:
    """One datagram on its way. Written by hand, because one is made for every datagram."""

    __slots__ = ("mark", "outstanding", "sent", "size", "time", "tokens")

    def __init__(self, time: int, sent: float, size: int, tokens: list[Token], mark: Mark) -> None:
        """It leaves."""
        self.time = time
        self.sent = sent
        self.size = size
        self.tokens = tokens
        self.outstanding = len(tokens)  # 0: done with
        self.mark = mark


class Recovery:
    """Loss detection towards one peer."""

    def __init__(self, max_backoff: float, congestion: Congestion | None = None) -> None:
        """``max_backoff`` limits the time between two tries."""
        self.rtt = Rtt()
        self.delivery = Delivery()
        self.congestion: Congestion = congestion if congestion is not None else Bottleneck()
        self.pacer = Pacer()
        self.in_flight = 0
        self.timeouts = 0  # in a row
        self._max_backoff = max_backoff
        self._flights: deque[Flight] = deque()  # in the order of their times, none missing since the first
        self._loss_at: float | None = None
        self._progress = 0.0  # when something last left, or should have for what was acknowledged last
        self._echoed = 0  # the newest datagram known to have arrived
        self._told = 0  # the newest of which we know whether its tokens have
        self._arrived = 0.0  # when it did, by the peer's clock
        self._ahead = 0.0  # of our clock when we heard that, what the peer's showed when it arrived
        self._path_since = 0  # what left until then left for another path
        self._large_lost = 0  # since a large datagram was last acknowledged
        self._large_lost_since = 0.0

    @property
    def paced(self) -> bool:
        """Whether the path is long enough for timers: not one of less than a millisecond, or not known yet to be."""
        return self.rtt.minimum >= SHORT

    @property
    def ack_interval(self) -> float:
        """How often the peer's tokens are acknowledged at least: what comes in a quarter of a round trip together."""
        rtt = self.rtt
        return (rtt.minimum if rtt.minimum >= SHORT else rtt.smoothed) / 4

    def may_send(self, now: float) -> bool:
        """Whether the path has room for a datagram, and it is time for one."""
        congestion = self.congestion
        pacer = self.pacer
        if self.in_flight >= congestion.window:
            pacer.skip(now)
            return False
        if pacer.credit > 0:
            return True
        ready = pacer.ready(congestion.rate, now)
        if ready and pacer.late:
            self.delivery.limit(self.in_flight)  # by ourselves, or by whoever did not let us run
        return ready

    def at_once(self, size: int) -> int:
        """How many datagrams of this size may leave at once, after :meth:`may_send` has said yes."""
        return _ANY_NUMBER if self.congestion.rate == _UNPACED else max(0, ceil(self.pacer.credit / size))

    def sent(self, time: int, size: int, tokens: list[Token], now: float) -> None:
        """A datagram with these tokens leaves."""
        if not self.in_flight:
            self.delivery.begin(now, now + self._ahead)
        flight = Flight(time, now, size, tokens, self.delivery.mark)
        for token in tokens:
            if token.flight is not None:
                self._leave(token)
            token.flight = flight
        self._flights.append(flight)
        self.in_flight += size
        self._progress = now
        self.pacer.credit -= size

    def passed(self, size: int) -> None:
        """Something leaves that needs no acknowledgement of its own."""
        self.pacer.credit -= size

    def limited(self) -> None:
        """More might leave, but there is nothing more, or no room for it at the peer."""
        self.delivery.limit(self.in_flight)

    def moved(self) -> None:
        """The path is another one."""
        self._path_since = max(self._echoed, self._flights[-1].time if self._flights else 0)
        self.timeouts = 0
        self.rtt.restart()
        self.congestion.restart(self.rtt)

    def echoed(self, echo: int, delay: int, time: int, microseconds: int, now: float) -> None:
        """A datagram of the peer's ``time`` arrived, which echoes our timestamp ``echo``."""
        if echo <= self._echoed or echo > microseconds:
            return  # nothing new, or nothing we ever sent
        self._echoed = echo
        self._arrived = (time - delay) / 1e6
        self._ahead = self._arrived - now
        self.timeouts = 0
        if echo <= self._path_since:
            return  # it tells of the path that was
        rtt = self.rtt
        rtt.sample((microseconds - echo - delay) / 1e6, now)
        if rtt.samples == 1:
            self.congestion.restart(rtt)

    def told(self, echo: int) -> None:
        """What arrived with datagrams up to ``echo``, our timestamp, is acknowledged by now.

        A datagram that has tokens and no acknowledgement echoes what has come without saying what was in it.
        """
        if self._told < echo <= self._echoed:
            self._told = echo

    def acked(self, tokens: list[Token], now: float) -> None:
        """These tokens were acknowledged and are gone."""
        size = 0
        newest = None
        echoed = self._echoed
        for token in tokens:
            flight: Any = token.flight
            if flight is not None:
                token.flight = None
                flight.outstanding -= 1
                if not flight.outstanding:
                    size += flight.size
                # Only if this copy of the token arrived; an earlier one may have been faster than it was thought.
                if flight.time <= echoed and (newest is None or flight.time > newest.time):
                    newest = flight
        self.timeouts = 0
        # What left a round trip ago could be acknowledged by now; what left later still has its time.
        progress = now - self.rtt.smoothed
        if progress > self._progress:
            self._progress = progress
        before = self.in_flight
        self.in_flight = before - size
        if newest is not None:
            if newest.size > BASE_DATAGRAM:
                self._large_lost = 0
            if newest.time > self._path_since:
                delivery, congestion = self.delivery, self.congestion
                delivery.arrived(size, newest.mark, newest.sent, self.rtt.minimum, self._arrived)
                # Where nothing is paced, and the application asks for a fraction of what may be on the way, there is
                # nothing to be learnt. (A paced path has to be learnt from trickles, too: one bad sample may be all.)
                if self.paced or not delivery.limited or _TRIFLE * before >= congestion.window:
                    congestion.on_acked(size, before, delivery, self.rtt, now)

    def dropped(self, tokens: list[Token]) -> None:
        """These tokens are no longer to be delivered."""
        for token in tokens:
            self._leave(token)

    def _leave(self, token: Token) -> None:
        flight = token.flight
        token.flight = None
        if isinstance(flight, Flight):
            flight.outstanding -= 1
            if not flight.outstanding:
                self.in_flight -= flight.size

    def _oldest(self) -> Flight | None:
        flights = self._flights
        while flights:
            if flights[0].outstanding:
                return flights[0]
            flights.popleft()
        return None

    def lost(self, now: float) -> list[Token]:
        """The tokens that must be taken for lost now."""
        self._loss_at = None
        flights, echoed = self._flights, self._told
        gone: list[Token] = []
        while flights and flights[0].time < echoed:
            flight = flights[0]
            if flight.outstanding:
                overdue = flight.sent + self.rtt.loss_delay
                if now < overdue and (len(flights) <= _REORDER or flights[_REORDER].time > echoed):
                    self._loss_at = overdue
                    break
                self._give_up(flight, gone, now)
            flights.popleft()
        return gone

    def swallows_large(self, now: float) -> bool:
        """Whether the path seems to carry only small datagrams any more; said once."""
        if self._large_lost < _SWALLOWED or now < self._large_lost_since + 3 * self.rtt.timeout:
            return False
        self._large_lost = 0
        return True

    def _suspect(self, flight: Flight, now: float) -> None:
        if flight.size > BASE_DATAGRAM:
            if not self._large_lost:
                self._large_lost_since = now
            self._large_lost += 1

    def refused(self) -> list[Token]:
        """The tokens that had arrived but found no room; there is room now."""
        tokens: list[Token] = []
        for flight in self._flights:
            if flight.time > self._told:
                break
            self._give_up(flight, tokens, None)
        return tokens

    def expired(self, now: float) -> list[Token]:
        """What to send again because no answer came in time; empty while there is still time."""
        oldest = self._oldest()
        if oldest is None or now < self._timeout_at():
            return []
        self.timeouts += 1
        self._progress = now
        if self.timeouts < _SILENT:
            self._suspect(oldest, now)
            return [token for token in oldest.tokens if token.flight is oldest]
        tokens: list[Token] = []
        for flight in self._flights:
            self._give_up(flight, tokens, now)
        self._flights.clear()
        self.congestion.restart(self.rtt, silent=True)
        return tokens

    def _give_up(self, flight: Flight, tokens: list[Token], lost_at: float | None) -> None:
        """Take a datagram for lost, or for turned away, and gather the tokens that it was the last to carry."""
        if not flight.outstanding:
            return
        flight.outstanding = 0
        self.in_flight -= flight.size
        if lost_at is not None:
            self.congestion.on_lost(flight.size)
            self._suspect(flight, lost_at)
        for token in flight.tokens:
            if token.flight is flight:
                token.flight = None
                tokens.append(token)

    @property
    def silent(self) -> bool:
        """Whether several time-outs have passed without any answer."""
        return self.timeouts >= _SILENT

    def patience(self, tries: int) -> float:
        """How long to wait for an answer after ``tries`` unanswered ones."""
        return min(self._max_backoff, self.rtt.timeout * 2.0 ** min(tries, 16))

    def _timeout_at(self) -> float:
        return self._progress + self.patience(self.timeouts)

    def deadline(self) -> float | None:
        """When :meth:`lost` or :meth:`expired` has something to say."""
        if self._oldest() is None:
            return None
        timeout = self._timeout_at()
        return timeout if self._loss_at is None else min(timeout, self._loss_at)
