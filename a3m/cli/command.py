"""Which subcommands there are, and what holds for all of them."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from types import ModuleType

import a3m

COMMANDS = ("perf",)  # modules of this package

FAILED, INTERRUPTED = 1, 130


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"a3m.cli.{name}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="a3m", description="Exactly-once messaging sockets, from the command line.")
    parser.add_argument("--version", action="version", version=f"a3m {a3m.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in COMMANDS:
        module = _module(name)
        text = module.__doc__ or ""
        command = commands.add_parser(
            name,
            help=text.partition("\n")[0].rstrip("."),
            description=text,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(command)
        command.set_defaults(run=module.run, parser=command)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand; the exit status.

    >>> main(["perf", "--size", "none"])
    Traceback (most recent call last):
    SystemExit: 2
    """
    given = _parser().parse_args(arguments)
    try:
        status: int = given.run(given)
        sys.stdout.flush()
    except KeyboardInterrupt:  # where there is nothing to report
        return INTERRUPTED
    except BrokenPipeError:  # whoever read the output has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains at its end
        return FAILED
    return status
