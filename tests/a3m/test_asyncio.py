"""What is particular to asyncio: tasks cancelled after they were woken, its time-outs. The rest is in test_async."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import a3m
from tests.a3m.shells import Asyncio, link_with_the_dead, meet

run = Asyncio().run
open_node = Asyncio().open_node


async def _waiting(socket: Any, number: int) -> None:
    while socket.stats().waiting < number:
        await asyncio.sleep(0)


def test_a_task_that_is_cancelled_after_it_was_woken_wakes_the_next_one() -> None:
    async def main() -> None:
        async with open_node("a") as a:
            push, pull = a.push("push"), a.pull("pull")
            push.link("a/pull")
            await push.wait_linked()
            first = asyncio.ensure_future(pull.recv())
            await _waiting(pull, 1)
            second = asyncio.ensure_future(pull.recv())
            await _waiting(pull, 2)
            push.pattern.send(b"x", timeout=0)  # wakes the first, without giving it a chance to run
            first.cancel()
            assert await second == b"x"
            assert first.cancelled()
            assert pull.stats().waiting == 0

    run(main)


def test_a_sender_that_is_cancelled_after_it_was_woken_wakes_the_next_one() -> None:
    async def main() -> None:
        async with open_node("a") as a:
            push, pull = a.push("push"), a.pull("pull", capacity=1)
            push.link("a/pull")
            await push.send(b"full")
            first = asyncio.ensure_future(push.send(b"first"))
            await _waiting(push, 1)
            second = asyncio.ensure_future(push.send(b"second"))
            await _waiting(push, 2)
            assert pull.pattern.recv(timeout=0) == b"full"  # the credit goes back to the first
            first.cancel()
            await second
            assert first.cancelled()
            assert await pull.recv() == b"second"
            assert push.stats().sent == 2

    run(main)


def test_time_outs_of_asyncio() -> None:
    async def main() -> None:
        async with open_node("a") as a:
            push, pull = a.push("push"), a.pull("pull", capacity=1)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(pull.recv(), 0.01)
            push.link("a/pull")
            await push.send(b"x")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await push.send(b"too late")
            assert await pull.recv_many(5) == [b"x"]
            assert (push.stats().waiting, pull.stats().waiting) == (0, 0)

    run(main)


def test_a_group_that_fails_cancels_the_calls_of_its_tasks_only() -> None:
    async def main() -> None:
        async with open_node("a") as a, open_node("b") as b:
            meet(a, b)
            push, pull = a.push("push"), b.pull("pull", capacity=1)
            push.link("b/pull")
            await push.send(b"first")

            async def fail() -> None:
                await _waiting(push, 5)
                raise ZeroDivisionError

            async def all_together() -> None:
                async with asyncio.TaskGroup() as group:
                    for _ in range(5):
                        group.create_task(push.send(b"cancelled"))
                    group.create_task(fail())

            with pytest.raises(ExceptionGroup) as failed:
                await all_together()
            assert failed.group_contains(ZeroDivisionError)
            assert await pull.recv() == b"first"
            await push.send(b"second")
            assert await pull.recv() == b"second"

    run(main)


def test_cancelling_the_task_that_uses_a_node_closes_it_at_once() -> None:
    async def main() -> None:
        nodes: list[Any] = []

        async def use() -> None:
            async with (
                open_node("a", options=a3m.Options(close_timeout=1000)) as a,
                await link_with_the_dead(Asyncio(), a) as push,
            ):
                nodes.append(a)
                await push.wait_unlinked()

        task = asyncio.ensure_future(use())
        while not nodes or not nodes[0].stats().sockets["push"].waiting:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert nodes[0]._driver.udp.fileno() == -1
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(main)


def test_an_alarm_is_only_ever_brought_forward() -> None:
    """An idle node sets no timer, and a busy one does not set one for every datagram."""

    async def main() -> None:
        rings: list[float] = []
        async with open_node("a") as a:
            watch: Any = a._driver._watch

            def timer() -> Any:
                return watch._timer

            assert timer() is None
            loop = asyncio.get_running_loop()
            done = asyncio.Event()

            def ready() -> None:
                rings.append(loop.time())
                done.set()

            watch._ready = ready
            begun = loop.time()
            watch.alarm(begun + 1000)
            late = timer()
            watch.alarm(begun + 2000)
            assert timer() is late
            watch.alarm(begun + 0.001)
            assert late.cancelled()
            await done.wait()
            done.clear()
            assert timer() is None
            watch.alarm(begun)  # in the past: soon, and not before this returns
            assert len(rings) == 1
            await done.wait()
            assert len(rings) == 2
            watch.alarm(begun + 1000)
            late = timer()
        assert late.cancelled()

    run(main)
