"""Replay one run, or make many: ``python -m tests.sim_a3m --seed 7 --scenario churn [--trace]``, ``--seeds 100``."""

from __future__ import annotations

import argparse
import sys
from time import monotonic

from a3m.simulation import Violation
from tests.sim_a3m.scenarios import SCENARIOS, run


def _print_trace(now: float, what: str) -> None:
    sys.stdout.write(f"{now:12.6f}  {what}\n")


def main(arguments: list[str] | None = None) -> int:
    """Read the command line and do what it says; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim_a3m", description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--seed", type=int, help="replay one run of one scenario")
    what.add_argument("--seeds", type=int, help="run so many seeds of every scenario named")
    parser.add_argument("--first", type=int, default=0, help="the first of --seeds")
    parser.add_argument("--scenario", nargs="+", choices=SCENARIOS, default=list(SCENARIOS), metavar="NAME")
    parser.add_argument("--trace", action="store_true", help="print every datagram and every fault")
    options = parser.parse_args(arguments)
    if options.seed is not None and len(options.scenario) != 1:
        parser.error("--seed replays one run: name its scenario with --scenario")
    seeds = [options.seed] if options.seed is not None else range(options.first, options.first + options.seeds)
    failures = 0
    for name in options.scenario:
        started, datagrams, simulated, bad = monotonic(), 0, 0.0, 0
        for seed in seeds:
            try:
                net = run(name, seed, trace=_print_trace if options.trace else None)
            except Violation as violation:
                sys.stdout.write(f"VIOLATION in {name}, seed {seed}: {violation}\n")
                bad += 1
            else:
                datagrams += net.datagrams
                simulated += net.elapsed
        failures += bad
        sys.stdout.write(
            f"{name:<24}{len(seeds):>5} runs, {bad} violations, {datagrams:,} datagrams, {simulated:,.0f} s simulated "
            f"in {monotonic() - started:.1f} s\n"
        )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
