"""Every interleaving of two or three sockets, up to a bound: nothing breaks, and known bugs are found."""

from __future__ import annotations

import pytest

from a3m.link_machine import TABLE, Input, State, Step, step
from tests.model_links.explore import explain, main
from tests.model_links.scenarios import (
    ABSENT,
    BUSY,
    CRASHED,
    FORCED,
    FORCED_GRACEFUL,
    INCOMPATIBLE,
    KILLED,
    SCENARIOS,
    Scenario,
)
from tests.model_links.search import MOST_CALM, Search
from tests.model_links.side import CORRECT, Envelope, Kind, Side, Variant
from tests.model_links.variants import VARIANTS

SMALL = ("one-side", "credits", "closing", "resized", "shrunk")  # scenarios that are exhausted
LARGE = {name: scenario for name, scenario in SCENARIOS.items() if name not in SMALL}
BUDGET = 8_000  # states of each large one
VARIANT_BUDGET = 2_000


def told(search: Search) -> str:
    return "\n".join(explain(search.found)) if search.found is not None else ""


# -- the protocol as it is ------------------------------------------------------------------------------------------


def test_at_least_a_hundred_thousand_states_are_visited() -> None:
    assert len(LARGE) * BUDGET >= 100_000


@pytest.mark.parametrize("scenario", LARGE.values(), ids=LARGE)
def test_nothing_breaks(scenario: Scenario) -> None:
    search = Search(scenario)
    search.run(BUDGET)
    assert search.found is None, told(search)
    assert search.states >= BUDGET
    assert 0 < search.longest_calm < MOST_CALM / 2


@pytest.mark.parametrize("name", SMALL)
def test_small_space_is_exhausted(name: str) -> None:
    search = Search(SCENARIOS[name])
    search.run(BUDGET)
    assert search.found is None, told(search)
    assert search.exhausted


def test_command_shares_the_states_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--states", "5000"]) == 0
    *rows, total = capsys.readouterr().out.splitlines()
    assert [row.split()[0] for row in rows[1:]] == list(SCENARIOS)
    assert int(total.split()[0].replace(",", "")) >= 5_000
    assert total.endswith("nothing broken")


# -- known bugs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)
def test_known_bug_is_found(variant: Variant) -> None:
    assert variant.scenario is not None
    search = Search(variant.scenario, variant)
    found = search.run(VARIANT_BUDGET)
    assert found is not None
    assert found.violation.property is variant.damage, told(search)


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)
def test_scenario_of_a_known_bug_does_no_harm_without_it(variant: Variant) -> None:
    assert variant.scenario is not None
    search = Search(variant.scenario)
    search.run(VARIANT_BUDGET)
    assert search.found is None, told(search)


# -- the table ------------------------------------------------------------------------------------------------------


def test_all_of_the_table_is_walked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    walked: set[tuple[State, Input]] = set()

    def watched(state: State, event: Input, wanted: bool) -> Step | None:
        cell = step(state, event, wanted)
        if cell is not None:
            walked.add((state, event))
        return cell

    monkeypatch.setattr("a3m.link_manager.step", watched)
    for scenario in (FORCED_GRACEFUL, BUSY, INCOMPATIBLE, ABSENT, KILLED, CRASHED):
        Search(scenario).run(3_000)
    assert {(state, event) for state, row in TABLE.items() for event in row} - walked == set()


# -- the explorer itself --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_states_are_reached_by_real_steps(scenario: Scenario) -> None:
    """What the tables of the search say is what fresh objects do, message by message."""
    search = Search(scenario)
    search.run(1_500)
    for moves, numbers in search.sample(every=97):
        sides = {name: Side(name, scenario, CORRECT) for name in scenario.names}
        flight: list[Envelope] = []
        for move in moves:
            if move.step.message is not None:
                flight.remove(move.step.message)
            if move.step.kind is Kind.CRASH:
                flight = [
                    message._replace(doomed=message.doomed or (message.news is None and move.name in message[:2]))
                    for message in flight
                ]
            if move.step.kind is not Kind.LOSS:
                flight += sides[move.name].take(move.step)
        for name, number in zip(scenario.names, numbers, strict=True):
            assert sides[name].key() == search.key_of(name, number)


def test_search_goes_on_where_it_stopped() -> None:
    parts, whole = Search(FORCED), Search(FORCED)
    for states in range(0, 5_000, 300):
        parts.run(states)
    parts.run(5_000)
    whole.run(5_000)
    assert (parts.states, parts.depth, parts.sides) == (whole.states, whole.depth, whole.sides)


def test_command_explains_what_is_broken(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--variant", "goal-too-high", "--states", "1000"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2].startswith("broken: at rest both sides agree")
    assert any("a gets UNLINK 1/1 (0, False) from b" in line for line in lines)


def test_command_lists_scenarios_and_variants(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in (*SCENARIOS, *VARIANTS))
