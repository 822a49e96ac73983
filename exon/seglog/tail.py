"""The end of a log that is being written: the last segment, and what has not been handed to the system yet."""

from __future__ import annotations

from exon.seglog.format import frame_header
from exon.seglog.recovery import Segment


class Tail:
    """Frames for one segment."""

    def __init__(self, segment: Segment) -> None:
        """Frames are appended to ``segment``."""
        self.segment = segment
        self.buffered = 0  # bytes
        self._parts: list[bytes] = []
        self._ragged = False  # there may be bytes after the last good frame

    @property
    def size(self) -> int:
        """Bytes of the segment, with those that it does not have yet."""
        return self.segment.size + self.buffered

    def add(self, first: int, count: int, body: bytes, synced: int) -> None:
        """Buffer a frame."""
        header = frame_header(first, count, body, synced, self.segment.seed)
        self._parts += (header, body)
        self.buffered += len(header) + len(body)

    def take_back(self) -> None:
        """Forget the frame that was added last, which was not flushed."""
        self.buffered -= sum(map(len, self._parts[-2:]))
        del self._parts[-2:]

    def flush(self) -> None:
        """Hand what is buffered to the system: all of it or, as far as anyone can tell, nothing."""
        file = self.segment.file
        assert file is not None
        if self._ragged:
            file.cut(self.segment.size)
            self._ragged = False
        if self._parts:
            self._ragged = True
            file.write(self._parts, self.segment.size)
            self._ragged = False
            self.segment.size += self.buffered
            self.buffered = 0
            self._parts = []
