"""What a scenario may ask of a library."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from typing import Any

from attrs import frozen


@frozen
class Receiver:
    """An end that receives, with functions of the library as they are."""

    address: Any
    """What the other end connects to."""
    recv: Callable[[], Any]
    recv_many: Callable[[int], Sequence[Any]] | None = None


@frozen
class Sender:
    """An end that sends."""

    send: Callable[[bytes], Any]
    send_many: Callable[[Sequence[bytes]], Any] | None = None


@frozen
class Talker:
    """An end that sends requests and receives replies, in any order."""

    send: Callable[[bytes], Any]
    recv: Callable[[], bytes]


class Peer:
    """A library. Methods that it has no equivalent for raise; a scenario names the libraries that it can use."""

    def __init__(self, address: str, variants: Sequence[str]) -> None:
        self.address = address
        self.variants = variants

    # -- one way ----------------------------------------------------------------------------------------------------

    def pull(self) -> Receiver:
        """The receiving end of a stream of messages."""
        raise NotImplementedError

    def push(self, address: Any) -> Sender:
        """The sending end."""
        raise NotImplementedError

    # -- requests ---------------------------------------------------------------------------------------------------

    def reply(self) -> tuple[Any, Callable[[], None]]:
        """A server of one request at a time: its address, and what to run for ever."""
        raise NotImplementedError

    def ask(self, address: Any, clients: int) -> list[Callable[[bytes], bytes]]:
        """For each client, thread by thread, what sends a request and returns its reply."""
        raise NotImplementedError

    def route(self) -> tuple[Any, Callable[[], None]]:
        """A server that takes requests as they come: its address, and what to run for ever."""
        raise NotImplementedError

    def deal(self, address: Any, outstanding: int) -> Talker:
        """A client with many requests at the same time. The first four bytes of each are its number, from 0."""
        raise NotImplementedError

    # -- publishing -------------------------------------------------------------------------------------------------

    def publish(self) -> tuple[Any, Callable[[bytes], Any]]:
        """The publishing end: its address, and what publishes."""
        raise NotImplementedError

    def subscribe(self, address: Any, name: str) -> Callable[[], bytes]:
        """A subscriber to everything."""
        raise NotImplementedError


def free_port(address: str) -> int:
    """A TCP port that nobody uses, for libraries that do not tell which one they took."""
    with socket.create_server((address, 0)) as server:
        port: int = server.getsockname()[1]
        return port
