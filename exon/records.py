"""Half-connection records: Algorithm 1 of the Exon paper (001), with its corrections.

This module is the whole of what makes delivery *exactly once*. Nothing in it knows about time, addresses, loss
detection or datagrams; :mod:`exon.protocol` adds those and may call these methods in any order, at any moment, as
often as it likes, without being able to break the guarantee. That is also why the explorer in ``tests/model`` can
run these very objects through every interleaving.

The invariants, for one sender epoch and one receiver epoch:

* **Numbers never come back.** A sender's number ``s`` enters at most one token towards one receiver, because ``sck``
  only grows and the node clock is raised to it before a record goes. A receiver's incarnation ``r`` names at most one
  record, because each new record uses up a clock tick.
* **A slot** ``(s, r)`` **exists at most once**, and leaves in one of two ways: consumed by the token ``(s, r)``, or
  waived by a frontier ``l > s``.
* **A frontier never passes a token**: ``l`` is at most the sender's lowest token, and at most its first unused
  envelope. So a slot whose token is outstanding can only have been consumed.
* **Therefore** a token that meets no slot was delivered before, and acknowledging it is safe.

The published algorithm breaks the last step by stamping retransmissions with the *current* incarnation (line 90);
``docs/decisions/001-corrections.md`` tells the story and ``tests/model`` plays it.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from attrs import Factory, define

from exon.clock import Clock
from exon.frames import ClosedFrame, ReqSlots, Slots
from exon.intervals import IntervalSet

MOST_EVICTED = 1024  # ranges of incarnations remembered as given up


@define(eq=False)
class Token:
    """A payload bound to one envelope, to be (re)transmitted until it is acknowledged (001, definition 3).

    Correction 1: a token keeps the ``(s, r)`` of its envelope for life. Lines 33, 73 and 90 of Algorithm 1 stamp it
    with the record's current ``rck`` whenever it is sent.
    """

    s: int
    r: int
    payload: bytes | memoryview
    messages: int = 1  # how many messages are done with when it is acknowledged
    cost: int = 0  # how many of their bytes
    whole: object = None  # of a fragment: the message it is a part of
    flight: object = None  # recovery's note on the datagram that carried it last
    queued: bool = False  # waits to be retransmitted
    tries: int = 0  # how often it left in slices
    kind: int = 0  # of the payload, which is without it
    head: bytes = b""  # what stands in front of the payload

    @property
    def size(self) -> int:
        """Bytes that are to be delivered."""
        return len(self.head) + len(self.payload)


@define(eq=False)
class SendRecord:
    """The sender's side of a half-connection (``S`` in Algorithm 1).

    ``sck`` is the next number to ask a slot for; the envelopes are ``env .. sck - 1``, all of incarnation ``rck``.
    Tokens are kept in ascending order of ``s``, so the first key is the lowest.

    A record starts with ``env == sck``. Starting the envelopes at 0 instead, as the Java library does, lets numbers
    of an earlier soft connection be used again after a lost closing request (correction 5).
    """

    sck: int
    env: int
    rck: int | None = None
    epoch: int | None = None  # the receiver's epoch that all tokens and envelopes belong to
    requested: int = 0  # the most slots asked for from the present sck on
    closing: bool = False
    tokens: dict[int, Token] = Factory(dict)

    @property
    def envelopes(self) -> int:
        """How many tokens could be made without asking for more slots."""
        return self.sck - self.env

    @property
    def frontier(self) -> int:
        """The lowest number that may still be needed: ``l`` of lines 40-42."""
        for lowest in self.tokens:
            return lowest
        return self.env

    def request(self, n: int) -> ReqSlots:
        """Ask for ``n`` more slots (lines 38-43)."""
        self.requested = max(self.requested, n)
        return ReqSlots(self.sck, n, self.frontier)

    def close(self) -> ReqSlots:
        """Waive every envelope and ask the receiver to forget us (lines 44-45)."""
        assert not self.tokens, "a record with tokens outstanding must not be closed"
        self.closing = True
        self.env = self.sck
        return ReqSlots(self.sck, 0, self.sck)

    def seal(
        self,
        payload: bytes | memoryview,
        messages: int = 1,
        cost: int = 0,
        whole: object = None,
        kind: int = 0,
        head: bytes = b"",
    ) -> Token:
        """Put a payload into the next envelope (lines 29-32 and 70-72)."""
        assert self.env < self.sck, "no envelope left"
        assert self.rck is not None
        s = self.env
        token = self.tokens[s] = Token(s, self.rck, payload, messages, cost, whole, None, False, 0, kind, head)
        self.env = s + 1
        return token

    def accept(self, frame: Slots, epoch: int) -> bool:
        """Turn granted slots into envelopes (lines 64-68); False for a grant that is not for the present ``sck``."""
        if frame.s != self.sck or (self.epoch is not None and epoch != self.epoch):
            return False
        if self.rck is not None and frame.r < self.rck:
            return False  # a late grant of a record that is gone
        if frame.n > self.requested:
            return False  # nobody asked for that many
        if frame.r != self.rck:
            # Correction 4: the receiver only forgets a record without slots, so no envelope of the old incarnation
            # can be left - unless the receiver gave the record up (see Records.evict), which voids them.
            self.env = self.sck
            self.rck = frame.r
        self.epoch = epoch
        self.sck += frame.n
        if frame.n:
            self.requested = 0
        return True

    def release(self, epoch: int, r: int, ranges: Iterable[tuple[int, int]]) -> list[Token]:
        """Drop the tokens that an acknowledgement names (lines 82-86); the incarnation compared is the token's own."""
        if epoch != self.epoch:
            return []
        tokens = self.tokens
        released: list[Token] = []
        for start, stop in ranges:
            if stop - start == 1:
                token = tokens.get(start)
                found = [token] if token is not None else []
            else:
                # A range may be of any length; tokens are in ascending order, and few are below what is acknowledged.
                found = []
                for s, token in tokens.items():
                    if s >= stop:
                        break
                    if s >= start:
                        found.append(token)
            for token in found:
                if token.r == r:
                    del tokens[token.s]
                    released.append(token)
        return released


@define(eq=False)
class ReceiveRecord:
    """The receiver's side of a half-connection (``R`` in Algorithm 1)."""

    base: int  # the sender's number this record began with
    sck: int  # one past the highest slot ever created here
    rck: int  # the incarnation
    slots: IntervalSet = Factory(IntervalSet)

    def grant(self, frame: ReqSlots, most: int) -> int:
        """Waive and create slots as asked (lines 53-57), holding at most ``most``; how many from ``frame.s`` on."""
        self.slots.discard_below(frame.l)
        if not frame.n:
            return 0
        # Correction 2: never below what the sender asks for, even when a stale request re-created this record
        # (line 56 starts at c.sck alone).
        start = max(self.sck, frame.s)
        stop = min(frame.s + frame.n, start + max(0, most - self.slots.count))
        if stop > start:
            self.slots.add(start, stop)
            self.sck = stop
        return max(0, min(frame.n, self.sck - frame.s))


class Verdict(Enum):
    """What is to be done with a token that arrived."""

    DELIVER = "deliver"  # its slot is here: use it up, deliver, acknowledge
    DUPLICATE = "duplicate"  # it was delivered before: acknowledge again
    UNKNOWN = "unknown"  # the record it belongs to was given up: say so
    IMPOSSIBLE = "impossible"  # no correct sender can have it: drop


class Records:
    """All half-connections of one node, and the clock they share: the state of Algorithm 1."""

    def __init__(self, clock: Clock, *, max_slots: int = 8192, max_request: int = 65536) -> None:
        """Hold at most ``max_slots`` slots for one peer, and ask for at most ``max_request`` at a time."""
        self.clock = clock
        self.send: dict[str, SendRecord] = {}
        self.receive: dict[tuple[str, int], ReceiveRecord] = {}
        self.max_slots = max_slots
        self.max_request = max_request
        self.evicted = IntervalSet()  # incarnations that were given up with slots unused

    # -- the sender's side ------------------------------------------------------------------------------------------

    def open(self, peer: str) -> SendRecord:
        """The record to send to ``peer`` with, made if need be (lines 23-24)."""
        record = self.send.get(peer)
        if record is None:
            record = self.send[peer] = SendRecord(sck=self.clock.value, env=self.clock.value)
        record.closing = False
        return record

    def forget(self, peer: str) -> None:
        """Drop a record that holds nothing any more (lines 46-47)."""
        record = self.send.pop(peer)
        assert not record.tokens
        self.clock.raise_to(record.sck)

    def on_slots(self, peer: str, epoch: int, frame: Slots) -> ReqSlots | None:
        """Take a grant (lines 61-68); the answer tells a receiver that nobody needs its slots."""
        record = self.send.get(peer)
        if record is not None and not record.closing:
            if frame.s == record.sck and frame.n <= record.requested:
                self.clock.cover(frame.s + frame.n)  # before any of these numbers can be used
            record.accept(frame, epoch)
            return None
        # Correction 3: skip the numbers the receiver holds slots for, or it can never let go of them (line 63
        # answers with the clock as it stands). It cannot hold more than we ever asked for in one go.
        known = self.clock.value if record is None else record.sck
        if frame.s > known + self.max_request:
            return None
        if record is None:
            self.clock.raise_to(frame.s)
            return ReqSlots(self.clock.value, 0, self.clock.value)
        if record.epoch is not None and record.epoch != epoch:
            return None
        record.sck = max(record.sck, frame.s)
        return record.close()

    def on_ack(self, peer: str, epoch: int, r: int, ranges: Iterable[tuple[int, int]]) -> list[Token]:
        """The tokens that an acknowledgement releases."""
        record = self.send.get(peer)
        return record.release(epoch, r, ranges) if record is not None else []

    def on_closed(self, peer: str, epoch: int, frame: ClosedFrame) -> bool:
        """Whether this confirms a close that is under way; the record is then gone on both sides."""
        record = self.send.get(peer)
        if record is None or not record.closing or frame.s != record.sck or record.epoch not in (None, epoch):
            return False
        self.forget(peer)
        return True

    def on_refused(self, peer: str, epoch: int) -> list[Token]:
        """``epoch`` of ``peer`` is dead: what we held for it goes; the tokens returned have an unknown fate."""
        if (peer, epoch) in self.receive:
            self.evict(peer, epoch)  # should it live after all (stopped, or one of two with one id), it must be told
        record = self.send.get(peer)
        if record is None or record.epoch != epoch:
            return []
        unknown = list(record.tokens.values())
        # Numbers stay used up; only the binding to the dead epoch goes.
        self.send[peer] = SendRecord(sck=record.sck, env=record.sck, closing=record.closing)
        return unknown

    def on_new_life(self, peer: str, epoch: int) -> None:
        """The peer speaks from another life: what was not sent to the old one is better sent to this one."""
        record = self.send.get(peer)
        if record is None or record.epoch in (None, epoch):
            return
        record.env = record.sck
        if not record.tokens:
            self.send[peer] = SendRecord(sck=record.sck, env=record.sck, closing=record.closing)

    def on_gone(self, peer: str, epoch: int, r: int) -> list[Token]:
        """Incarnation ``r`` was given up by the receiver: its tokens have an unknown fate, its envelopes are void."""
        record = self.send.get(peer)
        if record is None or record.epoch != epoch:
            return []
        if record.rck == r:
            record.env = record.sck
        unknown = [token for token in record.tokens.values() if token.r == r]
        for token in unknown:
            del record.tokens[token.s]
        return unknown

    # -- the receiver's side ----------------------------------------------------------------------------------------

    def on_reqslots(self, peer: str, epoch: int, frame: ReqSlots, window: int = 0) -> Slots | ClosedFrame:
        """Grant, waive or forget (lines 48-60), and answer."""
        record = self.receive.get((peer, epoch))
        if record is None:
            if not frame.n:
                return ClosedFrame(frame.s)  # nothing to close: no reason to use up an incarnation, as line 50 does
            record = ReceiveRecord(base=frame.s, sck=frame.s, rck=self.clock.tick())
            self.receive[peer, epoch] = record
        granted = record.grant(frame, self.max_slots)
        if not record.slots:
            del self.receive[peer, epoch]
            if not frame.n:
                return ClosedFrame(frame.s)
        if not frame.n:
            return self.probe(record, window)  # slots the sender does not know of: let it skip them
        return Slots(frame.s, record.rck, granted, window)

    @staticmethod
    def probe(record: ReceiveRecord, window: int = 0) -> Slots:
        """Ask whether the sender still needs this record (lines 92-93)."""
        return Slots(record.sck, record.rck, 0, window)

    def judge(self, peer: str, epoch: int, s: int, r: int) -> Verdict:
        """What a token ``(s, r)`` is worth (lines 75-81)."""
        record = self.receive.get((peer, epoch))
        if r >= self.clock.value:
            return Verdict.IMPOSSIBLE  # an incarnation that never was
        if record is not None and r >= record.rck:
            if r > record.rck or not record.base <= s < record.sck:
                return Verdict.IMPOSSIBLE
            return Verdict.DELIVER if s in record.slots else Verdict.DUPLICATE
        # Correction 1, the receiver's half: an older record was only forgotten because each of its slots was
        # consumed or waived, so this token was delivered - unless records were given up with slots unused.
        return Verdict.UNKNOWN if r in self.evicted else Verdict.DUPLICATE

    def consume(self, peer: str, epoch: int, s: int) -> None:
        """Use up the slot of a token judged :attr:`Verdict.DELIVER` (line 79)."""
        used = self.receive[peer, epoch].slots.discard(s)
        assert used, "consumed a slot that is not there"

    def evict(self, peer: str, epoch: int) -> None:
        """Give up a record with slots unused, for a peer that seems dead.

        From now on nobody knows whether a token of this incarnation was delivered, and it is answered with "unknown"
        instead of an acknowledgement. To remember very many of them, neighbours share their fate.
        """
        record = self.receive.pop((peer, epoch))
        self.evicted.add(record.rck, record.rck + 1)
        if self.evicted.ranges > MOST_EVICTED:
            self.evicted.join_lowest()
