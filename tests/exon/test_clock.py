"""The clock never gives a number twice, whatever a crash takes away."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from exon.clock import BLOCK, Clock
from exon.frames import Slots
from exon.records import Records


class CrashingNode(RuleBasedStateMachine):
    """A node that crashes at any moment and restarts from the last limit it made durable.

    Numbers are used in two ways: ticks of the clock, and numbers of records that run ahead of the clock (``cover``).
    """

    def __init__(self) -> None:
        super().__init__()
        self.disk = 0
        self.highest_used = -1

    @initialize(block=st.integers(1, 7))
    def begin(self, block: int) -> None:
        self.block = block
        self.restart()

    def restart(self) -> None:
        self.lowest = self.disk
        self.clock = Clock(self.disk, reserve=self.write, block=self.block)

    def write(self, limit: int) -> None:
        assert limit > self.disk, "a limit only grows"
        self.disk = limit

    def use(self, number: int) -> None:
        assert number < self.disk, "used before it was reserved"
        self.highest_used = max(self.highest_used, number)

    @rule()
    def tick(self) -> None:
        before = self.clock.value
        number = self.clock.tick()
        assert number == before
        assert self.clock.value == number + 1
        self.use(number)

    @rule(ahead=st.integers(-5, 20))
    def raise_to(self, ahead: int) -> None:
        before = self.clock.value
        self.clock.raise_to(before + ahead)
        assert self.clock.value == max(before, before + ahead)
        if ahead > 0:
            self.use(before + ahead - 1)

    @rule(ahead=st.integers(1, 20))
    def cover(self, ahead: int) -> None:
        before = self.clock.value
        self.clock.cover(before + ahead)
        assert self.clock.value == before
        self.use(before + ahead - 1)

    @rule()
    def crash(self) -> None:
        self.restart()
        assert self.clock.value > self.highest_used

    @invariant()
    def never_below_an_earlier_life(self) -> None:
        if hasattr(self, "clock"):
            assert self.clock.value >= self.lowest


TestCrashingNode = CrashingNode.TestCase


@given(st.lists(st.integers(1, 30), max_size=20), st.integers(1, 10))
def test_one_write_reserves_a_block(raises: list[int], block: int) -> None:
    saved: list[int] = []
    clock = Clock(reserve=saved.append, block=block)
    for step in raises:
        clock.raise_to(clock.value + step)
    assert all(later - earlier > block for earlier, later in pairwise(saved))


def test_the_first_number_is_reserved_before_it_is_used() -> None:
    saved: list[int] = []
    assert Clock(5, reserve=saved.append).tick() == 5
    assert saved == [6 + BLOCK]


def test_a_limit_that_cannot_be_saved_uses_no_number() -> None:
    def full(_: int) -> None:
        raise OSError("no space left")

    clock = Clock(3, reserve=full)
    for use in (clock.tick, lambda: clock.raise_to(9), lambda: clock.cover(9)):
        with pytest.raises(OSError, match="no space"):
            use()
        assert clock.value == 3


def test_without_a_store_nothing_is_reserved() -> None:
    clock = Clock()
    clock.raise_to(10 * BLOCK)
    assert clock.tick() == 10 * BLOCK


def test_envelopes_are_reserved_before_they_can_be_used() -> None:
    saved: list[int] = []
    records = Records(Clock(100, reserve=saved.append, block=10))
    record = records.open("b")
    record.request(50)
    records.on_slots("b", 1, Slots(100, 0, 50, 0))
    assert record.sck == 150
    assert saved == [160]


def _lives() -> Iterator[int]:
    """Numbers from life after life, each cut short by a crash after a few ticks."""
    limits = [0]
    for ticks in (3, 1, 0, 12, 2):
        clock = Clock(limits[-1], reserve=limits.append, block=5)
        for _ in range(ticks):
            yield clock.tick()


def test_ticks_never_repeat_across_crashes() -> None:
    numbers = list(_lives())
    assert numbers == sorted(set(numbers))
    assert len(numbers) == 18
