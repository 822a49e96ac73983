"""Addresses change: nodes move with and without noticing, swap places, come back; conversations go on by id."""

from __future__ import annotations

from random import Random

import pytest

from exon.events import LookupWanted, PeerMoved
from exon.frames import TokenFrame
from exon.options import Options
from tests.exon.wire_pair import Parcel, Wire


def talking(*ids: str, options: Options | None = None) -> Wire:
    """Nodes that all talk with each other."""
    wire = Wire(*ids or ("a", "b"), options=options)
    for source in wire.nodes:
        for destination in wire.nodes:
            if source != destination:
                wire.send(source, destination, b"hello")
    wire.run(0.5)
    for got in wire.got.values():
        assert got == [b"hello"] * (len(wire.nodes) - 1)
        got.clear()
    wire.log.clear()
    return wire


def answer_lookups(wire: Wire) -> None:
    """Be a discovery service that knows where everybody is now."""
    for node_id, node in wire.nodes.items():
        for event in wire.events_of(node_id, LookupWanted):
            node.located(event.peer, wire.addresses[event.peer])
        wire.events[node_id].clear()


def run_with_discovery(wire: Wire, seconds: float) -> None:
    end = wire.now + seconds
    while wire.now < end:
        wire.run(0.2)
        answer_lookups(wire)


# -- one side ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("aware", [True, False])
def test_a_sender_that_moves_goes_on_at_once(aware: bool) -> None:
    wire = talking()
    wire.move("a", "a2", aware=aware)
    began = wire.now
    wire.send("a", "b", b"from elsewhere")
    wire.run_until(lambda: bool(wire.got["b"]))
    assert wire.now - began == pytest.approx(wire.latency)
    assert wire.events_of("b", PeerMoved) == [PeerMoved("a", ("a", 1), ("a2", 1))]
    assert wire["b"].stats().moves == 1
    assert all(parcel.datagram.frames for parcel in wire.log), "what it was given at the old address is proof enough"
    wire.send("b", "a", b"answer")
    wire.run(0.1)
    assert wire.got["a"] == [b"answer"]
    assert wire.log[-1].source == ("a2", 1)


def test_a_receiver_that_knows_it_has_moved_is_found_at_once() -> None:
    wire = talking()
    wire.move("b", "b2", aware=True)
    wire.run(0.05)
    wire.send("a", "b", b"x")
    wire.run(0.1)
    assert wire.got["b"] == [b"x"]
    assert wire.events_of("a", PeerMoved) == [PeerMoved("b", ("b", 1), ("b2", 1))]


def test_a_node_that_only_receives_says_where_it_is_now() -> None:
    wire = Wire("a", "b")
    wire.send("a", "b", b"hello")
    wire.run(0.5)
    wire.move("b", "b2", aware=True)
    wire.run(0.05)
    assert wire["a"].stats().peers["b"].address == ("b2", 1)


def test_a_receiver_that_does_not_know_it_has_moved_is_found_by_its_own_probes() -> None:
    wire = talking()
    wire.move("b", "b2")
    wire.send("a", "b", b"x")
    wire.run(5)
    assert wire.got["b"] == [b"x"]
    assert [event.new for event in wire.events_of("a", PeerMoved)] == [("b2", 1)]


def test_a_node_may_move_again_and_again() -> None:
    wire = talking()
    for step in range(10):
        wire.move("a", f"a{step}")
        wire.send("a", "b", b"%d" % step)
        wire.run(0.003)
        wire.move("a", f"a{step}'")  # while the answer is under way to the place before
        wire.run(3)
    assert wire.got["b"] == [b"%d" % step for step in range(10)]
    assert wire["a"].pending("b") == 0


def test_everything_under_way_survives_a_move() -> None:
    wire = talking()
    messages = [b"%d" % i + bytes(3000) for i in range(100)]
    wire.send("a", "b", *messages)
    wire.run(0.012)
    assert 0 < wire["a"].pending("b") <= 100
    wire.move("a", "a2")
    wire.run(0.012)
    wire.move("a", "a3", aware=True)
    wire.run(5)
    assert sorted(wire.got["b"]) == sorted(messages)


def test_an_old_datagram_that_arrives_late_does_not_move_a_peer_back() -> None:
    wire = talking()
    held: list[Parcel] = []

    def hold(parcel: Parcel) -> bool:
        held.append(parcel)
        return True

    wire.lose = hold
    wire.send("a", "b", b"held")
    wire.lose = lambda parcel: False
    wire.move("a", "a2", aware=True)
    wire.run(0.1)
    assert wire["b"].stats().peers["a"].address == ("a2", 1)
    for parcel in held:
        wire.deliver(parcel)
    wire.run(0.1)
    assert wire.got["b"] == [b"held"]
    assert wire["b"].stats().peers["a"].address == ("a2", 1)


# -- both sides -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("aware", [True, False])
def test_both_move_at_the_same_time_and_find_each_other_by_discovery(aware: bool) -> None:
    wire = talking()
    wire.move("a", "a2")
    wire.move("b", "b2")
    if aware:
        for node_id in "ab":
            wire[node_id].moved()
    wire.send("a", "b", b"from a")
    wire.send("b", "a", b"from b")
    run_with_discovery(wire, 30)
    assert wire.got == {"a": [b"from b"], "b": [b"from a"]}


def test_both_move_at_the_same_time_and_one_is_told_by_hand() -> None:
    wire = talking()
    wire.move("a", "a2")
    wire.move("b", "b2")
    wire.send("a", "b", b"from a")
    wire.run(3)
    assert wire.got["b"] == []
    wire["a"].register("b", ("b2", 1))
    wire.run(1)
    assert wire.got["b"] == [b"from a"]
    wire.send("b", "a", b"from b")
    wire.run(1)
    assert wire.got["a"] == [b"from b"]


def test_two_nodes_swap_their_addresses() -> None:
    wire = talking("a", "b", "c")
    wire.addresses["a"], wire.addresses["b"] = wire.addresses["b"], wire.addresses["a"]
    for source, destination in ("ca", "cb", "ab", "ba", "ac", "bc"):
        wire.send(source, destination, f"{source} to {destination}".encode())
    run_with_discovery(wire, 30)
    assert {node_id: sorted(got) for node_id, got in wire.got.items()} == {
        "a": [b"b to a", b"c to a"],
        "b": [b"a to b", b"c to b"],
        "c": [b"a to c", b"b to c"],
    }
    assert sum(node.stats().dropped.get("destination", 0) for node in wire.nodes.values()) > 0


# -- where else it may be ---------------------------------------------------------------------------------------------


def test_the_registered_address_is_tried_when_the_learnt_one_has_fallen_silent() -> None:
    wire = talking()
    wire.move("b", "b2", aware=True)
    wire.run(0.1)
    assert wire["a"].stats().peers["b"].address == ("b2", 1)
    # Back home, without a word: what b sends is lost until a has found it.
    wire.move("b", "b")
    wire.lose = lambda parcel: parcel.header.source == "b" and parcel.header.time > silent and not wire.got["b"]
    silent = int(wire.now * 1e6)
    wire.send("a", "b", b"x")
    wire.run(25)
    assert wire.got["b"] == [b"x"]
    assert wire["a"].pending("b") == 0


def test_the_address_it_was_heard_from_is_tried_when_the_registered_one_is_silent() -> None:
    wire = talking()
    wire["a"].register("b", ("nowhere", 1))
    assert wire["a"].stats().peers["b"].address == ("nowhere", 1)
    wire.lose = lambda parcel: parcel.header.source == "b" and not wire.got["b"]
    wire.send("a", "b", b"x")
    wire.run(25)
    assert wire.got["b"] == [b"x"]


def test_a_registration_moves_a_conversation() -> None:
    wire = talking()
    wire.move("b", "b2")
    wire["a"].register("b", ("b2", 1))
    began = wire.now
    wire.send("a", "b", b"x")
    wire.run_until(lambda: bool(wire.got["b"]))
    assert wire.now - began < 0.1


def test_a_late_discovery_answer_does_not_override_an_address_heard_since() -> None:
    wire = Wire("a", "b")
    wire["a"].unregister("b")
    wire.send("a", "b", b"x")
    wire.run(0.2)
    assert wire.events_of("a", LookupWanted)
    wire.send("b", "a", b"here I am")
    wire.run(0.1)
    assert wire["a"].stats().peers["b"].address == ("b", 1)
    wire["a"].located("b", ("stale", 9))
    assert wire["a"].stats().peers["b"].address == ("b", 1)
    wire.run(1)
    assert wire.got["b"] == [b"x"]


def test_a_discovery_answer_is_used_when_the_known_address_is_silent() -> None:
    wire = talking()
    wire.move("b", "b2")
    wire.lose = lambda parcel: parcel.header.source == "b" and not wire.got["b"]
    wire.send("a", "b", b"x")
    wire.run(12)
    assert wire.events_of("a", LookupWanted)
    wire["a"].located("b", ("b2", 1))
    wire.run(3)
    assert wire.got["b"] == [b"x"]


def test_an_unregistered_address_is_not_used_for_new_conversations() -> None:
    wire = Wire("a", "b")
    wire["a"].unregister("b")
    wire["a"].unregister("nobody")
    wire.send("a", "b", b"x")
    wire.run(1)
    assert wire.sent_by("a") == []
    wire["a"].register("b", ("b", 1))
    wire.run(1)
    assert wire.got["b"] == [b"x"]


def test_a_new_path_starts_with_small_datagrams() -> None:
    wire = talking()
    wire.send("a", "b", bytes(1_000_000))
    wire.run(2)
    assert wire["a"].stats().peers["b"].datagram_size > 10_000
    wire.mtu = 1300
    wire.move("b", "b2", aware=True)
    wire.run(0.1)
    since = wire.now
    wire.send("a", "b", bytes(50_000))
    wire.run(3)
    assert [len(message) for message in wire.got["b"]] == [1_000_000, 50_000]
    assert all(len(p.data) <= 1200 for p in wire.sent_by("a", since) if p.has(TokenFrame))


@pytest.mark.parametrize("seed", range(8))
def test_everybody_roams_and_every_message_arrives_exactly_once(seed: int) -> None:
    random = Random(seed)
    wire = talking("a", "b", "c", options=Options(idle_timeout=2.0, forget_after=400.0))
    wire.lose = lambda parcel: random.random() < 0.1
    sent: dict[str, list[bytes]] = {"a": [], "b": [], "c": []}
    for i in range(60):
        source, destination = random.sample("abc", 2)
        sent[destination].append(b"%d" % i + bytes(random.choice([1, 3000])))
        wire.send(source, destination, sent[destination][-1])
        if random.random() < 0.2:
            wire.move(random.choice("abc"), f"place-{i}", aware=random.random() < 0.5)
        wire.run(random.choice([0, 0.01, 0.3]))
        answer_lookups(wire)
    wire.lose = lambda parcel: False
    run_with_discovery(wire, 60)
    assert {node_id: sorted(got) for node_id, got in wire.got.items()} == {n: sorted(m) for n, m in sent.items()}
    run_with_discovery(wire, 200)
    assert wire.oblivious
