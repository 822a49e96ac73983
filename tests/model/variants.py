"""Known bugs, to be switched in: an explorer that does not find them proves nothing.

Each is the smallest change to the real classes that brings the bug back, and names the scenario in which it shows.

Three changes were tried and found harmless to the guarantee, and are therefore not here. **Correction 2 removed**
(new slots start at ``c.sck`` alone, line 56): once tokens keep their own incarnation (correction 1), slots of a
re-created record below what the sender asks for match no token, and the next frontier waives them. **Grants of an
older incarnation accepted**: a record that granted numbers from the sender's present ``sck`` on cannot have been
forgotten, so the only such grants are empty ones. **A confirmation accepted whatever number it confirms**: forgetting
too early is what correction 3 repairs. ``test_harmless_changes`` keeps these three claims honest.
"""

from __future__ import annotations

from collections.abc import Iterable

from attrs import define

from exon.frames import ClosedFrame, ReqSlots, Slots
from exon.records import ReceiveRecord, Records, SendRecord, Token, Verdict
from tests.model.node import Property, Variant
from tests.model.scenarios import CLOSE_BETWEEN, EVICTED, TWO_MESSAGES, WIDE_WINDOW

# -- correction 1 ---------------------------------------------------------------------------------------------------


@define(eq=False)
class _ReleasesByRecord(SendRecord):
    """Compares an acknowledgement with the incarnation of the record (line 85)."""

    def release(self, epoch: int, r: int, ranges: Iterable[tuple[int, int]]) -> list[Token]:
        if epoch != self.epoch or r != self.rck:
            return []
        return [self.tokens.pop(s) for start, stop in ranges for s in range(start, stop) if s in self.tokens]


class _StampsByRecord(Records):
    def open(self, peer: str) -> SendRecord:
        if peer not in self.send:
            self.send[peer] = _ReleasesByRecord(self.clock.value, self.clock.value)
        return super().open(peer)


def _current_incarnation(record: SendRecord, token: Token) -> int:
    """Line 90."""
    return token.r if record.rck is None else record.rck


PUBLISHED_RETRANSMISSION = Variant(
    name="published-retransmission",
    story="tokens are repeated, and acknowledgements compared, under the record's incarnation (lines 85 and 90)",
    records=_StampsByRecord,
    send_record=_ReleasesByRecord,
    stamp=_current_incarnation,
    scenario=TWO_MESSAGES,
    tolerated=frozenset({Property.ONE_TOKEN, Property.VERDICT}),
)


class _IgnoresIncarnation(Records):
    def judge(self, peer: str, epoch: int, s: int, r: int) -> Verdict:
        record = self.receive.get((peer, epoch))
        if record is not None and s in record.slots:
            return Verdict.DELIVER
        return super().judge(peer, epoch, s, r)


INCARNATION_IGNORED = Variant(
    name="incarnation-ignored",
    story="the receiver looks a slot up by its number alone (line 78 without r = c.rck)",
    records=_IgnoresIncarnation,
    scenario=TWO_MESSAGES,
)

# -- correction 2 (harmless, see above) -----------------------------------------------------------------------------


@define(eq=False)
class _GrantsFromSck(ReceiveRecord):
    def grant(self, frame: ReqSlots, most: int) -> int:
        self.slots.discard_below(frame.l)
        if not frame.n:
            return 0
        start = self.sck
        stop = min(frame.s + frame.n, start + max(0, most - self.slots.count))
        if stop > start:
            self.slots.add(start, stop)
            self.sck = stop
        return max(0, min(frame.n, self.sck - frame.s))


class _SlotsFromSck(Records):
    def on_reqslots(self, peer: str, epoch: int, frame: ReqSlots, window: int = 0) -> Slots | ClosedFrame:
        if frame.n and (peer, epoch) not in self.receive:
            self.receive[peer, epoch] = _GrantsFromSck(base=frame.s, sck=frame.s, rck=self.clock.tick())
        return super().on_reqslots(peer, epoch, frame, window)


SLOTS_FROM_SCK = Variant(
    name="slots-from-sck",
    story="new slots start at c.sck even when the sender asks for higher ones (line 56)",
    records=_SlotsFromSck,
    receive_record=_GrantsFromSck,
)

# -- correction 3 ---------------------------------------------------------------------------------------------------


class _DoesNotRaise(Records):
    def on_slots(self, peer: str, epoch: int, frame: Slots) -> ReqSlots | None:
        record = self.send.get(peer)
        if record is None:
            return ReqSlots(self.clock.value, 0, self.clock.value)
        return record.close() if record.closing else super().on_slots(peer, epoch, frame)


CLOCK_NOT_RAISED = Variant(
    name="clock-not-raised",
    story="a SLOTS that finds no send record is answered with the clock as it stands (line 63)",
    records=_DoesNotRaise,
    scenario=WIDE_WINDOW,
)

# -- corrections 4 and 5 --------------------------------------------------------------------------------------------


@define(eq=False)
class _KeepsEnvelopes(SendRecord):
    """Does not void the envelopes of another incarnation (lines 64-68 as they are printed)."""

    def accept(self, frame: Slots, epoch: int) -> bool:
        if frame.s != self.sck or (self.rck is not None and frame.r < self.rck) or frame.n > self.requested:
            return False
        self.rck = frame.r
        self.epoch = epoch
        self.sck += frame.n
        if frame.n:
            self.requested = 0
        return True


class _EnvelopesKept(Records):
    def open(self, peer: str) -> SendRecord:
        if peer not in self.send:
            self.send[peer] = _KeepsEnvelopes(self.clock.value, self.clock.value)
        return super().open(peer)


ENVELOPES_KEPT = Variant(
    name="envelopes-kept",
    story="envelopes of an incarnation that was given up are used under the next one (correction 4)",
    records=_EnvelopesKept,
    send_record=_KeepsEnvelopes,
    scenario=EVICTED,
)


@define(eq=False)
class _StartsAtZero(_KeepsEnvelopes):
    """Has no envelope before the first grant, and after it every number below ``sck``."""

    @property
    def envelopes(self) -> int:
        return 0 if self.rck is None else self.sck - self.env

    @property
    def frontier(self) -> int:
        return self.sck if self.rck is None else SendRecord.frontier.__get__(self)


class _EnvelopesFromZero(Records):
    def open(self, peer: str) -> SendRecord:
        if peer not in self.send:
            self.send[peer] = _StartsAtZero(self.clock.value, 0)
        return super().open(peer)


ENVELOPES_FROM_ZERO = Variant(
    name="envelopes-from-zero",
    story="the envelopes of a new send record start at 0 instead of sck, as in the Java library (correction 5)",
    records=_EnvelopesFromZero,
    send_record=_StartsAtZero,
    scenario=CLOSE_BETWEEN,
    tolerated=frozenset({Property.ONE_TOKEN, Property.VERDICT, Property.LIVENESS}),
)

# -- the invariants in the introduction of exon.records -------------------------------------------------------------


@define(eq=False)
class _WaivesTokens(SendRecord):
    @property
    def frontier(self) -> int:
        return self.env


class _FrontierPastTokens(Records):
    def open(self, peer: str) -> SendRecord:
        if peer not in self.send:
            self.send[peer] = _WaivesTokens(self.clock.value, self.clock.value)
        return super().open(peer)


FRONTIER_PAST_TOKENS = Variant(
    name="frontier-past-tokens",
    story="a request waives the slots of tokens that are still outstanding (line 40 left out)",
    records=_FrontierPastTokens,
    send_record=_WaivesTokens,
    scenario=TWO_MESSAGES,
)


class _ForgetsNumbers(Records):
    def forget(self, peer: str) -> None:
        del self.send[peer]


NUMBERS_FORGOTTEN = Variant(
    name="numbers-forgotten",
    story="the clock is not raised to sck when a send record goes (line 46 left out)",
    records=_ForgetsNumbers,
    scenario=CLOSE_BETWEEN,
    tolerated=frozenset({Property.ONE_TOKEN}),
)


class _ReusesIncarnation(Records):
    def on_reqslots(self, peer: str, epoch: int, frame: ReqSlots, window: int = 0) -> Slots | ClosedFrame:
        if frame.n and (peer, epoch) not in self.receive:
            self.receive[peer, epoch] = ReceiveRecord(base=frame.s, sck=frame.s, rck=0)
            self.clock.raise_to(1)
        return super().on_reqslots(peer, epoch, frame, window)


INCARNATION_REUSED = Variant(
    name="incarnation-reused",
    story="a new receive record does not use up a number of the clock (line 51 left out)",
    records=_ReusesIncarnation,
    scenario=TWO_MESSAGES,
    tolerated=frozenset({Property.NEW_SLOTS}),
)


class _ForgetsEvictions(Records):
    def judge(self, peer: str, epoch: int, s: int, r: int) -> Verdict:
        verdict = super().judge(peer, epoch, s, r)
        return Verdict.DUPLICATE if verdict is Verdict.UNKNOWN else verdict


EVICTION_FORGOTTEN = Variant(
    name="eviction-forgotten",
    story="a token of a record that was given up is acknowledged as if it had been delivered",
    records=_ForgetsEvictions,
    scenario=EVICTED,
)


class _GivesAllUp(Records):
    def on_gone(self, peer: str, epoch: int, r: int) -> list[Token]:
        others = sorted({token.r for token in self.send[peer].tokens.values()} - {r}) if peer in self.send else []
        return [token for each in (r, *others) for token in super(_GivesAllUp, self).on_gone(peer, epoch, each)]


ALL_GIVEN_UP = Variant(
    name="all-given-up",
    story="when the receiver gave a record up, the tokens of later ones are given up too",
    records=_GivesAllUp,
    scenario=EVICTED,
)

# -- harmless, see above --------------------------------------------------------------------------------------------


@define(eq=False)
class _AcceptsOlder(SendRecord):
    def accept(self, frame: Slots, epoch: int) -> bool:
        if frame.s == self.sck and self.rck is not None and frame.r < self.rck:
            self.rck = None
        return super().accept(frame, epoch)


class _OlderGrants(Records):
    def open(self, peer: str) -> SendRecord:
        if peer not in self.send:
            self.send[peer] = _AcceptsOlder(self.clock.value, self.clock.value)
        return super().open(peer)


OLDER_GRANTS = Variant(
    name="older-grants",
    story="a grant of an incarnation older than the record's is accepted (line 64)",
    records=_OlderGrants,
    send_record=_AcceptsOlder,
)


class _AnyConfirmation(Records):
    def on_closed(self, peer: str, epoch: int, frame: ClosedFrame) -> bool:
        record = self.send.get(peer)
        return super().on_closed(peer, epoch, frame if record is None else ClosedFrame(record.sck))


ANY_CONFIRMATION = Variant(
    name="any-confirmation",
    story="a close is taken as confirmed by the confirmation of an earlier one",
    records=_AnyConfirmation,
)

FATAL = {
    variant.name: variant
    for variant in (
        PUBLISHED_RETRANSMISSION,
        INCARNATION_IGNORED,
        CLOCK_NOT_RAISED,
        ENVELOPES_KEPT,
        ENVELOPES_FROM_ZERO,
        FRONTIER_PAST_TOKENS,
        NUMBERS_FORGOTTEN,
        INCARNATION_REUSED,
        EVICTION_FORGOTTEN,
        ALL_GIVEN_UP,
    )
}
HARMLESS = {variant.name: variant for variant in (SLOTS_FROM_SCK, OLDER_GRANTS, ANY_CONFIRMATION)}
VARIANTS = FATAL | HARMLESS
