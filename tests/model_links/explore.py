"""Explore the link protocol from the command line: ``python -m tests.model_links.explore --states 1000000``.

The states are shared out among the scenarios; what one does not need, because it is exhausted, goes to the others. The
exit status is 1 when a property is broken; the steps that lead there are then printed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence

from rich.console import Console

from a3m import messages
from tests.model_links.scenarios import SCENARIOS, Scenario
from tests.model_links.search import Found, Move, Search
from tests.model_links.side import CORRECT, Envelope, Variant
from tests.model_links.variants import VARIANTS

_NAMES = {
    messages.ERROR: "ERROR",
    messages.LINK: "LINK",
    messages.LINKREPLY: "LINKREPLY",
    messages.UNLINK: "UNLINK",
    messages.FLOW: "FLOW",
    messages.DATA: "DATA",
}


def explain(found: Found) -> list[str]:
    """What happens, step by step, and what is broken then."""
    lines = [f"{number:3}. {_tell(move)}" for number, move in enumerate(found.moves, 1)]
    return [*lines, f"broken: {found.violation.property.value}", found.violation.detail]


def _tell(move: Move) -> str:
    words = [move.name, move.step.kind.value]
    if move.step.peer:
        words.append(move.step.peer)
    if move.step.message is not None:
        words.append(_content(move.step.message))
    return " ".join(words)


def _content(envelope: Envelope) -> str:
    if envelope.news is not None:
        return f"the news that {envelope.sender} has restarted"
    message = envelope.open()
    body = ", ".join(map(repr, message.body))
    return f"{_NAMES[message.type]} {message.mine}/{message.yours} ({body}) from {envelope.sender}"


def search_all(scenarios: Sequence[Scenario], variant: Variant, states: int) -> Iterator[tuple[Search, float]]:
    """Search one scenario after the other, the small ones first, until there are ``states`` in all."""
    total = 0
    for at, scenario in enumerate(scenarios):
        started = time.monotonic()
        search = Search(scenario, variant)
        search.run(-(-(states - total) // (len(scenarios) - at)))
        total += search.states
        yield search, time.monotonic() - started
        if search.found is not None:
            return


def run(scenarios: Sequence[Scenario], variant: Variant, states: int) -> int:
    """Explore, and print what comes of it; the exit status."""
    console = Console(soft_wrap=True, highlight=False, markup=False)
    console.print(f"{'scenario':<18}{'states':>12}{'depth':>8}{'sides':>10}{'longest calm':>14}{'seconds':>9}")
    total, started = 0, time.monotonic()
    for search, seconds in search_all(scenarios, variant, states):
        total += search.states
        numbers = f"{search.states:>12,}{search.depth:>8}{search.sides:>10,}{search.longest_calm:>14}{seconds:>9.1f}"
        console.print(f"{search.scenario.name:<18}{numbers}{'  exhausted' if search.exhausted else ''}")
        if search.found is not None:
            console.print("\n".join(["", *explain(search.found)]))
            return 1
    console.print(f"{total:,} distinct states in {time.monotonic() - started:.1f} s, nothing broken")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and do what it says; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.model_links.explore", description="Explore links.")
    parser.add_argument("--states", type=int, default=1_000_000, help="distinct states in all (%(default)s)")
    parser.add_argument("--scenario", choices=SCENARIOS, metavar="NAME", help="this one only")
    parser.add_argument("--variant", choices=VARIANTS, metavar="NAME", help="put a known bug in")
    parser.add_argument("--list", action="store_true", help="show the scenarios and the variants")
    options = parser.parse_args(arguments)
    if options.list:
        lines = ["scenarios", *(f"  {name}" for name in SCENARIOS)]
        lines += ["variants", *(f"  {name:<24}{variant.story}" for name, variant in VARIANTS.items())]
        sys.stdout.write("\n".join(lines) + "\n")
        return 0
    variant = VARIANTS[options.variant] if options.variant else CORRECT
    scenarios = list(SCENARIOS.values())
    if options.scenario:
        scenarios = [SCENARIOS[options.scenario]]
    elif variant.scenario is not None:
        scenarios = [variant.scenario]
    return run(scenarios, variant, options.states)


if __name__ == "__main__":
    sys.exit(main())
