"""A simulated run as text, one line for everything that happens: what to read when a seed has found something."""

from __future__ import annotations

from exon.frames import Ack, ClosedFrame, Frame, ReqSlots, Slice, TokenFrame
from exon.plain import read_short
from exon.wire import CLOSING, Malformed, decode, is_short


def describe(datagram: bytes) -> str:
    """A datagram for people to read.

    >>> from exon.wire import Header, encode, encode_frame
    >>> frames = [encode_frame(ReqSlots(0, 17, 0)), encode_frame(Ack(3, 4096, ((0, 4), (6, 7))))]
    >>> describe(encode(Header("a", "b", 5, 0, 7, 0, 1000, 0, 0), frames))
    'a/5 to b/?, time 1000: REQSLOTS s=0 n=17 l=0; ACK r=3 window=4096 0-3 6'
    """
    try:
        if is_short(datagram):
            short = read_short(datagram)
            return _describe(f"short, proof {short.proof:x}"[:22], short.time, short.flags, short.frames)
        decoded = decode(datagram)
    except Malformed as malformed:
        return f"malformed ({malformed.reason}), {len(datagram)} bytes"
    header = decoded.header
    destination = f"{header.destination}/{_epoch(header.destination_epoch)}"
    who = f"{header.source}/{_epoch(header.source_epoch)} to {destination}"
    return _describe(who, header.time, decoded.flags, decoded.frames)


def _describe(who: str, time: int, flags: int, frames: list[Frame]) -> str:
    closing = ", closing" if flags & CLOSING else ""
    return f"{who}, time {time}{closing}: {'; '.join(map(_frame, frames)) or 'nothing'}"


def shorten(payload: bytes) -> str:
    """The beginning of a message, and how long it is.

    >>> shorten(b"7:" + bytes(300))
    "b'7:' and 300 bytes more"
    """
    head = payload[:24].rstrip(b"\0")
    rest = len(payload) - len(head)
    return f"{head!r} and {rest} bytes more" if rest else repr(head)


def _epoch(epoch: int) -> str:
    return f"{epoch:x}"[:6] if epoch else "?"


def _frame(frame: Frame) -> str:
    name = type(frame).__name__.removesuffix("Frame").upper()
    match frame:
        case TokenFrame(s, r, payload):
            return f"{name} s={s} r={r} {len(payload)} bytes"
        case Slice(s, r, offset, total, chunk):
            return f"{name} s={s} r={r} bytes {offset}-{offset + len(chunk) - 1} of {total}"
        case Ack(r, window, ranges):
            numbers = (f"{start}-{stop - 1}" if stop - start > 1 else f"{start}" for start, stop in ranges)
            return " ".join((f"{name} r={r} window={window}", *numbers))
        case ReqSlots(s, 0, _):
            return f"{name} s={s} n=0 (close)"
        case ClosedFrame(s):
            return f"{name} s={s}"
        case _:
            return " ".join((name, *(f"{field}={getattr(frame, field)}" for field in frame._fields)))
