"""What the transport did meanwhile: from the statistics of nodes, before and after."""

from __future__ import annotations

from typing import Any

import attrs
from attrs import frozen

import a3m


@frozen
class Transport:
    """Of the node that sends, about the peer it sends to. What it counts, it counts for all its peers."""

    datagrams: int = 0
    """Datagrams sent."""
    tokens: int = 0
    """Payloads of the transport: many small messages, or a part of a large one."""
    sent_again: int = 0
    """Of the tokens, those sent again because nobody said that they had arrived."""
    needless: int = 0
    """Of these, those that had arrived; the receiver saw them twice, and delivered them once."""
    rtt: float | None = None
    """Seconds, smoothed, as it was at the end."""
    datagram: int | None = None
    """Bytes that a datagram may have on this path."""
    window: int | None = None
    """Bytes that may be under way."""

    @property
    def lost(self) -> int:
        """Tokens that the network lost, as far as one can say."""
        return max(0, self.sent_again - self.needless)

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {**attrs.asdict(self), "lost": self.lost}


def counters(node: a3m.Node) -> dict[str, int]:
    """What a node has counted so far."""
    stats = node.stats().transport
    return {
        "datagrams": stats.datagrams_sent,
        "tokens": stats.tokens_sent,
        "sent_again": stats.retransmissions,
        "doubles": stats.duplicates,
    }


def since(before: dict[str, int], node: a3m.Node) -> dict[str, int]:
    """What it has counted meanwhile."""
    return {name: value - before[name] for name, value in counters(node).items()}


def path(node: a3m.Node, peer: str) -> dict[str, Any]:
    """The way to a peer, as it is now."""
    stats = node.stats().transport.peers.get(peer)
    if stats is None:
        return {}
    return {"rtt": stats.rtt, "datagram": stats.datagram_size, "window": stats.window}


def of_both(sender: dict[str, Any], receiver: dict[str, Any]) -> Transport:
    """From what the two nodes counted, and the path as the sender sees it."""
    return Transport(
        datagrams=sender["counted"]["datagrams"],
        tokens=sender["counted"]["tokens"],
        sent_again=sender["counted"]["sent_again"],
        needless=receiver["counted"]["doubles"],
        **sender["path"],
    )
