"""Back-pressure: a sender waits when much is pending, and when the application over there does not take messages."""

from __future__ import annotations

import pytest

from exon.frames import Ack, TokenFrame
from exon.options import Options
from tests.exon.wire_pair import Wire, total

ROOM = Options(receive_bytes=20_000, idle_timeout=5.0, forget_after=1000.0)


# -- the sender's own limits ------------------------------------------------------------------------------------------


def test_a_sender_takes_so_many_messages_and_no_more() -> None:
    wire = Wire("a", "b", options=Options(send_messages=5))
    node = wire["a"]
    wire.off.add("b")
    assert [node.send("b", b"x", wire.now) for _ in range(7)] == [True] * 5 + [False] * 2
    assert not node.has_room("b", 0)
    assert node.pending("b") == 5
    wire.off.clear()
    wire.run(1)
    assert node.has_room("b", 0)
    assert node.pending("b") == 0
    assert wire.got["b"] == [b"x"] * 5


def test_a_sender_takes_so_many_bytes_and_no_more() -> None:
    wire = Wire("a", "b", options=Options(send_bytes=1000))
    node = wire["a"]
    wire.off.add("b")
    assert [node.send("b", bytes(400), wire.now) for _ in range(3)] == [True, True, False]
    assert node.has_room("b", 200)
    assert not node.has_room("b", 201)
    assert node.has_room("another", 10**6)
    wire.off.clear()
    wire.run(1)
    assert node.send("b", bytes(1000), wire.now)


def test_a_message_larger_than_the_limit_is_taken_when_nothing_is_pending() -> None:
    wire = Wire("a", "b", options=Options(send_bytes=1000))
    wire.send("a", "b", bytes(100_000))
    assert not wire["a"].has_room("b", 0) or wire["a"].pending("b") == 1
    assert not wire["a"].send("b", b"x", wire.now)
    wire.run(2)
    assert [len(message) for message in wire.got["b"]] == [100_000]


def test_one_full_peer_does_not_hold_up_another() -> None:
    wire = Wire("a", "b", "c", options=Options(send_messages=2))
    wire.off.add("b")
    wire.send("a", "b", b"1", b"2")
    assert not wire["a"].has_room("b", 1)
    wire.send("a", "c", b"x")
    wire.run(1)
    assert wire.got["c"] == [b"x"]


# -- the receiver's room ----------------------------------------------------------------------------------------------


def full() -> tuple[Wire, list[bytes]]:
    """b's application takes nothing, and b is full."""
    wire = Wire("a", "b", options=ROOM)
    wire.mtu = 1200
    wire.busy.add("b")
    messages = [b"%02d" % i + bytes(900) for i in range(60)]
    wire.send("a", "b", *messages)
    wire.run(2)
    return wire, messages


def test_what_is_not_taken_is_bounded_and_the_rest_waits_with_the_sender() -> None:
    wire, _ = full()
    assert wire["a"].pending("b") > 30
    assert ROOM.receive_bytes - 2000 < wire["b"].stats().buffered_bytes <= ROOM.receive_bytes + 1000
    acked = [ack.window for parcel in wire.sent_by("b") for ack in parcel.frames(Ack)]
    assert min(acked) < 1000
    assert len(wire["b"].stats().peers) == 1


def test_when_the_application_takes_messages_the_rest_comes() -> None:
    wire, messages = full()
    wire.busy.clear()
    wire.run(1)
    assert sorted(wire.got["b"]) == messages
    assert wire["a"].pending("b") == 0
    assert wire["b"].stats().buffered_bytes == 0
    wire.run(60)
    assert wire.oblivious


def test_a_lost_word_about_new_room_is_not_waited_for_in_vain() -> None:
    wire, messages = full()
    wire.lose = lambda parcel: parcel.header.source == "b"
    wire.take("b")
    wire.busy.clear()
    wire.run(0.1)
    wire.lose = lambda parcel: False
    wire.run(20)
    assert sorted(wire.got["b"]) == messages


@pytest.mark.parametrize("mtu", [1200, 65507])
@pytest.mark.parametrize("room", [4000, 20_000, 100_000])
def test_a_sender_that_waits_for_room_makes_little_noise(room: int, mtu: int) -> None:
    wire = Wire("a", "b", options=Options(receive_bytes=room))
    wire.mtu = mtu
    wire.busy.add("b")
    messages = [b"%03d" % i + bytes(900) for i in range(400)]
    wire.send("a", "b", *messages)
    wire.run(2)
    since = wire.now
    wire.run(60)
    assert len(wire.sent_by("a", since)) < 100
    assert len(wire.sent_by("b", since)) < 100
    assert wire["a"].pending("b") > 100
    wire.busy.clear()
    wire.run(10)  # with room for one message, one comes per round trip
    assert sorted(wire.got["b"]) == messages


def test_a_slow_application_gets_everything_once_and_without_much_waste() -> None:
    wire = Wire("a", "b", options=ROOM)
    wire.mtu = 1200
    wire.busy.add("b")
    messages = [b"%03d" % i + bytes(900) for i in range(200)]
    wire.send("a", "b", *messages)
    for _ in range(400):
        wire.run(0.02)
        for delivery in wire["b"].deliveries():
            wire.got["b"] += delivery.messages
            break
    wire.busy.clear()
    wire.run(1)
    assert sorted(wire.got["b"]) == messages
    assert total(parcel for parcel in wire.sent_by("a") if parcel.has(TokenFrame)) < 3 * total_size(messages)


def total_size(messages: list[bytes]) -> int:
    return sum(map(len, messages))


def test_one_slow_conversation_does_not_stop_the_others() -> None:
    wire = Wire("a", "b", "c", options=ROOM)
    wire.busy.add("b")
    wire.send("a", "b", *[bytes(900)] * 60)
    wire.run(1)
    wire.send("c", "b", b"from c")
    wire.send("b", "a", b"from b")
    wire.run(1)
    wire.take("b")
    assert b"from c" in wire.got["b"]
    assert wire.got["a"] == [b"from b"]


def test_empty_messages_take_room_too() -> None:
    wire = Wire("a", "b", options=ROOM)
    wire.busy.add("b")
    wire.send("a", "b", *[b""] * 5000)
    wire.run(5)
    assert wire["a"].pending("b") > 1000
    wire.busy.clear()
    wire.run(5)
    assert wire.got["b"] == [b""] * 5000


def test_a_token_larger_than_all_room_passes_when_nothing_waits() -> None:
    wire = Wire("a", "b", options=Options(receive_bytes=100))
    wire.send("a", "b", bytes(900))
    wire.run(1)
    assert wire.got["b"] == [bytes(900)]


# -- large messages ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mtu", [1200, 65507])
def test_a_second_large_message_waits_quietly_until_the_first_is_taken(mtu: int) -> None:
    options = Options(max_message=200_000, reassembly_bytes=200_000)
    wire = Wire("a", "b", options=options)
    wire.mtu = mtu
    wire.busy.add("b")
    wire.send("a", "b", b"1" * 150_000)
    wire.run(1)
    since = wire.now
    wire.send("a", "b", b"2" * 150_000)
    wire.run(60)
    assert wire["b"].stats().buffered_bytes < 200_000
    assert len([parcel for parcel in wire.sent_by("a", since) if parcel.has(TokenFrame)]) < (50 if mtu > 1200 else 300)
    wire.busy.clear()
    wire.run_until(lambda: len(wire.got["b"]) == 2, 0.3)  # told that there is room, not found out by trying
    assert wire.got["b"] == [b"1" * 150_000, b"2" * 150_000]


@pytest.mark.parametrize("size", [20_000, 36_000, 60_000])
def test_two_large_messages_that_do_not_fit_together_do_not_block_each_other(size: int) -> None:
    options = Options(max_message=100_000, reassembly_bytes=100_000, max_datagram=1200)
    wire = Wire("a", "b", options=options)
    late = size // 1000 + 1
    # The first message's fragments are lost until the second has begun.
    wire.lose = lambda parcel: any(frame.s < late for frame in parcel.frames(TokenFrame)) and wire.now < 1.5
    wire.send("a", "b", b"1" * size, b"2" * 90_000)
    wire.run(30)
    assert sorted(wire.got["b"]) == [b"1" * size, b"2" * 90_000]


def test_small_messages_pass_a_large_one_that_is_not_taken() -> None:
    wire = Wire("a", "b", options=Options(max_message=200_000, reassembly_bytes=200_000, receive_bytes=400_000))
    wire.busy.add("b")
    wire.send("a", "b", bytes(150_000))
    wire.run(1)
    wire.send("a", "b", b"small")
    wire.run(1)
    assert wire["a"].pending("b") == 0
