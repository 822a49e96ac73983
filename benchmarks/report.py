"""Medians with their spread, the machine, a table and a figure."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.peers import default_congestion_control
from benchmarks.scenario import Outcome, Scenario, label

_PACKAGES = ("a3m", "pyzmq", "pynng", "paho-mqtt", "trio")


def machine() -> dict[str, Any]:
    """Where, when, and with which versions."""
    figures: dict[str, Any] = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _output("git", "describe", "--always", "--dirty"),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load": [round(load, 2) for load in os.getloadavg()],
        "tcp_congestion_control": default_congestion_control(),
    }
    for package in _PACKAGES:
        try:
            figures[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            figures[package] = None
    if importlib.util.find_spec("zmq") is not None:
        figures["libzmq"] = importlib.import_module("zmq").zmq_version()
    figures["mosquitto"] = _output("mosquitto", "-h").partition("\n")[0] or None
    return figures


def _output(*command: str) -> str:
    try:
        done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.strip()


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def one_line(where: dict[str, Any]) -> str:
    """The machine, for the foot of a table or figure."""
    return (
        f"{where['date'][:10]}, {where['commit']}, {where['processor']}, {where['cores']} cores, {where['python']}, "
        f"{where['system']}, TCP {where['tcp_congestion_control']} by default, load {where['load'][0]}"
    )


def spread(figures: Sequence[float], form: str = ",.4g") -> str:
    """The median, and the smallest and largest: ``2 (1 to 3)``."""
    if not figures:
        return "-"

    def show(figure: float) -> str:
        return f"{figure:,.0f}" if abs(figure) >= 1000 else format(figure, form)

    return f"{show(median(figures))} ({show(min(figures))} to {show(max(figures))})"


# -- the table -------------------------------------------------------------------------------------------------------


def rows(scenario: Scenario, outcomes: Sequence[Outcome]) -> list[list[str]]:
    """For each case and library: the figure, further ones, and what ours are in relation to it."""
    lines = []
    for outcome in outcomes:
        ours = {library for library in outcome.results if library.startswith("a3m")}
        for library in outcome.results:
            cells = [label(outcome.case), library, spread(outcome.figures(library, scenario.figure))]
            cells += [spread(outcome.figures(library, name)) for name in scenario.also]
            if scenario.baseline:
                cells.append(spread(_to_baseline(scenario, outcomes, outcome, library), ".2f"))
            else:
                compared = sorted(ours) if library not in ours and not scenario.series else []
                ratios = [(name, outcome.ratios(name, library, scenario.figure)) for name in compared]
                cells.append("; ".join(f"{name} {spread(ratio, '.2f')}" for name, ratio in ratios if ratio))
            lines.append(cells)
    return lines


def _to_baseline(scenario: Scenario, outcomes: Sequence[Outcome], outcome: Outcome, library: str) -> list[float]:
    """In relation to the same library in the case to compare with, run by run."""
    for other in outcomes:
        if scenario.baseline.items() <= other.case.items():
            then, now = (each.figures(library, scenario.figure) for each in (other, outcome))
            return [b / a for a, b in zip(then, now, strict=False)]
    return []


def show(scenario: Scenario, outcomes: Sequence[Outcome], runs: int, where: dict[str, Any]) -> None:
    """Print the table, with rich if it is there."""
    title = f"{scenario.title}; median (smallest to largest) of {runs} runs"
    relation = f"relative to {label(scenario.baseline)}" if scenario.baseline else "ours relative to it, run by run"
    heading = ["case", "library", scenario.unit, *scenario.also, relation]
    if importlib.util.find_spec("rich") is None:
        print(title)
        for line in [heading, *rows(scenario, outcomes)]:
            print("  ".join(f"{cell:<28}" for cell in line).rstrip())
        print(one_line(where))
        return
    console_module, table_module = importlib.import_module("rich.console"), importlib.import_module("rich.table")
    table = table_module.Table(title=title, caption=one_line(where))
    for name in heading:
        table.add_column(name)
    for line in rows(scenario, outcomes):
        table.add_row(*line)
    width = None if sys.stdout.isatty() else 200
    console_module.Console(width=width).print(table)


# -- the figure ------------------------------------------------------------------------------------------------------


def draw(scenario: Scenario, outcomes: Sequence[Outcome], where: dict[str, Any], path: Path) -> bool:
    """Write a figure: medians with their spread. Says so if it cannot."""
    if importlib.util.find_spec("matplotlib") is None:
        print("no figure: matplotlib is not installed (pip install -e '.[bench]')", file=sys.stderr)
        return False
    matplotlib: Any = importlib.import_module("matplotlib")
    matplotlib.use("svg")
    plots: Any = importlib.import_module("matplotlib.pyplot")
    figure, axes = plots.subplots(figsize=(9, 5.5), layout="constrained")
    if scenario.series:
        _series(scenario, outcomes, axes)
    elif scenario.x in _varying(outcomes):
        _lines(scenario, outcomes, axes)
    else:
        _bars(scenario, outcomes, axes)
    axes.set_ylabel(scenario.unit)
    axes.set_title(scenario.title, wrap=True)
    axes.grid(True, axis="y", alpha=0.3)
    axes.legend(fontsize="small")
    figure.supxlabel(one_line(where), fontsize=6, color="gray")
    figure.savefig(path)
    plots.close(figure)
    return True


def _points(scenario: Scenario, outcome: Outcome, library: str) -> tuple[float, float, float] | None:
    figures = outcome.figures(library, scenario.figure)
    if not figures:
        return None
    middle = median(figures)
    return middle, middle - min(figures), max(figures) - middle


def _varying(outcomes: Sequence[Outcome]) -> list[str]:
    """The properties that cases differ in; what all have in common is in the title."""
    return [name for name in outcomes[0].case if len({outcome.case[name] for outcome in outcomes}) > 1]


def _lines(scenario: Scenario, outcomes: Sequence[Outcome], axes: Any) -> None:
    """A line for each library, by colour, and for each value of the other properties of cases, by style."""
    assert scenario.x is not None
    others = [name for name in _varying(outcomes) if name != scenario.x]
    series: dict[tuple[str, str], list[tuple[float, float, float, float]]] = {}
    for outcome in outcomes:
        rest = label({name: outcome.case[name] for name in others})
        for library in outcome.results:
            point = _points(scenario, outcome, library)
            if point is not None:
                series.setdefault((library, rest), []).append((outcome.case[scenario.x], *point))
    colours = {library: f"C{number}" for number, library in enumerate(outcomes[0].results)}
    styles = dict(zip(dict.fromkeys(rest for _, rest in series), cycle(("-", "--", ":", "-.")), strict=False))
    for (library, rest), points in series.items():
        x, y, below, above = zip(*sorted(points), strict=True)
        name = f"{library}, {rest}" if rest else library
        look = {"color": colours[library], "linestyle": styles[rest], "marker": "o", "capsize": 3}
        axes.errorbar(x, y, yerr=(below, above), label=name, **look)
    axes.set_xlabel(scenario.x)
    values = sorted({outcome.case[scenario.x] for outcome in outcomes})
    if min(values) > 0 and max(values) / min(values) > 20:
        axes.set_xscale("log")
    axes.set_xticks(values, [f"{value:,}" for value in values])
    axes.tick_params(axis="x", which="minor", bottom=False, labelbottom=False)
    heights = [point[1] for points in series.values() for point in points]
    if heights and min(heights) > 0 and max(heights) / min(heights) > 20:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)


def _bars(scenario: Scenario, outcomes: Sequence[Outcome], axes: Any) -> None:
    """A group of bars for each case."""
    libraries = list(outcomes[0].results)
    width = 0.8 / len(libraries)
    for index, library in enumerate(libraries):
        places, heights, errors = [], [], []
        for place, outcome in enumerate(outcomes):
            point = _points(scenario, outcome, library)
            if point is not None:
                places.append(place + (index - (len(libraries) - 1) / 2) * width)
                heights.append(point[0])
                errors.append(point[1:])
        axes.bar(places, heights, width, yerr=list(zip(*errors, strict=True)) or None, capsize=3, label=library)
    names = [label({name: outcome.case[name] for name in _varying(outcomes)}) for outcome in outcomes]
    axes.set_xticks(range(len(outcomes)), names, fontsize="small")


def _series(scenario: Scenario, outcomes: Sequence[Outcome], axes: Any) -> None:
    """What the last run of each case and library recorded on its way."""
    for outcome in outcomes:
        for library, results in outcome.results.items():
            for name, points in results[-1].get("series", {}).items():
                axes.plot(*zip(*points, strict=True), label=f"{library}, {name}, {label(outcome.case)}")
    axes.set_xlabel(scenario.x)
    axes.set_ylim(bottom=0)
