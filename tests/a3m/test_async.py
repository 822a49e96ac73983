"""What nodes and sockets for tasks do, in both event loops."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from threading import Event, Thread
from typing import Any

import pytest

import a3m
from a3m import Published, Subscription
from a3m.async_driver import BURST
from a3m.async_socket import Socket
from exon.addresses import Address
from exon.simulation import lossy
from exon.udp import UdpSocket
from tests.a3m.shells import PATIENCE, Shell, both, link_with_the_dead, meet, no_thread_left

# -- every pattern, against tasks and against threads ----------------------------------------------------------------


@both
def test_all_patterns_between_tasks(shell: Shell) -> None:
    async def main() -> None:
        async with shell.open_node("a") as a, shell.open_node("b") as b:
            meet(a, b)
            await _push_pull(a.push("push"), b.pull("pull"))
            await _req_rep(a.req("req"), b.rep("rep"))
            await _dealer_router(a.dealer("dealer"), b.router("router"))
            await _pair(a.pair("pair"), b.pair("pair"))
            await _pub_sub(shell, a.pub("pub"), b.sub("sub"))
            await _xpub_xsub(a.xpub("xpub"), b.xsub("xsub"))

    shell.run(main)


async def _push_pull(push: Any, pull: Any) -> None:
    push.link(pull.id)
    await push.send(b"one")
    await push.send([b"two", b"parts"])
    assert await push.send_many([b"3", b"4", b"5"]) == 3
    assert await pull.recv() == b"one"
    assert await pull.recv() == (b"two", b"parts")
    assert await pull.recv_parts() == [b"3"]
    rest = await pull.recv_many(10)
    while len(rest) < 2:
        rest += await pull.recv_many(10)
    assert rest == [b"4", b"5"]


async def _req_rep(req: Any, rep: Any) -> None:
    req.link(rep.id)
    await req.send(b"question")
    await rep.send(await rep.recv() + b" answered")
    assert await req.recv() == b"question answered"
    await req.send(b"never mind")
    req.cancel()
    with pytest.raises(a3m.StateError):
        await req.recv()


async def _dealer_router(dealer: Any, router: Any) -> None:
    dealer.link(router.id)
    await dealer.send(b"where am I?")
    route, payload = await router.recv()
    assert (route, payload) == ((str(dealer.id),), b"where am I?")
    await router.send(b"here", to=route)
    assert await dealer.recv() == b"here"
    with pytest.raises(a3m.NoRoute):
        await router.send(b"lost", to="a/nobody")


async def _pair(one: Any, other: Any) -> None:
    one.link(other.id)
    await one.send(b"ping")
    assert await other.recv() == b"ping"
    await other.send(b"pong")
    assert await one.recv() == b"pong"


async def _pub_sub(shell: Shell, pub: Any, sub: Any) -> None:
    sub.subscribe("news", "weather")
    sub.unsubscribe("weather")
    assert sub.subscriptions == ("news",)
    sub.link(pub.id)
    while not await pub.send("news/today", b"it rains"):
        await shell.turn()
    assert await sub.recv() == Published("news/today", b"it rains")
    assert await pub.send("weather", b"it rains") == 0
    for wrong in (pub.send_many, sub.send, sub.send_many):
        with pytest.raises(a3m.NotSupported):
            await wrong([b""])
    with pytest.raises(a3m.NotSupported):
        await pub.recv()


async def _xpub_xsub(xpub: Any, xsub: Any) -> None:
    xsub.link(xpub.id)
    await xsub.send(Subscription(("all",), True))
    assert await xpub.recv() == Subscription(("all",), True, xsub.id)
    assert await xpub.send("all of them", b"!") == 1
    assert await xsub.recv() == Published("all of them", b"!")
    with pytest.raises(a3m.NotSupported):
        await xsub.send_many([b""])


@both
def test_tasks_and_threads_talk_with_each_other(shell: Shell) -> None:
    numbers = [b"%d" % number for number in range(3000)]

    def serve(node: a3m.Node) -> None:
        with node.rep("rep") as rep:
            with node.push("push") as push:
                push.link("tasks/pull")
                assert push.send_many(numbers, timeout=PATIENCE) == len(numbers)
            for message in rep:
                rep.send(message[::-1], timeout=PATIENCE)

    async def main(threads: a3m.Node) -> None:
        async with shell.open_node("tasks") as tasks:
            meet(tasks, threads)
            async with tasks.pull("pull") as pull, tasks.req("req") as req:
                req.link("threads/rep")
                assert [message async for message in pull] == numbers
                for number in numbers[:50]:
                    await req.send(number)
                    assert await req.recv() == number[::-1]

    with a3m.Node("threads", bind="127.0.0.1:0") as node:
        server = Thread(target=serve, args=(node,))
        server.start()
        shell.run(lambda: main(node))
        server.join(PATIENCE)
        assert not server.is_alive()


@both
def test_names_options_and_links_are_those_of_the_blocking_socket(shell: Shell) -> None:
    async def main() -> None:
        async with shell.open_node("a") as a, shell.open_node("b") as b:
            meet(a, b)
            push, pull = a.push("push"), b.pull("pull", capacity=7)
            assert (str(push.id), push.protocol, pull.options.capacity) == ("a/push", "PUSH", 7)
            push.link("b/pull", metadata={"colour": "blue"})
            assert [peer for peer, _ in push.pending] == [pull.id]
            assert await push.wait_linked("b/pull") == pull.id
            assert [(link.peer, link.credits) for link in push.links] == [(pull.id, 7)]
            await pull.wait_linked()
            pull.link_to("a/push").capacity = 9
            assert pull.link_to("a/push").capacity == 9
            await push.send(b"x")
            assert push.stats().sent == 1
            assert a.stats().sockets["push"].links == 1
            assert repr(push) == "<a3m PUSH a/push>"
            push.unlink("b/pull")
            await push.wait_unlinked("b/pull")
            await push.wait_unlinked()
            assert (push.links, push.pending) == ((), ())
            with pytest.raises(a3m.BadIdentifier):
                a.push("push")
            assert await push.close()
            a.push("push")

    shell.run(main)


class Reversing(a3m.PullSocket):
    """A pattern of one's own."""

    protocol = "REVERSING"
    compatible = frozenset({"PUSH", "REVERSING"})

    def try_receive(self) -> Any:
        message = super().try_receive()
        return message[::-1] if isinstance(message, bytes) else message

    def greeting(self) -> str:
        return f"I am {self.id}"


class PushingAnywhere(a3m.PushSocket):
    compatible = frozenset({"PULL", "REVERSING"})


@both
def test_patterns_of_ones_own(shell: Shell) -> None:
    async def main() -> None:
        async with shell.open_node("a") as a:
            a.register_pattern(Reversing)
            receiver, sender = a.socket("REVERSING", "r"), a.socket(PushingAnywhere, "s")
            assert receiver.pattern.greeting() == "I am a/r"
            sender.link("a/r")
            await sender.send(b"abc")
            assert await receiver.recv() == b"cba"
            with pytest.raises(a3m.NotSupported, match="no pattern 'SURVEY'"):
                a.socket("SURVEY", "x")

    shell.run(main)


# -- waiting ---------------------------------------------------------------------------------------------------------


@both
def test_timeouts(shell: Shell) -> None:
    async def main() -> None:
        async with shell.open_node("a") as a:
            push, pull = a.push("push"), a.pull("pull", capacity=2)
            for timeout in (0, 0.01):
                with pytest.raises(a3m.Timeout):
                    await pull.recv(timeout=timeout)
                with pytest.raises(a3m.Timeout):
                    await push.send(b"", timeout=timeout)
                with pytest.raises(a3m.Timeout):
                    await push.wait_linked(timeout=timeout)
            with pytest.raises(a3m.NoLinks):
                await push.send(b"", require_link=True)
            with pytest.raises(a3m.NoLinks):
                await pull.recv(require_link=True)
            push.link("a/pull")
            assert await push.send_many([b"1", b"2", b"3"], timeout=0.01) == 2
            with pytest.raises(a3m.Timeout, match="the message was not sent"):
                await push.send(b"4", timeout=0.01)
            assert await pull.recv_many(9, timeout=0) == [b"1", b"2"]
            with pytest.raises(a3m.Timeout):
                await pull.recv(timeout=0)
            with pytest.raises(a3m.Timeout):
                await push.wait_unlinked(timeout=0)
            assert a.stats().sockets["pull"].waiting == 0

    shell.run(main)


@both
def test_many_tasks_share_sockets(shell: Shell) -> None:
    tasks, each = 20, 50

    async def main() -> None:
        async with shell.open_node("a") as a, shell.open_node("b") as b:
            meet(a, b)
            push, pull = a.push("push"), b.pull("pull", capacity=5)
            push.link("b/pull")
            received: list[bytes] = []

            async def send(task: int) -> None:
                for number in range(each):
                    await push.send(b"%d/%d" % (task, number))

            async def receive() -> None:
                for _ in range(each):
                    received.append(await pull.recv())

            await shell.together(
                *(lambda task=task: send(task) for task in range(tasks)),
                *[receive] * tasks,
            )
            assert Counter(received) == Counter(b"%d/%d" % (task, n) for task in range(tasks) for n in range(each))
            assert a.stats().sockets["push"].waiting == b.stats().sockets["pull"].waiting == 0

    shell.run(main)


@both
def test_a_busy_task_lets_others_run(shell: Shell) -> None:
    async def main() -> int:
        async with shell.open_node("a") as a:
            pub, done, others = a.pub("pub"), False, 0

            async def publish() -> None:
                nonlocal done
                for _ in range(10 * BURST):
                    await pub.send("topic", b"to nobody, so it never waits")
                done = True

            async def other() -> None:
                nonlocal others
                while not done:
                    others += 1
                    await shell.turn()

            await shell.together(publish, other)
            return others

    assert shell.run(main) >= 10


@both
def test_iteration_ends_with_the_last_link(shell: Shell) -> None:
    async def main() -> None:
        async with shell.open_node("a") as a, shell.open_node("b") as b:
            meet(a, b)
            pull = b.pull("pull")
            received: list[bytes] = []

            async def send(tag: str) -> None:
                async with a.push(tag) as push:
                    push.link("b/pull")
                    for number in range(100):
                        await push.send(b"%s %d" % (tag.encode(), number))
                    if tag == "two":
                        while len(received) < 150:  # not before the other has begun
                            await shell.turn()

            async def receive() -> None:
                async for message in pull:
                    received.append(message)

            await shell.together(receive, lambda: send("one"), lambda: send("two"))
            assert sorted(received) == sorted(b"%s %d" % (tag, n) for tag in (b"one", b"two") for n in range(100))
            with pytest.raises(a3m.NotSupported):
                aiter(a.push("push"))

    shell.run(main)


@both
def test_closing_a_socket_ends_the_calls_that_wait(shell: Shell) -> None:
    async def main() -> None:
        async with shell.open_node("a") as a:
            pull, push, ends = a.pull("pull"), a.push("push"), []

            async def wait_for(call: Any) -> None:
                with pytest.raises(a3m.Closed):
                    await call
                ends.append(call)

            async def iterate() -> None:
                ends.append([message async for message in pull])

            async def close() -> None:
                while a.stats().sockets["pull"].waiting < 2 or a.stats().sockets["push"].waiting < 2:
                    await shell.turn()
                assert await pull.close()
                assert await push.close()
                assert pull.closed

            await shell.together(
                lambda: wait_for(pull.recv()),
                iterate,
                lambda: wait_for(push.send(b"")),
                lambda: wait_for(push.wait_linked()),
                close,
            )
            assert len(ends) == 4
            with pytest.raises(a3m.Closed):
                await pull.recv()

    shell.run(main)


@both
def test_events(shell: Shell) -> None:
    async def main() -> None:
        async with shell.open_node("a") as a:
            push, pull = a.push("push"), a.pull("pull")
            assert [event async for event in a.events(timeout=0)] == []
            assert [event async for event in a.events(timeout=0.01)] == []
            seen: list[tuple[str, str]] = []

            async def watch() -> None:
                async for event in a.events():
                    seen.append((event.kind, str(event.link)))

            async def act() -> None:
                push.link("a/pull")
                await push.wait_linked()
                await push.close()
                await pull.wait_unlinked()
                await a.close()

            # Cancelled watchers leave no trace, and take no event with them.
            assert await shell.cancelled(watch, lambda: bool(a._core.watchers))
            assert a._core.watchers == []
            await shell.together(watch, act)
            assert Counter(seen) == Counter(
                (kind, f"a/{tag}") for kind in ("linked", "unlinked") for tag in ("push", "pull")
            )

    shell.run(main)


# -- cancellation, one call at a time --------------------------------------------------------------------------------


@both
def test_a_cancelled_call_leaves_no_trace(shell: Shell) -> None:
    async def main() -> None:
        async with shell.open_node("a") as a:
            push, pull = a.push("push"), a.pull("pull", capacity=1)

            async def cancel(socket: Socket[Any], call: Any) -> None:
                assert await shell.cancelled(call, lambda: socket.stats().waiting == 1)
                assert socket.stats().waiting == 0

            await cancel(push, push.wait_linked)
            await cancel(push, lambda: push.send(b"cancelled, with no link"))
            push.link("a/pull")
            await cancel(pull, pull.recv)
            await push.send(b"sent")
            await cancel(push, lambda: push.send(b"cancelled, with no credit"))
            await cancel(push, push.wait_unlinked)
            assert await pull.recv() == b"sent"
            await push.send(b"sent too")
            await cancel(push, lambda: push.send_many([b"cancelled", b"cancelled"]))
            assert await pull.recv() == b"sent too"
            await cancel(pull, lambda: pull.recv_many(5))
            await cancel(pull, pull.__anext__)
            assert a.stats().sockets["push"].sent == a.stats().sockets["pull"].received == 2

    shell.run(main)


@both
def test_a_cancelled_close_is_a_quick_one(shell: Shell) -> None:
    async def main() -> None:
        async with shell.open_node("a", options=a3m.Options(close_timeout=1000)) as a:
            push = await link_with_the_dead(shell, a)
            assert await shell.cancelled(push.close, lambda: push.stats().waiting == 1)
            assert push.closed
            push = await link_with_the_dead(shell, a)
            assert not await push.close(timeout=0)
            await link_with_the_dead(shell, a)
            assert await shell.cancelled(a.close, lambda: a._core.closing)
            report = await a.close()
            assert a.close_now() is report
            with pytest.raises(a3m.Closed):
                a.push("late")

    shell.run(main)


# -- nodes -----------------------------------------------------------------------------------------------------------


@both
def test_closing_delivers_everything(shell: Shell) -> None:
    async def main() -> None:
        async with shell.open_node("b") as b:
            pull = b.pull("pull")
            async with shell.open_node("a", socket=lossy(0.2, seed=1)) as a:
                meet(a, b)
                push = a.push("push")
                push.link("b/pull")
                assert await push.send_many([b"%d" % number for number in range(500)]) == 500
                reports: list[Any] = []

                async def close() -> None:
                    reports.append(await a.close())

                await shell.together(close, close)
                assert reports[0].clean
                assert reports[0] is reports[1] is await a.close()
            assert [message async for message in pull] == [b"%d" % number for number in range(500)]

    shell.run(main)


@both
def test_what_could_not_be_delivered_is_reported(shell: Shell) -> None:
    async def main() -> None:
        async with shell.open_node("a") as a, AsyncExitStack() as stack:
            b = await stack.enter_async_context(shell.open_node("b"))
            meet(a, b)
            push, pull = a.push("push"), b.pull("pull")
            push.link(pull.id)
            await push.wait_linked()
            b._driver.stop()  # as if it had crashed
            stack.callback(b.close_now)
            assert await push.send_many([b"1", b"2"]) == 2
            report = await a.close(timeout=0.05)
            assert (report.clean, report.undelivered + report.unknown) == (False, 2)
            assert "b" in report.peers

    shell.run(main)


@both
def test_an_exception_closes_at_once_and_comes_out_as_it_is(shell: Shell) -> None:
    used: list[Any] = []

    async def fail() -> None:
        async with (
            shell.open_node("a", options=a3m.Options(close_timeout=1000)) as a,
            await link_with_the_dead(shell, a) as push,
        ):
            used.extend([a, push])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        shell.run(fail)
    node, socket = used
    assert socket.closed
    assert node._driver.udp.fileno() == -1


@both
def test_a_quick_close_sends_what_can_leave(shell: Shell) -> None:
    async def main() -> None:
        async with shell.open_node("b") as b, shell.open_node("a") as a:
            meet(a, b)
            push, pull = a.push("push"), b.pull("pull")
            push.link("b/pull")
            await pull.wait_linked()
            await push.send(b"on the way, so that what follows is left to the next turn, which does not come")
            a.close_now()
            assert not a._core.wants_to_send
            b.close_now()  # what it heard is up to the network

    shell.run(main)


@both
def test_what_joins_something_on_the_way_leaves_with_the_next_turn(shell: Shell) -> None:
    async def main() -> None:
        async with shell.open_node("a") as a, shell.open_node("b") as b:
            meet(a, b)
            push, pull = a.push("push"), b.pull("pull")
            push.link("b/pull")
            await push.wait_linked()
            b._driver.stop()  # nobody answers, so nothing but the alarm makes another turn
            await push.send(b"one")
            await push.send(b"two")
            for _ in range(10):
                await shell.turn()
            assert not a._core.wants_to_send
            a.close_now()
            b.close_now()
            assert pull.closed

    shell.run(main)


class Narrow(UdpSocket):
    """Takes one datagram at a time, and notices if one that it had no room for is not given to it again."""

    def __init__(self, bind: str) -> None:
        super().__init__(bind)
        self.refused: list[Any] = []
        self.times = 0

    def send(self, datagrams: Sequence[tuple[Address, bytes]]) -> int:
        assert list(datagrams[: len(self.refused)]) == self.refused
        sent = super().send(datagrams[: self.times % 2])
        self.times += 1
        self.refused = list(datagrams[sent:])
        return sent


@both
def test_a_full_kernel_loses_nothing(shell: Shell) -> None:
    async def main() -> None:
        async with shell.open_node("a", socket=Narrow) as a, shell.open_node("b") as b:
            meet(a, b)
            push, pull = a.push("push"), b.pull("pull")
            push.link("b/pull")
            message = bytes(10_000)
            await push.send_many([message] * 5)
            assert [await pull.recv() for _ in range(5)] == [message] * 5
            udp = a._driver.udp
            assert isinstance(udp, Narrow)
            assert (udp.times > 10, a._driver.errors) == (True, 0)

    shell.run(main)


@both
def test_wrong_arguments_open_nothing(shell: Shell) -> None:
    async def main() -> None:
        for error, arguments in (
            (a3m.BadIdentifier, {"id": "a/b"}),
            (TypeError, {"id": "a", "options": {}}),
            (a3m.NotSupported, {"id": "a", "store": "file"}),
            (a3m.BadAddress, {"id": "a", "bind": "nonsense"}),
        ):
            with pytest.raises(error):
                async with shell.open_node(**arguments):
                    pytest.fail("it opened")

    shell.run(main)


@both
def test_a_moved_node_goes_on(shell: Shell) -> None:
    async def main() -> None:
        async with shell.open_node("a") as a, shell.open_node("b") as b:
            meet(a, b)
            push, pull = a.push("push"), b.pull("pull", capacity=10)
            push.link("b/pull")
            numbers = [b"%d" % number for number in range(300)]

            async def send() -> None:
                for number in numbers:
                    if number in (b"100", b"200"):
                        before = a.address
                        await a.rebind("127.0.0.1:0")
                        assert a.address != before
                    await push.send(number)

            async def receive() -> None:
                assert [await pull.recv() for _ in numbers] == numbers

            await shell.together(send, receive)
            # One that has nothing to say tells others all the same where it is now, at once.
            back, home = b.push("back"), a.pull("home")
            back.link("a/home")
            for _ in range(5):
                await back.send(b"are you there?")
                assert await home.recv() == b"are you there?"
                sent = a.stats().transport.datagrams_sent
                await a.rebind("127.0.0.1:0")
                assert a.stats().transport.datagrams_sent > sent
            with pytest.raises(a3m.BadAddress):
                await a.rebind("nonsense")
            await a.close()
            with pytest.raises(a3m.Closed):
                await a.rebind("127.0.0.1:0")

    shell.run(main)


class Slow:
    """A discovery service that answers when it is told to."""

    def __init__(self) -> None:
        self.asked, self.answer = Event(), Event()
        self.address = ""

    def lookup(self, node_id: str, /) -> str | None:
        assert node_id == "b"
        self.asked.set()
        assert self.answer.wait(PATIENCE)
        return self.address


@both
def test_a_slow_discovery_service_holds_up_nobody(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    service = Slow()

    async def main() -> None:
        async with shell.open_node("a", discovery=service) as a, shell.open_node("b") as b:
            service.address = f"127.0.0.1:{b.address[1]}"
            located, told_in = a._core.located, set()

            def tell(*answer: Any) -> None:
                told_in.add(threading.current_thread())
                located(*answer)

            monkeypatch.setattr(a._core, "located", tell)
            push, pull = a.push("push"), b.pull("pull")
            push.link("b/pull")
            while not service.asked.is_set():
                await shell.turn()
            # While it thinks, the loop and the node go on.
            local = a.pull("local")
            other = a.push("other")
            other.link("a/local")
            await other.send(b"meanwhile")
            assert await local.recv() == b"meanwhile"
            service.answer.set()
            await push.send(b"found")
            assert await pull.recv() == b"found"
            assert told_in == {threading.current_thread()}

    with no_thread_left():
        shell.run(main)


@both
def test_an_answer_that_comes_after_the_end(shell: Shell, caplog: pytest.LogCaptureFixture) -> None:
    service = Slow()

    async def main() -> None:
        async with shell.open_node("a", discovery=service) as a:
            a.push("push").link("b/pull")
            while not service.asked.is_set():
                await shell.turn()
            await a.close(timeout=0)

    with no_thread_left():
        shell.run(main)
        service.address = "127.0.0.1:9"
        service.answer.set()
    assert not caplog.records


@both
def test_host_names_and_other_services(shell: Shell) -> None:
    async def main() -> None:
        async with shell.open_node("a") as a, shell.open_node("b") as b:
            push, pull = a.push("push"), b.pull("pull")
            with pytest.raises(a3m.BadAddress):
                a.register("b", "no port")
            with pytest.raises(a3m.BadAddress):
                a.register("b", ":1")
            a.register("b", f"localhost:{b.address[1]}")
            push.link("b/pull")
            await push.send(b"by name")
            assert await pull.recv() == b"by name"
            a.unregister("b")
            async with shell.open_node("c") as c:
                c.set_discovery(a3m.StaticDiscovery({"b": f"127.0.0.1:{b.address[1]}"}))
                late = c.push("late")
                late.link("b/pull")
                await late.send(b"by another service")
                assert await pull.recv() == b"by another service"

    with no_thread_left():
        shell.run(main)


@both
def test_a_host_name_to_bind_to(shell: Shell) -> None:
    async def main() -> None:
        async with shell.open_node("a", bind="localhost:0") as a:
            assert a.address[0] in ("127.0.0.1", "::1")
            assert repr(a).endswith(f"at {a.address[0]}:{a.address[1]}>")

    shell.run(main)


@both
def test_no_thread_helps(shell: Shell) -> None:
    async def main() -> None:
        before = threading.enumerate()
        async with shell.open_node("a") as a, shell.open_node("b") as b:
            meet(a, b)
            push, pull = a.push("push"), b.pull("pull")
            push.link("b/pull")
            await push.send(b"x")
            assert await pull.recv() == b"x"
            assert threading.enumerate() == before

    shell.run(main)


@both
def test_a_fault_of_ours_does_not_end_the_node(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with shell.open_node("a") as a, shell.open_node("b") as b:
            meet(a, b)
            faults = 3
            expire, receive_some = a._core.expire, a._core.receive_some

            def broken(real: Any) -> Any:
                def call(*arguments: Any) -> Any:
                    nonlocal faults
                    if faults:
                        faults -= 1
                        raise ZeroDivisionError
                    return real(*arguments)

                return call

            monkeypatch.setattr(a._core, "expire", broken(expire))
            push, pull = a.push("push"), b.pull("pull")
            push.link("b/pull")
            await push.send(b"x")
            assert (await pull.recv(), faults) == (b"x", 0)
            monkeypatch.setattr(a._core, "expire", expire)
            faults = 2
            monkeypatch.setattr(a._core, "receive_some", broken(receive_some))
            for _ in range(2000):
                await push.send(b"y")
                assert await pull.recv() == b"y"
                if not faults:
                    break
            assert a._driver.errors == 5

    shell.run(main)
