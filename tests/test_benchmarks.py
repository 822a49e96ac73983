"""What the benchmarks compute from their measurements; and that one of each kind comes to its end.

How fast anything is, is nobody's business here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
import pytest

from benchmarks import store
from benchmarks.__main__ import main
from benchmarks.harness import Crew, Desk, Failed, percentile
from benchmarks.peers import default_congestion_control, find, why_missing
from benchmarks.report import rows, spread
from benchmarks.scenario import Case, Scenario, Settings, run
from benchmarks.scenarios import SCENARIOS
from benchmarks.wan import why_unavailable

calls: list[tuple[Any, str, int]] = []


def measure(case: Case, library: str, settings: Settings, number: int) -> dict[str, Any]:
    calls.append((case["bytes"], library, number))
    if library == "tcp" and number == 1:
        raise Failed("on purpose")
    return {"rate": (10 if library == "a3m" else 5) * (number + 1) * case["bytes"]}


FAKE = Scenario(
    name="fake",
    title="fake",
    cases=({"bytes": 1}, {"bytes": 2}),
    short=({"bytes": 1},),
    libraries=("a3m", "exon"),
    measure=measure,
)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    calls.clear()


def test_libraries_take_turns_and_change_places(tmp_path: Path) -> None:
    run(FAKE, FAKE.cases, Settings(runs=2), tmp_path / "lines")
    first = [(1, "a3m", 0), (1, "exon", 0), (1, "exon", 1), (1, "a3m", 1)]
    assert calls == [*first, *((2, library, number) for _, library, number in first)]


def test_cases_take_turns_where_they_are_compared(tmp_path: Path) -> None:
    scenario = attrs.evolve(FAKE, libraries=("a3m",), baseline={"bytes": 1})
    outcomes, _ = run(scenario, scenario.cases, Settings(runs=2), tmp_path / "lines")
    assert [(size, number) for size, _, number in calls] == [(1, 0), (2, 0), (2, 1), (1, 1)]
    assert [line[-1] for line in rows(scenario, outcomes)] == ["1.00 (1.00 to 1.00)", "2.00 (2.00 to 2.00)"]


def test_ratios_are_run_by_run(tmp_path: Path) -> None:
    outcomes, failures = run(FAKE, FAKE.short, Settings(runs=3), tmp_path / "lines")
    assert (outcomes[0].ratios("a3m", "exon", "rate"), failures) == ([2, 2, 2], 0)
    assert rows(FAKE, outcomes)[1] == ["bytes 1", "exon", "10 (5 to 15)", "a3m 2.00 (2.00 to 2.00)"]


def test_a_run_that_fails_is_written_down_and_leaves_its_pair_out(tmp_path: Path) -> None:
    settings = Settings(runs=3, libraries=("a3m", "tcp"))
    outcomes, failures = run(FAKE, FAKE.short, settings, tmp_path / "lines")
    records = [json.loads(line) for line in (tmp_path / "lines").read_text().splitlines()]
    assert failures == 1
    assert [record["error"] for record in records if "error" in record] == ["on purpose"]
    assert outcomes[0].ratios("a3m", "tcp", "rate") == [2, 2]


def test_a_library_that_is_not_there_is_skipped_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(FAKE, FAKE.short, Settings(runs=1, libraries=("a3m", "smoke-signals")), tmp_path / "lines")
    assert [library for _, library, _ in calls] == ["a3m"]
    assert "skipping smoke-signals: no such library" in capsys.readouterr().err


@pytest.mark.parametrize(("share", "expected"), [(0.0, 1), (0.01, 1), (0.5, 50), (0.99, 99), (0.991, 100), (1.0, 100)])
def test_percentile(share: float, expected: float) -> None:
    assert percentile(list(range(100, 0, -1)), share) == expected


def test_spread() -> None:
    assert spread([3, 1, 2]) == "2 (1 to 3)"
    assert spread([1234.5, 0.25]) == "617.4 (0.25 to 1,234)"
    assert spread([]) == "-"


def be_broken(desk: Desk) -> None:
    raise SystemExit(3)


def test_a_worker_that_ends_early_fails_the_run() -> None:
    with Crew() as crew, pytest.raises(Failed, match=r"be_broken.* ended early"):
        crew.start(be_broken).hear()


def test_every_scenario_names_libraries_that_exist_and_cases_of_the_same_kind() -> None:
    for scenario in SCENARIOS.values():
        assert {tuple(case) for case in scenario.cases + scenario.short} == {tuple(scenario.cases[0])}
        for library in scenario.libraries:
            assert "no such library" not in (why_missing(library) or "")


SMALL = [
    ("oneway", ["--case", "bytes=100", "--libraries", "a3m", "a3m-many", "exon", "pyzmq", "tcp"]),
    ("rpc", ["--case", "clients=1", "pinned=true"]),
    ("tasks", ["--case", "tasks=1", "pinned=false"]),
    ("outstanding", ["--case", "outstanding=10", "pinned=false", "--libraries", "a3m", "a3m-req", "tcp"]),
    ("pubsub", []),
    ("links", ["--case", "links=10"]),
    ("idle-links", ["--case", "idle_links=10"]),
    ("wan-oneway", ["--case", "loss_percent=0", "--libraries", "a3m", "tcp"]),
    ("wan-rpc", ["--case", "loss_percent=1", "actors=10", "--libraries", "a3m", "tcp"]),
    ("wan-fairness", ["--case", "against=tcp-cubic", "--libraries", "a3m"]),
]


@pytest.mark.parametrize(("name", "arguments"), SMALL, ids=[name for name, _ in SMALL])
def test_a_scenario_comes_to_its_end(name: str, arguments: list[str], tmp_path: Path) -> None:
    scenario = SCENARIOS[name]
    if scenario.needs_network and (missing := why_unavailable()) is not None:
        pytest.skip(missing)
    output = ["--runs", "1", "--seconds", "0.05", "--output", str(tmp_path)]
    assert main([name, *arguments, *output]) == 0
    first, *records = [json.loads(line) for line in (tmp_path / f"{name}.jsonl").read_text().splitlines()]
    assert first["machine"]["tcp_congestion_control"] == default_congestion_control()
    assert records
    assert all(record[scenario.figure] > 0 for record in records)


def test_what_cannot_be_measured_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["nonsense"])
    assert "no scenario 'nonsense'; there are short" in capsys.readouterr().err


def test_peers_say_what_they_cannot_do() -> None:
    with pytest.raises(NotImplementedError):
        find("tcp").publish()


def test_stores_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("benchmarks.store.RESULTS", tmp_path / "results")
    store.main(["--runs", "1", "--seconds", "0.01", "--only", "append os 32", "--folder", str(tmp_path)])
    lines = [json.loads(line) for line in next((tmp_path / "results").iterdir()).read_text().splitlines()]
    assert {"log", "journal", "sqlite"} <= {line["engine"] for line in lines}
    assert all(line["records_per_second"] > 0 for line in lines)
    assert "append os 32     log" in capsys.readouterr().out
