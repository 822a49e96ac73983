"""Pollers in pollers: who is in whom, so that none waits for itself (003, section 4.4.6).

A poller that is told something tells those it is in, with locks held, and asks those that are in it, with locks held.
A circle would be a deadlock, so it is refused before any of that.
"""

from __future__ import annotations

import os
from threading import Lock

from a3m.errors import PollError
from exon import forks

MAX_NESTING = 8  # pollers in pollers; each level is a few calls deeper whenever something happens

_guard = Lock()  # of who is in whom, for all pollers; no other lock is taken while it is held
os.register_at_fork(after_in_child=lambda: forks.renew(_guard))


class Place:
    """Where a poller is: which ones are in it, and which ones it is in."""

    __slots__ = ("_inner", "_outer")

    def __init__(self) -> None:
        """In none, and none in it."""
        self._inner: set[Place] = set()
        self._outer: set[Place] = set()

    def put(self, inner: Place) -> None:
        """Have another poller in this one; raise if that would make a circle, or be too deep."""
        with _guard:
            below, above = [{inner}], [{self}]
            while step := {place for level in below[-1] for place in level._inner}:
                below.append(step)
            while step := {place for level in above[-1] for place in level._outer}:
                above.append(step)
            if any(self in level for level in below):
                raise PollError("pollers would wait for each other in a circle")
            if len(below) + len(above) > MAX_NESTING:
                raise PollError(f"pollers cannot be nested more than {MAX_NESTING} deep")
            self._inner.add(inner)
            inner._outer.add(self)

    def take_out(self, inner: Place) -> None:
        """Have it there no longer."""
        with _guard:
            self._inner.discard(inner)
            inner._outer.discard(self)
