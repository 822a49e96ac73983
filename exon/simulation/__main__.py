"""The simulator's command line.

Replay one run, with everything that happened::

    python -m exon.simulation --seed 7 --scenario moves --trace

Many runs in parallel, so many seeds of every scenario, or fresh seeds for hours::

    python -m exon.simulation --seeds 1000
    python -m exon.simulation --hours 4 --scenario restarts closing

The exit status is 1 when a promise was broken (the line to replay it with is printed), 2 when the command line makes no
sense, 130 when interrupted.
"""

from __future__ import annotations

import argparse
import math
import os
import secrets
import sys
from collections.abc import Callable, Sequence
from itertools import chain, count
from time import monotonic

import attrs

from exon.options import Options
from exon.simulation.campaign import CHUNK, Campaign, Totals, chunks_of, duration, say, table
from exon.simulation.scenarios import SCENARIOS, Scenario, Violation, run


def run_seeds(names: Sequence[str], first: int, seeds: int, jobs: int) -> int:
    """So many seeds of every scenario; the exit status."""
    runs = seeds * len(names)
    say(
        f"{seeds:,} seeds ({first} to {first + seeds - 1}) of each of {len(names)} scenarios: "
        f"{runs:,} runs in {jobs} processes"
    )
    chunks = chunks_of(names, range(first, first + seeds))
    return Campaign(names, jobs).go(chunks, lambda done, _: done / runs)


def run_hours(names: Sequence[str], first: int | None, hours: float, jobs: int) -> int:
    """Fresh seeds until the time is over; the exit status."""
    first = first if first is not None else secrets.randbelow(2**47)
    say(f"{hours:g} hours of {len(names)} scenarios in {jobs} processes, seeds from {first} on")
    chunks = chain.from_iterable(chunks_of(names, range(start, start + CHUNK)) for start in count(first, CHUNK))
    return Campaign(names, jobs).go(chunks, lambda _, seconds: seconds / (hours * 3600))


# -- one run ----------------------------------------------------------------------------------------------------------


def replay(name: str, seed: int, *, trace: bool) -> int:
    """One run; the exit status."""
    started = monotonic()
    try:
        network = run(name, seed, trace=_print_trace if trace else None)
    except Violation as violation:
        say(f"VIOLATION in {name}, seed {seed}: {violation}")
        return 1
    totals = Totals()
    totals.count(network)
    for line in table({name: totals}, totals):
        say(line)
    say(f"seed {seed} of {name}: {duration(network.elapsed)} in {monotonic() - started:.2f} s, every promise kept")
    return 0


def _print_trace(now: float, what: str) -> None:
    try:
        sys.stdout.write(f"{now:12.6f}  {what}\n")
    except BrokenPipeError:  # head(1) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None


# -- the command line -------------------------------------------------------------------------------------------------


def _differences(value: Scenario | Options) -> str:
    """What is not as by default, as it is written."""
    parts = []
    for field in attrs.fields(type(value)):
        set_to = getattr(value, field.name)
        if set_to != field.default:
            parts.append(
                f"{field.name}=" + (f"({_differences(set_to)})" if isinstance(set_to, Options) else f"{set_to}")
            )
    return " ".join(parts)


def _list() -> int:
    say("options of all scenarios, unless they say otherwise:")
    say("  " + " ".join(f"{field.name}={field.default}" for field in attrs.fields(Scenario)))
    say("scenarios:")
    for name, scenario in SCENARIOS.items():
        say(f"  {name:<18}{_differences(scenario)}".rstrip())
    return 0


def _whole(least: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit()) or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} on")
        return int(text)

    return read


def _hours(text: str) -> float:
    try:
        hours = float(text)
    except ValueError:
        hours = math.nan
    if not 0 < hours < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return hours


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m exon.simulation",
        description="Run nodes of Exon on a simulated network, where every fault comes from a seed.",
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--seed", type=_whole(0), metavar="N", help="replay one run of one scenario")
    what.add_argument("--seeds", type=_whole(1), metavar="N", help="run N seeds of every scenario")
    what.add_argument("--hours", type=_hours, metavar="H", help="run fresh seeds of every scenario for H hours")
    what.add_argument("--list", action="store_true", help="show the scenarios")
    parser.add_argument(
        "--scenario", nargs="+", action="extend", choices=SCENARIOS, metavar="NAME", help="only these (see --list)"
    )
    parser.add_argument("--first", type=_whole(0), metavar="K", help="the first seed (--seeds: 0, --hours: drawn)")
    parser.add_argument("--jobs", type=_whole(1), metavar="J", help="processes (as many as there are processors)")
    parser.add_argument("--trace", action="store_true", help="print every datagram and every fault of --seed")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and do what it says; the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    names = list(dict.fromkeys(options.scenario or SCENARIOS))
    if options.seed is not None and (options.scenario is None or len(names) != 1):
        parser.error("--seed replays one run: name its scenario with --scenario")
    if options.trace and options.seed is None:
        parser.error("--trace is for one run: name it with --seed and --scenario")
    if options.seed is not None and options.first is not None:
        parser.error("--first goes with --seeds or --hours")
    if options.list:
        return _list()
    if options.seed is not None:
        return replay(names[0], options.seed, trace=options.trace)
    jobs = options.jobs or len(os.sched_getaffinity(0))
    if options.hours is not None:
        return run_hours(names, options.first, options.hours, jobs)
    return run_seeds(names, options.first or 0, options.seeds, jobs)


if __name__ == "__main__":
    sys.exit(main())
