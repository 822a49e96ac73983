"""What a scenario is, and how its runs are done: by turns, each result written down as it comes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import Factory, define, frozen

from benchmarks.harness import Failed
from benchmarks.peers import why_missing
from benchmarks.wan import Unavailable

Case = Mapping[str, Any]


@frozen(kw_only=True)
class Settings:
    """How thoroughly to measure."""

    runs: int = 5
    seconds: float = 1.0
    """Of one run, after the warm-up. Scenarios that need longer take a multiple."""
    warm_up: float = 0.3
    """Seconds, on loopback."""
    libraries: tuple[str, ...] = ()
    """Instead of the scenario's own."""


@frozen(kw_only=True)
class Scenario:
    """One comparison.

    ``measure(case, library, settings, run)`` does one run and returns figures by name.
    """

    name: str
    title: str
    cases: tuple[Case, ...]
    short: tuple[Case, ...]
    """The cases of the short set."""
    libraries: tuple[str, ...]
    measure: Callable[[Case, str, Settings, int], dict[str, Any]]
    figure: str = "rate"
    """The figure that is compared."""
    unit: str = "messages/s"
    x: str | None = None
    """The property of cases along which to draw; None draws bars."""
    series: bool = False
    """Whether results have points to draw under "series", by name; x and y are then described by ``x`` and ``unit``."""
    also: tuple[str, ...] = ()
    """Further figures for the table."""
    needs_network: bool = False
    baseline: Case = Factory(dict)
    """Where a library is compared with itself: the properties of the case to compare with."""


@define
class Outcome:
    """All runs of one case."""

    case: Case
    results: dict[str, list[dict[str, Any]]]

    def figures(self, library: str, name: str) -> list[float]:
        """One figure of all runs that succeeded."""
        return [result[name] for result in self.results.get(library, []) if result.get(name) is not None]

    def ratios(self, ours: str, theirs: str, name: str) -> list[float]:
        """Run by run, as they alternated."""
        pairs = zip(self.results.get(ours, []), self.results.get(theirs, []), strict=False)
        return [a[name] / b[name] for a, b in pairs if a.get(name) is not None and b.get(name)]


def label(case: Case) -> str:
    """A case in words."""
    return ", ".join(f"{name} {value:,}" if type(value) is int else f"{name} {value}" for name, value in case.items())


def available(libraries: Sequence[str]) -> list[str]:
    """Those that can be measured here; says why others cannot."""
    found = []
    for library in libraries:
        missing = why_missing(library)
        if missing is None:
            found.append(library)
        else:
            print(f"skipping {library}: {missing}", file=sys.stderr)
    return found


def run(scenario: Scenario, cases: Sequence[Case], settings: Settings, file: Path) -> tuple[list[Outcome], int]:
    """Every case; what came out, and how many runs failed."""
    libraries = available(settings.libraries or scenario.libraries)
    outcomes = [Outcome(case, {library: [] for library in libraries}) for case in cases]
    # Libraries take turns in each case; where cases are compared with each other, these do too.
    groups = [outcomes] if scenario.baseline else [[outcome] for outcome in outcomes]
    failures = 0
    with file.open("a", encoding="utf-8") as lines:
        for number, outcome, library in _turns(groups, libraries, settings.runs):
            try:
                result = scenario.measure(outcome.case, library, settings, number)
            except (Failed, Unavailable) as failure:
                result = {"error": str(failure)}
                failures += 1
            outcome.results[library].append(result)
            record = {"scenario": scenario.name, **outcome.case, "library": library, "run": number, **result}
            print(json.dumps(record), file=lines, flush=True)
            print(f"  {scenario.name}: {label(outcome.case)}: {library}: {_brief(scenario, result)}", file=sys.stderr)
    return outcomes, failures


def _turns(
    groups: Sequence[Sequence[Outcome]], libraries: Sequence[str], runs: int
) -> Iterator[tuple[int, Outcome, str]]:
    for group in groups:
        turns = [(outcome, library) for outcome in group for library in libraries]
        for number in range(runs):
            # Whoever comes second finds a warmer machine: change places.
            for outcome, library in turns if number % 2 == 0 else reversed(turns):
                yield number, outcome, library


def _brief(scenario: Scenario, result: Mapping[str, Any]) -> str:
    if "error" in result:
        return f"FAILED, {result['error']}"
    shown = [f"{result[scenario.figure]:,.4g} {scenario.unit}"]
    shown += [f"{name} {result[name]:,.4g}" for name in scenario.also if result.get(name) is not None]
    return ", ".join(shown)
