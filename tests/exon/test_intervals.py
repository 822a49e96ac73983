"""Interval sets against a plain set of integers, operation by operation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from exon.intervals import IntervalSet

NUMBERS = st.integers(-2, 12)  # few, so that bounds meet
RANGES = st.lists(st.tuples(NUMBERS, NUMBERS), max_size=12)


def numbers(intervals: IntervalSet) -> set[int]:
    return {number for start, stop in intervals for number in range(start, stop)}


def naive(ranges: list[tuple[int, int]]) -> set[int]:
    return {number for start, stop in ranges for number in range(start, stop)}


def runs(held: set[int]) -> list[tuple[int, int]]:
    """The shortest ascending list of ranges that holds exactly these numbers."""
    found: list[tuple[int, int]] = []
    for number in sorted(held):
        if found and found[-1][1] == number:
            found[-1] = (found[-1][0], number + 1)
        else:
            found.append((number, number + 1))
    return found


class Against(RuleBasedStateMachine):
    """Any sequence of changes leaves the same numbers as in a set, written down in the only shortest way."""

    def __init__(self) -> None:
        super().__init__()
        self.intervals = IntervalSet()
        self.numbers: set[int] = set()

    @rule(start=NUMBERS, stop=NUMBERS)
    def add(self, start: int, stop: int) -> None:
        self.intervals.add(start, stop)
        self.numbers |= set(range(start, stop))

    @rule(number=NUMBERS)
    def discard(self, number: int) -> None:
        assert self.intervals.discard(number) == (number in self.numbers)
        self.numbers.discard(number)

    @rule(number=NUMBERS)
    def discard_below(self, number: int) -> None:
        self.intervals.discard_below(number)
        self.numbers = {held for held in self.numbers if held >= number}

    @rule(low=NUMBERS, high=NUMBERS, most=st.integers(0, 5))
    def gaps(self, low: int, high: int, most: int) -> None:
        missing = runs(set(range(low, high)) - self.numbers)
        assert self.intervals.gaps(low, high, most) == missing[max(0, len(missing) - most) :]

    @rule()
    def clear(self) -> None:
        self.intervals.clear()
        self.numbers.clear()

    @rule(number=NUMBERS)
    def copy(self, number: int) -> None:
        twin = self.intervals.copy()
        assert twin == self.intervals
        twin.add(number, number + 1)
        twin.discard_below(number)
        assert number in twin  # and the original is as it was, which the invariant sees

    @invariant()
    def same(self) -> None:
        intervals = self.intervals
        assert list(intervals) == runs(self.numbers)  # sorted, disjoint, not touching, none empty
        assert intervals.ranges == len(runs(self.numbers))
        assert intervals.count == len(self.numbers)
        assert bool(intervals) == bool(self.numbers)
        assert all((number in intervals) == (number in self.numbers) for number in range(-4, 15))


TestAgainst = Against.TestCase


@given(RANGES)
def test_starts_with_any_ranges(ranges: list[tuple[int, int]]) -> None:
    assert list(IntervalSet(ranges)) == runs(naive(ranges))


@given(RANGES, RANGES)
def test_equality_is_that_of_the_numbers(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    assert (IntervalSet(one) == IntervalSet(other)) == (naive(one) == naive(other))
    assert IntervalSet(one) == IntervalSet(runs(naive(one)))


def test_is_not_equal_to_something_else() -> None:
    assert IntervalSet([(0, 2)]) != [(0, 2)]


def test_mutable_so_not_hashable() -> None:
    with pytest.raises(TypeError):
        hash(IntervalSet())


def test_repr_shows_the_ranges() -> None:
    assert repr(IntervalSet([(3, 5), (0, 1)])) == "IntervalSet([(0, 1), (3, 5)])"


def test_a_range_of_any_length_is_one_range() -> None:
    intervals = IntervalSet([(0, 2**62)])
    assert intervals.discard(2**61)
    assert list(iter(intervals)) == [(0, 2**61), (2**61 + 1, 2**62)]
    assert intervals.count == 2**62 - 1
