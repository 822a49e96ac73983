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
from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any, NamedTuple

import attrs
from attrs import define

from a3m.errors import BadIdentifier, BadPayload, MessageTooLarge, NotSupported
from a3m.flow import Item
from a3m.ids import SocketId
from a3m.link import Link
from a3m.messages import FIRST_CONTROL, Malformed
from a3m.payload import OVERHEAD, Payload, check_size, from_body
from a3m.signals import Held
from a3m.socket import Socket
from a3m.socket_core import WOULD_BLOCK
from a3m.trie import SubscriptionTrie
from a3m.waiting import call
from a3m.waitqueue import POLLIN, POLLOUT

SUBSCRIBE = FIRST_CONTROL  # [add, [prefix, ...]]
MOST_PREFIXES = 100_000  # of one subscriber
MOST_PREFIX_BYTES = 16 * 1024 * 1024  # of one subscriber, all together
_MOST_TOPIC = 64 * 1024
_BATCH_BYTES = 32 * 1024  # prefixes that travel in one message; a longer one travels alone
_PREFIX = 5  # bytes that a prefix takes in a message besides its own, at the most


class Published(NamedTuple):
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

    topic: str
    payload: Any


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

    def send(self, topic: str, payload: Payload, *, timeout: float | None = None, require_link: bool = False) -> int:  # type: ignore[override]
        """Publish; how many subscribers it goes to. Waits while one of them has no room."""
        item = self.prepare(topic, payload)
        reached: int = call(self, POLLOUT, lambda: self.try_send(item), timeout, require_link)
        return reached

    def prepare(self, topic: str, payload: Payload) -> Item:  # type: ignore[override]
        """Topic and payload as parts of one message."""
        body = super().prepare(payload)
        item = [topic_bytes(topic), body] if type(body) is bytes else [topic_bytes(topic), *body]
        return check_size(item, self.core.transport.options.max_message)

    def send_many(self, *_: Any, **__: Any) -> int:
        """Each message has a topic of its own, so there is no such call."""
        raise NotSupported("publish with send(topic, payload), one message at a time")

    def try_send(self, item: Item) -> Any:
        """Send to all subscribers, or to none."""
        links = [link for link in self._subscriptions.match(item[0]) if link.established]
        if not all(link.can_send for link in links):
            return WOULD_BLOCK
        for link in links:
            self.push(link, item)
        return len(links)

    def on_control(self, link: Link, type_: int, body: tuple[Any, ...]) -> None:
        """A subscription takes effect before the next message is published."""
        if type_ != SUBSCRIBE or len(body) != 2 or type(body[0]) is not bool or type(body[1]) is not list:
            raise Malformed
        add, prefixes = body
        if not all(type(prefix) is bytes and len(prefix) <= _MOST_TOPIC for prefix in prefixes):
            raise Malformed
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
        topic, *parts = item
        return Published(topic.decode(errors="replace"), from_body(parts[0] if len(parts) == 1 else parts))

    def on_message(self, link: Link, items: list[Item]) -> None:
        """Only messages with a topic count."""
        if any(type(item) is not list or item[0] is None or len(item) < 2 for item in items):
            raise Malformed
        super().on_message(link, items)

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
