"""Opening a log: what is there, what a crash left behind, and what is damage.

The segments are read from the last record on that is known to be on the disk. If all is well, they end with a whole
frame. If not, the question is whether what is missing had been synced:

- It had not. Then a crash of the machine explains it: of what was written since the last sync, any part may be lost, in
  any order. The log is cut where the first whole frame is missing; nobody was told that anything behind it is safe.
- It had. Then it is damage, whatever the cause, and :class:`~exon.errors.StoreDamaged` refuses it.

What had been synced is told by the state, which may be old after a crash of the machine because nobody waits for it;
and by every frame, which says what was synced when it was written. So only damage to what the very last sync made safe
can look like a crash, and only if the state is lost too.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from itertools import pairwise

from attrs import define, field, frozen

from exon.disk import Disk, File
from exon.errors import StoreDamaged
from exon.seglog.format import (
    AFTER_HOLE,
    SEGMENT_HEADER,
    STATE,
    Malformed,
    State,
    read_segment_header,
    segment_first,
    segment_header,
    segment_name,
)
from exon.seglog.segment import Broken, salvage, scan
from exon.seglog.state_file import StateFile

_BLOCK = 1024 * 1024


@define
class Segment:
    """A segment that is being written, or was."""

    first: int
    path: str
    file: File | None  # None: it is not needed any more
    seed: int
    size: int  # bytes that are good
    unsure: int | None = None  # from this byte on it is not known to be on the disk


@frozen
class Recovery:
    """What opening a log had to give up because it was never synced.

    ``cut`` bytes were removed; ``lost`` is how many records are known to have been there, 0 if that is not known.
    """

    cut: int = 0
    lost: int = 0
    why: str = ""


@define
class Found:
    """What opening found."""

    state_file: StateFile
    segments: list[Segment] = field(factory=list)
    end: int = 0
    recovery: Recovery = Recovery()


def recover(disk: Disk, folder: str, now: Callable[[], int]) -> Found:
    """Bring the log in ``folder`` into order, and everything in it onto the disk."""
    bases = segments_of(disk, folder)
    state_file = open_state(disk, folder, bases)
    try:
        return _recover(disk, folder, bases, state_file, now)
    except BaseException:
        state_file.close()
        raise


def segments_of(disk: Disk, folder: str) -> list[int]:
    """The first records of all segments, in order."""
    return sorted(first for name in disk.names(folder) if (first := segment_first(name)) is not None)


def open_state(disk: Disk, folder: str, bases: list[int]) -> StateFile:
    """The state; a new one if the log is new."""
    try:
        return StateFile.open(disk, folder)
    except FileNotFoundError:
        if bases:  # the state is on the disk before the first segment is made
            raise StoreDamaged(f"{folder}/{STATE}", 0, bases[0], "the file is missing") from None
        return StateFile.create(disk, folder, State())


def _recover(disk: Disk, folder: str, bases: list[int], state_file: StateFile, now: Callable[[], int]) -> Found:
    state = state_file.state
    found = Found(state_file)
    gone = [base for base, following in pairwise(bases) if following <= state.first]
    for base in gone:  # truncated, but a crash brought their names back
        disk.remove(f"{folder}/{segment_name(base)}")
    bases = bases[len(gone) :]
    trouble = _walk(disk, folder, bases, found)
    changed = bool(gone)
    if trouble is not None:
        path, broken = trouble
        synced = max(state.synced, _claimed(disk, folder, bases, found))
        if broken.offset < synced > state.first:  # else all that was synced has been truncated
            raise StoreDamaged(path, broken.position, broken.offset, broken.what)
        changed = True
        _cut(disk, folder, bases, found, f"{path}, byte {broken.position}: {broken.what}")
    if found.end < state.first:  # truncated was more than was synced; those numbers are not given again
        for segment in found.segments:
            disk.remove(segment.path)
        found.segments, found.end = [], state.first
    if not found.segments:
        found.segments.append(create_segment(disk, folder, found.end, now()))
        changed = True
    changed |= _make_sure(found.segments)
    if changed:
        disk.sync_folder(folder)
    if changed or state != (state.sequence, state.first, found.end, found.end):
        state_file.save_both(first=state.first, synced=found.end, end=found.end)
    return found


def create_segment(disk: Disk, folder: str, first: int, created: int, flags: int = 0) -> Segment:
    """A new segment, not yet on the disk."""
    path = f"{folder}/{segment_name(first)}"
    header, seed = segment_header(first, created, flags)
    file = disk.create(path)
    try:
        file.write([header], 0)
    except BaseException:
        file.close()
        raise
    return Segment(first, path, file, seed, SEGMENT_HEADER, 0)


def _walk(disk: Disk, folder: str, bases: list[int], found: Found) -> tuple[str, Broken] | None:
    """Fill in the segments up to the first thing that is not right, and return that."""
    state = found.state_file.state
    found.end = min(bases[0], state.first) if bases else state.first
    begin = bisect_right(bases, state.synced - 1) - 1  # segments before this are safe, and are checked when read
    for index, base in enumerate(bases):
        path = f"{folder}/{segment_name(base)}"
        file = disk.open(path)
        try:
            header = read_segment_header(file.read(SEGMENT_HEADER, 0), base)
        except Malformed as error:
            return path, Broken(0, min(base, found.end), str(error))
        if base != found.end and not (base > found.end and header.flags & AFTER_HOLE):
            missing = f"{folder}/{segment_name(found.end)}"
            return missing, Broken(0, found.end, f"the file is missing; the next one begins with record {base}")
        if index < begin:
            found.segments.append(Segment(base, path, None, header.seed, file.size()))
            found.end = bases[index + 1]
            continue
        segment = Segment(base, path, file, header.seed, SEGMENT_HEADER, 0 if base >= state.synced else None)
        found.segments.append(segment)
        found.end = base
        try:
            for frame in scan(file, header.seed, SEGMENT_HEADER, base):
                if segment.unsure is None and frame.end > state.synced:
                    segment.unsure = frame.position
                segment.size, found.end = frame.position + frame.size, frame.end
        except Broken as broken:
            return path, broken
    if found.end < state.synced:
        path = found.segments[-1].path if found.segments else f"{folder}/{segment_name(found.end)}"
        size = found.segments[-1].size if found.segments else 0
        return path, Broken(size, found.end, f"the file ends here, and records up to {state.synced} were there")
    return None


def _claimed(disk: Disk, folder: str, bases: list[int], found: Found) -> int:
    """What the frames after the damage say was synced when they were written."""
    highest = 0
    for base in bases:
        segment = next((segment for segment in found.segments if segment.first == base), None)
        if segment is not None and (segment.file is None or segment is not found.segments[-1]):
            continue
        file = disk.open(f"{folder}/{segment_name(base)}", write=False)
        try:
            seed = read_segment_header(file.read(SEGMENT_HEADER, 0), base).seed
        except Malformed:
            continue
        position = SEGMENT_HEADER if segment is None else segment.size
        highest = max([highest, *(frame.synced for frame in salvage(file, seed, position))])
    return highest


def _cut(disk: Disk, folder: str, bases: list[int], found: Found, why: str) -> None:
    cut = 0
    kept = {segment.first for segment in found.segments}
    for base in bases:
        if base not in kept:
            path = f"{folder}/{segment_name(base)}"
            cut += disk.open(path, write=False).size()
            disk.remove(path)
    if found.segments:
        last = found.segments[-1]
        assert last.file is not None
        cut += last.file.size() - last.size
        last.file.cut(last.size)
        last.unsure = last.size if last.unsure is None else last.unsure
    found.recovery = Recovery(cut, max(0, found.state_file.state.end - found.end), why)


def _make_sure(segments: list[Segment]) -> bool:
    """Write again what is not known to be on the disk, and wait for it. Whether there was anything.

    Writing again is what makes it certain: if a sync had failed before, the system may hold the content in memory, call
    it clean, and never write it.
    """
    unsure = [segment for segment in segments if segment.unsure is not None]
    for segment in unsure:
        assert segment.file is not None
        assert segment.unsure is not None
        for position in range(segment.unsure, segment.size, _BLOCK):
            data = segment.file.read(min(_BLOCK, segment.size - position), position)
            segment.file.write([data], position)
        segment.file.sync()
        segment.unsure = None
    return bool(unsure)
