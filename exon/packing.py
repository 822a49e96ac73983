"""Messages to payloads and back: many small messages share one token, a large one is cut into fragments.

A payload begins with its kind (000, section 6.3, Extensible Exon), so that delegation can add kinds later without
touching the protocol:

* ``DELIVER``: a msgpack array of messages, each a bin;
* ``WHOLE``: one message, as it is;
* ``FRAGMENT``: three numbers of eight bytes, ``first``, ``parts`` and ``total``, and a chunk: one of ``parts`` tokens
  with consecutive numbers beginning at ``first`` that together carry one message of ``total`` bytes.

Fragments are acknowledged one by one like any token, so only a lost one is sent again. Memory is bounded by
*reserving* the whole message when its first fragment comes: a message that was begun can always be completed, and two
large messages cannot block each other half-way.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import msgpack
from attrs import Factory, define

from exon.plain import FRAGMENT as FRAGMENT  # noqa: PLC0414  # for those who look for kinds here
from exon.wire import MAX_NUMBER
from exon.wire import pack as encode

DELIVER = 0
WHOLE = 2

BIN_HEADER = 5  # the most msgpack puts in front of a bin
HEADER = 1 + 5  # the kind, and the most that msgpack puts in front of an array
FRAGMENT_HEAD = struct.Struct(">QQQ")
_MIN_CHUNK = 256  # no sender cuts finer, so a message cannot be made to cost more in bookkeeping than in bytes

_READ_ERRORS = (ValueError, TypeError, OverflowError, msgpack.UnpackException, RecursionError)


class BadPacking(Exception):
    """A payload that no correct sender makes."""


class Fragment(NamedTuple):
    """One part of a large message."""

    first: int
    parts: int
    total: int
    chunk: bytes | memoryview


def parts(messages: list[bytes]) -> tuple[int, bytes]:
    """Several whole messages as one payload: its kind, and the rest of it. A message alone is not copied for it."""
    return (WHOLE, messages[0]) if len(messages) == 1 else (DELIVER, encode(messages))


def join(kind: int, *rest: bytes | memoryview) -> bytes:
    """A payload."""
    return b"".join((bytes((kind,)), *rest))


def pack(messages: list[bytes]) -> bytes:
    """Several whole messages as one payload."""
    return join(*parts(messages))


def pack_fragment(fragment: Fragment) -> bytes:
    """One fragment as a payload."""
    return join(FRAGMENT, fragment_head(fragment.first, fragment.parts, fragment.total), fragment.chunk)


def fragment_head(first: int, parts: int, total: int) -> bytes:
    """What stands in front of the chunk of a fragment."""
    return FRAGMENT_HEAD.pack(first, parts, total)


def fits(message: bytes, budget: int) -> bool:
    """Whether a message can be packed into one payload of ``budget`` bytes."""
    return len(message) + HEADER + BIN_HEADER <= budget


def chunk_size(budget: int) -> int:
    """How many bytes of a large message go into one fragment of ``budget`` bytes."""
    return budget - 1 - FRAGMENT_HEAD.size


def unpack(payload: bytes) -> list[Any]:
    """The messages of a ``DELIVER`` or ``WHOLE`` payload."""
    return messages_of(payload[0], payload[1:])


def messages_of(kind: int, rest: bytes | memoryview) -> list[Any]:
    """The messages of a payload of this kind, either of them, whose other bytes are ``rest``."""
    if kind == WHOLE:
        return [rest]
    try:
        messages = msgpack.unpackb(rest, use_list=True)
    except _READ_ERRORS:
        raise BadPacking from None
    if type(messages) is not list or not messages or set(map(type, messages)) != {bytes}:
        raise BadPacking
    return messages


def unpack_fragment(payload: bytes) -> Fragment:
    """The fragment in a ``FRAGMENT`` payload."""
    return fragment_of(memoryview(payload)[1:])


def fragment_of(rest: bytes | memoryview) -> Fragment:
    """The fragment in a payload whose bytes after the kind are ``rest``."""
    if len(rest) <= FRAGMENT_HEAD.size:
        raise BadPacking
    first, parts, total = FRAGMENT_HEAD.unpack_from(rest)
    chunk = rest[FRAGMENT_HEAD.size :]
    if first > MAX_NUMBER or not 2 <= parts <= total // _MIN_CHUNK + 1 or not len(chunk) < total <= MAX_NUMBER:
        raise BadPacking
    return Fragment(first, parts, total, chunk)


@define(eq=False)
class Assembly:
    """A large message under reassembly."""

    parts: int
    total: int
    size: int = 0
    chunks: dict[int, bytes | memoryview] = Factory(dict)

    def add(self, index: int, fragment: Fragment) -> bool:
        """Put one fragment in its place; False when it contradicts the others."""
        if (fragment.parts, fragment.total) != (self.parts, self.total) or index in self.chunks:
            return False
        if self.size + len(fragment.chunk) > self.total:
            return False
        self.chunks[index] = fragment.chunk
        self.size += len(fragment.chunk)
        return True

    def takes(self, index: int, number: int, size: int) -> bool:
        """Whether there is room for so many parts from ``index`` on, which have ``size`` bytes together."""
        here = self.chunks
        size += self.size
        if index < 0 or index + number > self.parts or size > self.total:
            return False
        if len(here) + number == self.parts and size < self.total:
            return False
        return not any(map(here.__contains__, range(index, index + number)))

    @property
    def complete(self) -> bool:
        """Whether every fragment is here."""
        return len(self.chunks) == self.parts

    def message(self) -> bytes:
        """The whole message; :class:`BadPacking` if the parts do not add up to it."""
        if self.size != self.total:
            raise BadPacking
        return b"".join(self.chunks[index] for index in range(self.parts))
