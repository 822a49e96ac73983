"""Publications, and how runs of them travel: in columns.

A publication is ``(topic, body)``. A run of them travels as ``[None, topics, bodies]``, with one topic for all of them
or one for each. So both ends look at whole columns, at the speed of C, and the topic of a stream travels once in a
datagram. What subscribers with the same wishes are sent differs in its head alone, so a run that several links have in
common is encoded once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate, repeat
from operator import add, countOf, itemgetter
from typing import Any, NamedTuple

import msgpack

from a3m.flow import Item
from a3m.messages import Malformed
from a3m.payload import is_body, size_of

TOPIC: Callable[[tuple[str, Any]], str] = itemgetter(0)
BODY: Callable[[tuple[str, Any]], Any] = itemgetter(1)

_MOST = 4096  # publications in a run
_REMEMBERED = 16  # runs
_HEAD = 16  # bytes that a run takes besides its topics and bodies
_COST = 5  # bytes that a topic or a body takes besides its own, at the most


def unfold(first: Any, run: Any, make: Callable[[tuple[str, Any]], Item]) -> tuple[list[Item], bool]:
    """The publications of a run that came, and whether all bodies are plain; :class:`Malformed` if it is no such run.

    >>> unfold(0, [None, ["a"], [b"x", b"y"]], make=list)
    ([['a', b'x'], ['a', b'y']], True)
    """
    if type(first) is not int or type(run) is not list or len(run) != 3 or run[0] is not None:
        raise Malformed
    _, topics, bodies = run
    if type(topics) is not list or type(bodies) is not list or countOf(map(type, topics), str) != len(topics):
        raise Malformed
    if not 0 < len(bodies) <= _MOST:  # more would be made into as many objects before anybody asks for credit
        raise Malformed
    plain = countOf(map(type, bodies), bytes) == len(bodies)
    if not plain and not all(map(is_body, bodies)):
        raise Malformed
    if len(topics) == 1:
        return [*map(make, zip(repeat(topics[0]), bodies))], plain
    if len(topics) != len(bodies):
        raise Malformed
    return [*map(make, zip(topics, bodies, strict=True))], plain


def largest(run: list[Item], plain: bool) -> int:
    """The size of the largest of these publications, or a little more than that."""
    bodies = map(BODY, run)
    return max(map(len, bodies) if plain else map(size_of, bodies)) + 4 * max(map(len, map(TOPIC, run)))


class _Run(NamedTuple):
    items: list[Item]
    encoded: bytes
    most: int
    cut: bool  # whether there was more than fitted


class Runs:
    """Takes runs from the queues of links, and encodes those that links have in common once."""

    def __init__(self, pack: Callable[[Any], bytes]) -> None:
        """Encode with ``pack``."""
        self._pack = pack
        self._known: dict[int, _Run] = {}  # by the identity of their first publications, which they keep alive

    def forget(self) -> None:
        """Links have other things to send from now on: keep no messages."""
        self._known.clear()

    def next(self, queue: list[Item], most: int) -> tuple[list[Item], bytes]:
        """The first publications of a queue, in ``most`` bytes if the first fits, and how they travel."""
        known = self._known.get(id(queue[0]))
        if known is not None and known.most == most:
            size = len(known.items)
            if len(queue) == size or (known.cut and len(queue) > size):
                items = queue[:size]
                if items == known.items:  # quick, because they are the same objects
                    return items, known.encoded
        items, topics, bodies = _first(queue, most)
        # A packer keeps its buffer, so that of large messages is not for keeps.
        pack = self._pack if len(items) > 1 or size_of(items[0]) < most else msgpack.packb
        encoded = pack([None, topics, bodies])
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        self._known[id(items[0])] = _Run(items, encoded, most, len(items) < len(queue))
        return items, encoded


def _first(queue: list[Item], most: int) -> tuple[list[Item], list[str], list[Any]]:
    """The publications that make up the next run, and its columns."""
    each = 2 * _COST
    most -= _HEAD
    # As many as would fit if all were like the first and the last of them. What that leaves room for is not much.
    typical = each + (size_of(queue[0][1]) + size_of(queue[-1][1])) // 2
    items = queue[: max(1, min(_MOST, (most - len(queue[0][0])) // typical))]
    topics, bodies = [*map(TOPIC, items)], [*map(BODY, items)]
    size = len if countOf(map(type, bodies), bytes) == len(bodies) else size_of
    same = countOf(topics, topics[0]) == len(topics)
    if same:
        del topics[1:]
        most -= len(topics[0].encode())
    if not same or sum(map(size, bodies)) + each * len(bodies) > most:
        sizes = map(size, bodies) if same else map(add, map(size, bodies), map(len, map(str.encode, topics)))
        ends = [*accumulate(sizes)]
        length = max(1, bisect_right(range(len(ends)), most, key=lambda last: ends[last] + each * (last + 1)))
        del items[length:], bodies[length:]
        if not same:
            del topics[length:]
    return items, topics, bodies
