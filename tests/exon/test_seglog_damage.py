"""Damage: every changed byte and every missing file is noticed and named; a repair gives up what is damaged only."""

from __future__ import annotations

import attrs
import pytest

from exon import StoreDamaged, StoreError
from exon.seglog import Log, LogReader, check, repair
from exon.seglog.format import SEGMENT_HEADER, STATE_SIZE, segment_name
from tests.exon.faulty_disk import Crash, FaultyDisk, raising

FOLDER = "/log"
RECORDS = [b"%d" % number * (number * 13 % 20) for number in range(36)]
BATCH = 4
EXPECTED = list(enumerate(RECORDS))


def made(records: list[bytes] = RECORDS) -> FaultyDisk:
    """A log of some segments that was closed."""
    disk = FaultyDisk()
    with opened(disk) as log:
        for first in range(0, len(records), BATCH):
            log.append(records[first : first + BATCH])
            if len(log._segments) < 3 and first % 5 == 4:
                log._roll()  # smaller than they could be: every byte is tried
            log.sync()
    disk.kill()
    return disk


def opened(disk: FaultyDisk) -> Log:
    return Log(FOLDER, segment_bytes=4096, disk=disk, now=lambda: 1_000_000)


def read(disk: FaultyDisk) -> list[tuple[int, bytes]]:
    """What a reader finds."""
    with LogReader(FOLDER, disk=disk) as reader:
        return list(reader.records(reader.first))


def written(disk: FaultyDisk) -> list[tuple[int, bytes]]:
    """What a writer finds."""
    try:
        log = opened(disk)
        return list(log.records(log.first))
    finally:
        disk.kill()


def everything(disk: FaultyDisk) -> list[tuple[int, bytes]]:
    """What both find."""
    found = written(disk)
    assert read(disk) == found
    return found


def segments_of(content: dict[str, bytes]) -> list[str]:
    return [path for path in content if path.endswith(".seg")]


def frame_at(disk: FaultyDisk, path: str, position: int) -> range:
    """The numbers of the records in the frame at a position of a segment."""
    with LogReader(FOLDER, disk=disk) as reader:
        frames = list(reader.frames(0))
    first = int(path[-24:-4])
    place = SEGMENT_HEADER
    for frame in (frame for frame in frames if frame.first >= first):
        if position < place + frame.size:
            return range(frame.first, frame.end)
        place += frame.size
    raise AssertionError(position)


def test_every_changed_byte_is_noticed_and_named() -> None:
    disk = made()
    good = disk.content()
    assert everything(disk) == EXPECTED
    assert len(segments_of(good)) == 3
    good = disk.content()
    for path, content in good.items():
        for position in range(len(content)):
            for bit in (1, 128):
                disk.put(path, content[:position] + bytes([content[position] ^ bit]) + content[position + 1 :])
                if not path.endswith(".seg"):
                    assert everything(disk) == EXPECTED  # there are two copies of the state, and one of them is whole
                    for other, before in good.items():
                        disk.put(other, before)
                    continue
                damage = check(FOLDER, disk=disk).damage[0]
                assert (damage.file, damage.position <= position) == (path, True)
                for look in (read, written):
                    with pytest.raises(StoreDamaged) as caught:
                        look(disk)
                    error = caught.value
                    assert (error.file, error.position, error.offset) == (path, damage.position, damage.offset)
                disk.put(path, content)
        assert disk.content() == good  # nothing was "repaired" by looking
    assert everything(disk) == EXPECTED


def test_a_cut_at_every_byte_is_noticed() -> None:
    disk = made()
    everything(disk)
    good = disk.content()
    for path in segments_of(good):
        for size in range(len(good[path])):
            disk.put(path, good[path][:size])
            for look in (read, written):
                with pytest.raises(StoreDamaged):
                    look(disk)
            assert not check(FOLDER, disk=disk).ok
            disk.put(path, good[path])


@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_missing_segment_is_noticed_and_repaired(index: int) -> None:
    disk = made()
    paths = segments_of(disk.content())
    firsts = [int(path[-24:-4]) for path in paths] + [len(RECORDS)]
    disk.remove(paths[index])
    for look in (read, written):
        with pytest.raises(StoreDamaged):
            look(disk)
    lost = range(firsts[index], firsts[index + 1])
    report = repair(FOLDER, disk=disk)
    assert report.lost == (lost,)
    assert f"lost: records {lost.start} to {lost.stop}, {len(lost)} of them" in str(report)
    assert everything(disk) == [pair for pair in EXPECTED if pair[0] not in lost]
    with opened(disk) as log:
        assert log.append([b"next"]) == len(RECORDS)  # numbers of lost records are not given again


def test_repairing_loses_what_is_in_the_damaged_frame_and_nothing_else() -> None:
    original = made()
    everything(original)
    good = original.content()
    for path in segments_of(good):
        content = good[path]
        for position in range(0, len(content), 3):
            disk = FaultyDisk()
            for name, data in good.items():
                disk.create(name)
                disk.put(name, data)
            disk.put(path, content[:position] + bytes([content[position] ^ 16]) + content[position + 1 :])
            report = repair(FOLDER, disk=disk)
            lost = range(0) if position < SEGMENT_HEADER else frame_at(original, path, position)
            assert [number for gone in report.lost for number in gone] == list(lost)
            assert everything(disk) == [pair for pair in EXPECTED if pair[0] not in lost]
            assert check(FOLDER, disk=disk).ok
            assert "nothing to repair" in str(repair(FOLDER, disk=disk))
            quarantined = disk.content()[report.quarantined[0]]
            assert quarantined[position] == content[position] ^ 16  # as it was found
            with opened(disk) as log:
                assert log.append([b"next"]) == len(RECORDS)


def damaged(seed: int) -> FaultyDisk:
    """A log with two frames of one segment and one of another that cannot be read."""
    good = made().content()
    disk = FaultyDisk(seed)
    for path, content in good.items():
        disk.create(path)
        disk.put(path, content)
    disk.sync_folder(FOLDER)
    for index, percent in ((1, 30), (1, 70), (2, 25)):
        path = segments_of(good)[index]
        changed = bytearray(disk.content()[path])
        changed[len(changed) * percent // 100] ^= 1
        disk.put(path, bytes(changed))
    return disk


def test_a_crash_at_every_single_operation_of_a_repair() -> None:
    disk = damaged(0)
    lost = repair(FOLDER, disk=disk).lost
    assert len(lost) == 3
    expected = everything(disk)
    for seed in range(3):
        number = 0
        while True:
            disk = damaged(seed)
            disk.at(number, raising(Crash(), ("create", "write", "sync", "sync_folder", "replace", "remove")))
            try:
                repair(FOLDER, disk=disk)
            except Crash:
                disk.crash()
                repair(FOLDER, disk=disk)
                assert everything(disk) == expected
            else:
                break
            number += 1
        assert number > 20


def test_a_state_that_is_lost_is_made_anew() -> None:
    for content in (None, b"", bytes(STATE_SIZE)):
        disk = made()
        with opened(disk) as log:
            log.truncate(10)
        if content is None:
            disk.remove(f"{FOLDER}/state")
        else:
            disk.put(f"{FOLDER}/state", content)
        for look in (read, written):
            with pytest.raises(StoreError):
                look(disk)
        assert not check(FOLDER, disk=disk).ok
        report = repair(FOLDER, disk=disk)
        assert report.rebuilt
        assert "records that had been truncated may be there again" in str(report)
        assert everything(disk)[-26:] == EXPECTED[10:]


def test_a_segment_of_another_log_is_not_taken_for_ours() -> None:
    disk, other = made(), FaultyDisk()
    with Log(FOLDER, segment_bytes=4096, disk=other, now=lambda: 7) as log:
        log.append([b"x"] * len(RECORDS))
    path = f"{FOLDER}/{segment_name(0)}"
    ours, theirs = disk.content()[path], other.content()[path]
    disk.put(path, ours[:SEGMENT_HEADER] + theirs[SEGMENT_HEADER:])
    with pytest.raises(StoreDamaged, match="byte 32, record 0: the checksum of a frame's header is wrong"):
        everything(disk)


def test_frames_in_the_wrong_order_are_damage() -> None:
    disk = made([b"same size"] * 4 * BATCH)
    path = segments_of(disk.content())[-1]
    content = disk.content()[path]
    middle = (len(content) - SEGMENT_HEADER) // 2 + SEGMENT_HEADER
    disk.put(path, content[:SEGMENT_HEADER] + content[middle:] + content[SEGMENT_HEADER:middle])
    first = int(path[-24:-4])
    for look in (read, written):
        with pytest.raises(StoreDamaged, match=f"record {first}: there is record {first + BATCH} instead"):
            look(disk)


def test_what_was_never_synced_is_not_damage() -> None:
    disk = made()
    log = opened(disk)
    log.append([b"not synced", b"at all"])
    disk.kill()
    path = segments_of(disk.content())[-1]
    whole = disk.content()[path]
    for size in range(len(whole) - 1, len(whole) - 40, -1):
        disk.put(path, whole[:size])
        report = check(FOLDER, disk=disk)
        assert report.ok
        assert report.tail is not None
        assert (report.tail.offset, report.next) == (len(RECORDS), len(RECORDS))
        assert "will be cut when it is opened" in str(report)
        before = disk.content()
        log = opened(disk)
        assert log.recovery.cut == size - report.tail.position
        assert list(log.records(0)) == EXPECTED
        disk.kill()
        for name, content in before.items():
            disk.put(name, content)


def test_an_old_state_does_not_make_damage_look_like_a_crash() -> None:
    disk = FaultyDisk()
    log = opened(disk)
    old = disk.content()[f"{FOLDER}/state"]
    for number in range(4):
        log.append([b"synced %d" % number])
        log.sync()
    disk.kill()
    disk.put(f"{FOLDER}/state", old)  # as if the machine had stopped before it was written
    path = f"{FOLDER}/{segment_name(0)}"
    content = disk.content()[path]
    position = content.index(b"synced 1")
    disk.put(path, content[:position] + b"S" + content[position + 1 :])
    with pytest.raises(StoreDamaged, match="record 1: the checksum of a frame is wrong"):
        opened(disk)  # later frames say that it was safe


def test_what_is_damaged_is_not_repaired_while_it_is_written() -> None:
    disk = made()
    with opened(disk), pytest.raises(StoreError, match="is being written; close it before it is repaired"):
        repair(FOLDER, disk=disk)
    with pytest.raises(StoreError, match="there is no log in /other"):
        repair("/other", disk=disk)


def test_a_report_is_for_people() -> None:
    disk = made()
    assert str(check(FOLDER, disk=disk)).endswith("all is well")
    path = segments_of(disk.content())[0]
    content = disk.content()[path]
    disk.put(path, content[:40] + b"\xff" + content[41:])
    text = str(check(FOLDER, disk=disk))
    assert f"damaged: {path}, byte 32, record 0: the checksum of a frame's header is wrong" in text
    assert attrs.asdict(check(FOLDER, disk=disk))["records"] == len(RECORDS) - BATCH
    with pytest.raises(StoreDamaged, match="with 'a3m store check' and give up the rest with 'a3m store repair'"):
        everything(disk)
