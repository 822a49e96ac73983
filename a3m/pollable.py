"""What can be polled, and for what: the objects, the events, and the flags that say when a poller reports them."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from a3m.errors import PollError
from a3m.waitqueue import EVENTS, POLLERR, POLLHUP, WaitEntry

# The numbers are those of epoll, as are those of the events.
POLLEXCLUSIVE = 1 << 28  # of several pollers that wait for the same object, wake one
POLLONESHOT = 1 << 30  # report once, then nothing until modify()
POLLET = 1 << 31  # edge-triggered: report what happens, not what is
_MODES = POLLEXCLUSIVE | POLLONESHOT | POLLET

ALWAYS = POLLERR | POLLHUP
"""The events that are reported whether they are wanted or not."""


@runtime_checkable
class Pollable(Protocol):
    """What can be polled: sockets, links, pollers, and anything with these two methods.

    The object has a lock and a :class:`~a3m.waitqueue.WaitQueue`, and wakes the queue with the lock held:

    >>> from threading import Lock
    >>> from a3m import POLLIN, Poller, poll
    >>> from a3m.waitqueue import WaitQueue
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


def check_pollable(candidate: object) -> None:
    """Raise for what is not pollable."""
    if isinstance(candidate, type) or not isinstance(candidate, Pollable):
        raise PollError(f"{candidate!r} is not pollable: it has no poll_events() and unpoll()")


def check_events(events: object) -> int:
    """A set of events; raise for anything else."""
    if not isinstance(events, int) or events & ~EVENTS:
        raise PollError(f"{_shown(events)} is not a set of events to poll for")
    return events


def check_flags(flags: object) -> int:
    """A set of events and flags that go together; raise for anything else."""
    if not isinstance(flags, int) or flags & ~(EVENTS | _MODES):
        raise PollError(f"{_shown(flags)} is not a set of events and flags of a poller")
    if flags & POLLEXCLUSIVE and flags & POLLONESHOT:
        raise PollError("POLLEXCLUSIVE and POLLONESHOT exclude each other")
    return flags


def _shown(flags: object) -> str:
    return hex(flags) if isinstance(flags, int) else repr(flags)


def check_limit(max_events: int | None) -> float:
    """How many objects to report, as a number to compare with."""
    if max_events is None:
        return float("inf")
    if max_events < 1:
        raise PollError(f"max_events is {max_events}, which would report nothing")
    return max_events
