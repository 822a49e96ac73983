"""A peer restarts while nothing is under way: what is sent from then on goes to its new life and is not lost on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from exon import Endpoint
from exon.clock import Clock
from exon.events import PeerRestarted
from exon.frames import Slots, TokenFrame
from exon.records import Records, SendRecord
from tests.exon.endpoints import PATIENCE, Opener, at, crash, eventually, take
from tests.exon.wire_pair import Wire


@pytest.fixture
def opened() -> Iterator[Opener]:
    with Opener() as opener:
        yield opener


def unknown(wire: Wire, node_id: str) -> list[bytes]:
    return [message for event in wire.events_of(node_id, PeerRestarted) for message in event.unknown]


def restarted(wire: Wire, node_id: str) -> None:
    """Another life of a node, which says something to everybody."""
    wire.add(node_id)
    wire.introduce()
    for other in wire.nodes:
        if other != node_id:
            wire.send(node_id, other, b"new life")


# -- the record -------------------------------------------------------------------------------------------------------


def bound_record() -> tuple[Records, SendRecord]:
    """A record with envelopes from epoch 7 of its peer."""
    records = Records(Clock(100))
    record = records.open("b")
    record.request(5)
    records.on_slots("b", 7, Slots(100, 3, 5, 0))
    return records, record


def test_envelopes_of_the_old_life_are_void_and_their_numbers_used_up() -> None:
    records, _ = bound_record()
    records.on_new_life("b", 8)
    record = records.send["b"]
    assert (record.env, record.sck) == (105, 105)
    assert (record.epoch, record.rck) == (None, None)
    record.request(2)
    records.on_slots("b", 8, Slots(105, 0, 2, 0))
    assert (record.epoch, record.rck, record.envelopes) == (8, 0, 2)


def test_tokens_of_the_old_life_stay_bound_to_it() -> None:
    records, record = bound_record()
    token = record.seal(b"under way")
    records.on_new_life("b", 8)
    assert records.send["b"] is record
    assert (record.epoch, record.envelopes, list(record.tokens.values())) == (7, 0, [token])
    assert records.on_refused("b", 7) == [token]


def test_the_same_life_voids_nothing() -> None:
    records, record = bound_record()
    records.on_new_life("b", 7)
    records.on_new_life("somebody else", 8)
    assert records.send == {"b": record}
    assert record.envelopes == 5


# -- nodes ------------------------------------------------------------------------------------------------------------


def test_a_message_after_the_new_life_was_heard_is_delivered_to_it() -> None:
    wire = Wire("a", "b")
    wire.send("b", "a", b"to the old life")
    wire.run(0.5)
    restarted(wire, "a")
    wire.run(0.5)
    wire.send("b", "a", b"to the new life")
    wire.run(0.5)
    assert wire.got == {"a": [b"to the old life", b"to the new life"], "b": [b"new life"]}
    assert unknown(wire, "b") == []
    wire.run(60)
    assert wire.oblivious


def test_only_what_was_under_way_to_the_old_life_becomes_unknown() -> None:
    wire = Wire("a", "b")
    wire.send("b", "a", b"greeting")
    wire.run(0.5)
    wire.lose = lambda parcel: parcel.header.source == "b" and parcel.has(TokenFrame)
    wire.send("b", "a", b"to the old life")
    restarted(wire, "a")
    wire.run_until(lambda: wire.got["b"] == [b"new life"])
    wire.send("b", "a", b"to the new life")
    wire.lose = lambda parcel: False
    wire.run(5)
    assert wire.got["a"] == [b"greeting", b"to the new life"]
    assert unknown(wire, "b") == [b"to the old life"]
    wire.run(60)
    assert wire.oblivious


def test_a_large_message_cut_off_by_the_new_life_is_reported_once_and_as_a_whole() -> None:
    wire = Wire("a", "b")
    wire.mtu = 1200
    wire.send("b", "a", b"greeting")
    wire.run(0.5)
    old = wire["a"].epoch
    wire.lose = lambda parcel: parcel.header.destination_epoch == old  # so that nobody can refuse it
    large = bytes(range(256)) * 400
    wire.send("b", "a", large, b"after it")
    wire.run(0.05)
    assert 1 < len([parcel for parcel in wire.sent_by("b") if parcel.has(TokenFrame)]) < len(large) / 1200
    restarted(wire, "a")
    wire.run_until(lambda: wire.got["b"] == [b"new life"])
    assert unknown(wire, "b") == [large]
    wire.lose = lambda parcel: False
    wire.run(5)
    assert unknown(wire, "b") == [large]
    assert wire.got["a"] == [b"greeting", b"after it"]
    wire.run(60)
    assert wire.oblivious


# -- endpoints --------------------------------------------------------------------------------------------------------


def test_a_client_that_crashes_again_and_again_always_gets_its_answer(opened: Opener) -> None:
    server = opened("server")

    def acknowledged() -> bool:
        peer = server.stats().peers.get("client")
        return peer is None or not peer.pending_messages

    for life in range(5):
        client = Endpoint("client", bind="127.0.0.1:0")
        opened.callback(client.close, 0)
        client.register("server", at(server))
        client.send("server", b"question %d" % life, timeout=PATIENCE)
        assert take(server, 1) == [b"question %d" % life]
        server.send("client", b"answer %d" % life, timeout=PATIENCE)
        assert take(client, 1) == [b"answer %d" % life]
        eventually(acknowledged)
        crash(client)
    assert server.stats().messages_unknown == 0
