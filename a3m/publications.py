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
from typing import Any

import msgpack

from a3m.flow import Item
from a3m.messages import Malformed
from a3m.payload import is_body, size_of

TOPIC: Callable[[tuple[str, Any]], str] = itemgetter(0)
BODY: Callable[[tuple[str, Any]], Any] = itemgetter(1)

_MOST = 4096  # publications in a run
_HEAD = 16  # bytes that a run takes besides its topics and bodies
_COST = 5  # bytes that a topic or a body takes besides its own, at the most


def fold(run: list[Item]) -> list[Any]:
    """A run of publications as it travels.

    >>> fold([("a", b"x"), ("a", b"y")]), fold([("a", b"x"), ("b", [b"y", b"z"])])
    ([None, ['a'], [b'x', b'y']], [None, ['a', 'b'], [b'x', [b'y', b'z']]])
    """
    topics = [*map(TOPIC, run)]
    if countOf(topics, topics[0]) == len(topics):
        del topics[1:]
    return [None, topics, [*map(BODY, run)]]


def unfold(first: Any, run: Any) -> tuple[list[Item], bool]:
    """The publications of a run that came, and whether all bodies are plain; :class:`Malformed` if it is no such run.

    >>> unfold(0, [None, ["a"], [b"x", b"y"]])
    ([('a', b'x'), ('a', b'y')], True)
    """
    if type(first) is not int or type(run) is not list or len(run) != 3 or run[0] is not None:
        raise Malformed
    _, topics, bodies = run
    if type(topics) is not list or type(bodies) is not list or countOf(map(type, topics), str) != len(topics):
        raise Malformed
    plain = countOf(map(type, bodies), bytes) == len(bodies)
    if not plain and not all(map(is_body, bodies)):
        raise Malformed
    if len(topics) == 1:
        return [*zip(repeat(topics[0]), bodies)], plain
    if len(topics) != len(bodies):
        raise Malformed
    return [*zip(topics, bodies, strict=True)], plain


def largest(run: list[Item], plain: bool) -> int:
    """The size of the largest of these publications, or a little more than that."""
    bodies = map(BODY, run)
    return max(map(len, bodies) if plain else map(size_of, bodies)) + 4 * max(map(len, map(TOPIC, run)))


class Runs:
    """Takes runs from the queues of links, and encodes each once as long as link after link has the same to send."""

    def __init__(self, pack: Callable[[Any], bytes]) -> None:
        """Encode with ``pack``."""
        self._pack = pack
        self.forget()

    def forget(self) -> None:
        """The next links have something else to send: keep no messages."""
        self._run: list[Item] = []
        self._encoded = b""
        self._most = 0
        self._cut = False  # whether there was more than fitted

    def next(self, queue: list[Item], most: int) -> tuple[list[Item], bytes]:
        """The first publications of a queue, in ``most`` bytes if the first fits, and how they travel."""
        known = len(self._run)
        if known and most == self._most and (len(queue) == known or (self._cut and len(queue) > known)):
            run = queue[:known]
            if run == self._run:  # quick, because they are the same objects
                return run, self._encoded
        run = queue[: _length(queue, most)]
        # A packer keeps its buffer, so that of large messages is not for keeps.
        pack = self._pack if len(run) > 1 or size_of(run[0]) < most else msgpack.packb
        self._run, self._encoded, self._most = run, pack(fold(run)), most
        self._cut = len(run) < len(queue)
        return run, self._encoded


def _length(queue: list[Item], most: int) -> int:
    """How many publications make up the next run."""
    if len(queue) == 1:
        return 1
    # Twice as many as would fit if all were like the first and the last of them: usually enough to find the end.
    typical = _COST + (size_of(queue[0][1]) + size_of(queue[-1][1])) // 2
    some = queue[: min(_MOST, 2 * most // typical + 2)]
    topics, bodies = [*map(TOPIC, some)], [*map(BODY, some)]
    sizes = map(len, bodies) if countOf(map(type, bodies), bytes) == len(bodies) else map(size_of, bodies)
    if countOf(topics, topics[0]) == len(topics):
        most -= len(topics[0].encode())
    else:
        sizes = map(add, sizes, map(len, map(str.encode, topics)))
    ends = [*accumulate(sizes)]
    each = 2 * _COST
    most -= _HEAD
    if ends[-1] + each * len(ends) <= most:
        return len(ends)
    return max(1, bisect_right(range(len(ends)), most, key=lambda last: ends[last] + each * (last + 1)))
