"""Payloads: what applications give and get, and the form in which it travels.

An application's message is ``bytes`` (or anything like it), or a sequence of parts that stay together. It travels as
bytes or as a list of parts; where a way back has to be remembered (REQ, ROUTER), as ``[None, route, either]``, so that
no byte of the payload is ever taken for an address. What is published is ``(topic, either)``, and travels in runs of
its own kind: see :mod:`a3m.publications`.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import countOf
from typing import Any

import msgpack

from a3m.errors import BadPayload, MessageTooLarge
from a3m.flow import Item
from a3m.messages import Malformed

Part = bytes | bytearray | memoryview
Payload = Part | Sequence[Part]
OVERHEAD = 1024  # bytes of a message that are not payload, at the most
MOST_HOPS = 64  # of a route
_MOST_METADATA = 16 * 1024  # bytes
_PART = 5  # bytes that a part or a hop takes besides its own, at the most


def to_item(payload: Payload, limit: int) -> Item:
    """A payload as it travels."""
    item: Item
    if type(payload) is bytes:
        if len(payload) <= limit - OVERHEAD:
            return payload
        item = payload
    elif isinstance(payload, (bytes, bytearray, memoryview)):
        item = bytes(payload)
    else:
        item = _parts(payload)
        if len(item) == 1:
            item = item[0]
    return check_size(item, limit)


def check_size(item: Item, limit: int) -> Item:
    """The message itself, if one may be that large."""
    size = size_of(item)
    if size > limit - OVERHEAD:
        raise MessageTooLarge(
            f"the message has {size} bytes, at most {limit - OVERHEAD} are allowed; send it in several messages, or "
            "raise max_message in the node's options on both sides"
        )
    return item


def size_of(item: Item) -> int:
    """How large a message is where it travels, with its way and what its parts cost.

    >>> size_of(b"abc"), size_of([b"abc", b""]), size_of([None, ["node/tag"], b"abc"]), size_of(("topic", b"abc"))
    (3, 13, 16, 13)
    """
    if type(item) is bytes:
        return len(item)
    if isinstance(item, tuple):
        return len(item[0].encode()) + _PART + size_of(item[1])
    if item[0] is None:
        return size_of(item[2]) + len("".join(item[1]).encode()) + _PART * len(item[1])
    return sum(map(len, item)) + _PART * len(item)


def _parts(payload: Any) -> list[bytes]:
    if isinstance(payload, str) or not isinstance(payload, Sequence):
        advice = (
            "encode text with .encode()" if isinstance(payload, str) else "serialise it first, for example with msgpack"
        )
        raise BadPayload(f"a payload is bytes or a sequence of bytes, not {type(payload).__name__}; {advice}")
    if not payload:
        raise BadPayload("a message of parts needs at least one part; an empty message is b''")
    parts = []
    for part in payload:
        if not isinstance(part, (bytes, bytearray, memoryview)):
            raise BadPayload(f"each part of a message is bytes, not {type(part).__name__}; encode text with .encode()")
        parts.append(bytes(part))
    return parts


def check_metadata(metadata: Any, limit: int) -> None:
    """Raise unless this can be told to a peer."""
    try:
        size = len(msgpack.packb(metadata))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise BadPayload(f"metadata is plain data, such as msgpack can write; this is not: {error}") from None
    most = min(_MOST_METADATA, limit - OVERHEAD)
    if size > most:
        raise MessageTooLarge(f"metadata has at most {most} bytes, this has {size}; send the rest as a message")


def routed(route: Sequence[str], body: Item) -> Item:
    """A body with its way back."""
    return [None, list(route), body] if route else body


def split(item: Item) -> tuple[tuple[str, ...], Item]:
    """The way back, and the body."""
    if type(item) is list and item[0] is None:
        return tuple(item[1]), item[2]
    return (), item


def from_body(body: Item) -> bytes | tuple[bytes, ...]:
    """What the application gets: bytes, or a tuple of parts."""
    return body if type(body) is bytes else tuple(body)


def check_run(first: Any, run: Any) -> bool:
    """Whether all messages of a run are plain bytes. Raises :class:`Malformed` if it is no run.

    >>> check_run(0, [b"a", b"b"]), check_run(0, [b"a", [b"b", b"c"]])
    (True, False)
    """
    if type(first) is not int or type(run) is not list or not run:
        raise Malformed
    if len(run) == 1:
        if type(run[0]) is bytes:
            return True
        if is_item(run[0]):
            return False
        raise Malformed
    if countOf(map(type, run), bytes) == len(run):
        return True
    if not all(map(is_item, run)):
        raise Malformed
    return False


def is_item(item: Any) -> bool:
    """Whether something that came over the network is a message."""
    if type(item) is bytes:
        return True
    if type(item) is not list or not item:
        return False
    if item[0] is None:
        if len(item) != 3:
            return False
        _, route, body = item
        return (
            type(route) is list
            and 0 < len(route) <= MOST_HOPS
            and countOf(map(type, route), str) == len(route)
            and (type(body) is bytes or is_body(body))
        )
    return is_body(item)


def is_body(body: Any) -> bool:
    """Whether something that came over the network is a payload."""
    return type(body) is bytes or (type(body) is list and bool(body) and all(type(part) is bytes for part in body))
