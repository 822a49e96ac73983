"""Messages with numbers, and the account of those that came.

Making and checking a message must not cost as much as sending it. So there is a *cycle* of messages, each with its
number, that is sent again and again, and links keep the order: a receiver compares whole lists with what has to come
next, which C does. Only where the two differ it looks at single messages, to see what is missing, came twice, or is
damaged. A loss of exactly one cycle would go unnoticed there, and is found by the count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attrs import define, field, frozen

MOST_AT_ONCE = 1000  # messages that are sent, received or checked at a time
END = b""  # follows the last message; no message is empty

_LENGTH = 1021  # messages in a cycle: a prime, so that no batch is a whole number of cycles
_SMALL_LENGTH = 251  # of what has one byte for its number
_BYTES = 4 << 20  # of a cycle, as far as three messages have less


def cycle_of(size: int) -> list[bytes]:
    """Messages of a size, with their numbers in front.

    >>> [message.hex() for message in cycle_of(3)[:2]], len(cycle_of(3)), len(cycle_of(1_000_000))
    (['000000', '000100'], 1021, 4)
    """
    width = min(size, 2)
    length = _SMALL_LENGTH if size == 1 else max(3, min(_LENGTH, _BYTES // size))
    padding = bytes(size - width)
    return [number.to_bytes(width, "big") + padding for number in range(length)]


def in_batches(cycle: Sequence[bytes], most: int) -> Iterator[list[bytes]]:
    """The cycle again and again, without end."""
    belt = [*cycle] * (most // len(cycle) + 2)
    at = 0
    while True:
        yield belt[at : at + most]
        at = (at + most) % len(cycle)


@frozen
class Account:
    """What a receiver has to say about the messages it got."""

    received: int = 0
    lost: int = 0
    doubled: int = 0
    damaged: int = 0

    def is_exact(self, sent: int) -> bool:
        """Whether each of so many messages came once, as it was."""
        return self.received == sent and not self.lost and not self.doubled and not self.damaged


@define
class Tally:
    """Counts messages, and compares them with those that have to come.

    >>> tally = Tally(cycle_of(8))
    >>> messages = cycle_of(8)
    >>> tally.take(messages[:5])
    >>> tally.take([messages[4], messages[7], b"what?"])
    >>> tally.account()
    Account(received=8, lost=2, doubled=1, damaged=1)
    """

    _cycle: list[bytes]
    _belt: list[bytes] = field(init=False)
    _next: int = 0
    received: int = 0
    _lost: int = 0
    _doubled: int = 0
    _damaged: int = 0

    def __attrs_post_init__(self) -> None:
        """Long enough for a comparison to begin anywhere in the cycle."""
        self._belt = self._cycle * (MOST_AT_ONCE // len(self._cycle) + 2)

    def take(self, messages: list[bytes]) -> None:
        """Some messages came, in this order; :data:`MOST_AT_ONCE` at the most."""
        count = len(messages)
        self.received += count
        if messages == self._belt[self._next : self._next + count]:
            self._next = (self._next + count) % len(self._cycle)
        else:
            for message in messages:
                self._look_at(message)

    def _look_at(self, message: bytes) -> None:
        length = len(self._cycle)
        number = int.from_bytes(message[: min(2, len(self._cycle[0]))], "big")
        if number >= length or message != self._cycle[number]:
            self._damaged += 1
            self._next = (self._next + 1) % length  # in the place of what it should have been
            return
        ahead = (number - self._next) % length
        if ahead > length // 2:
            self._doubled += 1
        else:
            self._lost += ahead
            self._next = (number + 1) % length

    def take_late(self, messages: list[bytes]) -> None:
        """Messages came after the end, so they had come before."""
        self.received += len(messages)
        self._doubled += len(messages)

    def account(self) -> Account:
        """What came so far."""
        return Account(self.received, self._lost, self._doubled, self._damaged)
