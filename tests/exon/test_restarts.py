"""Peers that lose their memory or are given up: nothing is acknowledged that was not delivered, and life goes on."""

from __future__ import annotations

import pytest

from exon.events import DuplicateId, PeerRestarted
from exon.frames import Ack, ClosedFrame, Gone, Refused, ReqSlots, Slots, TokenFrame
from exon.options import Options
from tests.exon.wire_pair import Parcel, Wire, forge, reachable

EVIL = ("evil", 1)
FORGETFUL = Options(idle_timeout=1.0, forget_after=20.0)


def talking(options: Options | None = None) -> Wire:
    wire = Wire("a", "b", options=options)
    wire.send("a", "b", b"a0")
    wire.send("b", "a", b"b0")
    wire.run(0.5)
    return wire


def restart(wire: Wire, node_id: str, options: Options | None = None) -> None:
    """Kill a node and start it again, at the same address, with nothing in memory but the address book."""
    wire.add(node_id, options)
    wire.introduce()


def unknown(wire: Wire, node_id: str) -> list[bytes]:
    return [message for event in wire.events_of(node_id, PeerRestarted) for message in event.unknown]


# -- the receiver restarts --------------------------------------------------------------------------------------------


def test_what_a_dead_receiver_never_acknowledged_is_reported_once_and_later_messages_arrive() -> None:
    wire = talking()
    wire.lose = lambda parcel: parcel.has(Ack)
    wire.send("a", "b", b"delivered, not acknowledged")
    wire.run(0.05)
    wire.lose = lambda parcel: parcel.has(TokenFrame)
    wire.send("a", "b", b"never arrived")
    wire.run(0.05)
    restart(wire, "b")
    wire.lose = lambda parcel: False
    wire.run(2)
    wire.send("a", "b", b"to the new life")
    wire.run(30)
    assert sorted(unknown(wire, "a")) == [b"delivered, not acknowledged", b"never arrived"]
    assert wire["a"].stats().messages_unknown == 2
    assert wire.got["b"] == [b"a0", b"delivered, not acknowledged", b"to the new life"]
    assert wire.oblivious


def test_what_had_not_left_goes_to_the_new_life() -> None:
    wire = Wire("a", "b", options=Options(max_slots=2))
    wire.mtu = 1200
    wire.send("a", "b", b"first")
    wire.run(0.5)
    wire.lose = lambda parcel: parcel.has(TokenFrame, Slots)
    messages = [b"%d" % i + bytes(1000) for i in range(6)]
    wire.send("a", "b", *messages)
    wire.run(0.1)
    restart(wire, "b")
    wire.lose = lambda parcel: False
    wire.run(5)
    lost = unknown(wire, "a")
    assert 0 < len(lost) < 6
    assert sorted(lost + wire.got["b"][1:]) == messages


def test_a_message_that_only_finds_a_new_life_is_reported_or_delivered_but_not_both() -> None:
    wire = talking()
    restart(wire, "b")
    for i in range(3):
        wire.send("a", "b", b"%d" % i)
        wire.run(1)
    assert sorted(unknown(wire, "a") + wire.got["b"]) == [b"0", b"1", b"2", b"a0"]
    assert wire.got["b"][-2:] == [b"1", b"2"], "at most what was under way when the restart showed"


def test_a_large_message_half_way_is_reported_as_a_whole() -> None:
    wire = Wire("a", "b")
    wire.mtu = 1200
    large = bytes(range(256)) * 400
    wire.send("a", "b", large)
    wire.run(0.013)
    assert wire["a"].pending("b") == 1
    restart(wire, "b")
    wire.send("a", "b", b"after")
    wire.run(20)
    assert unknown(wire, "a") == [large]
    assert wire.got["b"] == [b"after"]
    assert wire["a"].stats().peers.get("b") is None or wire["a"].stats().peers["b"].pending_bytes == 0
    wire.run(60)
    assert wire.oblivious


# -- the sender restarts ----------------------------------------------------------------------------------------------


def test_a_new_life_of_a_sender_is_heard_and_the_old_one_forgotten() -> None:
    wire = talking()
    restart(wire, "a")
    wire.send("a", "b", b"a1")
    wire.run(0.1)
    assert wire.got["b"] == [b"a0", b"a1"]
    assert wire["b"].stats().receive_records == 1, "asked at once about the other life"
    wire.run(60)
    assert wire.oblivious
    assert wire["b"].stats().evictions == 0, "the new life itself said that the old one is over"


@pytest.mark.parametrize("lives", [3, 5, 12])
def test_a_peer_that_crashes_again_and_again_is_not_locked_out(lives: int) -> None:
    wire = talking()
    for life in range(lives):
        restart(wire, "a")
        wire.send("a", "b", b"life %d" % life)
        wire.run(0.3)
    assert wire.got["b"] == [b"a0"] + [b"life %d" % life for life in range(lives)]
    wire.send("b", "a", b"still there")
    wire.run(5)
    assert wire.got["a"][-1] == b"still there"
    wire.run(100)
    assert wire.oblivious


@pytest.mark.parametrize("lives", [3, 8])
def test_a_peer_that_crashes_before_it_is_heard_at_all_is_not_locked_out(lives: int) -> None:
    wire = talking(FORGETFUL)
    for life in range(lives):
        restart(wire, "a", FORGETFUL)
        wire.lose = lambda parcel: parcel.header.source == "b"  # it asks, and dies before an answer comes
        wire.send("a", "b", b"life %d" % life)
        wire.run(0.02)
    wire.lose = lambda parcel: False
    restart(wire, "a", FORGETFUL)
    wire.send("a", "b", b"the last life")
    wire.run(1)
    assert wire.got["b"] == [b"a0", b"the last life"]
    wire.run(100)
    assert wire.oblivious


def test_forged_lives_neither_lock_out_a_peer_nor_cost_it_its_record() -> None:
    wire = talking(FORGETFUL)
    for epoch in range(1000, 1020):
        wire.inject("b", forge("a", "b", ReqSlots(0, 5, 0), epochs=(epoch, 0), time=1), EVIL)
    wire.send("a", "b", b"a1")
    wire.run(0.5)
    assert wire.got["b"] == [b"a0", b"a1"]
    restart(wire, "a", FORGETFUL)
    wire.send("a", "b", b"a2")
    wire.run(1)
    assert wire.got["b"] == [b"a0", b"a1", b"a2"]
    wire.run(100)
    assert wire.oblivious


def test_both_restart_and_go_on() -> None:
    wire = talking()
    restart(wire, "a")
    restart(wire, "b")
    wire.send("a", "b", b"a1")
    wire.send("b", "a", b"b1")
    wire.run(2)
    assert wire.got == {"a": [b"b0", b"b1"], "b": [b"a0", b"a1"]}
    assert sum(parcel.has(Refused) for parcel in wire.log) < 10


def test_datagrams_of_a_dead_life_that_arrive_late_change_nothing() -> None:
    wire = talking()
    held: list[Parcel] = []

    def hold(parcel: Parcel) -> bool:
        held.append(parcel)
        return True

    wire.lose = hold
    wire.send("a", "b", b"of the dead life")
    wire.send("b", "a", b"to the dead life")
    wire.lose = lambda parcel: False
    restart(wire, "a")
    wire.send("a", "b", b"a1")
    wire.run(0.5)
    for parcel in held:
        wire.deliver(parcel)
    wire.run(0.5)
    wire.send("a", "b", b"a2")
    wire.run(30)
    assert wire.got["b"][-1] == b"a2"
    assert wire.got["b"].count(b"of the dead life") <= 1
    assert wire.got["a"].count(b"to the dead life") + unknown(wire, "b").count(b"to the dead life") == 1
    wire.run(30)
    assert wire.oblivious


# -- records given up -------------------------------------------------------------------------------------------------


def test_a_record_given_up_is_never_acknowledged_falsely() -> None:
    wire = talking(FORGETFUL)
    wire.lose = lambda parcel: parcel.has(Ack)
    wire.send("a", "b", b"delivered, not acknowledged")
    wire.run(0.05)
    wire.lose = lambda parcel: parcel.has(TokenFrame)
    wire.send("a", "b", b"never arrived")
    wire.run(0.05)
    wire.lose = lambda parcel: True
    wire.run(60)
    assert wire["b"].stats().evictions == 1
    assert wire["b"].stats().receive_records == 0
    wire.lose = lambda parcel: False
    wire.run(3)
    assert sorted(unknown(wire, "a")) == [b"delivered, not acknowledged", b"never arrived"]
    assert any(parcel.has(Gone) for parcel in wire.log)
    wire.send("a", "b", b"afterwards")
    wire.run(1)
    assert wire.got["b"] == [b"a0", b"delivered, not acknowledged", b"afterwards"]
    wire.run(60)
    assert wire.oblivious
    assert len(unknown(wire, "a")) == 2


def test_a_half_received_large_message_of_a_dead_peer_is_forgotten() -> None:
    wire = Wire("a", "b", options=FORGETFUL)
    wire.mtu = 1200
    empty = reachable(wire["b"])
    wire.send("a", "b", bytes(200_000))
    wire.run(0.02)
    wire.off.add("a")
    wire.run(0.1)
    assert wire["b"].stats().receive_records == 1
    assert wire.got["b"] == []
    wire.run(100)
    assert wire.oblivious
    assert reachable(wire["b"]) < empty + 50


def test_a_half_received_message_is_forgotten_even_when_its_record_went_first() -> None:
    wire = Wire("a", "b", options=FORGETFUL)
    wire.mtu = 1200
    lost: list[Parcel] = []

    def second_fragment(parcel: Parcel) -> bool:
        gone = any(frame.s == 1 for frame in parcel.frames(TokenFrame))
        if gone:
            lost.append(parcel)
        return gone

    wire.lose = second_fragment
    wire.send("a", "b", bytes(3000))
    wire.run(0.2)
    assert lost
    restart(wire, "a", FORGETFUL)  # its new life says that the old record is over
    wire.send("a", "b", b"x")
    wire.run(100)
    assert wire.got["b"] == [b"x"]
    assert wire.oblivious


# -- two nodes with one id --------------------------------------------------------------------------------------------


def test_two_live_nodes_with_one_id_are_reported() -> None:
    wire = Wire("a", "b")
    twins = Wire("a")  # another a, which knows nothing of the first
    other = twins.add("a")
    other.register("b", ("b", 1))
    wire.send("a", "b", b"first")
    wire.run(0.2)
    for i in range(40):
        if i % 2:
            wire.send("a", "b", b"one %d" % i)
        else:
            other.send("b", b"other %d" % i, wire.now)
        for _ in range(4):
            other.expire(wire.now)
            for _, datagram in other.datagrams(wire.now):
                for parcel in wire.inject("b", datagram, ("twin", 1)):
                    if parcel.destination == ("twin", 1):
                        other.receive(parcel.data, ("b", 1), wire.now)
            wire.run(0.02)
            for parcel in wire.log:
                if parcel.destination == ("twin", 1):
                    other.receive(parcel.data, ("b", 1), wire.now)
            wire.log.clear()
    duplicates = wire.events_of("b", DuplicateId)
    assert duplicates
    assert set(duplicates[0].addresses) == {("a", 1), ("twin", 1)}
    assert duplicates[0].peer == "a"


def test_a_restart_is_not_taken_for_two_nodes_with_one_id() -> None:
    wire = talking()
    for _ in range(3):
        restart(wire, "a")
        wire.send("a", "b", b"x")
        wire.run(0.5)
    assert wire.events_of("b", DuplicateId) == []


def test_a_close_that_was_confirmed_is_over_when_the_peer_restarts() -> None:
    wire = talking(FORGETFUL)
    wire.lose = lambda parcel: parcel.has(ClosedFrame)
    wire.run_until(lambda: any(parcel.has(ClosedFrame) for parcel in wire.log))
    restart(wire, "b", FORGETFUL)
    wire.lose = lambda parcel: False
    wire.send("a", "b", b"a1")
    wire.run(60)
    assert wire.got["b"] == [b"a0", b"a1"]
    assert wire.oblivious
