"""A thread that waits for many things at once, and is woken by the first."""

from __future__ import annotations

from threading import TIMEOUT_MAX, Lock
from time import monotonic


class Sleeper:
    """A thread that sleeps until it is woken; a wake-up that comes before it sleeps counts."""

    __slots__ = ("_park",)

    def __init__(self) -> None:
        """Not woken yet."""
        self._park = Lock()
        self._park.acquire()

    def wake(self, _events: int = 0) -> bool:
        """Whether that was of use."""
        try:
            self._park.release()
        except RuntimeError:  # it is not asleep any more; several objects may wake it at the same time
            return False
        return True

    def sleep(self, deadline: float | None) -> bool:
        """Whether it was woken before the deadline."""
        if deadline is None:
            return self._park.acquire()
        return self._park.acquire(timeout=min(TIMEOUT_MAX, max(0.0, deadline - monotonic())))
