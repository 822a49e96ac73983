"""The end of a log that is being written: the last segment, and what has not been handed to the system yet.

Ctrl-C may end a call anywhere between two calls of functions. So what belongs together here is assigned without any
call between, and each frame is either in the buffer, to be taken back, or in the file.
"""

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
        size = self.buffered + len(header) + len(body)
        self._parts += (header, body)
        self.buffered = size

    def take_back(self, before: int) -> bool:
        """Forget what was added since ``before`` bytes were buffered, unless it was flushed; whether it could be."""
        if self.buffered <= before:
            return False
        self._parts = self._parts[:-2]
        self.buffered = before
        return True

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
