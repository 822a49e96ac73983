"""Every interleaving, up to a bound: nothing breaks, and what is known to be broken is found."""

from __future__ import annotations

import pytest
from attrs import evolve

from tests.model.explore import main
from tests.model.node import CORRECT, PEERS, Property, Variant
from tests.model.scenarios import (
    BOTH_DIRECTIONS,
    BOUNDED,
    CLOSE_BETWEEN,
    EVICTED,
    SCENARIOS,
    TWO_MESSAGES,
    Scenario,
)
from tests.model.schedule import explain, replay
from tests.model.search import MOST_ROUNDS, Found, Search
from tests.model.variants import (
    ALL_GIVEN_UP,
    ANY_CONFIRMATION,
    CLOCK_NOT_RAISED,
    ENVELOPES_FROM_ZERO,
    ENVELOPES_KEPT,
    EVICTION_FORGOTTEN,
    FATAL,
    FRONTIER_PAST_TOKENS,
    HARMLESS,
    INCARNATION_IGNORED,
    INCARNATION_REUSED,
    NUMBERS_FORGOTTEN,
    OLDER_GRANTS,
    PUBLISHED_RETRANSMISSION,
    SLOTS_FROM_SCK,
)

ENDLESS = {name: scenario for name, scenario in SCENARIOS.items() if scenario.clocks is None}
BUDGET = 16_000  # states of each endless scenario
HARMLESS_BUDGET = 4_000
FATAL_BUDGET = 50_000

DAMAGE = {
    PUBLISHED_RETRANSMISSION: Property.ONCE,
    INCARNATION_IGNORED: Property.ONCE,
    CLOCK_NOT_RAISED: Property.LIVENESS,
    ENVELOPES_KEPT: Property.VERDICT,
    ENVELOPES_FROM_ZERO: Property.SAFE_RELEASE,
    FRONTIER_PAST_TOKENS: Property.SAFE_RELEASE,
    NUMBERS_FORGOTTEN: Property.SAFE_RELEASE,
    INCARNATION_REUSED: Property.ONCE,
    EVICTION_FORGOTTEN: Property.SAFE_RELEASE,
    ALL_GIVEN_UP: Property.FATE,
}


def told(search: Search) -> str:
    """The schedule of a violation, to be read when a test fails."""
    return "\n".join(explain(search.scenario, search.variant, search.found)) if search.found is not None else ""


def find(variant: Variant) -> Found:
    """What is wrong with a variant, in the scenario that it names."""
    assert variant.scenario is not None
    found = Search(variant.scenario, variant).run(FATAL_BUDGET)
    assert found is not None, f"{variant.name} was not found"
    return found


# -- the protocol as it is ------------------------------------------------------------------------------------------


def test_at_least_a_hundred_thousand_states_are_visited() -> None:
    assert len(ENDLESS) * BUDGET >= 100_000


@pytest.mark.parametrize("scenario", ENDLESS.values(), ids=ENDLESS)
def test_nothing_breaks(scenario: Scenario) -> None:
    search = Search(scenario)
    search.run(BUDGET)
    assert search.found is None, told(search)
    assert search.statistics.states >= BUDGET
    assert 0 < search.statistics.longest_run < MOST_ROUNDS / 2


def test_bounded_space_is_exhausted() -> None:
    search = Search(BOUNDED)
    search.run(1_000_000)
    assert search.found is None, told(search)
    assert search.exhausted


# -- known bugs -----------------------------------------------------------------------------------------------------


def test_every_fatal_variant_has_its_damage() -> None:
    assert DAMAGE.keys() == set(FATAL.values())


@pytest.mark.timeout(10)
def test_published_retransmission_is_found_within_seconds() -> None:
    assert find(PUBLISHED_RETRANSMISSION).violation.property is Property.ONCE


@pytest.mark.timeout(10)
def test_published_retransmission_is_found_without_the_clean_run() -> None:
    """The eleven steps of the design, not counting the free ones, by search alone."""
    variant = evolve(PUBLISHED_RETRANSMISSION, tolerated=PUBLISHED_RETRANSMISSION.tolerated | {Property.LIVENESS})
    found = find(variant)
    assert found.violation.property is Property.ONCE
    assert found.depth <= 11
    assert not any("clean network" in line for line in explain(TWO_MESSAGES, variant, found))


@pytest.mark.parametrize("variant", FATAL.values(), ids=FATAL)
def test_fatal_variant_is_found_and_replayed(variant: Variant) -> None:
    found = find(variant)
    assert variant.scenario is not None
    assert found.violation.property is DAMAGE[variant]
    *schedule, broken, detail = explain(variant.scenario, variant, found)
    assert len(schedule) >= found.depth
    assert broken == f"broken: {DAMAGE[variant].value}"
    assert detail == found.violation.detail


def test_schedule_of_a_bug_does_no_harm_without_it() -> None:
    """A replay is no formality: what the search reports for a variant does not happen to the real objects."""
    with pytest.raises(AssertionError, match="does not happen"):
        explain(TWO_MESSAGES, CORRECT, find(PUBLISHED_RETRANSMISSION))


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
@pytest.mark.parametrize("variant", [SLOTS_FROM_SCK, OLDER_GRANTS, ANY_CONFIRMATION], ids=lambda variant: variant.name)
def test_harmless_changes(variant: Variant, scenario: Scenario) -> None:
    assert variant.name in HARMLESS
    search = Search(scenario, variant)
    search.run(HARMLESS_BUDGET)
    assert search.found is None, told(search)
    assert search.statistics.states >= HARMLESS_BUDGET


# -- the explorer itself --------------------------------------------------------------------------------------------

SMALL = [
    evolve(TWO_MESSAGES, clocks=2),
    evolve(TWO_MESSAGES, clocks=2, window=0),
    evolve(TWO_MESSAGES, clocks=2, range_acks=True),
    evolve(CLOSE_BETWEEN, clocks=3, a=2),
    evolve(BOTH_DIRECTIONS, clocks=2, a=1, window=0),
    evolve(BOTH_DIRECTIONS, clocks=2, a=1, ticks=1),
    evolve(EVICTED, clocks=2, a=1, window=1),
]


@pytest.mark.parametrize("scenario", SMALL, ids=lambda scenario: scenario.name)
def test_reduction_reaches_the_same_nodes(scenario: Scenario) -> None:
    reduced, whole = Search(scenario), Search(scenario, reduce=False)
    for search in (reduced, whole):
        search.run(1_000_000)
        assert search.found is None, told(search)
        assert search.exhausted
    assert reduced.node_pairs() == whole.node_pairs()
    assert reduced.statistics.states < whole.statistics.states


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_states_are_reached_by_real_steps(scenario: Scenario) -> None:
    """The tables of the search say what fresh objects do, step by step."""
    search = Search(scenario)
    search.run(5_000)
    for index in range(0, 5_000, 199):
        world = replay(scenario, CORRECT, search.path_to(index))
        assert tuple(world.nodes[name].save() for name in PEERS) == search.pair_at(index)
        assert world.settle(send_rest=True)


def test_search_goes_on_where_it_stopped() -> None:
    parts, whole = Search(BOTH_DIRECTIONS), Search(BOTH_DIRECTIONS)
    for states in range(0, 5_000, 300):
        parts.run(states)
    parts.run(5_000)
    whole.run(5_000)
    assert parts.statistics == whole.statistics


# -- the command ----------------------------------------------------------------------------------------------------


def test_command_visits_as_many_states_as_it_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--states", "300000", "--scenario", "bounded"]) == 0
    assert "exhausted" in capsys.readouterr().out
    assert main(["--states", "250000"]) == 0
    *rows, total = capsys.readouterr().out.splitlines()
    states = {row.split()[0]: int(row.split()[1].replace(",", "")) for row in rows if row.split()[0] in SCENARIOS}
    assert states.keys() == SCENARIOS.keys()
    assert states["bounded"] < 250_000 / len(SCENARIOS) < states["evicted"]
    assert total.startswith(f"{sum(states.values()):,} distinct states")
    assert sum(states.values()) >= 250_000


def test_command_explains_what_is_broken(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--states", "10000", "--variant", "published-retransmission"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert any("delivers m0 again" in line for line in lines)
    assert lines[-2] == f"broken: {Property.ONCE.value}"


def test_command_lists_scenarios_and_variants(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in (*SCENARIOS, *FATAL, *HARMLESS))
