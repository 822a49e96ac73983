"""What a proven peer may send, and what a path may do, that plain datagrams and trains must stand."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from exon import plain
from exon.addresses import Address
from exon.clock import Clock
from exon.frames import Slice
from exon.options import Options
from exon.plain import TOKEN, is_fragment, is_plain
from exon.protocol import Node
from exon.wire import SHORT, encode_frame, seal_short

A, B = ("10.0.0.1", 1), ("10.0.0.2", 2)


class Pair:
    """Two nodes that know each other."""

    def __init__(self, **options: int) -> None:
        self.now = 100.0
        self.a = Node("a", epoch=1, secret=b"a", options=Options(**options))
        self.b = Node("b", epoch=2, secret=b"b", options=Options(**options), clock=Clock(1000))
        self.a.register("b", B)
        for _ in range(4):
            self.a.send("b", b"hello", self.now)
            self.talk(6)
        list(self.b.deliveries())

    def talk(self, rounds: int = 1, lose: Callable[[bytes], bool] = lambda _: False) -> list[bytes]:
        """What ``a`` said meanwhile."""
        said = []
        for _ in range(rounds):
            self.now += 0.0005
            for node, other, source in ((self.a, self.b, A), (self.b, self.a, B)):
                node.expire(self.now)
                for _, datagram in node.datagrams(self.now):
                    if node is self.a:
                        said.append(datagram)
                    if not lose(datagram):
                        other.receive(datagram, source, self.now)
        return said

    def fragments(self) -> list[bytes]:
        """Parts of a message that is larger than a datagram."""
        self.a.send("b", bytes(range(256)) * 150, self.now)
        train = [datagram for _, datagram in self.a.datagrams(self.now) if is_fragment(datagram)]
        self.now += 0.001
        assert len(train) > 10
        return train

    def take(self, datagrams: list[bytes]) -> list[int]:
        """Let ``b`` take them as the kernel hands them over; how many at a time."""
        train: list[tuple[bytes, Address]] = [(datagram, A) for datagram in datagrams]
        steps: list[int] = []
        while sum(steps) < len(train):
            steps.append(self.b.receive_some(train, sum(steps), self.now))
        return steps


def test_a_train_behind_tokens_of_many_incarnations() -> None:
    pair = Pair(max_datagram=1200)
    train = pair.fragments()
    (proof, time, echo, delay, *_), _ = plain.read(train[0])
    old = [plain.seal(SHORT | TOKEN, 0, (proof, time - 100 + r, echo, delay, 0, r, 2)) for r in range(64)]
    pair.take(old + train)
    for _ in range(200):
        pair.talk()
    assert [message for delivery in pair.b.deliveries() for message in delivery.messages] == [bytes(range(256)) * 150]


def test_a_train_behind_a_datagram_with_a_tag_that_is_not_good_any_more() -> None:
    pair = Pair(max_datagram=1200)
    train = pair.fragments()
    pair.take(train[:1])
    inbound = pair.b._state.peers["a"].inbounds[1]
    for number in range(10):
        inbound.retag(("10.0.0.1", 100 + number), 1000 + number)
    inbound.shown, inbound.tagged = 1009, A
    assert pair.take(train[1:]) == [1] * (len(train) - 1)
    assert pair.b.stats().dropped["unknown proof"] == len(train) - 1


def test_slices_of_tokens_that_come_whole_in_a_train_are_forgotten() -> None:
    pair = Pair(max_datagram=1200)
    train = pair.fragments()
    pair.take(train[:1])
    inbound = pair.b._state.peers["a"].inbounds[1]
    for datagram in train[2:18]:
        (proof, time, echo, _, s, r, _), at = plain.read(datagram)
        part = Slice(s, r, 0, len(datagram) - at + 1, b"\x01" + datagram[at : at + 100])
        pair.b.receive(seal_short(proof, (time - 1000, echo, 0), [encode_frame(part)]), A, pair.now)
    assert inbound._sliced
    assert max(pair.take(train[1:])) > 10
    assert not inbound._sliced


def test_a_window_of_exactly_a_gibibyte_is_believed() -> None:
    counts = []
    for receive_bytes in (4 << 20, 1 << 30):  # the second is what is taken for the window until the peer says it
        now, count = 100.0, 0
        options = Options(receive_bytes=receive_bytes)
        a, b = (Node(name, epoch=1, secret=name.encode(), options=options) for name in "ab")
        a.register("b", B)
        for _ in range(30):
            a.send("b", b"x" * 20_000, now)
            while a.pending("b"):
                now += 0.0005
                for node, other, source in ((a, b, A), (b, a, B)):
                    node.expire(now)
                    for _, datagram in node.datagrams(now):
                        count += node is a
                        other.receive(datagram, source, now)
                        list(other.deliveries())  # so that there is always room for all of it
        counts.append(count)
    assert counts[1] < 2 * counts[0]


def test_parts_of_a_message_are_cut_anew_for_a_path_that_became_narrow() -> None:
    pair = Pair()
    pair.a.send("b", b"x" * 3_000_000, pair.now)
    while pair.a.pending("b"):
        pair.talk()
    outbound = pair.a._state.peers["b"].outbound
    assert outbound.mtu.size > 60_000
    list(pair.b.deliveries())
    pair.a.send("b", b"y" * 3_500_000, pair.now)
    pair.now += 0.001
    for _, datagram in itertools.islice(pair.a.datagrams(pair.now), 8):
        pair.b.receive(datagram, A, pair.now)
    began, large = pair.now, 0
    while pair.a.pending("b") and pair.now < began + 5:
        known = outbound.mtu.size
        said = pair.talk(lose=lambda datagram: len(datagram) > 1400)
        assert known > 1400 or not [len(d) for d in said if is_plain(d) and len(d) > max(known, outbound.mtu.size)]
        large += sum(is_plain(datagram) and len(datagram) > 1400 for datagram in said)
    assert not pair.a.pending("b")
    assert pair.now < began + 0.5, "it waited for the peer to ask"
    assert large < 20


def test_time_that_goes_backwards_is_no_time() -> None:
    pair = Pair(max_datagram=1200)
    pair.a._state.peers["b"].inbounds[2].arrived = pair.now + 0.001
    for size in (300, 30_000):
        pair.a.send("b", b"x" * size, pair.now)
        said = [plain.read(d)[0][3] for _, d in pair.a.datagrams(pair.now) if is_plain(d)]
        assert said
        assert set(said) == {0}
