"""Nodes, sockets and pollers in the child of a fork(): they are the parent's, with everything that waits in them."""

from __future__ import annotations

import select
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from threading import Event, Lock, Thread
from typing import Any

import pytest

import a3m
from a3m import nesting
from tests.a3m.nodes import PATIENCE, Nodes, eventually, linked, take
from tests.a3m.shells import Shell, both
from tests.children import in_child, refused

# A fork while threads run is what is tested; newer Pythons warn of it.
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")

THREE = [b"1", b"2", b"3"]


def closed(call: Callable[[], object]) -> bool:
    return refused(call, a3m.Closed)


@contextmanager
def held(lock: Lock) -> Iterator[None]:
    """Have another thread hold a lock."""
    taken, over = Event(), Event()

    def hold() -> None:
        with lock:
            taken.set()
            over.wait()

    thread = Thread(target=hold)
    thread.start()
    taken.wait()
    try:
        yield
    finally:
        over.set()
        thread.join()


# -- threads ---------------------------------------------------------------------------------------------------------


def test_a_child_cannot_use_its_parents_node(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in")
    linked(push, pull)
    assert in_child(lambda: closed(lambda: push.send(b"from the child"))) == 0
    assert in_child(lambda: closed(lambda: a.push("other"))) == 0
    assert in_child(lambda: not a.close(timeout=60).clean) == 0
    push.send(b"from the parent")
    assert take(pull, 1) == [b"from the parent"]


@pytest.mark.parametrize("held_by_another", [True, False])
def test_a_child_may_have_a_node_of_its_own(nodes: Nodes, held_by_another: bool) -> None:
    a = nodes("a")
    pull = a.pull("in")
    address = f"127.0.0.1:{a.address[1]}"

    def talk() -> bool:
        with a3m.Node("child", bind="127.0.0.1:0") as child:
            child.register("a", address)
            push = child.push("out")
            push.link("a/in")
            push.send(b"hello", timeout=PATIENCE)
            return child.close(timeout=PATIENCE).clean

    other = nodes("b")
    with held(other._core.lock if held_by_another else Lock()):
        assert in_child(talk) == 0
    assert take(pull, 1) == [b"hello"]


def test_what_waits_in_a_socket_is_the_parents(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in")
    linked(push, pull)
    handle = pull.link_to(push.id)
    push.send_many(THREE)
    eventually(lambda: pull.stats().queued == 3)
    for call in (
        lambda: pull.recv(timeout=PATIENCE),
        lambda: pull.recv_many(10, timeout=PATIENCE),
        lambda: pull.recv_parts(timeout=0),
    ):
        assert in_child(lambda call=call: closed(call)) == 0  # type: ignore[misc]
    assert in_child(lambda: list(pull) == [] and pull.try_receive() is a3m.WOULD_BLOCK) == 0
    assert in_child(lambda: a3m.poll([(pull, a3m.POLLIN)], timeout=PATIENCE) == [(pull, a3m.POLLHUP)]) == 0
    assert in_child(lambda: handle.poll_events(None) == a3m.POLLHUP and pull.links == ()) == 0
    assert in_child(lambda: not list(a.events(timeout=0)) and pull.stats().queued == 0) == 0
    assert take(pull, 3) == THREE


def test_the_rest_of_a_batch_is_the_parents(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in")
    linked(push, pull)
    push.send_many(THREE)
    eventually(lambda: pull.stats().queued == 3)
    assert take(pull, 1) == [b"1"]
    assert pull._batch
    assert in_child(lambda: closed(lambda: pull.recv(timeout=PATIENCE))) == 0
    assert take(pull, 2) == [b"2", b"3"]


def test_what_a_closed_socket_has_is_the_parents(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, pull, late = a.push("out"), b.pull("in"), b.pull("late")
    linked(push, pull)
    push.send_many(THREE)
    eventually(lambda: pull.stats().queued == 3)
    assert pull.close(timeout=PATIENCE)
    linked(push, late)
    push.send(b"late")
    eventually(lambda: late.stats().queued == 1)
    report = b.close(timeout=PATIENCE)
    for socket in (pull, late):
        assert in_child(lambda socket=socket: closed(lambda: socket.recv(timeout=PATIENCE))) == 0  # type: ignore[misc]
    assert in_child(lambda: b.close() == report) == 0
    assert take(pull, 3) == THREE
    assert take(late, 1) == [b"late"]


def test_an_answer_is_the_parents(nodes: Nodes) -> None:
    a, b = nodes.pair()
    req, rep = a.req("ask"), b.rep("answer")
    linked(req, rep)
    req.send(b"question")
    rep.send(rep.recv(timeout=PATIENCE))
    eventually(lambda: req.poll_events(None) & a3m.POLLIN)
    assert in_child(lambda: closed(lambda: req.recv(timeout=PATIENCE))) == 0
    assert take(req, 1) == [b"question"]


# -- tasks -----------------------------------------------------------------------------------------------------------


def driven(call: Coroutine[Any, Any, Any]) -> Any:
    """What a coroutine returns that has nothing to wait for but a turn of the loop."""
    for _ in range(10):
        try:
            call.send(None)
        except StopIteration as stop:
            return stop.value
    raise AssertionError("it waits")


@both
def test_a_child_cannot_use_its_parents_node_for_tasks(shell: Shell) -> None:
    async def main() -> None:
        async with shell.open_node("a") as a, shell.open_node("b") as b:
            a.register("b", f"127.0.0.1:{b.address[1]}")
            push, pull = a.push("out"), b.pull("in")
            push.link(pull.id)
            await push.send(b"before")
            assert await pull.recv() == b"before"
            assert in_child(lambda: closed(lambda: driven(push.send(b"from the child"))) and push.closed) == 0
            assert in_child(lambda: closed(lambda: a.push("other"))) == 0
            assert in_child(lambda: closed(lambda: a.register("c", "127.0.0.1:1"))) == 0
            assert in_child(lambda: not driven(a.close(timeout=60)).clean and not a.close_now().clean) == 0
            assert in_child(lambda: driven(push.close(timeout=60)) is not None) == 0
            await push.send(b"from the parent")
            assert await pull.recv() == b"from the parent"
            assert (await a.close()).clean

    shell.run(main)


@both
def test_what_waits_in_a_socket_for_tasks_is_the_parents(shell: Shell) -> None:
    async def main() -> None:
        async with shell.open_node("a") as a:
            push, pull = a.push("out"), a.pull("in")
            push.link(pull.id)
            for message in THREE:
                await push.send(message)
            while pull.stats().queued < 3:
                await shell.turn()
            assert in_child(lambda: closed(lambda: driven(pull.recv()))) == 0
            assert in_child(lambda: closed(lambda: driven(pull.recv_many(3)))) == 0
            assert in_child(lambda: driven(a.next_event(0)) is None) == 0
            await pull.close()
            assert in_child(lambda: closed(lambda: driven(pull.recv()))) == 0
            assert [await pull.recv() for _ in THREE] == THREE

    shell.run(main)


@both
def test_a_child_of_a_loop_may_run_one_of_its_own(shell: Shell) -> None:
    async def hello(address: str) -> bool:
        async with shell.open_node("child") as child:
            child.register("a", address)
            push = child.push("out")
            push.link("a/in")
            await push.send(b"hello")
            return (await child.close()).clean

    async def main() -> None:
        async with shell.open_node("a") as a:
            pull = a.pull("in")
            address = f"127.0.0.1:{a.address[1]}"
            # A loop cannot be run in another one, in the child either: so fork in a thread that runs none.
            assert await shell.in_thread(lambda: in_child(lambda: shell.run(lambda: hello(address)))) == 0
            assert await pull.recv() == b"hello"

    shell.run(main)


# -- pollers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["poller", "ready list", "places", "none"])
def test_a_poller_that_another_thread_uses_can_be_closed_in_the_child(nodes: Nodes, which: str) -> None:
    pull = nodes("a").pull("in")
    with a3m.Poller() as poller, a3m.Poller() as inner:
        poller.add(pull, a3m.POLLIN)
        poller.add(inner, a3m.POLLIN)
        locks = {"poller": poller._mutex, "ready list": poller._ready._lock, "places": nesting._guard}

        def use() -> bool:
            assert refused(lambda: poller.wait(timeout=PATIENCE), a3m.PollError)
            assert refused(lambda: poller.add(pull, a3m.POLLIN), a3m.PollError)
            poller.close()
            with a3m.Poller() as outer, a3m.Poller() as another:
                outer.add(another, a3m.POLLIN)
                return poller.stats().registered == 0

        with held(locks.get(which, Lock())):
            assert in_child(use) == 0
        assert poller.stats().registered == 2


def test_a_child_that_closes_a_poller_does_not_disturb_that_of_its_parent(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in")
    with a3m.Poller() as poller:
        poller.add(pull, a3m.POLLIN)
        descriptor = poller.fileno()

        def close() -> bool:
            poller.close()
            pull.close(timeout=0)
            b.close(timeout=0)
            return True

        assert in_child(close) == 0
        assert select.select([descriptor], [], [], 0) == ([], [], [])
        linked(push, pull)
        push.send(b"x")
        assert select.select([descriptor], [], [], PATIENCE)[0] == [descriptor]
        assert poller.wait(timeout=PATIENCE) == [(pull, a3m.POLLIN)]
