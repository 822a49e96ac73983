"""The log on a good disk: numbers, ranges, limits, locks, readers, and processes that are killed."""

from __future__ import annotations

import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from itertools import repeat
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exon import Closed, StoreDamaged, StoreError, StoreLimit, StoreTruncated
from exon.disk import RealDisk, RealFile
from exon.seglog import Log, LogReader
from exon.seglog.format import MOST_BODY, segment_header, segment_name
from exon.seglog.tail import Tail
from tests.exon.faulty_disk import FaultyDisk
from tests.exon.log_peer import BATCH, record

ROOT = Path(__file__).parents[2]
PATIENCE = 60


def small(path: Path | str = "/log", **options: Any) -> Log:
    return Log(path, **{"segment_bytes": 4096, **options})


def fill(log: Log, count: int, batch: int = 10) -> list[tuple[int, bytes]]:
    for first in range(log.next, count, batch):
        log.append([record(offset) for offset in range(first, min(first + batch, count))])
    log.sync()
    return [(offset, record(offset)) for offset in range(count)]


def segments(path: Path) -> list[str]:
    return sorted(file.name for file in path.glob("*.seg"))


# ── numbers and ranges ───────────────────────────────────────────────────────────────────────────────────────────────


def test_records_have_numbers_one_after_the_other(tmp_path: Path) -> None:
    with small(tmp_path) as log:
        assert (log.first, log.next) == (0, 0)
        assert [log.append([b"a", b""]), log.append([b"b"]), log.append_packed(b"anything", 7)] == [0, 2, 3]
        assert (log.first, log.next, log.synced, log.end) == (0, 10, 0, 0)
        assert log.sync() == 10
        assert [(frame.first, frame.end) for frame in log.frames(0)] == [(0, 2), (2, 3), (3, 10)]
    with small(tmp_path) as log:
        assert (log.first, log.next, log.synced, log.end) == (0, 10, 10, 10)
        assert log.append([b"c"]) == 10


@given(
    st.lists(st.lists(st.integers(0, 3000), min_size=1, max_size=5), max_size=30),
    st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100)), max_size=5),
)
def test_any_range_is_what_it_would_be_in_a_list(sizes: list[list[int]], ranges: list[tuple[int, int]]) -> None:
    disk = FaultyDisk()
    model: list[bytes] = []
    with small(disk=disk) as log, LogReader("/log", disk=disk) as reader:
        for batch in sizes:
            records = [bytes([len(model) % 256]) * size for size in batch]
            assert log.append(records) == len(model)
            model += records
        log.sync()
        for start, end in ranges:
            expected = list(enumerate(model))[start:end]
            assert list(log.records(start, end)) == expected
            assert list(reader.records(start, end)) == expected


def test_records_are_found_in_long_segments(tmp_path: Path) -> None:
    with Log(tmp_path, durability="os") as log, LogReader(tmp_path) as other:
        expected = fill(log, 5000, batch=3)
        for reader in (log, other):
            for start in (4999, 0, 2500, 2501, 1, 4000):  # with an index, and while it grows
                assert next(reader.records(start)) == expected[start]


def test_a_record_larger_than_a_segment(tmp_path: Path) -> None:
    with small(tmp_path) as log:
        large = bytes(range(256)) * 1000
        log.append([b"small"])
        log.append([large])
        log.append([b"small"])
        log.sync()
        assert [content for _, content in log.records(0)] == [b"small", large, b"small"]
    assert segments(tmp_path) == [segment_name(first) for first in (0, 1, 2)]


def test_segments_are_rolled_and_truncated_as_a_whole(tmp_path: Path) -> None:
    with small(tmp_path) as log:
        expected = fill(log, 200)
        before = segments(tmp_path)
        size = log.size
        assert len(before) > 5
        assert sum(file.stat().st_size for file in tmp_path.glob("*.seg")) == size
        log.truncate(105)
        assert log.first == 105
        assert list(log.records(105)) == expected[105:]
        keep = max(name for name in before if name <= segment_name(105))
        assert segments(tmp_path) == [name for name in before if name >= keep]
        with pytest.raises(StoreTruncated, match="record 104 has been truncated; read from 105 on"):
            list(log.records(104))
        log.truncate(50)  # less than before: nothing
        assert log.first == 105
        log.truncate(200)
        assert segments(tmp_path) == [segment_name(200)]  # a log that is read to its end makes room
        assert log.append([b"next"]) == 200
    with small(tmp_path) as log:
        assert (log.first, log.next) == (200, 201)
        assert sum(file.stat().st_size for file in tmp_path.glob("*.seg")) == log.size


def test_what_cannot_be_read_yet_cannot_be_truncated(tmp_path: Path) -> None:
    with small(tmp_path) as log:
        log.append([b"one"])
        with pytest.raises(ValueError, match="cannot be truncated before it can be read"):
            log.truncate(1)


def test_what_is_read_and_when(tmp_path: Path) -> None:
    with Log(tmp_path / "none", durability="none") as log, LogReader(tmp_path / "none") as reader:
        log.append([b"x" * 1000])
        assert (log.end, reader.end) == (0, 0)  # still in memory
        log.append([b"x" * 300_000])
        assert (log.end, reader.end, log.synced) == (2, 2, 0)
        log.append([b"x"])
        assert log.sync() == 3
        assert (reader.end, len(list(reader.records(0)))) == (3, 3)
    with Log(tmp_path / "os", durability="os") as log, LogReader(tmp_path / "os") as reader:
        log.append([b"x"])
        assert (log.end, reader.end, log.synced) == (1, 1, 0)
        assert list(reader.records(0)) == [(0, b"x")]
    with Log(tmp_path / "fsync") as log, LogReader(tmp_path / "fsync") as reader:
        log.append([b"x"])
        assert (log.end, reader.end) == (0, 0)
        log.sync()
        assert (log.end, reader.end) == (1, 1)


# ── limits and misuse ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_log_has_a_limit_and_truncating_makes_room(tmp_path: Path) -> None:
    with small(tmp_path, max_bytes=16384) as log:
        with pytest.raises(StoreLimit, match="at most 16384 are allowed; truncate"):
            fill(log, 1000)
        count = log.next
        assert log.size <= 16384
        log.sync()
        assert [offset for offset, _ in log.records(0)] == list(range(count))
        log.truncate(log.next)
        assert log.append([record(count)]) == count


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"durability": "maybe"}, "durability is 'fsync', 'os' or 'none', not 'maybe'"),
        ({"segment_bytes": 10}, "segment_bytes is at least 4096, not 10"),
        ({"max_bytes": 5000}, "max_bytes is at least four times segment_bytes"),
    ],
)
def test_options_that_make_no_sense(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        small(tmp_path, **options)


def test_frames_that_make_no_sense(tmp_path: Path) -> None:
    class Huge(bytes):
        def __len__(self) -> int:
            return MOST_BODY + 1

    with small(tmp_path) as log:
        for body, count in ((b"", 0), (Huge(), 1)):
            with pytest.raises(ValueError, match="at least one record and at most"):
                log.append_packed(body, count)
        assert log.next == 0


def test_a_closed_log(tmp_path: Path) -> None:
    log = small(tmp_path)
    log.close()
    log.close()
    for call in (lambda: log.append([b"x"]), lambda: log.truncate(0), log.recover):
        with pytest.raises(Closed):
            call()


def test_there_is_no_log() -> None:
    with pytest.raises(StoreError, match="there is no log in /nowhere; it is made by opening it for writing"):
        LogReader("/nowhere")


def test_a_path_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError, match="cannot open the log in"):
        Log(tmp_path / "file")


def test_a_later_version_is_not_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with small(tmp_path) as log:
        log.append([b"one"])
    path = tmp_path / segment_name(0)
    monkeypatch.setattr("exon.seglog.format.VERSION", 2)
    header, _ = segment_header(0, 5)
    monkeypatch.undo()
    path.write_bytes(header + path.read_bytes()[len(header) :])
    with pytest.raises(StoreError, match="the log has version 2, this program reads version 1; use a newer one"):
        small(tmp_path)


# ── one writer ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    with small(tmp_path) as log:
        with pytest.raises(StoreError, match="opened twice; close it there, give every writer a folder of its own"):
            small(tmp_path)
        assert "is being written by another process" in peer("open", tmp_path)
        assert log.append([b"undisturbed"]) == 0
    assert peer("open", tmp_path) == "opened"


def test_a_log_that_cannot_be_opened_is_not_locked(tmp_path: Path) -> None:
    with small(tmp_path) as log:
        log.append([b"one"])
    state = (tmp_path / "state").read_bytes()
    (tmp_path / "state").write_bytes(b"")
    with pytest.raises(StoreDamaged):
        small(tmp_path)
    (tmp_path / "state").write_bytes(state)
    small(tmp_path).close()


# ── threads ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class SlowDisk(RealDisk):
    """Its syncs take until they are told to go on."""

    def __init__(self) -> None:
        self.go = Event()
        self.begun = Event()
        self.syncs = 0
        self.go.set()

    def create(self, path: str) -> RealFile:
        disk, file = self, super().create(path)

        class Slow(RealFile):
            def sync(self) -> None:
                disk.syncs += 1
                disk.begun.set()
                assert disk.go.wait(PATIENCE)
                super().sync()

        descriptor, file._descriptor = file._descriptor, -1
        return Slow(descriptor)


def test_one_sync_for_all_who_wait_and_appending_goes_on_meanwhile(tmp_path: Path) -> None:
    disk = SlowDisk()
    with Log(tmp_path, disk=disk) as log:
        log.append([b"first"])
        disk.syncs = 0
        disk.go.clear()
        disk.begun.clear()
        leader = Thread(target=log.sync)
        leader.start()
        assert disk.begun.wait(PATIENCE)
        numbers = [log.append([b"%d" % number]) for number in range(8)]  # while the leader waits for the disk
        followers = [Thread(target=log.sync, args=(number + 1,)) for number in numbers]
        for thread in followers:
            thread.start()
        assert log.synced == 0
        disk.go.set()
        for thread in (leader, *followers):
            thread.join(PATIENCE)
        assert (log.synced, disk.syncs) == (9, 2)


def test_waiting_for_records(tmp_path: Path) -> None:
    with Log(tmp_path) as log:
        assert log.wait(0, timeout=0) == 0
        ends: list[int] = []
        thread = Thread(target=lambda: ends.append(log.wait(0, timeout=PATIENCE)))
        thread.start()
        log.append([b"one", b"two"])
        log.sync()
        thread.join(PATIENCE)
        assert ends == [2]
        thread = Thread(target=lambda: ends.append(log.wait(2, timeout=PATIENCE)))
        thread.start()
    thread.join(PATIENCE)
    assert ends == [2, 2]  # closing wakes whoever waits


def test_many_threads(tmp_path: Path) -> None:
    with small(tmp_path, durability="os") as log:

        def work(name: int) -> None:
            for number in range(50):
                first = log.append([b"%d %d" % (name, number)] * 3)
                if number % 7 == 0:
                    log.sync(first + 3)
                    assert log.synced >= first + 3

        threads = [Thread(target=work, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
    with small(tmp_path) as log:
        found = [content for _, content in log.records(0)]
    assert found[::3] == found[1::3] == found[2::3]  # batches were not mixed
    for name in range(4):  # and each thread's are in order
        mine = [int(content.split()[1]) for content in found[::3] if content.startswith(b"%d " % name)]
        assert mine == list(range(50))


def test_ctrl_c_between_any_two_steps_of_appending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, (owner, name) in enumerate(
        [(Tail, "add"), (Tail, "flush"), (RealFile, "write"), (Log, "_flush"), (Log, "_roll"), (Log, "_publish")]
    ):
        with small(tmp_path / str(number), durability="os", background=lambda _: None) as log:
            expected = fill(log, 20)
            original = getattr(owner, name)

            def interrupted(*arguments: Any, original: Any = original) -> None:
                original(*arguments)
                raise KeyboardInterrupt

            for _ in range(5):
                with monkeypatch.context() as patch:
                    patch.setattr(owner, name, interrupted)
                    with pytest.raises(KeyboardInterrupt):
                        deque(map(log.append, repeat([b"x" * 500])), maxlen=0)
                log.append([b"y" * 500])
            log.sync()
            found = list(log.records(0))
            assert found[:20] == expected
            assert [offset for offset, _ in found] == list(range(log.next))  # each number once
            assert [content for _, content in found].count(b"y" * 500) == 5
        with small(tmp_path / str(number)) as log:
            assert list(log.records(0)) == found


# ── processes ────────────────────────────────────────────────────────────────────────────────────────────────────────


def peer(*arguments: object) -> str:
    command = [sys.executable, "-m", "tests.exon.log_peer", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=True)
    return done.stdout.strip()


@contextmanager
def started(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.exon.log_peer", *map(str, arguments)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def test_another_process_reads_while_we_write(tmp_path: Path) -> None:
    count = 2000
    with small(tmp_path) as log, started("follow", tmp_path, count) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        fill(log, count // 2)
        expected = fill(log, count)
        assert process.stdout.readline().strip() == sha256(b"".join(content for _, content in expected)).hexdigest()


@pytest.mark.parametrize("durability", ["fsync", "os"])
def test_a_writer_that_is_killed_again_and_again(tmp_path: Path, durability: str) -> None:
    said = 0
    for kill in range(4):
        with started("write", tmp_path, durability) as process:
            assert process.stdout is not None
            for _ in range(20 + 3 * kill):
                said = int(process.stdout.readline())
            process.kill()
            rest = process.stdout.read().split("\n")
            said = max([said, *map(int, rest[:-1])])  # the last line may be half a line
        with LogReader(tmp_path) as reader:
            assert reader.end >= said
        with Log(tmp_path) as log:
            assert log.next >= said
            assert log.next % BATCH == 0  # batches are whole
            assert list(log.records(0)) == [(offset, record(offset)) for offset in range(log.next)]
