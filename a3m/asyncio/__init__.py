"""Nodes and sockets for tasks of asyncio: the names of :mod:`a3m`, with ``await``.

The loop that runs the tasks drives the node between them; there is no thread. What waits can be cancelled, besides its
own ``timeout``, and what was cancelled has not happened: a cancelled ``recv`` has taken no message, a cancelled
``send`` has sent none. A node and its sockets belong to the loop that opened them.

>>> import asyncio, a3m.asyncio
>>> async def main():
...     async with (
...         a3m.asyncio.open_node("server", bind="127.0.0.1:0") as server,
...         a3m.asyncio.open_node("client", bind="127.0.0.1:0") as client,
...     ):
...         client.register("server", f"127.0.0.1:{server.address[1]}")
...         async with server.rep("echo") as rep, client.req("asker") as req:
...             req.link("server/echo")
...             await req.send(b"hello")
...             await rep.send(await rep.recv())
...             async with asyncio.timeout(5):
...                 print(await req.recv())
>>> asyncio.run(main())
b'hello'
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from math import inf
from typing import Any, TypeVar

from a3m import async_node, async_proxy
from a3m.async_driver import BURST, Waiter, Watch
from a3m.async_node import Events, Node
from a3m.async_socket import ReqSocket, RouterSocket, Socket, SubSocket, XPubSocket, XSubSocket
from a3m.joint import ProxyReport
from exon import Discovery, Options
from exon.udp import UdpSocket

__all__ = [
    "Events",
    "Node",
    "ReqSocket",
    "RouterSocket",
    "Socket",
    "SubSocket",
    "XPubSocket",
    "XSubSocket",
    "open_node",
    "proxy",
]

_Result = TypeVar("_Result")


@asynccontextmanager
async def open_node(
    id: str,
    *,
    bind: str = ":0",
    discovery: Discovery | None = None,
    store: None = None,
    options: Options | None = None,
    socket: Callable[[str], UdpSocket] = UdpSocket,
) -> AsyncIterator[Node]:
    """A node that is closed at the end of the block: having delivered everything, or at once after an exception.

    The arguments are those of :class:`a3m.Node`.

    >>> async def main():
    ...     async with open_node("here", bind="127.0.0.1:0") as node:
    ...         print(node.id, (await node.close()).clean)
    >>> asyncio.run(main())
    here True
    """
    async with await async_node.open_node(_Loop(), id, bind, discovery, store, options, socket) as node:
        yield node


async def proxy(
    front: Socket[Any], back: Socket[Any], *, capture: Socket[Any] | None = None, stop: asyncio.Event | None = None
) -> ProxyReport:
    """Forward messages between two sockets until one is closed or ``stop`` is set.

    It does the same as :func:`a3m.proxy`, whose arguments it has, and ends as soon as ``stop`` is set. It can be
    cancelled at any time and loses no message by it; only the report is missed.

    >>> async def main():
    ...     async with open_node("relay", bind="127.0.0.1:0") as node:
    ...         source, pull, push, sink = node.push("source"), node.pull("in"), node.push("out"), node.pull("sink")
    ...         source.link("relay/in")
    ...         push.link("relay/sink")
    ...         async with asyncio.TaskGroup() as group:
    ...             relay = group.create_task(proxy(pull, push))
    ...             await source.send(b"by way of the proxy")
    ...             print(await sink.recv())
    ...             await pull.close()
    >>> asyncio.run(main())
    b'by way of the proxy'
    """
    return await async_proxy.proxy(_Loop(), front, back, capture, stop, asyncio.Event)


class _Waiter:
    """A task that waits for a future of its own."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._future = loop.create_future()

    def wake(self) -> None:
        if not self._future.done():
            self._future.set_result(None)

    async def wait(self, deadline: float | None) -> None:
        timer = None if deadline is None else self._loop.call_at(deadline, self.wake)
        try:
            await self._future
        finally:
            if timer is not None:
                timer.cancel()


class _Watch:
    """Callbacks of the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, descriptor: int, ready: Callable[[], None]) -> None:
        self._loop = loop
        self._descriptor = descriptor
        self._ready = ready
        self._due = inf
        self._timer: asyncio.Handle | None = None
        loop.add_reader(descriptor, ready)

    def alarm(self, when: float) -> None:
        if when < self._due:
            self._cancel()
            self._due = when
            past = when <= self._loop.time()
            self._timer = self._loop.call_soon(self._ring) if past else self._loop.call_at(when, self._ring)

    def stop(self) -> None:
        self._loop.remove_reader(self._descriptor)
        self._cancel()

    def abandon(self) -> None:
        self._cancel()  # the reader stays: taking it away would take it away from the parent's selector

    def _ring(self) -> None:
        self._cancel()
        self._ready()

    def _cancel(self) -> None:
        # An alarm that turns out to be early is left alone: it costs one turn, and setting it anew costs as much.
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._due = None, inf


class _Loop:
    """What a node needs of asyncio."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._calls = 0

    def time(self) -> float:
        return self._loop.time()

    async def checkpoint(self) -> None:
        self._calls += 1
        if not self._calls % BURST:
            await self.turn()

    async def turn(self) -> None:
        await asyncio.sleep(0)

    def spawn(self, function: Callable[[], Awaitable[None]]) -> Callable[[], object]:
        async def run() -> None:
            await function()

        return self._loop.create_task(run()).cancel

    def waiter(self) -> Waiter:
        return _Waiter(self._loop)

    def watch(self, descriptor: int, ready: Callable[[], None]) -> Watch:
        return _Watch(self._loop, descriptor, ready)

    def from_thread(self, function: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(function)

    async def in_thread(self, function: Callable[[], _Result]) -> _Result:
        return await asyncio.to_thread(function)
