"""What a proxy does between two waits, whoever waits: two sockets joined, in both directions.

There are proxies of XSUB and XPUB, of ROUTER and DEALER, and of PULL and PUSH. Whoever is on one side needs to know the
proxy only, not those on the other side, and those may come and go.

A message is looked at first and taken only once its target has accepted it, all under the locks of both sockets. So a
proxy holds nothing: messages wait where there are credits for them, a slow receiver behind the proxy slows the senders
before it, and a proxy that ends leaves no message half-way. Where the target of a message depends on the message
(replies, publications), a link whose first message has to wait lets the other links go first.

What may still be lost is counted: a reply to somebody who has gone (:class:`~a3m.NoRoute`), a message that is too large
for the node it should leave from, and a copy for a ``capture`` socket that has no room, since looking in must not slow
down what is looked at.

Rejected: to wait with a poller. It reports that *some* message could be sent, which is true as long as any requester
has room, and so it would return at once, over and over, while the one that the reply is for has none. A proxy sits in
the wait queues of its sockets itself, and tries again whenever something happened to one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from attrs import define, frozen

from a3m.errors import A3MError, BadIdentifier, Closed, MessageTooLarge, NoRoute, NotSupported
from a3m.flow import Item
from a3m.patterns import RouterSocket, XPubSocket, XSubSocket
from a3m.payload import MOST_HOPS, OVERHEAD, check_size, routed, size_of, split
from a3m.signals import Held, Uninterrupted
from a3m.socket import Socket
from a3m.socket_core import WOULD_BLOCK
from a3m.waitqueue import EVENTS, POLLLINK, WaitEntry

_WAYS = {("XSUB", "XPUB"), ("ROUTER", "DEALER"), ("PULL", "PUSH")}  # the way that requests and publications go
_ONE_WAY = "PULL"
_CAPTURES = ("PUSH", "PAIR", "PUB")
_BATCH = 256  # messages forwarded before others may have the locks


@frozen
class ProxyReport:
    """What a proxy did.

    >>> import a3m
    >>> with a3m.Node("home", bind="127.0.0.1:0") as node:
    ...     pull, push = node.pull("in"), node.push("out")
    ...     closed = push.close()
    ...     a3m.proxy(pull, push)
    ProxyReport(forwarded=0, returned=0, unroutable=0, captured=0, missed=0)
    """

    forwarded: int
    """Messages from PULL, ROUTER or XSUB to the other side."""
    returned: int
    """Replies, or changes of subscriptions, on the way back."""
    unroutable: int
    """Messages that could go nowhere, each an event ``dropped`` of the node: nobody is there any more, or too large."""
    captured: int
    """Copies that the capture socket took."""
    missed: int
    """Copies that it had no room for."""


class Joint:
    """Two sockets that a proxy joins, and what it has forwarded between them."""

    def __init__(self, front: Socket, back: Socket, capture: Socket | None) -> None:
        """Check that they go together."""
        self._lanes = _lanes(front, back)
        self._sockets = front, back
        publications = "XSUB" in (front.protocol, back.protocol)
        self._copies = None if capture is None else _Capture(_checked_capture(capture), publications)

    @contextmanager
    def watched(self, changed: Callable[[], None]) -> Iterator[None]:
        """Call ``changed`` whenever :meth:`forward` may have something to do again."""

        def wake(_events: int) -> bool:
            changed()
            return True

        entry = WaitEntry(EVENTS | POLLLINK, wake)
        try:
            for socket in self._sockets:
                socket.poll_events(entry)
            yield
        finally:
            for socket in self._sockets:
                socket.unpoll(entry)

    def forward(self) -> bool:
        """Forward what can be, a batch at the most in each direction; whether there was anything."""
        progress = [lane.forward(self._copies) for lane in self._lanes]  # all of them have a turn
        return any(progress)

    @property
    def over(self) -> bool:
        """Whether a socket is closed and everything that had come to it is forwarded."""
        return any(socket.closed for socket in self._sockets) and all(lane.ended for lane in self._lanes)

    def report(self) -> ProxyReport:
        """The work so far in numbers."""
        forward, *way_back = self._lanes
        return ProxyReport(
            forwarded=forward.moved,
            returned=sum(lane.moved for lane in way_back),
            unroutable=sum(lane.unroutable for lane in self._lanes),
            captured=0 if self._copies is None else self._copies.taken,
            missed=0 if self._copies is None else self._copies.missed,
        )


def _lanes(front: Socket, back: Socket) -> list[_Lane]:
    """The directions in which messages go, that of requests first."""
    for candidate in (front, back):
        if not isinstance(candidate, Socket):
            what = f"{type(candidate).__module__}.{type(candidate).__name__}"
            raise NotSupported(f"a proxy joins two sockets of a3m.Node, {what} is none; for tasks see a3m.trio.proxy")
    if (back.protocol, front.protocol) in _WAYS:
        front, back = back, front
    elif (front.protocol, back.protocol) not in _WAYS:
        raise NotSupported(
            f"a proxy cannot join {front.protocol} and {back.protocol}; it joins XSUB with XPUB, ROUTER with DEALER, "
            "and PULL with PUSH"
        )
    if front.protocol == _ONE_WAY:
        return [_Lane(front, back)]
    if isinstance(back, XPubSocket) and isinstance(front, XSubSocket):
        return [_Lane(front, back), _Subscriptions(back, front)]
    return [_Lane(front, back), _Lane(back, front)]


def _checked_capture(capture: object) -> Socket:
    if isinstance(capture, Socket) and capture.protocol in _CAPTURES:
        return capture
    what = capture.protocol if isinstance(capture, Socket) else f"{type(capture).__module__}.{type(capture).__name__}"
    raise NotSupported(f"a proxy copies messages to a PUSH, PAIR or PUB socket, not to {what}")


@define(eq=False)
class _Lane:
    """Messages from one socket to another."""

    source: Socket
    target: Socket
    moved: int = 0
    unroutable: int = 0

    def forward(self, copies: _Capture | None) -> bool:
        """Forward what can be, a batch at the most; whether there was anything."""
        moved: list[Item] = []
        tries = 0
        with _locks(self.source, self.target):
            self.source.unborrow()
            while tries < _BATCH and self._move(moved):
                tries += 1
            self.source.core.work()
            self.target.core.work()
        if copies is not None and moved:
            copies.take(moved)
        return tries > 0

    @property
    def ended(self) -> bool:
        """Whether nothing will go this way any more, because a socket is closed."""
        with Held(self.source.core.lock):
            dry = self.source.try_closed() is None and not self.source._readable
        return dry or self.target.closed

    def _move(self, moved: list[Item]) -> bool:
        """Forward one message, or find that it has nowhere to go; False if there is none that can go now."""
        readable = self.source._readable
        if self.target.closed:
            return False
        # Elsewhere one link is as good as the other, and if one message has to wait they all do.
        choices = len(readable) if isinstance(self.target, (RouterSocket, XPubSocket)) else min(1, len(readable))
        for _ in range(choices):
            item = self._first()
            try:
                self._check(item)
                if self.target.try_send(item) is not WOULD_BLOCK:
                    self.source.take()
                    self.moved += 1
                    moved.append(item)
                    return True
            except (NoRoute, BadIdentifier, MessageTooLarge) as error:
                self._give_up(error)
                return True
            readable.rotate(-1)
        return False

    def _first(self) -> Item:
        """The message that :meth:`~a3m.Socket.take` would take, with the way back that a ROUTER adds."""
        link = self.source._readable[0]
        assert link.incoming is not None
        item = link.incoming.queue[0]
        if isinstance(self.source, RouterSocket):
            route, body = split(item)
            return routed((*route, str(link.peer)), body)
        if isinstance(self.target, RouterSocket) and not split(item)[0]:
            return routed(("",), item)  # somebody answers who was not asked: as good as an unknown route
        return item

    def _check(self, item: Item) -> None:
        """Raise if the message cannot travel on: every hop makes it larger, and another node may allow less."""
        hops = len(split(item)[0])
        if hops > MOST_HOPS:
            raise BadIdentifier(f"its route has {hops} hops, {MOST_HOPS} are allowed; do proxies form a circle?")
        check_size(item, self.target.core.transport.options.max_message)

    def _give_up(self, error: A3MError) -> None:
        """The message can go nowhere; it must not stop the others."""
        link, _ = self.source.take()
        self.unroutable += 1
        self.source.core.tell("dropped", link.peer.node, link.peer, f"what came to {self.source.id}: {error}")


@define(eq=False)
class _Subscriptions(_Lane):
    """Subscriptions from an XPUB to an XSUB; they need no credit, so none ever waits."""

    def forward(self, copies: _Capture | None) -> bool:  # noqa: ARG002  # they are no messages
        """Forward all there are."""
        assert isinstance(self.target, XSubSocket)
        before = self.moved
        while not self.target.closed:
            with Uninterrupted():
                with self.source.core.lock:
                    news = self.source.try_receive()
                if news is WOULD_BLOCK:
                    break
                with suppress(BadIdentifier, Closed):  # not text after all; or closed just now, with nobody to tell
                    self.target.send(news)
                self.moved += 1
        return self.moved > before

    @property
    def ended(self) -> bool:
        """Whether a socket is closed."""
        return self.target.closed or self.source.closed


@define(eq=False)
class _Capture:
    """Copies for somebody who looks in."""

    socket: Socket
    with_topic: bool  # whether the messages are publications
    taken: int = 0
    missed: int = 0

    def take(self, items: list[Item]) -> None:
        """Send copies, as far as there is room."""
        with Held(self.socket.core.lock):
            for item in items:
                if self.socket.closed or not self._has_taken(split(item)[1]):
                    self.missed += 1
                else:
                    self.taken += 1
            self.socket.core.work()

    def _has_taken(self, body: Item) -> bool:
        if isinstance(self.socket, XPubSocket) and not self.with_topic:
            body = "", body
        elif self.with_topic and not isinstance(self.socket, XPubSocket):
            topic, body = body
            body = [topic.encode(), body] if type(body) is bytes else [topic.encode(), *body]
        fits = size_of(body) <= self.socket.core.transport.options.max_message - OVERHEAD
        return fits and self.socket.try_send(body) is not WOULD_BLOCK


@contextmanager
def _locks(first: Socket, second: Socket) -> Iterator[Any]:
    """Both nodes' locks, always in the same order, or two proxies could wait for each other."""
    with Uninterrupted(), ExitStack() as held:
        for lock in sorted({first.core.lock, second.core.lock}, key=id):
            held.enter_context(lock)
        yield
