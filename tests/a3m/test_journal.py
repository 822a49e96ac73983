"""Journals: what is appended is what is read, wherever and however often, and nothing is lost without a word."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from threading import Thread
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import a3m
from exon.seglog import Log

ROOT = Path(__file__).parents[2]
PATIENCE = 60


def payloads(journal: a3m.Journal | a3m.JournalReader, *range_: int) -> list[Any]:
    return [entry.payload for entry in journal.read(*range_)]


def test_an_entry_says_everything_about_a_message(tmp_path: Path) -> None:
    with a3m.Journal(tmp_path) as journal:
        assert journal.append(b"zero", received=1.5) == 0
        source = a3m.SocketId("shop", "till")
        messages: list[Any] = [b"one", [b"two", b"parts"], bytearray(b"three"), memoryview(b"four")]
        assert journal.append_many(messages, source=source, link=7, order=40, topics="news", received=2.25) == 1
        assert journal.append_many([b"five", b"six"], source="shop/till", topics=["a", "b"], received=3) == 5
        assert (journal.first, journal.next, journal.end, journal.stored) == (0, 7, 7, 7)
    with a3m.Journal(tmp_path) as journal:
        assert list(journal.read()) == [
            a3m.Entry(0, "", 0, 0, "", 1.5, b"zero"),
            a3m.Entry(1, "shop/till", 7, 40, "news", 2.25, b"one"),
            a3m.Entry(2, "shop/till", 7, 41, "news", 2.25, (b"two", b"parts")),
            a3m.Entry(3, "shop/till", 7, 42, "news", 2.25, b"three"),
            a3m.Entry(4, "shop/till", 7, 43, "news", 2.25, b"four"),
            a3m.Entry(5, "shop/till", 0, 0, "a", 3.0, b"five"),
            a3m.Entry(6, "shop/till", 0, 1, "b", 3.0, b"six"),
        ]
        assert [(batch.first, len(batch.payloads)) for batch in journal.batches()] == [(0, 1), (1, 4), (5, 2)]
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            next(journal.read()).offset = 5  # type: ignore[misc]


def test_the_time_is_that_of_appending_unless_it_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("a3m.journal.time", lambda: 1234.5)
    with a3m.Journal(tmp_path) as journal:
        journal.append(b"now")
        assert next(journal.read()).received == 1234.5


@settings(max_examples=25)  # each opens and closes files, and waits for the disk
@given(
    st.lists(st.lists(st.binary(max_size=50), min_size=1, max_size=6), max_size=20),
    st.lists(st.tuples(st.integers(0, 60), st.none() | st.integers(0, 60), st.none() | st.integers(0, 20)), max_size=8),
)
def test_any_range_is_what_it_would_be_in_a_list(
    tmp_path_factory: pytest.TempPathFactory,
    batches: list[list[bytes]],
    ranges: list[tuple[int, int | None, int | None]],
) -> None:
    model: list[bytes] = []
    path = tmp_path_factory.mktemp("journal")
    with a3m.Journal(path, durability="os", segment_bytes=4096) as journal:
        for batch in batches:
            assert journal.append_many(batch) == len(model)
            model += batch
        with a3m.Journal.open_reader(path) as other:
            for start, end, most in ranges:
                expected = list(enumerate(model))[start:end][:most]
                for reader in (journal, other):
                    found = [(entry.offset, entry.payload) for entry in reader.read(start, end, most=most)]
                    assert found == expected


def test_messages_are_stored_when_they_are_synced(tmp_path: Path) -> None:
    with a3m.Journal(tmp_path) as journal, a3m.Journal.open_reader(tmp_path) as reader:
        first = journal.append_many([b"one", b"two"], wait=False)
        assert (journal.next, journal.stored, reader.end) == (2, 0, 0)
        assert payloads(journal) == payloads(reader) == []  # nobody acts on what may be lost
        assert journal.sync(first + 2) == 2
        assert (journal.stored, reader.end) == (2, 2)
        assert payloads(journal) == payloads(reader) == [b"one", b"two"]
        journal.append(b"three")  # and if one waits, it is stored
        assert (journal.stored, payloads(reader)) == (3, [b"one", b"two", b"three"])


def test_what_cannot_be_appended(tmp_path: Path) -> None:
    with a3m.Journal(tmp_path) as journal:
        with pytest.raises(a3m.BadPayload, match="there is no message to append"):
            journal.append_many([])
        with pytest.raises(a3m.BadPayload, match=r"encode text with \.encode"):
            journal.append("text")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="there are 2 messages and 1 topics"):
            journal.append_many([b"one", b"two"], topics=["a"])
        assert journal.next == 0


def test_a_journal_that_is_full_says_so_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    with a3m.Journal(tmp_path, segment_bytes=4096, max_bytes=16384) as journal:
        count = 0

        def fill() -> None:
            nonlocal count
            while True:
                assert journal.append_many([b"x" * 100] * 10, wait=False) == count
                count += 10

        with pytest.raises(a3m.JournalFull, match="truncate what is not needed any more, or raise max_bytes"):
            fill()
        journal.sync()
        assert journal.next == count == len(payloads(journal))
        assert journal.size <= 16384
        journal.truncate(count)
        assert journal.append(b"room") == count
        with pytest.raises(a3m.StoreTruncated, match=f"read from {count} on"):
            payloads(journal, 0)


def test_a_disk_that_is_full_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = os.pwritev

    def full(descriptor: int, parts: list[bytes], position: int) -> int:
        if len(parts) == 1:
            return written(descriptor, parts, position)
        written(descriptor, [parts[0]], position)  # as much as fits
        raise OSError(errno.ENOSPC, "No space left on device")

    with a3m.Journal(tmp_path) as journal:
        journal.append(b"one")
        monkeypatch.setattr("os.pwritev", full)
        with pytest.raises(a3m.StoreFull, match="nothing was lost; make room, or truncate the log, and repeat it"):
            journal.append(b"two")
        assert payloads(journal) == [b"one"]
        monkeypatch.undo()
        assert journal.append(b"two") == 1
    with a3m.Journal(tmp_path) as journal:
        assert payloads(journal) == [b"one", b"two"]


def test_a_disk_that_fails_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with a3m.Journal(tmp_path) as journal:
        journal.append(b"one")
        monkeypatch.setattr("os.fdatasync", fail)
        with pytest.raises(a3m.StoreFailed, match="Records from 1 on may not be on the disk"):
            journal.append(b"two")
        monkeypatch.undo()  # a second attempt would succeed, and mean nothing
        with pytest.raises(a3m.StoreFailed):
            journal.sync()
        assert payloads(journal) == [b"one"]
        journal.recover()
        assert payloads(journal) == [b"one", b"two"]  # it could be read, and was written once more
        assert journal.append(b"three") == 2


def test_a_reader_follows(tmp_path: Path) -> None:
    with a3m.Journal(tmp_path) as journal:
        reader = journal.reader()
        found: list[Any] = []

        def follow() -> None:
            while len(found) < 100:
                found.extend(entry.payload for entry in reader.read(7, timeout=PATIENCE))

        thread = Thread(target=follow)
        thread.start()
        for number in range(0, 100, 5):
            journal.append_many([b"%d" % n for n in range(number, number + 5)])
        thread.join(PATIENCE)
        assert found == [b"%d" % number for number in range(100)]
        assert reader.position == 100
        with pytest.raises(a3m.Timeout, match="no message 100 within 0 seconds"):
            reader.read(timeout=0)
        assert [entry.offset for entry in journal.reader(98).read(timeout=0)] == [98, 99]
    with pytest.raises(a3m.Closed):
        reader.read()


FOLLOW = """
import sys, a3m
with a3m.Journal.open_reader(sys.argv[1]) as journal:
    reader, total = journal.reader(), 0
    print("ready", flush=True)
    while reader.position < 300:
        for entry in reader.read(timeout=60):
            total = (total * 31 + int(entry.payload)) % 1000003
    print(total, flush=True)
"""


def test_another_process_follows(tmp_path: Path) -> None:
    with a3m.Journal(tmp_path) as journal:
        command = [sys.executable, "-c", FOLLOW, str(tmp_path)]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            total = 0
            for number in range(0, 300, 10):
                journal.append_many([b"%d" % n for n in range(number, number + 10)])
                for n in range(number, number + 10):
                    total = (total * 31 + n) % 1000003
            assert int(process.stdout.readline()) == total


def test_one_writer_and_any_number_of_readers(tmp_path: Path) -> None:
    with a3m.Journal(tmp_path) as journal:
        with pytest.raises(a3m.StoreError, match="open it for reading only"):
            a3m.Journal(tmp_path)
        journal.append(b"one")
        with a3m.Journal.open_reader(tmp_path) as one, a3m.Journal.open_reader(tmp_path) as two:
            assert payloads(one) == payloads(two) == [b"one"]
    with pytest.raises(a3m.StoreError, match="there is no log in"):
        a3m.Journal.open_reader(tmp_path / "nowhere")


def test_a_closed_journal(tmp_path: Path) -> None:
    journal = a3m.Journal(tmp_path)
    journal.close()
    journal.close()
    for call in (lambda: journal.append(b"x"), lambda: journal.truncate(0)):
        with pytest.raises(a3m.Closed):
            call()


def test_a_log_that_is_no_journal(tmp_path: Path) -> None:
    with Log(tmp_path) as log:
        log.append([b"something", b"else"])
    with (
        a3m.Journal(tmp_path) as journal,
        pytest.raises(a3m.StoreError, match="record 0 is whole but no message: this log is no journal"),
    ):
        payloads(journal)


def test_damage_is_refused_named_and_repaired(tmp_path: Path) -> None:
    with a3m.Journal(tmp_path) as journal:
        for number in range(3):
            journal.append(b"message %d" % number)
    assert a3m.Journal.check(tmp_path).ok
    file = next(tmp_path.glob("*.seg"))
    content = file.read_bytes()
    file.write_bytes(content.replace(b"message 1", b"Message 1"))
    with pytest.raises(a3m.StoreDamaged, match=rf"{file.name} is damaged at byte \d+, record 1: the checksum") as error:
        a3m.Journal(tmp_path)
    assert error.value.offset == 1
    report = a3m.Journal.repair(tmp_path)
    assert report.lost == (range(1, 2),)
    with a3m.Journal(tmp_path) as journal:
        assert [(entry.offset, entry.payload) for entry in journal.read()] == [(0, b"message 0"), (2, b"message 2")]
        assert [entry.offset for entry in journal.reader(1).read(timeout=0)] == [2]
        assert journal.append(b"message 3") == 3


def test_a_reader_passes_what_is_lost_at_the_end(tmp_path: Path) -> None:
    with a3m.Journal(tmp_path) as journal:
        journal.append(b"kept")
        journal.append_many([b"lost"] * 5)
    file = next(tmp_path.glob("*.seg"))
    file.write_bytes(file.read_bytes().replace(b"lost", b"Lost"))
    a3m.Journal.repair(tmp_path)
    with a3m.Journal(tmp_path) as journal:
        reader = journal.reader()
        assert [entry.payload for entry in reader.read(3, timeout=0)] == [b"kept"]
        with pytest.raises(a3m.Timeout):
            reader.read(3, timeout=0)
        journal.append(b"new")
        assert [(entry.offset, entry.payload) for entry in reader.read(3, timeout=0)] == [(6, b"new")]
