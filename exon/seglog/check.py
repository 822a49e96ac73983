"""Looking through a whole log: what can be read, what cannot, and where. Nothing is changed, and nothing is locked."""

from __future__ import annotations

import os

from attrs import define, field, frozen

from exon.disk import Disk, File, RealDisk
from exon.errors import StoreDamaged, StoreError
from exon.seglog.format import (
    AFTER_HOLE,
    SEGMENT_HEADER,
    STATE,
    Malformed,
    State,
    possible_seeds,
    read_segment_header,
    segment_name,
)
from exon.seglog.recovery import segments_of
from exon.seglog.segment import Broken, salvage, scan
from exon.seglog.state_file import StateFile


@frozen
class Damage:
    """Something that cannot be read: at byte ``position`` of ``file``, where record ``offset`` should be."""

    file: str
    position: int
    offset: int
    what: str

    def __str__(self) -> str:
        """For people."""
        return f"{self.file}, byte {self.position}, record {self.offset}: {self.what}"


@frozen
class Report:
    """What a log contains."""

    folder: str
    first: int
    next: int  # the number that the next record gets
    records: int  # that can be read
    segments: int
    bytes: int
    damage: tuple[Damage, ...]
    tail: Damage | None  # where opening the log will cut what a crash left half written; that is no damage

    @property
    def ok(self) -> bool:
        """Whether everything is there that should be."""
        return not self.damage

    def __str__(self) -> str:
        """For people."""
        lines = [
            f"{self.folder}: records {self.first} to {self.next}, {self.records} of them readable, in {self.segments} "
            f"segments and {self.bytes} bytes",
            *(f"damaged: {damage}" for damage in self.damage),
        ]
        if self.tail is not None:
            lines.append(f"not finished when its writer stopped, will be cut when it is opened: {self.tail}")
        return "\n".join([*lines, "damaged" if self.damage else "all is well"])


@define
class Piece:
    """A part of a segment without damage."""

    first: int
    end: int
    position: int
    stop: int


@define
class Examined:
    """A segment with all that can be read of it."""

    first: int
    path: str
    file: File
    seed: int = 0
    flags: int = 0
    pieces: list[Piece] = field(factory=list)
    damage: list[Damage] = field(factory=list)
    claimed: int = 0  # what its frames say was synced

    @property
    def end(self) -> int:
        """The record after the last that can be read."""
        return self.pieces[-1].end if self.pieces else self.first


@define
class Examination:
    """A log with all that can be read of it."""

    state: State | None
    segments: list[Examined]
    damage: list[Damage]
    synced: int  # records below this were safe

    @property
    def end(self) -> int:
        """The record after the last that can be read, or was truncated."""
        first = 0 if self.state is None else self.state.first
        return max([first, *(segment.end for segment in self.segments)])


def check(path: str | os.PathLike[str], *, disk: Disk | None = None) -> Report:
    """Read everything in the log in folder ``path`` and say what is damaged.

    >>> import tempfile
    >>> from exon.seglog import Log
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with Log(folder) as log:
    ...         log.append([b"one", b"two"])
    ...     report = check(folder)
    ...     report.ok, report.records
    0
    (True, 2)
    """
    folder = os.fspath(path)
    found = examine(RealDisk() if disk is None else disk, folder)
    damage, tail = found.damage, None
    first = found.state.first if found.state is not None else min((s.first for s in found.segments), default=0)
    if damage and found.state is not None and (damage[0].offset >= found.synced or found.synced <= first):
        damage, tail = [], damage[0]
    return Report(
        folder,
        first=first,
        next=max(first, tail.offset if tail else max(found.end, found.synced)),
        records=sum(max(0, piece.end - max(piece.first, first)) for s in found.segments for piece in s.pieces),
        segments=len(found.segments),
        bytes=sum(segment.file.size() for segment in found.segments),
        damage=tuple(damage),
        tail=tail,
    )


def examine(disk: Disk, folder: str) -> Examination:
    """Everything that can be read of a log, and every place where something cannot."""
    try:
        bases = segments_of(disk, folder)
    except (FileNotFoundError, NotADirectoryError):
        raise StoreError(f"there is no log in {folder}") from None
    state, damage = None, []
    try:
        state = StateFile.open(disk, folder, write=False).state
    except FileNotFoundError:
        if not bases:
            raise StoreError(f"there is no log in {folder}") from None
        damage.append(Damage(f"{folder}/{STATE}", 0, bases[0], "the file is missing"))
    except StoreDamaged as error:
        damage.append(Damage(error.file, error.position, min([0, *bases]), error.what))
    if state is not None:  # what was truncated and is still there does not matter
        while len(bases) > 1 and bases[1] <= state.first:
            del bases[0]
    expected = state.first if state is not None and (not bases or bases[0] > state.first) else min(bases, default=0)
    segments = []
    for base in bases:
        segment = _examine_segment(disk, folder, base)
        if base != expected and not (base > expected and segment.flags & AFTER_HOLE):
            missing = "the file is missing; the next one" if base > expected else "the next file overlaps: it"
            path = f"{folder}/{segment_name(expected)}"
            damage.append(Damage(path, 0, expected, f"{missing} begins with record {base}"))
        damage += segment.damage
        segments.append(segment)
        expected = max(expected, segment.end)
    synced = max([0 if state is None else state.synced, *(segment.claimed for segment in segments)])
    if expected < synced and not (segments and segments[-1].damage):
        path = segments[-1].path if segments else f"{folder}/{segment_name(expected)}"
        size = segments[-1].file.size() if segments else 0
        damage.append(Damage(path, size, expected, f"the file ends here, and records up to {synced} were there"))
    return Examination(state, segments, damage, synced)


def _examine_segment(disk: Disk, folder: str, base: int) -> Examined:
    path = f"{folder}/{segment_name(base)}"
    segment = Examined(base, path, disk.open(path, write=False))
    data = segment.file.read(SEGMENT_HEADER, 0)
    position, offset = SEGMENT_HEADER, base
    try:
        header = read_segment_header(data, base)
        segment.seed, segment.flags = header.seed, header.flags
    except Malformed as error:
        segment.damage.append(Damage(path, 0, base, str(error)))
        found = [(seed, frame) for seed in possible_seeds(data) for frame in salvage(segment.file, seed, 0)][:1]
        if not found:
            return segment
        segment.seed, position, offset = found[0][0], found[0][1].position, found[0][1].first
    while True:
        piece = None
        try:
            for frame in scan(segment.file, segment.seed, position, offset):
                if piece is None:
                    piece = Piece(frame.first, frame.end, frame.position, frame.position + frame.size)
                    segment.pieces.append(piece)
                piece.end, piece.stop = frame.end, frame.position + frame.size
                segment.claimed = max(segment.claimed, frame.synced)
            break
        except Broken as broken:
            segment.damage.append(Damage(path, broken.position, broken.offset, broken.what))
            rest = salvage(segment.file, segment.seed, broken.position + 1)
            following = next((frame for frame in rest if frame.first >= broken.offset), None)
            if following is None:
                break
            position, offset = following.position, following.first
    return segment
