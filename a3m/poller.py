"""Pollers: one thread waits for many things at once (003, sections 4.4.4 to 4.4.6).

:func:`a3m.poll` looks at a list of objects and forgets them; a :class:`Poller` remembers them and is told by each when
something happens, so that waiting costs the same for ten objects as for ten thousand. Both follow the Linux kernel's
``poll`` and ``epoll``, in user space: no system call is made unless somebody asks for a file descriptor.

How a poller works. Everything registered is an *item*, which is also the entry in the object's wait queue. When the
object reports an event, the item goes to the *ready list* and one waiting thread is woken. The thread asks each ready
object what holds now, so a report is never out of date, and settles what becomes of the item: level-triggered ones go
to the end of the ready list, where they stay until they are found to hold nothing; the others leave it.

Two locks, as in the kernel. ``_mutex`` is for those who change or harvest the poller; objects are asked while it is
held. The ready list has a lock of its own, for itself and the waiters; objects take it to report, with their own lock
held, so nobody who holds it calls an object, only the wait queue, and through it outer pollers. The order is therefore:
mutex of the outer poller, mutex of the inner one, lock of the object, lock of the inner list, lock of the outer one.
Pollers form no circles, so neither do the locks.

Rejected: one lock for both purposes and a harvest that takes items out of the ready list while it asks. A second
thread would find the list empty and report nothing while everything is ready.
"""

from __future__ import annotations

from threading import Lock
from time import monotonic
from types import TracebackType
from typing import Any

import attrs
from attrs import frozen

from a3m.core import Core
from a3m.errors import PollError
from a3m.nesting import MAX_NESTING, Place
from a3m.poll_once import poll
from a3m.pollable import POLLET, POLLEXCLUSIVE, POLLONESHOT, Pollable, check_flags, check_limit, check_pollable
from a3m.ready_list import Item, ReadyList
from a3m.sleeper import Sleeper, core_of
from a3m.waitqueue import POLLHUP, POLLIN, WaitEntry
from exon import forks

__all__ = [
    "MAX_NESTING",
    "POLLET",
    "POLLEXCLUSIVE",
    "POLLIN",
    "POLLONESHOT",
    "Pollable",
    "Poller",
    "PollerStats",
    "poll",
]


@frozen
class PollerStats:
    """A poller at a glance."""

    registered: int
    """Objects that were added and not removed."""
    ready: int
    """Those that reported something that was not harvested yet, or that had something when last looked at."""
    waiting: int
    """Threads asleep in :meth:`Poller.wait`, and others who wait for the poller."""

    def as_dict(self) -> dict[str, int]:
        """The same, for a log."""
        return attrs.asdict(self)


class Poller:
    """Waits for any of the objects registered with it.

    Each is registered with the events of interest, :data:`POLLIN` and :data:`POLLOUT`; :data:`POLLERR` and
    :data:`POLLHUP` are reported in any case, the latter once the object is closed. It stays registered until it is
    removed. Plainly registered, an object is reported by every :meth:`wait` as long as it has what is wanted
    (level-triggered). Flags change that:

    - :data:`POLLET` (edge-triggered): reported when something happens to it, and not again before something new does.
      Whoever gets the report goes on until there is nothing left. Events may fall together, and one that happens
      during the report may be reported once more.
    - :data:`POLLONESHOT`: reported once, and then not at all until :meth:`modify` arms it again.
    - :data:`POLLEXCLUSIVE`: of several pollers with this flag on the same object, an event wakes one, in turn: one in
      which a thread waits, if there is such a one. It is meant for :data:`POLLET`, does not go with
      :data:`POLLONESHOT`, and the registration cannot be modified. When it ends with an event not yet harvested,
      another poller is woken instead.

    Any number of threads may use a poller, and wait on it at the same time: an event wakes one of them, in turn, and a
    thread that leaves while there is more wakes the next. Ready objects take turns too when ``max_events`` is small.

    A poller is pollable: it has :data:`POLLIN` while something in it is ready. Circles are refused.

    The objects keep the poller and it keeps them: close it, or use it as a context manager.

    >>> with Poller() as outer, Poller() as inner:
    ...     outer.add(inner, POLLIN | POLLET)
    ...     print(outer.wait(timeout=0))
    ...     inner.add(outer, POLLIN)
    Traceback (most recent call last):
    ...
    a3m.errors.PollError: pollers would wait for each other in a circle
    """

    def __init__(self) -> None:
        """Nothing is registered yet."""
        self._mutex = Lock()
        self._items: dict[int, Item] = {}  # by identity, since objects may be equal or not hashable
        self._ready = ReadyList()
        self._place = Place()
        self._core: Core | None = None  # the node that a thread drives while it waits: the first there was
        forks.register(self)

    def __enter__(self) -> Poller:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._ready.closed else f"{len(self._items)} registered"
        return f"<Poller at {id(self):#x}: {state}>"

    # ── registering ──────────────────────────────────────────────────────────────────────────────────────────────────

    def add(self, pollable: Pollable, events: int) -> None:
        """Wait for an object from now on. Events that hold already are reported.

        Raises:
            PollError: It is not pollable, is closed, is registered already, the flags do not go together, the poller is
                closed, or pollers would wait for each other in a circle. Nothing was registered.

        >>> with Poller() as poller, Poller() as inner:
        ...     poller.add(inner, POLLIN)
        ...     poller.stats().registered
        1
        """
        check_pollable(pollable)
        item = Item(self._ready, pollable, check_flags(events))
        with self._mutex:
            self._check_open()
            if id(pollable) in self._items:
                raise PollError(f"{pollable!r} is already registered; modify() changes its events")
            if isinstance(pollable, Poller):
                self._place.put(pollable._place)
            self._items[id(pollable)] = item
            self._core = self._core or core_of(pollable)
            try:
                held = pollable.poll_events(item)
                if held & POLLHUP:
                    raise PollError(f"{pollable!r} is closed")
            except BaseException:
                self._drop(item)
                raise
            self._mark_holding(item, held)

    def modify(self, pollable: Pollable, events: int) -> None:
        """Wait for other events of a registered object, or arm it again. Events that hold already are reported.

        Raises:
            PollError: It is not registered, the registration or the new one is exclusive, the flags do not go together,
                or the poller is closed. Nothing was changed.

        >>> with Poller() as poller, Poller() as inner:
        ...     poller.add(inner, POLLIN | POLLONESHOT)
        ...     poller.modify(inner, POLLIN | POLLET)
        """
        flags = check_flags(events)
        with self._mutex:
            item = self._registered(pollable)
            if item.exclusive or flags & POLLEXCLUSIVE:
                raise PollError("an exclusive registration cannot be made or changed by modify(); remove() and add()")
            self._ready.arm(item, flags)
            # Armed first and asked then: what happens in between is told, and what happened before is seen.
            self._mark_holding(item, pollable.poll_events(None))

    def remove(self, pollable: Pollable) -> None:
        """Wait for an object no longer.

        Raises:
            PollError: It is not registered, or the poller is closed.

        >>> with Poller() as poller, Poller() as inner:
        ...     poller.add(inner, POLLIN)
        ...     poller.remove(inner)
        ...     poller.stats().registered
        0
        """
        with self._mutex:
            self._drop(self._registered(pollable))

    def close(self) -> None:
        """Forget everything. Threads that wait get :class:`~a3m.errors.PollError`, outer pollers :data:`POLLHUP`.

        Closing twice is fine. A file descriptor from :meth:`fileno` is closed; take it out of event loops before.

        >>> poller = Poller()
        >>> poller.close()
        >>> poller.wait()
        Traceback (most recent call last):
        ...
        a3m.errors.PollError: the poller is closed
        """
        with self._mutex:
            self._ready.close()
            for item in list(self._items.values()):
                self._drop(item)
            self._ready.close_descriptor()

    def renew_locks(self) -> None:
        """In the child of a fork(), the threads that held them may not exist."""
        forks.renew(self._mutex)
        self._ready.renew_lock()

    def abandon(self) -> None:
        """In the child of a fork(), the poller is its parent's, as the objects are that it waits for."""
        self._ready.abandon()
        self._items.clear()
        self._core = None
        self._place = Place()

    # ── waiting ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def wait(self, timeout: float | None = None, max_events: int | None = None) -> list[tuple[Any, int]]:
        """Wait until something is ready; which objects, and which of the events of interest each has.

        Args:
            timeout: How many seconds to wait at most; None for ever, 0 not at all.
            max_events: How many objects to report at most; the others come first the next time.

        Returns:
            The objects as they were added, each once; empty when the time was over.

        Raises:
            PollError: The poller is closed, or was closed meanwhile.

        >>> with Poller() as poller:
        ...     poller.wait(timeout=0)
        []
        """
        limit = check_limit(max_events)
        deadline = None if timeout is None else monotonic() + timeout
        found = self._harvest(limit)
        if found or (timeout is not None and timeout <= 0):
            return found
        sleeper = Sleeper()
        entry = self._ready.waiter(sleeper)
        try:
            in_time = True
            while not found and in_time:
                in_time = self._ready.sleep(entry, sleeper, deadline, self._core)
                found = self._harvest(limit)
            return found
        finally:
            self._ready.leave(entry)

    def fileno(self) -> int:
        """A file descriptor that is readable while something is ready, for ``select``, ``epoll`` and event loops.

        When it is readable call ``wait(0)``, which may find that there is nothing after all; do not read from it.
        Calling this again looks whether what was ready still is. The descriptor is made by the first call.

        >>> import select
        >>> with Poller() as poller:
        ...     select.select([poller], [], [], 0)
        ([], [], [])
        """
        with self._mutex:
            self._check_open()
            self._refresh()
            return self._ready.fileno()

    def stats(self) -> PollerStats:
        """Figures at this moment.

        >>> Poller().stats()
        PollerStats(registered=0, ready=0, waiting=0)
        """
        ready, waiting = self._ready.count()
        return PollerStats(len(self._items), ready, waiting)

    # ── being polled ─────────────────────────────────────────────────────────────────────────────────────────────────

    def poll_events(self, entry: WaitEntry | None) -> int:
        """As :class:`Pollable` says."""
        with self._mutex:
            self._refresh()
            return self._ready.events(entry)

    def unpoll(self, entry: WaitEntry) -> None:
        """As :class:`Pollable` says."""
        self._ready.forget(entry)

    # ── harvesting ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _harvest(self, limit: float) -> list[tuple[Any, int]]:
        """Report what is ready and settle what becomes of it; an exception before that changes nothing."""
        with self._mutex:
            self._check_open()
            asked = self._ask(limit)
            if not asked:
                return []
            found = [(item.pollable, events) for item, events in asked if events]
            self._ready.settle(asked)
            return found

    def _ask(self, limit: float) -> list[tuple[Item, int]]:
        """What the first ready items hold, as far as needed to find so many that hold something; with the mutex."""
        asked: list[tuple[Item, int]] = []
        found = 0
        while found < limit:
            batch = self._ready.first(len(asked), None if limit == float("inf") else len(asked) + int(limit) - found)
            if not batch:
                break
            for item in batch:
                item.again = False  # what is told from here on may come too late for the answer
                events = item.pollable.poll_events(None) & item.events
                asked.append((item, events))
                found += events != 0
        return asked

    def _refresh(self) -> None:
        """Take items out of the ready list that hold nothing any more, up to the first that does; with the mutex."""
        stale = [item for item, events in self._ask(1) if not events]
        if stale:
            self._ready.weed(stale)

    # ── items: the mutex is held ─────────────────────────────────────────────────────────────────────────────────────

    def _check_open(self) -> None:
        if self._ready.closed:
            raise PollError("the poller is closed")

    def _registered(self, pollable: Pollable) -> Item:
        self._check_open()
        item = self._items.get(id(pollable))
        if item is None:
            raise PollError(f"{pollable!r} is not registered with this poller")
        return item

    def _mark_holding(self, item: Item, held: int) -> None:
        """Report what a newly armed item holds already."""
        if held & item.events:
            self._ready.mark(item)

    def _drop(self, item: Item) -> None:
        """Forget an item. Its wait queue tells the next in line what an exclusive one has taken and not reported."""
        del self._items[id(item.pollable)]
        if self._core is not None and self._core is core_of(item.pollable):
            self._core = next(filter(None, (core_of(other.pollable) for other in self._items.values())), None)
        self._ready.drop(item)
        if isinstance(item.pollable, Poller):
            self._place.take_out(item.pollable._place)
        item.pollable.unpoll(item)
