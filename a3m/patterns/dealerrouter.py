"""DEALER and ROUTER: requests and replies without taking turns, for servers and proxies.

A DEALER sends to its links in turn and receives from them in turn. A ROUTER receives each message with a *route*, the
way back to where it came from, and sends along a route or to a socket by name. A route is opaque: it grows by one hop
at every ROUTER that a request passes, and shrinks as the reply goes back. A message to somebody there is no link with
raises :class:`~a3m.NoRoute`; nothing is ever dropped.

Order is an option, off by default: replies to different requests need not wait for each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from a3m.errors import BadIdentifier, NoRoute
from a3m.flow import Item
from a3m.ids import SocketId
from a3m.lanes import LANE
from a3m.link import Link
from a3m.link_machine import State
from a3m.payload import MOST_HOPS, Payload, check_size, from_body, routed, split
from a3m.socket import Socket
from a3m.socket_core import MESSAGE_COST, WOULD_BLOCK, SocketCore
from a3m.waiting import call
from a3m.waitqueue import POLLOUT

Route = tuple[str, ...]
_SHORT_HOP = 64  # characters; the numbers of a REQ are shorter
_MANY_LINKS = 64  # with more it costs too much to look at each


class Routed(NamedTuple):
    """A message and the way back to its sender.

    >>> import a3m
    >>> with a3m.Node("home", bind="127.0.0.1:0") as node:
    ...     dealer, router = node.dealer("clients"), node.router("server")
    ...     dealer.link("home/server")
    ...     dealer.send(b"question", timeout=5)
    ...     router.recv(timeout=5)
    Routed(route=('home/clients',), payload=b'question')
    """

    route: Route
    payload: Any


class DealerSocket(Socket):
    """Sends to one link after the other, receives from one after the other.

    >>> import a3m
    >>> with a3m.Node("home", bind="127.0.0.1:0") as node:
    ...     dealer, rep = node.dealer("clients"), node.rep("server")
    ...     dealer.link("home/server")
    ...     dealer.send_many([b"one", b"two"], timeout=5)  # without waiting for answers
    ...     for _ in range(2):
    ...         rep.send(rep.recv(timeout=5).upper())
    ...     sorted([dealer.recv(timeout=5), dealer.recv(timeout=5)])
    2
    [b'ONE', b'TWO']
    """

    protocol = "DEALER"
    compatible = frozenset({"REP", "ROUTER", "DEALER"})
    defaults: ClassVar[Mapping[str, Any]] = {"ordered": False}


class RouterSocket(Socket):
    """Receives with a route, sends along one.

    >>> import a3m
    >>> with a3m.Node("home", bind="127.0.0.1:0") as node:
    ...     req, router = node.req("client"), node.router("server")
    ...     req.link("home/server")
    ...     req.send(b"question", timeout=5)
    ...     question = router.recv(timeout=5)
    ...     router.send(b"answer to " + question.payload, to=question.route)
    ...     req.recv(timeout=5)
    b'answer to question'
    """

    protocol = "ROUTER"
    compatible = frozenset({"REQ", "DEALER", "ROUTER"})
    alike = False
    defaults: ClassVar[Mapping[str, Any]] = {"ordered": False}

    def __init__(self, *args: Any, **options: Any) -> None:
        """No links yet."""
        super().__init__(*args, **options)
        self._named: dict[str, Link] = {}  # links that messages came over or went over, by the names in routes
        self._openings = 0  # of the lane
        self._replies_pass = self.core.driver is not None and type(self) is RouterSocket

    def send(
        self,
        payload: Payload,
        *,
        to: str | SocketId | Sequence[str] = (),
        timeout: float | None = None,
        require_link: bool = False,
    ) -> None:
        """Send to a socket by name, or along the route that came with a message.

        Raises:
            NoRoute: There is no link with the socket it would have to go to; the message was not sent.
        """
        lane, openings = self._lane, self._openings
        if len(lane) < self._limit and type(payload) is bytes and len(payload) <= self._small:
            reply = self._as_reply(payload, to)
            if reply is not None:
                lane.append(reply)
                # If it was closed and opened again meanwhile, the link may be over.
                if (len(lane) <= self._limit and openings == self._openings) or not self._was_too_late(reply):
                    return
        self._send_item(self.prepare(payload, to=to), timeout, require_link)

    def _send_item(self, item: Item, timeout: float | None, require_link: bool) -> None:
        call(self, POLLOUT, lambda: self.try_send(item), timeout, require_link)

    # -- the lane of a ROUTER: see a3m.lanes. It may hold as many messages as every link has credits -----------------

    def _as_reply(self, payload: bytes, to: Any) -> tuple[Link, Item] | None:
        """A link and what to send over it, if that is clear at once, as it is for an answer to most questions."""
        if type(to) is not tuple or not 0 < len(to) <= 2 or type(to[-1]) is not str:
            return None
        link = self._named.get(to[-1])
        if link is None or link.state is not State.ESTABLISHED:
            return None
        if len(to) == 1:
            return link, payload
        way = to[0]
        return (link, [None, [way], payload]) if type(way) is str and len(way) <= _SHORT_HOP else None

    def settle(self) -> None:
        """Close the lane, and give what is in it to the links; what came too late its sender takes out again."""
        limit, self._limit = self._limit, 0
        if self._lane and limit:
            replies = self._lane[:limit]
            late = [reply for reply in replies if not reply[0].can_send]
            for link, item in replies:
                if link.can_send:
                    self.push(link, item)
            self._lane[: len(replies)] = late

    def open_lane(self) -> bool:
        """Let answers into the lane while something is on the way to all peers and there is room."""
        if not self._replies_pass or self._lane or self.closed or len(self._links) > _MANY_LINKS:
            return False
        flowing, room = self.core.transport.flowing, LANE // self._typical
        for link in self._links.values():
            if not link.can_send or not flowing(link.peer.node):
                return False
            assert link.outgoing is not None
            room = min(room, link.outgoing.credits)
        self._openings += 1
        self._limit = room if self._links else 0
        return self._limit > 0

    def can_send_now(self) -> bool:
        """Whether there is credit that no message in the lane needs."""
        self.settle()
        return SocketCore.can_send_now(self)

    def link_down(self, link: Link, reason: str) -> None:
        """A link is gone."""
        self._named.pop(link.name, None)
        super().link_down(link, reason)

    # -- everything else ---------------------------------------------------------------------------------------------

    def prepare(self, payload: Payload, *, to: str | SocketId | Sequence[str] = ()) -> Item:
        """The message with the hops it has to go, the next one last."""
        hops: Any = (str(SocketId.parse(to)),) if isinstance(to, (str, SocketId)) else to
        if not isinstance(hops, (tuple, list, Sequence)) or not hops or not all(isinstance(hop, str) for hop in hops):
            raise BadIdentifier(
                "say to whom: send(payload, to='node/tag'), or to the route of a message that was received"
            )
        if len(hops) > MOST_HOPS + 1:  # the last one does not travel
            raise BadIdentifier(f"a route has at most {MOST_HOPS} hops after the first, this one has {len(hops) - 1}")
        return check_size(routed(hops, super().prepare(payload)), self.core.transport.options.max_message)

    def next_hop(self, item: Item) -> tuple[Link, Item]:
        """The link that the message goes over, and the message for whoever is there."""
        route, body = split(item)
        link = self._named.get(route[-1])
        if link is None or not link.established:
            peer = SocketId.parse(route[-1])
            link = self._links.get(peer)
            if link is None or not link.established:
                raise NoRoute(f"{self.id} has no link with {peer}; the message was not sent")
            self._named[link.name] = link
        return link, routed(route[:-1], body)

    def try_send(self, item: Item) -> Any:
        """Send to the last hop of the route, with the rest of it."""
        self.settle()
        link, rest = self.next_hop(item)
        if not link.can_send:
            return WOULD_BLOCK
        self.push(link, rest)
        if self._replies_pass:
            if type(rest) is bytes:
                self._typical = len(rest) + MESSAGE_COST
            if self.open_lane():
                self.core.lanes[self] = None
        return None

    def try_take(self) -> Any:
        """The next message with its sender added to the route."""
        taken = self.take()
        if taken is WOULD_BLOCK:
            return WOULD_BLOCK
        link, item = taken
        route, body = split(item)
        return routed((*route, link.name), body)

    def present(self, link: Link, item: Item) -> Routed:
        """The message as :class:`Routed`."""
        name = link.name
        if name not in self._named and link.established:
            self._named[name] = link
        if type(item) is bytes:
            return Routed((name,), item)
        route, body = split(item)
        return Routed((*route, name), from_body(body))
