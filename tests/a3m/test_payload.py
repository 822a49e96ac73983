"""Payloads: bytes of every kind, parts that stay together, and what is not a payload."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import a3m
from a3m.messages import Malformed
from a3m.payload import check_run, from_body, is_item, routed, split, to_item
from tests.a3m.nodes import PATIENCE, Nodes, linked, take

parts = st.binary(max_size=20) | st.lists(st.binary(max_size=20), min_size=1, max_size=5)


@given(parts, st.lists(st.text(min_size=1, max_size=10), max_size=4))
def test_what_is_sent_is_what_is_received(payload: bytes | list[bytes], route: list[str]) -> None:
    item = routed(route, to_item(payload, 4096))
    assert is_item(item)
    way, body = split(item)
    assert list(way) == route
    expected = payload[0] if isinstance(payload, list) and len(payload) == 1 else payload
    assert from_body(body) == (tuple(expected) if isinstance(expected, list) else expected)


@given(st.recursive(st.none() | st.binary() | st.text() | st.integers(), st.lists))
def test_nothing_else_is_taken_for_a_message(thing: Any) -> None:
    if is_item(thing):
        way, body = split(thing)
        assert all(isinstance(hop, str) for hop in way)
        received = from_body(body)
        assert isinstance(received, bytes) or all(isinstance(part, bytes) for part in received)


@pytest.mark.parametrize(
    ("sent", "received"),
    [
        (b"", b""),
        (b"x", b"x"),
        (bytearray(b"x"), b"x"),
        (memoryview(b"xyz")[1:], b"yz"),
        ([b"one"], b"one"),
        ([b""], b""),
        ([b"one", b"two"], (b"one", b"two")),
        ((b"", bytearray(b"x"), memoryview(b"y")), (b"", b"x", b"y")),
    ],
)
def test_bytes_and_parts(nodes: Nodes, sent: Any, received: Any) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in")
    linked(push, pull)
    push.send(sent)
    assert pull.recv(timeout=PATIENCE) == received
    push.send(sent)
    assert pull.recv_parts(timeout=PATIENCE) == (list(received) if isinstance(received, tuple) else [received])


def test_a_payload_that_changes_later_was_sent_as_it_was(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in", capacity=0)
    linked(push, pull)
    pull.link_to(push.id).capacity = 2
    changing, several = bytearray(b"before"), [b"before", b"before"]
    push.send(changing, timeout=PATIENCE)
    push.send(several, timeout=PATIENCE)
    changing[:] = b"after!"
    several[0] = b"after"
    assert pull.recv(timeout=PATIENCE) == b"before"
    assert pull.recv(timeout=PATIENCE) == (b"before", b"before")


@pytest.mark.parametrize(
    ("wrong", "advice"),
    [
        ("text", r"\.encode\(\)"),
        (None, "serialise"),
        (7, "serialise"),
        ({b"a": b"b"}, "serialise"),
        ([], "at least one part"),
        ([b"x", "text"], "each part"),
        ([[b"nested"]], "each part"),
    ],
)
def test_what_is_not_a_payload(nodes: Nodes, wrong: Any, advice: str) -> None:
    with pytest.raises(a3m.BadPayload, match=advice):
        nodes("a").push("out").send(wrong, timeout=0)


def test_messages_have_a_limit(nodes: Nodes) -> None:
    a = nodes("a", options=a3m.Options(max_message=10_000))
    b = nodes("b", options=a3m.Options(max_message=10_000))
    push, pull = a.push("out"), b.pull("in")
    linked(push, pull)
    with pytest.raises(a3m.MessageTooLarge, match="max_message"):
        push.send(bytes(10_000))
    with pytest.raises(a3m.MessageTooLarge):
        push.send([b""] * 10_000)  # each part costs something, too
    with pytest.raises(a3m.MessageTooLarge):
        push.send([bytes(5_000)] * 2)
    push.send(bytes(10_000 - 1024))
    assert len(pull.recv(timeout=PATIENCE)) == 10_000 - 1024


def test_the_way_counts(nodes: Nodes) -> None:
    a = nodes("a", options=a3m.Options(max_message=10_000))
    b = nodes("b", options=a3m.Options(max_message=10_000))
    dealer, router = a.dealer("deal"), b.router("route")
    pub, sub = a.pub("news"), b.sub("reader")
    linked(dealer, router)
    linked(sub, pub)
    with pytest.raises(a3m.MessageTooLarge):
        router.send(bytes(8_000), to=("x" * 200 + "/t",) * 10 + (str(dealer.id),))
    with pytest.raises(a3m.MessageTooLarge):
        pub.send("t" * 5_000, bytes(5_000))
    with pytest.raises(a3m.MessageTooLarge):
        sub.subscribe("t" * 10_000)
    router.send(b"still working", to=dealer.id)
    assert dealer.recv(timeout=PATIENCE) == b"still working"


def test_many_messages_travel_together_within_the_limit(nodes: Nodes) -> None:
    a = nodes("a", options=a3m.Options(max_message=10_000))
    b = nodes("b", options=a3m.Options(max_message=10_000))
    push, pull = a.push("out"), b.pull("in")
    linked(push, pull)
    sent = [[bytes([number])] * 900 for number in range(100)] + [bytes(1_000)] * 100
    assert push.send_many(sent) == 200
    assert [pull.recv_parts(timeout=PATIENCE) for _ in range(100)] == sent[:100]
    assert take(pull, 100) == sent[100:]


def test_a_message_that_grew_on_its_way_ends_its_link_and_not_the_node(nodes: Nodes) -> None:
    a = nodes("a", options=a3m.Options(max_message=10_000))
    b = nodes("b", options=a3m.Options(max_message=10_000))
    dealer, other, router = a.dealer("deal"), a.dealer("other"), b.router("route")
    linked(router, dealer, other)
    with router.core.lock:
        link = next(link for link in router.established if link.peer == dealer.id)
        router.push(link, routed(["n/" + "x" * 250] * 64, b"x"))
        router.core.work()
    router.wait_unlinked(dealer.id, timeout=PATIENCE)
    assert b.stats().dropped == {"message too large": 1}
    router.send(b"still working", to=other.id)
    assert take(other, 1) == [b"still working"]
    report = b.close(timeout=PATIENCE)
    assert (report.clean, report.undelivered, report.unknown) == (False, 1, 0)


def test_a_run_has_messages() -> None:
    assert check_run(0, [b""])
    with pytest.raises(Malformed):
        check_run(0, [])
