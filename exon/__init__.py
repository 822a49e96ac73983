"""Exon: messages between nodes over UDP, each delivered exactly once.

:class:`Endpoint` is the blocking interface, :mod:`exon.protocol` the same without I/O, :mod:`exon.simulation` a network
to test with.
"""

from exon.discovery import Discovery, StaticDiscovery
from exon.endpoint import Endpoint
from exon.errors import (
    AddressInUse,
    BadAddress,
    BadIdentifier,
    BadPayload,
    Closed,
    ExonError,
    MessageTooLarge,
    StoreDamaged,
    StoreError,
    StoreFailed,
    StoreFull,
    StoreLimit,
    StoreTruncated,
    Timeout,
)
from exon.events import DuplicateId, Event, PeerMoved, PeerRestarted, PeerUnreachable
from exon.options import Options
from exon.protocol import CloseReport
from exon.stats import NodeStats, PeerStats

__all__ = [
    "AddressInUse",
    "BadAddress",
    "BadIdentifier",
    "BadPayload",
    "CloseReport",
    "Closed",
    "Discovery",
    "DuplicateId",
    "Endpoint",
    "Event",
    "ExonError",
    "MessageTooLarge",
    "NodeStats",
    "Options",
    "PeerMoved",
    "PeerRestarted",
    "PeerStats",
    "PeerUnreachable",
    "StaticDiscovery",
    "StoreDamaged",
    "StoreError",
    "StoreFailed",
    "StoreFull",
    "StoreLimit",
    "StoreTruncated",
    "Timeout",
]
