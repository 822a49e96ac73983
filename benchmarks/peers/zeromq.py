"""pyzmq over TCP, with its default options: high-water marks of 1000 messages at either end."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from benchmarks.peers.base import Peer, Receiver, Sender, Talker


class Zmq(Peer):
    """One context in each process."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._zmq: Any = importlib.import_module("zmq")  # from the extra "bench", which type checking does without
        self._context = self._zmq.Context()

    def _bound(self, kind: int) -> tuple[Any, str]:
        socket = self._context.socket(kind)
        port = socket.bind_to_random_port(f"tcp://{self.address}")
        return socket, f"tcp://{self.address}:{port}"

    def _connected(self, kind: int, address: str) -> Any:
        socket = self._context.socket(kind)
        socket.connect(address)
        return socket

    def pull(self) -> Receiver:
        socket, address = self._bound(self._zmq.PULL)
        return Receiver(address, socket.recv)

    def push(self, address: Any) -> Sender:
        return Sender(self._connected(self._zmq.PUSH, address).send)

    def reply(self) -> tuple[Any, Callable[[], None]]:
        socket, address = self._bound(self._zmq.REP)

        def serve() -> None:
            while True:
                socket.send(socket.recv())

        return address, serve

    def ask(self, address: Any, clients: int) -> list[Callable[[bytes], bytes]]:
        def make() -> Callable[[bytes], bytes]:
            socket = self._connected(self._zmq.REQ, address)

            def ask(request: bytes) -> bytes:
                socket.send(request)
                reply: bytes = socket.recv()
                return reply

            return ask

        return [make() for _ in range(clients)]

    def route(self) -> tuple[Any, Callable[[], None]]:
        socket, address = self._bound(self._zmq.ROUTER)

        def serve() -> None:
            while True:
                socket.send_multipart(socket.recv_multipart())

        return address, serve

    def deal(self, address: Any, outstanding: int) -> Talker:  # noqa: ARG002
        socket = self._connected(self._zmq.DEALER, address)
        return Talker(socket.send, socket.recv)

    def publish(self) -> tuple[Any, Callable[[bytes], Any]]:
        socket, address = self._bound(self._zmq.PUB)
        return address, socket.send

    def subscribe(self, address: Any, name: str) -> Callable[[], bytes]:  # noqa: ARG002
        socket = self._connected(self._zmq.SUB, address)
        socket.subscribe(b"")
        recv: Callable[[], bytes] = socket.recv
        return recv
