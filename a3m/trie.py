"""Who wants a topic: subscriptions to byte prefixes in a Patricia trie (003, section 5, PUB/SUB).

A node stands for the bytes on the way to it. It exists because somebody subscribed to exactly these bytes, or because
two longer prefixes part there; stretches without either are one edge. So the trie has less than two nodes per prefix,
whatever their length, and it looks the same however it came about: a node that lost its reason is merged away.

A topic is matched by walking down along its bytes and collecting the subscribers on the way: the cost is its length and
the number of those found, not the number of subscriptions.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from attrs import define, field

S = TypeVar("S", bound=Hashable)


@define(eq=False)
class _Node(Generic[S]):
    label: bytes = b""  # what is between the parent and here; empty at the root only
    children: dict[int, _Node[S]] = field(factory=dict)  # by the first byte of their labels
    members: dict[int, S] = field(factory=dict)  # subscribers to exactly this prefix, by rank

    def merge(self) -> None:
        """Become one with the only child."""
        (child,) = self.children.values()
        self.label += child.label
        self.children = child.children
        self.members = child.members


@define(eq=False)
class _Subscriber:
    rank: int  # subscribers that came earlier have lower ones
    prefixes: dict[bytes, None] = field(factory=dict)


class SubscriptionTrie(Generic[S]):
    """Subscribers by the prefixes of the topics that they want. Not thread-safe.

    >>> trie: SubscriptionTrie[str] = SubscriptionTrie()
    >>> trie.add(b"news.", "ann"), trie.add(b"news.sport", "bob"), trie.add(b"news.", "bob"), trie.add(b"", "eve")
    (True, True, False, True)
    >>> trie.match(b"news.sport.chess")
    ['ann', 'bob', 'eve']
    >>> trie.match(b"weather")
    ['eve']
    >>> trie.remove_subscriber("bob")
    [b'news.sport']
    """

    def __init__(self) -> None:
        """Nobody wants anything."""
        self._root: _Node[S] = _Node()
        self._subscribers: dict[S, _Subscriber] = {}
        self._next_rank = 0

    def add(self, prefix: bytes, subscriber: S) -> bool:
        """Subscribe to all topics that begin so; whether nobody had subscribed to exactly this prefix. Twice is once.

        >>> trie: SubscriptionTrie[str] = SubscriptionTrie()
        >>> trie.add(b"a", "ann"), trie.add(b"a", "ann"), trie.add(b"a", "bob"), trie.add(b"ab", "bob")
        (True, False, False, True)
        """
        known = self._subscribers.get(subscriber)
        if known is None:
            known = self._subscribers[subscriber] = _Subscriber(self._next_rank)
            self._next_rank += 1
        known.prefixes[prefix] = None
        node = self._make(prefix)
        first = not node.members
        node.members[known.rank] = subscriber
        return first

    def discard(self, prefix: bytes, subscriber: S) -> bool:
        """Unsubscribe, if subscribed; whether that was the last subscription to exactly this prefix.

        >>> trie: SubscriptionTrie[str] = SubscriptionTrie()
        >>> for name in ("ann", "bob"):
        ...     _ = trie.add(b"a", name)
        >>> trie.discard(b"a", "ann"), trie.discard(b"a", "ann"), trie.discard(b"a", "bob")
        (False, False, True)
        """
        known = self._subscribers.get(subscriber)
        if known is None or prefix not in known.prefixes:
            return False
        del known.prefixes[prefix]
        if not known.prefixes:
            del self._subscribers[subscriber]
        return self._leave(prefix, known.rank)

    def wants(self, prefix: bytes, subscriber: S) -> bool:
        """Whether somebody is subscribed to exactly this prefix.

        >>> trie: SubscriptionTrie[str] = SubscriptionTrie()
        >>> trie.add(b"a", "ann"), trie.wants(b"a", "ann"), trie.wants(b"ab", "ann"), trie.wants(b"a", "bob")
        (True, True, False, False)
        """
        known = self._subscribers.get(subscriber)
        return known is not None and prefix in known.prefixes

    def match(self, topic: bytes) -> list[S]:
        """Everybody who wants the topic, each once, in the order in which they came to the trie.

        >>> trie: SubscriptionTrie[str] = SubscriptionTrie()
        >>> for prefix in (b"", b"a", b"ab"):
        ...     _ = trie.add(prefix, "ann")
        >>> trie.match(b"abc")
        ['ann']
        """
        node = self._root
        found = dict(node.members)
        length = 0
        while length < len(topic):
            child = node.children.get(topic[length])
            if child is None or not topic.startswith(child.label, length):
                break
            node = child
            length += len(node.label)
            found.update(node.members)
        return [found[rank] for rank in sorted(found)]

    def remove_subscriber(self, subscriber: S) -> list[bytes]:
        """Unsubscribe from everything; the prefixes that nobody wants any more, in the order of subscription.

        >>> trie: SubscriptionTrie[str] = SubscriptionTrie()
        >>> trie.add(b"b", "ann"), trie.add(b"a", "ann"), trie.add(b"a", "bob")
        (True, True, False)
        >>> trie.remove_subscriber("ann")
        [b'b']
        """
        known = self._subscribers.pop(subscriber, None)
        return [] if known is None else [prefix for prefix in known.prefixes if self._leave(prefix, known.rank)]

    def prefixes(self) -> list[bytes]:
        """All prefixes that somebody subscribed to, in ascending order.

        >>> trie: SubscriptionTrie[str] = SubscriptionTrie()
        >>> trie.add(b"b", "ann"), trie.add(b"a", "ann")
        (True, True)
        >>> trie.prefixes()
        [b'a', b'b']
        """
        return [prefix for prefix, node in self._walk() if node.members]

    def node_count(self) -> int:
        """How many nodes there are, the root included: what the trie costs.

        >>> trie: SubscriptionTrie[str] = SubscriptionTrie()
        >>> trie.add(b"a long prefix", "ann"), trie.add(b"a long time", "ann")
        (True, True)
        >>> trie.node_count()  # the root, "a long ", and one for each
        4
        """
        return sum(1 for _ in self._walk())

    def _walk(self) -> list[tuple[bytes, _Node[S]]]:
        """All nodes in ascending order; no recursion, since prefixes may be longer than the stack."""
        found: list[tuple[bytes, _Node[S]]] = []
        waiting = [(b"", self._root)]
        while waiting:
            prefix, node = waiting.pop()
            found.append((prefix, node))
            for first in sorted(node.children, reverse=True):
                child = node.children[first]
                waiting.append((prefix + child.label, child))
        return found

    def _make(self, prefix: bytes) -> _Node[S]:
        """The node of a prefix, made if there is none."""
        node = self._root
        length = 0
        while length < len(prefix):
            child = node.children.get(prefix[length])
            if child is None:
                child = _Node(prefix[length:])
                node.children[prefix[length]] = child
            elif not prefix.startswith(child.label, length):
                child = self._split(node, child, prefix[length:])
            node = child
            length += len(node.label)
        return node

    def _split(self, parent: _Node[S], child: _Node[S], rest: bytes) -> _Node[S]:
        """A new node between two, where the rest of a prefix ends or parts from the child's label."""
        common = 1  # the byte that led to the child
        while common < len(rest) and rest[common] == child.label[common]:
            common += 1
        middle: _Node[S] = _Node(child.label[:common], {child.label[common]: child})
        child.label = child.label[common:]
        parent.children[middle.label[0]] = middle
        return middle

    def _leave(self, prefix: bytes, rank: int) -> bool:
        """Take a member from the node of a prefix, and the node away if nothing needs it any more."""
        parent, node = self._root, self._root
        length = 0
        while length < len(prefix):
            parent, node = node, node.children[prefix[length]]
            length += len(node.label)
        del node.members[rank]
        if node.members:
            return False
        if node is not self._root:
            self._prune(parent, node)
        return True

    def _prune(self, parent: _Node[S], node: _Node[S]) -> None:
        """Remove or merge a node without members, and its parent if that has lost its reason by that."""
        if len(node.children) == 1:
            node.merge()
        elif not node.children:
            del parent.children[node.label[0]]
            if parent is not self._root and not parent.members and len(parent.children) == 1:
                parent.merge()
