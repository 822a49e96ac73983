"""Measure this machine, or the link between two.

Alone, it starts a second process on this machine and measures over loopback. With --serve it waits for others to
measure with it, until Ctrl-C; with the address of such a server it measures the link to it.

What counts is what the receiver took, by its clock. Every message is counted and compared with what was sent; the exit
status is 0 only if each arrived exactly once.
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack

import a3m
from a3m.cli.arguments import local_address, remote_address, seconds, several, whole
from a3m.perf.client import Client
from a3m.perf.libraries import check_library
from a3m.perf.local import LocalServer
from a3m.perf.screen import Display, choose_display
from a3m.perf.server import DEFAULT_PORT, Server
from a3m.perf.spec import CLIENTS_LIMIT, LATENCY, PYZMQ, SECONDS_LIMIT, SIZE_LIMIT, THROUGHPUT, Failed
from a3m.perf.suite import OK, Plan, Report, measure
from exon.addresses import format_address
from exon.wire import BASE_DATAGRAM, MAX_DATAGRAM

_LOOPBACK = "127.0.0.1:0"
_DEFAULT = Plan()
_EXAMPLES = f"""
examples:
  a3m perf                                     this machine, in a few seconds
  a3m perf --size 100 --seconds 2 --runs 5     one size, thoroughly
  a3m perf --compare pyzmq                     next to pyzmq, by turns
  a3m perf --mode latency --clients 20         round trips of 20 threads at the same time
  a3m perf --serve                             wait for others, on UDP port {DEFAULT_PORT}
  a3m perf 192.0.2.7 --both                    the link to the machine where that runs, in both directions
  a3m perf --json | jq '.cases[].a3m.per_second'
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What it takes."""
    parser.epilog = _EXAMPLES
    add = parser.add_argument
    add(
        "server",
        nargs="?",
        type=remote_address(DEFAULT_PORT),
        metavar="HOST[:PORT]",
        help="a server to measure with; without one, a second process on this machine",
    )
    add("--serve", action="store_true", help="be a server, until Ctrl-C")
    add(
        "--bind",
        type=local_address,
        metavar="HOST:PORT",
        help=f"where to serve (:{DEFAULT_PORT}, that is, all interfaces)",
    )
    sizes = ", ".join(str(size) for size in _DEFAULT.sizes)
    add(
        "--size",
        action="extend",
        type=several(whole(1, SIZE_LIMIT)),
        metavar="BYTES[,BYTES...]",
        help=f"of messages ({sizes})",
    )
    add(
        "--seconds",
        type=seconds(0.01, SECONDS_LIMIT),
        default=_DEFAULT.seconds,
        help=f"of each measurement, after a warm-up ({_DEFAULT.seconds})",
    )
    add("--runs", type=whole(1, 1000), metavar="N", help="of each measurement (1, or 3 to compare)")
    add("--mode", choices=(THROUGHPUT, LATENCY, "all"), default="all", help="what to measure (all)")
    add("--many", action="store_true", help="throughput with send_many() and recv_many()")
    direction = parser.add_mutually_exclusive_group()
    direction.add_argument("--reverse", action="store_true", help="throughput from the server to the client")
    direction.add_argument("--both", action="store_true", help="throughput in one direction, then in the other")
    add(
        "--clients",
        "--threads",
        type=whole(1, CLIENTS_LIMIT),
        default=1,
        metavar="N",
        help="that ask at the same time, in threads (1)",
    )
    add("--compare", choices=(PYZMQ,), help="measure this too, by turns; on one machine only")
    add(
        "--max-datagram",
        type=whole(BASE_DATAGRAM, MAX_DATAGRAM),
        metavar="BYTES",
        help="the largest that this side sends; 1452 is as on Ethernet (what the path carries)",
    )
    add("--timeout", type=seconds(0.1, 600), default=5.0, metavar="SECONDS", help="for the server to answer (5)")
    add("--json", action="store_true", help="print one JSON document and nothing else")


def run(given: argparse.Namespace) -> int:
    """Serve or measure; the exit status."""
    _check(given)
    options = None if given.max_datagram is None else a3m.Options(max_datagram=given.max_datagram)
    if given.serve:
        return _serve(given.bind or f":{DEFAULT_PORT}", options)
    plan = _plan(given)
    display = choose_display(plan, as_json=given.json)
    report = Report(plan, given.server or "loopback")
    try:
        with display:
            _measure(given, report, display, options)
    except KeyboardInterrupt:
        report.interrupted = True
    except (Failed, a3m.A3MError, a3m.BadAddress) as failure:
        report.error = str(failure)
    display.concludes(report)
    return report.status


def _check(given: argparse.Namespace) -> None:
    """Combinations that make no sense."""
    error = given.parser.error
    for_clients = ("server", "size", "runs", "many", "reverse", "both", "compare", "json")
    if given.serve and any(getattr(given, name) for name in for_clients):
        error("--serve goes with --bind and --max-datagram only; what to measure is for the other side to say")
    if given.bind and not given.serve:
        error("--bind says where to serve; it needs --serve")
    if given.compare and given.server:
        error("--compare works on one machine only, so without the address of a server")


def _plan(given: argparse.Namespace) -> Plan:
    return Plan(
        sizes=tuple(dict.fromkeys(given.size or _DEFAULT.sizes)),
        modes=(THROUGHPUT, LATENCY) if given.mode == "all" else (given.mode,),
        directions=(False, True) if given.both else (given.reverse,),
        seconds=given.seconds,
        runs=given.runs or (3 if given.compare else 1),
        many=given.many,
        clients=given.clients,
        rival=given.compare,
        max_datagram=given.max_datagram,
    )


def _measure(given: argparse.Namespace, report: Report, display: Display, options: a3m.Options | None) -> None:
    with ExitStack() as stack:
        if given.compare:
            check_library(given.compare)
        address, bind = given.server, ":0"
        if address is None:
            display.says("Measuring between two processes on this machine, over loopback.")
            address = stack.enter_context(LocalServer(given.max_datagram)).address()
            bind = _LOOPBACK
        else:
            display.says(f"Measuring between this machine and {address}.")
        client = Client(address, bind=bind, timeout=given.timeout, options=options, tick=display.ticks)
        measure(stack.enter_context(client), report, display)


def _serve(bind: str, options: a3m.Options | None) -> int:
    def tell(text: str) -> None:
        print(text, flush=True)

    try:
        with Server(bind, options=options, tell=tell) as server:
            tell(f"Serving on {format_address(server.address)} (UDP); Ctrl-C ends it.")
            server.serve()
    except KeyboardInterrupt:
        tell("Ended.")
    except a3m.AddressInUse as error:
        raise SystemExit(f"a3m perf: {error.strerror}") from None
    except a3m.BadAddress as error:
        raise SystemExit(f"a3m perf: {error}") from None
    return OK
