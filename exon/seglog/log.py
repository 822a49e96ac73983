"""The writer of a log; :mod:`exon.seglog` says how it works and why."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from threading import Condition, Lock, Thread
from time import time_ns
from typing import Literal, get_args

from exon.disk import Disk, File, RealDisk
from exon.errors import Closed, StoreError, StoreFailed, StoreFull, StoreLimit
from exon.log import log as event_log
from exon.seglog.explain import Explained, take_lock
from exon.seglog.format import FRAME_HEADER, MOST_BODY, Frame, State, pack
from exon.seglog.reader import FrameReader, records_of
from exon.seglog.recovery import Found, Recovery, Segment, create_segment, recover
from exon.seglog.state_file import StateFile
from exon.seglog.tail import Tail

Durability = Literal["fsync", "os", "none"]

SEGMENT_BYTES = 64 * 1024 * 1024
LEAST_SEGMENT = 4096
_BUFFER = 256 * 1024  # bytes that durability "none" keeps to itself


def _in_thread(work: Callable[[], object]) -> None:
    Thread(target=work, name="exon-log-sync", daemon=True).start()


class Log:
    """An append-only log of records in a folder. Any number of threads may use it, and one process may write it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with Log(folder) as log:
    ...         log.append([b"one", b"two"])  # the number of the first
    ...         log.append([b"three"])
    ...         log.sync()  # now they are on the disk
    ...         log.truncate(1)
    ...     with Log(folder) as log:
    ...         log.first, log.next, list(log.records(1))
    0
    2
    3
    (1, 3, [(1, b'two'), (2, b'three')])
    """

    recovery: Recovery  #: what opening had to give up
    _state_file: StateFile
    _segments: list[Segment]  # in order
    _tail: Tail  # with the last of them
    _older_bytes: int  # of all but the last
    _first: int
    _next: int
    _flushed: int  # records below this were handed to the system
    _synced: int
    _end: int
    _behind: bool  # the state on disk is older than ours
    _new_files: int  # whose names are not yet on the disk

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        durability: Durability = "fsync",
        segment_bytes: int = SEGMENT_BYTES,
        max_bytes: int | None = None,
        disk: Disk | None = None,
        now: Callable[[], int] = time_ns,
        background: Callable[[Callable[[], object]], None] = _in_thread,
    ) -> None:
        """Open or create the log in folder ``path``; recover it if its writer did not close it.

        Raises:
            StoreError: The folder cannot be written, or another process writes this log.
            StoreDamaged: Records that were on the disk cannot be read.
        """
        if durability not in get_args(Durability):
            raise ValueError(f"durability is 'fsync', 'os' or 'none', not {durability!r}")
        if segment_bytes < LEAST_SEGMENT:
            raise ValueError(f"segment_bytes is at least {LEAST_SEGMENT}, not {segment_bytes!r}")
        if max_bytes is not None and max_bytes < 4 * segment_bytes:
            raise ValueError(
                f"max_bytes is at least four times segment_bytes ({segment_bytes}), not {max_bytes!r}: room is made by "
                "whole segments"
            )
        self._folder = os.fspath(path)
        self._durability = durability
        self._segment_bytes = segment_bytes
        self._max_bytes = max_bytes
        self._disk = RealDisk() if disk is None else disk
        self._now = now
        self._background = background
        self._sync_lock = Lock()  # taken before the other one
        self._lock = Lock()
        self._published = Condition(self._lock)
        self._failed: str | None = None
        self._reader = FrameReader(self._disk, self._folder, self._state)
        self._lock_file: File | None = take_lock(self._disk, self._folder)
        try:
            self._adopt(self._recovered())
        except BaseException:
            self._lock_file.close()
            raise

    # ── what there is ────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def first(self) -> int:
        """The first record that is there."""
        return self._first

    @property
    def next(self) -> int:
        """The number that the next record gets."""
        return self._next

    @property
    def synced(self) -> int:
        """Records below this are on the disk."""
        return self._synced

    @property
    def end(self) -> int:
        """Records below this can be read: with ``"fsync"`` those on the disk, else those the system has."""
        return self._end

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return self._older_bytes + self._tail.size

    def frames(self, start: int, end: int | None = None) -> Iterator[Frame]:
        """The frames with the records from ``start`` up to ``end``, or up to the last one when reading begins.

        The first frame may begin before ``start`` and the last end after ``end``.
        """
        return self._reader.frames(start, end)

    def records(self, start: int, end: int | None = None) -> Iterator[tuple[int, bytes]]:
        """The records from ``start`` up to ``end``, with their numbers, if :meth:`append` was given them."""
        return records_of(self.frames(start, end), start, end)

    def wait(self, offset: int, timeout: float | None = None) -> int:
        """Wait until record ``offset`` can be read, the time is over, or the log is closed; returns :attr:`end`."""
        with self._published:
            self._published.wait_for(lambda: self._end > offset or self._lock_file is None, timeout)
            return self._end

    # ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def append(self, records: Sequence[bytes]) -> int:
        """Append records, all or none of them, and return the number of the first. See :meth:`append_packed`."""
        return self.append_packed(pack(records), len(records))

    def append_packed(self, body: bytes, count: int = 1) -> int:
        """Append ``count`` records that the caller has put together, as one frame; the number of the first.

        With ``"fsync"`` it is safe, and can be read, when :meth:`sync` has returned; with ``"os"`` the system has it.

        Raises:
            StoreFull: The disk is full. Nothing was appended; repeat it when there is room.
            StoreLimit: The log is as large as it may be; truncate it.
            StoreFailed: The log has to be recovered first, see :meth:`recover`.
        """
        length = FRAME_HEADER + len(body)
        if count < 1 or len(body) > MOST_BODY:
            raise ValueError(
                f"a frame has at least one record and at most {MOST_BODY} bytes, not {count} in {len(body)}"
            )
        with self._lock:
            self._check()
            if self._max_bytes is not None and self.size + length > self._max_bytes:
                raise StoreLimit(
                    f"the log in {self._folder} has {self.size} bytes, at most {self._max_bytes} are allowed; truncate "
                    "what is not needed any more, or raise max_bytes",
                )
            if self._tail.size + length > self._segment_bytes and self._next > self._tail.segment.first:
                self._roll()
            first, buffered = self._next, self._tail.buffered
            try:
                self._tail.add(first, count, body, self._synced)
                self._next = first + count
                if self._durability == "none" and self._tail.buffered < _BUFFER:
                    return first
                self._flush()
            except BaseException:
                if self._tail.take_back(buffered):
                    self._next = first
                raise
            if self._durability != "fsync":
                self._publish()
            return first

    def sync(self, upto: int | None = None) -> int:
        """Return when all records below ``upto``, or all there are, are on the disk; returns :attr:`synced`.

        One call does it for all threads that wait meanwhile, and the log can be appended to during it.

        Raises:
            StoreFailed: The disk could not. The log has to be recovered before anything else, see :meth:`recover`.
        """
        target = self._next if upto is None else min(upto, self._next)
        if self._synced >= target and not self._behind:
            return self._synced
        with self._sync_lock:
            if self._synced < target:
                self._sync()
            elif self._behind:
                with self._lock:
                    self._publish()
        return self._synced

    def truncate(self, before: int) -> None:
        """Give up the records below ``before``. Room is made by whole segments, so it may come later.

        After a crash the log may begin earlier than it was told to, never later.

        Raises:
            ValueError: Not all of them can be read yet.
        """
        with self._sync_lock, self._lock:
            self._check()
            if before <= self._first:
                return
            if before > self._end:
                raise ValueError(
                    f"record {before} cannot be truncated before it can be read, which ends at {self._end}"
                )
            with suppress(StoreFull):  # with the disk full there is all the more reason to go on
                if before == self._next and self._tail.size >= self._segment_bytes // 8:
                    self._roll()  # else a log that is always read to its end would never make room
            self._first = before
            self._publish()
            doomed = [segment for segment, following in pairwise(self._segments) if following.first <= before]
            if doomed:
                with self._explained("truncate"):
                    # Both copies, before anything goes: whichever is read later must not take it for damage.
                    self._state_file.save_both(first=before, synced=self._synced, end=self._end)
                    for segment in doomed:
                        with suppress(FileNotFoundError):  # removed before, when Ctrl-C came between
                            self._disk.remove(segment.path)
                        self._segments.remove(segment)
                        self._older_bytes -= segment.size
                        segment.file = None
                self._reader.forget()

    def recover(self) -> Recovery:
        """After :class:`StoreFailed`: read what there is, write it to the disk once more, and go on from there.

        What had not been synced may be missing afterwards; :attr:`next` tells.
        """
        with self._sync_lock, self._lock:
            if self._lock_file is None:
                raise Closed(f"the log in {self._folder} is closed")
            self._state_file.close()
            self._reader.forget()
            self._adopt(self._recovered())
            self._failed = None
            return self.recovery

    def close(self) -> None:
        """Have everything on the disk and let others write; closing twice is harmless. Raises as :meth:`sync` does."""
        try:
            with self._sync_lock:
                if self._lock_file is not None and self._failed is None:
                    if self._synced < self._next:
                        self._sync()
                    with self._explained("close"):
                        self._state_file.save_both(first=self._first, synced=self._synced, end=self._end)
        finally:
            with self._lock:
                if self._lock_file is not None:
                    self._lock_file.close()
                    self._lock_file = None
                    self._state_file.close()
                    self._reader.forget()
                    self._segments = []
                    self._published.notify_all()

    def __enter__(self) -> Log:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    # ── inside ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _recovered(self) -> Found:
        with self._explained("open"):
            return recover(self._disk, self._folder, self._now)

    def _adopt(self, found: Found) -> None:
        self._state_file = found.state_file
        self._segments = found.segments
        self._tail = Tail(found.segments[-1])
        self._older_bytes = sum(segment.size for segment in found.segments[:-1])
        for segment in found.segments[:-1]:
            segment.file = None
        self._first = found.state_file.state.first
        self._next = self._flushed = self._synced = self._end = found.end
        self._behind = False
        self._new_files = 0
        self.recovery = found.recovery
        if found.recovery.cut:
            report = event_log.warning if found.recovery.lost else event_log.info
            report(
                "a log was cut where it had not been synced",
                folder=self._folder,
                next=self._next,
                bytes=found.recovery.cut,
                lost=found.recovery.lost or "unknown",
                why=found.recovery.why,
            )

    def _state(self) -> State:
        return State(0, self._first, self._synced, self._end)

    def _check(self) -> None:
        if self._lock_file is None:
            raise Closed(f"the log in {self._folder} is closed")
        if self._failed is not None:
            raise StoreFailed(self._failed)

    def _flush(self) -> None:
        with self._explained("append to"):
            self._tail.flush()
        self._flushed = self._next

    def _roll(self) -> None:
        self._flush()
        with self._explained("append to"):
            segment = create_segment(self._disk, self._folder, self._next, self._now())
        tail, older_bytes = Tail(segment), self._older_bytes + self._tail.size
        self._segments = [*self._segments, segment]  # from here on without a call, see exon.seglog.tail
        self._older_bytes = older_bytes
        self._tail = tail
        self._new_files += 1
        if self._durability == "os":  # nobody waits for it, but what is old is to be safe, and not in question
            self._background(self._sync_quietly)

    def _publish(self) -> None:
        """Tell readers what there is. If that cannot be written now, the next time will do: nothing depends on it."""
        self._end = self._synced if self._durability == "fsync" else self._flushed
        try:
            self._state_file.save(first=self._first, synced=self._synced, end=self._end)
            self._behind = False
        except OSError as error:
            if not self._behind:
                event_log.warning("the state of a log cannot be written", folder=self._folder, error=str(error))
            self._behind = True
        self._published.notify_all()

    def _sync(self) -> None:
        with self._lock:
            self._check()
            self._flush()
            end, new_files = self._next, self._new_files
            waiting = [segment for segment in self._segments if segment.file is not None]
            files = [segment.file for segment in waiting if segment.file is not None]
        try:
            for file in files:
                file.sync()
            if new_files:
                self._disk.sync_folder(self._folder)
        except OSError as error:
            self._failed = (
                f"the log in {self._folder} could not be synced: {error.strerror}. Records from {self._synced} on may "
                "not be on the disk, whatever a second attempt would say. Recover the log, or close it and open it "
                "again: what can be read is then written anew"
            )
            raise StoreFailed(error.errno, self._failed) from None
        with self._lock:
            for segment in waiting:
                if segment is not self._tail.segment:
                    segment.file = None
            self._new_files -= new_files
            self._synced = end
            self._publish()

    def _sync_quietly(self) -> None:
        with suppress(Closed, StoreError):  # whoever appends next is told
            self.sync()

    def _explained(self, verb: str) -> Explained:
        return Explained(verb, self._folder)
