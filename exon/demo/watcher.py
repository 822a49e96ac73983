"""The process that was started: it starts the two others, watches them and draws up the account."""

from __future__ import annotations

import multiprocessing
import signal
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from time import monotonic
from types import FrameType
from typing import Any

import attrs
from attrs import Factory, define

from exon.demo.account import NAMES, Account, Direction, Outcome, Plan
from exon.demo.party import Moved, Report, be_party
from exon.demo.screen import Display

_STALLED = 60.0  # seconds without any progress after which to give up
_DEAD = 10.0  # seconds to wait for a process that was told to end


class Failed(Exception):
    """The run cannot be completed; the message says why."""


@define(eq=False)
class _Child:
    """A process, as the watcher sees it."""

    name: str
    process: BaseProcess
    pipe: Connection
    report: Report = Factory(lambda: Report(0, 0, False))

    def take(self) -> Any:
        """The next thing it says."""
        try:
            return self.pipe.recv()
        except (EOFError, ConnectionError):
            self.process.join(_DEAD)
            raise Failed(f"{self.name} ended unexpectedly, with exit status {self.process.exitcode}") from None

    def tell(self, what: object) -> None:
        """Say something to it."""
        try:
            self.pipe.send(what)
        except ConnectionError:
            self.take()  # what it said before it ended, or why it did

    def outcome(self) -> Outcome:
        """Its last word; what it said before that was under way already."""
        while not isinstance(said := self.take(), Outcome):
            pass
        return said


class Watcher:
    """Starts the two, passes their ports on, shows what they report, and draws up the account."""

    def __init__(self, plan: Plan, display: Display) -> None:
        """Nothing is started yet."""
        self._plan = plan
        self._display = display
        self._children: list[_Child] = []
        self._interrupted = False

    def run(self) -> Account:
        """The whole run. The first Ctrl-C ends it in good order, the second at once."""
        before = signal.signal(signal.SIGINT, self._interrupt)
        try:
            self._start()
            began = monotonic()
            self._watch()
            seconds = monotonic() - began
            alice, bob = self._finish()
        finally:
            self._end()
            signal.signal(signal.SIGINT, before)
        ways = (Direction.between(alice, bob), Direction.between(bob, alice))
        return Account(self._plan, ways, seconds, self._interrupted)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        # An exception here could strike half-way through a report and make the rest of the pipe unreadable.
        if self._interrupted:
            signal.default_int_handler(number, frame)
        self._interrupted = True

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")  # a fresh interpreter each, as if started by hand
        for index, name in enumerate(NAMES):
            ours, theirs = context.Pipe()
            plan = attrs.evolve(self._plan, seed=self._plan.seed + index)
            process = context.Process(target=be_party, args=(name, NAMES[1 - index], plan, theirs), daemon=True)
            process.start()
            theirs.close()  # or its end would go unnoticed
            self._children.append(_Child(name, process, ours))
        ports = [child.take() for child in self._children]
        for child, port in zip(self._children, reversed(ports), strict=True):
            child.tell(port)

    def _watch(self) -> None:
        """Until both are done, or nothing moves any more."""
        by_pipe = {child.pipe: child for child in self._children}
        moved_at, total = monotonic(), 0
        while not self._interrupted and not self._done:
            for ready in wait(list(by_pipe), timeout=1.0):
                self._hear(by_pipe[ready])  # type: ignore[index]  # only connections were given
            delivered = [child.report.delivered for child in reversed(self._children)]  # alice's arrive at bob's
            self._display.progress(delivered)
            progress = sum(child.report.sent + child.report.delivered for child in self._children)
            if progress > total:
                moved_at, total = monotonic(), progress
            elif monotonic() - moved_at > _STALLED:
                self._display.say(f"No progress for {_STALLED:.0f} seconds: giving up.")
                return

    def _hear(self, child: _Child) -> None:
        said = child.take()
        if isinstance(said, Report):
            child.report = said
        elif isinstance(said, Moved):
            self._display.say(f"{child.name} moves from port {said.old} to port {said.new}")

    @property
    def _done(self) -> bool:
        return all(child.report.done for child in self._children)

    def _finish(self) -> list[Outcome]:
        complete = self._done
        for child in self._children:
            child.tell(complete)
        return [child.outcome() for child in self._children]

    def _end(self) -> None:
        for child in self._children:
            child.pipe.close()
            child.process.join(_DEAD)
            if child.process.exitcode is None:
                child.process.kill()
                child.process.join()
