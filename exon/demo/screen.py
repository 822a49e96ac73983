"""What the user sees: moving bars, plain lines or JSON."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from exon.demo.account import NAMES, OK, WRONG, Account, Plan

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class Display(Protocol):
    """Shows a run."""

    def __enter__(self) -> Display:
        """Begin."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """No more progress; the account may follow."""

    def say(self, text: str) -> None:
        """Something happened."""

    def progress(self, delivered: Sequence[int]) -> None:
        """How many messages have arrived in each direction."""

    def account(self, account: Account) -> None:
        """The end."""


class Plain:
    """Lines of text without any escape code, for files, pipes and simple terminals."""

    def __init__(self, plan: Plan) -> None:
        """Print a line of progress for each tenth."""
        self._goal = 2 * plan.messages
        self._tenths = 0

    def __enter__(self) -> Plain:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to tidy up."""

    def say(self, text: str) -> None:
        """A line."""
        print(text, flush=True)

    def progress(self, delivered: Sequence[int]) -> None:
        """A line whenever another tenth is done."""
        tenths = 10 * sum(delivered) // self._goal
        if tenths > self._tenths:
            self._tenths = tenths
            self.say(f"{10 * tenths:3} %  {sum(delivered):,} of {self._goal:,} messages delivered")

    def account(self, account: Account) -> None:
        """A table in columns."""
        for label, *figures in account.rows():
            print(f"{label:<20}" + "".join(f"{figure:>16}" for figure in figures))
        print(account.verdict, flush=True)


class Json:
    """One JSON object at the end and nothing else."""

    def __enter__(self) -> Json:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to tidy up."""

    def say(self, text: str) -> None:
        """Nothing."""

    def progress(self, delivered: Sequence[int]) -> None:
        """Nothing."""

    def account(self, account: Account) -> None:
        """The object."""
        print(json.dumps(account.as_dict(), indent=2), flush=True)


class Live:
    """Moving bars, with rich (the extra ``cli``)."""

    def __init__(self, plan: Plan) -> None:
        """One bar for each direction."""
        from rich.console import Console  # noqa: PLC0415 - an optional dependency
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

        columns = (TextColumn("{task.description}"), BarColumn(None), MofNCompleteColumn(), TimeElapsedColumn())
        self._console = Console()
        self._progress: Progress = Progress(*columns, console=self._console, expand=True)
        a, b = NAMES
        self._bars: list[TaskID] = [
            self._progress.add_task(way, total=plan.messages) for way in (f"{a} → {b}", f"{b} → {a}")
        ]

    def __enter__(self) -> Live:
        """Begin to move."""
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stand still."""
        self._progress.stop()

    def say(self, text: str) -> None:
        """A line above the bars."""
        self._console.print(text, highlight=False)

    def progress(self, delivered: Sequence[int]) -> None:
        """Move the bars."""
        for bar, count in zip(self._bars, delivered, strict=True):
            self._progress.update(bar, completed=count)

    def account(self, account: Account) -> None:
        """A table."""
        from rich.table import Table  # noqa: PLC0415 - an optional dependency

        heading, *rows = account.rows()
        table = Table(heading[0], title="account", title_justify="left")
        for name in heading[1:]:
            table.add_column(name, justify="right")
        for row in rows:
            table.add_row(*row)
        self._console.print(table)
        colour = {OK: "green", WRONG: "red"}.get(account.status, "yellow")
        self._console.print(account.verdict, style=f"bold {colour}", highlight=False)


def choose_display(plan: Plan, *, plain: bool, as_json: bool) -> Display:
    """What suits where the output goes, unless the user said otherwise."""
    if as_json:
        return Json()
    simple = plain or not sys.stdout.isatty() or os.environ.get("TERM") == "dumb"
    return Plain(plan) if simple or importlib.util.find_spec("rich") is None else Live(plan)
