"""Ctrl-C and what the library does in the application's own thread.

Python raises KeyboardInterrupt in the main thread between any two steps, so also in the middle of a protocol that has
taken a message from the network and not yet handed it on: the message would be lost. Trio has the same problem, and
the same answer: while the main thread is inside, Ctrl-C is only noted, and takes effect as soon as the state is whole.

It is the handler of SIGINT that is put off, whatever it is. Handlers of other signals run at once, as always: they must
not raise exceptions while sockets are in use.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the same without conversions to enumerations, which cost more than all else here
import signal
from _thread import interrupt_main
from collections.abc import Callable
from threading import Timer, get_ident, main_thread
from types import FrameType, TracebackType
from typing import Any

_SIGINT = int(signal.SIGINT)
_MAIN = main_thread()
_SOON = 0.001  # seconds, in which a call returns


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
        self._frame: FrameType | None = None

    def __enter__(self) -> Uninterrupted:
        """Put it off, if there is a handler in Python."""
        if get_ident() == _MAIN.ident:
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
            if self.came and self.done:
                Timer(_SOON, interrupt_main, [_SIGINT]).start()
            elif self.came:
                self._handler(_SIGINT, self._frame)
