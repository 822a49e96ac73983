"""A thread that waits for many things at once, and is woken by the first.

Like a thread in ``recv()``, it drives a node meanwhile, if there is one among the things it waits for and nobody else
does: see :mod:`a3m.waiting`. What else it waits for wakes it all the same.
"""

from __future__ import annotations

from threading import TIMEOUT_MAX, Lock, get_ident
from time import monotonic

from a3m.core import Core, Driver
from a3m.signals import Held


def core_of(pollable: object) -> Core | None:
    """The node that a thread may drive while it waits for an object, if the object belongs to one."""
    core = getattr(pollable, "core", None)
    return core if isinstance(core, Core) and core.driver is not None else None


class Sleeper:
    """A thread that sleeps until it is woken; a wake-up that comes before it sleeps counts."""

    __slots__ = ("_driver", "_guard", "_park", "_thread")

    def __init__(self) -> None:
        """Not woken yet."""
        self._park = Lock()
        self._park.acquire()
        self._guard = Lock()  # for the next: what it drives may be closed as soon as it does not
        self._driver: Driver | None = None
        self._thread = get_ident()

    def wake(self, _events: int = 0) -> bool:
        """Whether that was of use."""
        with self._guard:
            try:
                self._park.release()
            except RuntimeError:  # it is not asleep any more; several objects may wake it at the same time
                return False
            if self._driver is not None:
                if get_ident() != self._thread:
                    self._driver.interrupt()
                else:
                    self._driver.wake()  # in its own turn, so with the lock held
            return True

    def sleep(self, deadline: float | None, core: Core | None = None) -> bool:
        """Whether it was woken before the deadline. Drives ``core`` meanwhile, unless somebody does."""
        if core is not None and core.driver is not None:
            self._drive(core, core.driver, deadline)
        if deadline is None:
            return self._park.acquire()
        return self._park.acquire(timeout=min(TIMEOUT_MAX, max(0.0, deadline - monotonic())))

    def _drive(self, core: Core, driver: Driver, deadline: float | None) -> None:
        with Held(core.lock) as signals:
            if not driver.begin():
                return
            try:
                self._driver = driver
                signals.wake = driver.interrupt
                while self._park.locked() and not signals.came:
                    if (deadline is not None and deadline <= monotonic()) or not driver.turn(deadline):
                        break
            finally:
                with self._guard:
                    self._driver = None
                driver.end()
