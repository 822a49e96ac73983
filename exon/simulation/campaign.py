"""Many simulated runs: spread over processes, watched, and added up."""

from __future__ import annotations

import multiprocessing
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from time import monotonic

import attrs
from attrs import Factory, define

from exon.simulation.network import Network
from exon.simulation.scenarios import Violation, run

CHUNK = 10  # seeds that a process takes at a time
_PAUSE = 5.0  # seconds between two plain progress lines
_MOST_VIOLATIONS = 10  # after which nothing is to be learnt from more
_HEADINGS = ("runs", "sent", "delivered", "unknown", "datagrams", "lost", "simulated")


@define
class Totals:
    """What happened in some runs."""

    runs: int = 0
    sent: int = 0
    delivered: int = 0
    unknown: int = 0
    datagrams: int = 0
    lost: int = 0
    simulated: float = 0.0
    violations: list[str] = Factory(list)

    def count(self, network: Network) -> None:
        """Add one run."""
        hosts = network.hosts.values()
        self.runs += 1
        for host in hosts:
            lives = (host.accepted, *host.lives_lost, *(farewell.accepted for farewell in host.farewells))
            self.sent += sum(map(len, lives))
            self.delivered += len(host.received)
            self.unknown += len(host.unknown)
        self.datagrams += network.datagrams
        self.lost += network.lost
        self.simulated += network.elapsed

    def add(self, other: Totals) -> None:
        """Add other runs."""
        for field in attrs.fields(Totals):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))

    def cells(self) -> list[str]:
        """The numbers, as they are printed."""
        numbers = (self.runs, self.sent, self.delivered, self.unknown, self.datagrams, self.lost)
        return [*(f"{number:,}" for number in numbers), duration(self.simulated)]


def simulate(name: str, seeds: Sequence[int]) -> tuple[str, Totals]:
    """Run seeds of one scenario, in whatever process this is; violations are collected, not raised."""
    totals = Totals()
    for seed in seeds:
        try:
            totals.count(run(name, seed))
        except Violation as violation:
            totals.runs += 1
            totals.violations.append(f"{name}, seed {seed}: {violation}")
    return name, totals


# -- what is seen meanwhile -------------------------------------------------------------------------------------------


def say(text: str) -> None:
    """Print a line, now."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


class _PlainProgress:
    """A line now and then."""

    def __init__(self, describe: Callable[[], str]) -> None:
        self._describe = describe
        self._shown = monotonic()

    def show(self, _share: float) -> None:
        if monotonic() - self._shown >= _PAUSE:
            self._shown = monotonic()
            say(f"  {self._describe()}")


class _RichProgress:
    """A moving bar."""

    def __init__(self, progress: object, describe: Callable[[], str]) -> None:
        from rich.progress import Progress  # noqa: PLC0415  # an extra: the simulator works without it

        assert isinstance(progress, Progress)
        self._progress = progress
        self._describe = describe
        self._task = progress.add_task("", total=1.0)

    def show(self, share: float) -> None:
        self._progress.update(self._task, completed=share, description=self._describe())


def _progress_bar() -> AbstractContextManager[object] | None:
    """The bar, if there is a terminal to draw on and something to draw with."""
    if not sys.stdout.isatty():
        return None
    try:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415  # an extra
    except ImportError:
        return None
    return Progress(BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), transient=True)


def duration(seconds: float) -> str:
    """Seconds for people.

    >>> duration(59.94), duration(3599.0), duration(90_000.0)
    ('59.9 s', '59.98 min', '25.00 h')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.2f} min" if seconds < 3600 else f"{seconds / 3600:.2f} h"


def table(rows: dict[str, Totals], total: Totals) -> Iterator[str]:
    """A line for each scenario and one for all of them."""
    lines = [("scenario", list(_HEADINGS)), *((name, totals.cells()) for name, totals in rows.items())]
    lines.append(("total", total.cells()))
    for name, cells in lines:
        yield f"{name:<18}" + "".join(f"{cell:>13}" for cell in cells)


# -- many runs --------------------------------------------------------------------------------------------------------


class Campaign:
    """Runs of many seeds, spread over processes, until the seeds or the time are used up."""

    def __init__(self, names: Sequence[str], jobs: int) -> None:
        self._rows = {name: Totals() for name in names}
        self._total = Totals()
        self._jobs = jobs
        self._started = monotonic()

    def go(self, chunks: Iterator[tuple[str, Sequence[int]]], share: Callable[[int, float], float]) -> int:
        """Work through chunks until ``share(runs, seconds)`` of all work is 1; the exit status."""
        bar = _progress_bar()
        status = 0
        with bar if bar is not None else nullcontext() as drawn:
            progress = _PlainProgress(self._status) if bar is None else _RichProgress(drawn, self._status)
            try:
                for name, totals in self._results(chunks, lambda: share(self._total.runs, self._seconds)):
                    self._rows[name].add(totals)
                    self._total.add(totals)
                    for violation in totals.violations:
                        say(f"VIOLATION in {violation}\n")
                    progress.show(share(self._total.runs, self._seconds))
                    if len(self._total.violations) >= _MOST_VIOLATIONS:
                        say(f"stopped after {len(self._total.violations)} violations")
                        break
            except KeyboardInterrupt:
                say("interrupted")
                status = 130
        self._print_summary()
        return 1 if self._total.violations else status

    @property
    def _seconds(self) -> float:
        return monotonic() - self._started

    def _results(
        self, chunks: Iterator[tuple[str, Sequence[int]]], share: Callable[[], float]
    ) -> Iterator[tuple[str, Totals]]:
        if self._jobs == 1:
            for chunk in chunks:
                if share() >= 1:
                    return
                yield simulate(*chunk)
            return
        # Not forked: a fork of a process with threads (the progress bar has one) may hang.
        context = multiprocessing.get_context("spawn")
        ignore = (signal.SIGINT, signal.SIG_IGN)  # the keyboard interrupts this process, which tells the others
        pool = ProcessPoolExecutor(self._jobs, mp_context=context, initializer=signal.signal, initargs=ignore)
        try:
            running: set[Future[tuple[str, Totals]]] = set()
            while True:
                wanted = 2 * self._jobs - len(running) if share() < 1 else 0
                running |= {pool.submit(simulate, *chunk) for chunk in islice(chunks, wanted)}
                if not running:
                    return
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)

    def _status(self) -> str:
        total = self._total
        return f"{total.runs:,} runs, {total.delivered:,} messages delivered, {len(total.violations)} violations"

    def _print_summary(self) -> None:
        for line in table(self._rows, self._total):
            say(line)
        total, seconds = self._total, self._seconds
        say(
            f"{total.runs:,} runs: {total.sent:,} messages sent, {total.delivered:,} delivered, "
            f"{total.unknown:,} reported as unknown; {total.datagrams:,} datagrams, {total.lost:,} of them lost; "
            f"{duration(total.simulated)} simulated in {duration(seconds)} "
            f"({1000 * seconds * self._jobs / max(1, total.runs):.1f} ms of a process per run); "
            f"{len(total.violations) or 'no'} violations"
        )


def chunks_of(names: Sequence[str], seeds: Sequence[int]) -> Iterator[tuple[str, Sequence[int]]]:
    """Every scenario by turns, so that an early end has seen something of each."""
    for start in range(0, len(seeds), CHUNK):
        for name in names:
            yield name, seeds[start : start + CHUNK]
