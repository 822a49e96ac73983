"""Which datagrams are on the way, which are lost, and when to try again.

A datagram is known by its timestamp. The receiver echoes the newest one it has seen, so the sender knows exactly
which datagram an answer is about, retransmissions included. A token is *lost* when a datagram sent three or more
places later has arrived, or any later one and 9/8 of a round trip has passed. When no answer comes at all, the oldest
token goes again as a probe; only repeated silence declares everything lost, because on a busy machine one silent
time-out is more often the scheduler than the network.
"""

from __future__ import annotations

from attrs import define

from exon.congestion import Congestion, DelayWindow, Pacer
from exon.records import Token
from exon.rtt import Rtt
from exon.wire import BASE_DATAGRAM

_REORDER = 3  # places
_SILENT = 3  # time-outs in a row that mean nothing gets through
_SWALLOWED = 5  # large datagrams lost, and no large one acknowledged, that mean the path carries only small ones now


@define(eq=False)
class Flight:
    """One datagram on its way."""

    time: int
    order: int
    sent: float
    size: int
    tokens: list[Token]
    outstanding: int


class Recovery:
    """Loss detection towards one peer."""

    def __init__(self, max_backoff: float, congestion: Congestion | None = None) -> None:
        """``max_backoff`` limits the time between two tries."""
        self.rtt = Rtt()
        self.congestion: Congestion = congestion if congestion is not None else DelayWindow()
        self.pacer = Pacer()
        self.in_flight = 0
        self.timeouts = 0  # in a row
        self._max_backoff = max_backoff
        self._flights: dict[int, Flight] = {}
        self._order = 0
        self._newest = -1  # order of the newest datagram known to have arrived
        self._loss_at: float | None = None
        self._progress = 0.0  # when something last left or was acknowledged
        self._echoed = 0
        self._large_lost = 0  # since a large datagram was last acknowledged
        self._large_lost_since = 0.0

    def sent(self, time: int, size: int, tokens: list[Token], now: float) -> None:
        """A datagram with these tokens leaves."""
        flight = Flight(time, self._order, now, size, tokens, len(tokens))
        self._order += 1
        for token in tokens:
            self._leave(token)
            token.flight = flight
        self._flights[time] = flight
        self.in_flight += size
        self._progress = now
        self.pacer.sent(size, self.congestion.rate(self.rtt), now)

    def passed(self, size: int, now: float) -> None:
        """Something leaves that needs no acknowledgement of its own."""
        self.pacer.sent(size, self.congestion.rate(self.rtt), now)

    def echoed(self, echo: int, delay: int, microseconds: int, now: float) -> None:
        """A datagram that echoes our timestamp ``echo`` arrived."""
        if echo <= self._echoed or echo > microseconds:
            return  # nothing new, or nothing we ever sent
        self._echoed = echo
        self.timeouts = 0
        self.rtt.sample((microseconds - echo - delay) / 1e6, now)
        flight = self._flights.get(echo)
        if flight is not None:
            self._newest = max(self._newest, flight.order)

    def acked(self, tokens: list[Token], now: float) -> None:
        """These tokens were acknowledged and are gone."""
        before = self.in_flight
        for token in tokens:
            flight = token.flight
            if isinstance(flight, Flight):
                if flight.time <= self._echoed:
                    self._newest = max(self._newest, flight.order)
                if flight.size > BASE_DATAGRAM:
                    self._large_lost = 0
            self._leave(token)
        self.timeouts = 0
        self._progress = now
        self.congestion.on_acked(before - self.in_flight, before, self.rtt, now)

    def dropped(self, tokens: list[Token]) -> None:
        """These tokens are no longer to be delivered."""
        for token in tokens:
            self._leave(token)

    def _leave(self, token: Token) -> None:
        flight = token.flight
        token.flight = None
        if isinstance(flight, Flight):
            flight.outstanding -= 1
            if not flight.outstanding and self._flights.pop(flight.time, None) is not None:
                self.in_flight -= flight.size

    def lost(self, now: float) -> list[Token]:
        """The tokens that must be taken for lost now."""
        self._loss_at = None
        gone = []
        for flight in self._flights.values():
            if flight.order >= self._newest:
                break
            overdue = flight.sent + self.rtt.loss_delay
            if flight.order > self._newest - _REORDER and now < overdue:
                self._loss_at = overdue
                break
            gone.append(flight)
        return self._give_up(gone, now)

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
        return self._give_up([flight for flight in self._flights.values() if flight.time <= self._echoed], None)

    def expired(self, now: float) -> list[Token]:
        """What to send again because no answer came in time; empty while there is still time."""
        if not self._flights or now < self._timeout_at():
            return []
        self.timeouts += 1
        self._progress = now
        if self.timeouts >= _SILENT:
            self.congestion.on_silence()
            return self._give_up(list(self._flights.values()), now)
        oldest = next(iter(self._flights.values()))
        self._suspect(oldest, now)
        return [token for token in oldest.tokens if token.flight is oldest]

    def _give_up(self, flights: list[Flight], lost_at: float | None) -> list[Token]:
        tokens = []
        for flight in flights:
            del self._flights[flight.time]
            self.in_flight -= flight.size
            if lost_at is not None:
                self.congestion.on_lost(flight.size)
                self._suspect(flight, lost_at)
            for token in flight.tokens:
                if token.flight is flight:
                    token.flight = None
                    tokens.append(token)
        return tokens

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
        if not self._flights:
            return None
        timeout = self._timeout_at()
        return timeout if self._loss_at is None else min(timeout, self._loss_at)
