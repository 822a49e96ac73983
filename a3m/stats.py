"""Statistics: plain numbers, taken together at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
from attrs import frozen

from exon.stats import NodeStats as TransportStats


class _Plain:
    def as_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        return attrs.asdict(self)  # type: ignore[arg-type]  # every subclass is an attrs class


@frozen
class SocketStats(_Plain):
    """One socket. ``unknown`` messages were on the way to a peer that lost its memory.

    >>> import a3m
    >>> with a3m.Node("home", bind="127.0.0.1:0") as node:
    ...     push, pull = node.push("jobs"), node.pull("worker")
    ...     push.link("home/worker")
    ...     push.send(b"wash up", timeout=5)
    ...     push.stats().sent, push.stats().links
    (1, 1)
    """

    sent: int
    received: int
    unknown: int
    links: int
    queued: int
    waiting: int


@frozen
class NodeStats(_Plain):
    """One node, and what is under it.

    >>> import a3m
    >>> with a3m.Node("home", bind="127.0.0.1:0") as node:
    ...     pull = node.pull("worker")
    ...     stats = node.stats()
    ...     stats.sockets["worker"].queued, stats.unknown, stats.transport.messages_delivered
    (0, 0, 0)
    """

    sockets: Mapping[str, SocketStats]
    unknown: int
    dropped: Mapping[str, int]
    transport: TransportStats
