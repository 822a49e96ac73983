"""What is not data and waits for the transport to have room: one queue for each node that it goes to.

What makes it grow has a limit of its own. A link has a LINK, a LINKREPLY and an UNLINK here at the most, and a LINK is
taken back when the link is given up before it left. What a link says over and over (credits, control messages of
patterns) waits at the link and is merged or refused there, until everything here has been taken. Only what others make
us say has no such place, answers above all: that is what :attr:`Outbox.full` is for. No link with such a node is agreed
to, and no more of its questions are answered, until it has taken some of the answers.

Rejected: to take nothing more from a node that takes none of our answers. Two such nodes would wait for each other.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import count

from a3m.messages import LINK

MOST_ANSWERS = 65536
MOST_ANSWER_BYTES = 4 * 1024 * 1024  # some carry metadata, and are much larger than what they answer


class Outbox:
    """Messages to one node, first in, first out."""

    __slots__ = ("_numbers", "_queue", "_size")

    def __init__(self) -> None:
        """Nothing waits."""
        self._queue: OrderedDict[int, bytes] = OrderedDict()  # LINK by its conversation, all else by these:
        self._numbers = count(-1, -1)
        self._size = 0

    def __len__(self) -> int:
        """How many messages wait."""
        return len(self._queue)

    @property
    def full(self) -> bool:
        """Whether there is no room for another answer."""
        return len(self._queue) >= MOST_ANSWERS or self._size >= MOST_ANSWER_BYTES

    def add(self, type_: int, mine: int, data: bytes) -> None:
        """Let a message wait that speaks in the conversation ``mine``."""
        key = mine if type_ == LINK else next(self._numbers)
        self._size += len(data) - len(self._queue.get(key, b""))  # a LINK that is said again is the same
        self._queue[key] = data

    @property
    def first(self) -> bytes:
        """The message that has waited longest."""
        return next(iter(self._queue.values()))

    def remove_first(self) -> None:
        """It has been taken."""
        self._size -= len(self._queue.popitem(last=False)[1])

    def retract_link(self, mine: int) -> None:
        """The conversation ``mine`` need not be asked for any more."""
        self._size -= len(self._queue.pop(mine, b""))
