"""Work in the child of a fork()."""

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
