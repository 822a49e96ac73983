"""Proxies for tasks: they do what those for threads do, and being cancelled costs no message."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest
import trio

import a3m
import a3m.asyncio
import a3m.trio
from a3m import ProxyReport
from a3m.async_node import Node
from tests.a3m.shells import Asyncio, Shell, Trio, both, meet

MESSAGES = [b"%d" % number for number in range(300)]
CANCELLED = 100  # times that a proxy is cancelled while messages go through it


class Way:
    """A proxy's two sockets, and who is on either side of it."""

    patterns: tuple[str, str]

    def __init__(self, ends: Node, relay: Node) -> None:
        self.front, self.back = (getattr(relay, pattern)(pattern) for pattern in self.patterns)
        self.received: list[Any] = []
        self.make(ends)

    def make(self, ends: Node) -> None:
        """Open the sockets of those who use the proxy, and link them."""
        raise NotImplementedError

    async def produce(self, shell: Shell) -> None:
        """Send all messages."""
        raise NotImplementedError

    async def consume(self) -> None:
        """Receive as many."""
        raise NotImplementedError


class Work(Way):
    patterns = ("pull", "push")

    def make(self, ends: Node) -> None:
        self.source, self.sink = ends.push("source"), ends.pull("sink", capacity=3)
        self.source.link(self.front.id)
        self.back.link(self.sink.id)

    async def produce(self, shell: Shell) -> None:
        assert await self.source.send_many(MESSAGES) == len(MESSAGES)

    async def consume(self) -> None:
        while len(self.received) < len(MESSAGES):
            self.received.append(await self.sink.recv())


class Questions(Way):
    patterns = ("router", "dealer")

    def make(self, ends: Node) -> None:
        self.asker = ends.dealer("asker", capacity=3, ordered=True)
        self.answerer = ends.rep("answerer", capacity=3, ordered=True)
        self.front.options.ordered = self.back.options.ordered = True
        self.asker.link(self.front.id)
        self.back.link(self.answerer.id)

    async def produce(self, shell: Shell) -> None:
        async def answer() -> None:
            for _ in MESSAGES:
                await self.answerer.send(await self.answerer.recv())

        async def ask() -> None:
            await self.asker.send_many(MESSAGES)

        await shell.together(ask, answer)

    async def consume(self) -> None:
        while len(self.received) < len(MESSAGES):
            self.received.append(await self.asker.recv())


class News(Way):
    patterns = ("xsub", "xpub")

    def make(self, ends: Node) -> None:
        self.publisher, self.reader = ends.pub("publisher"), ends.sub("reader", capacity=3)
        self.publisher.link(self.front.id)
        self.reader.link(self.back.id)
        self.reader.subscribe("number")

    async def produce(self, shell: Shell) -> None:
        while not await self.publisher.send("number", MESSAGES[0]):
            await shell.turn()
        for message in MESSAGES[1:]:
            assert await self.publisher.send("number", message) == 1

    async def consume(self) -> None:
        while len(self.received) < len(MESSAGES):
            topic, payload = await self.reader.recv()
            assert topic == "number"
            self.received.append(payload)


ways = pytest.mark.parametrize("way", [Work, Questions, News])


async def at_rest(shell: Shell, *sockets: Any) -> None:
    """Return as soon as a proxy waits between these sockets."""
    while not all(socket.stats().waiting for socket in sockets):
        await shell.turn()


@both
@ways
@pytest.mark.parametrize("turned", [False, True])
def test_messages_go_through_whichever_socket_comes_first(shell: Shell, way: type[Way], turned: bool) -> None:
    async def main() -> tuple[list[Any], ProxyReport]:
        async with shell.open_node("a") as a, shell.open_node("relay") as relay:
            meet(a, relay)
            path, stop, reports = way(a, relay), shell.event(), []
            sockets = (path.back, path.front) if turned else (path.front, path.back)

            async def forward() -> None:
                reports.append(await shell.proxy(*sockets, stop=stop))

            async def consume() -> None:
                await path.consume()
                stop.set()

            await shell.together(forward, lambda: path.produce(shell), consume)
            assert [socket.stats().waiting for socket in sockets] == [0, 0]
            return path.received, reports[0]

    received, report = shell.run(main)
    assert received == MESSAGES
    assert (report.forwarded, report.unroutable, report.captured, report.missed) == (300, 0, 0, 0)
    assert report.returned == {Work: 0, Questions: 300, News: 1}[way]


@both
@ways
def test_a_cancelled_proxy_loses_nothing_and_doubles_nothing(shell: Shell, way: type[Way]) -> None:
    random = Random(1)

    async def main() -> list[Any]:
        async with shell.open_node("a") as a, shell.open_node("relay") as relay:
            meet(a, relay)
            path = way(a, relay)
            cancelled = 0

            def some_turns() -> Callable[[], bool]:
                turns = iter(range(random.randrange(8)))
                return lambda: next(turns, None) is None

            async def forward() -> None:
                nonlocal cancelled
                proxy = lambda: shell.proxy(path.front, path.back, stop=shell.event())  # noqa: E731
                while len(path.received) < len(MESSAGES) or cancelled < CANCELLED:
                    assert await shell.cancelled(proxy, some_turns())
                    cancelled += 1

            await shell.together(forward, lambda: path.produce(shell), path.consume)
            assert path.front.stats().waiting == path.back.stats().waiting == 0  # it left the wait queues
            return path.received

    assert shell.run(main) == MESSAGES


@both
def test_nothing_is_taken_while_there_is_nobody_to_forward_to(shell: Shell) -> None:
    async def main() -> None:
        async with shell.open_node("a") as a:
            source, pull, push = a.push("source"), a.pull("in"), a.push("out")
            source.link("a/in")
            await source.send_many([b"1", b"2"])
            stop = shell.event()

            async def forward() -> None:
                assert await shell.proxy(pull, push, stop=stop) == ProxyReport(0, 0, 0, 0, 0)

            async def end() -> None:
                await at_rest(shell, pull, push)
                stop.set()

            await shell.together(forward, end)
            assert [await pull.recv(), await pull.recv()] == [b"1", b"2"]

    shell.run(main)


@both
def test_a_stop_that_was_set_before_forwards_nothing(shell: Shell) -> None:
    async def main() -> None:
        async with shell.open_node("a") as a:
            source, pull, push, sink = a.push("source"), a.pull("in"), a.push("out"), a.pull("sink")
            source.link("a/in")
            push.link("a/sink")
            await source.send(b"x")
            await push.wait_linked()
            stop = shell.event()
            stop.set()
            assert await shell.proxy(pull, push, stop=stop) == ProxyReport(0, 0, 0, 0, 0)
            assert await pull.recv() == b"x"
            assert sink.stats().queued == 0

    shell.run(main)


@both
def test_closing_the_front_forwards_what_has_come(shell: Shell) -> None:
    async def main() -> ProxyReport:
        async with shell.open_node("a") as a:
            source, pull, push, sink = a.push("source"), a.pull("in"), a.push("out"), a.pull("sink")
            source.link("a/in")
            await source.send_many(MESSAGES)
            await source.close()
            await pull.close()
            push.link("a/sink")
            report = await shell.proxy(pull, push)  # without stop: it ends by itself
            assert [await sink.recv() for _ in MESSAGES] == MESSAGES
            return report

    assert shell.run(main).forwarded == len(MESSAGES)


@both
@ways
@pytest.mark.parametrize("closed", [0, 1])
def test_it_ends_when_a_socket_is_closed(shell: Shell, way: type[Way], closed: int) -> None:
    async def main() -> None:
        async with shell.open_node("relay") as relay:
            sockets = [getattr(relay, pattern)(pattern) for pattern in way.patterns]

            async def forward() -> None:
                assert await shell.proxy(*sockets) == ProxyReport(0, 0, 0, 0, 0)

            async def end() -> None:
                await at_rest(shell, *sockets)
                await sockets[closed].close()

            await shell.together(forward, end)

    shell.run(main)


@both
def test_a_capture_socket_gets_copies_and_holds_up_nobody(shell: Shell) -> None:
    async def main() -> None:
        async with shell.open_node("a") as a, shell.open_node("relay") as relay:
            meet(a, relay)
            path, stop, reports = Work(a, relay), shell.event(), []
            capture, watcher = relay.push("capture"), a.pull("watcher", capacity=5)
            capture.link(watcher.id)
            await capture.wait_linked()

            async def forward() -> None:
                reports.append(await shell.proxy(path.front, path.back, capture=capture, stop=stop))

            async def consume() -> None:
                await path.consume()
                stop.set()

            await shell.together(forward, lambda: path.produce(shell), consume)
            assert reports == [ProxyReport(len(MESSAGES), 0, 0, 5, len(MESSAGES) - 5)]
            assert [await watcher.recv() for _ in range(5)] == MESSAGES[:5]

    shell.run(main)


@both
def test_others_run_between_two_batches(shell: Shell) -> None:
    many = [b"x"] * 2000

    async def main() -> int:
        async with shell.open_node("a") as a:
            source, pull = a.push("source"), a.pull("in", capacity=len(many))
            push, sink = a.push("out"), a.pull("sink", capacity=len(many))
            source.link("a/in")
            push.link("a/sink")
            await push.wait_linked()
            await source.send_many(many)
            turns = 0

            async def count() -> None:
                nonlocal turns
                while push.stats().sent < len(many):
                    turns += bool(push.stats().sent)
                    await shell.turn()
                await pull.close()

            await shell.together(lambda: shell.proxy(pull, push), count)
            assert sink.stats().queued == len(many)
            return turns

    assert shell.run(main) >= 5


@pytest.mark.parametrize(
    ("shell", "living"),
    [
        (Trio(), lambda: trio.lowlevel.current_statistics().tasks_living),
        (Asyncio(), lambda: len(asyncio.all_tasks())),
    ],
    ids=["trio", "asyncio"],
)
def test_no_task_is_left(shell: Shell, living: Callable[[], int]) -> None:
    async def main() -> None:
        async with shell.open_node("a") as a:
            before = living()
            pull, push = a.pull("in"), a.push("out")
            proxy = lambda: shell.proxy(pull, push, stop=shell.event())  # noqa: E731
            assert await shell.cancelled(proxy, lambda: pull.stats().waiting > 0 and living() == before + 2)
            while living() != before:
                await shell.turn()

    shell.run(main)


@pytest.mark.parametrize(
    ("shell", "other", "event", "here", "there"),
    [(Trio(), Asyncio(), asyncio.Event, "trio", "asyncio"), (Asyncio(), Trio(), trio.Event, "asyncio", "trio")],
    ids=["trio", "asyncio"],
)
def test_arguments_are_checked(shell: Shell, other: Shell, event: Any, here: str, there: str) -> None:
    strangers: list[Any] = []

    async def elsewhere() -> None:
        async with other.open_node("b") as b:
            strangers.append(b.push("out"))

    async def main() -> None:
        async with shell.open_node("a") as a:
            pull, push = a.pull("in"), a.push("out")

            async def refused(text: str, call: Callable[[], Awaitable[ProxyReport]]) -> None:
                with pytest.raises(a3m.NotSupported, match=text):
                    await call()

            nodes = rf"a3m\.{here}\.proxy takes sockets of a node of a3m\.{here}, "
            await refused(nodes + r"builtins\.str is none", lambda: shell.proxy(pull, "a/out"))
            await refused(
                nodes + rf"a3m\.async_socket\.Socket of a3m\.{there} is", lambda: shell.proxy(pull, strangers[0])
            )
            await refused(
                nodes + r"a3m\.patterns\.pushpull\.PushSocket is none", lambda: shell.proxy(pull, push.pattern)
            )
            await refused(nodes, lambda: shell.proxy(pull, push, capture=push.pattern))
            await refused("cannot join PULL and SUB", lambda: shell.proxy(pull, a.sub("sub")))
            await refused(
                "a PUSH, PAIR or PUB socket, not to DEALER", lambda: shell.proxy(pull, push, capture=a.dealer("dealer"))
            )
            await refused(
                rf"stop is an Event of {here}, not {there}\.\S*Event", lambda: shell.proxy(pull, push, stop=event())
            )

    other.run(elsewhere)
    shell.run(main)


def test_threads_need_sockets_for_threads() -> None:
    async def main() -> None:
        async with Trio().open_node("a") as a:
            pull, push = a.pull("in"), a.push("out")
            with pytest.raises(a3m.NotSupported, match=r"Socket is none; for tasks see a3m\.trio\.proxy"):
                a3m.proxy(pull, push)  # type: ignore[arg-type]
            with pytest.raises(a3m.NotSupported, match=r"not to a3m\.async_socket\.Socket"):
                a3m.proxy(pull.pattern, push.pattern, capture=a.pair("capture"))  # type: ignore[arg-type]

    Trio().run(main)
