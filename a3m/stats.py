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
class LinkStats(_Plain):
    """One link, whether it is there, being made or unmade, or over. Numbers begin with the link.

    ``as_dict()`` gives plain data, as for all statistics.

    >>> import a3m
    >>> with a3m.Node("home", bind="127.0.0.1:0") as node:
    ...     push, pull = node.push("jobs"), node.pull("worker", capacity=10)
    ...     push.link("home/worker")
    ...     push.send(b"wash up", timeout=5)
    ...     link = push.stats().by_peer["home/worker"]
    ...     link.state, link.sent, link.credits
    ('established', 1, 9)
    """

    peer: str
    """The other socket, as ``"node/tag"``."""
    state: str
    """How far it is, in the words of :attr:`a3m.Socket.pending`."""
    since: float | None
    """When it was established, as a monotonic time; None before."""
    capacity: int
    """Messages that may wait here."""
    credits: int
    """Messages that may be sent now. Below 0 if the peer took away credits that were in use."""
    queued: int
    """Messages that came and were not taken yet."""
    unsent: int
    """Messages that were accepted and have not left yet; of a link that is over, those that never left."""
    sent: int
    """Messages that were accepted, ever."""
    received: int
    """Messages that came, ever."""
    unsettled: int
    """Messages that left and were not taken, as far as the peer said so; it does a batch at a time."""
    unknown: int
    """Of a link that is over: messages of which nobody knows whether they arrived."""


@frozen
class SocketStats(_Plain):
    """One socket; ``as_dict()`` gives plain data.

    ``sent`` messages were accepted, ``received`` ones were taken by the application, ``queued`` ones came and were not
    taken yet. ``unknown`` messages may have been lost with links that ended otherwise than by agreement. ``waiting``
    calls and pollers wait. ``links`` is the number of links that are established; ``by_peer`` has a :class:`LinkStats`
    for each of them, and for those that are being made or unmade.

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
    by_peer: Mapping[str, LinkStats]


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
