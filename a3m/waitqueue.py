"""Wait queues: the one way in which anything waits for a socket, a link or a poller (003, section 4.4.3).

An entry says which events it waits for and carries the function that wakes it: a thread's entry releases the lock it is
parked on, a task's entry reschedules the task, a poller's entry marks the object ready. A queue does not know which.

Two kinds of entries, as in the Linux kernel. *Shared* ones are all told of every event they wait for. *Exclusive* ones
are told one after the other, first come first served, and only as many as can make progress: a message that arrives
wakes one of a hundred receivers. A wake function that answers False has no use for it (its thread has given up, say),
and the next in line is asked, so a wake-up is never lost on somebody who is not waiting any more.

The queue has no lock of its own; whoever owns it holds the lock that guards the object it belongs to.
"""

from __future__ import annotations

from collections.abc import Callable

POLLIN = 0x001  # something can be received
POLLOUT = 0x004  # something can be sent
POLLERR = 0x008  # always reported
POLLHUP = 0x010  # closed; always reported
POLLLINK = 0x100  # a link was made or unmade: what waits for links waits for this; not for pollers
EVENTS = POLLIN | POLLOUT | POLLERR | POLLHUP


class WaitEntry:
    """Somebody who waits."""

    __slots__ = ("events", "exclusive", "unspent", "wake")

    def __init__(self, events: int, wake: Callable[[int], bool], *, exclusive: bool = False) -> None:
        """``wake(events)`` is told what happened, with the owner's lock held, and says whether it was of use."""
        self.events = events
        self.wake = wake
        self.exclusive = exclusive
        # What an exclusive entry was told, took, and has done nothing about yet: others were not told because of it,
        # so the next in line is when the entry is removed.
        self.unspent = 0


class WaitQueue:
    """Entries that wait for one object.

    >>> queue, log = WaitQueue(), []
    >>> for name in ("first", "second"):
    ...     queue.add(WaitEntry(POLLIN, lambda events, name=name: log.append(name) or True, exclusive=True))
    >>> queue.wake(POLLIN), queue.wake(POLLIN), log
    (1, 1, ['first', 'second'])
    """

    __slots__ = ("exclusive", "shared")

    def __init__(self) -> None:
        """Nobody waits."""
        self.shared: dict[WaitEntry, None] = {}
        self.exclusive: dict[WaitEntry, None] = {}  # in the order in which they are served

    def add(self, entry: WaitEntry) -> None:
        """Wait from now on, until removed."""
        (self.exclusive if entry.exclusive else self.shared)[entry] = None

    def remove(self, entry: WaitEntry) -> bool:
        """Wait no longer; whether the entry was here."""
        entries = self.exclusive if entry.exclusive else self.shared
        if entry not in entries:
            return False
        del entries[entry]
        if entry.unspent:
            unspent, entry.unspent = entry.unspent, 0
            self.pass_on(unspent)
        return True

    def wake(self, events: int, exclusive: int = 1) -> int:
        """Tell all shared entries, and up to ``exclusive`` others, what happened; how many of the latter took it."""
        if self.shared:
            for entry in list(self.shared):
                if entry.events & events:
                    entry.wake(events & entry.events)
        return self.pass_on(events, exclusive) if self.exclusive and exclusive > 0 else 0

    def pass_on(self, events: int, exclusive: int = 1) -> int:
        """Tell up to ``exclusive`` exclusive entries what the shared ones know already; how many took it."""
        woken = 0
        for entry in list(self.exclusive):
            if entry.events & events and entry in self.exclusive:
                # Served entries go to the end of the line; one that waits once removes itself.
                del self.exclusive[entry]
                self.exclusive[entry] = None
                if entry.wake(events & entry.events):
                    woken += 1
                    if woken == exclusive:
                        break
        return woken

    def wake_all(self, events: int) -> None:
        """Tell everybody: the object is closing."""
        self.wake(events, len(self.exclusive))

    def __len__(self) -> int:
        """How many wait."""
        return len(self.shared) + len(self.exclusive)
