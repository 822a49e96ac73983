"""Results in rows and columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from attrs import frozen

from a3m.perf.result import Latency, Result
from a3m.perf.spec import LATENCY
from a3m.perf.suite import Case, Plan, Report
from a3m.perf.transport import Transport


@frozen
class Column:
    """A column, and what is in it for a case."""

    name: str
    show: Callable[[Case], str]
    width: int
    """For output whose rows have to be printed before all are known."""


def title(case: Case, plan: Plan) -> str:
    """What a table is about."""
    spec = case.spec
    if spec.mode == LATENCY:
        words = f"Round trips, {spec.pattern}, {spec.clients} client{'s' * (spec.clients != 1)}"
    else:
        words = f"One way, {spec.pattern}{', from the server to the client' * spec.reverse}"
        words += ", send_many() and recv_many()" * spec.many
    return words + (f"; median (smallest to largest) of {plan.runs} runs" if plan.runs > 1 else "")


def columns(case: Case, plan: Plan) -> list[Column]:
    """The columns for cases of this kind."""
    wide = 34 if plan.runs > 1 else 13
    latency = case.spec.mode == LATENCY
    rate = "round trips/s" if latency else "messages/s"
    found = [Column("bytes", lambda case: f"{case.spec.size:,}", 10)]
    found.append(Column(rate, lambda case: spread([result.rate for result in case.ours]), wide))
    if plan.rival is not None:
        found += _compared(plan.rival, wide)
    if latency:
        for name in ("p50", "p90", "p99", "worst"):
            found.append(Column(name, _latency(name), 8))
    else:
        found.append(Column("MB/s", lambda case: f"{median(result.megabytes for result in case.ours):,.1f}", 8))
    sent, received = ("requests", "replies") if latency else ("sent", "received")
    found.append(Column(sent, lambda case: _total(case, lambda result: result.sent), 11))
    found.append(Column(received, lambda case: _total(case, lambda result: result.account.received), 11))
    found.append(Column("sent again", _transport(lambda all_of: f"{sum(each.sent_again for each in all_of):,}"), 10))
    found.append(Column("lost", _transport(lambda all_of: f"{sum(each.lost for each in all_of):,}"), 6))
    found.append(Column("RTT", _transport(lambda all_of: _median_time([each.rtt for each in all_of])), 8))
    if not latency:  # which hardly fills either
        found.append(Column("datagram", _transport(lambda all_of: _whole(all_of[-1].datagram)), 8))
        found.append(Column("window", _transport(lambda all_of: _whole(all_of[-1].window)), 11))
    return found


def remarks(report: Report) -> list[str]:
    """What to know about the tables."""
    results = [result for case in report.cases for each in case.results.values() for result in each]
    if not results:
        return []
    said = [
        "sent again: tokens that the transport repeated; lost: those of them that the receiver did not see twice.",
        "RTT, datagram and window (bytes): as the transport had them at the end of a run.",
    ]
    if not all(result.alone for result in results):
        said.append("The server measured for others at the same time; both had less than they could have had alone.")
    if report.exact and not all(result.is_exact for result in results):
        said.append(f"Of the messages of {report.plan.rival}, some did not come exactly once.")
    return said


def _compared(rival: str, wide: int) -> list[Column]:
    return [
        Column(rival, lambda case: spread([result.rate for result in case.results.get(rival, [])]), wide),
        Column(f"A3M / {rival}", lambda case: spread(case.ratios(rival), ".2f"), max(wide - 14, 12)),
    ]


def _latency(name: str) -> Callable[[Case], str]:
    def show(case: Case) -> str:
        found = [result.latency for result in case.ours if isinstance(result.latency, Latency)]
        return _median_time([getattr(latency, name) for latency in found])

    return show


def _transport(show: Callable[[list[Transport]], str]) -> Callable[[Case], str]:
    def of_case(case: Case) -> str:
        found = [result.transport for result in case.ours if result.transport is not None]
        return show(found) if found else "-"

    return of_case


def _total(case: Case, number: Callable[[Result], int]) -> str:
    return f"{sum(map(number, case.ours)):,}"


def _median_time(seconds: Sequence[float | None]) -> str:
    known = [each for each in seconds if each is not None]
    return duration(median(known)) if known else "-"


def _whole(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


def duration(seconds: float) -> str:
    """A time with the unit that suits it.

    >>> duration(0.000085), duration(0.0123), duration(2)
    ('85 µs', '12.3 ms', '2.00 s')
    """
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def spread(figures: Sequence[float], form: str = ",.0f") -> str:
    """The median, and the smallest and largest if there are several.

    >>> spread([3.0, 1.0, 2.0]), spread([1234.5]), spread([])
    ('2 (1 to 3)', '1,234', '-')
    """
    if not figures:
        return "-"
    middle = format(median(figures), form)
    if len(figures) == 1:
        return middle
    return f"{middle} ({format(min(figures), form)} to {format(max(figures), form)})"
