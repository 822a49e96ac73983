"""Where the sockets come from that are measured: A3M, and pyzmq to compare with.

pyzmq is used over TCP on loopback and with its default options, apart from a time-out that ends a thread whose peer is
gone. It has no call for many messages, so it always has one call for each.
"""

from __future__ import annotations

import importlib
from itertools import count
from typing import Any, Protocol

import a3m
from a3m.perf.spec import A3M, Failed

SERVER = "a3m-perf"  # every server's node id: clients know an address and nothing else
CONTROL = "control"
STALLED = 30.0  # seconds in which nothing gets on before a measurement is given up
SLOWEST = 600.0  # seconds for what is queued to arrive; that it stalls is noticed before


class Library(Protocol):
    """Sockets for the two sides of a measurement, by pattern: push, pull, req or rep."""

    def serve(self, pattern: str) -> tuple[Any, str]:
        """A socket on the server's side, and where clients find it."""

    def reach(self, pattern: str, where: str, timeout: float) -> Any:
        """A socket that is linked with one on the server's side."""

    def drain(self, socket: Any) -> list[bytes]:
        """What a receiver finds after the end; returns when the sender has finished."""

    def finish(self, socket: Any) -> bool:
        """Close it when everything has arrived; whether it has. Called by the thread that used it."""

    def abandon(self, socket: Any) -> None:
        """Make the thread that waits for it fail. Called by another thread."""


class OfA3M:
    """Sockets of a node."""

    def __init__(self, node: a3m.Node) -> None:
        """Tags are numbered."""
        self._node = node
        self._numbers = count(1)

    def serve(self, pattern: str) -> tuple[a3m.Socket, str]:
        """A socket with a tag of its own."""
        socket = self._node.socket(pattern.upper(), f"{pattern}-{next(self._numbers)}")
        return socket, socket.id.tag

    def reach(self, pattern: str, where: str, timeout: float) -> a3m.Socket:
        """A socket with a link."""
        socket: a3m.Socket = self._node.socket(pattern.upper(), f"{pattern}-{next(self._numbers)}")
        socket.link(f"{SERVER}/{where}")
        socket.wait_linked(timeout=timeout)
        return socket

    def drain(self, socket: a3m.Socket) -> list[bytes]:
        """A link ends after everything sent over it has come, and so does this."""
        late = []
        try:
            while True:
                late.append(socket.recv(require_link=True))
        except (a3m.NoLinks, a3m.Closed):
            return late

    def finish(self, socket: a3m.Socket) -> bool:
        """Everything has arrived when the links have ended in good order."""
        if isinstance(socket, a3m.ReqSocket):
            socket.cancel()  # nobody answers the end
        return socket.close(timeout=SLOWEST)

    def abandon(self, socket: a3m.Socket) -> None:
        """Sockets of A3M can be closed by any thread."""
        socket.close(timeout=0)


class OfPyzmq:
    """Sockets of pyzmq; only on loopback, and without any of A3M below them."""

    def __init__(self) -> None:
        """Only where it is installed."""
        self._zmq: Any = _pyzmq()
        self._context = self._zmq.Context.instance()

    def _socket(self, pattern: str) -> Any:
        socket = self._context.socket(getattr(self._zmq, pattern.upper()))
        socket.sndtimeo = socket.rcvtimeo = socket.linger = int(1000 * STALLED)
        return socket

    def serve(self, pattern: str) -> tuple[Any, str]:
        """Bound to any free port."""
        socket = self._socket(pattern)
        return socket, f"tcp://127.0.0.1:{socket.bind_to_random_port('tcp://127.0.0.1')}"

    def reach(self, pattern: str, where: str, timeout: float) -> Any:  # noqa: ARG002 - it connects in the background
        """Connected, or about to be."""
        socket = self._socket(pattern)
        socket.connect(where)
        return socket

    def drain(self, socket: Any) -> list[bytes]:  # noqa: ARG002
        """It cannot say when a sender has finished."""
        return []

    def finish(self, socket: Any) -> bool:
        """It goes on sending in the background, and does not say whether it could."""
        socket.close()
        return True

    def abandon(self, socket: Any) -> None:
        """Other threads must not touch it; its time-out ends the wait."""


def _pyzmq() -> Any:
    try:
        return importlib.import_module("zmq")  # not a dependency
    except ImportError:
        raise Failed("pyzmq is not installed here; pip install pyzmq, or leave --compare out") from None


def check_library(name: str) -> None:
    """Raise :class:`Failed` if it cannot be measured here."""
    if name != A3M:
        _pyzmq()
