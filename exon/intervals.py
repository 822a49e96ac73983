"""Sets of integers kept as sorted, disjoint, half-open ranges.

Slots and acknowledgements are almost contiguous, so a set of thousands of numbers is a handful of ranges, and every
operation costs O(log holes) to find its place plus the ranges it removes. Two flat lists of bounds instead of one
list of pairs: ``bisect`` works on them directly, at C speed, and no pair object exists per range.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator


class IntervalSet:
    """A set of integers stored as ranges.

    >>> slots = IntervalSet([(0, 10)])
    >>> slots.discard(4)
    True
    >>> list(slots), 4 in slots, slots.count
    ([(0, 4), (5, 10)], False, 9)
    """

    __slots__ = ("_starts", "_stops")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        """Start with the given half-open ranges, which may overlap and come in any order."""
        self._starts: list[int] = []
        self._stops: list[int] = []
        for start, stop in ranges:
            self.add(start, stop)

    def add(self, start: int, stop: int) -> None:
        """Put in every number of ``[start, stop)``; touching ranges become one."""
        if start >= stop:
            return
        starts, stops = self._starts, self._stops
        if not stops or start > stops[-1]:
            starts.append(start)
            stops.append(stop)
            return
        if start == stops[-1]:
            stops[-1] = stop
            return
        first = bisect_left(stops, start)  # the first range that reaches start (touching counts)
        last = bisect_right(starts, stop)  # one past the last range that begins at or before stop
        if first < last:
            start = min(start, starts[first])
            stop = max(stop, stops[last - 1])
        starts[first:last] = [start]
        stops[first:last] = [stop]

    def discard(self, number: int) -> bool:
        """Take one number out and say whether it was in."""
        starts, stops = self._starts, self._stops
        if starts and starts[0] == number and stops[0] - number > 1:
            starts[0] = number + 1  # the lowest, as nearly always
            return True
        at = bisect_right(starts, number) - 1
        if at < 0 or stops[at] <= number:
            return False
        start, stop = starts[at], stops[at]
        if stop - start == 1:
            del starts[at], stops[at]
        elif start == number:
            starts[at] = number + 1
        elif stop == number + 1:
            stops[at] = number
        else:
            starts.insert(at + 1, number + 1)
            stops.insert(at, number)
        return True

    def discard_range(self, start: int, stop: int) -> bool:
        """Take out ``[start, stop)``, if all of it is in, and say whether it was; if not, nothing changes."""
        starts, stops = self._starts, self._stops
        at = bisect_right(starts, start) - 1
        if at < 0 or stops[at] < stop or start >= stop:
            return False
        rest = [(low, high) for low, high in ((starts[at], start), (stop, stops[at])) if low < high]
        starts[at : at + 1] = [low for low, _ in rest]
        stops[at : at + 1] = [high for _, high in rest]
        return True

    def discard_below(self, number: int) -> None:
        """Take out everything smaller than ``number``."""
        starts, stops = self._starts, self._stops
        gone = bisect_right(stops, number)
        del starts[:gone], stops[:gone]
        if starts and starts[0] < number:
            starts[0] = number

    def join_lowest(self) -> None:
        """Put in whatever is between the two lowest ranges, so that there is one range less to keep."""
        if len(self._starts) > 1:
            del self._starts[1], self._stops[0]

    def gaps(self, low: int, high: int, most: int) -> list[tuple[int, int]]:
        """The ranges of ``[low, high)`` that are *not* in the set: at most ``most``, the highest ones, ascending."""
        starts, stops = self._starts, self._stops
        found: list[tuple[int, int]] = []
        at = bisect_left(starts, high) - 1  # the last range that begins below high
        while high > low and len(found) < most:
            below = max(low, stops[at]) if at >= 0 else low
            if below < high:
                found.append((below, high))
            if at < 0:
                break
            high = starts[at]
            at -= 1
        found.reverse()
        return found

    def copy(self) -> IntervalSet:
        """An independent copy."""
        twin = IntervalSet()
        twin._starts = self._starts[:]
        twin._stops = self._stops[:]
        return twin

    def clear(self) -> None:
        """Take everything out."""
        self._starts.clear()
        self._stops.clear()

    @property
    def lowest(self) -> int | None:
        """The lowest number, if there is any."""
        return self._starts[0] if self._starts else None

    @property
    def count(self) -> int:
        """How many numbers are in the set. Not ``__len__``: ``tuple()`` would reserve room for so many ranges."""
        return sum(self._stops) - sum(self._starts)

    @property
    def ranges(self) -> int:
        """How many ranges it takes to write the set down."""
        return len(self._starts)

    def __contains__(self, number: int) -> bool:
        """Whether ``number`` is in the set."""
        at = bisect_right(self._starts, number) - 1
        return at >= 0 and number < self._stops[at]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """The ranges, ascending."""
        return zip(self._starts, self._stops, strict=True)

    def __bool__(self) -> bool:
        """Whether any number is in the set."""
        return bool(self._starts)

    def __eq__(self, other: object) -> bool:
        """Whether both hold the same numbers."""
        if not isinstance(other, IntervalSet):
            return NotImplemented
        return self._starts == other._starts and self._stops == other._stops

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        """Readable in a failing test."""
        return f"IntervalSet({list(self)!r})"
