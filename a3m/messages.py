"""What sockets send each other: one msgpack array per message, in one Exon message.

``[type, destination tag, source tag, mine, yours, ...]``: node ids are Exon's business (003, section 4.5.1, leaves them
out for the same reason). ``mine`` and ``yours`` are the incarnations of the two ends, so that a message belongs to
exactly one conversation, however late it arrives; the seed sends only ``mine``, and has to guess in more cases.

Consecutive messages of the application travel as one DATA message, a *run*: encoded by one call, however many they are.
Once a socket knows that the link is established at the other end, the incarnations alone say which one is meant:
``[DATA, lowest 32 bits of mine, yours, first, run]``.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

import msgpack

ERROR, LINK, LINKREPLY, UNLINK, FLOW, DATA = range(1, 7)
FIRST_CONTROL = 7  # the rest of the byte is for the messages of patterns
MOST_NUMBER = 2**63 - 1
LOW = 2**32 - 1
SHORT_FIELDS = 5  # of a DATA message without tags; any other that has so few has no body

_READ_ERRORS = (ValueError, TypeError, OverflowError, msgpack.UnpackException, RecursionError)


class Reply(IntEnum):
    """What a socket answers to the wish for a link (003, section 4.6.4).

    >>> Reply.CLOSED.fatal, Reply.CLOSED.advice
    (True, 'it is closing')
    """

    OK = 0
    TMP_NAVAIL = 1
    LINK_EXISTS = 2
    INCOMPATIBLE = 3
    INCOMING_NOT_ALLOWED = 4
    CANCELED = 5
    CLOSED = 6

    @property
    def fatal(self) -> bool:
        """Whether asking again is useless."""
        return self >= Reply.INCOMPATIBLE

    @property
    def advice(self) -> str:
        """The reason in words, and what to do."""
        return _ADVICE[self]


_ADVICE = {
    Reply.OK: "accepted",
    Reply.TMP_NAVAIL: "it has as many links as it allows at present; it is asked again",
    Reply.LINK_EXISTS: "an earlier link is still being closed there; it is asked again",
    Reply.INCOMPATIBLE: "the patterns do not fit together; link for example PUSH with PULL, REQ with REP or ROUTER",
    Reply.INCOMING_NOT_ALLOWED: "it takes no links from others (accept_links, or its own check); let it link to us",
    Reply.CANCELED: "it was unlinked there while the link was being made",
    Reply.CLOSED: "it is closing",
}


class Metadata(NamedTuple):
    """What a socket tells about itself when a link is made."""

    protocol: str
    capacity: int  # how many messages may be sent to it before it returns credits
    life: int  # of its node: another one means that the node has lost its memory
    custom: Any = None  # whatever the application adds, msgpack-able


class Message(NamedTuple):
    """One message between two sockets."""

    type: int
    to: str
    sender: str
    mine: int
    yours: int
    body: tuple[Any, ...] = ()


class Malformed(Exception):
    """No message of ours."""


def encode(message: Message) -> bytes:
    """A message as bytes."""
    type_, to, sender, mine, yours, body = message
    encoded: bytes = msgpack.packb((type_, to, sender, mine, yours, *body))
    return encoded


def decode(data: bytes) -> Message:
    """The message in ``data``, or :class:`Malformed`. The body is checked by whoever reads it.

    >>> decode(msgpack.packb([DATA, 1, 2, 0, [b"without tags"]]))
    Message(type=6, to='', sender='', mine=1, yours=2, body=(0, [b'without tags']))
    """
    fields = unpack(data)
    if len(fields) == SHORT_FIELDS and fields[0] == DATA:
        type_, mine, yours, *body = fields
        return Message(type_, "", "", mine, yours, tuple(body))
    return check(fields)


def with_last(data: bytes, last: bytes) -> bytes:
    """A message whose last field is None, with another one in its place that is encoded already.

    >>> with_last(msgpack.packb([1, 2, None]), msgpack.packb("last")) == msgpack.packb([1, 2, "last"])
    True
    """
    return data[:-1] + last  # None is a single byte, and the head of an array says how many fields there are


def unpack(data: bytes | memoryview) -> list[Any]:
    """The fields of a message, of which nothing but the number is certain."""
    try:
        fields = msgpack.unpackb(data, use_list=True, strict_map_key=False)
    except _READ_ERRORS:
        raise Malformed from None
    if type(fields) is not list or len(fields) < 5:
        raise Malformed
    return fields


def check(fields: list[Any]) -> Message:
    """The message with these fields, or :class:`Malformed`."""
    type_, to, sender, mine, yours = fields[:5]
    if type(to) is not str or type(sender) is not str or not to or not sender:
        raise Malformed
    if not all(type(number) is int and 0 <= number <= MOST_NUMBER for number in (mine, yours)):
        raise Malformed
    if type(type_) is not int or not 0 < type_ < 256:
        raise Malformed
    return Message(type_, to, sender, mine, yours, tuple(fields[5:]))


def metadata_of(fields: tuple[Any, ...]) -> Metadata:
    """Metadata from the body of a message, or :class:`Malformed`."""
    if len(fields) != 4 or type(fields[0]) is not str or not _counts(fields[1:3]):
        raise Malformed
    return Metadata(*fields)


def numbers_of(body: tuple[Any, ...], count: int) -> tuple[int, ...]:
    """A body of ``count`` numbers that are not negative, or :class:`Malformed`."""
    if len(body) != count or not _counts(body):
        raise Malformed
    return body


def _counts(values: tuple[Any, ...]) -> bool:
    return all(type(value) is int and 0 <= value <= MOST_NUMBER for value in values)
