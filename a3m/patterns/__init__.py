"""The patterns, one file each; a new one is a subclass of :class:`a3m.Socket` in a file of its own."""

from a3m.patterns.dealerrouter import DealerSocket, Routed, RouterSocket
from a3m.patterns.pair import PairSocket
from a3m.patterns.pubsub import Published, PubSocket, Subscription, SubSocket, XPubSocket, XSubSocket
from a3m.patterns.pushpull import PullSocket, PushSocket
from a3m.patterns.reqrep import RepSocket, ReqSocket

__all__ = [
    "DealerSocket",
    "PairSocket",
    "PubSocket",
    "Published",
    "PullSocket",
    "PushSocket",
    "RepSocket",
    "ReqSocket",
    "Routed",
    "RouterSocket",
    "SubSocket",
    "Subscription",
    "XPubSocket",
    "XSubSocket",
]
