"""What publishers send without the lock: to all who want it, nothing lost or out of order, and counted right."""

from __future__ import annotations

from copy import copy
from pickle import dumps, loads
from threading import Barrier

import pytest

import a3m
from a3m.lanes import LANE, SMALL
from a3m.socket_core import WOULD_BLOCK
from tests.a3m.nodes import PATIENCE, Nodes, eventually, in_background, linked, nothing_left, result, take

MANY = 10_000


def streaming(nodes: Nodes, *wishes: str, **options: object) -> tuple[a3m.PubSocket, list[a3m.SubSocket]]:
    """A publisher whose lane is open: something is on the way to subscribers that want ``"t"``, and their wishes."""
    a, b = nodes.pair()
    pub, subs = a.pub("news"), [b.sub(f"reader {number}", **options) for number in range(len(wishes))]
    linked(pub, *subs)
    for sub, wish in zip(subs, wishes, strict=True):
        sub.subscribe("t", wish)
    eventually(lambda: len(pub._subscriptions.match(b"t")) == len(subs))
    open_lane(pub)
    return pub, subs


def open_lane(pub: a3m.PubSocket) -> None:
    for _ in range(1000):
        pub.send("t", b"warm")
        if pub._limit:
            return
    pytest.fail("the lane never opened")


def skip_warm(sub: a3m.SubSocket) -> a3m.Published:
    """The first message after those that opened the lane."""
    while (message := sub.recv(timeout=PATIENCE)).payload == b"warm":
        pass
    assert isinstance(message, a3m.Published)
    return message


def after_warm(sub: a3m.SubSocket, count: int) -> list[a3m.Published]:
    """So many messages after those that opened the lane."""
    return [skip_warm(sub), *take(sub, count - 1)]


def numbered(*topics: str, count: int = MANY) -> list[tuple[str, bytes]]:
    return [(topics[number % len(topics)], b"%d" % number) for number in range(count)]


# ---- sending ---------------------------------------------------------------------------------------------------------


def test_everybody_gets_everything_in_order(nodes: Nodes) -> None:
    pub, subs = streaming(nodes, "z", "z", "z")
    messages = numbered("t")
    sending = in_background(lambda: [pub.send(*message) for message in messages])
    receiving = [in_background(after_warm, sub, MANY) for sub in subs]
    for received in receiving:
        assert result(received) == messages
    assert result(sending) == [3] * MANY


def test_everybody_gets_what_they_want_in_order(nodes: Nodes) -> None:
    pub, subs = streaming(nodes, "x", "y", "x")
    messages = numbered("x1", "y", "x2", "t", "nobody", "y2", "t")
    reach = {"x": 2, "y": 1, "t": 3, "n": 0}

    def receive(sub: a3m.SubSocket, mine: str) -> None:
        wanted = [message for message in messages if message[0][0] in ("t", mine)]
        assert [skip_warm(sub), *take(sub, len(wanted) - 1)] == wanted
        assert nothing_left(sub)

    sending = in_background(lambda: [pub.send(*message) for message in messages])
    receiving = [in_background(receive, sub, mine) for sub, mine in zip(subs, "xyx", strict=True)]
    for received in receiving:
        result(received)
    assert result(sending) == [reach[topic[0]] for topic, _ in messages]


def test_messages_of_any_kind_keep_their_order(nodes: Nodes) -> None:
    pub, (sub,) = streaming(nodes, "z")
    kinds: list[object] = [b"plain", bytes(SMALL + 1), [b"two", b"parts"], bytearray(b"other"), b""]
    messages = [("t", kinds[number % len(kinds)]) for number in range(500)]
    sending = in_background(lambda: [pub.send(*message) for message in messages])  # type: ignore[arg-type]
    received = [skip_warm(sub), *take(sub, 499)]
    assert received == [(topic, tuple(body) if type(body) is list else body) for topic, body in messages]
    assert result(sending) == [1] * 500


def test_threads_may_publish_at_the_same_time(nodes: Nodes) -> None:
    pub, subs = streaming(nodes, "z", "z", capacity=50)
    start = Barrier(4)

    def publish(name: bytes) -> int:
        start.wait()
        return sum(pub.send("t", name + b"%d" % number) for number in range(2000))

    sending = [in_background(publish, name) for name in (b"a", b"b", b"c", b"d")]
    receiving = [in_background(after_warm, sub, 8000) for sub in subs]
    for received in receiving:
        for name in (b"a", b"b", b"c", b"d"):
            own = [message.payload[1:] for message in result(received) if message.payload[:1] == name]
            assert own == [b"%d" % number for number in range(2000)]
    assert [message.payload for message in result(receiving[0])] == [m.payload for m in result(receiving[1])]
    assert [result(each) for each in sending] == [4000] * 4


def test_a_subscription_takes_effect_before_the_next_message(nodes: Nodes) -> None:
    pub, (sub, other) = streaming(nodes, "z", "z")
    assert pub.send("u", b"nobody wants it") == 0
    open_lane(pub)
    assert pub.send("t", b"both") == 2
    other.subscribe("u")
    other.unsubscribe("t")
    eventually(lambda: len(pub._subscriptions.match(b"t")) == len(pub._subscriptions.match(b"u")) == 1)
    assert [pub.send("t", b"one"), pub.send("u", b"other")] == [1, 1]
    open_lane(pub)
    assert [pub.send("t", b"one"), pub.send("u", b"other")] == [1, 1]
    assert skip_warm(other) == ("t", b"both")
    assert take(other, 2) == [("u", b"other")] * 2
    assert [skip_warm(sub), skip_warm(sub), skip_warm(sub)] == [("t", b"both"), ("t", b"one"), ("t", b"one")]


def test_what_nobody_wants_does_not_enter_the_lane(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    pub, _ = streaming(nodes, "z")
    monkeypatch.setattr(pub.core.transport, "flowing", lambda _: True)
    assert pub.send("nobody", b"x") == 0
    with pub.core.lock:
        pub.settle()
        assert pub.open_lane()
        assert pub.send("nobody", b"x") == 0  # without the lock
        assert pub._lane == []


def test_what_was_published_arrives_before_an_unlink(nodes: Nodes) -> None:
    pub, (sub, other) = streaming(nodes, "z", "z")
    messages = numbered("t", count=100)
    assert [pub.send(*message) for message in messages] == [2] * 100
    pub.unlink(sub.id)
    assert [skip_warm(sub), *sub] == messages
    assert pub.send("t", b"last") == 1
    assert [skip_warm(other), *take(other, 100)] == [*messages, ("t", b"last")]


def test_what_was_published_arrives_before_a_close(nodes: Nodes) -> None:
    pub, (sub,) = streaming(nodes, "z")
    messages = numbered("t", count=100)
    for message in messages:
        pub.send(*message)
    assert pub.close(timeout=PATIENCE)
    assert [skip_warm(sub), *sub] == messages
    with pytest.raises(a3m.Closed):
        pub.send("t", b"x")


def test_messages_in_the_lane_are_counted_once_for_each_subscriber(nodes: Nodes) -> None:
    pub, (sub, _) = streaming(nodes, "z", "z")
    before, over_link = pub.stats().sent, pub.link_to(sub.id).info().sent
    open_lane(pub)
    extra = pub.stats().sent - before
    for message in numbered("t", count=50):
        pub.send(*message)
    assert pub.stats().sent == before + extra + 100
    assert pub.link_to(sub.id).info().sent == over_link + extra // 2 + 50


def test_the_slowest_sets_the_pace(nodes: Nodes) -> None:
    a, b = nodes.pair()
    pub, fast, slow = a.pub("news"), b.sub("fast"), b.sub("slow", capacity=40)
    linked(pub, fast, slow)
    fast.subscribe("t", "u")
    slow.subscribe("t")
    eventually(lambda: len(pub._subscriptions.match(b"t")) == 2)
    open_lane(pub)
    while pub.link_to(slow.id).info().credits:
        pub.send("t", b"x", timeout=0)
    for _ in range(3):
        with pytest.raises(a3m.Timeout):
            pub.send("t", b"never", timeout=0)
        assert pub.send("u", b"only for the fast one", timeout=0) == 1
    assert pub.link_to(slow.id).info().sent == 40
    open_for_u = [pub.send("u", b"x", timeout=0) for _ in range(500)]
    assert open_for_u == [1] * 500
    assert {message.payload for message in take(slow, 40)} == {b"warm", b"x"}
    assert pub.send("t", b"now", timeout=PATIENCE) == 2
    assert take(slow, 1) == [("t", b"now")]


def test_a_message_that_meets_a_closing_lane_is_not_lost_and_not_sent(nodes: Nodes) -> None:
    pub, (sub,) = streaming(nodes, "z")
    closed = in_background(pub.close, timeout=PATIENCE)
    eventually(lambda: pub.closed)
    with pub.core.lock:
        pub._lane.append(("t", b"late"))
        assert pub.withdraw(("t", b"late"))
        assert pub._lane == []
    with pytest.raises(a3m.Closed):
        pub.send("t", b"late")
    assert {message.payload for message in sub} == {b"warm"}
    assert result(closed)


def test_a_message_that_meets_a_lane_being_emptied_finds_out_anew_who_wants_it(nodes: Nodes) -> None:
    pub, (sub,) = streaming(nodes, "z")
    with pub.core.lock:
        pub.settle()
        pub._lane.append(("t", b"late"))  # as if a thread had found the lane open just before
        assert pub.withdraw(("t", b"late"))
        assert pub.try_send(("t", b"late")) == 1
        pub._lane.append(("t", b"later"))
        pub.settle()
        assert not pub.withdraw(("t", b"later"))  # somebody else has sent it
        pub.core.work()
    assert [skip_warm(sub), *take(sub, 1)] == [("t", b"late"), ("t", b"later")]


def test_threads_that_find_the_same_last_place_do_not_overbook_it(nodes: Nodes) -> None:
    pub, (sub,) = streaming(nodes, "z", capacity=40)
    room = pub.link_to(sub.id).info().credits
    with pub.core.lock:
        pub.settle()
        pub._lane += [("t", b"%d" % number) for number in range(room + 2)]
        pub.settle()
        assert pub._lane == [("t", b"%d" % number) for number in range(room, room + 2)]
        assert [pub.withdraw(message) for message in [*pub._lane]] == [True, True]
        pub.core.work()
    assert pub.link_to(sub.id).info().sent == 40
    assert [message.payload for message in take(sub, 40)][-1] == b"%d" % (room - 1)


def test_there_is_no_lane_while_a_subscriber_does_not_answer(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    pub, (sub, _) = streaming(nodes, "z", "z")
    monkeypatch.setattr(pub.core.transport, "flowing", lambda _: True)
    pub.send("t", b"x")
    with pub.core.lock:
        pub.settle()
        assert pub.open_lane()
        monkeypatch.setattr(pub.core.transport, "flowing", lambda node: node != sub.id.node)
        assert not pub.open_lane()
        assert not pub._limit


def test_a_full_lane_is_some_datagrams(nodes: Nodes) -> None:
    pub, (sub,) = streaming(nodes, "z", capacity=100_000)
    receiving = in_background(after_warm, sub, 23_000)
    for _ in range(20_000):
        pub.send("t", bytes(1000))  # from now on it knows how large messages are
    for _ in range(3000):
        pub.send("t", bytes(1000))
        assert len(pub._lane) * 1000 <= LANE
    assert {len(message.payload) for message in result(receiving)} == {1000}


def test_a_publisher_remembers_some_topics_only(nodes: Nodes) -> None:
    pub, (sub,) = streaming(nodes, "z")
    with pub.core.lock:
        for number in range(10_000):
            pub._audience(f"t{number}")
        pub._audience("t" * 60_000)
    assert len(pub._audiences) <= 4096
    assert max(map(len, pub._audiences)) < 60_000
    assert pub.send("t" * 60_000, b"x") == 1
    assert skip_warm(sub).topic == "t" * 60_000


def test_a_publisher_forgets_links_that_have_ended(nodes: Nodes) -> None:
    pub, (sub, other) = streaming(nodes, "z", "z")
    assert sub.id in {link.peer for link in pub._audiences["t"]}
    pub.unlink(sub.id, force=True)
    pub.wait_unlinked(sub.id, timeout=PATIENCE)
    with pub.core.lock:
        known = [*pub._reached, *(link for links in pub._audiences.values() for link in links)]
        assert {link.peer for link in known} <= {other.id}


def test_a_publisher_can_send_as_long_as_there_is_room_beside_the_lane(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    pub, (sub,) = streaming(nodes, "z", capacity=40)
    monkeypatch.setattr(pub.core.transport, "flowing", lambda _: True)
    assert pub.poll_events(None) & a3m.POLLOUT
    for _ in range(40 - pub.stats().sent):
        pub.send("t", b"x", timeout=0)
    assert not pub.poll_events(None) & a3m.POLLOUT
    assert pub.link_to(sub.id).info().credits == 0


def test_what_has_left_is_not_kept(nodes: Nodes) -> None:
    pub, (sub,) = streaming(nodes, "z")
    messages = numbered("t", count=1000)
    for message in messages:
        pub.send(*message)
    assert [skip_warm(sub), *take(sub, 999)] == messages
    with pub.core.lock:
        assert not pub.core._publications._known


def test_a_topic_is_text_in_a_burst(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    pub, _ = streaming(nodes, "z")
    monkeypatch.setattr(pub.core.transport, "flowing", lambda _: True)
    for wrong in (b"t", None, ["t"], 1):
        open_lane(pub)
        with pytest.raises(a3m.BadIdentifier, match="topic"):
            pub.send(wrong, b"x")  # type: ignore[arg-type]


def test_a_pattern_that_looks_at_every_message_has_no_lane(nodes: Nodes) -> None:
    class Loud(a3m.PubSocket):
        def try_send(self, item: tuple[str, bytes]) -> object:
            return super().try_send((item[0], item[1].upper()))

    a, b = nodes.pair()
    loud, sub = a.socket(Loud, "news"), b.sub("reader")
    sub.subscribe("")
    linked(loud, sub)
    eventually(lambda: len(loud._subscriptions.match(b"t")) == 1)
    for _ in range(300):
        assert loud.send("t", b"hello") == 1
        assert not loud._limit
    assert set(take(sub, 300)) == {("t", b"HELLO")}


def test_a_child_has_nothing_of_what_its_parent_publishes(nodes: Nodes) -> None:
    pub, _ = streaming(nodes, "z")
    with pub.core.lock:
        pub._limit = 10
        pub.abandon()  # what a fork() does to it in the child
    with pytest.raises(a3m.Closed):
        pub.send("t", b"x", timeout=0)


# ---- receiving -------------------------------------------------------------------------------------------------------


def test_what_was_borrowed_and_not_taken_is_still_there(nodes: Nodes) -> None:
    pub, (sub,) = streaming(nodes, "z", capacity=100)
    messages = numbered("t", count=40)
    for message in messages:
        pub.send(*message)
    eventually(lambda: sub.stats().received + sub.stats().queued == pub.stats().sent)
    assert skip_warm(sub) == messages[0]
    assert len(sub._batch) > 0
    assert sub.stats().queued == 39
    some = sub.recv_many(2)
    assert some == messages[1:3]
    assert {type(message) for message in some} == {a3m.Published}
    assert [message.topic for message in take(sub, 37)] == ["t"] * 37


def test_every_publisher_has_its_turn(nodes: Nodes) -> None:
    a, b = nodes.pair()
    sub = b.sub("reader")
    sub.subscribe("")
    pubs = [a.pub(f"news {number}") for number in range(3)]
    for number, pub in enumerate(pubs):
        linked(sub, pub)
        eventually(lambda pub=pub: len(pub._subscriptions.match(b"t")) == 1)  # type: ignore[misc]
        for n in range(30):
            pub.send(f"t{number}", b"plain" if n % 2 else [b"two", b"parts"])
    eventually(lambda: sub.stats().queued == 90)
    taken = take(sub, 90)
    assert [message.topic for message in taken] == [message.topic for message in taken[:3]] * 30
    assert {message.payload for message in taken} == {b"plain", (b"two", b"parts")}


def test_a_copy_of_a_publication_has_the_topic_in_front(nodes: Nodes) -> None:
    a, b = nodes.pair()
    xsub, xpub, copies = a.xsub("in"), a.xpub("out"), a.push("copies")
    pub, sub, ear = b.pub("news"), b.sub("reader"), b.pull("ear")
    linked(xsub, pub)
    linked(xpub, sub)
    linked(copies, ear)
    ending = in_background(a3m.proxy, xsub, xpub, capture=copies)
    sub.subscribe("zoë")
    eventually(lambda: len(pub._subscriptions.match("zoë".encode())) == 1)
    for _ in range(300):
        assert pub.send("zoë", b"x") == 1
    pub.send("zoë", [b"x", b"y"])
    assert take(sub, 301) == [*[("zoë", b"x")] * 300, ("zoë", (b"x", b"y"))]
    assert take(ear, 301) == [*[("zoë".encode(), b"x")] * 300, ("zoë".encode(), b"x", b"y")]
    xpub.close(timeout=0)
    assert result(ending).forwarded == 301


def test_a_publication_is_a_pair_with_names() -> None:
    published = a3m.Published("topic", b"payload")
    assert published == a3m.Published(payload=b"payload", topic="topic")
    assert tuple(published) == ("topic", b"payload")
    assert hash(published) == hash(("topic", b"payload"))
    assert (published.topic, published.payload) == ("topic", b"payload")
    assert repr(published) == "Published(topic='topic', payload=b'payload')"
    for copied in (copy(published), loads(dumps(published))):
        assert (type(copied), copied) == (a3m.Published, published)
    with pytest.raises(TypeError):
        a3m.Published("topic")  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        published.topic = "another"
    match published:
        case a3m.Published(topic, payload=b"payload"):
            assert topic == "topic"
        case _:
            pytest.fail("it has no names in patterns")


def test_no_publication_overtakes_one_that_is_still_in_the_lane(nodes: Nodes) -> None:
    a, b = nodes.pair()
    pub, sub = a.pub("news"), b.sub("reader", capacity=1)
    linked(sub, pub)
    sub.subscribe("t")
    eventually(lambda: pub.send("t", b"first", timeout=0) == 1)
    with a._core.lock:
        pub._lane.append(("t", b"too late"))  # by a thread that has not found out yet
        for link in pub._links.values():
            assert link.outgoing is not None
            link.outgoing.credits = 0
        assert pub.try_send(("t", b"second")) is WOULD_BLOCK
        assert pub.try_send(("u", b"third")) is WOULD_BLOCK  # wherever it goes
        assert pub._lane == [("t", b"too late")]
        for link in pub._links.values():
            assert link.outgoing is not None
            link.outgoing.credits = 1
        assert pub.try_send(("u", b"for nobody")) == 0
        assert pub._lane == []
