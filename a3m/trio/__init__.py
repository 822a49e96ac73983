"""Nodes and sockets for tasks of trio: the names of :mod:`a3m`, with ``await``.

The node is driven by a task of its own, which outlives the cancellation of those that use it and ends with the node;
there is no thread. Everything that waits obeys cancel scopes, besides its own ``timeout``, and what was cancelled has
not happened: a cancelled ``recv`` has taken no message, a cancelled ``send`` has sent none. Time is trio's, so a test
with a clock of its own governs the node as well. A node and its sockets belong to the loop that opened them.

>>> import trio, a3m.trio
>>> async def main():
...     async with (
...         a3m.trio.open_node("server", bind="127.0.0.1:0") as server,
...         a3m.trio.open_node("client", bind="127.0.0.1:0") as client,
...     ):
...         client.register("server", f"127.0.0.1:{server.address[1]}")
...         async with server.rep("echo") as rep, client.req("asker") as req:
...             req.link("server/echo")
...             await req.send(b"hello")
...             await rep.send(await rep.recv())
...             with trio.fail_after(5):
...                 print(await req.recv())
>>> trio.run(main)
b'hello'
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from math import inf
from typing import Any, TypeVar

import trio

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
    >>> trio.run(main)
    here True
    """
    async with await async_node.open_node(_Loop(), id, bind, discovery, store, options, socket) as node:
        yield node


async def proxy(
    front: Socket[Any], back: Socket[Any], *, capture: Socket[Any] | None = None, stop: trio.Event | None = None
) -> ProxyReport:
    """Forward messages between two sockets until one is closed or ``stop`` is set.

    It does the same as :func:`a3m.proxy`, whose arguments it has, and ends as soon as ``stop`` is set. It can be
    cancelled at any time and loses no message by it; only the report is missed.

    >>> async def main():
    ...     async with open_node("relay", bind="127.0.0.1:0") as node:
    ...         source, pull, push, sink = node.push("source"), node.pull("in"), node.push("out"), node.pull("sink")
    ...         source.link("relay/in")
    ...         push.link("relay/sink")
    ...         async with trio.open_nursery() as nursery:
    ...             nursery.start_soon(proxy, pull, push)
    ...             await source.send(b"by way of the proxy")
    ...             print(await sink.recv())
    ...             await pull.close()
    >>> trio.run(main)
    b'by way of the proxy'
    """
    return await async_proxy.proxy(_Loop(), front, back, capture, stop, trio.Event)


class _Waiter:
    """A task that waits for an event of its own."""

    def __init__(self) -> None:
        self._event = trio.Event()

    def wake(self) -> None:
        self._event.set()

    async def wait(self, deadline: float | None) -> None:
        # Whoever is woken first is not cancelled any more, nor the other way round: trio decides it once.
        with trio.CancelScope(deadline=inf if deadline is None else deadline):
            await self._event.wait()


class _Watch:
    """A task that waits for a descriptor.

    It belongs to nobody's nursery: the node must be able to say goodbye when all that use it are cancelled, and what
    is raised in the block of the node must not come out wrapped in an exception group.
    """

    def __init__(self, descriptor: int, ready: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._ready = ready
        self._due = inf
        self._scope = trio.CancelScope()
        self._stopped = False
        trio.lowlevel.spawn_system_task(self._run, name="a3m node")

    def alarm(self, when: float) -> None:
        if when < self._due:
            self._due = self._scope.deadline = when

    def stop(self) -> None:
        self._stopped = True
        trio.lowlevel.notify_closing(self._descriptor)

    def abandon(self) -> None:
        self._stopped = True  # and the loop is not told: it would take the descriptor out of its parent's epoll
        self._scope.deadline = inf

    async def _run(self) -> None:
        while not self._stopped:
            with trio.CancelScope(deadline=self._due) as self._scope, suppress(trio.ClosedResourceError):
                await trio.lowlevel.wait_readable(self._descriptor)
            self._due = inf
            if not self._stopped:
                self._ready()


class _Loop:
    """What a node needs of trio."""

    def __init__(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._calls = 0

    def time(self) -> float:
        return trio.current_time()

    async def checkpoint(self) -> None:
        self._calls += 1
        if self._calls % BURST:
            await trio.lowlevel.checkpoint_if_cancelled()
        else:
            await self.turn()

    async def turn(self) -> None:
        await trio.lowlevel.checkpoint()

    def spawn(self, function: Callable[[], Awaitable[None]]) -> Callable[[], object]:
        # In nobody's nursery, as the node: what is raised beside it must not come out wrapped in an exception group.
        scope = trio.CancelScope()

        async def run() -> None:
            with scope:
                await function()

        trio.lowlevel.spawn_system_task(run)
        return scope.cancel

    def waiter(self) -> Waiter:
        return _Waiter()

    def watch(self, descriptor: int, ready: Callable[[], None]) -> Watch:
        return _Watch(descriptor, ready)

    def from_thread(self, function: Callable[[], None]) -> None:
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(function)

    async def in_thread(self, function: Callable[[], _Result]) -> _Result:
        return await trio.to_thread.run_sync(function)
