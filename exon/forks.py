"""What becomes of endpoints and nodes in the child of a fork().

They are the parent's, with everything that waits in them: two processes that use the same numbers, or hand out the same
messages, would break every promise. So in the child they are closed and empty.

A fork() copies one thread only, at any moment of the others. A lock that another thread held is held for ever in the
child, and what it guards may be half changed. So locks are made anew before anything else is done, for all objects
before the first one is abandoned, because objects wait for each other; and :meth:`Inherited.abandon` throws away, and
expects nothing of what it finds. File descriptors are shared with the parent: closing one is the child's own business,
while whatever is written to one, or said about one to an epoll instance, reaches the parent.
"""

from __future__ import annotations

import os
from threading import Lock
from typing import Protocol
from weakref import WeakSet

from exon.log import log


class Inherited(Protocol):
    """What must not be used in the child of a fork()."""

    def renew_locks(self) -> None:
        """Make all locks free."""

    def abandon(self) -> None:
        """Be closed, and have nothing; without a word to anybody. May be called again, in a child of the child."""


_inherited: WeakSet[Inherited] = WeakSet()


def register(thing: Inherited) -> None:
    """Have an object abandoned in every child, for as long as it exists."""
    _inherited.add(thing)


def renew(lock: Lock) -> None:
    """Make a lock free whose holder may not exist any more."""
    lock._at_fork_reinit()  # type: ignore[attr-defined]  # what Python itself calls for its own locks


def _after_fork() -> None:
    things = list(_inherited)
    for thing in things:
        thing.renew_locks()
    for thing in things:
        try:
            thing.abandon()
        except Exception:  # the others are the parent's, too
            log.exception("fork-error", what=type(thing).__name__)


os.register_at_fork(after_in_child=_after_fork)
