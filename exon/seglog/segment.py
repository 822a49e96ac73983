"""One segment: finding frames in a file, and noticing the first thing that is not one."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from threading import Lock

from exon.checksum import crc32
from exon.disk import File
from exon.seglog.format import (
    AFTER_HOLE,
    FRAME_HEADER,
    FRAME_MAGIC,
    SEGMENT_HEADER,
    Frame,
    FrameHeader,
    Malformed,
    read_frame_header,
    read_segment_header,
)

_BLOCK = 256 * 1024  # bytes read at a time
_STEP = 64 * 1024  # bytes between two entries of an index


class Broken(Exception):
    """At ``position`` of the file, where record ``offset`` should be, is something else."""

    def __init__(self, position: int, offset: int, what: str) -> None:
        """``what`` is wrong."""
        super().__init__(what)
        self.position = position
        self.offset = offset
        self.what = what


def scan(file: File, seed: int, position: int, offset: int) -> Iterator[Frame]:
    """All frames from ``position`` to the end of the file, the first of which begins with record ``offset``.

    Raises:
        Broken: There is something that is not the next frame.
    """
    block, start = b"", position  # what was read last, and where
    while True:
        at = position - start
        if len(block) - at < FRAME_HEADER:
            block, start, at = file.read(_BLOCK, position), position, 0
            if not block:
                return
        header = _header(block, seed, at, position, offset)
        stop = at + FRAME_HEADER + header.length
        if stop > len(block):
            block, start, at = file.read(max(_BLOCK, FRAME_HEADER + header.length), position), position, 0
            stop = FRAME_HEADER + header.length
            if stop > len(block):
                raise Broken(position, offset, "the file ends inside a frame")
        body = block[at + FRAME_HEADER : stop]
        if crc32(body, seed) != header.check:
            raise Broken(position, offset, "the checksum of a frame is wrong")
        yield Frame(offset, header.records, body, position, header.synced)
        position += FRAME_HEADER + header.length
        offset += header.records


def _header(block: bytes, seed: int, at: int, position: int, offset: int) -> FrameHeader:
    if len(block) - at < FRAME_HEADER:
        raise Broken(position, offset, "the file ends inside a frame's header")
    try:
        header = read_frame_header(block, seed, at)
    except Malformed as error:
        raise Broken(position, offset, str(error)) from None
    if header.first != offset:
        raise Broken(position, offset, f"there is record {header.first} instead")
    return header


def salvage(file: File, seed: int, position: int) -> Iterator[Frame]:
    """Every whole frame after ``position``, wherever it begins; for files that are damaged there."""
    data = file.read(max(0, file.size() - position), position)
    at = data.find(FRAME_MAGIC)
    while at >= 0:
        frame = None
        if len(data) - at >= FRAME_HEADER:
            try:
                header = read_frame_header(data, seed, at)
            except Malformed:
                pass
            else:
                body = data[at + FRAME_HEADER : at + FRAME_HEADER + header.length]
                if len(body) == header.length and crc32(body, seed) == header.check:
                    frame = Frame(header.first, header.records, body, position + at, header.synced)
        if frame is not None:
            yield frame
        at = data.find(FRAME_MAGIC, at + (frame.size if frame is not None else 1))


class SegmentReader:
    """An open segment, with an index of where its records are that grows as it is read. For any number of threads."""

    def __init__(self, file: File, first: int) -> None:
        """Raises :class:`Broken` if the file is not the segment of record ``first``."""
        try:
            header = read_segment_header(file.read(SEGMENT_HEADER, 0), first)
        except Malformed as error:
            raise Broken(0, first, str(error)) from None
        self.first = first
        self.after_hole = bool(header.flags & AFTER_HOLE)
        self._file = file
        self._seed = header.seed
        self._lock = Lock()
        self._offsets = [first]
        self._positions = [SEGMENT_HEADER]

    def frames(self, start: int) -> Iterator[Frame]:
        """The frames from the one with record ``start`` on, to the end of the file.

        Raises:
            Broken: There is something that is not the next frame.
        """
        place = self._seek(start)
        if place is None:
            return
        for frame in scan(self._file, self._seed, *place):
            self._note(frame.first, frame.position)
            yield frame

    def _seek(self, target: int) -> tuple[int, int] | None:
        with self._lock:
            index = bisect_right(self._offsets, target) - 1
            position, offset = self._positions[index], self._offsets[index]
        block, start = b"", position
        while True:
            at = position - start
            if len(block) - at < FRAME_HEADER:
                block, start, at = self._file.read(_STEP, position), position, 0
                if not block:
                    return None
            header = _header(block, self._seed, at, position, offset)
            self._note(offset, position)
            if target < offset + header.records:
                return position, offset
            position += FRAME_HEADER + header.length
            offset += header.records

    def _note(self, offset: int, position: int) -> None:
        if position - self._positions[-1] < _STEP:
            return
        with self._lock:
            if position > self._positions[-1]:  # another thread may have been faster
                self._offsets.append(offset)
                self._positions.append(position)
