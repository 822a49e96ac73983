"""Proxies for tasks, the same for every event loop: :mod:`a3m.joint` has what they do, and here is the waiting.

*Cancellation loses nothing.* A message is taken from one socket when the other has accepted it, without anything in
between where the task could be cancelled; that is possible only between two batches, and while it waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from a3m.async_driver import Loop
from a3m.async_socket import Socket
from a3m.errors import NotSupported
from a3m.joint import Joint, ProxyReport
from a3m.socket import Socket as Pattern


class Stop(Protocol):
    """What ends a proxy, an event of the loop."""

    def is_set(self) -> bool:
        """Whether it has come."""

    async def wait(self) -> object:
        """Wait for it."""


async def proxy(
    loop: Loop, front: Socket[Any], back: Socket[Any], capture: Socket[Any] | None, stop: Stop | None, event: type[Stop]
) -> ProxyReport:
    """Forward messages between two sockets until one is closed or ``stop``, an ``event``, is set."""
    joint = Joint(_pattern(front, loop), _pattern(back, loop), None if capture is None else _pattern(capture, loop))
    if stop is not None and not isinstance(stop, event):
        library = event.__module__.partition(".")[0]
        raise NotSupported(f"stop is an Event of {library}, not {_kind(stop)}")
    waiter = loop.waiter()

    def changed() -> None:
        waiter.wake()

    await loop.checkpoint()
    with joint.watched(changed), _told(loop, stop, changed):
        while stop is None or not stop.is_set():
            waiter = loop.waiter()  # before looking: what happens from here on is not missed
            if joint.forward():
                await loop.turn()
            elif joint.over:
                break
            else:
                await waiter.wait(None)
    return joint.report()


@contextmanager
def _told(loop: Loop, stop: Stop | None, changed: Callable[[], None]) -> Iterator[None]:
    """Call ``changed`` when ``stop`` is set, which only a task can wait for."""
    if stop is None:
        yield
        return

    async def tell() -> None:
        await stop.wait()
        changed()

    end = loop.spawn(tell)
    try:
        yield
    finally:
        end()


def _pattern(socket: object, loop: Loop) -> Pattern:
    """What a socket does, without the waiting, if it waits in this kind of loop."""
    what = _kind(socket)
    if isinstance(socket, Socket):
        if type(socket._loop) is type(loop):
            pattern: Pattern = socket.pattern
            return pattern
        what += f" of {type(socket._loop).__module__}"
    here = type(loop).__module__
    raise NotSupported(f"{here}.proxy takes sockets of a node of {here}, {what} is none")


def _kind(thing: object) -> str:
    return f"{type(thing).__module__}.{type(thing).__name__}"
