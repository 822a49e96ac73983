"""What the tests of nodes and sockets share: nodes that know each other and are closed afterwards, and threads."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack
from threading import Event, Thread
from time import monotonic
from typing import Any, ParamSpec, TypeVar

import pytest

import a3m
from a3m.waitqueue import POLLOUT

P = ParamSpec("P")
T = TypeVar("T")

PATIENCE = 20.0  # seconds until a test that hangs fails; no test that passes waits for it


class Nodes(ExitStack):
    """Opens nodes that know each other, and closes them, at once, when the test is over."""

    def __init__(self) -> None:
        super().__init__()
        self._open: list[a3m.Node] = []

    def __call__(self, node_id: str, *, bind: str = "127.0.0.1:0", **arguments: Any) -> a3m.Node:
        node = a3m.Node(node_id, bind=bind, **arguments)
        self.callback(node.close, 0)
        for other in self._open:
            other.register(node_id, at(node))
            node.register(other.id, at(other))
        self._open.append(node)
        return node

    def pair(self) -> tuple[a3m.Node, a3m.Node]:
        return self("a"), self("b")

    def forget(self, node: a3m.Node) -> None:
        """Tell nodes opened later nothing about this one."""
        self._open.remove(node)


def at(node: a3m.Node) -> str:
    """Where a node is, as others write it."""
    host, port = node.address[:2]
    return f"{host}:{port}"


def linked(one: a3m.Socket, *others: a3m.Socket) -> None:
    """Link one socket with others, and wait until both sides of every link can be used."""
    for other in others:
        one.link(other.id)
    for other in others:
        one.wait_linked(other.id, timeout=PATIENCE)
        eventually(lambda other=other: one.id in peers(other))  # type: ignore[misc]


def peers(socket: a3m.Socket) -> list[a3m.SocketId]:
    return [link.peer for link in socket.links]


def in_background(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
    """Call in a thread of its own; the future has what came of it.

    Without a time-out: a call that nobody wakes would succeed when it looks again at its end.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            result = call(*args, **kwargs)
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)

    Thread(target=run, daemon=True).start()
    return future


def result(future: Future[T]) -> T:
    """What came of a call in the background."""
    return future.result(timeout=PATIENCE)


def eventually(condition: Callable[[], object]) -> None:
    """Return as soon as something has come true."""
    deadline = monotonic() + PATIENCE
    while not condition():
        assert monotonic() < deadline, "it never came true"
        Event().wait(0.001)


def waiting(socket: a3m.Socket, count: int = 1) -> None:
    """Return as soon as so many calls wait on a socket."""
    eventually(lambda: socket.stats().waiting >= count)


def fill(socket: a3m.Socket, message: Callable[[int], Any]) -> list[Any]:
    """Send until there is no room, to receivers that take nothing; what was accepted."""
    accepted: list[Any] = []
    while True:
        try:
            socket.send(message(len(accepted)), timeout=0)
        except a3m.Timeout:
            return accepted
        accepted.append(message(len(accepted)))


def take(socket: a3m.Socket, count: int) -> list[Any]:
    """So many messages."""
    return [socket.recv(timeout=PATIENCE) for _ in range(count)]


def nothing_left(socket: a3m.Socket) -> bool:
    """Whether there is nothing to receive now."""
    with pytest.raises(a3m.Timeout):
        socket.recv(timeout=0)
    return True


def can_send(socket: a3m.Socket) -> bool:
    return bool(socket.poll_events(None) & POLLOUT)


def crash(node: a3m.Node) -> None:
    """End it as a killed process ends: at once, without a word to anybody."""
    node._engine.stop()
    node._report = a3m.CloseReport(False, 0, 0, {})


def restarted(nodes: Nodes, node: a3m.Node, **arguments: Any) -> a3m.Node:
    """Another life of a node, at the same address, that knows the same others."""
    nodes.forget(node)
    return nodes(node.id, bind=at(node), **arguments)
