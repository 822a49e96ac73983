"""A thread that waits for sockets in a poller drives their node, as one in ``recv()`` does."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from threading import Lock
from types import SimpleNamespace
from typing import Any

import pytest

import a3m
from a3m import POLLIN, Poller
from a3m.sleeper import Sleeper
from tests.a3m.nodes import PATIENCE, Nodes, eventually, in_background, linked, result
from tests.a3m.test_poller import Box

Wait = Callable[..., list[tuple[Any, int]]]


@pytest.fixture(params=["poller", "poll"])
def wait(request: pytest.FixtureRequest) -> Iterator[Wait]:
    """Waits for objects, in a poller or without."""
    if request.param == "poll":
        yield lambda *objects: a3m.poll([(one, POLLIN) for one in objects], PATIENCE)
        return
    with Poller() as poller:

        def wait(*objects: Any) -> list[tuple[Any, int]]:
            for one in objects:
                poller.add(one, POLLIN)
            return poller.wait(PATIENCE)

        yield wait


def driven(node: a3m.Node) -> bool:
    return node._engine._leader is not None


def test_messages_come_to_the_thread_that_waits(nodes: Nodes, wait: Wait) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in")
    linked(push, pull)
    waiting = in_background(wait, pull)
    eventually(lambda: driven(b))
    push.send(b"x", timeout=PATIENCE)
    assert result(waiting) == [(pull, POLLIN)]
    assert not driven(b)
    assert pull.recv(timeout=0) == b"x"


def test_what_belongs_to_no_node_wakes_it_as_well(nodes: Nodes, wait: Wait) -> None:
    a, box = nodes("a"), Box()
    waiting = in_background(wait, box, a.pull("in"))
    eventually(lambda: driven(a))
    box.begin(POLLIN)
    assert result(waiting) == [(box, POLLIN)]
    assert not driven(a)


def test_another_node_wakes_it_as_well(nodes: Nodes, wait: Wait) -> None:
    a, b = nodes.pair()
    push, pull, other = a.push("out"), b.pull("in"), a.pull("other")
    linked(push, pull)
    waiting = in_background(wait, other, pull)
    eventually(lambda: driven(a))
    push.send(b"x", timeout=PATIENCE)
    assert result(waiting) == [(pull, POLLIN)]


def test_a_node_that_is_closed_meanwhile(nodes: Nodes, wait: Wait) -> None:
    a = nodes("a")
    pull = a.pull("in")
    waiting = in_background(wait, pull)
    eventually(lambda: driven(a))
    a.close(timeout=PATIENCE)
    assert result(waiting) == [(pull, a3m.POLLHUP)]


def test_a_poller_drives_the_node_of_what_is_left_in_it(nodes: Nodes) -> None:
    a, b = nodes.pair()
    one, other = a.pull("in"), b.pull("in")
    with Poller() as poller:
        poller.add(Box(), POLLIN)
        poller.add(one, POLLIN)
        poller.add(other, POLLIN)
        poller.remove(one)
        waiting = in_background(poller.wait, PATIENCE)
        eventually(lambda: driven(b))
        poller.remove(other)
        assert poller._core is None
        other.close(timeout=PATIENCE)
        box = Box(held=POLLIN)
        poller.add(box, POLLIN)
        assert result(waiting) == [(box, POLLIN)]


@pytest.mark.parametrize("call", ["poller.wait()", "a3m.poll([(pull, a3m.POLLIN)])"])
def test_an_interrupt_ends_it(call: str) -> None:
    script = f"""
    import os, signal, threading
    import a3m
    from tests.children import main_thread_sleeps

    signal.signal(signal.SIGINT, signal.default_int_handler)
    with a3m.Node("a", bind="127.0.0.1:0") as node, a3m.Poller() as poller:
        pull = node.pull("in")
        poller.add(pull, a3m.POLLIN)

        def press():
            while node._engine._leader is None or not main_thread_sleeps():
                pass
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=press).start()
        try:
            {call}
        except KeyboardInterrupt:
            print("interrupted", node._engine._leader, poller.stats().waiting, pull.stats().waiting)
    """
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ran.stdout, ran.returncode) == ("interrupted None 0 1\n", 0), ran.stderr


class Turning:
    """A driver whose turns bring what the thread that drives waits for."""

    def __init__(self, sleeper: Sleeper) -> None:
        self.calls: list[str] = []
        self._sleeper = sleeper

    def begin(self) -> bool:
        return True

    def turn(self, deadline: float | None) -> bool:
        self._sleeper.wake()
        self.calls.append("turn")
        return True

    def end(self) -> None:
        self.calls.append("end")

    def wake(self) -> None:
        self.calls.append("wake")

    def interrupt(self) -> None:
        self.calls.append("interrupt")


def test_what_a_turn_brings_keeps_it_from_sleeping() -> None:
    sleeper = Sleeper()
    driver = Turning(sleeper)
    core = SimpleNamespace(lock=Lock(), driver=driver)
    assert sleeper.sleep(None, core)  # type: ignore[arg-type]
    assert driver.calls == ["wake", "turn", "end"]
