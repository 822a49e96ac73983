"""Frames and steps in the words of the paper, and what two frames say about each other."""

from __future__ import annotations

from exon.frames import Frame, TokenFrame
from tests.model.node import Kind, NodeState, Step, payload_of

_NAMES = {
    "ReqSlots": "REQSLOTS",
    "Slots": "SLOTS",
    "TokenFrame": "TOKEN",
    "Ack": "ACK",
    "ClosedFrame": "CLOSED",
    "Gone": "GONE",
}


def describe(frame: Frame) -> str:
    """A frame as the paper writes it: without the window, which is about bytes, and with single numbers plain.

    >>> from exon.frames import Ack, Slots
    >>> describe(Slots(2, 1, 0, 4096)), describe(Ack(1, 4096, ((0, 1), (3, 6))))
    ('SLOTS(2,1,0)', 'ACK(1,0,3-5)')
    """
    fields: list[str] = []
    for name, value in zip(frame._fields, frame, strict=True):
        if isinstance(value, tuple):  # the ranges of an ACK
            fields += [str(start) if stop == start + 1 else f"{start}-{stop - 1}" for start, stop in value]
        elif name != "window":
            fields.append(value.decode() if isinstance(value, bytes) else str(value))
    return f"{_NAMES[type(frame).__name__]}({','.join(fields)})"


def conflicting(one: Frame, other: Frame) -> bool:
    """Whether two tokens of one sender show that a message has two numbers, or a number two messages."""
    if not isinstance(one, TokenFrame) or not isinstance(other, TokenFrame):
        return False
    if one.payload == other.payload:
        return (one.s, one.r) != (other.s, other.r)
    return one.s == other.s


def action(name: str, step: Step, before: NodeState) -> str:
    """What a node does, or what happens to it."""
    match step.kind:
        case Kind.SEND:
            return f"{name}: EOsend({payload_of(name, before.sent).decode()})"
        case Kind.REQUEST:
            return f"{name}: requests {step.number} slots"
        case Kind.CLOSE:
            return f"{name}: closes"
        case Kind.FORGET:
            return f"{name}: forgets its send record"
        case Kind.RETRANSMIT:
            return f"{name}: repeats token {step.number}"
        case Kind.PROBE:
            return f"{name}: probes"
        case Kind.EVICT:
            return f"{name}: gives the record up"
        case Kind.TICK:
            return f"{name}: talks to a third node"
        case Kind.DELIVER:
            assert step.frame is not None
            return f"{name} receives {describe(step.frame)}"


def changes(peer: str, name: str, before: NodeState, after: NodeState) -> str:
    """What is different at node ``name`` after a step."""
    notes = []
    if after.receive is None:
        if before.receive is not None:
            notes.append("no receive record left")
    elif before.receive is None or before.receive.rck != after.receive.rck:
        notes.append(f"incarnation r={after.receive.rck}, slots {_numbers(after.receive.slots)}")
    elif before.receive.slots != after.receive.slots:
        notes.append(f"slots {_numbers(after.receive.slots)}")
    if after.send is not None and after.send != before.send:
        send = after.send
        tokens = ",".join(f"({token.s},{token.r}) {token.payload.decode()}" for token in send.tokens)
        notes.append(f"sck={send.sck} rck={'-' if send.rck is None else send.rck} tokens {{{tokens}}}")
    elif after.send is None and before.send is not None:
        notes.append(f"no send record left, ck={after.clock}")
    elif after.send is None and after.clock != before.clock and before.receive == after.receive:
        notes.append(f"ck={after.clock}")
    for verb, sender, old, new in (
        ("delivers", peer, before.delivered, after.delivered),
        ("releases", name, before.released, after.released),
        ("gives up", name, before.unknown, after.unknown),
    ):
        notes += [
            f"{verb} {payload_of(sender, bit).decode()}" for bit in range(new.bit_length()) if (new & ~old) >> bit & 1
        ]
    return "; ".join(notes)


def _numbers(ranges: tuple[tuple[int, int], ...]) -> str:
    return "{" + ",".join(str(s) for start, stop in ranges for s in range(start, stop)) + "}"
