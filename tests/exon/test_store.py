"""The clock file: saved ahead, used by one node at a time, and never trusted when damaged."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from exon import StoreError
from exon.clock import BLOCK, Clock
from exon.store import ClockFile
from tests.exon.endpoints import PATIENCE, Opener, at, crash
from tests.exon.test_udp import unprivileged  # noqa: F401  # a fixture


def saved(path: Path) -> int:
    """The limit in a clock file, read without opening it."""
    word, number, check = path.read_text().split()
    assert (word, len(check)) == ("exon-clock-1", 8)
    return int(number)


def test_a_new_clock_begins_at_zero_and_is_saved_at_once(tmp_path: Path) -> None:
    with ClockFile(tmp_path / "clock") as file:
        assert file.clock.value == 0
        assert saved(tmp_path / "clock") > 0
        assert file.clock.tick() == 0


def test_every_number_in_use_is_below_what_is_saved(tmp_path: Path) -> None:
    path = tmp_path / "clock"
    with ClockFile(path) as file:
        for value in (1, BLOCK, BLOCK + 1, 2 * BLOCK + 7, 10 * BLOCK):
            file.clock.raise_to(value)
            number = file.clock.tick()
            assert saved(path) > number


def test_a_crash_skips_numbers_and_repeats_none(tmp_path: Path) -> None:
    highest = -1
    for _ in range(5):
        file = ClockFile(tmp_path / "clock")
        numbers = [file.clock.tick() for _ in range(3)]
        assert numbers[0] > highest
        highest = numbers[-1]
        os.close(file._lock_file)  # all that a crash does: the kernel closes what was open


def test_a_crash_while_saving_leaves_the_old_limit(tmp_path: Path) -> None:
    path = tmp_path / "clock"
    ClockFile(path).close()
    limit = saved(path)
    (tmp_path / "clock.new").write_text("exon-clo")  # as far as the write had come
    with ClockFile(path) as file:
        assert file.clock.value == limit


def test_one_node_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "clock"
    with ClockFile(path) as file:
        file.clock.tick()
        with pytest.raises(StoreError, match="in use by another node"):
            ClockFile(path)
        assert file.clock.tick() == 1  # and the first is not disturbed
    ClockFile(path).close()


def test_closing_twice_is_harmless(tmp_path: Path) -> None:
    file = ClockFile(tmp_path / "clock")
    file.close()
    with ClockFile(tmp_path / "clock"):
        file.close()  # must not close a descriptor that has its number by now
        with pytest.raises(StoreError, match="in use"):
            ClockFile(tmp_path / "clock")


def test_no_numbers_from_a_file_that_is_closed(tmp_path: Path) -> None:
    file = ClockFile(tmp_path / "clock")
    file.close()
    with pytest.raises(StoreError, match="was closed while its node still runs"):
        file.clock.raise_to(2 * BLOCK)
    assert file.clock.value == 0


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"5\n",
        b"exon-clock-1\n",
        b"exon-clock-1 5\n",
        b"exon-clock-1 5 00000000\n",
        b"exon-clock-1 -5 00000000\n",
        b"exon-clock-2 5 00000000\n",
        b"\xff\xfe\x00",
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "clock"
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"clock"):
        ClockFile(path)
    assert path.read_bytes() == content
    path.unlink()  # the way out, and nothing holds the lock
    ClockFile(path).close()


def test_every_changed_byte_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "clock"
    ClockFile(path).close()
    good = path.read_bytes()
    for place in range(len(good) - 1):  # the last one ends the line
        path.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
        with pytest.raises(StoreError):
            ClockFile(path)
    path.write_bytes(good)
    ClockFile(path).close()


def test_a_number_near_the_end_of_all_numbers_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "clock"
    file = ClockFile(path)
    file._save(2**62 + 1)  # with a good checksum
    file.close()
    with pytest.raises(StoreError, match="damaged"):
        ClockFile(path)


def test_a_disk_that_is_full_uses_no_number(tmp_path: Path) -> None:
    path = tmp_path / "clock"
    with ClockFile(path) as file:
        (tmp_path / "clock.new").mkdir()  # cannot be opened for writing, not even by root
        with pytest.raises(StoreError, match="cannot save the clock to"):
            file.clock.raise_to(2 * BLOCK)
        assert file.clock.value == 0
        (tmp_path / "clock.new").rmdir()
        file.clock.raise_to(2 * BLOCK)
        assert saved(path) >= 2 * BLOCK


def test_a_file_that_cannot_be_saved_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "clock.new").mkdir()
    with pytest.raises(StoreError, match="cannot save the clock to"):
        ClockFile(tmp_path / "clock")
    (tmp_path / "clock.new").rmdir()
    ClockFile(tmp_path / "clock").close()


@pytest.mark.usefixtures("unprivileged")
def test_a_folder_that_may_not_be_written() -> None:
    with pytest.raises(StoreError, match="Permission denied; is its folder there and writable"):
        ClockFile("/exon-clock-of-a-test")


# ── with an endpoint ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_restart_with_the_same_file_repeats_no_number(tmp_path: Path) -> None:
    path, used = tmp_path / "clock", -1
    with Opener() as opened:
        for _ in range(3):
            a, b = opened("a", clock=path), opened("b")
            assert a.stats().clock > used
            a.register("b", at(b))
            a.send("b", b"there")
            assert b.recv(timeout=PATIENCE) == ("a", b"there")
            b.send("a", b"and back")
            assert a.recv(timeout=PATIENCE) == ("b", b"and back")
            assert saved(path) >= a.stats().clock
            used = saved(path) - 1  # as far as anyone can tell
            crash(a)


def test_two_endpoints_do_not_share_a_file(tmp_path: Path) -> None:
    with Opener() as opened:
        a = opened("a", clock=tmp_path / "clock")
        with pytest.raises(StoreError, match="give every node a clock file of its own"):
            opened("b", clock=tmp_path / "clock")
        a.close(timeout=0)
        opened("b", clock=str(tmp_path / "clock"))


def test_an_endpoint_that_cannot_start_lets_go_of_the_file(tmp_path: Path) -> None:
    with Opener() as opened:
        a = opened("a")
        with pytest.raises(OSError, match="already in use"):
            opened("b", bind=at(a), clock=tmp_path / "clock")
        opened("b", clock=tmp_path / "clock")


def test_the_clock_file_continues_a_clock(tmp_path: Path) -> None:
    file = ClockFile(tmp_path / "clock")
    assert isinstance(file.clock, Clock)
    file.clock.raise_to(12345)
    file.close()
    with ClockFile(tmp_path / "clock") as again:
        assert again.clock.value >= 12345
