"""What the user sees: a moving bar and tables, plain lines, or JSON."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from itertools import groupby
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from a3m.perf.spec import Spec
from a3m.perf.suite import FAILED, OK, Case, Plan, Report
from a3m.perf.tables import columns, remarks, title

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class Display(Protocol):
    """Shows a run."""

    def __enter__(self) -> object:
        """Begin."""

    def __exit__(self, *_: object) -> None:
        """No more progress; the report may follow."""

    def says(self, text: str) -> None:
        """Something to know beforehand."""

    def begins(self, spec: Spec) -> None:
        """A measurement begins."""

    def ticks(self) -> None:
        """A little time has passed."""

    def has(self, case: Case) -> None:
        """All runs of a case are done."""

    def concludes(self, report: Report) -> None:
        """The end."""


class _Quiet:
    """Shows nothing on the way."""

    def __enter__(self) -> object:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def says(self, text: str) -> None:
        """Nothing."""

    def begins(self, spec: Spec) -> None:
        """Nothing."""

    def ticks(self) -> None:
        """Nothing."""

    def has(self, case: Case) -> None:
        """Nothing."""


class Json(_Quiet):
    """One JSON document at the end and nothing else; what went wrong is said on standard error, too."""

    def concludes(self, report: Report) -> None:
        """The document."""
        print(json.dumps(report.as_dict(), indent=2), flush=True)
        _complain(report)


class Plain(_Quiet):
    """Lines of text without any escape code, for files, pipes and simple terminals. A row comes when it is known."""

    def __init__(self, plan: Plan) -> None:
        """Nothing is printed yet."""
        self._plan = plan
        self._title = ""
        self._shown: list[Case] = []

    def says(self, text: str) -> None:
        """A line."""
        print(text, flush=True)

    def has(self, case: Case) -> None:
        """A row, below the heading that it needs."""
        self._shown.append(case)  # before Ctrl-C can come between
        these = columns(case, self._plan)
        if title(case, self._plan) != self._title:
            self._title = title(case, self._plan)
            print(f"\n{self._title}")
            print("".join(f"{column.name:>{column.width + 2}}" for column in these))
        print("".join(f"{column.show(case):>{column.width + 2}}" for column in these), flush=True)

    def concludes(self, report: Report) -> None:
        """What is not shown yet, and the verdict."""
        for case in report.cases:
            if case.ours and not any(case is shown for shown in self._shown):  # it was interrupted
                self.has(case)
        for number, remark in enumerate(remarks(report)):
            print(remark if number else f"\n{remark}")
        if report.verdict:
            print(report.verdict, flush=True)
        _complain(report)


class Live:
    """A moving bar and tables, with rich (the extra ``cli``)."""

    def __init__(self, plan: Plan) -> None:
        """One bar for everything."""
        from rich.console import Console  # noqa: PLC0415 - an optional dependency
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

        self._plan = plan
        self._console = Console()
        parts = (TextColumn("{task.description}"), BarColumn(None), TimeElapsedColumn())
        # Drawing takes time from what is measured, so seldom.
        self._progress: Progress = Progress(*parts, console=self._console, refresh_per_second=4, transient=True)
        self._bar: TaskID = self._progress.add_task("starting", total=plan.total)
        self._done = -1
        self._began, self._length = 0.0, 1.0

    def __enter__(self) -> Live:
        """Begin to move."""
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Be gone."""
        self._progress.stop()

    def says(self, text: str) -> None:
        """A line above the bar."""
        self._console.print(text, highlight=False, markup=False)

    def begins(self, spec: Spec) -> None:
        """What the bar is about."""
        self._done += 1
        self._began, self._length = monotonic(), spec.warm_up + spec.seconds
        self._progress.update(self._bar, description=str(spec), completed=self._done)

    def ticks(self) -> None:
        """A measurement is a part of the bar, as long as it is expected to take."""
        part = min(1.0, (monotonic() - self._began) / self._length)
        self._progress.update(self._bar, completed=self._done + part)

    def has(self, case: Case) -> None:
        """Nothing until the end."""

    def concludes(self, report: Report) -> None:
        """The tables, and the verdict."""
        from rich.table import Table  # noqa: PLC0415 - an optional dependency

        known = [case for case in report.cases if case.ours]
        for heading, cases in groupby(known, lambda case: title(case, self._plan)):
            rows = list(cases)
            these = columns(rows[0], self._plan)
            table = Table(title=heading, title_justify="left")
            for column in these:
                table.add_column(column.name, justify="right")
            for case in rows:
                table.add_row(*(column.show(case) for column in these))
            self._console.print(table)
        for remark in remarks(report):
            self._console.print(remark, style="dim", highlight=False)
        colour = {OK: "green", FAILED: "red"}.get(report.status, "yellow")
        if report.verdict:
            self._console.print(report.verdict, style=f"bold {colour}", highlight=False)
        _complain(report)


def _complain(report: Report) -> None:
    if report.error is not None:
        print(f"a3m perf: {report.error}", file=sys.stderr, flush=True)


def choose_display(plan: Plan, *, as_json: bool) -> Display:
    """What suits where the output goes, unless the user said otherwise."""
    if as_json:
        return Json()
    simple = not sys.stdout.isatty() or os.environ.get("TERM") == "dumb"
    return Plain(plan) if simple or importlib.util.find_spec("rich") is None else Live(plan)
