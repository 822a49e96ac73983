"""The trie of subscriptions against a plain dictionary of sets, operation by operation."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from a3m.trie import SubscriptionTrie

PREFIXES = st.text("ab\xff", max_size=5).map(lambda text: text.encode("latin-1"))  # few, so that they share beginnings
TOPICS = st.text("ab\xff", max_size=7).map(lambda text: text.encode("latin-1"))
SUBSCRIBERS = st.sampled_from(["ann", "bob", "eve"])


def common(a: bytes, b: bytes) -> bytes:
    """The longest beginning of both."""
    length = 0
    while length < min(len(a), len(b)) and a[length] == b[length]:
        length += 1
    return a[:length]


def least_nodes(prefixes: set[bytes]) -> int:
    """The root, one node for each prefix and one for each place where two part."""
    return len({b""} | prefixes | {common(a, b) for a in prefixes for b in prefixes})


class Against(RuleBasedStateMachine):
    """Any sequence of changes leaves the same subscriptions, in the smallest trie there is for them."""

    def __init__(self) -> None:
        super().__init__()
        self.trie: SubscriptionTrie[str] = SubscriptionTrie()
        self.wanted: dict[bytes, set[str]] = {}
        self.came: list[str] = []  # subscribers with a subscription, in the order of their first

    def forget_idle(self) -> None:
        self.wanted = {prefix: members for prefix, members in self.wanted.items() if members}
        self.came = [name for name in self.came if any(name in members for members in self.wanted.values())]

    @rule(prefix=PREFIXES, subscriber=SUBSCRIBERS)
    def add(self, prefix: bytes, subscriber: str) -> None:
        assert self.trie.add(prefix, subscriber) == (prefix not in self.wanted)
        self.wanted.setdefault(prefix, set()).add(subscriber)
        if subscriber not in self.came:
            self.came.append(subscriber)

    @rule(prefix=PREFIXES, subscriber=SUBSCRIBERS)
    def discard(self, prefix: bytes, subscriber: str) -> None:
        assert self.trie.discard(prefix, subscriber) == (self.wanted.get(prefix) == {subscriber})
        self.wanted.get(prefix, set()).discard(subscriber)
        self.forget_idle()

    @rule(subscriber=SUBSCRIBERS)
    def remove_subscriber(self, subscriber: str) -> None:
        lost = [prefix for prefix, members in self.wanted.items() if members == {subscriber}]
        removed = self.trie.remove_subscriber(subscriber)
        assert sorted(removed) == sorted(lost)
        for members in self.wanted.values():
            members.discard(subscriber)
        self.forget_idle()

    @rule(topic=TOPICS)
    def match(self, topic: bytes) -> None:
        wanting = {name for prefix, members in self.wanted.items() if topic.startswith(prefix) for name in members}
        assert self.trie.match(topic) == [name for name in self.came if name in wanting]

    @invariant()
    def same_prefixes(self) -> None:
        assert self.trie.prefixes() == sorted(self.wanted)

    @invariant()
    def no_node_too_many(self) -> None:
        assert self.trie.node_count() == least_nodes(set(self.wanted))


TestAgainst = Against.TestCase


@given(st.lists(st.tuples(PREFIXES, SUBSCRIBERS), max_size=20))
def test_whoever_leaves_loses_prefixes_in_the_order_of_subscription(subscriptions: list[tuple[bytes, str]]) -> None:
    trie: SubscriptionTrie[str] = SubscriptionTrie()
    for prefix, subscriber in subscriptions:
        trie.add(prefix, subscriber)
    for leaver in ("ann", "bob", "eve"):
        own = list(dict.fromkeys(prefix for prefix, subscriber in subscriptions if subscriber == leaver))
        others = {prefix for prefix, subscriber in subscriptions if subscriber > leaver}  # the earlier ones have left
        assert trie.remove_subscriber(leaver) == [prefix for prefix in own if prefix not in others]
    assert trie.node_count() == 1


def test_subscribers_come_in_the_order_of_their_first_subscription_not_of_the_matching_one() -> None:
    trie: SubscriptionTrie[str] = SubscriptionTrie()
    trie.add(b"elsewhere", "ann")
    trie.add(b"here", "bob")
    trie.add(b"here", "ann")
    assert trie.match(b"here") == ["ann", "bob"]


def test_whoever_comes_back_is_the_last() -> None:
    trie: SubscriptionTrie[str] = SubscriptionTrie()
    for subscriber in ("ann", "bob"):
        trie.add(b"", subscriber)
    trie.discard(b"", "ann")
    trie.add(b"", "ann")
    assert trie.match(b"anything") == ["bob", "ann"]


def test_a_chain_of_prefixes_deeper_than_the_stack() -> None:
    trie: SubscriptionTrie[int] = SubscriptionTrie()
    for length in range(3000):
        trie.add(b"a" * length, length)
    assert trie.match(b"a" * 2000) == list(range(2001))
    assert trie.prefixes() == [b"a" * length for length in range(3000)]
    for length in range(3000):
        assert trie.discard(b"a" * length, length)
    assert trie.node_count() == 1


def test_a_long_topic_does_not_match_what_only_begins_like_it() -> None:
    trie: SubscriptionTrie[str] = SubscriptionTrie()
    trie.add(b"news.sport", "ann")
    assert trie.match(b"news.spo") == []
    assert trie.match(b"news.sports") == ["ann"]
    assert trie.match(b"news.spare") == []
