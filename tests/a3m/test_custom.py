"""Patterns of one's own, written with nothing but public names, and what their faults may cost: not the node."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

import a3m
from tests.a3m.nodes import PATIENCE, Nodes, eventually, in_background, linked, peers, result, take, waiting

MOOD = 7  # the first type of control messages that is free for patterns


class BusSocket(a3m.Socket):
    """Sends to everybody it is linked with, as long as all have room; knows what mood each of them is in."""

    protocol = "BUS"
    compatible = frozenset({"BUS"})
    defaults: ClassVar[Mapping[str, Any]] = {"capacity": 2}

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.moods: dict[a3m.SocketId, str] = {}
        self.gone: list[tuple[a3m.SocketId, str]] = []
        self.requests: list[Any] = []

    def try_send(self, item: Any) -> Any:
        if not self.can_send_now():
            return a3m.WOULD_BLOCK
        for link in list(self.established):
            self.push(link, item)
        return None

    def can_send_now(self) -> bool:
        links = list(self.established)
        return bool(links) and all(link.can_send for link in links)

    def say(self, mood: str) -> None:
        """Tell everybody how one feels; needs no room."""
        with self.core.lock:
            for link in self.established:
                self.send_control(link, MOOD, (mood,))
            self.core.work()

    def on_link_request(self, peer: a3m.SocketId, metadata: Any) -> a3m.Reply:
        self.requests.append(metadata)
        return a3m.Reply.INCOMING_NOT_ALLOWED if metadata == "enemy" else a3m.Reply.OK

    def on_link(self, link: a3m.Link) -> None:
        self.moods[link.peer] = "unknown"

    def on_unlink(self, link: a3m.Link, reason: str) -> None:
        del self.moods[link.peer]
        self.gone.append((link.peer, reason))

    def on_control(self, link: a3m.Link, type_: int, body: tuple[Any, ...]) -> None:
        if type_ == MOOD and len(body) == 1 and isinstance(body[0], str):
            self.moods[link.peer] = body[0]


def buses(nodes: Nodes, count: int = 3) -> list[BusSocket]:
    opened = [nodes(name) for name in "abc"[:count]]
    for node in opened:
        node.register_pattern(BusSocket)
    sockets: list[BusSocket] = [node.socket("BUS", "bus") for node in opened]
    for number, one in enumerate(sockets):
        linked(one, *sockets[number + 1 :])
    return sockets


def test_only_public_names_are_used() -> None:
    tree = ast.parse(inspect.getsource(BusSocket))
    names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert not {name for name in names if name.startswith("_") and name != "__init__"}


def test_everybody_hears_everybody(nodes: Nodes) -> None:
    one, two, three = buses(nodes)
    one.send(b"1")
    two.send([b"2", b"parts"])
    assert sorted(take(three, 2), key=repr) == [(b"2", b"parts"), b"1"]
    assert take(one, 1) == [(b"2", b"parts")]
    assert take(two, 1) == [b"1"]
    assert one.protocol == "BUS"
    assert one.stats().sent == 2


def test_waiting_and_polling_work_as_in_other_patterns(nodes: Nodes) -> None:
    one, two, three = buses(nodes)
    one.send_many([b"1", b"2"])
    with pytest.raises(a3m.Timeout):
        one.send(b"3", timeout=0)
    assert a3m.poll([(one, a3m.POLLOUT)], timeout=0) == []
    sending = in_background(one.send, b"3")
    waiting(one)
    assert take(two, 2) == [b"1", b"2"]
    assert not sending.done()
    assert a3m.poll([(three, a3m.POLLIN)], timeout=PATIENCE) == [(three, a3m.POLLIN)]
    assert take(three, 3) == [b"1", b"2", b"3"]
    result(sending)
    assert take(two, 1) == [b"3"]
    one.close(timeout=PATIENCE)
    eventually(lambda: one.id not in peers(two))
    assert two.gone[0][0] == one.id


def test_control_messages_come_in_order_and_need_no_room(nodes: Nodes) -> None:
    one, two = buses(nodes, 2)
    one.send_many([b"1", b"2"])
    for number in range(500):
        one.say(str(number))
    one.say("happy")
    eventually(lambda: two.moods[one.id] == "happy")
    assert take(two, 2) == [b"1", b"2"]


def test_a_pattern_decides_about_links(nodes: Nodes) -> None:
    one, two = buses(nodes, 2)
    enemy: BusSocket = nodes("c").socket(BusSocket, "enemy")
    enemy.link(one.id, metadata="enemy")
    with pytest.raises(a3m.LinkRefused):
        enemy.wait_linked(one.id, timeout=PATIENCE)
    assert "enemy" in one.requests
    enemy.link(two.id, metadata=["friend", 1])
    assert enemy.wait_linked(two.id, timeout=PATIENCE) == two.id
    assert ["friend", 1] in two.requests


def test_a_pattern_of_ones_own_and_those_that_come_with_the_package_do_not_mix(nodes: Nodes) -> None:
    (one,) = buses(nodes, 1)
    dealer = nodes("b").dealer("deal")
    dealer.link(one.id)
    with pytest.raises(a3m.LinkRefused) as caught:
        dealer.wait_linked(one.id, timeout=PATIENCE)
    assert caught.value.code is a3m.Reply.INCOMPATIBLE


class FaultySocket(a3m.PairSocket):
    """Raises in one of its methods."""

    fault = ""

    def on_link(self, link: a3m.Link) -> None:
        assert self.fault != "on_link"

    def on_unlink(self, link: a3m.Link, reason: str) -> None:
        assert self.fault != "on_unlink"

    def on_control(self, link: a3m.Link, type_: int, body: tuple[Any, ...]) -> None:
        assert self.fault != "on_control"

    def on_link_request(self, peer: a3m.SocketId, metadata: Any) -> a3m.Reply:
        assert self.fault != "on_link_request"
        return None if self.fault == "no answer" else a3m.Reply.OK  # type: ignore[return-value]


@pytest.mark.parametrize("fault", ["on_link", "on_unlink", "on_control"])
def test_faults_of_a_pattern_are_counted_and_links_go_on(nodes: Nodes, fault: str) -> None:
    a, b = nodes.pair()
    faulty: FaultySocket = a.socket(FaultySocket, "faulty")
    faulty.fault = fault
    other = b.pair("other")
    linked(other, faulty)
    with other.core.lock:
        for link in other.established:
            other.send_control(link, MOOD, ("x",))
        other.core.work()
    other.send(b"there")
    faulty.send(b"and back")
    assert (take(faulty, 1), take(other, 1)) == ([b"there"], [b"and back"])
    assert other.close(timeout=PATIENCE)
    faulty.wait_unlinked(timeout=PATIENCE)
    assert a.stats().dropped["internal error"] == 1
    assert a.close(timeout=PATIENCE).clean


@pytest.mark.parametrize("fault", ["on_link_request", "no answer"])
def test_a_check_that_fails_lets_nobody_in(nodes: Nodes, fault: str) -> None:
    a, b = nodes.pair()
    faulty: FaultySocket = a.socket(FaultySocket, "faulty")
    faulty.fault = fault
    other = b.pair("other")
    other.link(faulty.id)
    with pytest.raises(a3m.LinkRefused) as caught:
        other.wait_linked(faulty.id, timeout=PATIENCE)
    assert caught.value.code is a3m.Reply.INCOMING_NOT_ALLOWED


class Broadcast(a3m.PushSocket):
    """Pushes some messages to every link itself, as patterns may."""

    def to_all(self, message: bytes) -> int:
        with self.core.lock:
            links = [link for link in self.established if link.can_send]
            for link in links:
                self.push(link, message)
            self.core.work()
            return len(links)


def test_what_a_pattern_pushes_does_not_overtake_what_was_sent(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, pull = a.socket(Broadcast, "out"), b.pull("in", capacity=1000)
    linked(push, pull)
    for number in range(500):
        if number % 5:
            push.send(b"%d" % number, timeout=PATIENCE)
        else:
            assert push.to_all(b"%d" % number) == 1
    assert [int(pull.recv(timeout=PATIENCE)) for _ in range(500)] == list(range(500))


class Picky(a3m.PullSocket):
    """Raises when it sees a certain message."""

    def try_receive(self) -> Any:
        message = super().try_receive()
        if message == b"3":
            raise ValueError("not this one")
        return message


def test_what_recv_many_had_taken_is_not_lost_when_a_pattern_raises(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.socket(Picky, "in")
    linked(push, pull)
    push.send_many([b"%d" % number for number in range(6)], timeout=PATIENCE)
    taken: list[bytes] = []
    errors = 0
    while len(taken) < 5:
        try:
            taken += pull.recv_many(10, timeout=PATIENCE)
        except ValueError:
            errors += 1
    assert taken == [b"0", b"1", b"2", b"4", b"5"]
    assert errors <= 1
