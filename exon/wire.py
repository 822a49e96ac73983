"""Datagrams as bytes: a fixed prefix, then one msgpack array. ``docs/protocol.md`` has it byte by byte.

A datagram names its source and destination node and their epochs, so state is found by name alone and never by address
(003, section 6.1.4), and nothing meant for an earlier life of a node can touch its present one. Between two lives that
have heard each other a *short* datagram leaves the names out: the proof in it is known to nobody else. Nearly all of
those are *plain*, and have a form of their own: :mod:`exon.plain`.

The reader trusts nothing: whatever bytes come in, :func:`decode` returns a valid datagram or raises
:class:`Malformed` with a reason out of a fixed list, in time proportional to the input.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import msgpack

from exon.checksum import crc32
from exon.frames import (
    Ack,
    ClosedFrame,
    Frame,
    Gone,
    Probe,
    Probed,
    Refused,
    ReqSlots,
    Slice,
    Slots,
    TokenFrame,
)

MAGIC = b"EX"
VERSION = 4
CLOSING = 0x01  # flag: the source is closing and would like to see its records go
SHORT = 0x02  # flag: the header is a short one

PREFIX = struct.Struct(">2sBBHI")  # magic, version, flags, length of the body, CRC-32
PREFIX_BEFORE_CRC = struct.Struct(">2sBBH")
_HEADER_FIELDS = 9
_CONSTANT_FIELDS = 6  # all but time, echo and delay
_SHORT_HEADER = struct.Struct(">QIII")  # proof, and the lowest 32 bits of time, echo and delay
_FRAMES_AT = PREFIX.size + _SHORT_HEADER.size
LOW = 2**32 - 1
MAX_NUMBER = 2**63 - 1
MAX_ID = 255
MAX_RANGES = 128  # in one acknowledgement
MAX_DATAGRAM = 65507  # the largest payload of a UDP datagram over IPv4
BASE_DATAGRAM = 1200  # every path is taken to carry this much (RFC 9000, section 14)


class Malformed(Exception):
    """A datagram that is not one; :attr:`reason` is one of a fixed set of words to count by."""

    def __init__(self, reason: str) -> None:
        """Remember the word."""
        super().__init__(reason)
        self.reason = reason


class Header(NamedTuple):
    """What stands in front of the frames.

    ``time`` is the source's own clock in microseconds, strictly increasing towards one destination, so it names the
    datagram too; ``echo`` is the newest such time received from the destination, ``delay`` how long ago that was.
    ``destination_epoch`` is 0 while the source does not know it. ``tag`` is what the destination has to show as
    ``proof`` in its answers, to show that it receives what is sent to its address (see :mod:`exon.tags`).
    """

    source: str
    destination: str
    source_epoch: int
    destination_epoch: int
    tag: int
    proof: int
    time: int
    echo: int
    delay: int


class Datagram(NamedTuple):
    """A datagram, decoded."""

    header: Header
    flags: int
    frames: list[Frame]
    skipped: int  # frames of kinds this version does not know


def pack(value: object) -> bytes:
    """Encode with msgpack (which has no type information of its own)."""
    encoded: bytes = msgpack.packb(value)
    return encoded


# For values that fit into a datagram: making a packer costs as much as using it, and one keeps the largest buffer that
# it ever needed. A call is one step as far as threads are concerned.
_pack: Callable[[object], bytes] = msgpack.Packer(autoreset=True).pack


# -- writing ----------------------------------------------------------------------------------------------------------

_CODES: dict[type, int] = {
    ReqSlots: 1,
    Slots: 2,
    TokenFrame: 3,
    Ack: 4,
    ClosedFrame: 5,
    Refused: 6,
    Gone: 7,
    Slice: 8,
    Probe: 9,
    Probed: 10,
}


def encode_frame(frame: Frame) -> bytes:
    """One frame as a msgpack array that begins with its kind."""
    if type(frame) is Ack:
        flat: list[int] = []
        for start, stop in frame.ranges:
            flat += (start, stop - start)
        return _pack((4, frame.r, frame.window, flat))
    return _pack((_CODES[type(frame)], *frame))


def encode_token(s: int, r: int, payload: bytes) -> bytes:
    """The same for the frame that there is most of."""
    return _pack((3, s, r, payload))


def encode(header: Header, frames: Iterable[bytes], flags: int = 0, size: int = 0) -> bytes:
    """A datagram of encoded frames, filled up with zeros to ``size`` bytes if that is more."""
    times = header.time, header.echo, header.delay
    return seal(constant_part(header), times, list(frames), flags, size)


def constant_part(header: Header) -> bytes:
    """The bytes of a header that are the same in all datagrams between two lives, as long as no address changes."""
    return pack(header[:_CONSTANT_FIELDS])[1:]


def seal(constant: bytes, times: tuple[int, int, int], frames: Sequence[bytes], flags: int = 0, size: int = 0) -> bytes:
    """A datagram: the constant part of its header, time, echo and delay, and encoded frames."""
    # The markers of the arrays that the parts of the header were written as give way to that of the whole.
    head = b"".join((_array(_HEADER_FIELDS + len(frames)), constant, _pack(times)[1:]))
    length = len(head) + sum(map(len, frames))
    start = PREFIX_BEFORE_CRC.pack(MAGIC, VERSION, flags, length)
    check = crc32(head, crc32(start))
    for frame in frames:
        check = crc32(frame, check)
    missing = size - PREFIX.size - length
    if missing <= 0:
        return b"".join((start, check.to_bytes(4, "big"), head, *frames))
    padding = bytes(missing)
    return b"".join((start, crc32(padding, check).to_bytes(4, "big"), head, *frames, padding))


def seal_short(proof: int, times: tuple[int, int, int], frames: Sequence[bytes], flags: int = 0) -> bytes:
    """A datagram between lives that know each other: a proof, time, echo and delay, and encoded frames."""
    time, echo, delay = times
    number = len(frames)
    array = _ARRAYS[number] if number < 16 else _array(number)
    head = _SHORT_HEADER.pack(proof, time & LOW, echo & LOW, delay if delay < LOW else LOW) + array
    length = len(head)
    for frame in frames:
        length += len(frame)
    start = PREFIX_BEFORE_CRC.pack(MAGIC, VERSION, flags | SHORT, length)
    check = crc32(head, crc32(start))
    for frame in frames:
        check = crc32(frame, check)
    return b"".join((start, check.to_bytes(4, "big"), head, *frames))


def overhead(source: str, destination: str) -> int:
    """The most bytes that prefix and header can take between two nodes."""
    ids = len(source.encode()) + len(destination.encode()) + 4
    return PREFIX.size + 3 + ids + (_HEADER_FIELDS - 2) * 9


def _array(length: int) -> bytes:
    return bytes((0x90 | length,)) if length < 16 else b"\xdc" + length.to_bytes(2, "big")


_ARRAYS = tuple(_array(length) for length in range(16))


# -- reading ----------------------------------------------------------------------------------------------------------

_READ_ERRORS = (ValueError, TypeError, OverflowError, msgpack.UnpackException, RecursionError)


def is_short(data: bytes) -> bool:
    """Whether ``data``, if it is a datagram, has a short header."""
    return len(data) >= PREFIX.size and bool(data[3] & SHORT)


def _open(data: bytes, at: int) -> tuple[int, list[Any]]:
    """The flags of the datagram in ``data``, and the fields of the array that begins ``at`` so many bytes."""
    if len(data) < at:
        raise Malformed("short")
    magic, version, flags, length, check = PREFIX.unpack_from(data)
    if magic != MAGIC:
        raise Malformed("magic")
    if version != VERSION:
        raise Malformed("version")
    end = PREFIX.size + length
    if end > len(data):
        raise Malformed("truncated")
    view = memoryview(data)
    if crc32(view[10:], crc32(view[:6])) != check:
        raise Malformed("checksum")
    try:
        fields = msgpack.unpackb(view[at:end], use_list=True)
    except _READ_ERRORS:
        raise Malformed("encoding") from None
    if type(fields) is not list:
        raise Malformed("header")
    return flags, fields


def decode(data: bytes) -> Datagram:
    """The datagram with a full header in ``data``, or :class:`Malformed`."""
    flags, fields = _open(data, PREFIX.size)
    if flags & SHORT or len(fields) < _HEADER_FIELDS:
        raise Malformed("header")
    return Datagram(_header(fields), flags, *_frames(fields[_HEADER_FIELDS:]))


class Short(NamedTuple):
    """A short datagram, decoded; of its times only the lowest 32 bits are known."""

    proof: int
    time: int
    echo: int
    delay: int
    flags: int
    frames: list[Frame]
    skipped: int


def decode_short(data: bytes) -> Short:
    """The datagram with a short header in ``data``, if it is no plain one, or :class:`Malformed`."""
    flags, fields = _open(data, _FRAMES_AT)
    proof, time, echo, delay = _SHORT_HEADER.unpack_from(data, PREFIX.size)
    return Short(proof, time, echo, delay, flags, *_frames(fields))


def time_until(low: int, latest: int) -> int:
    """The highest number with these lowest 32 bits that is not above ``latest``, or 0 if there is none.

    >>> time_until(1, 2**32 + 5), time_until(6, 2**32 + 5), time_until(6, 5)
    (4294967297, 6, 0)
    """
    return max(0, latest - ((latest - low) & LOW))


def _frames(fields: list[Any]) -> tuple[list[Frame], int]:
    frames: list[Frame] = []
    skipped = 0
    for raw in fields:
        if type(raw) is not list or not raw or type(raw[0]) is not int:
            raise Malformed("frame")
        read = _READERS.get(raw[0])
        if read is None:
            skipped += 1
        else:
            frames.append(read(raw))
    return frames, skipped


def _header(fields: list[Any]) -> Header:
    source, destination, *numbers = fields[:_HEADER_FIELDS]
    if type(source) is not str or type(destination) is not str or not source or not destination:
        raise Malformed("header")
    if len(source.encode()) > MAX_ID or len(destination.encode()) > MAX_ID or not _are_numbers(numbers):
        raise Malformed("header")
    if not numbers[0]:
        raise Malformed("header")  # a node always knows its own epoch
    return Header(source, destination, *numbers)


def _are_numbers(values: Iterable[Any]) -> bool:
    for value in values:  # noqa: SIM110  # half the time of all()
        if type(value) is not int or not 0 <= value <= MAX_NUMBER:
            return False
    return True


def _numbers(kind: Callable[..., Frame], count: int) -> Callable[[list[Any]], Frame]:
    """A reader for frames that are nothing but numbers."""

    def read(raw: list[Any]) -> Frame:
        if len(raw) != count + 1 or not _are_numbers(raw):
            raise Malformed("frame")
        return kind(*raw[1:])

    return read


def _read_token(raw: list[Any]) -> Frame:
    if len(raw) != 4:
        raise Malformed("frame")
    _, s, r, payload = raw
    if type(payload) is not bytes or not payload or type(s) is not int or type(r) is not int:
        raise Malformed("frame")
    if not (0 <= s <= MAX_NUMBER and 0 <= r <= MAX_NUMBER):
        raise Malformed("frame")
    return TokenFrame(s, r, payload)


def _read_slice(raw: list[Any]) -> Frame:
    if len(raw) != 6 or type(raw[5]) is not bytes or not raw[5] or not _are_numbers(raw[1:5]):
        raise Malformed("frame")
    frame = Slice(*raw[1:])
    if frame.offset + len(frame.chunk) > frame.total or frame.total > MAX_DATAGRAM:
        raise Malformed("frame")
    return frame


def _read_ack(raw: list[Any]) -> Frame:
    if len(raw) != 4 or not _are_numbers(raw[1:3]) or type(raw[3]) is not list or len(raw[3]) % 2:
        raise Malformed("frame")
    flat = raw[3]
    if len(flat) > 2 * MAX_RANGES or not _are_numbers(flat):
        raise Malformed("frame")
    if len(flat) == 2:
        return Ack(raw[1], raw[2], ((flat[0], flat[0] + flat[1]),))
    ranges = tuple((start, start + length) for start, length in zip(flat[::2], flat[1::2], strict=True))
    return Ack(raw[1], raw[2], ranges)


_READERS: dict[int, Callable[[list[Any]], Frame]] = {
    1: _numbers(ReqSlots, 3),
    2: _numbers(Slots, 4),
    3: _read_token,
    4: _read_ack,
    5: _numbers(ClosedFrame, 1),
    6: _numbers(Refused, 1),
    7: _numbers(Gone, 1),
    8: _read_slice,
    9: _numbers(Probe, 1),
    10: _numbers(Probed, 1),
}
