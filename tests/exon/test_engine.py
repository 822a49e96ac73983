"""The engine goes on, whatever happens to it."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from time import monotonic

import pytest

from exon import Closed, Endpoint, Options, PeerMoved, PeerUnreachable
from exon.addresses import Address
from exon.engine import Engine
from exon.events import Event
from exon.protocol import Node
from exon.udp import UdpSocket
from tests.exon.endpoints import PATIENCE, Opener, at, eventually, in_background, send_all, take


@pytest.fixture
def opened() -> Iterator[Opener]:
    with Opener() as opener:
        yield opener


class Once:
    """Raises at the first call and is the real thing from then on."""

    def __init__(self, real: object) -> None:
        self.calls = 0
        self._real = real

    def __call__(self, *arguments: object) -> object:
        self.calls += 1
        if self.calls == 1:
            raise RuntimeError("a fault of our own")
        assert callable(self._real)
        return self._real(*arguments)


def both_ways(a: Endpoint, b: Endpoint) -> None:
    a.send("b", b"there", timeout=PATIENCE)
    assert take(b, 1) == [b"there"]
    b.send("a", b"and back", timeout=PATIENCE)
    assert take(a, 1) == [b"and back"]


@pytest.mark.parametrize("verb", ["receive", "expire", "datagrams", "deadline", "events"])
def test_a_fault_of_the_protocol(opened: Opener, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    a, b = opened.pair()
    faulty = Once(getattr(b._node, verb))
    monkeypatch.setattr(b._node, verb, faulty)
    if verb == "events":  # which is not asked for without a reason
        monkeypatch.setattr(Node, "eventful", True)
    both_ways(a, b)
    assert faulty.calls > 1
    assert b.stats().dropped["internal error"] == 1
    both_ways(a, b)
    assert b.stats().dropped["internal error"] == 1


def test_a_fault_of_the_layer_above(opened: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = opened.pair()
    monkeypatch.setattr(b._engine, "_progress", Once(b._engine._progress))
    received = in_background(b.recv)
    eventually(lambda: b._receivers)
    a.send("b", b"there")
    assert received.result(PATIENCE) == ("a", b"there")
    both_ways(a, b)
    assert b.stats().dropped["internal error"] == 1


def test_a_fault_while_the_sender_does_the_engines_work(opened: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = opened.pair()
    monkeypatch.setattr(a._engine, "_flush", Once(a._engine._flush))
    a.send("b", b"there")  # accepted, so it does not raise
    assert take(b, 1) == [b"there"]
    assert a.stats().dropped["internal error"] == 1


def test_a_fault_of_whoever_is_told(opened: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = opened.pair()
    both_ways(a, b)
    monkeypatch.setattr(b._engine, "_tell", Once(b._engine._tell))
    a.rebind("127.0.0.1:0")
    both_ways(a, b)
    assert b.stats().dropped["internal error"] == 1
    before = a.address
    a.rebind("127.0.0.1:0")
    both_ways(a, b)
    assert next(b.events(timeout=PATIENCE)) == PeerMoved("a", before, a.address)


def test_a_datagram_that_makes_the_protocol_raise_takes_no_other_with_it(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = opened.pair()
    receive = b._node.receive

    def choke(datagram: bytes, source: Address, now: float) -> None:
        if datagram == b"poison":
            raise RuntimeError("a fault of our own")
        receive(datagram, source, now)

    monkeypatch.setattr(b._node, "receive", choke)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        for _ in range(5):
            stranger.sendto(b"poison", b.address)
            both_ways(a, b)
    assert b.stats().dropped["internal error"] == 5


def test_one_bad_datagram_of_a_train_or_event_of_many(opened: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    a = opened("a")
    monkeypatch.setattr(a._node, "receive_some", Once(a._node.receive_some))
    monkeypatch.setattr(a._engine, "_tell", Once(a._engine._tell))
    events = [PeerUnreachable("x", 1.0), PeerUnreachable("y", 1.0)]
    with a._lock:
        a._engine._receive([(b"poison", ("127.0.0.1", 1)), (b"rubbish", ("127.0.0.1", 1))], monotonic())
        for event in events:
            a._engine._report(event)
    stats = a.stats()
    assert stats.dropped.pop("internal error") == 2  # type: ignore[attr-defined]  # a plain dictionary
    assert sum(stats.dropped.values()) == 1  # the rubbish was looked at
    assert list(a.events(timeout=0)) == events[1:]


def test_rubbish_is_counted_by_its_reason(opened: Opener) -> None:
    a, b = opened.pair()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        for rubbish in (b"", b"x", bytes(100), b"EX" + bytes(100)):
            stranger.sendto(rubbish, b.address)
        both_ways(a, b)
    dropped = b.stats().dropped
    assert sum(dropped.values()) == 4
    assert "internal error" not in dropped


def test_a_deadline_years_away(opened: Opener) -> None:
    a, b = opened.pair(idle_timeout=1e9, forget_after=1e10)
    for _ in range(3):
        a.send("b", b"x")
        assert take(b, 1) == [b"x"]
        eventually(lambda: (a._engine._wakes_at or 0) > monotonic() + 1e8)
    assert "internal error" not in a.stats().dropped


class FullSocket(UdpSocket):
    """Takes one datagram of each batch while the kernel is said to be full."""

    full = True

    def send(self, datagrams: object) -> int:
        assert isinstance(datagrams, (list, tuple))
        return super().send(datagrams[:1] if self.full else datagrams)


def test_a_full_kernel_is_waited_for(opened: Opener) -> None:
    a, b = opened("a", socket=FullSocket), opened("b")
    a.register("b", at(b))
    messages = {b"%d " % number + bytes(1000) for number in range(300)}
    sending = in_background(send_all, a, "b", messages)
    assert set(take(b, 300)) == messages
    sending.result(PATIENCE)
    assert "internal error" not in a.stats().dropped


# ── without an endpoint ──────────────────────────────────────────────────────────────────────────────────────────────


def test_the_engine_says_what_came_and_what_happened() -> None:
    events: list[Event] = []
    received: list[tuple[str, bytes]] = []
    nodes = [Node(name, epoch=number, options=Options(unreachable_after=0.02)) for number, name in ((1, "a"), (2, "b"))]
    with ExitStack() as stack:

        def take_all() -> None:
            received.extend((peer, message) for peer, batch in nodes[1].deliveries() for message in batch)

        silent = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        silent.bind(("127.0.0.1", 0))
        a = Engine(nodes[0], UdpSocket("127.0.0.1:0"), lambda: None, events.append)
        stack.callback(a.stop)
        b = Engine(nodes[1], UdpSocket("127.0.0.1:0"), take_all, events.append)
        stack.callback(b.stop)
        with a.lock:
            nodes[0].register("b", b.udp.address)
            nodes[0].register("c", silent.getsockname())
            assert nodes[0].send("b", b"hello", monotonic())
            assert nodes[0].send("c", b"is anybody there?", monotonic())
            a.wake()
        eventually(lambda: received and any(isinstance(e, PeerUnreachable) and e.peer == "c" for e in events))
    assert received == [("a", b"hello")]


class Busy(UdpSocket):
    """While it sends, another thread may do something."""

    def __init__(self) -> None:
        super().__init__("127.0.0.1:0")
        self.meanwhile: Callable[[], None] | None = None

    def send(self, datagrams: Sequence[tuple[Address, bytes]]) -> int:
        if self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            in_background(meanwhile).result(PATIENCE)
        return super().send(datagrams)


class Watched:
    """What a leader polls; it never waits."""

    def __init__(self) -> None:
        self.timeouts: list[int | None] = []

    def poll(self, timeout: int | None) -> list[tuple[int, int]]:
        self.timeouts.append(timeout)
        return []


def test_a_leader_that_is_woken_while_its_datagrams_leave_does_not_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    udp = Busy()
    node = Node("a", epoch=1)
    engine = Engine(node, udp, lambda: None, lambda _: None)
    watched = Watched()
    monkeypatch.setattr(engine, "_polls", (engine._polls[0], watched))

    def wake() -> None:
        with engine.lock:
            engine.wake()

    try:
        with engine.lock:
            assert engine.begin()
            node.register("b", udp.address)
            node.send("b", b"hello", monotonic())
            udp.meanwhile = wake
            assert engine.turn(None)
            assert udp.meanwhile is None, "nothing has left"
            assert watched.timeouts == []
            assert engine.turn(None)
            assert len(watched.timeouts) == 1, "woken once"
            engine.end()
    finally:
        monkeypatch.undo()
        engine.stop()


def test_what_comes_together_is_taken_together_and_what_comes_alone_is_not_waited_for(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    b = opened("b")
    engine = b._engine
    looks: list[int] = []
    receive = engine.udp.receive

    def look() -> list[tuple[bytes, Address]]:
        found = receive()
        looks.append(len(found))
        return found

    monkeypatch.setattr(engine.udp, "receive", look)
    with engine.lock, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for _ in range(40):
            sender.sendto(b"alone", b.address)
            engine._read()
        assert looks.count(1) == 40
        assert looks.count(0) <= 40 / 8
        for number in range(20):
            sender.sendto(b"%d" % number, b.address)
        while engine._read():
            pass
        looks.clear()
        for number in range(20):
            sender.sendto(b"%d" % number, b.address)
        assert not engine._read()
        assert looks == [1] * 20 + [0]
        looks.clear()
        for _ in range(40):
            sender.sendto(b"alone", b.address)
            engine._read()
        assert looks.count(0) <= 1 + 40 / 8


def test_a_leader_takes_together_what_comes_together(opened: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    b = opened("b")
    engine = b._engine
    looks: list[int] = []
    receive = engine.udp.receive

    def look() -> list[tuple[bytes, Address]]:
        found = receive()
        looks.append(len(found))
        return found

    monkeypatch.setattr(engine.udp, "receive", look)
    with engine.lock, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        assert engine.begin()
        for _ in range(2):
            looks.clear()
            for number in range(20):
                sender.sendto(b"%d" % number, b.address)
            while looks.count(1) < 20:
                engine.turn(monotonic() + PATIENCE)
        assert looks == [1] * 20 + [0], "in one turn, the second time"
        for _ in range(40):
            sender.sendto(b"alone", b.address)
            engine.turn(monotonic() + PATIENCE)
        assert looks.count(0) <= 2 + 40 / 8
        engine.end()


def test_stopping_twice_is_harmless(opened: Opener) -> None:
    a = opened("a")
    a.close(timeout=0)
    assert a.close() is a.close()
    with a._lock:
        a._engine.wake()  # nobody is there to be woken


def test_no_move_after_the_end(opened: Opener) -> None:
    a = opened("a")
    a.close(timeout=0)
    late = UdpSocket("127.0.0.1:0")
    with pytest.raises(Closed):
        a._engine.rebind(late)
    assert late.fileno() == -1
