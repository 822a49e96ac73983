"""A journal read by nothing but docs/journal-format.md, and bytes that must not change without a new version."""

from __future__ import annotations

import struct
from pathlib import Path
from zlib import crc32

import msgpack
import pytest

import a3m
from exon.seglog import Log

GOLDEN = (
    "65786f6e2d736567000100003e7be9b0000000000000000000000000000003e8"  # the header of the segment
    "f666726db19ca725000000000000000000000000000000000000000200000008dd9f4d8b"  # that of the frame
    "92c4013fc4022121"
)


def test_a_journal_can_be_read_by_the_book(tmp_path: Path) -> None:
    with a3m.Journal(tmp_path, segment_bytes=4096) as journal:
        journal.append_many([b"one", [b"two", b"parts"]], source="shop/till", link=7, order=40, topics="t", received=2)
        for number in range(100):
            journal.append(b"%d" % number * 50, topic="news", received=3)
        journal.truncate(60)
    state = (tmp_path / "state").read_bytes()
    copies = [struct.unpack(">8sIQQQQ", state[at : at + 44]) for at in (0, 512)]
    for at, copy in zip((0, 512), copies, strict=True):
        assert copy[0] == b"exon-lst"
        assert copy[1] == crc32(state[at : at + 8] + bytes(4) + state[at + 12 : at + 44])
        assert copy[2] % 2 * 512 == at
    _, _, _, first, synced, end = max(copies, key=lambda copy: copy[2])
    assert (first, synced, end) == (60, 102, 102)
    found = {}
    files = sorted(tmp_path.glob("*.seg"))
    expected = int(files[0].stem)
    for file in files:
        data = file.read_bytes()
        magic, version, flags, seed, base, _ = struct.unpack(">8sHHIQQ", data[:32])
        assert (magic, version, flags, base) == (b"exon-seg", 1, 0, int(file.stem))
        assert crc32(data[:12] + bytes(4) + data[16:32]) == seed
        position = 32
        while position < len(data):
            header = data[position : position + 36]
            magic, check, number, _, count, length, body_check = struct.unpack(">4sIQQIII", header)
            body = data[position + 36 : position + 36 + length]
            assert (magic, number) == (b"\xf6frm", expected)
            assert (crc32(header[8:], seed), crc32(body, seed)) == (check, body_check)
            kind, source, link, order, received, topics, payloads = msgpack.unpackb(body)
            assert (kind, len(payloads)) == (1, count)
            for index, payload in enumerate(payloads):
                found[expected + index] = (source, link, order + index, received, topics, payload)
            position += 36 + length
            expected += count
    assert expected == end
    assert {number: found[number] for number in range(first, end)} == {
        number: ("", 0, 0, 3_000_000, "news", b"%d" % (number - 2) * 50) for number in range(60, 102)
    }


def test_these_bytes_stay(tmp_path: Path) -> None:
    with Log(tmp_path, now=lambda: 1000) as log:
        log.append([b"?", b"!!"])
    content = next(tmp_path.glob("*.seg")).read_bytes()
    assert content.hex() == GOLDEN


@pytest.mark.parametrize("name", ["state.new", "00000000000000000005.seg.new", "notes.txt", "5.seg"])
def test_other_files_are_ignored(tmp_path: Path, name: str) -> None:
    with a3m.Journal(tmp_path) as journal:
        journal.append(b"one")
    (tmp_path / name).write_bytes(b"whatever")
    with a3m.Journal(tmp_path) as journal:
        assert [entry.payload for entry in journal.read()] == [b"one"]
    assert a3m.Journal.check(tmp_path).ok
