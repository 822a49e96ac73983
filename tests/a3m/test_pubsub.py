"""PUB and SUB, XPUB and XSUB: to all who want it or to none, one copy each, the slowest sets the pace."""

from __future__ import annotations

import pytest

import a3m
from a3m.patterns import pubsub
from tests.a3m.nodes import (
    PATIENCE,
    Nodes,
    crash,
    eventually,
    in_background,
    linked,
    nothing_left,
    peers,
    result,
    take,
    waiting,
)


def subscribed(pub: a3m.XPubSocket, topic: str, count: int) -> None:
    """Return as soon as so many subscribers are known to the publisher; nothing is sent."""
    eventually(lambda: len(pub._subscriptions.match(topic.encode())) == count)


def test_a_message_goes_to_all_who_want_its_topic(nodes: Nodes) -> None:
    a, b = nodes.pair()
    pub = a.pub("news")
    sport, weather, everything = b.sub("sport"), b.sub("weather"), b.sub("everything")
    linked(pub, sport, weather, everything)
    sport.subscribe("sport.")
    weather.subscribe("weather.")
    everything.subscribe("")
    subscribed(pub, "sport.", 2)
    subscribed(pub, "weather.", 2)
    assert pub.send("sport.chess", b"mate") == 2
    assert pub.send("weather.rain", b"wet") == 2
    assert pub.send("politics", b"no") == 1
    assert pub.send("sport", b"shorter than the prefix") == 1
    assert take(sport, 1) == [a3m.Published("sport.chess", b"mate")]
    assert take(weather, 1) == [("weather.rain", b"wet")]
    assert [message.topic for message in take(everything, 4)] == ["sport.chess", "weather.rain", "politics", "sport"]
    assert nothing_left(sport)
    assert nothing_left(weather)
    assert nothing_left(everything)


def test_nobody_wants_it(nodes: Nodes) -> None:
    a, b = nodes.pair()
    pub, sub = a.pub("news"), b.sub("reader")
    assert pub.send("topic", b"x", timeout=0) == 0
    linked(sub, pub)
    assert pub.send("topic", b"x", timeout=0) == 0
    assert a.pub("alone").send("topic", b"x", require_link=True) == 0  # it would not have waited


def test_one_copy_and_one_credit_however_many_prefixes_match(nodes: Nodes) -> None:
    a, b = nodes.pair()
    pub, sub = a.pub("news"), b.sub("reader", capacity=1)
    linked(sub, pub)
    sub.subscribe("", "a", "ab", "abc", "ab")
    subscribed(pub, "abc", 1)
    for number in range(3):
        assert pub.send("abcd", b"%d" % number, timeout=PATIENCE) == 1
        assert take(sub, 1) == [("abcd", b"%d" % number)]
    assert nothing_left(sub)


def test_all_or_none(nodes: Nodes) -> None:
    a, b = nodes.pair()
    pub, fast, slow = a.pub("news"), b.sub("fast"), b.sub("slow", capacity=1)
    linked(pub, fast, slow)
    fast.subscribe("")
    slow.subscribe("")
    subscribed(pub, "", 2)
    assert pub.send("t", b"0") == 2
    with pytest.raises(a3m.Timeout):
        pub.send("t", b"never", timeout=0)
    sending = in_background(pub.send, "t", b"1")
    waiting(pub)
    assert take(fast, 1) == [("t", b"0")]
    assert nothing_left(fast)
    assert take(slow, 1) == [("t", b"0")]
    assert result(sending) == 2
    assert take(fast, 1) == take(slow, 1) == [("t", b"1")]
    assert nothing_left(fast)


def test_the_slowest_sets_the_pace_for_its_topics_only(nodes: Nodes) -> None:
    a, b = nodes.pair()
    pub, fast, slow = a.pub("news"), b.sub("fast", capacity=1), b.sub("slow", capacity=1)
    linked(pub, fast, slow)
    fast.subscribe("fast", "both")
    slow.subscribe("both")
    subscribed(pub, "both", 2)
    subscribed(pub, "fast", 1)
    assert pub.send("both", b"0") == 2
    for_both = in_background(pub.send, "both", b"1")
    waiting(pub)
    for_fast = in_background(pub.send, "fast", b"2")
    waiting(pub, 2)
    # The credit that comes back is of no use to the one that waits longer.
    assert take(fast, 2) == [("both", b"0"), ("fast", b"2")]
    assert result(for_fast) == 1
    assert not for_both.done()
    assert take(slow, 2) == [("both", b"0"), ("both", b"1")]
    assert take(fast, 1) == [("both", b"1")]
    assert result(for_both) == 2


def test_a_subscriber_that_leaves_holds_nobody_up(nodes: Nodes) -> None:
    a, b = nodes.pair()
    pub, fast, slow = a.pub("news"), b.sub("fast"), b.sub("slow", capacity=1)
    linked(pub, fast, slow)
    fast.subscribe("")
    slow.subscribe("")
    subscribed(pub, "", 2)
    pub.send("t", b"0")
    sending = in_background(pub.send, "t", b"1")
    waiting(pub)
    slow.unlink(pub.id)
    assert result(sending) == 1
    assert take(fast, 2) == [("t", b"0"), ("t", b"1")]
    assert take(slow, 1) == [("t", b"0")]


def test_unlinking_a_slow_subscriber_lets_the_publisher_go_on(nodes: Nodes) -> None:
    a, b = nodes.pair()
    pub, slow = a.pub("news"), b.sub("slow", capacity=1)
    linked(pub, slow)
    slow.subscribe("")
    subscribed(pub, "", 1)
    pub.send("t", b"0")
    sending = in_background(pub.send, "t", b"1")
    waiting(pub)
    crash(b)  # nobody will answer
    pub.unlink(slow.id)
    assert result(sending) == 0


def test_unsubscribing_holds_nobody_up(nodes: Nodes) -> None:
    a, b = nodes.pair()
    pub, slow = a.pub("news"), b.sub("slow", capacity=1)
    linked(pub, slow)
    slow.subscribe("t", "u")
    subscribed(pub, "t", 1)
    pub.send("t", b"0")
    sending = in_background(pub.send, "t", b"1")
    waiting(pub)
    slow.unsubscribe("t")
    assert result(sending) == 0
    assert slow.subscriptions == ("u",)


def test_unsubscribe_without_arguments_wants_nothing(nodes: Nodes) -> None:
    a, b = nodes.pair()
    pub, sub = a.pub("news"), b.sub("reader")
    linked(sub, pub)
    sub.subscribe(*(f"topic {number}" for number in range(100)))
    subscribed(pub, "topic 7", 1)
    sub.unsubscribe()
    assert sub.subscriptions == ()
    eventually(lambda: not pub._subscriptions.prefixes())
    sub.unsubscribe()
    sub.unsubscribe("never wanted")


def test_subscriptions_before_the_link_and_of_every_publisher(nodes: Nodes) -> None:
    a, b = nodes.pair()
    sub = b.sub("reader")
    sub.subscribe("x")
    pubs = [a.pub(f"news{number}") for number in range(3)]
    for number, pub in enumerate(pubs):
        linked(sub, pub)
        subscribed(pub, "x", 1)
        assert pub.send("x", b"%d" % number) == 1
    assert sorted(message.payload for message in take(sub, 3)) == [b"0", b"1", b"2"]


def test_first_in_first_out(nodes: Nodes) -> None:
    a, b = nodes.pair()
    pub, sub = a.pub("news"), b.sub("reader", capacity=8)
    linked(sub, pub)
    sub.subscribe("")
    subscribed(pub, "", 1)
    sending = in_background(lambda: [pub.send("t", b"%d" % number, timeout=PATIENCE) for number in range(1000)])
    assert [int(message.payload) for message in take(sub, 1000)] == list(range(1000))
    assert result(sending) == [1] * 1000


def test_topics_are_text_and_payloads_may_have_parts(nodes: Nodes) -> None:
    a, b = nodes.pair()
    pub, sub = a.pub("news"), b.sub("reader")
    linked(sub, pub)
    sub.subscribe("zoë")
    subscribed(pub, "zoë", 1)
    assert pub.send("zoë ☃", [b"one", b"", b"three"]) == 1
    assert pub.send("zoë", b"") == 1
    assert take(sub, 2) == [("zoë ☃", (b"one", b"", b"three")), ("zoë", b"")]
    for wrong in (b"bytes", None, "\ud800", "x" * 65537):
        with pytest.raises(a3m.BadIdentifier, match="topic"):
            pub.send(wrong, b"x")  # type: ignore[arg-type]
        with pytest.raises(a3m.BadIdentifier, match="topic"):
            sub.subscribe("fine", wrong)  # type: ignore[arg-type]
    assert sub.subscriptions == ("zoë",)


def test_xpub_hears_of_the_first_and_the_last(nodes: Nodes) -> None:
    a, b = nodes.pair()
    xpub, one, two = a.xpub("news"), b.sub("one"), b.sub("two")
    linked(xpub, one, two)
    one.subscribe("x", "y")
    assert take(xpub, 1) == [a3m.Subscription(("x", "y"), True, one.id)]
    two.subscribe("x")
    subscribed(xpub, "x", 2)
    assert nothing_left(xpub)
    one.unsubscribe("x", "y")
    assert take(xpub, 1) == [(("y",), False, one.id)]
    assert nothing_left(xpub)
    two.unlink(xpub.id)
    assert take(xpub, 1) == [(("x",), False, two.id)]


def test_news_that_nobody_received_are_taken_back(nodes: Nodes) -> None:
    a, b = nodes.pair()
    xpub, sub = a.xpub("news"), b.sub("one")
    linked(xpub, sub)
    sub.subscribe("kept")
    for _ in range(50):
        sub.subscribe("x", "y")
        sub.unsubscribe("x", "y")
    sub.subscribe("end")
    subscribed(xpub, "end", 1)
    assert take(xpub, 2) == [(("kept",), True, sub.id), (("end",), True, sub.id)]
    assert nothing_left(xpub)
    sub.unsubscribe("kept")
    sub.subscribe("kept", "last")
    subscribed(xpub, "last", 1)
    assert take(xpub, 1) == [(("last",), True, sub.id)]
    assert nothing_left(xpub)


def test_xsub_sends_subscriptions(nodes: Nodes) -> None:
    a, b = nodes.pair()
    xpub, xsub = a.xpub("news"), b.xsub("reader")
    linked(xsub, xpub)
    xsub.send(a3m.Subscription(("x",), True))
    assert take(xpub, 1) == [(("x",), True, xsub.id)]
    assert xpub.send("xyz", b"1") == 1
    assert take(xsub, 1) == [("xyz", b"1")]
    xsub.send(a3m.Subscription(("x",), False))
    assert take(xpub, 1) == [(("x",), False, xsub.id)]
    assert xpub.send("xyz", b"2") == 0


def test_more_subscriptions_than_allowed_are_refused_where_they_are_made(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    sub = nodes("a").sub("reader")
    monkeypatch.setattr(pubsub, "MOST_PREFIXES", 3)
    sub.subscribe("a", "b")
    with pytest.raises(a3m.MessageTooLarge, match="in common"):
        sub.subscribe("c", "d")
    assert sub.subscriptions == ("a", "b")
    sub.subscribe("c", "a")
    sub.unsubscribe("a")
    sub.subscribe("d")
    monkeypatch.setattr(pubsub, "MOST_PREFIX_BYTES", 10)
    sub.unsubscribe("b")
    with pytest.raises(a3m.MessageTooLarge):
        sub.subscribe("123456789")
    sub.subscribe("12345678")


def test_a_link_that_brings_too_many_subscriptions_is_ended(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = nodes.pair()
    xpub, greedy, modest = a.xpub("news"), b.sub("greedy"), b.sub("modest")
    linked(xpub, greedy, modest)
    modest.subscribe("m")
    greedy.subscribe(*(f"g{number}" for number in range(10)))
    subscribed(xpub, "g9", 1)
    monkeypatch.setattr(pubsub, "MOST_PREFIXES", 11)
    greedy.subscribe("g10")
    subscribed(xpub, "g10", 1)
    with greedy.core.lock:  # as a subscriber would that does not keep to the limit itself
        for link in greedy.established:
            greedy.send_control(link, pubsub.SUBSCRIBE, (True, [b"h1", b"h2"]))
        greedy.core.work()
    eventually(lambda: peers(xpub) == [modest.id])
    assert a.stats().dropped == {"too many subscriptions": 1}
    assert xpub._subscriptions.prefixes() == [b"m"]
    assert xpub.send("m", b"still here") == 1
    assert take(modest, 1) == [("m", b"still here")]


def test_many_subscriptions_travel_in_pieces(nodes: Nodes) -> None:
    a, b = nodes.pair()
    pub, sub = a.pub("news"), b.sub("reader")
    sub.subscribe(*(f"{number:05} {'x' * 100}" for number in range(3000)))
    linked(sub, pub)
    eventually(lambda: len(pub._subscriptions.prefixes()) == 3000)
    assert pub.send(f"02999 {'x' * 100}", b"last") == 1
    sub.unsubscribe()
    eventually(lambda: not pub._subscriptions.prefixes())


def test_what_publishers_and_subscribers_do_not_do(nodes: Nodes) -> None:
    a = nodes("a")
    with pytest.raises(a3m.NotSupported, match=r"send\(topic, payload\)"):
        a.pub("p").send_many([b"x"])
    with pytest.raises(a3m.NotSupported, match="does not receive"):
        a.pub("q").recv()
    with pytest.raises(a3m.NotSupported, match="subscribe"):
        a.sub("s").send(b"x")
    with pytest.raises(a3m.BadPayload, match="Subscription"):
        a.xsub("x").send(b"x")  # type: ignore[arg-type]


def test_subscriptions_take_effect_before_the_next_message(nodes: Nodes) -> None:
    a, b = nodes.pair()
    pub, blocking, late = a.pub("news"), b.sub("blocking", capacity=1), b.sub("late")
    linked(pub, blocking, late)
    blocking.subscribe("t")
    subscribed(pub, "t", 1)
    pub.send("t", b"0")
    sending = in_background(pub.send, "t", b"1")
    waiting(pub)
    late.subscribe("t")  # while a publisher waits: it reserves anew
    subscribed(pub, "t", 2)
    assert take(blocking, 1) == [("t", b"0")]
    assert result(sending) == 2
    assert take(late, 1) == take(blocking, 1) == [("t", b"1")]
