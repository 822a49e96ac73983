"""Pacing: the rate is kept in the long run, quanta leave together, and nothing waits on an unpaced path."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from exon.pacing import QUANTUM, Pacer

START = 12_000  # bytes that may always leave at once


def paced(pacer: Pacer, rate: float, size: int, start: float, datagrams: int) -> list[float]:
    """When each datagram leaves if a driver sends as soon as it may, and asks again when it is told to."""
    now, left = start, []
    for _ in range(datagrams):
        if not pacer.ready(rate, now):
            now = max(now, pacer.ready_at)
            assert pacer.ready(rate, now), "at the announced moment it must not have to wait again"
        pacer.credit -= size
        left.append(now)
    return left


def test_the_first_datagrams_leave_at_once() -> None:
    left = paced(Pacer(), rate=1e6, size=1000, start=5.0, datagrams=200)
    assert left[:10] == [5.0] * 10
    assert left[-1] > 5.1


@given(st.floats(1e4, 1e9), st.integers(100, 65000), st.floats(0.0, 100_000.0))
def test_no_more_than_the_rate_and_a_burst(rate: float, size: int, start: float) -> None:
    assume(size <= 0.2 * rate)  # one that is worth more is not waited for in full, see below
    left = paced(Pacer(), rate, size, start, 200)
    burst = START + max(0.008 * rate, START) + 2 * size
    for count, when in enumerate(left):
        assert count * size <= (when - start) * rate * 1.02 + burst


def test_a_large_datagram_does_not_silence_a_slow_path_for_long() -> None:
    left = paced(Pacer(), rate=500.0, size=60_000, start=0.0, datagrams=20)
    assert max(later - earlier for earlier, later in pairwise(left)) < 0.3


def test_in_the_long_run_the_rate_is_reached() -> None:
    left = paced(Pacer(), rate=1e6, size=1000, start=0.0, datagrams=2000)
    assert left[-1] == pytest.approx(2.0, rel=0.02)


def test_what_a_millisecond_is_worth_leaves_together() -> None:
    left = paced(Pacer(), rate=20e6, size=1000, start=0.0, datagrams=2000)
    pauses = [later - earlier for earlier, later in pairwise(left) if later > earlier]
    assert min(pauses) > 0.9 * QUANTUM
    assert len(pauses) < 2000 / 15


def test_less_than_a_quantum_does_not_leave_when_it_is_asked_for_early() -> None:
    pacer = Pacer()
    now = paced(pacer, rate=20e6, size=1000, start=0.0, datagrams=2000)[-1]
    pacer.credit = 0.0
    assert not pacer.ready(20e6, now + QUANTUM / 2)
    assert pacer.ready_at == pytest.approx(now + QUANTUM)
    assert pacer.ready(20e6, pacer.ready_at)


def test_a_driver_that_wakes_late_makes_up_for_it() -> None:
    pacer, now, sent = Pacer(), 0.0, 0
    while now < 1.0:
        while pacer.ready(10e6, now):
            pacer.credit -= 1000
            sent += 1000
        now = pacer.ready_at + 0.002
    assert sent == pytest.approx(10e6, rel=0.05)


def test_pausing_saves_up_no_more_than_one_burst() -> None:
    pacer = Pacer()
    paced(pacer, 1e6, 1000, 0.0, 500)
    left = paced(pacer, 1e6, 1000, 100.0, 200)
    assert left.count(100.0) <= 2 * START / 1000
    assert left[-1] > 100.1


def test_time_in_which_something_else_held_us_back_is_not_made_up_for() -> None:
    pacer = Pacer()
    start = paced(pacer, 1e7, 1000, 0.0, 500)[-1]
    pacer.credit = 0.0
    pacer.skip(start + 1.0)
    assert not pacer.ready(1e7, start + 1.0)


def test_an_unpaced_path_never_waits_and_leaves_no_debt_for_a_paced_one() -> None:
    pacer = Pacer()
    assert paced(pacer, float("inf"), 65000, 1.0, 1000) == [1.0] * 1000
    assert not pacer.ready(1e6, 1.0)
    assert pacer.ready_at < 1.1


def test_what_could_not_leave_for_another_reason_is_not_late() -> None:
    pacer = Pacer()
    paced(pacer, rate=1e6, size=1000, start=0.0, datagrams=100)
    pacer.skip(1.0)
    assert pacer.ready(1e6, 1.5)  # an acknowledgement made room, and it was not asked for before
    assert not pacer.late
    pacer.credit = 0.0
    assert pacer.ready(1e6, 2.0)
    assert pacer.late
