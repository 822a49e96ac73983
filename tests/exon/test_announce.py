"""A node that moves says so at once, also when nothing is under way; and whoever was told remembers it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from exon import PeerMoved
from exon.options import Options
from exon.peers import AddressBook
from tests.exon.endpoints import PATIENCE, Opener, eventually, take
from tests.exon.wire_pair import Wire

OLD, NEW = ("a", 1), ("elsewhere", 1)


@pytest.fixture
def opened() -> Iterator[Opener]:
    with Opener() as opener:
        yield opener


def idle(*senders: str) -> Wire:
    """Two nodes with nothing under way, that still hold the records of what these sent."""
    wire = Wire("a", "b")
    for sender in senders:
        wire.send(sender, "b" if sender == "a" else "a", b"before")
    wire.run(0.5)
    assert wire["a"].stats().send_records == ("a" in senders)
    assert wire["a"].stats().receive_records == ("b" in senders)
    return wire


# -- saying so --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("senders", ["a", "b", "ab"])
def test_an_idle_node_that_moves_says_so_at_once(senders: str) -> None:
    wire = idle(*senders)
    moved = wire.now
    wire.move("a", "elsewhere", aware=True)
    wire.run_until(lambda: bool(wire.events_of("b", PeerMoved)))
    assert wire.now == pytest.approx(moved + wire.latency)
    assert wire.events_of("b", PeerMoved) == [PeerMoved("a", OLD, NEW)]


@pytest.mark.parametrize("senders", ["a", "b", "ab"])
def test_an_announcement_that_is_lost_is_made_again(senders: str) -> None:
    wire = idle(*senders)
    moved = wire.now
    wire.lose = lambda parcel: wire.now < moved + 0.5
    wire.move("a", "elsewhere", aware=True)
    wire.run_until(lambda: bool(wire.events_of("b", PeerMoved)), 5)
    assert wire.now > moved + 0.5
    assert wire.events_of("b", PeerMoved) == [PeerMoved("a", OLD, NEW)]


@pytest.mark.parametrize("senders", ["a", "b", "ab"])
def test_an_announcement_that_was_heard_is_not_repeated_and_keeps_nobody_awake(senders: str) -> None:
    wire = idle(*senders)
    moved = wire.now
    wire.move("a", "elsewhere", aware=True)
    wire.run(0.5)
    assert len(wire.sent_by("a", moved)) <= 3
    wire.run(30)
    assert wire.oblivious


def test_nobody_is_told_who_is_not_talked_with() -> None:
    wire = Wire("a", "b")
    wire.move("a", "elsewhere", aware=True)
    wire.run(10)
    assert wire.log == []


@pytest.mark.parametrize("senders", ["a", "b"])
def test_an_endpoint_that_moves_while_idle_says_so(opened: Opener, senders: str) -> None:
    a, b = opened.pair(idle_timeout=600.0)  # or a would be heard when it closes its half-connection
    sender, receiver = (a, b) if senders == "a" else (b, a)
    sender.send(receiver.id, b"before", timeout=PATIENCE)
    take(receiver, 1)
    eventually(lambda: not sender.stats().peers[receiver.id].pending_messages)
    old = a.address
    a.rebind("127.0.0.1:0")
    assert next(b.events(timeout=PATIENCE)) == PeerMoved("a", old, a.address)
    b.send("a", b"after", timeout=PATIENCE)
    assert take(a, 1) == [b"after"]


# -- remembering it ---------------------------------------------------------------------------------------------------


def moved_and_forgotten() -> Wire:
    """Node b knows a by registration; a has moved since, and nobody holds anything of it any more."""
    wire = idle("a")
    wire.move("a", "elsewhere", aware=True)
    wire.run(30)
    assert wire.oblivious
    return wire


def test_a_registered_peer_that_moved_is_found_where_it_was_heard_last() -> None:
    wire = moved_and_forgotten()
    since = wire.now
    wire.send("b", "a", b"after")
    wire.run(0.1)
    assert wire.got["a"] == [b"after"]
    assert {parcel.destination for parcel in wire.sent_by("b", since)} == {NEW}


def test_one_that_moved_back_in_silence_is_found_where_it_was_registered() -> None:
    wire = moved_and_forgotten()
    wire.move("a", "a")
    wire.send("b", "a", b"after")
    wire.run(2 * Options().unreachable_after)
    assert wire.got["a"] == [b"after"]


def test_a_registration_replaces_what_was_heard_before() -> None:
    wire = moved_and_forgotten()
    wire.addresses["a"] = ("third", 1)
    wire["b"].register("a", ("third", 1))
    since = wire.now
    wire.send("b", "a", b"after")
    wire.run(0.1)
    assert wire.got["a"] == [b"after"]
    assert {parcel.destination for parcel in wire.sent_by("b", since)} == {("third", 1)}


def test_a_book_learns_only_about_those_who_are_registered() -> None:
    book = AddressBook()
    book.learn("stranger", NEW)
    assert book.find("stranger") is None
    book.register("a", OLD)
    book.learn("a", NEW)
    assert (book.find("a"), book.registered("a"), len(book)) == (NEW, OLD, 1)
    book.unregister("a")
    assert (book.find("a"), book.registered("a"), len(book)) == (None, None, 0)


def test_an_endpoint_finds_a_registered_peer_that_moved_and_was_forgotten(opened: Opener) -> None:
    a, b = opened.pair(idle_timeout=0.05)
    a.send("b", b"before", timeout=PATIENCE)
    take(b, 1)
    a.rebind("127.0.0.1:0")
    eventually(lambda: not (a.stats().peers or b.stats().peers))
    b.send("a", b"after", timeout=PATIENCE)
    assert take(a, 1) == [b"after"]
