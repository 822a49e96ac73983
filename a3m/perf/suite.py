"""All measurements of a run, and what came out of them."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from statistics import median
from typing import Any, Protocol

import attrs
from attrs import Factory, define, frozen

import a3m
from a3m.perf.client import Client
from a3m.perf.result import Result
from a3m.perf.spec import A3M, LATENCY, THROUGHPUT, Spec

OK, FAILED, INTERRUPTED = 0, 1, 130
WARM_UP = 0.2  # seconds before each measurement, or less if that is shorter


@frozen(kw_only=True)
class Plan:
    """What to measure, in this order: modes, directions, sizes, runs, libraries."""

    sizes: tuple[int, ...] = (1, 100, 1000, 10_000)
    modes: tuple[str, ...] = (THROUGHPUT, LATENCY)
    directions: tuple[bool, ...] = (False,)
    """Of throughput; True is from the server to the client."""
    seconds: float = 0.5
    runs: int = 1
    many: bool = False
    clients: int = 1
    rival: str | None = None
    """A library to compare with."""
    max_datagram: int | None = None

    def specs(self) -> Iterator[Spec]:
        """One for each case."""
        for mode in self.modes:
            for reverse in self.directions if mode == THROUGHPUT else (False,):
                for size in self.sizes:
                    yield Spec(
                        mode=mode,
                        size=size,
                        seconds=self.seconds,
                        warm_up=min(WARM_UP, self.seconds),
                        many=self.many and mode == THROUGHPUT,
                        reverse=reverse,
                        clients=self.clients if mode == LATENCY else 1,
                    )

    def libraries(self, run: int) -> tuple[str, ...]:
        """Whose turn it is in a run. Whoever comes second finds a warmer machine, so they change places."""
        if self.rival is None:
            return (A3M,)
        return (A3M, self.rival) if run % 2 == 0 else (self.rival, A3M)

    @property
    def total(self) -> int:
        """How many measurements."""
        return len([*self.specs()]) * self.runs * len(self.libraries(0))


@define
class Case:
    """All runs of one case, by library."""

    spec: Spec
    results: dict[str, list[Result]] = Factory(dict)

    @property
    def ours(self) -> list[Result]:
        """What A3M did."""
        return self.results.get(A3M, [])

    def ratios(self, rival: str) -> list[float]:
        """How many times as fast as the other, run by run."""
        pairs = zip(self.ours, self.results.get(rival, []), strict=False)
        return [ours.rate / theirs.rate for ours, theirs in pairs if theirs.rate]

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        spec = self.spec
        data: dict[str, Any] = {"mode": spec.mode, "pattern": spec.pattern, "size": spec.size}
        if spec.mode == THROUGHPUT:
            data.update(reverse=spec.reverse, many=spec.many)
        else:
            data["clients"] = spec.clients
        for library, results in self.results.items():
            data[library] = {
                "per_second": round(median(result.rate for result in results), 1),
                "runs": [result.as_dict() for result in results],
            }
            if library != A3M and (ratios := self.ratios(library)):
                data["ratio"] = {"median": median(ratios), "least": min(ratios), "most": max(ratios)}
        return data


@define
class Report:
    """What came out so far."""

    plan: Plan
    where: str
    server: dict[str, Any] = Factory(dict)
    cases: list[Case] = Factory(list)
    interrupted: bool = False
    error: str | None = None

    def _results(self) -> list[Result]:
        return [result for case in self.cases for result in case.ours]

    @property
    def exact(self) -> bool:
        """Whether each message of A3M that was measured came exactly once."""
        return all(result.is_exact for result in self._results())

    @property
    def status(self) -> int:
        """The exit status."""
        if self.error is not None or not self.exact:
            return FAILED
        return INTERRUPTED if self.interrupted else OK

    @property
    def verdict(self) -> str:
        """The result in one sentence; none if the error says it all."""
        results = self._results()
        sent = sum(result.sent for result in results)
        if not self.exact:
            names = {"received": "received", "lost": "lost", "doubled": "twice", "damaged": "damaged"}
            sums = {word: sum(getattr(result.account, name) for result in results) for name, word in names.items()}
            account = ", ".join(f"{number:,} {word}" for word, number in sums.items())
            return f"NOT exactly once: {sent:,} messages sent, {account}."
        done = f"Exactly once: {sent:,} of {sent:,} messages, none lost, none twice."
        if self.error is not None:
            return "Failed: the figures so far." if results else ""
        if self.interrupted:
            return (
                f"Interrupted: the figures so far. {done}" if results else "Interrupted before there were any figures."
            )
        return done

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "ok": self.status == OK,
            "exact": self.exact,
            "interrupted": self.interrupted,
            "error": self.error,
            "where": self.where,
            "settings": attrs.asdict(self.plan),
            "client": versions(),
            "server": self.server,
            "cases": [case.as_dict() for case in self.cases],
        }


def versions() -> dict[str, Any]:
    """What runs here, and on what."""
    return {
        "a3m": a3m.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
    }


class Audience(Protocol):
    """Whoever wants to know how far it is."""

    def begins(self, spec: Spec) -> None:
        """A measurement begins."""

    def has(self, case: Case) -> None:
        """All runs of a case are done."""


def measure(client: Client, report: Report, audience: Audience) -> None:
    """Everything in the plan; the report has it as it comes, also if an exception ends it."""
    plan = report.plan
    report.server = client.server
    for spec in plan.specs():
        case = Case(spec)
        for run in range(plan.runs):
            for library in plan.libraries(run):
                turn = attrs.evolve(spec, library=library, many=spec.many and library == A3M)
                audience.begins(turn)
                case.results.setdefault(library, []).append(client.measure(turn))
                if not any(case is known for known in report.cases):
                    report.cases.append(case)
        audience.has(case)
