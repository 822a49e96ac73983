"""What happens to links and peers, for whoever wants to know."""

from __future__ import annotations

from attrs import frozen

from a3m.ids import SocketId


@frozen
class Event:
    """Something happened.

    ``kind`` is one of ``linked unlinked refused moved restarted unreachable duplicate-id dropped``.
    ``peer`` is the other node, ``link`` the other socket where one is concerned, ``at`` a monotonic time.

    >>> import a3m
    >>> with a3m.Node("home", bind="127.0.0.1:0") as node:
    ...     push, pull = node.push("jobs"), node.pull("worker")
    ...     push.link("home/worker")
    ...     event = next(node.events(timeout=5))
    ...     event.kind, event.peer, event.link.tag in ("jobs", "worker")
    ('linked', 'home', True)
    """

    kind: str
    peer: str
    link: SocketId | None
    detail: str
    at: float
