"""What is particular to trio: cancel scopes, nurseries, its clock. The rest is in test_async."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

import a3m
import a3m.trio
from a3m.async_driver import BURST
from tests.a3m.shells import Trio, link_with_the_dead, meet

run = Trio().run
open_node = Trio().open_node


def _drivers() -> list[str]:
    """The tasks that drive nodes."""
    root = trio.lowlevel.current_root_task()
    assert root is not None
    system = (task for nursery in root.child_nurseries for task in nursery.child_tasks)
    return [task.name for task in system if task.name == "a3m node"]


def test_a_scope_that_is_cancelled_lets_no_call_through() -> None:
    """Even calls that need not wait look whether they are cancelled, each of them."""

    async def main() -> None:
        async with open_node("a") as a:
            push, pull = a.push("push"), a.pull("pull")
            push.link("a/pull")
            await push.wait_linked()
            for _ in range(2 * BURST):
                with trio.CancelScope() as scope:
                    scope.cancel()
                    await push.send(b"never")
                assert scope.cancelled_caught
            xsub = a.xsub("xsub")
            with trio.CancelScope() as scope:
                scope.cancel()
                await xsub.send(a3m.Subscription(("never",), True))
            assert scope.cancelled_caught
            assert not xsub.pattern._wanted
            await push.send(b"sent")
            for _ in range(2 * BURST):
                with trio.CancelScope() as scope:
                    scope.cancel()
                    await pull.recv()
                assert scope.cancelled_caught
            assert await pull.recv_many(10) == [b"sent"]

    run(main)


def test_a_task_that_was_woken_first_gets_its_message_though_it_is_cancelled() -> None:
    async def main() -> None:
        async with open_node("a") as a:
            push, pull = a.push("push"), a.pull("pull")
            push.link("a/pull")
            await push.wait_linked()
            scope, received = trio.CancelScope(), []

            async def receive() -> None:
                with scope:
                    received.append(await pull.recv())

            async with trio.open_nursery() as nursery:
                nursery.start_soon(receive)
                await wait_all_tasks_blocked()
                push.pattern.send(b"x", timeout=0)  # without giving the receiver a chance to run
                scope.cancel()
            assert received == [b"x"]
            assert not scope.cancelled_caught

    run(main)


def test_cancelling_a_nursery_leaves_sockets_as_they_were() -> None:
    async def main() -> None:
        async with open_node("a") as a, open_node("b") as b:
            meet(a, b)
            push, pull, empty = a.push("push"), b.pull("pull", capacity=1), b.pull("empty")
            push.link("b/pull")
            await push.send(b"first")

            async def watch() -> None:
                async for _ in a.events():
                    pass

            async with trio.open_nursery() as nursery:
                for _ in range(10):
                    nursery.start_soon(push.send, b"cancelled")
                    nursery.start_soon(empty.recv)
                nursery.start_soon(empty.wait_linked)
                nursery.start_soon(watch)
                await wait_all_tasks_blocked()
                assert (push.stats().waiting, empty.stats().waiting) == (10, 11)
                nursery.cancel_scope.cancel()
            assert (push.stats().waiting, empty.stats().waiting, a._core.watchers) == (0, 0, [])
            assert await pull.recv() == b"first"
            await push.send(b"second")
            assert await pull.recv() == b"second"
            assert (push.stats().sent, pull.stats().received) == (2, 2)

    run(main)


def test_cancelling_everything_around_a_node_closes_it_at_once() -> None:
    async def main() -> None:
        nodes: list[Any] = []
        with trio.CancelScope() as scope:
            async with (
                open_node("a", options=a3m.Options(close_timeout=1000)) as a,
                await link_with_the_dead(Trio(), a) as push,
                trio.open_nursery() as nursery,
            ):
                nodes.append(a)
                assert "a3m node" in _drivers()
                nursery.start_soon(push.wait_unlinked)
                await wait_all_tasks_blocked()
                scope.cancel()
        assert scope.cancelled_caught
        assert nodes[0]._driver.udp.fileno() == -1
        await wait_all_tasks_blocked()
        assert not _drivers()

    run(main)


def test_a_scope_cancelled_while_the_block_ends_closes_at_once() -> None:
    async def main() -> None:
        with trio.CancelScope() as scope:
            async with open_node("a", options=a3m.Options(close_timeout=1000)) as a:
                await link_with_the_dead(Trio(), a)
                scope.cancel()
        assert a._driver.udp.fileno() == -1
        assert a.close_now() is await a.close()

    run(main)


def test_time_is_that_of_trio() -> None:
    """With a clock of one's own an hour passes at once, and an idle node does not notice it."""

    async def main() -> int:
        async with a3m.trio.open_node("a", bind="127.0.0.1:0") as a:
            pull, turns = a.pull("pull"), 0
            flush = a._driver._flush

            def count() -> None:
                nonlocal turns
                turns += 1
                flush()

            a._driver._flush = count  # type: ignore[method-assign]
            begun = trio.current_time()
            with pytest.raises(a3m.Timeout):
                await pull.recv(timeout=3600)
            with trio.move_on_after(3600) as scope:
                await pull.recv()
            assert scope.cancelled_caught
            assert trio.current_time() - begun == pytest.approx(7200)
            return turns

    assert trio.run(main, clock=MockClock(autojump_threshold=0)) == 0
