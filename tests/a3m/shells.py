"""Both event loops under one set of names, so that one test can be run in each."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, Protocol, TypeVar

import pytest
import trio

import a3m.asyncio
import a3m.trio
from a3m.async_node import Node
from a3m.async_socket import Socket

PATIENCE = 100.0  # seconds until a test that hangs fails; no test that passes waits for it

T = TypeVar("T")
AsyncFunction = Callable[[], Awaitable[Any]]


class Shell(Protocol):
    """What tests need of an event loop."""

    def run(self, main: Callable[[], Awaitable[T]]) -> T:
        """Run a loop; fail if it takes too long."""

    def open_node(self, id: str, **arguments: Any) -> AbstractAsyncContextManager[Node]:
        """A node on the loopback interface."""

    def proxy(self, front: Any, back: Any, **arguments: Any) -> Awaitable[a3m.ProxyReport]:
        """The proxy of the loop."""

    def event(self) -> Any:
        """An event of the loop."""

    async def together(self, *functions: AsyncFunction) -> None:
        """Run functions at the same time."""

    async def turn(self) -> None:
        """Let all others run once."""

    async def cancelled(self, function: AsyncFunction, while_waiting: Callable[[], bool]) -> bool:
        """Call a function, and cancel it as soon as ``while_waiting()``; whether it was cancelled."""

    async def in_thread(self, function: Callable[[], T]) -> T:
        """Call what blocks."""


class Trio:
    def run(self, main: Callable[[], Awaitable[T]]) -> T:
        async def limited() -> T:
            with trio.fail_after(PATIENCE):
                return await main()

        return trio.run(limited)

    def open_node(self, id: str, **arguments: Any) -> AbstractAsyncContextManager[Node]:
        return a3m.trio.open_node(id, **{"bind": "127.0.0.1:0", **arguments})

    def proxy(self, front: Any, back: Any, **arguments: Any) -> Awaitable[a3m.ProxyReport]:
        return a3m.trio.proxy(front, back, **arguments)

    def event(self) -> Any:
        return trio.Event()

    async def together(self, *functions: AsyncFunction) -> None:
        async with trio.open_nursery() as nursery:
            for function in functions:
                nursery.start_soon(function)

    async def turn(self) -> None:
        await trio.lowlevel.checkpoint()

    async def cancelled(self, function: AsyncFunction, while_waiting: Callable[[], bool]) -> bool:
        scope = trio.CancelScope()

        async def call() -> None:
            with scope:
                await function()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            while not while_waiting():
                await self.turn()
            scope.cancel()
        return scope.cancelled_caught

    async def in_thread(self, function: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(function)


class Asyncio:
    def run(self, main: Callable[[], Awaitable[T]]) -> T:
        async def limited() -> T:
            async with asyncio.timeout(PATIENCE):
                return await main()

        return asyncio.run(limited())

    def open_node(self, id: str, **arguments: Any) -> AbstractAsyncContextManager[Node]:
        return a3m.asyncio.open_node(id, **{"bind": "127.0.0.1:0", **arguments})

    def proxy(self, front: Any, back: Any, **arguments: Any) -> Awaitable[a3m.ProxyReport]:
        return a3m.asyncio.proxy(front, back, **arguments)

    def event(self) -> Any:
        return asyncio.Event()

    async def together(self, *functions: AsyncFunction) -> None:
        async with asyncio.TaskGroup() as group:
            for function in functions:
                group.create_task(_as_coroutine(function))

    async def turn(self) -> None:
        await asyncio.sleep(0)

    async def cancelled(self, function: AsyncFunction, while_waiting: Callable[[], bool]) -> bool:
        task = asyncio.ensure_future(_as_coroutine(function))
        while not while_waiting():
            await self.turn()
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    async def in_thread(self, function: Callable[[], T]) -> T:
        return await asyncio.to_thread(function)


async def _as_coroutine(function: AsyncFunction) -> None:
    await function()


both = pytest.mark.parametrize("shell", [Trio(), Asyncio()], ids=["trio", "asyncio"])


@contextmanager
def no_thread_left() -> Iterator[None]:
    """Whatever thread was started meanwhile ends by itself."""
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        thread.join(PATIENCE)
        assert not thread.is_alive(), thread


def meet(*nodes: Node | a3m.Node) -> None:
    """Let nodes know where the others are."""
    for one in nodes:
        for other in nodes:
            if one is not other:
                one.register(other.id, f"127.0.0.1:{other.address[1]}")


async def link_with_the_dead(shell: Shell, node: Node, tag: str = "push") -> Socket[Any]:
    """A PUSH socket whose only peer has crashed, so that it cannot be closed in order."""
    async with shell.open_node("dead") as dead:
        meet(node, dead)
        push, _ = node.push(tag), dead.pull("pull")
        push.link("dead/pull")
        await push.wait_linked()
        dead._driver.stop()
        dead.close_now()
    return push
