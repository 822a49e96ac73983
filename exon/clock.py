"""The node clock: the single integer that outlives every half-connection (001, section III.C; 000, section 3.5.2).

Numbers handed out by the clock name slots and incarnations, so a number must never come back after a crash. The
clock is therefore saved *ahead*: before a number at or above the saved limit may be used, a whole block is reserved.
A crash skips the rest of the block and never reuses a number. Saving at exit, as the first implementation did, loses
exactly the case that matters.
"""

from __future__ import annotations

from collections.abc import Callable

BLOCK = 1 << 20  # numbers reserved at a time: one write per million, and 2**63 lasts for eight million million crashes


class Clock:
    """A monotonic counter whose future is reserved in blocks.

    >>> saved = []
    >>> clock = Clock(reserve=saved.append, block=10)
    >>> clock.tick(), clock.tick(), clock.value, saved
    (0, 1, 2, [11])
    """

    __slots__ = ("_block", "_limit", "_reserve", "value")

    def __init__(self, value: int = 0, *, reserve: Callable[[int], None] | None = None, block: int = BLOCK) -> None:
        """Start at ``value``; ``reserve(limit)`` must make ``limit`` durable before it returns."""
        self.value = value
        self._reserve = reserve
        self._block = block
        self._limit = value

    def tick(self) -> int:
        """Use up one number and return it (Algorithm 1, lines 50-51)."""
        number = self.value
        self.raise_to(number + 1)
        return number

    def raise_to(self, value: int) -> None:
        """Never be below ``value`` again (Algorithm 1, line 46)."""
        if value <= self.value:
            return
        self.cover(value)
        self.value = value

    def cover(self, value: int) -> None:
        """Have every number below ``value`` reserved: records use numbers long before the clock reaches them."""
        if self._reserve is not None and value > self._limit:
            limit = value + self._block
            self._reserve(limit)
            self._limit = limit
