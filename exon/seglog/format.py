"""The bytes of a log: segment headers, frames, and the state. docs/journal-format.md is the same in prose.

Nothing here touches a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

import msgpack

from exon.checksum import crc32
from exon.errors import StoreError

VERSION = 1
AFTER_HOLE = 1  # flag of a segment: the records before it are lost, and whoever repaired the log was told
MOST_BODY = 2**30  # bytes of a frame's body: far above any message, far below what a length field can say
MOST_OFFSET = 2**62
STATE = "state"
LOCK = "lock"
SUFFIX = ".seg"

_SEGMENT_MAGIC = b"exon-seg"
_FRAME_MAGIC = b"\xf6frm"  # no UTF-8 text contains it, and no small number in msgpack
_STATE_MAGIC = b"exon-lst"
_SEGMENT = Struct(">8sHHIQQ")
_FRAME = Struct(">4sIQQIII")
_FRAME_TAIL = Struct(">QQIII")  # what the check of a frame's header covers
_STATE = Struct(">8sIQQQQ")
SEGMENT_HEADER = _SEGMENT.size
FRAME_HEADER = _FRAME.size
SLOT = 512  # bytes between the two copies of the state: disks write 512 bytes whole, or not at all
STATE_SIZE = SLOT + _STATE.size
FRAME_MAGIC = _FRAME_MAGIC


class Malformed(Exception):
    """These bytes are not what they should be; the text says why."""


def segment_name(first: int) -> str:
    """The name of the file whose first record is ``first``; names sort like numbers.

    >>> segment_name(42)
    '00000000000000000042.seg'
    """
    return f"{first:020d}{SUFFIX}"


def segment_first(name: str) -> int | None:
    """The first record of a segment by its file's name, or None if it is no segment's.

    >>> segment_first("00000000000000000042.seg"), segment_first("lock")
    (42, None)
    """
    number = name.removesuffix(SUFFIX)
    return int(number) if number != name and len(number) == 20 and number.isdecimal() else None


# ── segments ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class SegmentHeader(NamedTuple):
    """The beginning of a segment."""

    first: int  # its first record
    created: int  # nanoseconds since 1970
    flags: int
    seed: int  # of the checksums of its frames, so that a frame of another segment is not taken for one of this


def segment_header(first: int, created: int, flags: int = 0) -> tuple[bytes, int]:
    """The header of a new segment, and the seed of its frames."""
    check = crc32(_SEGMENT.pack(_SEGMENT_MAGIC, VERSION, flags, 0, first, created))
    return _SEGMENT.pack(_SEGMENT_MAGIC, VERSION, flags, check, first, created), check


def read_segment_header(data: bytes, first: int) -> SegmentHeader:
    """The header at the beginning of the segment of record ``first``, or :class:`Malformed`.

    A later version is no damage: a :class:`StoreError`, and nobody tries to repair it.
    """
    if len(data) < SEGMENT_HEADER:
        raise Malformed("the file ends inside its header")
    magic, version, flags, check, stated, created = _SEGMENT.unpack_from(data)
    if magic != _SEGMENT_MAGIC:
        raise Malformed("the file does not begin like a segment")
    if crc32(_SEGMENT.pack(magic, version, flags, 0, stated, created)) != check:
        raise Malformed("the checksum of the segment's header is wrong")
    if version != VERSION:
        raise StoreError(f"the log has version {version}, this program reads version {VERSION}; use a newer one")
    if stated != first:
        raise Malformed(f"the segment begins with record {stated}, its name says {first}")
    return SegmentHeader(first, created, flags, check)


def possible_seeds(data: bytes) -> tuple[int, ...]:
    """What the seed may have been if the header is damaged in one place: what it says, and what it should say."""
    magic, version, flags, check, first, created = _SEGMENT.unpack_from(data.ljust(SEGMENT_HEADER, b"\0"))
    return check, crc32(_SEGMENT.pack(magic, version, flags, 0, first, created))


# ── frames ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class Frame(NamedTuple):
    """A batch of records, which is there as a whole or not at all."""

    first: int  # its first record
    records: int  # how many
    body: bytes
    position: int  # in the file
    synced: int  # records below this were safely on the disk when it was written

    @property
    def end(self) -> int:
        """The record after its last."""
        return self.first + self.records

    @property
    def size(self) -> int:
        """Bytes in the file."""
        return FRAME_HEADER + len(self.body)


def frame_header(first: int, count: int, body: bytes, synced: int, seed: int) -> bytes:
    """What stands before ``body`` in the file."""
    tail = _FRAME_TAIL.pack(first, synced, count, len(body), crc32(body, seed))
    return b"%b%b%b" % (_FRAME_MAGIC, crc32(tail, seed).to_bytes(4, "big"), tail)


class FrameHeader(NamedTuple):
    """What stands before the body of a frame."""

    first: int
    synced: int
    records: int  # how many
    length: int
    check: int  # of the body


def read_frame_header(data: bytes | memoryview, seed: int, at: int = 0) -> FrameHeader:
    """The header at byte ``at`` of ``data``, where there are enough bytes, or :class:`Malformed`."""
    magic, check, first, synced, count, length, body_check = _FRAME.unpack_from(data, at)
    if magic != _FRAME_MAGIC:
        raise Malformed("there is no frame")
    if crc32(data[at + 8 : at + FRAME_HEADER], seed) != check:
        raise Malformed("the checksum of a frame's header is wrong")
    if not count or length > MOST_BODY or first + count > MOST_OFFSET:
        raise Malformed("a frame's header makes no sense")
    return FrameHeader(first, synced, count, length, body_check)


def pack(records: Sequence[bytes]) -> bytes:
    """Records as the body of a frame, in one step however many they are.

    >>> unpack(pack([b"one", b"two"]))
    [b'one', b'two']
    """
    body: bytes = msgpack.packb(records)
    return body


def unpack(body: bytes) -> list[bytes]:
    """The records in the body of a frame."""
    records: list[bytes] = msgpack.unpackb(body, max_bin_len=MOST_BODY, max_array_len=MOST_BODY)
    return records


# ── state ────────────────────────────────────────────────────────────────────────────────────────────────────────────


class State(NamedTuple):
    """What cannot be seen from the segments. It is written without waiting for the disk, so it may be old."""

    sequence: int = 0  # of this writing of the state
    first: int = 0  # records below this were truncated
    synced: int = 0  # records below this were safely on the disk
    end: int = 0  # records below this may be read


def state_slot(state: State) -> bytes:
    """The state as it is written, at byte ``state.sequence % 2 * SLOT``."""
    body = _STATE.pack(_STATE_MAGIC, 0, *state)
    return _STATE.pack(_STATE_MAGIC, crc32(body), *state)


def read_state(data: bytes) -> State | None:
    """The newer of the two copies that can be read, or None.

    >>> one, two = State(6, 10, 20, 20), State(7, 10, 30, 30)
    >>> data = state_slot(one).ljust(SLOT, bytes(1)) + state_slot(two)
    >>> read_state(data).synced, read_state(data[:-1]).synced, read_state(b"")
    (30, 20, None)
    """
    found = [state for at in (0, SLOT) if (state := _read_slot(data[at : at + _STATE.size])) is not None]
    return max(found, default=None)


def _read_slot(data: bytes) -> State | None:
    if len(data) < _STATE.size:
        return None
    magic, check, *numbers = _STATE.unpack(data)
    state = State(*numbers)
    return state if magic == _STATE_MAGIC and state_slot(state)[8:12] == check.to_bytes(4, "big") else None
