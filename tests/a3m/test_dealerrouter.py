"""DEALER and ROUTER: many questions at a time, answers along the way back, any bytes unchanged."""

from __future__ import annotations

import pytest

import a3m
from tests.a3m.nodes import PATIENCE, Nodes, eventually, in_background, linked, nothing_left, result, take, waiting


def test_a_router_answers_along_the_route(nodes: Nodes) -> None:
    a, b = nodes.pair()
    dealer, req, router = a.dealer("deal"), a.req("ask"), b.router("route")
    linked(router, dealer, req)
    dealer.send(b"from the dealer")
    message = router.recv(timeout=PATIENCE)
    assert message == a3m.Routed(message.route, b"from the dealer")
    router.send(b"to the dealer", to=message.route)
    assert take(dealer, 1) == [b"to the dealer"]
    req.send(b"from the requester")
    message = router.recv(timeout=PATIENCE)
    router.send(b"to the requester", to=message.route)
    assert take(req, 1) == [b"to the requester"]


def test_a_router_sends_by_name(nodes: Nodes) -> None:
    a, b = nodes.pair()
    dealer, router = a.dealer("deal"), b.router("route")
    linked(dealer, router)
    router.send(b"1", to="a/deal")
    router.send(b"2", to=dealer.id)
    assert sorted(take(dealer, 2)) == [b"1", b"2"]


@pytest.mark.parametrize(
    "payload",
    [b"", b"\x00", b"\xc0", b"a/b", b"#1", (b"", b""), (b"\xc0", b"x", b"y"), bytes(range(256)) * 1000],
    ids=lambda payload: repr(payload[:3]),
)
def test_any_bytes_pass_unchanged(nodes: Nodes, payload: bytes | tuple[bytes, ...]) -> None:
    a, b = nodes.pair()
    dealer, req, router = a.dealer("deal"), a.req("ask"), b.router("route")
    linked(router, dealer, req)
    for asker in (dealer, req):
        asker.send(payload)
        message = router.recv(timeout=PATIENCE)
        assert message.payload == payload
        router.send(message.payload, to=message.route)
        assert asker.recv(timeout=PATIENCE) == payload


def test_no_route(nodes: Nodes) -> None:
    a, b = nodes.pair()
    dealer, router = a.dealer("deal"), b.router("route")
    with pytest.raises(a3m.NoRoute, match="a/deal"):
        router.send(b"x", to=dealer.id)
    linked(dealer, router)
    router.send(b"x", to=dealer.id)
    dealer.unlink(router.id)
    router.wait_unlinked(timeout=PATIENCE)
    with pytest.raises(a3m.NoRoute, match="the message was not sent"):
        router.send(b"y", to=dealer.id, timeout=PATIENCE)
    assert take(dealer, 1) == [b"x"]
    for wrong in ((), "", None, 7, (7,), "no slash"):
        with pytest.raises(a3m.BadIdentifier):
            router.send(b"x", to=wrong)  # type: ignore[arg-type]


def test_a_send_that_waits_is_told_that_its_link_ends(nodes: Nodes) -> None:
    a, b = nodes.pair()
    dealer, router = a.dealer("deal", capacity=1), b.router("route")
    linked(dealer, router)
    router.send(b"0", to=dealer.id)
    with pytest.raises(a3m.Timeout):
        router.send(b"1", to=dealer.id, timeout=0)
    sending = in_background(router.send, b"1", to=dealer.id)
    waiting(router)
    router.unlink(dealer.id)
    with pytest.raises(a3m.NoRoute):
        result(sending)
    assert take(dealer, 1) == [b"0"]
    assert nothing_left(dealer)


def test_sends_that_wait_for_different_links_do_not_hold_each_other_up(nodes: Nodes) -> None:
    a, b = nodes.pair()
    one, two, router = a.dealer("one", capacity=1), a.dealer("two", capacity=1), b.router("route")
    linked(router, one, two)
    router.send(b"0", to=one.id)
    router.send(b"0", to=two.id)
    for_one = in_background(router.send, b"1", to=one.id)
    waiting(router, 1)
    for_two = in_background(router.send, b"1", to=two.id)
    waiting(router, 2)
    assert take(two, 1) == [b"0"]
    result(for_two)
    assert not for_one.done()
    assert take(one, 2) == [b"0", b"1"]
    result(for_one)


def test_a_chain_of_routers(nodes: Nodes) -> None:
    a, b = nodes.pair()
    req, first, middle, last = a.req("ask"), b.router("first"), a.router("middle"), b.router("last")
    linked(first, req, middle)
    linked(middle, last)
    req.send(b"question")
    # Each router names the next one and leaves the way back to the message.
    message = take(first, 1)[0]
    first.send(message.payload, to=(*message.route, str(middle.id)))
    message = take(middle, 1)[0]
    assert len(message.route) == 3
    middle.send(message.payload, to=(*message.route, str(last.id)))
    message = take(last, 1)[0]
    assert message.payload == b"question"
    last.send(b"answer", to=message.route)
    message = take(middle, 1)[0]
    middle.send(message.payload, to=message.route[:-1])
    message = take(first, 1)[0]
    assert message.payload == b"answer"
    first.send(message.payload, to=message.route[:-1])
    assert take(req, 1) == [b"answer"]


def test_a_route_has_an_end(nodes: Nodes) -> None:
    a, b = nodes.pair()
    dealer, router = a.dealer("deal"), b.router("route")
    linked(dealer, router)
    with pytest.raises(a3m.BadIdentifier, match="hops"):
        router.send(b"x", to=("n/t",) * 65 + (str(dealer.id),))
    router.send(b"y", to=("n/t",) * 64 + (str(dealer.id),))
    assert take(dealer, 1) == [b"y"]


def test_dealers_take_turns(nodes: Nodes) -> None:
    a, b = nodes.pair()
    dealer = a.dealer("deal")
    others = [b.dealer("dealer"), b.rep("rep"), b.router("router")]
    linked(dealer, *others)
    for number in range(30):
        dealer.send(b"%d" % number)
    for other in others:
        eventually(lambda other=other: other.stats().queued == 10)  # type: ignore[misc]


def test_a_dealer_and_a_replier(nodes: Nodes) -> None:
    a, b = nodes.pair()
    dealer, rep = a.dealer("deal"), b.rep("answer")
    linked(dealer, rep)
    dealer.send_many([b"%d" % number for number in range(10)])
    for _ in range(10):
        rep.send(rep.recv(timeout=PATIENCE))
    assert sorted(take(dealer, 10)) == sorted(b"%d" % number for number in range(10))


def test_order_is_an_option(nodes: Nodes) -> None:
    a, b = nodes.pair()
    assert not a.dealer("d").options.ordered
    assert not a.router("r").options.ordered
    sender, receiver = a.dealer("out"), b.dealer("in", ordered=True, capacity=16)
    linked(sender, receiver)
    sending = in_background(sender.send_many, [b"%d" % number for number in range(2000)])
    assert [int(message) for message in take(receiver, 2000)] == list(range(2000))
    assert result(sending) == 2000
