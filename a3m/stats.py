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
    """One socket. ``unknown`` messages were on the way to a peer that lost its memory."""

    sent: int
    received: int
    unknown: int
    links: int
    queued: int
    waiting: int


@frozen
class NodeStats(_Plain):
    """One node, and what is under it."""

    sockets: Mapping[str, SocketStats]
    unknown: int
    dropped: Mapping[str, int]
    transport: TransportStats
