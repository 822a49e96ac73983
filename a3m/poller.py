"""Pollers: one thread waits for many things at once (003, sections 4.4.4 to 4.4.6).

:func:`poll` looks at a list of objects and forgets them; a :class:`Poller` remembers them and is told by each when
something happens, so that waiting costs the same for ten objects as for ten thousand. Both follow the Linux kernel's
``poll`` and ``epoll``, in user space: no system call is made unless somebody asks for a file descriptor.

How a poller works. Everything registered is an *item*, which is also the entry in the object's wait queue. When the
object reports an event, the item goes to the *ready list* and one waiting thread is woken. The thread asks each ready
object what holds now, so a report is never out of date, and settles what becomes of the item: level-triggered ones go
to the end of the ready list, where they stay until they are found to hold nothing; the others leave it.

Two locks, as in the kernel. ``_mutex`` is for those who change or harvest the poller; objects are asked while it is
held. ``_lock`` guards the ready list and the waiters; objects take it to report, with their own lock held, so nobody
who holds it calls an object, only the wait queue, and through it outer pollers. The order is therefore: mutex of the
outer poller, mutex of the inner one, lock of the object, lock of the inner poller, lock of the outer one. Pollers form
no circles, so neither do the locks.

Rejected: one lock for both purposes and a harvest that takes items out of the ready list while it asks. A second
thread would find the list empty and report nothing while everything is ready.
"""

from __future__ import annotations

import os
import weakref
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress
from itertools import islice
from threading import TIMEOUT_MAX, Lock
from time import monotonic
from types import TracebackType
from typing import Any, Protocol, TypeVar, runtime_checkable

import attrs
from attrs import frozen

from a3m.errors import PollError
from a3m.waitqueue import EVENTS, POLLERR, POLLHUP, POLLIN, WaitEntry, WaitQueue

# The numbers are those of epoll, as are those of the events.
POLLEXCLUSIVE = 1 << 28  # of several pollers that wait for the same object, wake one
POLLONESHOT = 1 << 30  # report once, then nothing until modify()
POLLET = 1 << 31  # edge-triggered: report what happens, not what is
_MODES = POLLEXCLUSIVE | POLLONESHOT | POLLET
_ALWAYS = POLLERR | POLLHUP

MAX_NESTING = 8  # pollers in pollers; each level is a few calls deeper whenever something happens


@runtime_checkable
class Pollable(Protocol):
    """What can be polled: sockets, links, pollers, and anything with these two methods.

    The object has a lock and a :class:`~a3m.waitqueue.WaitQueue`, and wakes the queue with the lock held:

    >>> class Bell:
    ...     def __init__(self):
    ...         self.lock, self.queue, self.rung = Lock(), WaitQueue(), False
    ...
    ...     def ring(self):
    ...         with self.lock:
    ...             self.rung = True
    ...             self.queue.wake(POLLIN)
    ...
    ...     def poll_events(self, entry):
    ...         with self.lock:
    ...             if entry is not None:
    ...                 self.queue.add(entry)
    ...             return POLLIN if self.rung else 0
    ...
    ...     def unpoll(self, entry):
    ...         with self.lock:
    ...             self.queue.remove(entry)
    >>> bell = Bell()
    >>> poll([(bell, POLLIN)], timeout=0)
    []
    >>> with Poller() as poller:
    ...     poller.add(bell, POLLIN)
    ...     bell.ring()
    ...     poller.wait() == [(bell, POLLIN)]
    True
    """

    def poll_events(self, entry: WaitEntry | None) -> int:
        """The events that hold now; from then on, the entry is told of new ones.

        Both happen at once, under the object's lock. A closed object answers :data:`POLLHUP` and keeps no entry.
        """

    def unpoll(self, entry: WaitEntry) -> None:
        """Forget the entry, if it is there."""


P = TypeVar("P", bound=Pollable)


def poll(
    interests: Iterable[tuple[P, int]], timeout: float | None = None, max_events: int | None = None
) -> list[tuple[P, int]]:
    """Wait until at least one of some objects has one of the events wanted of it; which ones, and what they have.

    :data:`POLLERR` and :data:`POLLHUP` are always wanted; a closed object has the latter. With ``max_events`` the first
    ones of the list come first, always; a :class:`Poller` takes turns.

    Args:
        interests: Objects, each with the events wanted of it.
        timeout: How many seconds to wait at most; None for ever, 0 not at all.
        max_events: How many objects to report at most.

    Returns:
        The objects that have something, in the order given; empty when the time was over.

    Raises:
        PollError: Something is not pollable, a number is not a set of events, or there is nothing to wait for.

    >>> with Poller() as quiet:
    ...     poll([(quiet, POLLIN)], timeout=0)
    []
    """
    wanted = [(pollable, _events(events) | _ALWAYS) for pollable, events in interests]
    for pollable, _ in wanted:
        _check_pollable(pollable)
    limit = _limit(max_events)
    if not wanted and timeout is None:
        raise PollError("nothing to poll and no time-out: that would wait for ever")
    deadline = None if timeout is None else monotonic() + timeout
    if timeout is not None and timeout <= 0:
        return _holding(wanted, limit)
    sleeper = _Sleeper()
    entries = [WaitEntry(events, sleeper.wake) for _, events in wanted]
    queued = 0
    try:
        found: list[tuple[P, int]] = []
        for (pollable, events), entry in zip(wanted, entries, strict=True):
            queued += 1  # before the call, which may be interrupted half-way
            held = pollable.poll_events(entry) & events
            if held:
                found = [(pollable, held), *_holding(wanted[queued:], limit - 1)]
                break
        in_time = True
        while not found and in_time:
            in_time = sleeper.sleep(deadline)
            found = _holding(wanted, limit)
        return found
    finally:
        for (pollable, _), entry in zip(wanted[:queued], entries, strict=False):
            pollable.unpoll(entry)


def _holding(wanted: list[tuple[P, int]], limit: float) -> list[tuple[P, int]]:
    """Those that have something now, the first ones only."""
    found: list[tuple[P, int]] = []
    for pollable, events in wanted:
        if len(found) >= limit:
            break
        held = pollable.poll_events(None) & events
        if held:
            found.append((pollable, held))
    return found


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
        self._lock = Lock()
        self._closed = False
        self._items: dict[int, _Item] = {}  # by identity, since objects may be equal or not hashable
        self._ready: OrderedDict[_Item, None] = OrderedDict()  # the next to report first
        self._waiters = WaitQueue()
        self._inner: set[Poller] = set()
        self._outer: set[Poller] = set()
        self._descriptor: int | None = None
        self._close_descriptor: weakref.finalize[[int], Poller] | None = None
        self._readable = False

    def __enter__(self) -> Poller:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{len(self._items)} registered"
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
        _check_pollable(pollable)
        item = _Item(self, pollable, _flags(events))
        with self._mutex:
            self._check_open()
            if id(pollable) in self._items:
                raise PollError(f"{pollable!r} is already registered; modify() changes its events")
            if isinstance(pollable, Poller):
                _tie(self, pollable)
            self._items[id(pollable)] = item
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
        flags = _flags(events)
        with self._mutex:
            item = self._registered(pollable)
            if item.exclusive or flags & POLLEXCLUSIVE:
                raise PollError("an exclusive registration cannot be made or changed by modify(); remove() and add()")
            with self._lock:
                item.arm(flags)
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
            with self._lock:
                self._closed = True
                self._waiters.wake_all(POLLHUP)
            for item in list(self._items.values()):
                self._drop(item)
            with self._lock:
                if self._descriptor is not None and self._close_descriptor is not None:
                    os.eventfd_write(self._descriptor, 1)  # for those who wait for it at this moment
                    self._descriptor = None
                    self._close_descriptor()

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
        limit = _limit(max_events)
        deadline = None if timeout is None else monotonic() + timeout
        found = self._harvest(limit)
        if found or (timeout is not None and timeout <= 0):
            return found
        sleeper = _Sleeper()

        def wake(_events: int) -> bool:
            # Out of the queue at once: a thread that is awake must not take an event from one that is asleep.
            self._waiters.remove(entry)
            return sleeper.wake()

        entry = WaitEntry(POLLIN | POLLHUP, wake, exclusive=True)
        try:
            in_time = True
            while not found and in_time:
                in_time = self._sleep(entry, sleeper, deadline)
                found = self._harvest(limit)
            return found
        finally:
            self._leave(entry)

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
            with self._lock:
                if self._descriptor is None:
                    self._descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
                    self._close_descriptor = weakref.finalize(self, os.close, self._descriptor)
                self._signal()
                return self._descriptor

    def stats(self) -> PollerStats:
        """Figures at this moment.

        >>> Poller().stats()
        PollerStats(registered=0, ready=0, waiting=0)
        """
        with self._lock:
            return PollerStats(len(self._items), len(self._ready), len(self._waiters))

    # ── being polled ─────────────────────────────────────────────────────────────────────────────────────────────────

    def poll_events(self, entry: WaitEntry | None) -> int:
        """As :class:`Pollable` says."""
        with self._mutex:
            self._refresh()
            with self._lock:
                if self._closed:
                    return POLLHUP
                if entry is not None:
                    self._waiters.add(entry)
                return POLLIN if self._ready else 0

    def unpoll(self, entry: WaitEntry) -> None:
        """As :class:`Pollable` says."""
        with self._lock:
            self._waiters.remove(entry)

    # ── being told: the object's lock is held ────────────────────────────────────────────────────────────────────────

    def _told(self, item: _Item, events: int) -> bool:
        """Something happened to an object; whether that woke somebody."""
        with self._lock:
            if not events & item.events:  # removed or disarmed at this moment
                return False
            woken = self._mark(item)
            if woken and item.exclusive:
                item.unspent = events
            return woken

    def _mark(self, item: _Item) -> bool:
        """An item is ready; whether that woke somebody. A poller nobody waits for lets other exclusive ones have it."""
        if item in self._ready:
            item.again = True  # somebody was woken when it came here
            return False
        self._ready[item] = None
        self._signal()
        return self._waiters.wake(POLLIN) > 0

    def _signal(self) -> None:
        """Make the descriptor, if there is one, say what the ready list says."""
        readable = bool(self._ready)
        if self._descriptor is None or self._readable == readable:
            return
        self._readable = readable
        if readable:
            os.eventfd_write(self._descriptor, 1)
        else:
            with suppress(BlockingIOError):  # somebody read from it all the same
                os.eventfd_read(self._descriptor)

    # ── harvesting: the mutex is held, but for the first three ───────────────────────────────────────────────────────

    def _sleep(self, entry: WaitEntry, sleeper: _Sleeper, deadline: float | None) -> bool:
        """Wait in the queue, unless there is something to do; whether there is still time."""
        with self._lock:
            if self._ready or self._closed:
                return deadline is None or monotonic() < deadline
            self._waiters.add(entry)
        if sleeper.sleep(deadline):
            return True
        with self._lock:
            self._waiters.remove(entry)
        return False

    def _leave(self, entry: WaitEntry) -> None:
        """Go, for whatever reason, and let the next thread see to what is left."""
        with self._lock:
            self._waiters.remove(entry)
            if self._ready:
                self._waiters.pass_on(POLLIN)

    def _harvest(self, limit: float) -> list[tuple[Any, int]]:
        """Report what is ready and settle what becomes of it; an exception before that changes nothing."""
        with self._mutex:
            self._check_open()
            asked = self._ask(limit)
            if not asked:
                return []
            found = [(item.pollable, events) for item, events in asked if events]
            with self._lock:
                for item, events in asked:
                    self._settle(item, events)
                self._signal()
            return found

    def _ask(self, limit: float) -> list[tuple[_Item, int]]:
        """What the first ready items hold, as far as needed to find so many that hold something."""
        asked: list[tuple[_Item, int]] = []
        found = 0
        while found < limit:
            with self._lock:
                # Only the holder of the mutex takes items out of the list, and new ones go to its end.
                stop = None if limit == float("inf") else len(asked) + int(limit) - found
                batch = list(islice(self._ready, len(asked), stop))
            if not batch:
                break
            for item in batch:
                item.again = False  # what is told from here on may come too late for the answer
                events = item.pollable.poll_events(None) & item.events
                asked.append((item, events))
                found += events != 0
        return asked

    def _settle(self, item: _Item, events: int) -> None:
        """What becomes of a ready item that held these events and was reported if there were any."""
        item.unspent = 0
        if events and item.oneshot:
            item.events = 0
            del self._ready[item]
        elif item.again or (events and not item.edge):
            self._ready.move_to_end(item)
        else:
            del self._ready[item]

    def _refresh(self) -> None:
        """Take items out of the ready list that hold nothing any more, up to the first that does."""
        stale = [item for item, events in self._ask(1) if not events]
        if stale:
            with self._lock:
                for item in stale:
                    if not item.again:
                        item.unspent = 0
                        del self._ready[item]
                self._signal()

    # ── items: the mutex is held ─────────────────────────────────────────────────────────────────────────────────────

    def _check_open(self) -> None:
        if self._closed:
            raise PollError("the poller is closed")

    def _registered(self, pollable: Pollable) -> _Item:
        self._check_open()
        item = self._items.get(id(pollable))
        if item is None:
            raise PollError(f"{pollable!r} is not registered with this poller")
        return item

    def _mark_holding(self, item: _Item, held: int) -> None:
        """Report what a newly armed item holds already."""
        if held & item.events:
            with self._lock:
                self._mark(item)

    def _drop(self, item: _Item) -> None:
        """Forget an item. Its wait queue tells the next in line what an exclusive one has taken and not reported."""
        with self._lock:
            item.events = 0
            del self._items[id(item.pollable)]
            self._ready.pop(item, None)
            self._signal()
        if isinstance(item.pollable, Poller):
            _untie(self, item.pollable)
        item.pollable.unpoll(item)


class _Item(WaitEntry):
    """An object registered with a poller: the entry in the object's wait queue."""

    __slots__ = ("again", "edge", "oneshot", "pollable")

    def __init__(self, poller: Poller, pollable: Pollable, flags: int) -> None:
        super().__init__(0, lambda events: poller._told(self, events), exclusive=bool(flags & POLLEXCLUSIVE))
        self.pollable = pollable
        self.again = False  # something happened since it was last asked what it holds
        self.arm(flags)

    def arm(self, flags: int) -> None:
        """Wait for these events, in this way. An item without events is removed, or disarmed after its one shot."""
        self.events = flags & EVENTS | _ALWAYS
        self.edge = bool(flags & POLLET)
        self.oneshot = bool(flags & POLLONESHOT)


class _Sleeper:
    """A thread that sleeps until it is woken; a wake-up that comes before it sleeps counts."""

    __slots__ = ("_park",)

    def __init__(self) -> None:
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


# ── pollers in pollers ───────────────────────────────────────────────────────────────────────────────────────────────

_nesting = Lock()  # guards who is in whom, of all pollers; no other lock is taken while it is held


def _tie(outer: Poller, inner: Poller) -> None:
    """Before one poller asks another, and takes its locks: a circle would be a deadlock."""
    with _nesting:
        below, above = [{inner}], [{outer}]
        while step := {poller for level in below[-1] for poller in level._inner}:
            below.append(step)
        while step := {poller for level in above[-1] for poller in level._outer}:
            above.append(step)
        if any(outer in level for level in below):
            raise PollError("pollers would wait for each other in a circle")
        if len(below) + len(above) > MAX_NESTING:
            raise PollError(f"pollers cannot be nested more than {MAX_NESTING} deep")
        outer._inner.add(inner)
        inner._outer.add(outer)


def _untie(outer: Poller, inner: Poller) -> None:
    with _nesting:
        outer._inner.discard(inner)
        inner._outer.discard(outer)


# ── checking arguments ───────────────────────────────────────────────────────────────────────────────────────────────


def _check_pollable(candidate: object) -> None:
    if isinstance(candidate, type) or not isinstance(candidate, Pollable):
        raise PollError(f"{candidate!r} is not pollable: it has no poll_events() and unpoll()")


def _events(events: object) -> int:
    if not isinstance(events, int) or events & ~EVENTS:
        raise PollError(f"{_shown(events)} is not a set of events to poll for")
    return events


def _flags(flags: object) -> int:
    if not isinstance(flags, int) or flags & ~(EVENTS | _MODES):
        raise PollError(f"{_shown(flags)} is not a set of events and flags of a poller")
    if flags & POLLEXCLUSIVE and flags & POLLONESHOT:
        raise PollError("POLLEXCLUSIVE and POLLONESHOT exclude each other")
    return flags


def _shown(flags: object) -> str:
    return hex(flags) if isinstance(flags, int) else repr(flags)


def _limit(max_events: int | None) -> float:
    if max_events is None:
        return float("inf")
    if max_events < 1:
        raise PollError(f"max_events is {max_events}, which would report nothing")
    return max_events
