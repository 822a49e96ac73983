"""What the tests of the blocking layer share: endpoints that are closed afterwards, and threads that answer."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import ExitStack
from threading import Event, Thread
from time import monotonic
from typing import Any, ParamSpec, TypeVar

from exon import Endpoint, Options, Timeout
from exon.addresses import format_address

P = ParamSpec("P")
T = TypeVar("T")

PATIENCE = 20.0  # seconds until a test that hangs fails; no test that passes waits for it


class Opener(ExitStack):
    """Opens endpoints and closes them, at once, when the test is over."""

    def __call__(self, node_id: str, *, bind: str = "127.0.0.1:0", **arguments: Any) -> Endpoint:
        endpoint = Endpoint(node_id, bind=bind, **arguments)
        self.callback(endpoint.close, 0)
        return endpoint

    def pair(self, **options: Any) -> tuple[Endpoint, Endpoint]:
        """Two endpoints that know each other."""
        a, b = self("a", options=Options(**options)), self("b", options=Options(**options))
        a.register("b", at(b))
        b.register("a", at(a))
        return a, b

    def silent(self) -> str:
        """An address where nobody answers."""
        bound = self.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        bound.bind(("127.0.0.1", 0))
        return format_address(bound.getsockname())


def at(endpoint: Endpoint) -> str:
    """Where an endpoint is, as others write it."""
    return format_address(endpoint.address)


def in_background(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
    """Call in a thread of its own; the future has what came of it."""
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


def eventually(condition: Callable[[], object]) -> None:
    """Return as soon as something has come true."""
    deadline = monotonic() + PATIENCE
    while not condition():
        assert monotonic() < deadline, "it never came true"
        Event().wait(0.001)


def fill(sender: Endpoint, peer: str, message: Callable[[int], bytes]) -> list[bytes]:
    """Send until there is no room any more, for a receiver that takes nothing; what was accepted."""
    accepted: list[bytes] = []
    while True:
        try:
            sender.send(peer, message(len(accepted)), timeout=0.3)
        except Timeout:
            return accepted
        accepted.append(message(len(accepted)))


def send_all(sender: Endpoint, peer: str, messages: Iterable[bytes]) -> None:
    """One after the other, each as soon as there is room."""
    for message in messages:
        sender.send(peer, message, timeout=PATIENCE)


def take(receiver: Endpoint, count: int) -> list[bytes]:
    """So many messages."""
    return [receiver.recv(timeout=PATIENCE)[1] for _ in range(count)]


def crash(endpoint: Endpoint) -> None:
    """End it as a killed process ends: at once, without a word to anybody."""
    endpoint._finish()
