"""Explore every interleaving from the command line: ``python -m tests.model.explore --states 2000000``.

The states are shared out among the scenarios. Scenarios with a bound of their own come first, because they may be
exhausted early; what they leave over goes to the others, which have no end. The exit status is 1 when a property is
broken; the schedule that breaks it is then printed step by step, after it was replayed on fresh objects.
"""

from __future__ import annotations

import argparse
import math
import resource
import sys
import time
from collections.abc import Sequence

from attrs import fields
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from tests.model.node import CORRECT, Variant
from tests.model.scenarios import SCENARIOS, Scenario
from tests.model.schedule import explain
from tests.model.search import Search
from tests.model.variants import FATAL, VARIANTS

_CHUNK = 10_000  # states between two looks at the progress
_PAUSE = 5.0  # seconds between two plain progress lines
_HEADINGS = ("scenario", "states", "depth", "pairs", "longest run", "real steps", "seconds")


class _Display:
    """What is seen meanwhile: a moving line on a terminal, plain lines elsewhere; a row for each finished search."""

    def __init__(self, states: int) -> None:
        self._console = Console(soft_wrap=True, highlight=False)
        columns = (
            TextColumn("{task.description:<16}"),
            BarColumn(),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
        )
        self._progress = Progress(
            *columns, console=self._console, transient=True, disable=not self._console.is_terminal
        )
        self._task = self._progress.add_task("", total=states, note="")
        self._shown = time.monotonic()

    def __enter__(self) -> _Display:
        self._progress.start()
        self.row(_HEADINGS)
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def row(self, cells: Sequence[str], note: str = "") -> None:
        name, *numbers = cells
        self.text(f"{name:<16}" + "".join(f"{number:>13}" for number in numbers) + note)

    def text(self, text: str) -> None:
        self._console.print(text, markup=False)

    def show(self, search: Search, before: int) -> None:
        """Tell how far ``search`` is."""
        now = search.statistics
        note = f"{now.states:,} states, depth {now.depth}, {now.frontier:,} to expand"
        self._progress.update(self._task, description=search.scenario.name, completed=before + now.states, note=note)
        if not self._console.is_terminal and time.monotonic() - self._shown > _PAUSE:
            self._shown = time.monotonic()
            self.text(f"  {search.scenario.name}: {note}")


def explore(scenario: Scenario, variant: Variant, states: int, display: _Display, before: int) -> Search:
    """Search one scenario, with a look at the display now and then; ``before`` states were found by earlier ones."""
    started = time.monotonic()
    search = Search(scenario, variant)
    for target in (*range(_CHUNK, states, _CHUNK), states):
        search.run(target)
        display.show(search, before)
        if search.found is not None or search.exhausted:
            break
    end = search.statistics
    numbers = (end.states, end.depth, end.pairs, end.longest_run, end.real_steps)
    cells = [scenario.name, *(f"{number:,}" for number in numbers), f"{time.monotonic() - started:.1f}"]
    display.row(cells, "  exhausted" if search.exhausted else "")
    return search


def run(scenarios: Sequence[Scenario], variant: Variant, states: int) -> int:
    """Explore, and print what comes of it; the exit status."""
    started = time.monotonic()
    total = 0
    with _Display(states) as display:
        for at, scenario in enumerate(sorted(scenarios, key=lambda scenario: scenario.clocks is None)):
            share = math.ceil((states - total) / (len(scenarios) - at))
            search = explore(scenario, variant, share, display, total)
            total += search.statistics.states
            if search.found is not None:
                display.text("\n".join(["", *explain(scenario, variant, search.found)]))
                return 1
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        seconds = time.monotonic() - started
        display.text(f"{total:,} distinct states in {seconds:.1f} s, {peak:,.0f} MiB at the most, nothing broken")
    return 0


def _options(scenario: Scenario) -> str:
    """What a scenario sets, as it is written."""
    options = [
        f"{field.name}={getattr(scenario, field.name)}"
        for field in fields(Scenario)
        if field.name != "name" and getattr(scenario, field.name) != field.default
    ]
    return " ".join(options)


def _list() -> int:
    lines = ["scenarios", *(f"  {scenario.name:<26}{_options(scenario)}" for scenario in SCENARIOS.values())]
    lines += ["variants that break a property", *(f"  {each.name:<26}{each.story}" for each in FATAL.values())]
    harmless = [each for name, each in VARIANTS.items() if name not in FATAL]
    lines += ["variants that do not", *(f"  {each.name:<26}{each.story}" for each in harmless)]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and do what it says; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.model.explore", description="Explore all interleavings.")
    parser.add_argument("--states", type=int, default=2_000_000, help="distinct states in all (%(default)s)")
    parser.add_argument("--scenario", choices=SCENARIOS, metavar="NAME", help="this one only")
    parser.add_argument("--variant", choices=VARIANTS, metavar="NAME", help="bring a known bug back")
    parser.add_argument("--list", action="store_true", help="show the scenarios and the variants")
    options = parser.parse_args(arguments)
    if options.list:
        return _list()
    variant = VARIANTS[options.variant] if options.variant else CORRECT
    if options.scenario:
        scenarios = [SCENARIOS[options.scenario]]
    elif variant.scenario is not None:
        scenarios = [variant.scenario]
    else:
        scenarios = list(SCENARIOS.values())
    return run(scenarios, variant, options.states)


if __name__ == "__main__":
    sys.exit(main())
