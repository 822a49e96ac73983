"""A duplicate of an old request that the network kept until both nodes had forgotten each other."""

from __future__ import annotations

from exon.addresses import Address
from exon.frames import ReqSlots
from exon.protocol import Node
from exon.wire import decode, is_short

A: Address = ("A", 1)
B: Address = ("B", 1)


def test_a_late_duplicate_does_not_cost_a_record_that_its_sender_is_using() -> None:
    a, b = Node("a", epoch=11, secret=b"1" * 16), Node("b", epoch=22, secret=b"2" * 16)
    a.register("b", B)
    now = 100.0
    got: list[bytes] = []
    kept: list[bytes] = []

    def turn(seconds: float) -> None:
        nonlocal now
        for _, datagram in list(a.datagrams(now)):
            kept.append(datagram)
            b.receive(datagram, A, now)
        for _, datagram in list(b.datagrams(now)):
            a.receive(datagram, B, now)
        got.extend(message for delivery in b.deliveries() for message in delivery.messages)
        now += seconds
        a.expire(now)
        b.expire(now)

    for number in range(40):
        a.send("b", b"%02d" % number + bytes(1000), now)
        for _ in range(3):
            turn(0.01)
    for _ in range(200):
        turn(0.5)
    assert not a.stats().peers
    assert not b.stats().peers
    late = next(
        datagram
        for datagram in kept
        if not is_short(datagram)
        and decode(datagram).header.proof
        and any(isinstance(frame, ReqSlots) and frame.n for frame in decode(datagram).frames)
    )

    a.send("b", b"precious", now)
    for _, datagram in list(a.datagrams(now)):
        b.receive(datagram, A, now)  # the first request of a new conversation: it proves nothing yet
    answers = [datagram for _, datagram in b.datagrams(now)]
    b.receive(late, A, now + 0.001)
    for answer in answers:
        a.receive(answer, B, now + 0.002)
    now += 0.003
    for _ in range(100):
        turn(0.02)
    assert got[-1] == b"precious"
    assert len(got) == 41
    assert not list(a.events())
    assert b.stats().evictions == 0
