"""One node of the model: the real :class:`exon.records.Records` and the little that surrounds it.

The protocol engine adds timers, datagrams and recovery to the records. None of that matters for exactly-once delivery,
so the model replaces it by "may happen at any time": a :class:`Node` can say which steps it could take now, take one
of them on the real objects, and be saved to and loaded from a small hashable value.

What a step does to a node depends on nothing but the node and the frame it is given. The search relies on that: it
asks each question once and remembers the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from attrs import Factory, frozen

from exon.clock import Clock
from exon.frames import Ack, ClosedFrame, Frame, Gone, ReqSlots, Slots, TokenFrame
from exon.records import ReceiveRecord, Records, SendRecord, Token, Verdict
from tests.model.scenarios import Scenario

EPOCHS = {"a": 1, "b": 2}
PEERS = {"a": "b", "b": "a"}
_LETTERS = {"a": "m", "b": "w"}  # messages from a to b are m0, m1, ...; from b to a w0, w1, ...
_ACK_RANGES = 8


class Property(Enum):
    """What must hold in every state."""

    ONCE = "no message is delivered twice"
    SAFE_RELEASE = "no token is released whose message was not delivered"
    ONE_TOKEN = "no message is associated with two tokens, and no number with two messages"
    NO_ENVELOPES = "a send record holds no envelope when its incarnation changes"
    NEW_SLOTS = "no slot of an incarnation is created twice"
    FATE = "no message is given up as unknown whose record was not given up"
    VERDICT = "no token of a correct sender is judged impossible or unknown"
    ASSERTION = "no assertion in the protocol fails"
    LIVENESS = "a clean network leads to all messages delivered and all records gone"


class Violation(NamedTuple):
    """A property, and how it was broken."""

    property: Property
    detail: str


class Kind(Enum):
    """What may happen to a node."""

    SEND = "the application sends its next message (lines 22-35)"
    REQUEST = "the sender asks for slots (lines 36-43)"
    CLOSE = "the sender asks the receiver to forget it (lines 44-45)"
    FORGET = "the sender forgets without waiting for the confirmation (lines 46-47)"
    RETRANSMIT = "the sender repeats a token (lines 89-90)"
    PROBE = "the receiver asks whether its record is still needed (lines 92-93)"
    EVICT = "the receiver gives up a record"
    TICK = "a third node makes this one use up a number of its clock (line 51)"
    DELIVER = "a frame arrives"


@frozen
class Step:
    """One thing that may happen to one node."""

    kind: Kind
    number: int = 0  # n of a request, s of a token to be repeated
    frame: Frame | None = None  # what is delivered


class TokenState(NamedTuple):
    """A saved token."""

    s: int
    r: int
    payload: bytes


class SendState(NamedTuple):
    """A saved send record."""

    sck: int
    env: int
    rck: int | None
    epoch: int | None
    requested: int
    closing: bool
    tokens: tuple[TokenState, ...]


class ReceiveState(NamedTuple):
    """A saved receive record."""

    base: int
    sck: int
    rck: int
    slots: tuple[tuple[int, int], ...]


class NodeState(NamedTuple):
    """A saved node. ``delivered``, ``released`` and ``unknown`` are sets of messages, as bits."""

    clock: int
    send: SendState | None
    receive: ReceiveState | None
    queue: tuple[bytes, ...]  # accepted from the application, not in a token yet
    sent: int  # accepted from the application
    delivered: int  # of the peer's messages
    released: int  # of our own: acknowledged
    unknown: int  # of our own: reported as lost or delivered, nobody knows
    evicted: tuple[tuple[int, int], ...]  # incarnations
    evictions: int
    ticks: int

    @property
    def oblivious(self) -> bool:
        """Whether nothing but the clock is left (and the notes of the model)."""
        return self.send is None and self.receive is None


START = NodeState(0, None, None, (), 0, 0, 0, 0, (), 0, 0)


def own_incarnation(_record: SendRecord, token: Token) -> int:
    """The incarnation a token is retransmitted under: its own (correction 1)."""
    return token.r


@frozen(kw_only=True)
class Variant:
    """Which classes a node is made of. The defaults are the real ones; others bring a known bug back."""

    name: str = "none"
    story: str = "the protocol as it is"
    records: type[Records] = Records
    send_record: type[SendRecord] = SendRecord
    receive_record: type[ReceiveRecord] = ReceiveRecord
    stamp: Callable[[SendRecord, Token], int] = own_incarnation
    scenario: Scenario | None = None  # where the bug shows
    tolerated: frozenset[Property] = Factory(frozenset)  # broken on the way to the damage that is looked for


CORRECT = Variant()


def payload_of(name: str, index: int) -> bytes:
    """The ``index``-th message of node ``name``."""
    return f"{_LETTERS[name]}{index}".encode()


def bit_of(payload: bytes) -> int:
    """The message as a member of a set of messages."""
    return 1 << int(payload[1:])


class Node:
    """The real records of one node, its application, and the properties that concern it alone."""

    def __init__(self, name: str, scenario: Scenario, variant: Variant = CORRECT) -> None:
        """Begin as a node that has never talked to anybody."""
        self.name = name
        self.peer = PEERS[name]
        self.scenario = scenario
        self.variant = variant
        self.total = scenario.messages(name)
        self.load(START)

    # -- saving and loading -----------------------------------------------------------------------------------------

    def load(self, state: NodeState) -> None:
        """Become the node that was saved."""
        variant = self.variant
        self.records = records = variant.records(
            Clock(state.clock), max_slots=self.scenario.max_slots, max_request=self.scenario.max_request
        )
        for start, stop in state.evicted:
            records.evicted.add(start, stop)
        if state.send is not None:
            sck, env, rck, epoch, requested, closing, tokens = state.send
            record = variant.send_record(sck, env, rck, epoch, requested, closing)
            for s, r, payload in tokens:
                record.tokens[s] = Token(s, r, payload)
            records.send[self.peer] = record
        if state.receive is not None:
            base, sck, rck, slots = state.receive
            received = variant.receive_record(base, sck, rck)
            for start, stop in slots:
                received.slots.add(start, stop)
            records.receive[self.peer, EPOCHS[self.peer]] = received
        self.queue = list(state.queue)
        self.sent = state.sent
        self.delivered = state.delivered
        self.released = state.released
        self.unknown = state.unknown
        self.evictions = state.evictions
        self.ticks = state.ticks

    def save(self) -> NodeState:
        """The node as a value."""
        send = receive = None
        record = self.send_record
        if record is not None:
            tokens = tuple(TokenState(token.s, token.r, bytes(token.payload)) for token in record.tokens.values())
            send = SendState(record.sck, record.env, record.rck, record.epoch, record.requested, record.closing, tokens)
        received = self.receive_record
        if received is not None:
            receive = ReceiveState(received.base, received.sck, received.rck, tuple(received.slots))
        return NodeState(
            self.records.clock.value,
            send,
            receive,
            tuple(self.queue),
            self.sent,
            self.delivered,
            self.released,
            self.unknown,
            tuple(self.records.evicted),
            self.evictions,
            self.ticks,
        )

    @property
    def send_record(self) -> SendRecord | None:
        """Our side of the half-connection to the peer."""
        return self.records.send.get(self.peer)

    @property
    def receive_record(self) -> ReceiveRecord | None:
        """Our side of the half-connection from the peer."""
        return self.records.receive.get((self.peer, EPOCHS[self.peer]))

    # -- what could happen ------------------------------------------------------------------------------------------

    def steps(self) -> list[Step]:
        """Every step that needs no frame."""
        scenario, record = self.scenario, self.send_record
        steps = []
        ready = record is None or record.closing or not scenario.close_between or not self.sent
        if self.sent < self.total and ready:
            steps.append(Step(Kind.SEND))
        if record is not None:
            n = self.shortage(record)
            if n > 0 and not record.closing:
                steps.extend(Step(Kind.REQUEST, number) for number in range(1 if scenario.adaptive else n, n + 1))
            steps.extend(Step(Kind.RETRANSMIT, s) for s in record.tokens)
            if not record.tokens and not self.queue:
                steps.append(Step(Kind.CLOSE))
            if record.closing:
                steps.append(Step(Kind.FORGET))
        if self.receive_record is not None:
            steps.append(Step(Kind.PROBE))
            if self.evictions < scenario.evictions:
                steps.append(Step(Kind.EVICT))
        if self.ticks < scenario.ticks:
            steps.append(Step(Kind.TICK))
        return steps

    def shortage(self, record: SendRecord) -> int:
        """How many slots to ask for (line 38)."""
        return self.scenario.window + len(self.queue) - record.envelopes

    # -- taking a step ----------------------------------------------------------------------------------------------

    def take(self, step: Step) -> tuple[list[Frame], Violation | None]:
        """Let ``step`` happen: the frames it puts into the network, and the property it breaks, if any.

        What it hands over to the application is in ``handed_over``.
        """
        self._emitted: list[Frame] = []
        self.handed_over: list[bytes] = []
        self._violation: Violation | None = None
        try:
            _ACTIONS[step.kind](self, step)
        except AssertionError as error:
            self._breach(Property.ASSERTION, f"{self.name}: {error}")
        return self._emitted, self._violation

    def tend(self) -> tuple[list[Frame], Violation | None]:
        """Let every timer of a well-behaved node fire once; the frames that leave."""
        frames: list[Frame] = []
        for step in self.due():
            emitted, violation = self.take(step)
            frames += emitted
            if violation is not None:
                return frames, violation
        return frames, None

    def due(self) -> list[Step]:
        """What a node without anything new to send would do to get its messages across and its records gone."""
        steps = []
        record = self.send_record
        if record is not None:
            if not record.tokens and not self.queue:
                steps.append(Step(Kind.CLOSE))
            elif len(self.queue) > record.envelopes:
                steps.append(Step(Kind.REQUEST, self.shortage(record)))
            steps.extend(Step(Kind.RETRANSMIT, s) for s in record.tokens)
        if self.receive_record is not None:
            steps.append(Step(Kind.PROBE))
        return steps

    def _breach(self, broken: Property, detail: str) -> None:
        if self._violation is None and broken not in self.variant.tolerated:
            self._violation = Violation(broken, detail)

    def _send(self, _step: Step) -> None:
        self.queue.append(payload_of(self.name, self.sent))
        self.sent += 1
        self._seal(self.records.open(self.peer))

    def _seal(self, record: SendRecord) -> None:
        """Put what waits into envelopes at once (lines 28-33 and 69-73)."""
        while self.queue and record.envelopes > 0 and record.rck is not None:
            payload = self.queue.pop(0)
            token = record.seal(payload)
            self._emitted.append(TokenFrame(token.s, token.r, payload))

    def _request(self, step: Step) -> None:
        self._emitted.append(self._own_record().request(step.number))

    def _close(self, _step: Step) -> None:
        self._emitted.append(self._own_record().close())

    def _forget(self, _step: Step) -> None:
        self.records.forget(self.peer)

    def _retransmit(self, step: Step) -> None:
        record = self._own_record()
        token = record.tokens[step.number]
        self._emitted.append(TokenFrame(token.s, self.variant.stamp(record, token), bytes(token.payload)))

    def _probe(self, _step: Step) -> None:
        self._emitted.append(self.records.probe(self._peers_record()))

    def _evict(self, _step: Step) -> None:
        self.records.evict(self.peer, EPOCHS[self.peer])
        self.evictions += 1

    def _tick(self, _step: Step) -> None:
        self.records.clock.tick()
        self.ticks += 1

    def _own_record(self) -> SendRecord:
        record = self.send_record
        assert record is not None, "no send record"
        return record

    def _peers_record(self) -> ReceiveRecord:
        record = self.receive_record
        assert record is not None, "no receive record"
        return record

    # -- frames that arrive -----------------------------------------------------------------------------------------

    def _deliver(self, step: Step) -> None:
        match step.frame:
            case ReqSlots():
                self._on_reqslots(step.frame)
            case Slots():
                self._on_slots(step.frame)
            case TokenFrame():
                self._on_token(step.frame)
            case Ack(r, _, ranges):
                for token in self.records.on_ack(self.peer, EPOCHS[self.peer], r, ranges):
                    self.released |= bit_of(bytes(token.payload))
            case ClosedFrame():
                self.records.on_closed(self.peer, EPOCHS[self.peer], step.frame)
            case Gone(r):
                for token in self.records.on_gone(self.peer, EPOCHS[self.peer], r):
                    self.unknown |= bit_of(bytes(token.payload))
                    if token.r != r:
                        self._breach(
                            Property.FATE, f"{self.name}: {bytes(token.payload).decode()} of r={token.r} by GONE({r})"
                        )
            case _:
                raise TypeError(step.frame)

    def _on_reqslots(self, frame: ReqSlots) -> None:
        """Lines 48-60.

        No history of slots is needed to know that none is created twice: a new record uses an incarnation that the
        clock had not reached and takes the clock past it; an old record only adds above ``sck`` and never lowers it.
        """
        clock = self.records.clock.value
        before = self.receive_record
        incarnation = before.rck if before is not None else None
        sck = before.sck if before is not None else frame.s
        slots = before.slots.copy() if before is not None else None
        self._emitted.append(self.records.on_reqslots(self.peer, EPOCHS[self.peer], frame))
        after = self.receive_record
        if self.records.clock.value < clock:
            self._breach(Property.NEW_SLOTS, f"{self.name}: the clock went back to {self.records.clock.value}")
        if after is None:
            return
        if incarnation is None and not clock <= after.rck < self.records.clock.value:
            self._breach(Property.NEW_SLOTS, f"{self.name}: incarnation {after.rck} may have been used before")
        if after.sck < sck:
            self._breach(Property.NEW_SLOTS, f"{self.name}: sck fell from {sck} to {after.sck}")
        again = [
            s
            for start, stop in after.slots
            for s in range(start, stop)
            if s < sck and (slots is None or s not in slots)
        ]
        if again:
            self._breach(Property.NEW_SLOTS, f"{self.name}: slots {again} of incarnation {after.rck} a second time")

    def _on_slots(self, frame: Slots) -> None:
        """Lines 61-73."""
        record = self.send_record
        envelopes = record.envelopes if record is not None else 0
        rck = record.rck if record is not None else None
        answer = self.records.on_slots(self.peer, EPOCHS[self.peer], frame)
        if answer is not None:
            self._emitted.append(answer)
        if record is None or record.closing:
            return
        if envelopes and record.rck != rck and not self.scenario.evictions:
            self._breach(
                Property.NO_ENVELOPES, f"{self.name}: {envelopes} envelopes of r={rck} when r={record.rck} came"
            )
        self._seal(record)

    def _on_token(self, frame: TokenFrame) -> None:
        """Lines 75-81. A token that is ignored because the application is full is no different from a lost one."""
        epoch = EPOCHS[self.peer]
        verdict = self.records.judge(self.peer, epoch, frame.s, frame.r)
        name = frame.payload.decode()
        if verdict is Verdict.UNKNOWN and self.scenario.evictions:
            self._emitted.append(Gone(frame.r))
        elif verdict in (Verdict.IMPOSSIBLE, Verdict.UNKNOWN):
            self._breach(Property.VERDICT, f"{self.name}: token ({frame.s},{frame.r}) of {name} is {verdict.value}")
        else:
            if verdict is Verdict.DELIVER:
                self.records.consume(self.peer, epoch, frame.s)
                bit = bit_of(frame.payload)
                if self.delivered & bit:
                    self._breach(Property.ONCE, f"{self.name}: {name} is delivered a second time")
                self.delivered |= bit
                self.handed_over.append(frame.payload)
            self._emitted.append(Ack(frame.r, 0, self._done(frame)))

    def _done(self, frame: TokenFrame) -> tuple[tuple[int, int], ...]:
        """The numbers to acknowledge."""
        record = self.receive_record
        if self.scenario.range_acks and record is not None and record.rck == frame.r:
            return tuple(record.slots.gaps(record.base, record.sck, _ACK_RANGES))
        return ((frame.s, frame.s + 1),)


_ACTIONS: dict[Kind, Callable[[Node, Step], None]] = {
    Kind.SEND: Node._send,
    Kind.REQUEST: Node._request,
    Kind.CLOSE: Node._close,
    Kind.FORGET: Node._forget,
    Kind.RETRANSMIT: Node._retransmit,
    Kind.PROBE: Node._probe,
    Kind.EVICT: Node._evict,
    Kind.TICK: Node._tick,
    Kind.DELIVER: Node._deliver,
}
