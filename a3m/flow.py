"""Credits and order of one link (003, section 4.7): what may be sent, and what has come.

The receiver hands out credits, one per message it has room for; a message uses one up, and taking it out of the queue
gives it back, a batch at a time. Credits are only ever added to or taken from, never set, so it does not matter in
which order the messages about them arrive; a sender whose credit was taken away while it was using it has a debt.

At any moment: capacity = credits at the sender + messages on the way + queued + not yet given back.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from attrs import Factory, define, field

_GROWN_BYTES = 8 << 20  # that a link may hold, if nobody has said how many messages
_COST = 64  # bytes that a message takes besides its own

Item = Any  # a message: bytes, a list of parts, [None, route, either of these], or (topic, either of these)


@define(eq=False)
class Outgoing:
    """The sending side of a link."""

    credits: int = 0
    sent: int = 0  # messages accepted, and the number of the next one
    settled: int = 0  # messages that the peer's application has taken, as far as it said so, or that are reported
    queue: list[Item] = Factory(list)  # accepted, not yet handed to the transport
    mixed: bool = False  # whether not all of them are plain bytes

    @property
    def ready(self) -> bool:
        """Whether another message may be accepted."""
        return self.credits > 0

    def push(self, item: Item) -> None:
        """Accept a message."""
        assert self.credits > 0, "a message without credit"
        self.credits -= 1
        self.sent += 1
        self.queue.append(item)
        if type(item) is not bytes:
            self.mixed = True

    def push_many(self, items: list[Item]) -> None:
        """Accept messages, all of them plain bytes or all publications, for all of which there is credit."""
        assert self.credits >= len(items), "messages without credit"
        self.credits -= len(items)
        self.sent += len(items)
        self.queue += items

    @property
    def unsure(self) -> int:
        """Messages that left, of which nobody has said that the peer's application took them."""
        return self.sent - len(self.queue) - self.settled

    def next_run(self, count: int) -> tuple[int, list[Item]]:
        """The number of the next message to be handed over, and ``count`` messages from it on."""
        return self.sent - len(self.queue), self.queue[:count]


@define(eq=False)
class Incoming:
    """The receiving side of a link."""

    capacity: int
    batch: float  # the share of the capacity that is given back at once
    ordered: bool
    most: int = 0  # what the capacity may grow to by itself
    largest: int = 0  # bytes in a message that came, looked at while the capacity may grow
    granted: int = 0  # credits ever given; those taken away may be in use before the sender knows
    received: int = 0  # messages that arrived
    goal: int | None = None  # messages that the peer ever sent, once it said so
    queue: deque[Item] = Factory(deque)  # for the application, in order if that was promised
    mixed: bool = False  # whether anything ever came that was not plain bytes
    owed: int = 0  # taken by the application, not yet given back
    done: int = 0  # taken by the application in all
    batch_size: int = field(init=False, default=0)  # how many credits are given back at a time
    _next: int = 0
    _early: dict[int, list[Item]] = Factory(dict)  # runs that overtook others

    def __attrs_post_init__(self) -> None:
        """The metadata gave as many credits as there is capacity."""
        self.granted = self.capacity
        self._set_batch_size()

    def _set_batch_size(self) -> None:
        self.batch_size = max(1, int(self.capacity * self.batch))

    def accept(self, first: int, items: list[Item]) -> bool:
        """Take in a run of messages; False if the peer had no right to send it."""
        if self.received + len(items) > self.granted or (self.goal is not None and first + len(items) > self.goal):
            return False
        self.received += len(items)
        if not self.ordered or first == self._next:
            self._next = first + len(items)
            self.queue.extend(items)
            while self._early and (run := self._early.pop(self._next, None)) is not None:
                self._next += len(run)
                self.queue.extend(run)
        elif first < self._next or first in self._early:
            return False
        else:
            self._early[first] = items
        return True

    def clear(self) -> None:
        """Forget what has come."""
        self.queue.clear()
        self._early.clear()

    @property
    def early(self) -> int:
        """How many messages wait for others that come before them."""
        return sum(map(len, self._early.values()))

    @property
    def all_here(self) -> bool:
        """Whether everything that the peer ever sent has arrived."""
        return self.goal is not None and self.received >= self.goal

    @property
    def until_batch(self) -> int:
        """How many messages have to be taken until credits are given back."""
        return max(1, self.batch_size - self.owed)

    def taken(self, count: int = 1) -> int:
        """The application took messages; the credits to give back now, often none."""
        self.owed += count
        self.done += count
        return self._give(0) if self.owed >= self.batch_size else 0

    def grow(self) -> int:
        """Have twice the capacity, if it may be and messages are small; the credits to give, often none.

        For when the application takes all that come: a sender that may have more on the way sends more at a time.
        """
        capacity = 2 * self.capacity
        if capacity > self.most or capacity * (self.largest + _COST) > _GROWN_BYTES:
            return 0
        return self.resize(capacity)

    def resize(self, capacity: int) -> int:
        """Have another capacity; the credits to give, or to take away."""
        change = capacity - self.capacity
        self.capacity = capacity
        self._set_batch_size()
        # With a smaller capacity what is owed may be a batch, and all there is: nothing else would ever return it.
        return self._give(change)

    def _give(self, change: int) -> int:
        """The credits to give, with those that are owed if they make up a batch."""
        returned = 0
        if self.owed >= self.batch_size:
            returned, self.owed = self.owed, 0
        self.granted += max(0, change) + returned
        return change + returned
