"""Starts :mod:`tests.net.peer` in processes of its own, and ends them whatever happens."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from threading import Timer
from typing import Any

ROOT = Path(__file__).parents[2]
PATIENCE = 120.0


class Process:
    """One endpoint in a process of its own."""

    def __init__(self, arguments: Sequence[str], prefix: Sequence[str] = ()) -> None:
        """``prefix`` is put in front of the command, such as ``ip netns exec NAME``."""
        self._process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "tests.net.peer", *arguments],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

        # Whoever waits for a line from it then reads the end instead.
        self._watchdog = Timer(PATIENCE, self._process.kill)
        self._watchdog.start()

    def said(self) -> dict[str, Any]:
        """Its next line."""
        assert self._process.stdout is not None
        return self._facts(self._process.stdout.readline())

    def finish(self) -> dict[str, Any]:
        """Its last line, after its standard input has ended."""
        output, _ = self._process.communicate(timeout=PATIENCE)
        assert self._process.returncode == 0
        return self._facts(output.splitlines()[-1])

    def tell(self, text: str) -> None:
        """Write a line to it."""
        assert self._process.stdin is not None
        self._process.stdin.write(text + "\n")
        self._process.stdin.flush()

    def end(self) -> None:
        """Kill it if it still runs."""
        self._watchdog.cancel()
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()

    @staticmethod
    def _facts(line: str) -> dict[str, Any]:
        facts: dict[str, Any] = json.loads(line)
        return facts


class Processes(ExitStack):
    """Ends every process it started."""

    def start(self, *arguments: object, prefix: Sequence[str] = ()) -> Process:
        """Start one and wait until it has its address."""
        process = Process([str(argument) for argument in arguments], prefix)
        self.callback(process.end)
        process.said()
        return process
