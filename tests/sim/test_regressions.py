"""Runs that once failed, each with what was wrong then."""

from __future__ import annotations

import pytest

from exon.simulation import run


@pytest.mark.parametrize(
    ("name", "seed"),
    [(name, seed) for name, seeds in (("everything", (19, 27, 34)), ("swaps", (65, 97, 99))) for seed in seeds],
)
def test_a_close_given_up_on_both_sides_leaves_nobody_probing_an_address_that_is_stale(name: str, seed: int) -> None:
    run(name, seed)


@pytest.mark.parametrize("seed", [25, 36, 81])
def test_probes_of_a_record_find_the_life_that_came_after(seed: int) -> None:
    run("restarts", seed)


@pytest.mark.parametrize(
    ("name", "seed"),
    [("slow-consumer", 0), ("slow-link", 7), ("shrinking-path", 5), ("restarts-large", 0), ("loss", 21)],
)
def test_a_request_for_slots_that_is_no_longer_needed_leaves_no_deadline_in_the_past(name: str, seed: int) -> None:
    run(name, seed)


def test_probes_do_not_keep_idle_nodes_awake() -> None:
    network = run("clean", 0)
    assert network.elapsed < 60  # they last talked after three seconds, and idle half-connections close after ten
