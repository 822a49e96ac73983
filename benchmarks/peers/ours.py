"""A3M itself, by its public interface and with its default options.

Variants: ``many`` for one call per batch; a number for the largest datagram; ``req`` for a REQ socket per outstanding
request where others have one DEALER.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import a3m
from benchmarks.peers.base import Peer, Receiver, Sender, Talker

_PATIENCE = 60.0  # seconds for links to be made


class A3m(Peer):
    """One node in each process."""

    def node(self, name: str) -> a3m.Node:
        """A node at this address."""
        limits = [int(variant) for variant in self.variants if variant.isdigit()]
        options = a3m.Options(max_datagram=limits[0]) if limits else None
        return a3m.Node(name, bind=f"{self.address}:0", options=options)

    def server(self) -> tuple[a3m.Node, tuple[str, int]]:
        """A node to be found, and where."""
        node = self.node("server")
        return node, (self.address, node.address[1])

    def client(self, address: tuple[str, int], name: str = "client") -> a3m.Node:
        """A node that knows the server."""
        node = self.node(name)
        node.register("server", f"{address[0]}:{address[1]}")
        return node

    def pull(self) -> Receiver:
        node, address = self.server()
        socket = node.pull("socket")
        return Receiver(address, socket.recv, socket.recv_many if "many" in self.variants else None)

    def push(self, address: Any) -> Sender:
        socket = self.client(address).push("socket")
        _link(socket)
        return Sender(socket.send, socket.send_many if "many" in self.variants else None)

    def reply(self) -> tuple[Any, Callable[[], None]]:
        node, address = self.server()
        socket = node.rep("socket")

        def serve() -> None:
            while True:
                socket.send(socket.recv())

        return address, serve

    def ask(self, address: Any, clients: int) -> list[Callable[[bytes], bytes]]:
        node = self.client(address)

        def make(number: int) -> Callable[[bytes], bytes]:
            socket = node.req(f"socket{number}")
            _link(socket)

            def ask(request: bytes) -> bytes:
                socket.send(request)
                reply: bytes = socket.recv()
                return reply

            return ask

        return [make(number) for number in range(clients)]

    def route(self) -> tuple[Any, Callable[[], None]]:
        if "req" in self.variants:
            return self.reply()
        node, address = self.server()
        socket = node.router("socket")

        def serve() -> None:
            while True:
                routed = socket.recv()
                socket.send(routed.payload, to=routed.route)

        return address, serve

    def deal(self, address: Any, outstanding: int) -> Talker:
        node = self.client(address)
        if "req" in self.variants:
            return _many_requesters(node, outstanding)
        socket = node.dealer("socket")
        _link(socket)
        return Talker(socket.send, socket.recv)

    def publish(self) -> tuple[Any, Callable[[bytes], Any]]:
        node, address = self.server()
        socket = node.pub("socket")

        def publish(message: bytes) -> int:
            return socket.send("topic", message)

        return address, publish

    def subscribe(self, address: Any, name: str) -> Callable[[], bytes]:
        socket = self.client(address, name).sub("socket")
        socket.subscribe("topic")
        _link(socket)

        def recv() -> bytes:
            payload: bytes = socket.recv().payload
            return payload

        return recv


def _link(socket: Any) -> None:
    socket.link("server/socket")
    socket.wait_linked(timeout=_PATIENCE)


def _many_requesters(node: a3m.Node, count: int) -> Talker:
    """A REQ socket for each outstanding request, all of them used by one thread."""
    poller = a3m.Poller()
    sockets = [node.req(f"socket{number}") for number in range(count)]
    for socket in sockets:
        _link(socket)
        poller.add(socket, a3m.POLLIN)
    ready: list[Any] = []

    def send(request: bytes) -> None:
        sockets[int.from_bytes(request[:4], "big")].send(request)

    def recv() -> bytes:
        while True:
            while not ready:
                ready.extend(socket for socket, _ in poller.wait())
            try:
                reply: bytes = ready.pop().recv(timeout=0)
            except a3m.Timeout:
                continue
            return reply

    return Talker(send, recv)
