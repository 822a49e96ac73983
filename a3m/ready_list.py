"""The ready list of a poller: what its objects have reported, and who waits for that (003, section 4.4.5).

Everything registered with a poller is an *item*, which is also the entry in the object's wait queue. Objects report
here with their own lock held. So the lock of the list is the last to be taken, and nobody who holds it calls an object:
only the wait queue, and through it the lists of outer pollers.

Items are put here by whoever reports, and taken out only by the poller, which holds its mutex for that.
"""

from __future__ import annotations

import os
import weakref
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress
from itertools import islice
from threading import Lock
from time import monotonic

from a3m.core import Core
from a3m.pollable import ALWAYS, POLLET, POLLEXCLUSIVE, POLLONESHOT, Pollable
from a3m.sleeper import Sleeper
from a3m.waitqueue import EVENTS, POLLHUP, POLLIN, WaitEntry, WaitQueue
from exon import forks


class Item(WaitEntry):
    """An object registered with a poller: the entry in the object's wait queue."""

    __slots__ = ("again", "edge", "oneshot", "pollable")

    def __init__(self, ready: ReadyList, pollable: Pollable, flags: int) -> None:
        """Report to ``ready``."""
        super().__init__(0, lambda events: ready.told(self, events), exclusive=bool(flags & POLLEXCLUSIVE))
        self.pollable = pollable
        self.again = False  # something happened since it was last asked what it holds
        self.arm(flags)

    def arm(self, flags: int) -> None:
        """Wait for these events, in this way. An item without events is removed, or disarmed after its one shot."""
        self.events = flags & EVENTS | ALWAYS
        self.edge = bool(flags & POLLET)
        self.oneshot = bool(flags & POLLONESHOT)


class ReadyList:
    """Items that have something to report, the next one first, and those who wait for them."""

    def __init__(self) -> None:
        """Nothing is ready, and nobody waits."""
        self.closed = False
        self._lock = Lock()
        self._items: OrderedDict[Item, None] = OrderedDict()
        self._waiters = WaitQueue()
        self._descriptor: int | None = None
        self._close_descriptor: weakref.finalize[[int], ReadyList] | None = None
        self._readable = False

    def count(self) -> tuple[int, int]:
        """How many items are ready, and how many wait."""
        with self._lock:
            return len(self._items), len(self._waiters)

    # ── being told: the object's lock is held ────────────────────────────────────────────────────────────────────────

    def told(self, item: Item, events: int) -> bool:
        """Something happened to an object; whether that woke somebody."""
        with self._lock:
            if not events & item.events:  # removed or disarmed at this moment
                return False
            woken = self._mark(item)
            if woken and item.exclusive:
                item.unspent = events
            return woken

    def _mark(self, item: Item) -> bool:
        """An item is ready; whether that woke somebody. A poller nobody waits for lets other exclusive ones have it."""
        if item in self._items:
            item.again = True  # somebody was woken when it came here
            return False
        self._items[item] = None
        self._signal()
        return self._waiters.wake(POLLIN) > 0

    def _signal(self) -> None:
        """Make the descriptor, if there is one, say what the list says."""
        readable = bool(self._items)
        if self._descriptor is None or self._readable == readable:
            return
        self._readable = readable
        if readable:
            os.eventfd_write(self._descriptor, 1)
        else:
            with suppress(BlockingIOError):  # somebody read from it all the same
                os.eventfd_read(self._descriptor)

    # ── waiting ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def waiter(self, sleeper: Sleeper) -> WaitEntry:
        """The entry of a thread that waits here."""

        def wake(_events: int) -> bool:
            # Out of the queue at once: a thread that is awake must not take an event from one that is asleep.
            self._waiters.remove(entry)
            return sleeper.wake()

        entry = WaitEntry(POLLIN | POLLHUP, wake, exclusive=True)
        return entry

    def sleep(self, entry: WaitEntry, sleeper: Sleeper, deadline: float | None, core: Core | None) -> bool:
        """Wait in the queue, driving a node, unless there is something to do; whether there is still time."""
        with self._lock:
            if self._items or self.closed:
                return deadline is None or monotonic() < deadline
            self._waiters.add(entry)
        if sleeper.sleep(deadline, core):
            return True
        with self._lock:
            self._waiters.remove(entry)
        return False

    def leave(self, entry: WaitEntry) -> None:
        """Go, for whatever reason, and let the next thread see to what is left."""
        with self._lock:
            self._waiters.remove(entry)
            if self._items:
                self._waiters.pass_on(POLLIN)

    def events(self, entry: WaitEntry | None) -> int:
        """What holds now for an outer poller; its entry is told what happens from now on."""
        with self._lock:
            if self.closed:
                return POLLHUP
            if entry is not None:
                self._waiters.add(entry)
            return POLLIN if self._items else 0

    def forget(self, entry: WaitEntry) -> None:
        """Tell an outer poller nothing more."""
        with self._lock:
            self._waiters.remove(entry)

    def fileno(self) -> int:
        """A descriptor that is readable while something is ready, made by the first call."""
        with self._lock:
            if self._descriptor is None:
                self._descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
                self._close_descriptor = weakref.finalize(self, os.close, self._descriptor)
            self._signal()
            return self._descriptor

    # ── items: the poller's mutex is held ────────────────────────────────────────────────────────────────────────────

    def first(self, start: int, stop: int | None) -> list[Item]:
        """Items by their place in the list. New ones go to its end, so the places before do not change."""
        with self._lock:
            return list(islice(self._items, start, stop))

    def arm(self, item: Item, flags: int) -> None:
        """Wait for other events, or again."""
        with self._lock:
            item.arm(flags)

    def mark(self, item: Item) -> None:
        """A newly armed item holds something already."""
        with self._lock:
            self._mark(item)

    def settle(self, asked: Iterable[tuple[Item, int]]) -> None:
        """What becomes of items that held these events and were reported if there were any."""
        with self._lock:
            for item, events in asked:
                self._settle(item, events)
            self._signal()

    def _settle(self, item: Item, events: int) -> None:
        item.unspent = 0
        if events and item.oneshot:
            item.events = 0
            del self._items[item]
        elif item.again or (events and not item.edge):
            self._items.move_to_end(item)
        else:
            del self._items[item]

    def weed(self, stale: Iterable[Item]) -> None:
        """Take out items that were found to hold nothing any more."""
        with self._lock:
            for item in stale:
                if not item.again:
                    item.unspent = 0
                    del self._items[item]
            self._signal()

    def drop(self, item: Item) -> None:
        """Have an item report no more."""
        with self._lock:
            item.events = 0
            self._items.pop(item, None)
            self._signal()

    # ── ending: the poller's mutex is held ───────────────────────────────────────────────────────────────────────────

    def close(self) -> None:
        """Send away everybody who waits."""
        with self._lock:
            self.closed = True
            self._waiters.wake_all(POLLHUP)

    def renew_lock(self) -> None:
        """In the child of a fork(), the thread that held it may not exist."""
        forks.renew(self._lock)

    def abandon(self) -> None:
        """In the child of a fork(): be closed, and do not touch what the descriptor shares with the parent's."""
        self.closed = True
        self._items.clear()
        self._waiters = WaitQueue()
        self._descriptor = None
        if self._close_descriptor is not None:
            self._close_descriptor()

    def close_descriptor(self) -> None:
        """Close the descriptor, if there is one."""
        with self._lock:
            if self._descriptor is not None and self._close_descriptor is not None:
                os.eventfd_write(self._descriptor, 1)  # for those who wait for it at this moment
                self._descriptor = None
                self._close_descriptor()
