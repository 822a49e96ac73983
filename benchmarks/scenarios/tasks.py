"""Clients that are tasks of an event loop: for :mod:`benchmarks.scenarios.rpc`."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any

import a3m.asyncio
from benchmarks.harness import Desk, Window, latency_facts

Ask = Callable[[], Awaitable[Any]]


async def _ask_until_the_end(ask: Ask, window: Window, times: list[float]) -> None:
    begin = monotonic()
    while begin <= window.end or not times:
        await ask()
        end = monotonic()
        if begin >= window.begin and (end <= window.end or not times):
            times.append(end - begin)
        begin = end


def _asker(socket: Any) -> Ask:
    async def ask() -> None:
        await socket.send(b"?")
        await socket.recv()

    return ask


async def _open_sockets(node: Any, address: Any, count: int) -> list[Ask]:
    """One REQ socket for each task, linked; the same for either event loop."""
    node.register("server", f"{address[0]}:{address[1]}")
    sockets = [node.req(f"socket{number}") for number in range(count)]
    for socket in sockets:
        socket.link("server/socket")
        await socket.wait_linked(timeout=60)
    return [_asker(socket) for socket in sockets]


async def _in_asyncio(asks: list[Ask], window: Window) -> list[float]:
    times: list[float] = []
    await asyncio.gather(*(_ask_until_the_end(ask, window, times) for ask in asks))
    return times


async def _a3m_asyncio(address: Any, count: int, warm_up: float, seconds: float) -> list[float]:
    async with a3m.asyncio.open_node("client", bind="127.0.0.1:0") as node:
        asks = await _open_sockets(node, address, count)
        return await _in_asyncio(asks, Window.after(warm_up, seconds))


async def _zmq_asyncio(address: Any, count: int, warm_up: float, seconds: float) -> list[float]:
    zmq: Any = importlib.import_module("zmq")
    context: Any = importlib.import_module("zmq.asyncio").Context()
    sockets = [context.socket(zmq.REQ) for _ in range(count)]
    for socket in sockets:
        socket.connect(address)
    asks = [_asker(socket) for socket in sockets]
    for ask in asks:
        await ask()
    return await _in_asyncio(asks, Window.after(warm_up, seconds))


async def _a3m_trio(address: Any, count: int, warm_up: float, seconds: float) -> list[float]:
    trio: Any = importlib.import_module("trio")
    times: list[float] = []
    async with importlib.import_module("a3m.trio").open_node("client", bind="127.0.0.1:0") as node:
        asks = await _open_sockets(node, address, count)
        window = Window.after(warm_up, seconds)
        async with trio.open_nursery() as nursery:
            for ask in asks:
                nursery.start_soon(_ask_until_the_end, ask, window, times)
    return times


def be_tasks(desk: Desk, library: str, loop: str, count: int, warm_up: float, seconds: float) -> None:
    """Clients in tasks of one process."""
    arguments = (desk.hear(), count, warm_up, seconds)
    if loop == "trio":
        times = importlib.import_module("trio").run(_a3m_trio, *arguments)
    else:
        times = asyncio.run({"a3m": _a3m_asyncio, "pyzmq": _zmq_asyncio}[library](*arguments))
    desk.report(latency_facts(times, seconds))
