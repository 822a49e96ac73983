"""Proxies: everything arrives once, nothing is taken that cannot be forwarded, and leaving harms nobody."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from threading import Event
from typing import Any

import pytest

import a3m
from a3m import Node, Socket, Subscription
from a3m.proxy import ProxyReport
from tests.exon.endpoints import PATIENCE, eventually, in_background

WAYS = [("pull", "push"), ("router", "dealer"), ("xsub", "xpub")]


class World(ExitStack):
    """Nodes that know each other; closed at once when the test is over."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes: dict[str, Node] = {}
        self.stop = Event()
        self.callback(self.stop.set)

    def __call__(self, name: str, **options: Any) -> Node:
        if name not in self.nodes:
            node = Node(name, bind="127.0.0.1:0", options=a3m.Options(**options))
            self.callback(node.close, 0)
            for other in self.nodes.values():
                node.register(other.id, f"127.0.0.1:{other.address[1]}")
                other.register(name, f"127.0.0.1:{node.address[1]}")
            self.nodes[name] = node
        return self.nodes[name]

    def proxy(self, front: Socket, back: Socket, **arguments: Any) -> Future[ProxyReport]:
        return in_background(a3m.proxy, front, back, stop=self.stop, **arguments)


@pytest.fixture
def world() -> Iterator[World]:
    with World() as world:
        yield world


def link(socket: Socket, *peers: str) -> None:
    for peer in peers:
        socket.link(peer)
    for peer in peers:
        socket.wait_linked(peer, timeout=PATIENCE)


def take(socket: Socket, count: int) -> list[Any]:
    return [socket.recv(timeout=PATIENCE) for _ in range(count)]


@pytest.mark.parametrize("other", ["relay", "relay-2"], ids=["one node", "two nodes"])
@pytest.mark.parametrize("turned", [False, True])
def test_work_goes_through_whichever_socket_comes_first(world: World, turned: bool, other: str) -> None:
    source, sink = world("a").push("source"), world("b").pull("sink")
    pull, push = world("relay").pull("in"), world(other).push("out")
    running = world.proxy(*((push, pull) if turned else (pull, push)))
    link(source, "relay/in")
    link(push, "b/sink")
    sent: list[Any] = [b"", b"one", (b"two", b"parts"), *(b"%d" % number for number in range(1000))]
    sender = in_background(source.send_many, sent, timeout=PATIENCE)
    assert take(sink, len(sent)) == sent  # in order, since there is one link on each side
    sender.result(PATIENCE)
    world.stop.set()
    assert running.result(PATIENCE) == ProxyReport(len(sent), 0, 0, 0, 0)


def test_replies_find_their_way_back_through_two_proxies(world: World) -> None:
    requesters = [world("a").req(f"asker-{number}") for number in range(4)]
    repliers = [world("b").rep(f"answerer-{number}") for number in range(3)]
    router, dealer = world("relay").router("front"), world("relay").dealer("back")
    router2, dealer2 = world("relay-2").router("front"), world("relay-2").dealer("back")
    world.proxy(router, dealer)
    world.proxy(dealer2, router2)
    link(dealer, "relay-2/front")
    link(dealer2, *(str(replier.id) for replier in repliers))
    for requester in requesters:
        link(requester, "relay/front")

    def answer(replier: a3m.RepSocket) -> None:
        while True:
            replier.send((replier.recv(), str(replier.id).encode()))

    def ask(requester: a3m.ReqSocket) -> list[Any]:
        answers = []
        for number in range(50):
            requester.send(f"{requester.id} {number}".encode(), timeout=PATIENCE)
            answers.append(requester.recv(timeout=PATIENCE))
        return answers

    for replier in repliers:
        in_background(answer, replier)
    asked = [(requester, in_background(ask, requester)) for requester in requesters]
    seen: Counter[bytes] = Counter()
    for requester, future in asked:
        answers = future.result(PATIENCE)
        assert [question for question, _ in answers] == [f"{requester.id} {number}".encode() for number in range(50)]
        seen.update(by for _, by in answers)
    assert set(seen) == {str(replier.id).encode() for replier in repliers}  # and everybody had something to do


def test_publications_and_subscriptions_go_through(world: World) -> None:
    pub, sub = world("a").pub("news"), world("b").sub("reader")
    xsub, xpub = world("relay").xsub("in"), world("relay").xpub("out")
    running = world.proxy(xsub, xpub)
    link(pub, "relay/in")
    link(sub, "relay/out")
    assert pub.send("weather.lisbon", b"nobody wants it") == 0
    sub.subscribe("weather.", "sport.")
    eventually(lambda: pub.send("weather.lisbon", b"sunny"))
    assert pub.send("politics", b"not wanted") == 0
    assert pub.send("sport.tennis", b"rain") == 1
    assert take(sub, 2) == [("weather.lisbon", b"sunny"), ("sport.tennis", b"rain")]
    sub.unsubscribe("weather.")
    eventually(lambda: not pub.send("weather.lisbon", b"more"))
    sub.close()
    eventually(lambda: not pub.send("sport.tennis", b"the end"))
    world.stop.set()
    report = running.result(PATIENCE)
    assert report.returned == 3  # one for both topics, one without the first, one for the end
    assert report.forwarded >= 2


@pytest.mark.parametrize("topic", [b"\xff" * 60_000, b"\xff"])
def test_a_prefix_that_is_not_text_does_not_end_the_proxy(world: World, topic: bytes) -> None:
    pub, sub = world("a").pub("news"), world("b").sub("reader")
    xsub, xpub = world("relay").xsub("in"), world("relay").xpub("out")
    world.proxy(xsub, xpub)
    link(pub, "relay/in")
    link(sub, "relay/out")
    with sub.core.lock:
        for established in sub.established:
            sub.send_control(established, a3m.patterns.pubsub.SUBSCRIBE, (True, [topic]))
        sub.core.work()
    sub.subscribe("weather.")
    eventually(lambda: pub.send("weather.lisbon", b"sunny"))
    assert sub.recv(timeout=PATIENCE) == ("weather.lisbon", b"sunny")


def test_a_slow_receiver_behind_the_proxy_slows_the_sender(world: World) -> None:
    source, sink = world("a").push("source"), world("b").pull("sink", capacity=10, batch=0.1)
    pull, push = world("relay").pull("in", capacity=10, batch=0.1), world("relay").push("out")
    world.proxy(pull, push)
    link(source, "relay/in")
    link(push, "b/sink")
    sender = in_background(source.send_many, [b"%d" % number for number in range(100)], timeout=PATIENCE)
    eventually(lambda: sink.stats().queued == pull.stats().queued == 10)  # all that there is room for
    assert source.stats().sent == 20  # and none is inside the proxy
    assert take(sink, 100) == [b"%d" % number for number in range(100)]
    assert sender.result(PATIENCE) == 100


def test_nothing_is_taken_while_there_is_nobody_to_forward_to(world: World) -> None:
    source = world("a").push("source")
    pull, push = world("relay").pull("in"), world("relay").push("out")
    running = world.proxy(pull, push)
    link(source, "relay/in")
    source.send_many([b"1", b"2", b"3"])
    eventually(lambda: pull.stats().queued == 3)
    world.stop.set()
    assert running.result(PATIENCE) == ProxyReport(0, 0, 0, 0, 0)
    assert take(pull, 3) == [b"1", b"2", b"3"]  # all still here


def test_a_requester_that_takes_no_replies_holds_up_only_those_behind_it(world: World) -> None:
    slow, quick = world("a").dealer("slow", capacity=1), world("a").dealer("quick")
    router, dealer = world("relay").router("front"), world("relay").dealer("back", ordered=True)
    first, second = world("b").router("first"), world("b").router("second")
    world.proxy(router, dealer)
    link(slow, "relay/front")
    link(quick, "relay/front")
    link(dealer, "b/first")
    for requester in (slow, quick):
        requester.send(b"question", timeout=PATIENCE)
    routes = {message.route[0]: message.route for message in take(first, 2)}
    for _ in range(3):
        first.send(b"for slow", to=routes["a/slow"], timeout=PATIENCE)
    eventually(lambda: slow.stats().queued == 1 and dealer.stats().queued == 2)
    link(dealer, "b/second")
    second.wait_linked("relay/back", timeout=PATIENCE)
    second.send(b"for quick", to=("a/quick", "relay/back"), timeout=PATIENCE)
    assert quick.recv(timeout=PATIENCE) == b"for quick"
    assert take(slow, 3) == [b"for slow"] * 3


def test_a_subscriber_that_has_room_gets_what_another_has_no_room_for(world: World) -> None:
    pub, full, free = world("a").pub("news"), world("b").sub("full", capacity=1), world("b").sub("free", capacity=1)
    xsub, xpub = world("relay").xsub("in"), world("relay").xpub("out")
    world.proxy(xsub, xpub)
    link(pub, "relay/in")
    link(full, "relay/out")
    link(free, "relay/out")
    full.subscribe("full")
    free.subscribe("free")
    eventually(lambda: len(pub._subscriptions.match(b"full")) and len(pub._subscriptions.match(b"free")))
    pub.send("full", b"1")
    pub.send("free", b"1")
    pub.send("free", b"2")  # waits in the proxy's XSUB until the subscriber takes its first one
    eventually(lambda: xsub.stats().queued == 1 and full.stats().queued == free.stats().queued == 1)
    assert take(free, 2) == [("free", b"1"), ("free", b"2")]  # although the other is full all the time
    assert full.recv(timeout=PATIENCE) == ("full", b"1")


def test_a_publisher_whose_message_has_to_wait_lets_others_go_first(world: World) -> None:
    first, second = world("a").pub("first"), world("a").pub("second")
    full, free = world("b").sub("full", capacity=1), world("b").sub("free", capacity=1)
    xsub, xpub = world("relay").xsub("in"), world("relay").xpub("out")
    world.proxy(xsub, xpub)
    for publisher in (first, second):
        link(publisher, "relay/in")
    link(full, "relay/out")
    link(free, "relay/out")
    full.subscribe("full")
    free.subscribe("free")
    eventually(lambda: first._subscriptions.match(b"full") and second._subscriptions.match(b"free"))
    first.send("full", b"1")
    first.send("full", b"2")
    eventually(lambda: xsub.stats().queued == 1 and full.stats().queued == 1)
    second.send("free", b"1")
    assert free.recv(timeout=PATIENCE) == ("free", b"1")
    assert take(full, 2) == [("full", b"1"), ("full", b"2")]


def test_replies_to_those_who_left_are_counted_and_the_others_arrive(world: World) -> None:
    gone, here = world("a").dealer("gone"), world("a").dealer("here")
    router, dealer = world("relay").router("front"), world("relay").dealer("back")
    answerer = world("b").router("answerer")
    running = world.proxy(router, dealer)
    link(dealer, "b/answerer")
    for requester in (gone, here):
        link(requester, "relay/front")
        requester.send(b"question", timeout=PATIENCE)
    routes = {message.route[0]: message.route for message in take(answerer, 2)}
    gone.close()
    router.wait_unlinked("a/gone", timeout=PATIENCE)
    answerer.send(b"too late", to=routes["a/gone"])
    answerer.send(b"no route at all", to="relay/back")
    answerer.send(b"nonsense", to=("not a socket", "relay/back"))
    answerer.send(b"in time", to=routes["a/here"])
    assert here.recv(timeout=PATIENCE) == b"in time"
    eventually(lambda: dealer.stats().queued == 0 and dealer.stats().received == 4)
    world.stop.set()
    assert running.result(PATIENCE) == ProxyReport(2, 1, 3, 0, 0)
    dropped = [event for event in world("relay").events(timeout=0) if event.kind == "dropped"]
    assert [event.link for event in dropped] == [answerer.id] * 3
    assert "relay/front has no link with a/gone" in "".join(event.detail for event in dropped)


def test_messages_too_large_for_the_way_are_counted_and_the_others_arrive(world: World) -> None:
    source, sink = world("a").push("source"), world("b").pull("sink")
    small = world("small", max_message=10_000)
    pull, push = world("relay").pull("in"), small.push("out")
    running = world.proxy(pull, push)
    link(source, "relay/in")
    link(push, "b/sink")
    source.send_many([b"before", bytes(20_000), b"after"], timeout=PATIENCE)
    assert take(sink, 2) == [b"before", b"after"]
    world.stop.set()
    assert running.result(PATIENCE) == ProxyReport(2, 0, 1, 0, 0)


def test_copies_too_large_for_the_way_are_only_counted(world: World) -> None:
    source, sink, watcher = world("a").push("source"), world("b").pull("sink"), world("c").pull("watcher")
    pull, push = world("relay").pull("in"), world("relay").push("out")
    capture = world("small", max_message=10_000).push("capture")
    running = world.proxy(pull, push, capture=capture)
    link(source, "relay/in")
    link(push, "b/sink")
    link(capture, "c/watcher")
    source.send_many([b"before", bytes(20_000), b"after"], timeout=PATIENCE)
    assert take(sink, 3) == [b"before", bytes(20_000), b"after"]
    assert take(watcher, 2) == [b"before", b"after"]
    world.stop.set()
    assert running.result(PATIENCE) == ProxyReport(3, 0, 0, 2, 1)


def test_a_message_that_has_gone_in_circles_is_given_up(world: World) -> None:
    liar, sink = world("a").router("liar"), world("b").router("sink")
    router, dealer = world("relay").router("front"), world("relay").dealer("back")
    running = world.proxy(router, dealer)
    link(liar, "relay/front")
    link(dealer, "b/sink")
    liar.send(b"round and round", to=(*["n/hop"] * 64, "relay/front"))
    liar.send(b"straight", to="relay/front")
    assert sink.recv(timeout=PATIENCE) == (("a/liar", "relay/back"), b"straight")
    world.stop.set()
    assert running.result(PATIENCE) == ProxyReport(1, 0, 1, 0, 0)
    dropped = [event.detail for event in world("relay").events(timeout=0) if event.kind == "dropped"]
    assert dropped == ["what came to relay/front: its route has 65 hops, 64 are allowed; do proxies form a circle?"]


def test_closing_the_front_forwards_what_has_come(world: World) -> None:
    source, sink = world("a").push("source"), world("b").pull("sink")
    pull, push = world("relay").pull("in"), world("relay").push("out")
    link(source, "relay/in")
    source.send_many([b"%d" % number for number in range(600)])
    eventually(lambda: pull.stats().queued == 600)
    assert pull.close(timeout=PATIENCE)
    running = in_background(a3m.proxy, pull, push)  # without stop: it ends by itself
    link(push, "b/sink")
    assert take(sink, 600) == [b"%d" % number for number in range(600)]
    assert running.result(PATIENCE).forwarded == 600


def test_nothing_is_taken_for_a_target_that_is_closed(world: World) -> None:
    pub, xsub, xpub = world("a").pub("news"), world("relay").xsub("in"), world("relay").xpub("out")
    link(pub, "relay/in")
    xsub.send(Subscription(("",), True))
    eventually(lambda: pub.send("weather", b"sunny"))
    eventually(lambda: xsub.stats().queued == 1)
    xpub.close()
    assert a3m.proxy(xsub, xpub) == ProxyReport(0, 0, 0, 0, 0)
    assert xsub.recv(timeout=0) == ("weather", b"sunny")  # an XPUB without links would have sent it to nobody


@pytest.mark.parametrize("closed", [0, 1])
@pytest.mark.parametrize("way", WAYS)
def test_it_ends_when_a_socket_is_closed(world: World, way: tuple[str, str], closed: int) -> None:
    sockets = [getattr(world("relay"), pattern)(pattern) for pattern in way]
    running = in_background(a3m.proxy, *sockets)
    eventually(lambda: all(socket.stats().waiting for socket in sockets))
    sockets[closed].close()
    assert running.result(PATIENCE) == ProxyReport(0, 0, 0, 0, 0)
    assert [socket.stats().waiting for socket in sockets] == [0, 0]  # it left the wait queues


def test_it_ends_when_its_node_is_closed(world: World) -> None:
    node = world("relay")
    running = in_background(a3m.proxy, node.router("front"), node.dealer("back"))
    node.close()
    running.result(PATIENCE)


@pytest.mark.parametrize("pattern", ["push", "pair"])
def test_a_capture_socket_gets_a_copy_of_everything(world: World, pattern: str) -> None:
    asker, answerer = world("a").req("asker"), world("b").rep("answerer")
    router, dealer = world("relay").router("front"), world("relay").dealer("back")
    capture = getattr(world("relay"), pattern)("capture")
    watcher = getattr(world("c"), {"push": "pull"}.get(pattern, pattern))("watcher")
    running = world.proxy(router, dealer, capture=capture)
    link(capture, "c/watcher")
    link(asker, "relay/front")
    link(dealer, "b/answerer")
    asker.send((b"what", b"time"), timeout=PATIENCE)
    assert answerer.recv(timeout=PATIENCE) == (b"what", b"time")
    answerer.send(b"noon", timeout=PATIENCE)
    assert asker.recv(timeout=PATIENCE) == b"noon"
    assert take(watcher, 2) == [(b"what", b"time"), b"noon"]
    world.stop.set()
    assert running.result(PATIENCE) == ProxyReport(1, 1, 0, 2, 0)


@pytest.mark.parametrize("topic", ["", "weather"])
def test_copies_can_be_published(world: World, topic: str) -> None:
    front, back = ("xsub", "xpub") if topic else ("pull", "push")
    source: Any = world("a").pub("source") if topic else world("a").push("source")
    sink: Any = world("b").sub("sink") if topic else world("b").pull("sink")
    incoming, outgoing = getattr(world("relay"), front)("in"), getattr(world("relay"), back)("out")
    capture, watcher = world("relay").pub("capture"), world("c").sub("watcher")
    world.proxy(incoming, outgoing, capture=capture)
    link(source, "relay/in")
    link(outgoing, "b/sink")
    link(watcher, "relay/capture")
    watcher.subscribe(topic)
    eventually(lambda: capture._subscriptions.match(topic.encode()))
    if topic:
        sink.subscribe(topic)
        eventually(lambda: source._subscriptions.match(topic.encode()))
        source.send(topic, (b"two", b"parts"))
    else:
        source.send((b"two", b"parts"))
    assert watcher.recv(timeout=PATIENCE) == (topic, (b"two", b"parts"))


def test_a_capture_socket_without_room_does_not_hold_up_the_proxy(world: World) -> None:
    source, sink = world("a").push("source"), world("b").pull("sink")
    pull, push = world("relay").pull("in"), world("relay").push("out")
    capture, watcher = world("relay").push("capture"), world("c").pull("watcher", capacity=5)
    running = world.proxy(pull, push, capture=capture)
    link(source, "relay/in")
    link(push, "b/sink")
    link(capture, "c/watcher")
    sender = in_background(source.send_many, [b"%d" % number for number in range(3000)], timeout=PATIENCE)
    assert take(sink, 3000) == [b"%d" % number for number in range(3000)]
    sender.result(PATIENCE)
    world.stop.set()
    assert running.result(PATIENCE) == ProxyReport(3000, 0, 0, 5, 2995)
    assert take(watcher, 5) == [b"%d" % number for number in range(5)]


@pytest.mark.parametrize("pattern", ["push", "pub"])
def test_a_closed_capture_socket_is_only_counted(world: World, pattern: str) -> None:
    source, sink = world("a").push("source"), world("b").pull("sink")
    pull, push = world("relay").pull("in"), world("relay").push("out")
    capture = getattr(world("relay"), pattern)("capture")
    capture.close()
    running = world.proxy(pull, push, capture=capture)
    link(source, "relay/in")
    link(push, "b/sink")
    source.send(b"message")
    assert sink.recv(timeout=PATIENCE) == b"message"
    world.stop.set()
    assert running.result(PATIENCE).missed == 1


def test_two_proxies_between_the_same_nodes_in_opposite_directions(world: World) -> None:
    sinks = []
    for number, (here, there) in enumerate([("x", "y"), ("y", "x")]):
        source, sink = world("a").push(f"source-{number}"), world("b").pull(f"sink-{number}")
        world.proxy(world(here).pull(f"in-{number}"), push := world(there).push(f"out-{number}"))
        link(source, f"{here}/in-{number}")
        link(push, f"b/sink-{number}")
        sinks.append((sink, in_background(source.send_many, [b"x"] * 5000, timeout=PATIENCE)))
    for sink, sender in sinks:
        take(sink, 5000)
        assert sender.result(PATIENCE) == 5000


@pytest.mark.parametrize(
    ("front", "back"), [("pull", "pull"), ("router", "push"), ("pub", "sub"), ("req", "rep"), ("xpub", "xpub")]
)
def test_sockets_that_do_not_go_together_are_refused(world: World, front: str, back: str) -> None:
    sockets = getattr(world("relay"), front)("front"), getattr(world("relay"), back)("back")
    with pytest.raises(a3m.NotSupported, match=f"cannot join {front.upper()} and {back.upper()}; it joins XSUB with"):
        a3m.proxy(*sockets)


def test_other_arguments_are_checked(world: World) -> None:
    pull, push = world("relay").pull("in"), world("relay").push("out")
    with pytest.raises(a3m.NotSupported, match=r"a proxy joins two sockets of a3m\.Node, builtins\.str is none"):
        a3m.proxy(pull, "relay/out")  # type: ignore[arg-type]
    with pytest.raises(a3m.NotSupported, match="copies messages to a PUSH, PAIR or PUB socket, not to SUB"):
        a3m.proxy(pull, push, capture=world("relay").sub("capture"))
    with pytest.raises(a3m.NotSupported, match=r"stop is a threading\.Event, not bool"):
        a3m.proxy(pull, push, stop=False)  # type: ignore[arg-type]
