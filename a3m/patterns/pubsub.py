"""PUB and SUB, XPUB and XSUB: each message to everybody who wants its topic, and nobody misses one.

Subscriptions are prefixes of topics, kept by the publisher in a trie. A message goes to all matching subscribers or, as
long as one of them has no room, to none: the slowest sets the pace. A credit is reserved at every one of them before
anything is sent. One copy for each subscriber, however many of its prefixes match. First in, first out on each link.

A publisher without a matching subscriber sends nothing and says so (0). A subscription takes effect when it arrives:
what was published before is not sent. XPUB receives the subscriptions that change what it needs, XSUB sends them on:
a proxy of the two forwards what somebody behind it wants, and nothing else.

All of it is bounded. A subscriber may have 100,000 prefixes of 16 MiB in all; a link that brings more is ended by force
and counted. News of a prefix that nobody received yet are taken back when the prefix is what it was before. Likewise at
the subscriber: while a publisher does not take what it is told, changes are gathered, and those that undo each other
are forgotten. It is told the difference in the end, so it may never hear of a subscription that was short.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import attrs
from attrs import define

from a3m.errors import BadIdentifier, BadPayload, MessageTooLarge, NotSupported
from a3m.flow import Item
from a3m.ids import SocketId
from a3m.lanes import LANE
from a3m.link import Link
from a3m.messages import FIRST_CONTROL, Malformed
from a3m.payload import OVERHEAD, Payload, check_size, size_of
from a3m.publications import TOPIC, largest, unfold
from a3m.signals import Held
from a3m.socket import Socket
from a3m.socket_core import MESSAGE_COST, WOULD_BLOCK
from a3m.trie import SubscriptionTrie
from a3m.waiting import call
from a3m.waitqueue import POLLIN, POLLOUT

SUBSCRIBE = FIRST_CONTROL  # [add, [prefix, ...]]
MOST_PREFIXES = 100_000  # of one subscriber
MOST_PREFIX_BYTES = 16 * 1024 * 1024  # of one subscriber, all together
_MOST_TOPIC = 64 * 1024
_BATCH_BYTES = 32 * 1024  # prefixes that travel in one message; a longer one travels alone
_PREFIX = 5  # bytes that a prefix takes in a message besides its own, at the most
_KNOWN = 4096  # topics of which a publisher remembers who wants them
_KNOWN_TOPIC = 256  # characters that one of them has at the most


class _Fields(NamedTuple):
    topic: str
    payload: Any


class _Made(type):
    """Makes :class:`Published` of a topic and a payload.

    Its constructor could do that, too, but then every one that is made goes through it, which costs twice as much.
    """

    def __call__(cls, topic: str, payload: Any) -> Any:
        return _published((topic, payload))


class Published(tuple[str, Any], metaclass=_Made):
    """A message and its topic.

    >>> import a3m
    >>> with a3m.Node("home", bind="127.0.0.1:0") as node:
    ...     pub, sub = node.pub("weather"), node.sub("reader")
    ...     sub.subscribe("lis")
    ...     sub.link("home/weather")
    ...     while not pub.send("lisbon", b"sunny"):  # until the subscription has arrived
    ...         pass
    ...     sub.recv(timeout=5)
    Published(topic='lisbon', payload=b'sunny')
    """

    __slots__ = ()
    __match_args__ = ("topic", "payload")
    topic: str = _Fields.topic
    payload: Any = _Fields.payload

    if TYPE_CHECKING:

        def __new__(cls, topic: str, payload: Any) -> Self:
            """Whatever they are."""

    def __repr__(self) -> str:
        """Both by name."""
        return f"{type(self).__name__}(topic={self[0]!r}, payload={self[1]!r})"


# Of a pair, past _Made.
_published: Callable[[tuple[str, Any]], Published] = type.__call__.__get__(Published)


class Subscription(NamedTuple):
    """Somebody wants, or no longer wants, topics with these prefixes.

    >>> import a3m
    >>> with a3m.Node("home", bind="127.0.0.1:0") as node:
    ...     xpub, sub = node.xpub("weather"), node.sub("reader")
    ...     sub.subscribe("lis")
    ...     sub.link("home/weather")
    ...     news = xpub.recv(timeout=5)
    ...     news.topics, news.subscribe, str(news.peer)
    (('lis',), True, 'home/reader')
    """

    topics: tuple[str, ...]
    subscribe: bool
    peer: SocketId | None = None


def topic_bytes(topic: str) -> bytes:
    """A topic as it is matched."""
    if not isinstance(topic, str):
        raise BadIdentifier(f"a topic is text (str), not {type(topic).__name__}")
    try:
        encoded = topic.encode()
    except UnicodeEncodeError:
        raise BadIdentifier(f"topic {topic[:40]!r} cannot be written as UTF-8") from None
    if len(encoded) > _MOST_TOPIC:
        raise BadIdentifier(f"a topic has at most {_MOST_TOPIC} bytes of UTF-8, this one has {len(encoded)}")
    return encoded


@define
class _Extent:
    """How much one subscriber wants."""

    prefixes: int = 0
    size: int = 0

    def change(self, prefix: bytes, add: bool) -> None:
        self.prefixes += 1 if add else -1
        self.size += len(prefix) if add else -len(prefix)

    @property
    def too_large(self) -> bool:
        return self.prefixes > MOST_PREFIXES or self.size > MOST_PREFIX_BYTES


@define
class _Untold:
    """What one publisher does not know yet: whether each of these prefixes is wanted, the oldest change first."""

    changes: dict[bytes, bool]
    told: _Extent  # what it knows

    def note(self, prefix: bytes, add: bool) -> None:
        # Changes of a prefix alternate, so one that is still here is undone by this one.
        if self.changes.pop(prefix, None) is None:
            self.changes[prefix] = add

    def take(self, most: int) -> tuple[bool, list[bytes]]:
        """Changes of one kind, of about ``most`` bytes, at least one of them."""
        add, batch = self._first(most)
        if add and self._after(add, batch).too_large:
            # An addition that was made room for by a removal that is undone, or the other way round.
            self.changes = dict(sorted(self.changes.items(), key=lambda change: change[1]))
            add, batch = self._first(most)
        self.told = self._after(add, batch)
        for prefix in batch:
            del self.changes[prefix]
        return add, batch

    def _first(self, most: int) -> tuple[bool, list[bytes]]:
        kind = next(iter(self.changes.values()))
        batch: list[bytes] = []
        size = 0
        for prefix, add in self.changes.items():
            if batch and (add != kind or size + len(prefix) > most):
                break
            batch.append(prefix)
            size += len(prefix) + _PREFIX
        return kind, batch

    def _after(self, add: bool, batch: Iterable[bytes]) -> _Extent:
        extent = attrs.evolve(self.told)
        for prefix in batch:
            extent.change(prefix, add)
        return extent


class _News(NamedTuple):
    add: bool
    peer: SocketId
    group: int  # what came together is received together


class XPubSocket(Socket):
    """Publishes, and receives subscriptions.

    >>> import a3m
    >>> with a3m.Node("home", bind="127.0.0.1:0") as node:
    ...     xpub, sub = node.xpub("weather"), node.sub("reader")
    ...     sub.subscribe("lisbon")
    ...     sub.link("home/weather")
    ...     xpub.recv(timeout=5).topics
    ...     xpub.send("lisbon", b"sunny"), xpub.send("porto", b"rain")  # to how many
    ...     sub.recv(timeout=5).payload
    ('lisbon',)
    (1, 0)
    b'sunny'
    """

    protocol = "XPUB"
    compatible = frozenset({"SUB", "XSUB"})
    alike = False

    def __init__(self, *args: Any, **options: Any) -> None:
        """Nobody has subscribed yet."""
        super().__init__(*args, **options)
        self._subscriptions: SubscriptionTrie[Link] = SubscriptionTrie()
        self._extents: defaultdict[Link, _Extent] = defaultdict(_Extent)
        self._news: OrderedDict[bytes, _News] = OrderedDict()  # changes that nobody has received yet
        self._groups = count()
        self._audiences: dict[str, list[Link]] = {}  # who wants a topic, until subscriptions change
        # What the lane takes: topics, with how many links want them. Every one of these links could send it all.
        self._reach: dict[str, int] = {}
        self._reached: set[Link] = set()
        # A pattern of somebody's own sees every message.
        self._lane_serves = self.core.driver is not None and type(self).__module__.startswith("a3m.")

    def send(self, topic: str, payload: Payload, *, timeout: float | None = None, require_link: bool = False) -> int:  # type: ignore[override]
        """Publish; how many subscribers it goes to. Waits while one of them has no room."""
        lane = self._lane
        if len(lane) < self._limit and type(topic) is str and type(payload) is bytes and len(payload) <= self._small:
            reached = self._reach.get(topic)
            if reached:
                item = topic, payload
                lane.append(item)
                if len(lane) <= self._limit or not self._was_too_late(item):
                    return reached
            elif reached is not None:
                return 0
        return self._publish_or_wait(topic, payload, timeout, require_link)

    def _publish_or_wait(self, topic: str, payload: Payload, timeout: float | None, require_link: bool) -> int:
        item = self.prepare(topic, payload)
        reached: int = call(self, POLLOUT, lambda: self.try_send(item), timeout, require_link)
        return reached

    def prepare(self, topic: str, payload: Payload) -> Item:  # type: ignore[override]
        """Topic and payload as one message."""
        body = super().prepare(payload)
        topic_bytes(topic)  # or it is none
        return check_size((topic, body), self.core.transport.options.max_message)

    def send_many(self, *_: Any, **__: Any) -> int:
        """Each message has a topic of its own, so there is no such call."""
        raise NotSupported("publish with send(topic, payload), one message at a time")

    def try_send(self, item: Item) -> Any:
        """Send to all subscribers, or to none."""
        self.settle()
        if self._lane:
            return WOULD_BLOCK
        topic = item[0]
        links = self._audience(topic)
        for link in links:
            if not link.can_send:
                return WOULD_BLOCK
        for link in links:
            self.push(link, item)
        if self._lane_serves and topic in self._audiences:
            self._reach[topic] = len(links)
            self._reached.update(links)
            if self.open_lane():
                self.core.lanes[self] = None
        return len(links)

    def _audience(self, topic: str) -> list[Link]:
        """Who wants a topic."""
        links = self._audiences.get(topic)
        if links is None:
            links = self._subscriptions.match(topic.encode())
            if len(topic) <= _KNOWN_TOPIC:
                if len(self._audiences) >= _KNOWN:
                    self._forget_audiences()
                self._audiences[topic] = links
        for link in links:
            if not link.established:
                return [link for link in links if link.established]
        return links

    def _forget_audiences(self) -> None:
        """Subscriptions change."""
        self._audiences.clear()
        self._close_lane()

    # -- many at a time: see a3m.lanes -------------------------------------------------------------------------------

    def settle(self) -> None:
        """Close the lane, and give what is in it to the links."""
        self._limit = 0
        lane = self._lane
        if lane:
            self._typical = size_of(lane[-1]) + MESSAGE_COST
            del lane[: self._push_publications(lane[:])]

    def _push_publications(self, items: list[Item]) -> int:
        """Send to all who want them, as many as all of these have room for; how many."""
        audiences = {topic: self._audience(topic) for topic in {*map(TOPIC, items)}}
        wishes: dict[Link, set[str]] = {}
        for topic, links in audiences.items():
            for link in links:
                wishes.setdefault(link, set()).add(topic)
        room = min((link.outgoing.credits for link in wishes if link.outgoing is not None), default=len(items))
        if room < len(items):  # only if threads were too late, who will find out
            del items[max(0, room) :]
        if not items:
            return 0
        for link, topics in wishes.items():
            share = items if len(topics) == len(audiences) else [item for item in items if item[0] in topics]
            if share and link.outgoing is not None:
                link.outgoing.push_many(share)
                self._sent += len(share)
                self.core.data_waits(self, link, len(share) * self._typical)
        return len(items)

    def open_lane(self) -> bool:
        """Let messages into the lane for which all who want them have room; whether it is of use now."""
        if self._lane or self.closed or not self._reach:
            return bool(self._lane)
        room = LANE // self._typical
        flowing = self.core.transport.flowing
        for link in self._reached:
            # A link on which nothing is on the way could have a message now, and nobody would ask for one.
            if link.outgoing is None or not link.can_send or not flowing(link.peer.node):
                self._close_lane()
                return False
            room = min(room, link.outgoing.credits)
        self._limit = room
        return True

    def _close_lane(self) -> None:
        """Have every topic looked at again."""
        self._limit = 0
        self._reach.clear()
        self._reached.clear()

    def withdraw(self, message: Any) -> bool:
        """A message got into a lane that was full, or being closed; whether it had to be taken out again."""
        # Before the lane is emptied: who wants the message is found out anew, and that is how many send() tells.
        if message not in self._lane:
            return False
        self._lane.remove(message)
        return True

    def abandon(self) -> None:
        """Be closed, and have nothing: what is here belongs to another process."""
        super().abandon()
        self._forget_audiences()

    # -- what subscribers say ----------------------------------------------------------------------------------------

    def on_control(self, link: Link, type_: int, body: tuple[Any, ...]) -> None:
        """A subscription takes effect before the next message is published."""
        if type_ != SUBSCRIBE or len(body) != 2 or type(body[0]) is not bool or type(body[1]) is not list:
            raise Malformed
        add, prefixes = body
        if not all(type(prefix) is bytes and len(prefix) <= _MOST_TOPIC for prefix in prefixes):
            raise Malformed
        self._forget_audiences()  # the lane was emptied when this came
        change = self._subscriptions.add if add else self._subscriptions.discard
        extent = self._extents[link]
        changed = []
        for prefix in prefixes:
            if self._subscriptions.wants(prefix, link) != add:
                extent.change(prefix, add)
                if extent.too_large:
                    break
                if change(prefix, link):
                    changed.append(prefix)
        self._tell(changed, add, link.peer)
        if extent.too_large:
            self.core.dropped["too many subscriptions"] += 1
            self.manager.unlink(link.peer, force=True)

    def on_unlink(self, link: Link, reason: str) -> None:  # noqa: ARG002
        """Its subscriptions go, and nobody waits for it any more."""
        self._forget_audiences()
        self._extents.pop(link, None)
        self._tell(self._subscriptions.remove_subscriber(link), False, link.peer)
        self.wake(POLLOUT)

    def _tell(self, prefixes: Iterable[bytes], add: bool, peer: SocketId) -> None:
        if self.receives:
            group = next(self._groups)
            for prefix in prefixes:
                # Changes of a prefix alternate, so one that is still here is undone by this one.
                if self._news.pop(prefix, None) is None:
                    self._news[prefix] = _News(add, peer, group)
            if self._news:
                self.wake(POLLIN)
        self.wake(POLLOUT)

    def try_receive(self) -> Any:
        """The next subscription: the first to a prefix, or the end of the last."""
        if not self._news:
            return WOULD_BLOCK
        news = next(iter(self._news.values()))
        topics = []
        while self._news and next(iter(self._news.values())).group == news.group:
            topics.append(self._news.popitem(last=False)[0].decode(errors="replace"))
        return Subscription(tuple(topics), news.add, news.peer)

    def can_receive_now(self) -> bool:
        """Whether there is news."""
        return bool(self._news)

    def can_send_now(self) -> bool:
        """Whether a message to everybody could be sent now; to nobody it always can."""
        self.settle()
        return all(link.can_send for link in self.established)


class PubSocket(XPubSocket):
    """Publishes.

    >>> import a3m
    >>> with a3m.Node("home", bind="127.0.0.1:0") as node:
    ...     pub, sub = node.pub("weather"), node.sub("reader")
    ...     pub.send("lisbon", b"sunny")  # nobody wants it
    ...     sub.subscribe("lisbon")
    ...     sub.link("home/weather")
    ...     while not pub.send("lisbon", b"still sunny"):  # until the subscription has arrived
    ...         pass
    ...     sub.recv(timeout=5).payload
    0
    b'still sunny'
    """

    protocol = "PUB"
    receives = False


class XSubSocket(Socket):
    """Receives what is published, and sends subscriptions.

    >>> import a3m
    >>> with a3m.Node("home", bind="127.0.0.1:0") as node:
    ...     xpub, xsub = node.xpub("weather"), node.xsub("reader")
    ...     xsub.link("home/weather")
    ...     xsub.send(a3m.Subscription(("lisbon",), True))
    ...     xpub.recv(timeout=5).topics
    ...     xpub.send("lisbon", b"sunny")
    ...     xsub.recv(timeout=5).payload
    ('lisbon',)
    1
    b'sunny'
    """

    protocol = "XSUB"
    compatible = frozenset({"PUB", "XPUB"})

    def __init__(self, *args: Any, **options: Any) -> None:
        """Wants nothing yet."""
        super().__init__(*args, **options)
        self._wanted: dict[bytes, None] = {}  # a set that keeps its order
        self._extent = _Extent()
        self._untold: dict[Link, _Untold] = {}

    def send(self, subscription: Subscription, *, timeout: float | None = None, require_link: bool = False) -> None:  # type: ignore[override]  # noqa: ARG002
        """Subscribe or unsubscribe, at every publisher, present and future. Never waits."""
        if not isinstance(subscription, Subscription):
            raise BadPayload("an XSUB socket sends Subscription(topics, subscribe), such as an XPUB socket receives")
        if isinstance(subscription.topics, str):
            raise BadIdentifier(f"topics are a tuple of texts; write ({subscription.topics!r},) for a single one")
        self._change(subscription.topics, subscription.subscribe)

    def _change(self, topics: Sequence[str], add: bool) -> None:
        limit = self.core.transport.options.max_message
        prefixes = [check_size(topic_bytes(topic), limit) for topic in topics]
        with Held(self.core.lock):
            self.check_open()
            changed = [prefix for prefix in dict.fromkeys(prefixes) if (prefix in self._wanted) != add]
            extent = attrs.evolve(self._extent)
            for prefix in changed:
                extent.change(prefix, add)
            if add and extent.too_large:
                raise MessageTooLarge(
                    f"a socket subscribes to at most {MOST_PREFIXES} topics of {MOST_PREFIX_BYTES} bytes in all; "
                    "subscribe to a prefix that they have in common"
                )
            self._extent = extent
            for prefix in changed:
                if add:
                    self._wanted[prefix] = None
                else:
                    del self._wanted[prefix]
            if changed:
                for link, untold in self._untold.items():
                    for prefix in changed:
                        untold.note(prefix, add)
                    self.want_control(link)
                self.core.work()

    def on_control_room(self, link: Link) -> None:
        """A publisher has taken what it was told before: tell it what has changed since, a message at a time."""
        untold = self._untold[link]
        if untold.changes:
            most = min(_BATCH_BYTES, self.core.transport.options.max_message - OVERHEAD)
            self.send_control(link, SUBSCRIBE, untold.take(most))
            self.want_control(link)

    def why_not(self, events: int) -> str | None:
        """It wants nothing."""
        return "it has no subscriptions; subscribe() to something" if events & POLLIN and not self._wanted else None

    def on_link(self, link: Link) -> None:
        """A new publisher is told everything."""
        self._untold[link] = _Untold(dict.fromkeys(self._wanted, True), _Extent())
        self.want_control(link)

    def on_unlink(self, link: Link, reason: str) -> None:  # noqa: ARG002
        """It need not be told anything."""
        self._untold.pop(link, None)

    def present(self, link: Link, item: Item) -> Published:  # noqa: ARG002
        """The message with its topic."""
        published: Published = item
        return published if type(item[1]) is bytes else Published(item[0], tuple(item[1]))

    def present_many(self, links: list[Link], items: list[Item]) -> Iterable[Any]:
        """They were made for the application when they came."""
        plain = not any(link.incoming is None or link.incoming.mixed for link in links)
        return items if plain else super().present_many(links, items)

    def read_run(self, first: Any, run: Any) -> tuple[list[Item], bool]:
        """Only messages with a topic count."""
        return unfold(first, run, _published)

    def largest(self, run: list[Item], plain: bool) -> int:
        """With its topic."""
        return largest(run, plain)

    def can_send_now(self) -> bool:
        """Subscriptions need no credit."""
        return True


class SubSocket(XSubSocket):
    """Receives what is published under the topics it subscribed to.

    >>> import a3m
    >>> with a3m.Node("home", bind="127.0.0.1:0") as node:
    ...     xpub, sub = node.xpub("weather"), node.sub("reader")
    ...     sub.subscribe("lisbon", "porto")
    ...     sub.unsubscribe("porto")
    ...     sub.link("home/weather")
    ...     xpub.recv(timeout=5).topics
    ...     xpub.send("lisbon.airport", b"fog")
    ...     sub.recv(timeout=5)
    ('lisbon',)
    1
    Published(topic='lisbon.airport', payload=b'fog')
    """

    protocol = "SUB"
    sends = False

    def subscribe(self, *topics: str) -> None:
        """Want messages whose topic begins with one of these, from every publisher; ``""`` wants all."""
        if not topics:
            raise BadIdentifier("name at least one topic; subscribe('') wants them all")
        self._change(topics, True)

    def unsubscribe(self, *topics: str) -> None:
        """Want them no longer; without arguments, nothing at all."""
        self._change(topics or tuple(prefix.decode() for prefix in self._wanted), False)

    def send(self, *_: Any, **__: Any) -> None:
        """A SUB socket says what it wants with :meth:`subscribe`."""
        raise NotSupported("a SUB socket does not send; use subscribe() and unsubscribe()")

    @property
    def subscriptions(self) -> tuple[str, ...]:
        """What it wants."""
        with Held(self.core.lock):
            return tuple(prefix.decode() for prefix in self._wanted)
