"""The datagram codec: what is written reads back, and nothing that comes in can do more than be refused."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any
from zlib import crc32

import msgpack
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from exon.frames import (
    Ack,
    ClosedFrame,
    Frame,
    Gone,
    Probe,
    Probed,
    Refused,
    ReqSlots,
    Slice,
    Slots,
    TokenFrame,
)
from exon.wire import (
    CLOSING,
    MAX_DATAGRAM,
    MAX_ID,
    MAX_NUMBER,
    SHORT,
    Datagram,
    Header,
    Malformed,
    decode,
    encode,
    encode_frame,
    overhead,
)

REASONS = {"short", "magic", "version", "truncated", "checksum", "encoding", "header", "frame"}

HEADER = Header("a", "b", 11, 22, 33, 44, 55, 66, 77)
POSITIONS = range(2, len(HEADER))  # of the numbers

# -- anything legal ---------------------------------------------------------------------------------------------------

NUMBERS = st.one_of(st.integers(0, MAX_NUMBER), st.sampled_from([0, 127, 128, 2**16, 2**32, MAX_NUMBER]))
IDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=MAX_ID).filter(
    lambda text: len(text.encode()) <= MAX_ID
)
HEADERS = st.builds(Header, IDS, IDS, st.integers(1, MAX_NUMBER), *[NUMBERS] * 6)
PAYLOADS = st.binary(min_size=1, max_size=300)


@st.composite
def acks(draw: st.DrawFn) -> Ack:
    ranges = draw(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=40))
    return Ack(draw(NUMBERS), draw(NUMBERS), tuple((start, start + length) for start, length in ranges))


@st.composite
def slices(draw: st.DrawFn) -> Slice:
    chunk = draw(PAYLOADS)
    offset = draw(st.integers(0, MAX_DATAGRAM - len(chunk)))
    total = draw(st.integers(offset + len(chunk), MAX_DATAGRAM))
    return Slice(draw(NUMBERS), draw(NUMBERS), offset, total, chunk)


FRAMES: st.SearchStrategy[Frame] = st.one_of(
    st.builds(ReqSlots, NUMBERS, NUMBERS, NUMBERS),
    st.builds(Slots, NUMBERS, NUMBERS, NUMBERS, NUMBERS),
    st.builds(TokenFrame, NUMBERS, NUMBERS, PAYLOADS),
    acks(),
    st.builds(ClosedFrame, NUMBERS),
    st.builds(Refused, NUMBERS),
    st.builds(Gone, NUMBERS),
    slices(),
    st.builds(Probe, NUMBERS),
    st.builds(Probed, NUMBERS),
)
FRAME_LISTS = st.lists(FRAMES, max_size=30)


@given(HEADERS, FRAME_LISTS, st.integers(0, 255).map(lambda flags: flags & ~SHORT), st.integers(0, 3000))
def test_what_is_written_reads_back(header: Header, frames: list[Frame], flags: int, size: int) -> None:
    data = encode(header, map(encode_frame, frames), flags, size)
    decoded = decode(data)
    assert decoded == Datagram(header, flags, frames, 0)
    assert list(map(type, decoded.frames)) == list(map(type, frames))
    assert len(data) >= size


@given(HEADERS)
def test_overhead_is_never_exceeded(header: Header) -> None:
    assert len(encode(header, [])) <= overhead(header.source, header.destination)


def test_the_largest_header_takes_exactly_what_was_foreseen() -> None:
    """All numbers at their limit, ids of 255 bytes and more than 15 elements in the array."""
    longest = "x" * MAX_ID
    header = Header(longest, longest, *[MAX_NUMBER] * 7)
    frames = [encode_frame(Gone(0))] * 9
    assert len(encode(header, frames)) - len(b"".join(frames)) == overhead(longest, longest)


@pytest.mark.parametrize("size", [0, 1, 1200, 65487, MAX_DATAGRAM])
def test_padding_fills_up_to_the_size_and_never_cuts(size: int) -> None:
    plain = encode(HEADER, [encode_frame(Probe(size))])
    padded = encode(HEADER, [encode_frame(Probe(size))], size=size)
    assert len(padded) == max(size, len(plain))
    assert padded[len(plain) :] == bytes(len(padded) - len(plain))
    assert decode(padded) == decode(plain)


def test_the_largest_datagram_holds_one_token() -> None:
    payload = bytes(MAX_DATAGRAM - overhead("a", "b") - 25)
    data = encode(HEADER, [encode_frame(TokenFrame(MAX_NUMBER, MAX_NUMBER, payload))])
    assert len(data) <= MAX_DATAGRAM
    assert decode(data).frames == [TokenFrame(MAX_NUMBER, MAX_NUMBER, payload)]


def test_closing_is_the_lowest_flag_and_other_flags_are_kept() -> None:
    assert decode(encode(HEADER, [], CLOSING)).flags == 0x01
    assert decode(encode(HEADER, [], 0xFF & ~SHORT)).flags == 0xFD


# -- by hand: the fields of a datagram in any form --------------------------------------------------------------------


def raw(body: bytes, *, magic: bytes = b"EX", version: int = 4, length: int | None = None, after: bytes = b"") -> bytes:
    """A datagram with any body and a right checksum."""
    start = struct.pack(">2sBBH", magic, version, 0, len(body) if length is None else length)
    return start + crc32(start + body + after).to_bytes(4, "big") + body + after


def fields(*frames: object, header: tuple[object, ...] = HEADER) -> bytes:
    packed: bytes = msgpack.packb([*header, *frames])
    return packed


def reason(data: bytes) -> str:
    with pytest.raises(Malformed) as caught:
        decode(data)
    assert caught.value.reason in REASONS
    return caught.value.reason


def test_a_hand_made_datagram_is_what_encode_makes() -> None:
    assert raw(fields([1, 2, 3, 4])) == encode(HEADER, [encode_frame(ReqSlots(2, 3, 4))])


@pytest.mark.parametrize("length", range(10))
def test_short(length: int) -> None:
    assert reason(encode(HEADER, [])[:length]) == "short"


def test_magic() -> None:
    assert reason(raw(fields(), magic=b"EY")) == "magic"


@pytest.mark.parametrize("version", [0, 1, 2, 3, 255])
def test_version(version: int) -> None:
    assert reason(raw(fields(), version=version)) == "version"


def test_truncated() -> None:
    data = encode(HEADER, [])
    assert reason(data[:-1]) == "truncated"
    assert reason(data[:10]) == "truncated"
    assert reason(raw(fields(), length=len(fields()) + 1)) == "truncated"


def test_every_single_bit_is_covered_by_a_check() -> None:
    data = encode(HEADER, [encode_frame(TokenFrame(1, 2, b"payload"))], size=100)
    for bit in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        assert reason(bytes(flipped)) in {"magic", "version", "truncated", "checksum"}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        fields()[:-1],
        fields() + b"\x00",
        b"\xdd\xff\xff\xff\xff",
        b"\x91" * 60_000,
        b"\x99\xa1\xff\xa1b" + bytes(7),  # not UTF-8
        b"\x99\xa3\xed\xa0\x80\xa1b" + bytes(7),  # a surrogate in UTF-8's clothes
        b"\x81\x01\x02",
    ],
    ids=["empty", "unused", "cut", "more", "length", "nested", "utf8", "surrogate", "map key"],
)
def test_encoding(body: bytes) -> None:
    assert reason(raw(body)) == "encoding"


@pytest.mark.parametrize(
    "header",
    [
        (),
        HEADER[:8],
        ("", *HEADER[1:]),
        ("a", "", *HEADER[2:]),
        (b"a", *HEADER[1:]),
        ("a", b"b", *HEADER[2:]),
        (1, *HEADER[1:]),
        ("x" * 256, *HEADER[1:]),
        ("a", "\u20ac" * 86, *HEADER[2:]),
        ("a", "b", 0, *HEADER[3:]),  # a node knows its own epoch
    ],
)
def test_header(header: tuple[object, ...]) -> None:
    assert reason(raw(fields(header=header))) == "header"


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("value", [-1, 2**63, 2**64 - 1, 1.0, True, None, "1", b"1", [1]])
def test_header_numbers(position: int, value: object) -> None:
    header = (*HEADER[:position], value, *HEADER[position + 1 :])
    assert reason(raw(fields(header=header))) == "header"


@pytest.mark.parametrize("body", [5, None, "text", {"a": 1}, b"bytes"])
def test_a_body_that_is_no_array(body: object) -> None:
    assert reason(raw(msgpack.packb(body))) == "header"


@pytest.mark.parametrize("position", POSITIONS)
def test_header_limits(position: int) -> None:
    header = Header("a", "b", *[MAX_NUMBER if at == position else 1 for at in POSITIONS])
    assert decode(raw(fields(header=header))).header == header


@pytest.mark.parametrize("node", ["a", "\x00", "x" * 255, "\u20ac" * 85])
def test_id_limits(node: str) -> None:
    header = HEADER._replace(source=node, destination=node)
    assert decode(encode(header, [])).header == header


LEGAL: dict[str, list[Any]] = {
    "REQSLOTS": [1, 1, 2, 3],
    "SLOTS": [2, 1, 2, 3, 4],
    "TOKEN": [3, 1, 2, b"payload"],
    "ACK": [4, 1, 2, [3, 4, 9, 1]],
    "CLOSED": [5, 1],
    "REFUSED": [6, 1],
    "GONE": [7, 1],
    "SLICE": [8, 1, 2, 3, 10, b"payload"],
    "PROBE": [9, 1],
    "PROBED": [10, 1],
}


@pytest.mark.parametrize("frame", LEGAL.values(), ids=LEGAL)
def test_frame_lengths(frame: list[Any]) -> None:
    assert len(decode(raw(fields(frame))).frames) == 1
    assert reason(raw(fields(frame[:-1]))) == "frame"
    assert reason(raw(fields([*frame, 0]))) == "frame"
    assert reason(raw(fields([]))) == "frame"


@pytest.mark.parametrize("frame", LEGAL.values(), ids=LEGAL)
@pytest.mark.parametrize("value", [-1, 2**63, 1.0, False, None, "1", [], [1], {}])
def test_frame_fields_of_the_wrong_kind(frame: list[Any], value: object) -> None:
    for position in range(1, len(frame)):
        if frame[position] != value and not (type(frame[position]) is list and value == []):
            assert reason(raw(fields([*frame[:position], value, *frame[position + 1 :]]))) == "frame"


@pytest.mark.parametrize("frame", LEGAL.values(), ids=LEGAL)
def test_frame_numbers_up_to_the_limit(frame: list[Any]) -> None:
    for position in range(1, len(frame)):
        if type(frame[position]) is int and frame[0] != 8:
            (decoded,) = decode(raw(fields([*frame[:position], MAX_NUMBER, *frame[position + 1 :]]))).frames
            assert decoded[position - 1] == MAX_NUMBER


@pytest.mark.parametrize(
    "frame",
    [
        7,
        "text",
        None,
        {},
        [None],
        ["3", 1, 2, b"x"],
        [True, 1, 2, 3],
        [1.0, 1, 2, 3],
        [3, 1, 2, b""],
        [3, 1, 2, "text"],
        [4, 1, 2, [3]],
        [4, 1, 2, [3, -1]],
        [4, 1, 2, [2**63, 0]],
        [4, 1, 2, [0] * 258],
        [4, 1, 2, [[3, 4]]],
        [8, 1, 2, 0, 3, b""],
        [8, 1, 2, 1, 3, b"abc"],
        [8, 1, 2, 0, 65508, b"abc"],
        [8, 1, 2, MAX_NUMBER, MAX_NUMBER, b"abc"],
    ],
)
def test_frame(frame: object) -> None:
    assert reason(raw(fields(frame))) == "frame"


def test_one_bad_frame_spoils_the_datagram() -> None:
    assert reason(raw(fields([7, 1], [7, 1, 1]))) == "frame"


@pytest.mark.parametrize("kind", [0, 11, 127, -1, 2**63, 2**64 - 1])
def test_unknown_kinds_are_skipped_whatever_they_hold(kind: int) -> None:
    decoded = decode(raw(fields([kind, "anything", {"x": [1.5, None]}], [7, 1], [kind])))
    assert decoded.frames == [Gone(1)]
    assert decoded.skipped == 2


def test_anything_may_follow_the_body() -> None:
    assert decode(raw(fields([7, 1]), after=b"not zeros")).frames == [Gone(1)]


def test_an_ack_has_up_to_128_ranges() -> None:
    (ack,) = decode(raw(fields([4, 0, 0, [0] * 256]))).frames
    assert ack == Ack(0, 0, ((0, 0),) * 128)


def test_an_ack_range_may_be_empty_or_end_beyond_all_numbers() -> None:
    (ack,) = decode(raw(fields([4, 0, 0, [5, 0, MAX_NUMBER, MAX_NUMBER]]))).frames
    assert ack == Ack(0, 0, ((5, 5), (MAX_NUMBER, 2 * MAX_NUMBER)))


# -- hostile ----------------------------------------------------------------------------------------------------------


def survives(data: bytes) -> None:
    """Either a datagram whose every field is legal, or a refusal out of the list."""
    refused = ""
    try:
        decoded = decode(data)
    except Malformed as malformed:
        refused = malformed.reason
    if refused:
        assert refused in REASONS
        return
    again = encode(decoded.header, map(encode_frame, decoded.frames), decoded.flags)
    assert decode(again) == decoded._replace(skipped=0)


@given(st.binary(max_size=200))
def test_arbitrary_bytes(data: bytes) -> None:
    survives(data)


@given(st.binary(max_size=200))
def test_arbitrary_bodies_behind_a_right_checksum(body: bytes) -> None:
    survives(raw(body))


ANYTHING: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**64 - 1),
        st.floats(),
        st.text(max_size=9),
        st.binary(max_size=9),
    ),
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


@given(st.lists(ANYTHING, max_size=10))
def test_arbitrary_structures(values: list[Any]) -> None:
    survives(raw(msgpack.packb(values)))


@given(st.lists(st.one_of(ANYTHING, st.tuples(st.integers(0, 11), ANYTHING, ANYTHING, ANYTHING)), max_size=5))
def test_arbitrary_frames(frames: list[Any]) -> None:
    survives(raw(fields(*frames)))


MUTATIONS: list[Callable[[bytearray, int, int], None]] = [
    lambda data, at, value: data.__setitem__(at % len(data), value),
    lambda data, at, value: data.insert(at % len(data), value),
    lambda data, at, _: data.__delitem__(at % len(data)),
    lambda data, at, _: data.__delitem__(slice(at % len(data), None)) if at % len(data) else None,
    lambda data, at, value: data.__setitem__(slice(at % len(data), None), data[at % len(data) :] * (value % 3 + 1)),
]
CHANGES = st.lists(
    st.tuples(st.sampled_from(range(len(MUTATIONS))), st.integers(0, 4000), st.integers(0, 255)), min_size=1, max_size=6
)


def mutate(data: bytes, changes: list[tuple[int, int, int]]) -> bytes:
    mutated = bytearray(data)
    for which, at, value in changes:
        MUTATIONS[which](mutated, at, value)
        mutated = mutated or bytearray(b"\x00")
    return bytes(mutated)


@given(HEADERS, st.lists(FRAMES, max_size=4), CHANGES)
def test_mutated_datagrams(header: Header, frames: list[Frame], changes: list[tuple[int, int, int]]) -> None:
    survives(mutate(encode(header, map(encode_frame, frames)), changes))


@settings(max_examples=300)
@given(st.lists(FRAMES, min_size=1, max_size=4), CHANGES)
@example([Gone(1)], [(0, 0, 0xDD)])
def test_mutated_bodies_behind_a_right_checksum(frames: list[Frame], changes: list[tuple[int, int, int]]) -> None:
    survives(raw(mutate(encode(HEADER, map(encode_frame, frames))[10:], changes)[:65535]))
