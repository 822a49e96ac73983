"""An emulated network path from a shell. Needs root and /dev/net/tun.

A command between two hosts, here with a server on the other one::

    python -m benchmarks.wan --rate 100 --rtt 10 --loss 1 --far 'iperf3 -s -1' -- iperf3 -c 10.77.0.2

Without a command, it says how to get to both hosts and keeps the path until Ctrl-C or the end of its input.
With --check, it measures what it emulates. What happened to packets is printed at the end, as JSON.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress

from benchmarks.wan.channel import Conditions
from benchmarks.wan.check import check
from benchmarks.wan.hosts import Unavailable, Wan


def parser() -> argparse.ArgumentParser:
    """What can be said on the command line."""
    lines = argparse.ArgumentParser(
        prog="python -m benchmarks.wan", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    lines.add_argument("--rate", type=float, metavar="MBIT", help="of the bottleneck, in Mbit/s (none)")
    lines.add_argument("--rtt", type=float, default=0.0, metavar="MS", help="both ways together (0)")
    lines.add_argument("--queue", type=int, metavar="BYTES", help="in front of the bottleneck (rate × RTT, >= 32 KiB)")
    lines.add_argument("--loss", type=float, default=0.0, metavar="PERCENT", help="in each direction (0)")
    lines.add_argument("--loss-back", type=float, metavar="PERCENT", help="from far to near (as --loss)")
    lines.add_argument("--duplicate", type=float, default=0.0, metavar="PERCENT", help="(0)")
    lines.add_argument("--reorder", type=float, default=0.0, metavar="PERCENT", help="held up a little (0)")
    lines.add_argument("--reorder-by", type=float, default=5.0, metavar="MS", help="at the most (5)")
    lines.add_argument("--seed", type=int, default=0, help="(0)")
    lines.add_argument("--far", type=shlex.split, default=[], metavar="'COMMAND'", help="run on the other host")
    lines.add_argument("--check", action="store_true", help="measure the emulation itself")
    lines.add_argument("command", nargs="*", metavar="COMMAND", help="after --")
    return lines


def conditions(given: argparse.Namespace, loss: float) -> Conditions:
    """Of one direction."""
    return Conditions(
        rate=given.rate and given.rate * 1e6,
        delay=given.rtt / 2000,
        queue=given.queue,
        loss=loss / 100,
        duplicate=given.duplicate / 100,
        reorder=given.reorder / 100,
        reorder_by=given.reorder_by / 1000,
    )


def run(wan: Wan, command: Sequence[str], far: Sequence[str]) -> int:
    """Run a command near, and one far until it ends; the exit status."""
    server = subprocess.Popen([*wan.far.prefix, *far]) if far else None
    try:
        if command:
            return subprocess.run([*wan.near.prefix, *command], check=False).returncode
        for name, host in (("near", wan.near), ("far", wan.far)):
            print(f"{name}, {host.address}:  {shlex.join(host.prefix)} COMMAND", file=sys.stderr)
        print("until Ctrl-C or the end of the input", file=sys.stderr)
        sys.stdin.read()
        return 0
    finally:
        if server is not None:
            with suppress(subprocess.TimeoutExpired):  # it may have something to say at the end
                server.wait(1)
            server.terminate()
            server.wait()


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status: that of the command, or 2 if no path can be made."""
    lines = parser()
    given = lines.parse_args(arguments)
    try:
        there = conditions(given, given.loss)
        back = conditions(given, given.loss if given.loss_back is None else given.loss_back)
    except ValueError as error:
        lines.error(str(error))
    status = 0
    try:
        with Wan(there, back, seed=given.seed) as wan:
            with suppress(KeyboardInterrupt):
                if given.check:
                    print(json.dumps(check(wan, there), indent=1))
                else:
                    status = run(wan, given.command, given.far)
            print(json.dumps(wan.statistics()), file=sys.stderr)
    except Unavailable as error:
        print(f"benchmarks.wan: {error}", file=sys.stderr)
        return 2
    return status


if __name__ == "__main__":
    sys.exit(main())
