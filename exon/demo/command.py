"""The command line of the demonstration."""

from __future__ import annotations

import argparse
import secrets
import sys
from collections.abc import Sequence
from typing import Any

from exon.demo.account import INTERRUPTED, WRONG, Plan
from exon.demo.party import LEAST_SIZE
from exon.demo.screen import choose_display
from exon.demo.watcher import Failed, Watcher
from exon.options import Options


def _whole(least: int) -> Any:
    def parse(text: str) -> int:
        try:
            number = int(text.replace(",", "").replace("_", ""))
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
        if number < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}, not {number}")
        return number

    return parse


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if not 0 <= share < 1:
        raise argparse.ArgumentTypeError(f"a share is from 0 to less than 1, as 0.2 for 20 %, not {text}")
    return share


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m exon.demo",
        description="Two processes exchange messages over a bad network; every message is accounted for.",
    )
    add = parser.add_argument
    add("--messages", type=_whole(1), default=100_000, metavar="N", help="in each direction (100,000)")
    add("--size", type=_whole(LEAST_SIZE), default=100, metavar="BYTES", help="of each message, at least 8 (100)")
    add("--loss", type=_share, default=0.20, metavar="SHARE", help="of datagrams that are lost (0.20)")
    add("--duplicate", type=_share, default=0.05, metavar="SHARE", help="of datagrams that arrive twice (0.05)")
    add("--reorder", type=_share, default=0.10, metavar="SHARE", help="of datagrams that are overtaken (0.10)")
    add("--moves", type=_whole(0), default=1, metavar="N", help="how often bob changes his port (1)")
    add("--seed", type=_whole(0), metavar="N", help="of the bad network's dice (a new one each time)")
    add("--plain", action="store_true", help="lines of text instead of moving bars")
    add("--json", action="store_true", help="print the account as JSON and nothing else")
    return parser


def _plan(parser: argparse.ArgumentParser, given: argparse.Namespace) -> Plan:
    if given.moves >= given.messages:
        parser.error(f"argument --moves: {given.moves} moves need more than {given.messages} messages")
    if given.size > Options().max_message:
        parser.error(f"argument --size: the largest message is {Options().max_message} bytes")
    seed = given.seed if given.seed is not None else secrets.randbelow(1_000_000)
    return Plan(given.messages, given.size, given.loss, given.duplicate, given.reorder, given.moves, seed)


def _introduction(plan: Plan) -> str:
    return (
        f"alice and bob send each other {plan.messages:,} messages of {plan.size} bytes; the network loses "
        f"{plan.loss:.0%} of the datagrams,\ndoubles {plan.duplicate:.0%}, reorders {plan.reorder:.0%} "
        f"(seed {plan.seed}); bob changes his port {plan.moves} time{'s' * (plan.moves != 1)}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demonstration; the exit status."""
    parser = _parser()
    given = parser.parse_args(arguments)
    plan = _plan(parser, given)
    display = choose_display(plan, plain=given.plain, as_json=given.json)
    try:
        with display:
            display.say(_introduction(plan))
            account = Watcher(plan, display).run()
        display.account(account)
    except Failed as failure:
        print(f"exon.demo: {failure}", file=sys.stderr)
        return WRONG
    except KeyboardInterrupt:  # before there was anything to account for, or a second time
        return INTERRUPTED
    return account.status
