"""Delivery-rate samples: what arrives in the time it takes, however acknowledgements bunch."""

from __future__ import annotations

import pytest

from exon.delivery import Delivery, Mark

RTT = 0.01


def steady(delivery: Delivery, datagrams: int, spacing: float, start: float = 1.0, together: int = 1) -> list[float]:
    """Datagrams of 1000 bytes leave at equal distances; every so many are acknowledged together. The samples."""
    marks: list[tuple[float, Mark]] = []
    events = [(start + i * spacing, "leaves", i) for i in range(datagrams)]
    events += [(start + i * spacing + RTT, "acked", i) for i in range(together - 1, datagrams, together)]
    rates = []
    for now, kind, number in sorted(events):
        if kind == "leaves":
            if not marks:
                delivery.begin(now, now)
            marks.append((now, delivery.mark))
        else:
            sent, mark = marks[number]
            delivery.arrived(1000 * together, mark, sent, RTT, now)
            rates.append(delivery.rate)
    return rates


def test_a_steady_stream_is_measured_exactly() -> None:
    rates = steady(Delivery(), 500, 0.0001)
    assert rates[250:] == pytest.approx([1e7] * 250, rel=0.02)


def test_acknowledgements_that_come_together_do_not_make_it_faster() -> None:
    rates = steady(Delivery(), 500, 0.0001, together=10)
    assert max(rates) <= 1e7 * 1.02
    assert rates[-1] == pytest.approx(1e7, rel=0.02)


def test_a_burst_counts_for_no_more_than_a_round_trip() -> None:
    delivery = Delivery()
    assert max(steady(delivery, 10, 0.0)) == pytest.approx(10_000 / RTT)


def test_a_sample_over_less_than_a_round_trip_is_none() -> None:
    delivery = Delivery()
    delivery.begin(1.0, 1.0)
    delivery.arrived(1000, delivery.mark, 1.0, RTT, 1.0 + RTT / 2)
    assert delivery.rate == 0.0
    assert delivery.delivered == 1000


def test_the_time_before_something_left_is_not_the_paths() -> None:
    delivery = Delivery()
    steady(delivery, 100, 0.0001)
    rates = steady(delivery, 500, 0.0001, start=60.0)
    assert rates[-1] == pytest.approx(1e7, rel=0.02)


def test_what_leaves_while_there_is_nothing_more_to_send_is_limited_until_it_has_arrived() -> None:
    delivery = Delivery()
    delivery.begin(1.0, 1.0)
    early = delivery.mark
    delivery.limit(2000)
    late = delivery.mark
    delivery.arrived(1000, early, 1.0, RTT, 1.0 + RTT)
    assert not delivery.limited
    assert delivery.mark[3]
    delivery.arrived(1000, late, 1.0, RTT, 1.0 + RTT)
    assert delivery.limited
    delivery.arrived(1000, delivery.mark, 1.0 + RTT, RTT, 1.0 + 2 * RTT)
    assert not delivery.mark[3], "all that was on the way then has arrived"


def test_a_round_ends_when_what_left_after_its_beginning_is_acknowledged() -> None:
    delivery = Delivery()
    rounds = 0
    marks = []
    delivery.begin(0.0, 0.0)
    for number in range(100):
        marks.append(delivery.mark)
        if number >= 10:
            delivery.arrived(1000, marks[number - 10], (number - 10) * 0.001, RTT, number * 0.001)
            rounds += delivery.new_round
    assert rounds == 9
