"""Messages of more than one datagram: fragments, slices of tokens that no longer fit, and paths that change."""

from __future__ import annotations

from itertools import count
from random import Random

import pytest

from exon.frames import Slice, TokenFrame
from exon.options import Options
from tests.exon.wire_pair import Parcel, Wire, total


def content(size: int, seed: int = 0) -> bytes:
    return Random(seed).randbytes(size)


def wide(wire: Wire) -> None:
    """Let a learn that the path carries large datagrams."""
    wire.send("a", "b", bytes(3_000_000))
    wire.run(1)
    assert wire["a"].stats().peers["b"].datagram_size > 60_000
    assert len(wire.got["b"]) == 1
    wire.got["b"].clear()


def test_every_size_around_the_size_of_a_datagram_arrives_whole() -> None:
    wire = Wire("a", "b")
    wire.mtu = 1200
    messages = [content(size, size) for size in (0, 1, *range(930, 1110), *range(1960, 2110))]
    for message in messages:
        wire.send("a", "b", message)
        wire.run(0.03)
    assert wire.got["b"] == messages
    assert max(len(parcel.data) for parcel in wire.log if parcel.has(TokenFrame)) <= 1200


@pytest.mark.parametrize("order", ["forwards", "backwards", "shuffled"])
def test_fragments_may_come_in_any_order(order: str) -> None:
    wire = Wire("a", "b")
    wire.mtu = 1200
    wire.send("a", "b", b"opens")
    wire.run(0.5)
    held: list[Parcel] = []

    def hold(parcel: Parcel) -> bool:
        held.append(parcel)
        return True

    wire.lose = hold
    message = content(10_000)
    wire.send("a", "b", message)
    wire.lose = lambda parcel: False
    if order == "backwards":
        held.reverse()
    elif order == "shuffled":
        Random(1).shuffle(held)
    assert len(held) > 8
    for parcel in held:
        wire.deliver(parcel)
    wire.run(1)
    assert wire.got["b"] == [b"opens", message]


def test_only_lost_fragments_are_sent_again() -> None:
    wire = Wire("a", "b", latency=0.02)
    wire.mtu = 1200
    numbers = count()
    lost: list[Parcel] = []

    def some(parcel: Parcel) -> bool:
        gone = parcel.header.source == "a" and parcel.has(TokenFrame) and next(numbers) % 20 == 7 and wire.now < 3
        if gone:
            lost.append(parcel)
        return gone

    wire.lose = some
    message = content(300_000)
    wire.send("a", "b", message)
    wire.run(10)
    assert wire.got["b"] == [message]
    assert len(lost) > 10
    sent = total(parcel for parcel in wire.log if parcel.has(TokenFrame))
    assert sent < 1.2 * len(message) + total(lost)
    assert wire["a"].stats().retransmissions <= len(lost) + 2
    assert wire["b"].stats().duplicates <= 2


def test_large_and_small_messages_share_the_path() -> None:
    wire = Wire("a", "b")
    wire.mtu = 1200
    large = [content(50_000, seed) for seed in range(4)]
    small = [b"%d" % i for i in range(50)]
    for i in range(50):
        if i % 15 == 0:
            wire.send("a", "b", large[i // 15])
        wire.send("a", "b", small[i])
    wire.run(10)
    assert sorted(wire.got["b"]) == sorted(large + small)


def test_pending_counts_a_large_message_until_its_last_fragment_is_acknowledged() -> None:
    wire = Wire("a", "b")
    wire.mtu = 1200
    wire.lose = lambda parcel: any(frame.s == 3 for frame in parcel.frames(TokenFrame))
    wire.send("a", "b", bytes(9000))
    wire.run(2)
    assert wire["a"].pending("b") == 1
    stats = wire["a"].stats().peers["b"]
    assert 0 < stats.pending_bytes < 1200
    wire.lose = lambda parcel: False
    wire.run(3)
    assert wire["a"].pending("b") == 0
    assert wire["a"].stats().peers["b"].pending_bytes == 0


def test_a_message_larger_than_the_receiver_allows_is_dropped_and_does_not_block() -> None:
    wire = Wire("a", "b")
    wire.add("b", Options(max_message=10_000))
    wire.mtu = 1200
    wire.send("a", "b", bytes(30_000), b"after")
    wire.run(5)
    assert wire.got["b"] == [b"after"]
    assert wire["b"].stats().dropped["message too large"] > 0
    assert wire["a"].pending("b") == 0


@pytest.mark.parametrize("loss", [0.0, 0.1, 0.3])
def test_tokens_made_for_a_wider_path_are_cut_and_all_arrive(loss: float) -> None:
    wire = Wire("a", "b")
    wide(wire)
    random = Random(2)
    wire.mtu = 1200
    wire.lose = lambda parcel: random.random() < loss
    messages = [content(60_000, seed) for seed in range(12)]
    wire.send("a", "b", *messages)
    wire.run_until(lambda: len(wire.got["b"]) == len(messages), 300)
    assert sorted(wire.got["b"]) == sorted(messages)
    assert any(parcel.has(Slice) for parcel in wire.log)


def test_slices_arrive_although_the_path_always_swallows_the_end_of_a_burst() -> None:
    wire = Wire("a", "b")
    wide(wire)
    wire.mtu = 1200
    burst: list[float] = []

    def overrun(parcel: Parcel) -> bool:
        if parcel.header.source != "a":
            return False
        if burst and parcel.sent > burst[-1] + 0.008:
            burst.clear()
        burst.append(parcel.sent)
        return len(burst) > 30

    wire.lose = overrun
    message = content(60_000)
    wire.send("a", "b", message)
    wire.run_until(lambda: bool(wire.got["b"]), 120)
    assert wire.got["b"] == [message]


@pytest.mark.parametrize("talker", ["nobody", "a", "b"])
def test_a_path_that_swallows_large_datagrams_is_noticed_whoever_else_talks(talker: str) -> None:
    wire = Wire("a", "b")
    wide(wire)
    wire.mtu = 1500
    message = content(300_000)
    wire.send("a", "b", message)
    for i in range(600):
        if talker != "nobody":
            wire.send(talker, "b" if talker == "a" else "a", b"%d" % i)
        wire.run(0.03)
        if message in wire.got["b"]:
            break
    assert message in wire.got["b"]
    assert wire["a"].stats().peers["b"].datagram_size <= 1500


def test_slices_that_arrive_twice_or_in_any_order_make_one_token() -> None:
    wire = Wire("a", "b")
    wide(wire)
    wire.mtu = 1200
    random = Random(5)

    def mistreat(parcel: Parcel) -> bool:
        if parcel.has(Slice):
            wire.deliver(parcel, random.uniform(0.001, 0.03))
        return False

    wire.lose = mistreat
    messages = [content(30_000, seed) for seed in range(5)]
    wire.send("a", "b", *messages)
    wire.run(30)
    assert sorted(wire.got["b"]) == sorted(messages)


def test_a_wider_path_is_found_again_later() -> None:
    wire = Wire("a", "b", options=Options(idle_timeout=200.0, forget_after=10_000.0))
    wide(wire)
    wire.mtu = 1200
    wire.send("a", "b", content(100_000))
    wire.run(20)
    assert wire["a"].stats().peers["b"].datagram_size == 1200
    wire.mtu = 65507
    wire.run(61)
    wire.send("a", "b", content(1_000_000))
    wire.run(5)
    assert wire["a"].stats().peers["b"].datagram_size > 60_000
    assert len(wire.got["b"]) == 2
