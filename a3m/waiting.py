"""Waiting in a thread: try, and if it cannot be done now, wait until something changed.

The first thread of a node that has to wait drives the node meanwhile, so what it waits for comes to it directly; others
park until they are woken.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any

from a3m.core import Driver
from a3m.errors import A3MError, NoLinks, Timeout
from a3m.signals import Held, Uninterrupted, in_main_thread
from a3m.socket_core import WOULD_BLOCK, SocketCore
from a3m.waitqueue import POLLHUP, POLLIN, POLLOUT, WaitEntry

_FOR_EVER = 1e9  # seconds; more cannot be waited for


class _Leading(WaitEntry):
    """A thread that drives while it waits."""

    __slots__ = ("_driver", "woken")

    def __init__(self, driver: Driver, events: int, exclusive: bool) -> None:
        self.events, self.exclusive = events, exclusive
        self.wake, self.unspent = self._wake, 0
        self._driver = driver
        self.woken = False

    def _wake(self, _events: int) -> bool:
        if self.woken:
            return False
        self.woken = True
        self._driver.wake()
        return True


class _Parked(WaitEntry):
    """A thread that waits on a lock of its own."""

    __slots__ = ("_lock", "_queue", "woken")

    def __init__(self, socket: SocketCore, events: int) -> None:
        self.events, self.exclusive = events | POLLHUP, socket.is_exclusive(events)
        self.wake, self.unspent = self._wake, 0
        self._queue = socket.wait_queue
        self._lock = Lock()
        self._lock.acquire()
        self.woken = False
        self._queue.add(self)

    def _wake(self, _events: int) -> bool:
        if self.woken:
            return False
        self.woken = True
        self._queue.remove(self)
        self._lock.release()
        return True

    def wait(self, timeout: float | None) -> None:
        if timeout is None:
            self._lock.acquire()
        else:
            self._lock.acquire(timeout=min(max(0.0, timeout), 1e6))

    def leave(self, socket: SocketCore, events: int) -> None:
        """Not to wait any more, whether woken or not."""
        with Held(socket.core.lock):
            if self.woken:
                socket.pass_on(events)
            else:
                self._queue.remove(self)


def call(
    socket: SocketCore,
    events: int,
    attempt: Callable[[], Any],
    timeout: float | None,
    require_link: bool,
    *,
    closed_is_done: bool = False,
    partial: Callable[[], bool] | None = None,
) -> Any:
    """What ``attempt`` answers, as soon as it answers anything but WOULD_BLOCK; waits for ``events`` in between."""
    core = socket.core
    deadline = None
    if timeout is not None:
        check_timeout(timeout)
        deadline = None if timeout > _FOR_EVER else core.time() + timeout
    while True:
        parked = None
        signals = Held(core.lock) if in_main_thread() else None
        with signals or core.lock:
            while True:
                result = step(socket, events, attempt, timeout, deadline, require_link, closed_is_done, partial)
                if result is not WOULD_BLOCK:
                    if signals is not None:
                        signals.done = True
                    return result
                if core.driver is None or not _lead(core.driver, socket, events, deadline, signals):
                    parked = _Parked(socket, events)
                    break
                if signals is not None and signals.came:
                    break  # its handler is called, and may raise, where this block ends; nothing is taken
        if parked is not None:
            leaving = True  # by an exception, such as KeyboardInterrupt
            try:
                parked.wait(None if deadline is None else deadline - core.time())
                leaving = not parked.woken or (deadline is not None and deadline <= core.time())
            finally:
                if leaving:
                    parked.leave(socket, events)


def _lead(
    driver: Driver, socket: SocketCore, events: int, deadline: float | None, signals: Uninterrupted | None
) -> bool:
    """Drive the node until this thread is woken, or the deadline is there; False if somebody else does.

    With the lock held.
    """
    if not driver.begin():
        return False
    entry = _Leading(driver, events | POLLHUP, socket.is_exclusive(events))
    queue, turn, time = socket.wait_queue, driver.turn, socket.core.time
    leaving = True
    try:
        queue.add(entry)
        if signals is not None:
            signals.wake = driver.interrupt
        while not entry.woken:
            if (
                (signals is not None and signals.came)
                or (deadline is not None and deadline <= time())
                or not turn(deadline)
            ):
                break
        leaving = (signals is not None and signals.came) or (deadline is not None and deadline <= time())
    finally:
        driver.end()
        queue.remove(entry)
        if entry.woken and leaving:
            socket.pass_on(events)
    return True


def step(
    socket: SocketCore,
    events: int,
    attempt: Callable[[], Any],
    timeout: float | None,
    deadline: float | None,
    require_link: bool,
    closed_is_done: bool,
    partial: Callable[[], bool] | None,
) -> Any:
    """What ``attempt`` answers, or WOULD_BLOCK if the caller has to wait for ``events``. With the lock held.

    The part of a call that does not depend on who waits, and how: threads do in :func:`call`, tasks elsewhere.
    """
    try:
        if socket.closed:
            check(socket, events, closed_is_done)
        core = socket.core
        took_in = False
        try:
            result = attempt()
        finally:
            took_in = core.work_apart()
        if result is not WOULD_BLOCK:
            return result
        if took_in:
            # It may have been what this call waits for, and nobody has been told: it does not wait yet.
            result = attempt()
            if result is not WOULD_BLOCK:
                core.work_apart()
                return result
        if closed_is_done and socket.closed and socket.try_closed() is None:
            return None
        if require_link and not socket.has_links:
            raise NoLinks(f"{socket.id} has no link, and none is being made; call link(), or let a peer link to it")
        if deadline is not None and deadline <= core.time():
            raise Timeout(explain(socket, events, timeout))
        return WOULD_BLOCK
    except A3MError:
        if partial is not None and partial():
            return None  # what is done is done, and said; whatever is wrong is found again by the next call
        raise


def check(socket: SocketCore, events: int, closed_is_done: bool) -> None:
    """Raise if the socket is closed and has nothing left for this call."""
    if socket.closed and not closed_is_done and not (events & socket.current_events() & ~POLLHUP):
        socket.check_open()


def explain(socket: SocketCore, events: int, timeout: float | None) -> str:
    """Why a call ran out of time, and what to look at."""
    reason = socket.why_not(events)
    if reason is None and not any(socket.established):
        reason = socket.why_no_link()
    if events & POLLOUT:
        reason = reason or "its receivers have no room; they are slow, or out of reach"
        return f"{socket.id} could not send in {timeout} s, and the message was not sent: {reason}"
    if events & POLLIN:
        return f"nothing for {socket.id} in {timeout} s: {reason or 'nothing came over its links'}"
    return f"{socket.id} waited {timeout} s: {reason or 'its links are not what was waited for; see .pending'}"


def check_timeout(timeout: float | None) -> None:
    """Raise for what is no time-out."""
    if timeout is not None and (type(timeout) not in (int, float) or timeout != timeout):  # noqa: PLR0124  # not a number
        raise TypeError(f"timeout is a number of seconds, or None to wait as long as it takes, not {timeout!r}")
