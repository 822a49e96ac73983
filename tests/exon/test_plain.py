"""Plain datagrams: the same as short ones with frames, and nothing that comes in can do more than be refused."""

from __future__ import annotations

from zlib import crc32

import pytest

from exon.frames import Ack, TokenFrame
from exon.plain import ACK, TOKEN, WIDE, read_short, seal
from exon.wire import SHORT, Malformed

PLAIN = seal(SHORT | ACK | TOKEN, 2, [7, 1, 2, 3, 40, 9, 2, 5, 3, 9, 1, 6, 41, 2], b"he", b"llo")
BOTH = [Ack(40, 9, ((5, 8), (9, 10))), TokenFrame(6, 41, b"\x02hello")]


def why_not(data: bytes) -> str:
    with pytest.raises(Malformed) as caught:
        read_short(data)
    return caught.value.reason


def checked(data: bytes) -> bytes:
    """The same with the check that it needs."""
    return data[:6] + crc32(data[:6] + data[10:]).to_bytes(4, "big") + data[10:]


def test_a_plain_datagram_says_what_frames_would() -> None:
    assert read_short(PLAIN) == (7, 1, 2, 3, SHORT | ACK | TOKEN, BOTH, 0)
    assert len(PLAIN) == 10 + 20 + (4 + 4 + 1 + 2 * 8) + (4 + 4 + 1) + 5


@pytest.mark.parametrize("length", range(len(PLAIN)))
def test_a_plain_datagram_that_was_cut_is_refused(length: int) -> None:
    assert why_not(PLAIN[:length]) in {"short", "checksum"}
    if length > 30:
        whole = len(PLAIN) - 5  # without its payload, which may have any length
        assert length >= whole or why_not(checked(PLAIN[:length])) == "short"


@pytest.mark.parametrize("at", range(len(PLAIN)))
def test_every_byte_of_a_plain_datagram_is_checked(at: int) -> None:
    damaged = bytearray(PLAIN)
    damaged[at] ^= 0x40
    assert why_not(bytes(damaged)) in {"magic", "version", "checksum", "short", "frame"}


def test_flags_of_the_future_are_ignored_in_a_plain_datagram() -> None:
    data = checked(PLAIN[:3] + bytes((PLAIN[3] | 0xE0,)) + PLAIN[4:])
    assert read_short(data).frames == BOTH


def test_a_plain_datagram_has_32_ranges_at_most() -> None:
    most = 38
    assert why_not(checked(PLAIN[:most] + b"\x21" + PLAIN[most + 1 :] + bytes(300))) == "frame"
    assert len(read_short(checked(PLAIN[:most] + b"\x20" + PLAIN[most + 1 :] + bytes(300))).frames) == 2


@pytest.mark.parametrize("at", [4, 7, 9, 10])
def test_numbers_of_a_plain_datagram_have_63_bits(at: int) -> None:
    numbers = [7, 1, 2, 3, 2**62, 9, 1, 5, 3, 2**62, 2**62, 2]
    flags = SHORT | ACK | TOKEN | WIDE
    assert len(read_short(seal(flags, 1, numbers)).frames) == 2
    numbers[at] = 2**63
    assert why_not(seal(flags, 1, numbers)) == "frame"
