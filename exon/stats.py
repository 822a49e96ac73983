"""What a node counts. Plain numbers, taken together at one moment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import attrs
from attrs import Factory, define, frozen

from exon.addresses import Address


@define
class Counters:
    """Counted while running; :class:`NodeStats` is the picture of it that users get."""

    datagrams_sent: int = 0
    datagrams_received: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    messages_sent: int = 0
    messages_delivered: int = 0
    messages_unknown: int = 0
    tokens_sent: int = 0
    retransmissions: int = 0
    duplicates: int = 0
    moves: int = 0
    evictions: int = 0
    dropped: Counter[str] = Factory(Counter)


@frozen
class PeerStats:
    """One peer, as the node sees it."""

    address: Address | None
    rtt: float
    datagram_size: int
    window: int
    in_flight: int
    pending_messages: int
    pending_bytes: int
    buffered_bytes: int

    def as_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        return attrs.asdict(self)


@frozen
class NodeStats:
    """A node at one moment. ``dropped`` counts refused datagrams and frames by reason."""

    datagrams_sent: int
    datagrams_received: int
    bytes_sent: int
    bytes_received: int
    messages_sent: int
    messages_delivered: int
    messages_unknown: int
    tokens_sent: int
    retransmissions: int
    duplicates: int
    moves: int
    evictions: int
    dropped: Mapping[str, int]
    send_records: int
    receive_records: int
    buffered_bytes: int
    clock: int
    peers: Mapping[str, PeerStats]

    def as_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        return attrs.asdict(self)
