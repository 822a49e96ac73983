"""Plain datagrams: an acknowledgement, a token, or both, between lives that know each other, as nearly all are.

They mean the same as short ones with these frames (:mod:`exon.wire`), and have fixed places for them, so that one call
of :mod:`struct` reads all there is. ``docs/protocol.md`` has them byte by byte. Parts of a large message that come
together are the same but for a few numbers, and need not even that (:func:`fragments_after`).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from exon.checksum import crc32
from exon.frames import Ack, Frame, TokenFrame
from exon.wire import (
    LOW,
    MAGIC,
    MAX_NUMBER,
    PREFIX,
    PREFIX_BEFORE_CRC,
    SHORT,
    VERSION,
    Malformed,
    Short,
    decode_short,
)

ACK = 0x04  # flag, only with SHORT: the datagram is a plain one, and has an acknowledgement
TOKEN = 0x08  # the same: it has a token
WIDE = 0x10  # flag of a plain datagram: its numbers are so large that they take eight bytes
FRAGMENT = 1  # the kind of a payload that is a part of a large message (see exon.packing)
MOST_RANGES = 32  # of an acknowledgement
_STARTS = tuple(PREFIX_BEFORE_CRC.pack(MAGIC, VERSION, flags, 0) for flags in range(256))
_SEEDS = tuple(map(crc32, _STARTS))
_SHAPE = SHORT | ACK | TOKEN | WIDE  # flags that say how a plain datagram is to be read
_HEADER_END = PREFIX.size + struct.calcsize(">QIII")
_RANGES_AT = PREFIX.size + struct.calcsize(">QIIIII")  # where the number of ranges is; 4 bytes later if wide


def _make_layouts() -> dict[int, struct.Struct]:
    """What follows the prefix, up to the payload, by flags and number of ranges."""
    layouts = {}
    for wide, number in ((0, "I"), (WIDE, "Q")):
        for ranges in range(MOST_RANGES + 1):
            ack = f"{number}IB" + ranges * f"{number}I"
            token = 2 * number + "B"
            layouts[ranges << 8 | SHORT | wide | ACK] = struct.Struct(">QIII" + ack)
            layouts[ranges << 8 | SHORT | wide | ACK | TOKEN] = struct.Struct(">QIII" + ack + token)
        layouts[SHORT | wide | TOKEN] = struct.Struct(">QIII" + token)
    return layouts


_LAYOUTS = _make_layouts()


def seal(
    flags: int, ranges: int, numbers: Sequence[int], head: bytes = b"", payload: bytes | memoryview = b""
) -> bytes:
    """A plain datagram.

    ``numbers`` are proof, time, echo and delay; ``r``, ``window``, the number of ranges, and a start and a length for
    each, if it acknowledges; ``s``, ``r`` and the kind of the payload if it has a token, whose other bytes are those of
    ``head`` and ``payload``.
    """
    head = _LAYOUTS[ranges << 8 | flags & _SHAPE].pack(*numbers) + head
    check = crc32(payload, crc32(head, _SEEDS[flags]))
    return b"".join((_STARTS[flags], check.to_bytes(4, "big"), head, payload))


def read(data: bytes) -> tuple[tuple[int, ...], int]:
    """The numbers of a plain datagram, as :func:`seal` has them, and where its payload begins.

    Raises:
        Malformed: What it says is not what somebody wrote, or cannot be right.
    """
    flags = data[3]
    ranges = 0
    if flags & ACK:
        at = _RANGES_AT + 4 if flags & WIDE else _RANGES_AT
        if len(data) <= at:
            raise Malformed("short")
        ranges = data[at]
    layout = _LAYOUTS.get(ranges << 8 | flags & _SHAPE)
    if layout is None:
        raise Malformed("frame")
    payload_at = PREFIX.size + layout.size
    if len(data) < payload_at:
        raise Malformed("short")
    if data[:6] != _STARTS[flags]:
        raise Malformed("magic" if data[:2] != MAGIC else "version" if data[2] != VERSION else "checksum")
    if crc32(memoryview(data)[10:], _SEEDS[flags]) != int.from_bytes(data[6:10], "big"):
        raise Malformed("checksum")
    numbers = layout.unpack_from(data, PREFIX.size)
    if flags & WIDE and max(numbers[4:]) > MAX_NUMBER:
        raise Malformed("frame")
    return numbers, payload_at


# A plain datagram with nothing but a fragment, and narrow numbers: up to the chunk.
_FRAGMENT = struct.Struct(">10xQIIIIIBQQQ")
_FRAGMENT_FLAGS = SHORT | TOKEN


def is_fragment(data: bytes) -> bool:
    """Whether ``data``, a datagram that is in order, has a part of a large message, and nothing else."""
    return len(data) > _FRAGMENT.size and data[3] == _FRAGMENT_FLAGS and data[38] == FRAGMENT


def proof_of(data: bytes) -> int:
    """The proof in a plain datagram."""
    return int.from_bytes(data[10:18], "big")


def fragment_numbers(data: bytes) -> tuple[int, int, int, int, int]:
    """``s`` and ``r`` of a datagram that :meth:`is_fragment`; ``first``, ``parts`` and ``total`` of its message."""
    _, _, _, _, s, r, _, first, parts, total = _FRAGMENT.unpack_from(data)
    return s, r, first, parts, total


def fragments_after(
    data: bytes, train: Sequence[tuple[bytes, object]], begin: int, source: object
) -> tuple[list[bytes], int]:
    """The chunks of the datagrams from ``begin`` on that are in order and follow one that :meth:`is_fragment`.

    Each has the next number, and a later time, and differs in nothing else. Also the (low) time of the last of them.
    """
    start, seed = data[:6], _SEEDS[_FRAGMENT_FLAGS]
    proof, echo, rest = data[10:18], data[22:30], data[34:63]
    time, s = int.from_bytes(data[18:22], "big"), int.from_bytes(data[30:34], "big")
    chunks = []
    for at in range(begin, len(train)):
        datagram, origin = train[at]
        s += 1
        if (
            len(datagram) <= 63
            or datagram[34:63] != rest
            or int.from_bytes(datagram[30:34], "big") != s
            or datagram[22:30] != echo
            or datagram[10:18] != proof
            or datagram[:6] != start
            or origin != source
            or crc32(memoryview(datagram)[10:], seed) != int.from_bytes(datagram[6:10], "big")
        ):
            break
        later = int.from_bytes(datagram[18:22], "big")
        if not 0 < (later - time) & LOW < LOW // 2:
            break
        time = later
        chunks.append(datagram[63:])
    return chunks, time


def _frames(numbers: tuple[int, ...], flags: int, payload: bytes) -> list[Frame]:
    """The same as frames."""
    frames: list[Frame] = []
    at = 4
    if flags & ACK:
        r, window, ranges = numbers[4:7]
        at = 7 + 2 * ranges
        frames.append(Ack(r, window, ranges_of(numbers, ranges)))
    if flags & TOKEN:
        s, r, kind = numbers[at:]
        frames.append(TokenFrame(s, r, bytes((kind,)) + payload))
    return frames


def ranges_of(numbers: tuple[int, ...], ranges: int) -> tuple[tuple[int, int], ...]:
    """What a plain datagram acknowledges."""
    return tuple([(numbers[at], numbers[at] + numbers[at + 1]) for at in range(7, 7 + 2 * ranges, 2)])


def is_plain(data: bytes) -> bool:
    """Whether ``data``, if it is a datagram, is a plain one."""
    return len(data) > _HEADER_END and bool(data[3] & (ACK | TOKEN)) and bool(data[3] & SHORT)


def read_short(data: bytes) -> Short:
    """The datagram with a short header in ``data``, plain or not, or :class:`Malformed`."""
    if not is_plain(data):
        return decode_short(data)
    numbers, at = read(data)
    proof, time, echo, delay = numbers[:4]
    return Short(proof, time, echo, delay, data[3], _frames(numbers, data[3], data[at:]), 0)
