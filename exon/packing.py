"""Messages to payloads and back: many small messages share one token, a large one is cut into fragments.

A payload begins with its kind (000, section 6.3, Extensible Exon), so that delegation can add kinds later without
touching the protocol:

* ``DELIVER``: a msgpack array of messages, each a bin;
* ``WHOLE``: one message, as it is;
* ``FRAGMENT``: ``[first, parts, total, chunk]``, one of ``parts`` tokens with consecutive numbers beginning at
  ``first`` that together carry one message of ``total`` bytes.

Fragments are acknowledged one by one like any token, so only a lost one is sent again. Memory is bounded by
*reserving* the whole message when its first fragment comes: a message that was begun can always be completed, and two
large messages cannot block each other half-way.
"""

from __future__ import annotations

from typing import NamedTuple

import msgpack
from attrs import Factory, define

from exon.wire import pack as encode

DELIVER = 0
FRAGMENT = 1
WHOLE = 2

BIN_HEADER = 5  # the most msgpack puts in front of a bin
HEADER = 1 + 5  # the kind, and the most that msgpack puts in front of an array
_FRAGMENT_HEADER = 1 + 1 + 3 * 9 + BIN_HEADER
_MIN_CHUNK = 256  # no sender cuts finer, so a message cannot be made to cost more in bookkeeping than in bytes

_READ_ERRORS = (ValueError, TypeError, OverflowError, msgpack.UnpackException, RecursionError)


class BadPacking(Exception):
    """A payload that no correct sender makes."""


class Fragment(NamedTuple):
    """One part of a large message."""

    first: int
    parts: int
    total: int
    chunk: bytes


def pack(messages: list[bytes]) -> bytes:
    """Several whole messages as one payload."""
    return b"\x02" + messages[0] if len(messages) == 1 else b"\x00" + encode(messages)


def pack_fragment(fragment: Fragment) -> bytes:
    """One fragment as a payload."""
    return b"\x01" + encode(fragment)


def fits(message: bytes, budget: int) -> bool:
    """Whether a message can be packed into one payload of ``budget`` bytes."""
    return len(message) + HEADER + BIN_HEADER <= budget


def chunk_size(budget: int) -> int:
    """How many bytes of a large message go into one fragment of ``budget`` bytes."""
    return budget - _FRAGMENT_HEADER


def unpack(payload: bytes) -> list[bytes]:
    """The messages of a ``DELIVER`` or ``WHOLE`` payload."""
    if payload[0] == WHOLE:
        return [payload[1:]]
    try:
        messages = msgpack.unpackb(memoryview(payload)[1:], use_list=True)
    except _READ_ERRORS:
        raise BadPacking from None
    if type(messages) is not list or not messages or set(map(type, messages)) != {bytes}:
        raise BadPacking
    return messages


def unpack_fragment(payload: bytes) -> Fragment:
    """The fragment in a ``FRAGMENT`` payload."""
    try:
        fields = msgpack.unpackb(memoryview(payload)[1:], use_list=True)
    except _READ_ERRORS:
        raise BadPacking from None
    if type(fields) is not list or len(fields) != 4 or type(fields[3]) is not bytes or not fields[3]:
        raise BadPacking
    if any(type(number) is not int or number < 0 for number in fields[:3]):
        raise BadPacking
    fragment = Fragment(*fields)
    if not (2 <= fragment.parts <= fragment.total // _MIN_CHUNK + 1 and len(fragment.chunk) < fragment.total):
        raise BadPacking
    return fragment


@define(eq=False)
class Assembly:
    """A large message under reassembly."""

    parts: int
    total: int
    size: int = 0
    chunks: dict[int, bytes] = Factory(dict)

    def add(self, index: int, fragment: Fragment) -> bool:
        """Put one fragment in its place; False when it contradicts the others."""
        if (fragment.parts, fragment.total) != (self.parts, self.total) or index in self.chunks:
            return False
        if self.size + len(fragment.chunk) > self.total:
            return False
        self.chunks[index] = fragment.chunk
        self.size += len(fragment.chunk)
        return True

    @property
    def complete(self) -> bool:
        """Whether every fragment is here."""
        return len(self.chunks) == self.parts

    def message(self) -> bytes:
        """The whole message; :class:`BadPacking` if the parts do not add up to it."""
        if self.size != self.total:
            raise BadPacking
        return b"".join(self.chunks[index] for index in range(self.parts))
