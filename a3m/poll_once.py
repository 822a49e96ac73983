"""Poll a list of objects once, as the Linux kernel's ``poll`` does, in user space (003, section 4.4.4).

The list is gone through anew with every call. A :class:`a3m.Poller` remembers its objects, and is told by them.
"""

from __future__ import annotations

from collections.abc import Iterable
from time import monotonic
from typing import TypeVar

from a3m.errors import PollError
from a3m.pollable import ALWAYS, Pollable, check_events, check_limit, check_pollable
from a3m.sleeper import Sleeper, core_of
from a3m.waitqueue import WaitEntry

P = TypeVar("P", bound=Pollable)


def poll(
    interests: Iterable[tuple[P, int]], timeout: float | None = None, max_events: int | None = None
) -> list[tuple[P, int]]:
    """Wait until at least one of some objects has one of the events wanted of it; which ones, and what they have.

    :data:`~a3m.POLLERR` and :data:`~a3m.POLLHUP` are always wanted; a closed object has the latter. With ``max_events``
    the first ones of the list come first, always; a :class:`~a3m.Poller` takes turns.

    Args:
        interests: Objects, each with the events wanted of it.
        timeout: How many seconds to wait at most; None for ever, 0 not at all.
        max_events: How many objects to report at most.

    Returns:
        The objects that have something, in the order given; empty when the time was over.

    Raises:
        PollError: Something is not pollable, a number is not a set of events, or there is nothing to wait for.

    >>> import a3m
    >>> with a3m.Poller() as quiet:
    ...     a3m.poll([(quiet, a3m.POLLIN)], timeout=0)
    []
    """
    wanted = [(pollable, check_events(events) | ALWAYS) for pollable, events in interests]
    for pollable, _ in wanted:
        check_pollable(pollable)
    limit = check_limit(max_events)
    if not wanted and timeout is None:
        raise PollError("nothing to poll and no time-out: that would wait for ever")
    deadline = None if timeout is None else monotonic() + timeout
    if timeout is not None and timeout <= 0:
        return _holding(wanted, limit)
    sleeper = Sleeper()
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
        core = next(filter(None, (core_of(pollable) for pollable, _ in wanted)), None)
        in_time = True
        while not found and in_time:
            in_time = sleeper.sleep(deadline, core)
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
