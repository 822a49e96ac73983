"""One peer, as long as anything is pending with it: a sending side, its lives as a source, and where it is."""

from __future__ import annotations

from collections.abc import Iterator

from exon.addresses import Address
from exon.inbound import CLOSE_PROBES, Inbound
from exon.options import Options
from exon.outbound import Outbound
from exon.records import ReceiveRecord, Records

_ALTERNATIONS = 8  # between lives, in quick succession, that only two live nodes with one id can cause
_QUICK = 10.0
_LOOKUP_FIRST, _LOOKUP_MOST = 0.1, 5.0
_LOOKUP_IDLE = 60.0  # the longest pause while nothing waits to be sent to it


class Peer:
    """All per-peer state of a node; gone when nothing is pending."""

    def __init__(
        self, peer_id: str, outbound: Outbound, options: Options, records: Records, overhead: int, now: float
    ) -> None:
        """Known from now on."""
        self.id = peer_id
        self.outbound = outbound
        self.overhead = overhead  # bytes that prefix and header of a datagram take at the most
        self.inbounds: dict[int, Inbound] = {}
        self.address: Address | None = None
        self.heard_at: Address | None = None  # where it was when it was last heard
        self.proofs: list[int] = []  # that stand for it in short datagrams, the oldest first
        self.epoch = 0  # of the life heard last
        self.buffered = 0  # bytes delivered that the application has not taken, bookkeeping included
        self.large = 0  # bytes of reassembled messages among them
        self.full = False  # a large message was turned away since the application last took something
        self.last_time = 0  # the timestamp of the newest datagram we sent
        self.waiting_since: float | None = None  # for any sign of life while something is pending
        self.reported = False  # as unreachable
        self.wakes_at = float("inf")  # the earliest entry in the node's timers
        self.looked_at = False  # because its time had come, and nothing has happened since
        self._options = options
        self._records = records
        self._alternations = 0
        self._alternated = now
        self._lookup_at: float | None = None
        self._lookup_wait = _LOOKUP_FIRST

    def receive_record(self, epoch: int) -> ReceiveRecord | None:
        """The receive record of one life."""
        return self._records.receive.get((self.id, epoch))

    # -- lives -------------------------------------------------------------------------------------------------------

    def spare_life(self, proven: bool) -> Inbound | None:
        """Which life to give up for another one, if any: rather one that proved nothing, or was not heard for long.

        For one that has proved nothing itself no record is given up: whoever forges requests could have them all.
        """

        def worth(inbound: Inbound) -> tuple[bool, bool, float]:
            return self.receive_record(inbound.epoch) is not None, inbound.proven, inbound.heard

        others = [inbound for inbound in self.inbounds.values() if inbound.epoch != self.epoch]
        spare = min(others, key=worth, default=None)
        if spare is not None and not proven and self.receive_record(spare.epoch) is not None:
            return None
        return spare

    def switch(self, epoch: int, now: float) -> bool:
        """The peer speaks from another life; whether it does so by turns, as two nodes with one id do."""
        self._alternations = self._alternations + 1 if now - self._alternated < _QUICK else 1
        self._alternated = now
        self.epoch = epoch
        for inbound in self.inbounds.values():
            if inbound.epoch != epoch:
                inbound.ask_now()  # is the other life over? Only its successor can say so
        return self._alternations == _ALTERNATIONS

    # -- room --------------------------------------------------------------------------------------------------------

    @property
    def window(self) -> int:
        """Bytes of tokens there is room for; a large message that nobody has taken leaves none."""
        if self.full and not self._reserved:
            return 0  # while others are under way, their fragments are welcome
        return max(0, self._options.receive_bytes - self.buffered - self.large)

    def has_room(self, size: int) -> bool:
        """Whether a token of this size can be delivered; one always can, or a large one never would."""
        return size <= self.window or not (self.buffered or self.large)

    def can_assemble(self, total: int) -> bool:
        """Whether one more large message may be begun."""
        reserved = self.large + self._reserved
        return reserved + total <= self._options.reassembly_bytes or not reserved

    @property
    def _reserved(self) -> int:
        return sum(inbound.reserved for inbound in self.inbounds.values())

    # -- time --------------------------------------------------------------------------------------------------------

    def lookup_due(self, now: float) -> bool:
        """Whether to ask the discovery service now; asked again with growing patience."""
        if self._lookup_at is not None and now < self._lookup_at:
            return False
        self._lookup_at = now + self._lookup_wait
        self._lookup_wait = min(_LOOKUP_IDLE if self.outbound.idle else _LOOKUP_MOST, 2 * self._lookup_wait)
        return True

    def located(self) -> None:
        """It was found, or heard: begin with short patience next time."""
        if self._lookup_at is not None:
            self._lookup_wait = _LOOKUP_FIRST
            self._lookup_at = None

    def another_address(self, registered: Address | None) -> Address | None:
        """Where else it may be: where it was registered, or where it was heard last, by turns."""
        heard = self.inbounds[self.epoch].address if self.epoch in self.inbounds else None
        return next((a for a in (registered, heard) if a is not None and a != self.address), None)

    @property
    def lost(self) -> bool:
        """Whether nobody knows where it is, or it has been silent for long."""
        return self.address is None or self.reported or self._unanswered

    @property
    def wanted(self) -> bool:
        """Whether there is a reason to look for it."""
        return not self.outbound.idle or self._unanswered

    @property
    def _unanswered(self) -> bool:
        return any(inbound.unanswered and self.receive_record(e) is not None for e, inbound in self.inbounds.items())

    def route(self, epoch: int) -> Address | None:
        """Where to send what is meant for one life: an earlier one may still be where it was, until it is silent."""
        inbound = self.inbounds.get(epoch)
        if epoch == self.epoch or inbound is None or self.outbound.recovery.silent:
            return self.address
        return self.route_to(inbound)

    def route_to(self, inbound: Inbound) -> Address:
        """Where to answer one life: where it spoke from, or, if it is silent, where the peer is by now."""
        return self.address if inbound.unanswered and self.address is not None else inbound.address

    def probe_at(self, inbound: Inbound, closing: bool) -> float | None:
        """When to probe for one receive record."""
        if self.receive_record(inbound.epoch) is None or (closing and inbound.close_probes >= CLOSE_PROBES):
            return None
        return inbound.probe_at(closing)

    def deadlines(self, closing: bool, now: float) -> Iterator[float]:
        """All the moments at which something may have to be done."""
        for inbound in self.inbounds.values():
            if inbound.ack_due is not None:
                yield inbound.ack_due
            probe = self.probe_at(inbound, closing)
            if probe is not None:
                yield probe
            if not inbound.settled or self.receive_record(inbound.epoch) is not None:
                yield inbound.heard + self._options.forget_after
        if self._lookup_at is not None and self.lost and self.wanted:
            yield self._lookup_at
        if self.outbound.record is None:
            return
        if self.address is not None:
            yield from self.outbound.deadlines(now)
        if self.waiting_since is not None and not self.reported:
            yield self.waiting_since + self._options.unreachable_after

    @property
    def forgettable(self) -> bool:
        """Whether nothing at all is pending with it."""
        return (
            self.outbound.record is None
            and not self.buffered
            and all(inbound.settled and self.receive_record(e) is None for e, inbound in self.inbounds.items())
        )
