"""The round-trip filter: RFC 6298 smoothing, a minimum that is forgotten in time, and the delays derived from both."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exon.rtt import FLOOR, INITIAL, Rtt

SAMPLES = st.lists(st.floats(1e-6, 10.0), min_size=1, max_size=50)


def test_before_any_sample_it_assumes_a_tenth_of_a_second() -> None:
    rtt = Rtt()
    assert (rtt.smoothed, rtt.minimum, rtt.latest, rtt.samples) == (INITIAL, INITIAL, INITIAL, 0)
    assert rtt.timeout == pytest.approx(1.25 * INITIAL + 4 * INITIAL / 2)


def test_the_first_sample_replaces_every_assumption() -> None:
    rtt = Rtt()
    rtt.sample(0.02, 1.0)
    assert (rtt.smoothed, rtt.variation, rtt.minimum, rtt.latest) == (0.02, 0.01, 0.02, 0.02)


def test_later_samples_are_smoothed_as_in_rfc_6298() -> None:
    rtt = Rtt()
    rtt.sample(0.1, 0.0)
    rtt.sample(0.2, 0.1)
    assert rtt.variation == pytest.approx(0.75 * 0.05 + 0.25 * 0.1)
    assert rtt.smoothed == pytest.approx(7 / 8 * 0.1 + 1 / 8 * 0.2)
    assert rtt.latest == 0.2
    assert rtt.minimum == 0.1


@given(SAMPLES)
def test_stays_between_the_extremes(samples: list[float]) -> None:
    rtt = Rtt()
    for at, sample in enumerate(samples):
        rtt.sample(sample, at * 0.001)
    assert min(samples) * (1 - 1e-9) <= rtt.smoothed <= max(samples) * (1 + 1e-9)
    assert rtt.minimum == min(samples)
    assert rtt.latest == samples[-1]
    assert rtt.samples == len(samples)
    assert rtt.timeout >= max(FLOOR, 1.5 * rtt.smoothed)
    assert rtt.loss_delay >= max(FLOOR / 2, 9 / 8 * rtt.latest)


@given(st.floats(-10.0, 0.0))
def test_a_peer_that_overstates_its_delay_cannot_make_time_run_backwards(sample: float) -> None:
    rtt = Rtt()
    rtt.sample(sample, 0.0)
    assert rtt.minimum == rtt.smoothed == 1e-6
    assert rtt.timeout == FLOOR
    assert rtt.loss_delay == FLOOR / 2


def test_a_longer_path_is_believed_after_a_while() -> None:
    rtt = Rtt()
    rtt.sample(0.01, 0.0)
    for second in range(1, 10):
        rtt.sample(0.05, float(second))
        assert rtt.minimum == 0.01
    for second in range(10, 25):
        rtt.sample(0.05, float(second))
    assert rtt.minimum == 0.05


def test_a_shorter_path_is_believed_at_once() -> None:
    rtt = Rtt()
    rtt.sample(0.05, 0.0)
    rtt.sample(0.01, 0.1)
    assert rtt.minimum == 0.01


def test_steady_samples_bring_the_timeout_down_to_one_and_a_half_round_trips() -> None:
    rtt = Rtt()
    for at in range(200):
        rtt.sample(0.04, at * 0.04)
    assert rtt.timeout == pytest.approx(0.06, rel=1e-6)


def test_the_minimum_is_confirmed_by_what_is_nearly_as_low() -> None:
    rtt = Rtt()
    rtt.sample(0.04, 1.0)
    rtt.sample(0.05, 2.0)
    assert rtt.confirmed == 1.0
    rtt.sample(0.042, 3.0)
    assert rtt.confirmed == 3.0
    assert rtt.minimum == 0.04


def test_what_an_emptied_path_shows_replaces_the_minimum() -> None:
    rtt = Rtt()
    rtt.sample(0.01, 1.0)
    rtt.relearn(0.04, 2.0)
    assert (rtt.minimum, rtt.confirmed) == (0.04, 2.0)
    rtt.sample(0.03, 3.0)
    assert rtt.minimum == 0.03


def test_on_another_path_the_next_sample_counts_alone() -> None:
    rtt = Rtt()
    for at in range(10):
        rtt.sample(0.01, float(at))
    rtt.restart()
    assert rtt.smoothed == 0.01, "the best guess until then"
    rtt.sample(0.2, 10.0)
    assert (rtt.smoothed, rtt.minimum) == (0.2, 0.2)
