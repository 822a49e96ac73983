"""Ctrl-C and what the library does in the application's own thread.

Python raises KeyboardInterrupt in the main thread between any two steps, so also in the middle of a protocol that has
taken a message from the network and not yet handed it on: the message would be lost. Trio has the same problem, and
the same answer: while the main thread is inside, Ctrl-C is only noted, and takes effect as soon as the state is whole.

It is the handler of SIGINT that is put off, whatever it is. Handlers of other signals run at once, as always: they must
not raise exceptions while sockets are in use.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the same without conversions to enumerations, which cost more than all else here
import os
import signal
from _thread import interrupt_main, start_new_thread
from collections.abc import Callable
from threading import Lock, get_ident, main_thread
from time import sleep
from types import FrameType, TracebackType
from typing import Any, Self

_SIGINT = int(signal.SIGINT)
_SOON = 0.001  # seconds, in which a call returns
_main = main_thread().ident  # asking each time costs as much as the rest


def _find_main() -> None:
    global _main  # noqa: PLW0603
    _main = main_thread().ident


os.register_at_fork(after_in_child=_find_main)


def in_main_thread() -> bool:
    """Whether SIGINT comes in this thread."""
    return get_ident() == _main


class Uninterrupted:
    """A block of the main thread in which SIGINT waits; in other threads it never comes.

    >>> before = signal.signal(signal.SIGINT, lambda *_: print("now"))
    >>> with Uninterrupted() as signals:
    ...     signal.raise_signal(signal.SIGINT)
    ...     print("not yet, but", signals.came)
    not yet, but True
    now
    >>> _ = signal.signal(signal.SIGINT, before)
    """

    __slots__ = ("_frame", "_handler", "came", "done", "wake")

    def __init__(self) -> None:
        """Nothing came yet."""
        self.came = False
        self.done = False  # the block has done what it was for: an exception would hide the result
        self.wake: Callable[[], None] | None = None  # called when it comes
        self._handler: Any = None

    def __enter__(self) -> Self:
        """Put it off, if there is a handler in Python."""
        if get_ident() == _main:
            handler = _signal.getsignal(_SIGINT)
            if callable(handler):
                self._handler = handler
                _signal.signal(_SIGINT, self._note)
        return self

    def _note(self, _: int, frame: FrameType | None) -> None:
        self.came, self._frame = True, frame
        if self.wake is not None:
            self.wake()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let it take effect now, or very soon if something is to be returned first."""
        if self._handler is not None:
            _signal.signal(_SIGINT, self._handler)
            if self.came:
                self._catch_up()

    def _catch_up(self) -> None:
        if self.done:
            interrupt_soon()
        else:
            self._handler(_SIGINT, self._frame)


class Held(Uninterrupted):
    """A lock of the library, held by a thread of the application, while SIGINT waits.

    Nearly every call of the library is one, so these methods do themselves what they could leave to others.

    >>> lock = Lock()
    >>> with Held(lock):
    ...     lock.locked()
    True
    >>> lock.locked()
    False
    """

    __slots__ = ("_lock",)

    def __init__(self, lock: Lock) -> None:
        """To hold ``lock``."""
        self.came = self.done = False
        self.wake = self._handler = None
        self._lock = lock

    def __enter__(self) -> Self:
        """Put it off, and wait for the lock."""
        if get_ident() == _main:
            handler = _signal.getsignal(_SIGINT)
            if callable(handler):
                self._handler = handler
                _signal.signal(_SIGINT, self._note)
        self._lock.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the lock, and let the signal take effect."""
        self._lock.release()
        if self._handler is not None:
            _signal.signal(_SIGINT, self._handler)
            if self.came:
                self._catch_up()


def interrupt_soon() -> None:
    """Let SIGINT come again when the call that put it off has returned.

    A thread of the threading module would not do: whoever starts one waits until it runs, and on a busy machine it may
    be done by then.
    """
    start_new_thread(_interrupt, ())


def _interrupt() -> None:
    sleep(_SOON)
    interrupt_main(signal.SIGINT)
