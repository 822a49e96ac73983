"""PAIR: exactly two sockets that talk to each other. First in, first out in each direction.

A third one that wants to link is put off until the place is free.
"""

from __future__ import annotations

from typing import Any, ClassVar

from attrs import Attribute, define, field

from a3m.options import SocketOptions
from a3m.socket import Socket


def _one(_: object, __: Attribute[Any], value: object) -> None:
    if type(value) is not int or value != 1:
        raise ValueError(f"a PAIR socket has one link, so max_links is 1, not {value!r}")


@define(kw_only=True)
class PairOptions(SocketOptions):
    """Options of a socket with one link."""

    max_links: int | None = field(default=1, validator=_one)
    """One."""


class PairSocket(Socket):
    """Has one link at a time.

    >>> import a3m
    >>> with a3m.Node("home", bind="127.0.0.1:0") as node:
    ...     here, there = node.pair("here"), node.pair("there")
    ...     here.link("home/there")
    ...     here.send(b"ping", timeout=5)
    ...     there.recv(timeout=5)
    ...     there.send(b"pong", timeout=5)
    ...     here.recv(timeout=5)
    b'ping'
    b'pong'
    """

    protocol = "PAIR"
    compatible = frozenset({"PAIR"})
    options_type: ClassVar[type[SocketOptions]] = PairOptions
