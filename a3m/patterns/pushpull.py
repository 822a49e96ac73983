"""PUSH and PULL: work handed out, each message to one receiver.

PUSH sends to its links in turn, skipping those without room; PULL receives from its links in turn. First in, first out
on each link. A PUSH without a link, or whose receivers are all full, waits.
"""

from __future__ import annotations

from a3m.socket import Socket


class PushSocket(Socket):
    """Sends, to one link after the other."""

    protocol = "PUSH"
    compatible = frozenset({"PULL"})
    receives = False


class PullSocket(Socket):
    """Receives, from one link after the other."""

    protocol = "PULL"
    compatible = frozenset({"PUSH"})
    sends = False
