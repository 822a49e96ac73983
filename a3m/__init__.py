"""Message sockets over Exon, an exactly-once datagram transport."""

from a3m.errors import (
    A3MError,
    BadIdentifier,
    BadPayload,
    Closed,
    DeliveryUnknown,
    JournalFull,
    LinkClosed,
    LinkRefused,
    MessageTooLarge,
    NoLinks,
    NoRoute,
    NotSupported,
    PollError,
    StateError,
    Timeout,
)
from a3m.events import Event
from a3m.ids import SocketId
from a3m.journal import Batch, Entry, Follower, Journal, JournalReader
from a3m.link import Link, LinkInfo
from a3m.messages import Reply
from a3m.node import CloseReport, Node
from a3m.options import SocketOptions
from a3m.patterns import (
    DealerSocket,
    PairSocket,
    Published,
    PubSocket,
    PullSocket,
    PushSocket,
    RepSocket,
    ReqSocket,
    Routed,
    RouterSocket,
    Subscription,
    SubSocket,
    XPubSocket,
    XSubSocket,
)
from a3m.poll_once import poll
from a3m.pollable import POLLET, POLLEXCLUSIVE, POLLONESHOT, Pollable
from a3m.poller import Poller, PollerStats
from a3m.proxy import ProxyReport, proxy
from a3m.socket import LinkHandle, Socket
from a3m.socket_core import WOULD_BLOCK
from a3m.stats import LinkStats, NodeStats, SocketStats
from a3m.waitqueue import POLLERR, POLLHUP, POLLIN, POLLOUT
from exon import (
    AddressInUse,
    BadAddress,
    Discovery,
    Options,
    StaticDiscovery,
    StoreDamaged,
    StoreError,
    StoreFailed,
    StoreFull,
    StoreTruncated,
)

__version__ = "0.1.0.dev0"

PUSH, PULL, REQ, REP = "PUSH", "PULL", "REQ", "REP"
DEALER, ROUTER, PAIR = "DEALER", "ROUTER", "PAIR"
PUB, SUB, XPUB, XSUB = "PUB", "SUB", "XPUB", "XSUB"

__all__ = [
    "DEALER",
    "PAIR",
    "POLLERR",
    "POLLET",
    "POLLEXCLUSIVE",
    "POLLHUP",
    "POLLIN",
    "POLLONESHOT",
    "POLLOUT",
    "PUB",
    "PULL",
    "PUSH",
    "REP",
    "REQ",
    "ROUTER",
    "SUB",
    "WOULD_BLOCK",
    "XPUB",
    "XSUB",
    "A3MError",
    "AddressInUse",
    "BadAddress",
    "BadIdentifier",
    "BadPayload",
    "Batch",
    "CloseReport",
    "Closed",
    "DealerSocket",
    "DeliveryUnknown",
    "Discovery",
    "Entry",
    "Event",
    "Follower",
    "Journal",
    "JournalFull",
    "JournalReader",
    "Link",
    "LinkClosed",
    "LinkHandle",
    "LinkInfo",
    "LinkRefused",
    "LinkStats",
    "MessageTooLarge",
    "NoLinks",
    "NoRoute",
    "Node",
    "NodeStats",
    "NotSupported",
    "Options",
    "PairSocket",
    "PollError",
    "Pollable",
    "Poller",
    "PollerStats",
    "ProxyReport",
    "PubSocket",
    "Published",
    "PullSocket",
    "PushSocket",
    "RepSocket",
    "Reply",
    "ReqSocket",
    "Routed",
    "RouterSocket",
    "Socket",
    "SocketId",
    "SocketOptions",
    "SocketStats",
    "StateError",
    "StaticDiscovery",
    "StoreDamaged",
    "StoreError",
    "StoreFailed",
    "StoreFull",
    "StoreTruncated",
    "SubSocket",
    "Subscription",
    "Timeout",
    "XPubSocket",
    "XSubSocket",
    "poll",
    "proxy",
]
