"""Calls cancelled at random points lose nothing and double nothing, counted message by message.

Tasks send and receive numbered messages over a link with little room, and every call is one that may be cancelled: at
once, while it waits, at the moment it is woken, or too late. A call that was cancelled is repeated with the same
message; one that was not, is not. So in the end every message was received exactly once, or the promise is broken.

By turns only senders, only receivers or both are at work, so that calls of either kind wait, too.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest
import trio

import a3m
from tests.a3m.shells import Asyncio, Shell, Trio, meet

CALLS = 10_000  # cancelled ones
TASKS = 4  # that send, and as many that receive
_TURN = 100  # cancelled calls until others are at work
_AT_WORK = ({"send"}, {"send", "recv"}, {"recv"}, {"send", "recv"})


class Cancelled(Exception):
    """What a call raises here that was cancelled, in whichever loop."""


class TrioCalls:
    """Calls that can be cancelled at any time, in trio."""

    def __init__(self) -> None:
        self._scopes: dict[trio.CancelScope, None] = {}

    async def __call__(self, call: Callable[[], Awaitable[Any]], *, at_once: bool) -> Any:
        result = None
        with trio.CancelScope() as scope:
            self._scopes[scope] = None
            if at_once:
                scope.cancel()
            try:
                result = await call()
            finally:
                del self._scopes[scope]
        if scope.cancelled_caught:
            raise Cancelled
        return result

    def cancel_one(self, random: Random) -> None:
        if self._scopes:
            random.choice(list(self._scopes)).cancel()


class AsyncioCalls:
    """Calls that can be cancelled at any time, in asyncio."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[Any], None] = {}

    async def __call__(self, call: Callable[[], Awaitable[Any]], *, at_once: bool) -> Any:
        async def run() -> Any:
            return await call()

        task = asyncio.ensure_future(run())
        self._tasks[task] = None
        if at_once:
            await asyncio.sleep(0)  # a task that has not begun would never call
            task.cancel()
        await asyncio.wait([task])
        del self._tasks[task]
        if task.cancelled():
            raise Cancelled
        return task.result()

    def cancel_one(self, random: Random) -> None:
        if self._tasks:
            random.choice(list(self._tasks)).cancel()


class Hammer:
    """Senders, receivers, and somebody who cancels their calls."""

    def __init__(self, shell: Shell, calls: TrioCalls | AsyncioCalls, seed: int) -> None:
        self.random = Random(seed)
        self.cancelled: Counter[str] = Counter()
        self.sent: list[bytes] = []
        self.received: list[bytes] = []
        self._shell = shell
        self._calls = calls
        self._senders = TASKS

    @property
    def enough(self) -> bool:
        return self.cancelled.total() >= CALLS

    async def run(self) -> None:
        async with self._shell.open_node("a") as a, self._shell.open_node("b") as b:
            meet(a, b)
            push, pull = a.push("push"), b.pull("pull", capacity=3)
            push.link("b/pull")
            await pull.wait_linked()
            await self._shell.together(
                *(lambda task=task: self._send(push, task) for task in range(TASKS)),
                *(lambda: self._receive(pull) for _ in range(TASKS)),
                self._cancel,
            )
            assert push.stats().waiting == pull.stats().waiting == 0
            assert (push.stats().sent, pull.stats().received) == (len(self.sent), len(self.received))

    async def _try(self, kind: str, call: Callable[[], Awaitable[Any]]) -> Any:
        try:
            return await self._calls(call, at_once=self.random.random() < 0.05)
        except (Cancelled, a3m.Timeout):
            self.cancelled[kind] += 1
            return Cancelled

    def _timeout(self) -> float | None:
        return self.random.choice([None] * 8 + [0, 0.0002])

    async def _turn_of(self, kind: str) -> None:
        for _ in range(self.random.randrange(4)):
            await self._shell.turn()
        while not self.enough and kind not in _AT_WORK[self.cancelled.total() // _TURN % len(_AT_WORK)]:
            await self._shell.turn()

    async def _send(self, push: Any, task: int) -> None:
        while not self.enough:
            await self._send_one(push, b"%d/%d" % (task, len(self.sent)))
        self._senders -= 1
        if not self._senders:
            await push.close()

    async def _send_one(self, push: Any, message: bytes) -> None:
        while True:
            await self._turn_of("send")
            if await self._try("send", lambda: push.send(message, timeout=self._timeout())) is not Cancelled:
                self.sent.append(message)
                return

    async def _receive(self, pull: Any) -> None:
        while True:
            await self._turn_of("recv")
            try:
                got = await self._try("recv", lambda: pull.recv(timeout=self._timeout(), require_link=True))
            except a3m.NoLinks:
                return
            if got is not Cancelled:
                self.received.append(got)

    async def _cancel(self) -> None:
        while not self.enough:
            for _ in range(self.random.randrange(3)):
                await self._shell.turn()
            self._calls.cancel_one(self.random)
            await self._shell.turn()


@pytest.mark.parametrize("seed", [1])
@pytest.mark.parametrize(("shell", "calls"), [(Trio(), TrioCalls), (Asyncio(), AsyncioCalls)], ids=["trio", "asyncio"])
def test_ten_thousand_cancelled_calls(shell: Shell, calls: Callable[[], TrioCalls | AsyncioCalls], seed: int) -> None:
    hammer = Hammer(shell, calls(), seed)
    shell.run(hammer.run)
    assert min(hammer.cancelled["send"], hammer.cancelled["recv"]) > CALLS // 4
    assert len(hammer.sent) == len(set(hammer.sent)) > 100
    assert Counter(hammer.received) == Counter(hammer.sent)
