"""Parts of large messages that leave, and arrive, many at a time: nothing but the work may differ."""

from __future__ import annotations

import itertools
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exon import packing
from exon.addresses import Address
from exon.intervals import IntervalSet
from exon.options import Options
from exon.plain import TOKEN, fragments_after, is_fragment, seal
from exon.protocol import Node
from exon.wire import SHORT

A, B = ("10.0.0.1", 1), ("10.0.0.2", 2)
MESSAGE = bytes(range(256)) * 150


class Pair:
    """Two nodes that know each other, in the same state whenever they are made; and what one sends of a message."""

    def __init__(self) -> None:
        self.now = 100.0
        options = Options(max_datagram=1200)  # so that larger ones are not looked for
        self.a = Node("a", epoch=1, secret=b"a", options=options)
        self.b = Node("b", epoch=2, secret=b"b", options=options)
        self.a.register("b", B)
        for _ in range(4):
            self.a.send("b", b"hello", self.now)
            self.talk()
        assert [message for delivery in self.b.deliveries() for message in delivery.messages] == [b"hello"] * 4
        self.a.send("b", MESSAGE, self.now)
        self.train = [datagram for _, datagram in self.a.datagrams(self.now)]
        self.now += 0.001

    def talk(self) -> None:
        for _ in range(6):
            self.now += 0.0005
            for node, other, source in ((self.a, self.b, A), (self.b, self.a, B)):
                node.expire(self.now)
                for _, datagram in node.datagrams(self.now):
                    other.receive(datagram, source, self.now)

    def outcome(self) -> Any:
        """Everything that can be seen of the receiver afterwards."""
        said = [datagram for _, datagram in self.b.datagrams(self.now)]
        return list(self.b.deliveries()), said, attrs.asdict(self.b.stats())


def take(node: Node, train: list[tuple[bytes, Address]], now: float) -> int:
    """Take all of them; in how many steps."""
    at = steps = 0
    while at < len(train):
        at += node.receive_some(train, at, now)
        steps += 1
    assert at == len(train)
    return steps


def test_parts_of_a_message_are_taken_together() -> None:
    pair = Pair()
    assert len(pair.train) > 10
    assert all(map(is_fragment, pair.train[1:]))
    assert take(pair.b, [(datagram, A) for datagram in pair.train], pair.now) < len(pair.train) // 2
    while pair.a.pending("b"):
        pair.talk()
    assert [message for delivery in pair.b.deliveries() for message in delivery.messages] == [MESSAGE]


HURT = st.sampled_from(["again", "swap", "lose", "damage", "cut", "elsewhere", "before", "other"])


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(HURT, st.integers(0, 10_000), st.integers(0, 10_000)), max_size=6))
def test_it_makes_no_difference_who_came_with_whom(hurts: list[tuple[str, int, int]]) -> None:
    together, alone = Pair(), Pair()
    assert together.train == alone.train
    train: list[tuple[bytes, Address]] = [(datagram, A) for datagram in together.train]
    for hurt, x, y in hurts:
        i, j = x % len(train), y % len(train)
        datagram, source = train[i]
        match hurt:
            case "again":
                train.insert(j, train[i])
            case "swap":
                train[i], train[j] = train[j], train[i]
            case "lose" if len(train) > 1:
                del train[i]
            case "damage" if datagram:
                at = y % len(datagram)
                train[i] = datagram[:at] + bytes((datagram[at] ^ 0x10,)) + datagram[at + 1 :], source
            case "cut" if datagram:
                train[i] = datagram[: y % len(datagram)], source
            case "elsewhere":
                train[i] = datagram, ("10.0.0.3", 3)
            case "before":  # it came in another datagram already
                together.b.receive(*train[i], together.now)
                alone.b.receive(*train[i], alone.now)
            case "other":
                train.insert(i, (b"EX rubbish", source))
    take(together.b, train, together.now)
    for datagram, source in train:
        alone.b.receive(datagram, source, alone.now)
    assert together.outcome() == alone.outcome()


def test_what_the_network_has_no_room_for_leaves_later() -> None:
    pair = Pair()
    for datagram in pair.train:
        pair.b.receive(datagram, A, pair.now)
    pair.a.send("b", MESSAGE[::-1], pair.now)
    got = []
    for number in itertools.count():
        assert number < 1000
        pair.now += 0.001
        pair.a.expire(pair.now)
        for _, datagram in itertools.islice(pair.a.datagrams(pair.now), 3):
            pair.b.receive(datagram, A, pair.now)
        pair.b.expire(pair.now)
        for _, datagram in pair.b.datagrams(pair.now):
            pair.a.receive(datagram, B, pair.now)
        got += [message for delivery in pair.b.deliveries() for message in delivery.messages]
        if not pair.a.pending("b"):
            break
    assert got == [MESSAGE, MESSAGE[::-1]]


def part(s: int, time: int) -> bytes:
    return seal(SHORT | TOKEN, 0, (7, time, 2, 3, s, 40, 1), packing.fragment_head(5, 9, 5000), b"x" * 600)


@pytest.mark.parametrize(("time", "number"), [(11, 2), (2**31, 2), (10, 1), (9, 1), (2**31 + 20, 1)])
def test_parts_go_together_only_if_each_is_later_than_the_one_before(time: int, number: int) -> None:
    train = [(data, A) for data in (part(5, 9), part(6, 10), part(7, time))]
    assert len(fragments_after(train[0][0], train, 1, A)[0]) == number


@given(st.sets(st.integers(0, 40)), st.integers(0, 40), st.integers(0, 40))
def test_a_range_is_taken_out_whole_or_not_at_all(numbers: set[int], start: int, stop: int) -> None:
    ranges = IntervalSet([(number, number + 1) for number in numbers])
    inside = start < stop and set(range(start, stop)) <= numbers
    assert ranges.discard_range(start, stop) is inside
    assert ranges == IntervalSet([(n, n + 1) for n in (numbers - set(range(start, stop)) if inside else numbers)])
