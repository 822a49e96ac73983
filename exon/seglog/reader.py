"""Reading a log, in the process that writes it or in any other.

A reader takes no lock and never waits for the writer. It sees what the writer has published: with ``"fsync"`` what is
on the disk, otherwise what was handed to the operating system. So a range of records that was read once reads the same
for ever, or until it is truncated.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Iterator
from threading import Event
from time import monotonic

from exon.disk import Disk, RealDisk
from exon.errors import StoreDamaged, StoreError, StoreTruncated
from exon.seglog.format import Frame, State, segment_name, unpack
from exon.seglog.recovery import segments_of
from exon.seglog.segment import Broken, SegmentReader
from exon.seglog.state_file import StateFile

_FILES = 8  # kept open
_POLL = 0.001, 0.05  # seconds between two looks at a log that another process writes, at first and at most


class FrameReader:
    """Finds frames by the numbers of their records. Any number of threads may use it."""

    def __init__(self, disk: Disk, folder: str, state: Callable[[], State]) -> None:
        """``state`` says what there is."""
        self._disk = disk
        self._folder = folder
        self._state = state
        self._bases: list[int] = []
        self._segments: dict[int, SegmentReader] = {}

    def frames(self, start: int, end: int | None = None) -> Iterator[Frame]:
        """The frames with the records from ``start`` up to ``end``, or up to the last one when reading begins.

        The first frame may begin before ``start`` and the last end after ``end``.

        Raises:
            StoreTruncated: Record ``start`` is not there any more.
            StoreDamaged: A record cannot be read.
        """
        state = self._state()
        if start < state.first:
            raise StoreTruncated(start, state.first)
        stop = state.end if end is None else min(end, state.end)
        while start < stop:
            before, base = start, self._base(start)
            try:
                for frame in () if base is None else self._segment(base).frames(start):
                    yield frame
                    start = frame.end
                    if start >= stop:
                        return
                if start == before:
                    start = self._beyond(base, start)
            except Broken as broken:
                raise self._explain(before, start, broken) from None
            except FileNotFoundError:  # truncated since we looked, or really missing
                self._bases = segments_of(self._disk, self._folder)
                if self._base(start) == base:
                    raise self._explain(before, start, Broken(0, start, "the file is missing")) from None

    def forget(self) -> None:
        """Keep no file open, and look again what there is."""
        self._segments = {}
        self._bases = []

    def _segment(self, base: int) -> SegmentReader:
        segment = self._segments.get(base)
        if segment is None:
            file = self._disk.open(f"{self._folder}/{segment_name(base)}", write=False)
            segment = SegmentReader(file, base)
            if len(self._segments) >= _FILES:
                self._segments = {}
            self._segments[base] = segment
        return segment

    def _base(self, start: int) -> int | None:
        bases = self._bases
        index = bisect_right(bases, start) - 1
        return bases[index] if index >= 0 else None

    def _beyond(self, base: int | None, start: int) -> int:
        """Where to go on if the segment ``base`` ends before ``start``, or there is none."""
        self._bases = segments_of(self._disk, self._folder)
        if self._base(start) != base:
            return start  # there is a newer segment
        following = next((base for base in self._bases if base > start), None)
        if following is None or not self._segment(following).after_hole:
            raise Broken(0, start, "the file is missing")
        return following

    def _explain(self, before: int, start: int, broken: Broken) -> StoreError:
        state = self._state()
        if before < state.first:  # while we were reading
            return StoreTruncated(before, state.first)
        base = self._base(start)
        path = f"{self._folder}/{segment_name(start if base is None else base)}"
        if broken.offset >= state.synced:
            return StoreError(
                f"{path}, byte {broken.position}, record {broken.offset}: {broken.what}. It was never synced, so a "
                "crash of the machine may have taken it; open the log for writing once, which recovers what there is",
            )
        return StoreDamaged(path, broken.position, broken.offset, broken.what)


class LogReader:
    """A log that another process writes, or nobody.

    >>> import tempfile
    >>> from exon.seglog import Log
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with Log(folder) as log, LogReader(folder) as reader:
    ...         log.append([b"one", b"two", b"three"])
    ...         list(reader.records(0))  # nothing that is not on the disk
    ...         log.sync()
    ...         list(reader.records(1, 3))
    0
    []
    3
    [(1, b'two'), (2, b'three')]
    """

    def __init__(self, path: str | os.PathLike[str], *, disk: Disk | None = None) -> None:
        """Raises :class:`StoreError` if there is no log."""
        self._folder = os.fspath(path)
        disk = RealDisk() if disk is None else disk
        try:
            self._state = StateFile.open(disk, self._folder, write=False)
        except (FileNotFoundError, NotADirectoryError):
            raise StoreError(f"there is no log in {self._folder}; it is made by opening it for writing") from None
        self._frames = FrameReader(disk, self._folder, self._load)

    @property
    def first(self) -> int:
        """The first record that is there."""
        return self._load().first

    @property
    def end(self) -> int:
        """The record after the last that can be read."""
        return self._load().end

    def frames(self, start: int, end: int | None = None) -> Iterator[Frame]:
        """The frames with the records from ``start`` up to ``end``; see :meth:`FrameReader.frames`."""
        return self._frames.frames(start, end)

    def records(self, start: int, end: int | None = None) -> Iterator[tuple[int, bytes]]:
        """The records from ``start`` up to ``end``, or up to the last one when reading begins."""
        return records_of(self.frames(start, end), start, end)

    def wait(self, offset: int, timeout: float | None = None) -> int:
        """Wait until record ``offset`` can be read, or the time is over; the record after the last that can be."""
        deadline = None if timeout is None else monotonic() + timeout
        pause, never = _POLL[0], Event()
        while (end := self.end) <= offset:
            left = pause if deadline is None else min(pause, deadline - monotonic())
            if left <= 0:
                break
            never.wait(left)  # there is no portable way to be told of another process's writing
            pause = min(2 * pause, _POLL[1])
        return end

    def close(self) -> None:
        """Let go of the files; closing twice is harmless."""
        self._frames.forget()
        self._state.close()

    def __enter__(self) -> LogReader:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def _load(self) -> State:
        return self._state.load(self._folder)


def records_of(frames: Iterator[Frame], start: int, end: int | None) -> Iterator[tuple[int, bytes]]:
    """The single records in frames, of which the first may begin too early and the last end too late."""
    for frame in frames:
        for offset, record in enumerate(unpack(frame.body), frame.first):
            if offset >= start and (end is None or offset < end):
                yield offset, record
