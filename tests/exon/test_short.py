"""Short headers: used between nodes that know each other, and never the reason why anything is lost."""

from __future__ import annotations

import pytest

from exon.events import PeerRestarted
from exon.frames import Ack, ReqSlots, TokenFrame
from exon.options import Options
from exon.wire import Malformed, decode_short, is_short, seal_short, time_until
from tests.exon.wire_pair import Parcel, Wire


def talking() -> Wire:
    """Two nodes that have exchanged something both ways."""
    wire = Wire("a", "b")
    for number in range(3):
        wire.send("a", "b", b"to b %d" % number)
        wire.send("b", "a", b"to a %d" % number)
        wire.run(0.1)
    return wire


def sent(wire: Wire, number: int) -> list[Parcel]:
    return wire.log[number:]


def test_nodes_that_know_each_other_leave_the_names_out() -> None:
    wire = talking()
    before = len(wire.log)
    wire.send("a", "b", b"one more")
    wire.run(0.05)
    parcels = sent(wire, before)
    assert [is_short(parcel.data) for parcel in parcels if parcel.has(TokenFrame, Ack)] == [True, True]
    assert wire.got["b"][-1] == b"one more"


def test_the_first_datagrams_say_who_speaks() -> None:
    wire = Wire("a", "b")
    wire.send("a", "b", b"hello")
    wire.run(0.004)
    assert not any(is_short(parcel.data) for parcel in wire.log)


def test_requests_for_slots_always_say_who_speaks() -> None:
    wire = talking()
    for number in range(300):
        wire.send("a", "b", b"%d" % number)
        wire.run(0.01)
    requests = [parcel for parcel in wire.log if parcel.has(ReqSlots)]
    assert len(requests) > 2
    assert not any(is_short(parcel.data) for parcel in requests)


def test_a_proof_that_nobody_knows_is_counted_and_not_answered() -> None:
    wire = talking()
    forged = seal_short(12345, (1, 1, 1), [], 0)
    assert wire.inject("b", forged, ("evil", 1)) == []
    assert wire["b"].stats().dropped["unknown proof"] == 1


def test_a_receiver_that_forgot_the_sender_is_told_who_speaks() -> None:
    wire = talking()
    wire["b"]._state.known.clear()
    wire.send("a", "b", b"who am I?")
    wire.run(5)
    assert wire.got["b"][-1] == b"who am I?"
    assert wire["b"].stats().dropped["unknown proof"] > 0


def test_a_new_life_that_gets_short_datagrams_is_noticed() -> None:
    wire = talking()
    wire.nodes["b"] = wire.add("b")
    wire.introduce()
    wire.send("a", "b", b"to which life?")
    wire.run(10)
    fate = [event for event in wire.events["a"] if isinstance(event, PeerRestarted)]
    assert len(fate) == 1
    assert (b"to which life?" in wire.got["b"]) != (b"to which life?" in fate[0].unknown)


@pytest.mark.parametrize("aware", [False, True])
def test_a_node_that_moves_is_known_by_its_proof(aware: bool) -> None:
    wire = talking()
    before = len(wire.log)
    wire.move("a", "elsewhere", aware=aware)
    wire.send("a", "b", b"from elsewhere")
    wire.run(5)
    wire.send("b", "a", b"found you")
    wire.run(5)
    assert (wire.got["b"][-1], wire.got["a"][-1]) == (b"from elsewhere", b"found you")
    if not aware:
        assert is_short(next(parcel for parcel in sent(wire, before) if parcel.has(TokenFrame)).data)


def test_time_goes_on_when_its_lowest_bits_begin_again() -> None:
    wire = talking()
    wire.now = 2**32 / 1e6 - 0.05
    for number in range(100):
        wire.send("a", "b", b"late %d" % number)
        wire.send("b", "a", b"late %d" % number)
        wire.run(0.01)
    assert wire.got["a"][3:] == wire.got["b"][3:] == [b"late %d" % number for number in range(100)]
    assert wire["a"].stats().peers["b"].rtt < 0.05
    assert wire["a"].stats().retransmissions == 0


@pytest.mark.parametrize("time", [0, 5, 2**31, 2**32 - 1, 2**32, 2**40 + 17])
def test_the_whole_time_from_its_lowest_bits(time: int) -> None:
    for later in (0, 1, 1000, 2**31, 2**32 - 1):
        assert time_until(time % 2**32, time + later) == time


@pytest.mark.parametrize("minutes", [1, 30, 40, 60])
def test_an_old_datagram_moves_nobody(minutes: int) -> None:
    wire = talking()
    wire.send("a", "b", b"from here")
    old = next(parcel for parcel in reversed(wire.log) if parcel.has(TokenFrame))
    assert is_short(old.data)
    wire.run(1)
    wire.move("a", "elsewhere", aware=True)
    for number in range(minutes):
        wire.send("a", "b", b"to b %d" % number)
        wire.send("b", "a", b"to a %d" % number)
        wire.run(60)
    wire.inject("b", old.data, ("a", 1))
    wire.send("b", "a", b"where are you?")
    wire.run(2)
    assert wire.got["a"][-1] == b"where are you?"


def test_nothing_of_dead_lives_is_kept() -> None:
    wire = Wire("a", "b", options=Options(idle_timeout=1000.0))
    wire.send("b", "a", b"keep talking")
    for _ in range(20):
        wire.send("a", "b", b"hello")
        wire.run(1)
        wire.add("a")
        wire.introduce()
        wire.send("a", "b", b"hello again")
        wire.run(5)
    state = wire["b"]._state
    alive = [inbound for peer in state.peers.values() for inbound in peer.inbounds.values()]
    assert all(any(known.inbound is inbound for inbound in alive) for known in state.known.values())


def test_a_life_that_is_long_over_is_refused_in_the_name_of_the_next() -> None:
    """Even if so much time has passed that nothing is known of it but what was on the way to it."""
    wire = Wire("a", "b", options=Options(forget_after=30.0, idle_timeout=2.0))
    wire.send("a", "b", b"before")
    wire.send("b", "a", b"before")
    wire.run(1)
    wire.off.add("b")
    wire.send("a", "b", b"waits")
    wire.run(60)
    wire.off.discard("b")
    wire.add("b", Options(forget_after=30.0, idle_timeout=2.0))
    wire.introduce()
    wire.run(60)
    told = [event for event in wire.events["a"] if isinstance(event, PeerRestarted)]
    assert (b"waits" in wire.got["b"]) or any(b"waits" in event.unknown for event in told)


def test_what_is_cut_or_changed_is_malformed() -> None:
    data = seal_short(44, (55, 66, 77), [b"\x92\x07\x01"])
    for length in range(len(data)):
        with pytest.raises(Malformed):
            decode_short(data[:length])
    for position in range(4, len(data)):
        with pytest.raises(Malformed):
            decode_short(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
