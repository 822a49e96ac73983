"""Nodes: sockets by name, what closing reports, events, peers that restart, statistics."""

from __future__ import annotations

import json

import pytest

import a3m
from tests.a3m.nodes import (
    PATIENCE,
    Nodes,
    at,
    crash,
    eventually,
    in_background,
    linked,
    peers,
    restarted,
    result,
    take,
    waiting,
)


def test_one_method_per_pattern(nodes: Nodes) -> None:
    a = nodes("a")
    for name in ("push", "pull", "req", "rep", "dealer", "router", "pub", "sub", "xpub", "xsub", "pair"):
        socket = getattr(a, name)(name)
        assert socket.protocol == name.upper() == getattr(a3m, name.upper())
        assert str(socket.id) == f"a/{name}"
        assert repr(socket) == f"<a3m {name.upper()} a/{name}>"
        again = a.socket(name.upper(), f"another {name}", capacity=3)
        assert type(again) is type(socket)
        assert again.options.capacity == 3


def test_names(nodes: Nodes) -> None:
    a = nodes("a")
    assert a.id == "a"
    assert a.address[0] == "127.0.0.1"
    assert repr(a) == f"<a3m.Node 'a' at {at(a)}>"
    with pytest.raises(a3m.BadIdentifier, match="reserved"):
        a.push("$mine")
    a.push("twice")
    with pytest.raises(a3m.BadIdentifier, match="already"):
        a.pull("twice")
    with pytest.raises(a3m.NotSupported, match="register_pattern"):
        a.socket("NONE", "x")
    for wrong in ("", "x" * 256, 7, None):
        with pytest.raises(a3m.BadIdentifier):
            a.push(wrong)  # type: ignore[arg-type]
        with pytest.raises(a3m.BadIdentifier):
            a3m.Node(wrong, bind="127.0.0.1:0")  # type: ignore[arg-type]
    with pytest.raises(a3m.BadIdentifier, match="'/'"):
        a3m.Node("a/b", bind="127.0.0.1:0")
    a.push("slashes/are/fine/in tags").link("a/x/y")


def test_what_cannot_start_says_so(nodes: Nodes) -> None:
    with pytest.raises(a3m.NotSupported, match="store"):
        a3m.Node("a", bind="127.0.0.1:0", store="x")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"a3m\.Options"):
        a3m.Node("a", bind="127.0.0.1:0", options={"max_message": 7})  # type: ignore[arg-type]
    with pytest.raises(a3m.BadAddress):
        a3m.Node("a", bind="nonsense")
    with pytest.raises(a3m.AddressInUse):
        a3m.Node("b", bind=at(nodes("a")))


def test_close_delivers_everything_and_says_so(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in")
    linked(push, pull)
    sent = [bytes([number]) * 300_000 for number in range(50)]
    push.send_many(sent)
    assert a.close(timeout=PATIENCE) == a3m.CloseReport(True, 0, 0, {})
    assert a.close() == a3m.CloseReport(True, 0, 0, {})  # the same report again
    assert take(pull, 50) == sent
    assert list(pull) == []


def test_close_reports_what_was_given_up(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in")
    linked(push, pull)
    crash(b)
    for _ in range(7):
        push.send(b"x")
    report = a.close(timeout=0.05)
    assert not report.clean
    assert report.undelivered + report.unknown == 7
    assert "b" in report.peers


def test_close_reports_what_never_left(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in")
    linked(push, pull)
    crash(b)
    push.send_many([bytes(1_000_000)] * 100)
    report = a.close(timeout=0)
    assert not report.clean
    assert report.undelivered > 0
    assert report.undelivered + report.unknown == 100


def test_everything_on_a_closed_node(nodes: Nodes) -> None:
    a = nodes("a")
    push = a.push("out")
    watching = in_background(lambda: list(a.events()))
    eventually(lambda: a._core.watchers)
    a.close()
    assert result(watching) == []
    assert list(a.events()) == []
    for call in (
        lambda: a.pull("in"),
        lambda: push.send(b"x"),
        lambda: a.register("b", "127.0.0.1:1"),
        lambda: a.rebind("127.0.0.1:0"),
    ):
        with pytest.raises(a3m.Closed):
            call()
    assert push.close()
    push.unlink("b/in")
    assert a.stats().sockets == {}
    a.unregister("b")


def test_several_threads_close_one_node(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in")
    linked(push, pull)
    push.send_many([b"x"] * 1000)
    reports = [in_background(a.close, PATIENCE) for _ in range(4)]
    assert {result(report).clean for report in reports} == {True}
    assert take(pull, 1000) == [b"x"] * 1000


def test_both_nodes_close_at_once(nodes: Nodes) -> None:
    a, b = nodes.pair()
    one, two = a.pair("one"), b.pair("two")
    linked(one, two)
    one.send_many([b"1"] * 500)
    two.send_many([b"2"] * 500)
    closing = [in_background(a.close, PATIENCE), in_background(b.close, PATIENCE)]
    assert [result(report).clean for report in closing] == [True, True]
    assert (take(one, 500), take(two, 500)) == ([b"2"] * 500, [b"1"] * 500)


def test_an_exception_closes_at_once(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in")
    linked(push, pull)
    crash(b)
    push.send(b"x")  # nobody answers, so any other close would wait
    with pytest.raises(ZeroDivisionError), a:
        raise ZeroDivisionError
    assert not a.close().clean


def test_events_of_links(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in")
    b.rep("answer")
    linked(push, pull)
    push.unlink(pull.id)
    push.wait_unlinked(timeout=PATIENCE)
    push.link("b/answer")
    with pytest.raises(a3m.LinkRefused):
        push.wait_linked("b/answer", timeout=PATIENCE)
    events = list(a.events(timeout=0))
    assert [(event.kind, event.peer, event.link) for event in events] == [
        ("linked", "b", pull.id),
        ("unlinked", "b", pull.id),
        ("refused", "b", ("b", "answer")),
    ]
    assert events[0].at <= events[1].at <= events[2].at
    assert list(a.events(timeout=0)) == []
    for _ in range(100):
        list(a.events(timeout=0))
    assert a._core.watchers == []  # those who left are forgotten


def test_an_event_wakes_who_waits_for_it(nodes: Nodes) -> None:
    a, b = nodes.pair()
    waiter = in_background(lambda: next(a.events(timeout=PATIENCE)))
    eventually(lambda: a._core.watchers)
    a.push("out").link("b/in")
    b.pull("in")
    assert result(waiter).kind == "linked"


@pytest.mark.parametrize("suddenly", [True, False])
def test_sockets_find_the_new_life_of_a_peer(nodes: Nodes, suddenly: bool) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out", retry=(0.01, 0.05)), b.pull("in")
    linked(push, pull)
    push.send(b"before")
    assert take(pull, 1) == [b"before"]
    if suddenly:
        crash(b)
        assert push.send_many([b"unsure"] * 5, timeout=0) == 5
    else:
        b.close(timeout=0)
    b = restarted(nodes, b)
    pull = b.pull("in")

    def found() -> bool:
        if not suddenly:
            push.link("b/in")  # the peer ended it, so it has to be wanted again, after the news of that has come
        return peers(pull) == [push.id]

    eventually(found)
    push.send(b"after", timeout=PATIENCE)
    received = [pull.recv(timeout=PATIENCE)]
    while received[-1] != b"after":
        received.append(pull.recv(timeout=PATIENCE))
    assert received == [b"after"]
    if suddenly:
        # The peer said nothing about the first one either: whoever takes a message says so a batch at a time.
        events = [event for event in a.events(timeout=0) if event.kind in ("restarted", "unlinked")]
        assert "restarted" in [event.kind for event in events]
        assert any("6 messages may not have arrived" in event.detail for event in events)
        assert push.stats().unknown == a.stats().unknown == 6
        assert not a.close(timeout=PATIENCE).clean


def test_a_receiver_notices_that_its_peer_restarted(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in", retry=(0.01, 0.05))
    linked(pull, push)
    push.send(b"old")
    assert take(pull, 1) == [b"old"]
    crash(a)
    a = restarted(nodes, a)
    push = a.push("out")
    push.link("b/in")
    push.send(b"new", timeout=PATIENCE)
    assert take(pull, 1) == [b"new"]
    assert peers(pull) == [push.id]


def test_a_question_to_a_node_that_restarts_is_known_to_be_lost(nodes: Nodes) -> None:
    a, b = nodes.pair()
    req, rep = a.req("ask", retry=(0.01, 0.05)), b.rep("answer")
    linked(req, rep)
    req.send(b"x")
    assert take(rep, 1) == [b"x"]
    receiving = in_background(req.recv, timeout=60)
    waiting(req)
    crash(b)
    b = restarted(nodes, b)
    rep = b.rep("answer")
    a.dealer("probe").link("b/answer")  # something is said to the new life
    with pytest.raises(a3m.DeliveryUnknown, match=r"b/answer is closed: its node restarted; .* handled is not known"):
        receiving.result(timeout=60)
    req.send(b"y", timeout=PATIENCE)
    assert take(rep, 1) == [b"y"]


def test_statistics(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in")
    linked(push, pull)
    push.send_many([b"x"] * 10)
    eventually(lambda: pull.stats().queued == 10)
    take(pull, 4)
    receiving = pull.stats()
    assert (receiving.received, receiving.queued, receiving.links, receiving.sent) == (4, 6, 1, 0)
    assert push.stats().sent == 10
    everything = b.stats()
    assert everything.sockets["in"] == receiving
    plain = everything.as_dict()
    assert plain["sockets"]["in"]["received"] == 4
    assert plain["transport"]["messages_delivered"] > 0
    json.dumps(plain)
    json.dumps(push.stats().as_dict())


def test_messages_for_nobody_are_counted(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push = a.push("out")
    push.link("b/nobody")
    eventually(lambda: b.stats().dropped.get("no such socket", 0) > 0)


def test_discovery(nodes: Nodes) -> None:
    b = nodes("b")
    pull = b.pull("in")
    nodes.forget(b)
    a = nodes("a", discovery=a3m.StaticDiscovery({"b": at(b)}))
    push = a.push("out")
    push.link("b/in")
    push.send(b"found", timeout=PATIENCE)
    assert take(pull, 1) == [b"found"]
    c = nodes("c")
    c.set_discovery(a3m.StaticDiscovery({"b": at(b)}))
    other = c.push("out")
    other.link("b/in")
    other.send(b"too", timeout=PATIENCE)
    assert take(pull, 1) == [b"too"]
