"""Processes to measure: started afresh for every run, on a host and a core of choice, and ended whatever happens.

A scenario starts a few workers in a :class:`Crew`, each with a function that has a :class:`Desk` to talk to it over,
and reads clocks in them (``CLOCK_MONOTONIC`` is one for the whole machine). Most workers run until they are killed;
those that measure say what they found.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from statistics import median
from time import monotonic
from typing import Any, Self

from attrs import frozen

from benchmarks.wan.kernel import die_with_parent, enter_namespace

PATIENCE = 90.0  # seconds without a word before a run counts as failed
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_spawn = multiprocessing.get_context("spawn")


class Failed(Exception):
    """A run did not come to its end."""


@frozen
class Place:
    """Where a worker runs."""

    address: str = "127.0.0.1"
    namespace: str | None = None
    """The path of a network namespace; None is the one we are in."""
    core: int | None = None
    """None is any."""

    def go(self) -> None:
        """Move this process there."""
        if self.namespace is not None:
            with open(self.namespace, "rb") as file:
                enter_namespace(file.fileno())
        if self.core is not None:
            os.sched_setaffinity(0, {self.core})


class Desk:
    """A worker's way to talk to the scenario."""

    def __init__(self, pipe: Connection) -> None:
        self.tell: Callable[[Any], None] = pipe.send
        self.hear: Callable[[], Any] = pipe.recv
        self.is_told: Callable[[], bool] = pipe.poll

    def report(self, facts: Any) -> None:
        """Say what came out, and wait to be killed: others would be disturbed if our sockets were closed first."""
        self.tell(facts)
        with suppress(EOFError):
            self.hear()


def _work(pipe: Connection, place: Place, function: Callable[..., None], arguments: Sequence[Any]) -> None:
    die_with_parent()
    place.go()
    function(Desk(pipe), *arguments)


class Worker:
    """A process that runs one function."""

    def __init__(self, place: Place, function: Callable[..., None], arguments: Sequence[Any]) -> None:
        self._pipe, theirs = _spawn.Pipe()
        self._name = f"{function.__name__}{arguments!r}"
        self._process = _spawn.Process(target=_work, args=(theirs, place, function, arguments), daemon=True)
        self._process.start()
        theirs.close()

    def hear(self, patience: float = PATIENCE) -> Any:
        """What it says next."""
        if not self._pipe.poll(patience):
            raise Failed(f"{self._name} said nothing for {patience:.0f} seconds")
        try:
            return self._pipe.recv()
        except EOFError:
            raise Failed(f"{self._name} ended early; its error message is above") from None

    def tell(self, what: Any) -> None:
        """Say something to it."""
        try:
            self._pipe.send(what)
        except OSError:
            raise Failed(f"{self._name} ended early; its error message is above") from None

    def cpu(self) -> float:
        """Seconds of processor time so far, of all its threads."""
        with open(f"/proc/{self._process.pid}/stat", encoding="ascii") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def rss(self) -> float:
        """Memory that it has now, in MiB."""
        with open(f"/proc/{self._process.pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * _PAGE / (1 << 20)

    def freeze(self) -> None:
        """Stop it where it is."""
        if self._process.pid is not None and self._process.is_alive():
            os.kill(self._process.pid, signal.SIGSTOP)

    def end(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.join()
        self._pipe.close()


class Crew:
    """Workers that end with the block."""

    def __init__(self) -> None:
        self._workers: list[Worker] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:  # so that none notices that others are gone, and complains
            worker.freeze()
        for worker in self._workers:
            worker.end()

    def start(self, function: Callable[..., None], *arguments: Any, place: Place | None = None) -> Worker:
        """Start one; ``function(desk, *arguments)`` runs in a new process."""
        worker = Worker(place or Place(), function, arguments)
        self._workers.append(worker)
        return worker


@frozen
class Window:
    """When to measure: after a warm-up, for a while."""

    begin: float
    end: float

    @classmethod
    def after(cls, warm_up: float, seconds: float) -> Window:
        """From now."""
        begin = monotonic() + warm_up
        return cls(begin, begin + seconds)


def percentile(figures: Sequence[float], share: float) -> float:
    """The smallest figure that is at least as large as that share of them."""
    return sorted(figures)[max(0, math.ceil(share * len(figures)) - 1)]


def latency_facts(seconds: Sequence[float], duration: float) -> dict[str, float]:
    """Of round trips: how many a second, and how long they took."""
    worst = max(seconds)
    return {
        "rate": len(seconds) / max(duration, worst),  # the only one may have taken longer
        "p50_ms": 1000 * median(seconds),
        "p99_ms": 1000 * percentile(seconds, 0.99),
        "worst_ms": 1000 * worst,
    }
