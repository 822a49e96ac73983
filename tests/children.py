"""Work in the child of a fork(), and what the main thread of a process does."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable

_PATIENCE = 60  # seconds until a child that hangs is killed


def in_child(work: Callable[[], object]) -> int:
    """The exit status of a forked child that does some work: 0 if it returns something true."""
    sys.stdout.flush()
    child = os.fork()
    if not child:
        status = 1
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(_PATIENCE)
            signal.set_wakeup_fd(-1)  # that of a loop of the parent
            status = 0 if work() else 2
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def refused(call: Callable[[], object], error: type[Exception]) -> bool:
    """Whether a call raises an error."""
    try:
        call()
    except error:
        return True
    return False


def main_thread_sleeps() -> bool:
    """Whether the main thread of this process waits for something, asked a hundred times in a row.

    A signal that comes when it is about to wait, and before it does, wakes nobody: Python notes it and looks at it when
    the wait is over. No program can do anything about it but ask for it again.
    """
    return all(_state() == "S" for _ in range(100))


def _state() -> str:
    with open(f"/proc/self/task/{os.getpid()}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]
