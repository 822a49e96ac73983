"""A log on a disk that crashes, fills up and fails, compared with a list."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from exon.errors import StoreFailed, StoreFull
from exon.seglog import Durability, Log, LogReader
from exon.seglog.format import segment_name
from tests.exon.faulty_disk import Crash, FaultyDisk, broken, full, raising

FOLDER = "/log"
CHANGES = ("create", "write", "cut", "sync", "sync_folder", "replace", "remove")


class Life:
    """A log and the list that it should be, through any number of crashes."""

    def __init__(self, seed: int, durability: Durability = "fsync") -> None:
        self.disk = FaultyDisk(seed)
        self.durability = durability
        self.records: list[bytes] = []  # what was appended, also in vain
        self.promised = 0  # records below this are safe
        self.truncated = 0
        self.behind: list[Callable[[], Any]] = []  # what is to be done in the background
        self.log: Log

    def open(self) -> None:
        """Start, and see that nothing is missing that was promised."""
        self.log = Log(
            FOLDER,
            durability=self.durability,
            segment_bytes=4096,
            disk=self.disk,
            now=lambda: self.disk.operations,
            background=self.behind.append,
        )
        self.compare()

    def compare(self) -> None:
        log = self.log
        assert log.next >= self.promised
        assert log.first <= self.truncated
        assert log.first <= log.next == log.synced == log.end
        assert log.next <= max(len(self.records), log.first)
        # Records that were truncated and never synced have numbers that nobody gets, and were lost to nobody.
        del self.records[log.next :]
        self.records += [b"?"] * (log.next - len(self.records))
        assert list(log.records(log.first)) == list(enumerate(self.records))[log.first :]
        self.promised = log.next
        self.truncated = log.first

    def do(self, name: str, number: int) -> None:
        if name == "append":
            self.append([bytes([65 + len(self.records) % 26]) * (number * size % 997) for size in range(1, 4)])
        elif name == "sync":
            self.log.sync()
            self.promised = len(self.records)
        elif name == "truncate":
            before = self.log.first + (self.log.end - self.log.first) * min(number, 100) // 100
            self.truncated = max(self.truncated, before)
            self.log.truncate(before)
        elif name == "background":
            while self.behind:
                self.behind.pop()()
        elif name == "look":
            with LogReader(FOLDER, disk=self.disk) as reader:
                start, end = reader.first, reader.end
                assert list(reader.records(start, end)) == list(enumerate(self.records))[start:end]
                if self.durability == "fsync":
                    assert end <= self.promised  # what anyone has read is safe
        elif name == "reopen":
            self.log.close()
            self.promised = len(self.records)
            self.open()
        else:
            assert name == "kill"
            self.disk.kill()
            if self.durability == "os":
                self.promised = len(self.records)
            self.open()

    def append(self, batch: list[bytes]) -> None:
        length = len(self.records)
        self.records += batch  # before: a crash may happen when all is written
        try:
            assert self.log.append(batch) == length
        except StoreFull:
            del self.records[length:]
            raise

    def crash(self) -> None:
        self.disk.crash()
        self.behind.clear()


steps = st.tuples(
    st.sampled_from(["append"] * 6 + ["sync", "sync", "truncate", "background", "look", "reopen", "kill"]),
    st.integers(0, 997),
)
durabilities = st.sampled_from(["fsync", "os", "none"])


@settings(max_examples=250)
@given(
    st.integers(0, 2**32),
    durabilities,
    st.lists(st.tuples(st.integers(0, 40), st.lists(steps, max_size=25)), min_size=1, max_size=4),
)
def test_after_any_crash_there_is_what_was_promised_and_nothing_else(
    seed: int, durability: Durability, lives: list[tuple[int, list[tuple[str, int]]]]
) -> None:
    life = Life(seed, durability)
    for crash_at, doings in lives:
        life.disk.at(crash_at, raising(Crash(), CHANGES))
        try:
            life.open()
            for doing in doings:
                life.do(*doing)
        except Crash:
            pass
        life.crash()
    life.open()
    life.do("reopen", 0)


WORK = [
    *[("append", 300), ("sync", 0), ("append", 700), ("append", 900), ("sync", 0), ("truncate", 50), ("append", 997)],
    *[("append", 5), ("truncate", 60), ("look", 0)],
    *[("append", 500), ("sync", 0), ("append", 10), ("look", 0), ("truncate", 100), ("append", 600), ("append", 900)],
    *[("background", 0), ("sync", 0), ("append", 800), ("append", 20), ("reopen", 0), ("append", 33), ("sync", 0)],
]


@pytest.mark.parametrize("durability", ["fsync", "os", "none"])
def test_a_crash_at_every_single_operation(durability: Durability) -> None:
    for seed in range(6):
        number = 0
        while True:
            life = Life(seed, durability)
            life.disk.at(number, raising(Crash(), CHANGES))
            try:
                life.open()
                for doing in WORK:
                    life.do(*doing)
            except Crash:
                life.crash()
                life.open()
                life.append([b"more"])
                life.do("sync", 0)
                life.crash()
                life.open()
                assert life.records[-1] == b"more"
            else:
                assert life.disk.operations <= number
                break
            number += 1
        assert number > 40


@pytest.mark.parametrize("durability", ["fsync", "os", "none"])
def test_a_disk_that_is_full_at_every_single_operation(durability: Durability) -> None:
    number = 0
    while True:
        life = Life(number, durability)
        life.open()
        life.disk.at(number, raising(full(), ("create", "write")))
        refused = 0
        for doing in WORK:
            try:
                life.do(*doing)
            except StoreFull:
                refused += 1
                if doing[0] != "reopen":
                    life.do(*doing)  # there is room again
                else:
                    life.open()
        assert refused <= 1
        life.do("sync", 0)
        assert list(life.log.records(life.log.first)) == list(enumerate(life.records))[life.log.first :]
        life.crash()
        life.open()
        if life.disk.operations < number:
            break
        number += 1
    assert number > 40


@pytest.mark.parametrize("durability", ["fsync", "os", "none"])
@pytest.mark.parametrize("evicted", [False, True])
def test_a_sync_that_fails_is_not_taken_for_one_that_did_not(durability: Durability, evicted: bool) -> None:
    number = failures = 0
    while True:
        life = Life(number, durability)
        life.open()
        life.disk.at(number, raising(broken(), ("sync", "sync_folder")))
        for doing in WORK:
            try:
                life.do(*doing)
            except StoreFailed:
                if doing[0] == "reopen":  # it is closed, but was told that it is not safe
                    life.open()
                    continue
                failures += 1
                with pytest.raises(StoreFailed, match="Recover the log"):
                    life.log.append([b"not now"])
                with pytest.raises(StoreFailed, match="may not be on the disk, whatever a second attempt would say"):
                    life.log.sync()
                if evicted:
                    life.disk.evict()
                life.log.recover()
                life.compare()
            except OSError:
                life.disk.kill()  # while opening, closing or truncating
                life.open()
        life.do("sync", 0)
        life.crash()
        life.open()
        if life.disk.operations < number:
            break
        number += 1
    assert number > 40
    assert failures > 2


def test_what_a_failed_write_left_does_not_stay_in_a_segment_that_is_left() -> None:
    life = Life(5)
    life.open()
    life.append([b"a" * 3000])
    life.disk.at(0, raising(full(), ("write",)))
    with pytest.raises(StoreFull, match="make room, or truncate the log, and repeat it"):
        life.append([b"b" * 800])
    assert len(life.disk.content()[f"{FOLDER}/{segment_name(0)}"]) > 3100
    life.append([b"c" * 2000])  # too large for this segment
    life.do("sync", 0)
    life.do("look", 0)
    life.do("reopen", 0)


@example(0)
@given(st.integers(0, 2**32))
def test_a_second_crash_while_recovering_from_the_first(seed: int) -> None:
    life = Life(seed)
    life.open()
    for doing in WORK[:8]:
        life.do(*doing)
    life.append([b"not", b"synced"])
    life.crash()
    for number in range(12):
        life.disk.at(number, raising(Crash(), CHANGES))
        try:
            life.open()
            life.disk.kill()
        except Crash:
            life.crash()
    life.open()
