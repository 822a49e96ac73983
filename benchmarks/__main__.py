"""Measures A3M next to its peers. Speed is reported here, never asserted.

::

    python -m benchmarks --list                       # the scenarios
    python -m benchmarks short                        # the short set, about five minutes ("make bench")
    python -m benchmarks wan                          # emulated networks; needs root ("make bench-wan")
    python -m benchmarks oneway --runs 11             # one scenario, every case
    python -m benchmarks oneway --case bytes=1 --libraries a3m exon pyzmq
    python -m benchmarks draw FILE.jsonl              # the table and figure again

Libraries take turns in the same run, each run in fresh processes; the table has medians, the spread, and what ours are
in relation to each peer, run by run. Every single run is a line of JSON in the folder of results, below a line about
the machine; a figure is next to it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.report import draw, machine, show
from benchmarks.scenario import Case, Outcome, Scenario, Settings, run
from benchmarks.scenarios import LOOPBACK, NETWORK, SCALING, SCENARIOS
from benchmarks.wan import why_unavailable

RESULTS = Path(__file__).parent / "results"
SETS: dict[str, tuple[Scenario, ...]] = {
    "short": LOOPBACK,
    "loopback": LOOPBACK,
    "scaling": SCALING,
    "wan": NETWORK,
    "all": LOOPBACK + SCALING + NETWORK,
}


def _case(text: str) -> tuple[str, Any]:
    name, _, value = text.partition("=")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def parser() -> argparse.ArgumentParser:
    """What can be said on the command line."""
    lines = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    lines.add_argument("what", nargs="*", metavar="SCENARIO", help=f"or a set: {', '.join(SETS)}")
    lines.add_argument("--list", action="store_true", help="show the scenarios and their cases")
    lines.add_argument("--short", action="store_true", help="the cases of the short set only")
    lines.add_argument("--runs", type=int, default=5, help="of each library and case (5)")
    lines.add_argument("--seconds", type=float, default=1.0, help="of one run; some take a multiple (1)")
    lines.add_argument("--libraries", nargs="+", default=[], metavar="NAME", help="instead of the scenario's")
    lines.add_argument("--case", type=_case, nargs="+", default=[], metavar="NAME=VALUE", help="only these cases")
    lines.add_argument("--output", type=Path, metavar="FOLDER", help="for results (benchmarks/results/DATE-TIME)")
    return lines


def chosen(names: Sequence[str]) -> list[Scenario]:
    """The scenarios of these names and sets."""
    scenarios: list[Scenario] = []
    for name in names:
        if name not in SETS and name not in SCENARIOS:
            raise ValueError(f"no scenario {name!r}; there are {', '.join((*SETS, *SCENARIOS))}")
        scenarios += SETS.get(name) or (SCENARIOS[name],)
    return list({scenario.name: scenario for scenario in scenarios}.values())


def measure(scenario: Scenario, given: argparse.Namespace, folder: Path) -> int:
    """Run one scenario, and show it; how many runs failed."""
    if scenario.needs_network and (missing := why_unavailable()) is not None:
        print(f"skipping {scenario.name}: {missing}", file=sys.stderr)
        return 1
    cases = scenario.short if given.short or "short" in given.what else scenario.cases
    wanted = dict(given.case)
    cases = tuple(case for case in cases if wanted.items() <= case.items())
    if not cases:
        print(f"skipping {scenario.name}: no case with {wanted}; --list shows them", file=sys.stderr)
        return 1
    settings = Settings(runs=given.runs, seconds=given.seconds, libraries=tuple(given.libraries))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{scenario.name}.jsonl"
    where = machine()
    with path.open("a", encoding="utf-8") as file:
        print(json.dumps({"machine": where, "runs": given.runs, "seconds": given.seconds}), file=file)
    outcomes, failures = run(scenario, cases, settings, path)
    present(scenario, outcomes, given.runs, where, path)
    return failures


def present(scenario: Scenario, outcomes: Sequence[Outcome], runs: int, where: dict[str, Any], path: Path) -> None:
    """The table and the figure."""
    if not any(outcome.results for outcome in outcomes):
        print(f"{scenario.name}: nothing was measured", file=sys.stderr)
        return
    show(scenario, outcomes, runs, where)
    drawing = path.with_suffix(".svg")
    if draw(scenario, outcomes, where, drawing):
        print(f"{drawing}\n")


def redraw(path: Path) -> None:
    """The table and figure of results from a file."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    where = next(line["machine"] for line in lines if "machine" in line)
    records = [line for line in lines if "scenario" in line]
    scenario = SCENARIOS[records[0]["scenario"]]
    names = scenario.cases[0].keys()
    outcomes: dict[str, Outcome] = {}
    for record in records:
        case: Case = {name: record[name] for name in names}
        outcome = outcomes.setdefault(json.dumps(case), Outcome(case, {}))
        outcome.results.setdefault(record["library"], []).append(record)
    runs = 1 + max(record["run"] for record in records)
    present(scenario, list(outcomes.values()), runs, where, path)


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status: 1 if a run failed or was skipped."""
    lines = parser()
    given = lines.parse_args(arguments)
    if given.list:
        for scenario in SCENARIOS.values():
            print(f"{scenario.name:<14} {scenario.title}: {', '.join(scenario.libraries)}")
            for case in scenario.cases:
                print(f"{'':<14}   {' '.join(f'{name}={json.dumps(value)}' for name, value in case.items())}")
        return 0
    try:
        if given.what[:1] == ["draw"]:
            for name in given.what[1:]:
                redraw(Path(name))
            return 0
        scenarios = chosen(given.what)
    except ValueError as error:
        lines.error(str(error))
    if not scenarios:
        lines.error(f"say what to measure: {', '.join((*SETS, *SCENARIOS))}")
    folder = given.output or RESULTS / f"{datetime.now(UTC):%Y-%m-%d-%H%M%S}"
    try:
        failures = sum(measure(scenario, given, folder) for scenario in scenarios)
    except KeyboardInterrupt:
        return 130
    if failures:
        print(f"{failures} runs failed or were skipped; see above and {folder}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
