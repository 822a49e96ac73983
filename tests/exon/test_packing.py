"""Messages to payloads and back."""

from __future__ import annotations

import random
import struct

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exon import packing
from exon.packing import Assembly, BadPacking, Fragment, pack, pack_fragment, unpack, unpack_fragment

MESSAGES = st.lists(st.binary(max_size=300), min_size=1, max_size=40)


def payload(kind: int, value: object) -> bytes:
    packed: bytes = msgpack.packb(value)
    return bytes([kind]) + packed


@given(MESSAGES)
def test_messages_read_back_in_order(messages: list[bytes]) -> None:
    packed = pack(messages)
    assert packed[0] == (packing.WHOLE if len(messages) == 1 else packing.DELIVER)
    assert unpack(packed) == messages


@given(MESSAGES)
def test_headers_never_take_more_than_was_foreseen(messages: list[bytes]) -> None:
    foreseen = packing.HEADER + sum(len(message) + packing.BIN_HEADER for message in messages)
    assert len(pack(messages)) <= foreseen


@pytest.mark.parametrize("size", [0, 1, 255, 256, 65535, 65536])
def test_what_fits_really_fits(size: int) -> None:
    message = bytes(size)
    assert packing.fits(message, size + packing.HEADER + packing.BIN_HEADER)
    assert len(pack([message])) <= size + packing.HEADER + packing.BIN_HEADER
    assert not packing.fits(message, size)


@pytest.mark.parametrize(
    "bad",
    [b"\x00", b"\x00\xc1", pack([b"x", b"y"])[:-1], pack([b"x", b"y"]) + b"\x00"]
    + [payload(0, value) for value in ([], None, 7, b"x", "x", {"a": b"x"}, [b"x", "y"], [b"x", 1], [b"x", [b"y"]])],
)
def test_no_messages(bad: bytes) -> None:
    with pytest.raises(BadPacking):
        unpack(bad)


@given(st.binary(max_size=60))
def test_arbitrary_payloads_are_read_or_refused(data: bytes) -> None:
    for kind in (b"\x00", b"\x01"):
        try:
            if kind == b"\x00":
                messages = unpack(kind + data)
                assert messages
                assert all(type(message) is bytes for message in messages)
            else:
                assert len(unpack_fragment(kind + data).chunk) > 0
        except BadPacking:
            pass


# -- fragments --------------------------------------------------------------------------------------------------------


def cut(message: bytes, chunk: int, first: int = 0) -> list[bytes]:
    """The payloads of a large message, as a sender makes them."""
    parts = -(-len(message) // chunk)
    return [
        pack_fragment(Fragment(first, parts, len(message), message[at * chunk : (at + 1) * chunk]))
        for at in range(parts)
    ]


@given(st.integers(256, 1500), st.integers(1, 20_000), st.integers(0, 2**63 - 1), st.randoms(use_true_random=False))
def test_fragments_in_any_order_make_the_message(chunk: int, extra: int, first: int, shuffle: random.Random) -> None:
    message = shuffle.randbytes(chunk + extra)
    order = list(enumerate(map(unpack_fragment, cut(message, chunk, first))))
    shuffle.shuffle(order)
    assembly = Assembly(order[0][1].parts, order[0][1].total)
    for index, fragment in order:
        assert not assembly.complete
        assert fragment.first == first
        assert assembly.add(index, fragment)
    assert assembly.complete
    assert assembly.message() == message


@pytest.mark.parametrize("budget", [507, 1000, 9000, 65400])
@pytest.mark.parametrize("number", [0, 2**63 - 1])
def test_a_fragment_keeps_to_its_budget(budget: int, number: int) -> None:
    chunk = bytes(packing.chunk_size(budget))
    fragment = Fragment(number, 2**40, 2**62, chunk)
    assert len(pack_fragment(fragment)) <= budget
    assert unpack_fragment(pack_fragment(fragment)) == fragment


CHUNK = bytes(256)


def fragment(first: int, parts: int, total: int, chunk: bytes) -> bytes:
    return b"\x01" + struct.pack(">QQQ", first, parts, total) + chunk


@pytest.mark.parametrize(
    "bad",
    [
        b"\x01",
        fragment(0, 2, 512, b""),
        fragment(0, 2, 512, CHUNK)[:24],
        fragment(2**63, 2, 512, CHUNK),
        fragment(0, 2, 2**63, CHUNK),
        fragment(0, 0, 512, CHUNK),
        fragment(0, 1, 512, CHUNK),  # would be no fragment
        fragment(0, 4, 512, CHUNK),  # cut finer than any sender does
        fragment(0, 2, 256, CHUNK),  # the whole message is in the first part
        fragment(0, 2, 100, CHUNK),
    ],
)
def test_no_fragment(bad: bytes) -> None:
    assert unpack_fragment(fragment(0, 2, 512, CHUNK)) == Fragment(0, 2, 512, CHUNK)
    with pytest.raises(BadPacking):
        unpack_fragment(bad)


def started() -> Assembly:
    assembly = Assembly(3, 700)
    assert assembly.add(0, Fragment(0, 3, 700, bytes(300)))
    return assembly


@pytest.mark.parametrize(
    ("index", "fragment"),
    [
        (0, Fragment(0, 3, 700, bytes(300))),  # the same place again
        (1, Fragment(0, 2, 700, bytes(300))),  # another number of parts
        (1, Fragment(0, 3, 701, bytes(300))),  # another size
        (1, Fragment(0, 3, 700, bytes(401))),  # more than there can be
    ],
)
def test_contradictions_are_refused_and_change_nothing(index: int, fragment: Fragment) -> None:
    assembly = started()
    assert not assembly.add(index, fragment)
    assert (assembly.size, list(assembly.chunks)) == (300, [0])
    assert assembly.add(1, Fragment(0, 3, 700, bytes(300)))
    assert assembly.add(2, Fragment(0, 3, 700, bytes(100)))
    assert assembly.message() == bytes(700)


def test_parts_that_do_not_add_up_make_no_message() -> None:
    assembly = started()
    assert assembly.add(1, Fragment(0, 3, 700, bytes(10)))
    assert assembly.add(2, Fragment(0, 3, 700, bytes(10)))
    assert assembly.complete
    with pytest.raises(BadPacking):
        assembly.message()
