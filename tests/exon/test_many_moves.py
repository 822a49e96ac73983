"""A peer that moves again and again before it hears from us."""

from __future__ import annotations

from exon.addresses import Address
from exon.events import PeerMoved
from exon.protocol import Node


class Pair:
    """Node a, which moves, and node b; nothing is lost, but a hears only what is sent to where it is."""

    def __init__(self) -> None:
        self.a, self.b = Node("a", epoch=1, secret=b"1" * 16), Node("b", epoch=2, secret=b"2" * 16)
        self.here: Address = ("A", 0)
        self.now = 0.0
        self.datagrams = 0
        self.got: list[bytes] = []
        self.a.register("b", ("B", 1))
        self.b.register("a", self.here)

    def from_a(self) -> None:
        for _, datagram in list(self.a.datagrams(self.now)):
            self.datagrams += 1
            self.b.receive(datagram, self.here, self.now)

    def run(self, milliseconds: int) -> None:
        for _ in range(milliseconds):
            self.now += 0.001
            self.a.expire(self.now)
            self.b.expire(self.now)
            self.from_a()
            for to, datagram in list(self.b.datagrams(self.now)):
                self.datagrams += 1
                if to == self.here:
                    self.a.receive(datagram, ("B", 1), self.now)
            list(self.a.deliveries())
            for delivery in self.b.deliveries():
                self.got += delivery.messages


def test_a_peer_that_moves_often_before_it_hears_from_us_is_still_believed() -> None:
    pair = Pair()
    pair.a.send("b", b"first", pair.now)
    pair.b.send("a", b"hello", pair.now)
    pair.run(50)
    for move in range(1, 6):
        pair.here = ("A", move)
        pair.now += 0.001
        pair.a.moved()
        pair.from_a()
    pair.datagrams = 0
    pair.a.send("b", b"after the moves", pair.now)
    pair.run(3000)
    assert pair.got == [b"first", b"after the moves"]
    assert pair.b.stats().peers["a"].address == pair.here
    assert pair.datagrams < 60


def test_a_move_is_told_when_the_peer_is_heard_there_however_it_was_found() -> None:
    pair = Pair()
    pair.a.send("b", b"first", pair.now)
    pair.run(50)
    list(pair.b.events())
    pair.here = ("A", 1)
    pair.b.register("a", pair.here)  # somebody knew before a said so
    assert not list(pair.b.events())
    pair.a.send("b", b"second", pair.now)
    pair.run(50)
    assert list(pair.b.events()) == [PeerMoved("a", ("A", 0), ("A", 1))]
    assert pair.b.stats().moves == 1
