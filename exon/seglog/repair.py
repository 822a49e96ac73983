"""Giving up what is damaged, and nothing else: every frame that is whole stays, under its numbers.

Each damaged segment is first copied to the folder ``quarantine`` as it is. What is whole of it is then written anew, as
segments of their own where something is missing between; such a segment is marked, so that the hole in the numbers is
not taken for damage. Numbers of lost records are not given again. A crash during a repair leaves a log that can be
repaired: originals are replaced last.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from time import time_ns

from attrs import frozen

from exon.disk import Disk, RealDisk
from exon.errors import StoreError
from exon.seglog.check import Examination, Examined, Report, check, examine
from exon.seglog.explain import Explained
from exon.seglog.format import (
    AFTER_HOLE,
    LOCK,
    SEGMENT_HEADER,
    Frame,
    State,
    frame_header,
    segment_header,
    segment_name,
)
from exon.seglog.recovery import recover
from exon.seglog.segment import scan
from exon.seglog.state_file import StateFile

QUARANTINE = "quarantine"
_BLOCK = 1024 * 1024


@frozen
class Repair:
    """What a repair found and did."""

    report: Report  # as it was before
    lost: tuple[range, ...]  # the numbers of records that are gone
    quarantined: tuple[str, ...]  # copies of the files that were changed
    rebuilt: bool  # the state could not be read: records that were truncated before may be there again

    def __str__(self) -> str:
        """For people."""
        if self.report.ok:
            return f"{self.report.folder}: there was nothing to repair"
        lines = [f"lost: records {gone.start} to {gone.stop}, {len(gone)} of them" for gone in self.lost]
        lines += [f"as it was, in {path}" for path in self.quarantined]
        if self.rebuilt:
            lines.append("the state was made anew; records that had been truncated may be there again")
        return "\n".join([str(self.report), *(lines or ["no record was lost"]), "repaired"])


def repair(path: str | os.PathLike[str], *, disk: Disk | None = None, now: Callable[[], int] = time_ns) -> Repair:
    """Make a damaged log in folder ``path`` usable again, without the records that cannot be read.

    Raises:
        StoreError: There is no log, or a process writes it.

    >>> import tempfile
    >>> from exon.seglog import Log
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with Log(folder) as log:
    ...         log.append([b"one", b"two"]), log.append([b"three"])
    ...     file = f"{folder}/{segment_name(0)}"
    ...     with open(file, "r+b") as segment:
    ...         _ = segment.seek(70), segment.write(b"?")
    ...     repair(folder).lost
    ...     with Log(folder) as log:
    ...         list(log.records(0))
    (0, 2)
    (range(0, 2),)
    [(2, b'three')]
    """
    folder = os.fspath(path)
    disk = RealDisk() if disk is None else disk
    with Explained("repair", folder):
        report = check(folder, disk=disk)
        lock = disk.lock(f"{folder}/{LOCK}")
        if lock is None:
            raise StoreError(f"the log in {folder} is being written; close it before it is repaired")
        try:
            if report.ok:
                return Repair(report, (), (), rebuilt=False)
            return _Repairing(disk, folder, examine(disk, folder), now).run(report)
        finally:
            lock.close()


class _Repairing:
    """One repair."""

    def __init__(self, disk: Disk, folder: str, found: Examination, now: Callable[[], int]) -> None:
        self._disk = disk
        self._folder = folder
        self._found = found
        self._now = now
        bases = [segment.first for segment in found.segments]
        self._first = found.state.first if found.state is not None else min(bases, default=0)
        self._expected = min([self._first, *bases])  # the record that should come next
        self._lost: list[range] = []
        self._quarantined: list[str] = []
        self._fresh: list[int] = []  # first records of new segments, in order
        self._replaced: list[int] = []  # and of old ones

    def run(self, report: Report) -> Repair:
        """Do it."""
        for segment in self._found.segments:
            follows = segment.first == self._expected
            if not segment.damage and (follows or (segment.first > self._expected and segment.flags & AFTER_HOLE)):
                self._expected = segment.end
            else:
                self._rewrite(segment)
        safe = max(self._found.synced, self._first)
        if self._expected < safe:
            self._write(safe, [])
        self._replace()
        state = self._found.state
        synced = 0 if state is None else min(state.synced, self._expected)
        StateFile.create(self._disk, self._folder, State(0, self._first, synced, synced))
        recover(self._disk, self._folder, self._now).state_file.close()  # which makes sure of the rest
        return Repair(report, tuple(self._lost), tuple(self._quarantined), rebuilt=state is None)

    def _rewrite(self, segment: Examined) -> None:
        """Write what can be read of a segment, and was not in one before, to new ones."""
        self._quarantine(segment)
        self._replaced.append(segment.first)
        for piece in segment.pieces:
            frames = []
            for frame in scan(segment.file, segment.seed, piece.position, piece.first):
                if frame.first >= self._expected:
                    frames.append(frame)
                if frame.end >= piece.end:
                    break
            if frames:
                self._write(frames[0].first, frames)

    def _write(self, first: int, frames: list[Frame]) -> None:
        flags = 0
        if first > self._expected:
            flags = AFTER_HOLE
            if first > self._first:
                self._lost.append(range(max(self._expected, self._first), first))
        header, seed = segment_header(first, self._now(), flags)
        file = self._disk.create(f"{self._folder}/{segment_name(first)}.new")
        file.write([header], 0)
        position = SEGMENT_HEADER
        for frame in frames:
            file.write([frame_header(frame.first, frame.records, frame.body, frame.synced, seed), frame.body], position)
            position += frame.size
        file.sync()
        file.close()
        self._fresh.append(first)
        self._expected = frames[-1].end if frames else first

    def _quarantine(self, segment: Examined) -> None:
        folder = f"{self._folder}/{QUARANTINE}"
        self._disk.make_folder(folder)
        names = set(self._disk.names(folder))
        name = next(
            f"{segment_name(segment.first)}.{number}"
            for number in range(len(names) + 1)
            if f"{segment_name(segment.first)}.{number}" not in names
        )
        copy = self._disk.create(f"{folder}/{name}")
        for position in range(0, segment.file.size(), _BLOCK):
            copy.write([segment.file.read(_BLOCK, position)], position)
        copy.sync()
        copy.close()
        self._disk.sync_folder(folder)
        self._quarantined.append(f"{folder}/{name}")

    def _replace(self) -> None:
        # The last first, so that after a crash every record is in an old segment or a new one, or in both.
        for first in reversed(self._fresh):
            path = f"{self._folder}/{segment_name(first)}"
            self._disk.replace(f"{path}.new", path)
            self._disk.sync_folder(self._folder)
        for first in self._replaced:
            if first not in self._fresh:
                self._disk.remove(f"{self._folder}/{segment_name(first)}")
        self._disk.sync_folder(self._folder)
