"""Closing: everything accepted arrives, nothing is left on either side, and the report tells what could not be done."""

from __future__ import annotations

from random import Random

import pytest

from exon.frames import ClosedFrame, ReqSlots, TokenFrame
from exon.options import Options
from exon.protocol import CloseReport, Node
from tests.exon.wire_pair import Parcel, Wire, forgot_everything

CLEAN = CloseReport(clean=True, undelivered=0, unknown=0, peers={})


def test_a_node_that_knows_nobody_is_closed_at_once() -> None:
    node = Node("a", epoch=1)
    assert not node.closed
    node.close()
    assert node.closed
    assert node.report() == CLEAN


def test_what_was_accepted_before_the_close_arrives_and_nobody_remembers() -> None:
    wire = Wire("a", "b")
    messages = [b"%d" % i + bytes(2000) for i in range(50)]
    wire.send("a", "b", *messages)
    wire.close("a")
    wire.run_until(lambda: wire["a"].closed, 2)
    assert sorted(wire.got["b"]) == sorted(messages)
    assert wire["a"].report() == CLEAN
    assert wire.oblivious


def test_a_close_takes_a_few_round_trips_not_the_idle_time() -> None:
    wire = Wire("a", "b")
    wire.send("a", "b", b"x")
    wire.send("b", "a", b"y")
    wire.run(1)
    began = wire.now
    wire.close("a")
    wire.run_until(lambda: wire["a"].closed)
    assert wire.now - began < 0.05
    wire.run(0.2)
    assert wire.oblivious, "the other side let go, too, although it is not closing"


@pytest.mark.parametrize("kind", [ReqSlots, ClosedFrame])
@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_lost_farewell_is_said_again(kind: type, times: int) -> None:
    wire = Wire("a", "b")
    wire.send("a", "b", b"x")
    wire.run(1)
    lost: list[Parcel] = []

    def some(parcel: Parcel) -> bool:
        if parcel.has(kind) and len(lost) < times:
            lost.append(parcel)
            return True
        return False

    wire.lose = some
    wire.close("a")
    wire.run_until(lambda: wire["a"].closed, 5)
    assert len(lost) == times
    assert wire["a"].report() == CLEAN
    assert wire.oblivious


def test_the_last_fragment_may_be_acknowledged_before_an_earlier_one() -> None:
    for end in ("close", "idle"):
        wire = Wire("a", "b", options=Options(idle_timeout=1.0, forget_after=60.0))
        wire.mtu = 1200
        wire.lose = lambda parcel: any(frame.s == 1 for frame in parcel.frames(TokenFrame))
        message = bytes(range(250)) * 20
        wire.send("a", "b", message)
        wire.run(0.3)
        assert wire["a"].pending("b") == 1
        if end == "close":
            wire.close("a")
        wire.run(5)
        assert not wire["a"].closed
        assert wire["a"].pending("b") == 1
        wire.lose = lambda parcel: False
        wire.run(10)
        assert wire.got["b"] == [message]
        assert wire.oblivious


def test_both_close_with_messages_under_way() -> None:
    wire = Wire("a", "b")
    wire.send("a", "b", b"a1")
    wire.send("b", "a", b"b1")
    wire.run(0.2)
    wire.send("a", "b", b"a2")
    wire.send("b", "a", b"b2")
    wire.close("a", "b")
    wire.run_until(lambda: wire["a"].closed and wire["b"].closed, 3)
    assert wire.got == {"a": [b"b1", b"b2"], "b": [b"a1", b"a2"]}
    assert wire["a"].report() == wire["b"].report() == CLEAN
    assert wire.oblivious


def test_tokens_for_slots_that_were_granted_are_taken_while_closing() -> None:
    wire = Wire("a", "b")
    wire.send("b", "a", b"b1")
    wire.run(0.2)
    wire.send("b", "a", b"b2")
    wire.close("a")
    wire.run(5)
    assert wire.got["a"] == [b"b1", b"b2"]
    assert wire["b"].pending("a") == 0


def test_a_peer_with_much_to_send_cannot_keep_a_node_from_closing() -> None:
    wire = Wire("a", "b", options=Options(max_slots=50), latency=0.02)
    wire.mtu = 1200
    wire.send("b", "a", *[bytes(900)] * 4000)
    wire.run(0.3)
    before = len(wire.got["a"])
    wire.close("a")
    wire.run_until(lambda: wire["a"].closed, 3)
    assert 0 <= len(wire.got["a"]) - before <= 50, "no more than there were slots for"
    assert len(wire.got["a"]) + wire["b"].pending("a") == 4000


def test_what_finds_a_closing_node_waits_without_much_noise() -> None:
    wire = Wire("a", "b")
    wire.send("b", "a", b"b1")
    wire.run(0.2)
    wire.close("a")
    wire.run_until(lambda: wire["a"].closed, 2)
    since = wire.now
    wire.send("b", "a", *[bytes(900)] * 50)
    wire.run(10)
    assert wire.got["a"] == [b"b1"]
    assert wire["b"].pending("a") == 50
    assert len(wire.sent_by("b", since)) < 100
    assert wire["a"].stats().dropped["closing"] > 0
    assert wire["a"].closed


def test_a_report_names_who_did_not_confirm() -> None:
    wire = Wire("a", "b", "c")
    wire.send("a", "b", b"x")
    wire.send("a", "c", b"x")
    wire.run(0.5)
    wire.off.add("b")
    wire.close("a")
    wire.run_until(lambda: wire["a"].closed)
    report = wire["a"].report()
    assert not report.clean
    assert (report.undelivered, report.unknown) == (0, 0)
    assert report.peers == {"b": "did not confirm the close"}


def test_a_report_before_the_end_is_not_clean() -> None:
    wire = Wire("a", "b")
    wire.send("a", "b", b"x")
    wire.run(0.5)
    wire.close("a")
    report = wire["a"].report()
    assert not report.clean
    assert report.peers == {"b": "did not confirm the close"}


def test_a_report_tells_what_never_left_from_what_may_have_arrived() -> None:
    wire = Wire("a", "b", options=Options(max_slots=1))
    wire.mtu = 1200
    wire.send("a", "b", b"opens")
    wire.run(0.5)
    wire.off.add("b")
    wire.send("a", "b", *[bytes(1000)] * 5)
    wire.run(20)
    wire.close("a")
    wire.run(60)
    assert not wire["a"].closed
    report = wire["a"].report()
    assert not report.clean
    assert report.undelivered + report.unknown == 5
    assert report.undelivered >= 4
    assert report.peers == {"b": "5 not acknowledged, no answer from b"}


def test_a_report_tells_when_an_address_was_never_known() -> None:
    wire = Wire("a")
    wire.send("a", "nobody", b"x")
    wire.close("a")
    wire.run(20)
    assert wire["a"].report() == CloseReport(False, 1, 0, {"nobody": "1 not acknowledged, address unknown"})


def test_what_became_unknown_during_the_close_is_in_the_report() -> None:
    wire = Wire("a", "b")
    wire.send("a", "b", b"x")
    wire.run(0.5)
    wire.lose = lambda parcel: parcel.has(TokenFrame)
    wire.send("a", "b", b"lost with b")
    wire.close("a")
    wire.run(0.5)
    wire.add("b")
    wire.lose = lambda parcel: False
    wire.run(5)
    assert wire["a"].closed
    assert wire["a"].report().unknown == 1


def test_a_record_of_a_dead_peer_does_not_keep_a_node_from_closing() -> None:
    wire = Wire("a", "b")
    wire.send("b", "a", b"x")
    wire.run(0.5)
    wire.off.add("b")
    since = wire.now
    wire.close("a")
    wire.run_until(lambda: wire["a"].closed, 5)
    assert len(wire.sent_by("a", since)) <= 8


def test_self_messages_can_be_taken_after_the_close() -> None:
    node = Node("a", epoch=1)
    node.send("a", b"note", 0.0)
    node.close()
    assert node.closed
    assert [delivery.messages for delivery in node.deliveries()] == [[b"note"]]
    assert forgot_everything(node)


@pytest.mark.parametrize("seed", range(40))
def test_closing_in_the_middle_of_anything(seed: int) -> None:
    random = Random(seed)
    loss = random.choice([0.0, 0.1, 0.3])
    wire = Wire("a", "b")
    wire.lose = lambda parcel: random.random() < loss
    sent: dict[str, list[bytes]] = {"a": [], "b": []}
    for i in range(random.randrange(1, 15)):
        for source, destination in ("ab", "ba"):
            if source == "a" or random.random() < 0.5:
                sent[destination].append(b"%d-" % i + bytes(random.choice([1, 3000, 30_000])))
                wire.send(source, destination, sent[destination][-1])
        wire.run(random.choice([0, 0.001, 0.02]))
    wire.close("a")
    wire.run(random.choice([0, 0.01, 0.5]))
    both = random.random() < 0.4
    if both:
        wire.close("b")
    wire.run(60)
    wire.lose = lambda parcel: False
    wire.run(60)
    for source, destination in ("ab", "ba"):
        # A closing node grants nothing new, so what found it closing stays; but then the report says so.
        report = wire[source].report() if wire[source].closing else None
        left = report.undelivered if report is not None else wire[source].pending(destination)
        assert report is None or report.unknown == 0
        assert len(set(wire.got[destination])) == len(wire.got[destination]) == len(sent[destination]) - left
        assert set(wire.got[destination]) <= set(sent[destination])
    if not both:
        assert sorted(wire.got["b"]) == sorted(sent["b"])
        assert wire["a"].closed
    if not wire["a"].pending("b") and not wire["b"].pending("a"):
        assert wire.oblivious
