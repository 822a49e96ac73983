"""Two nodes close at the same time, with messages for each other that nobody will take any more."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Barrier

import pytest

from exon import Closed, Endpoint
from exon.options import Options
from exon.protocol import CloseReport
from tests.exon.endpoints import PATIENCE, Opener, in_background, send_all
from tests.exon.wire_pair import Wire

COUNT = 50


@pytest.fixture
def opened() -> Iterator[Opener]:
    with Opener() as opener:
        yield opener


def messages(sender: str) -> list[bytes]:
    """Each of them fills a token."""
    return [b"%s %d " % (sender.encode(), number) + bytes(900) for number in range(COUNT)]


def busy() -> Wire:
    """Each has more for the other than it has slots for."""
    wire = Wire("a", "b", options=Options(max_slots=4))
    wire.mtu = 1200
    wire.send("a", "b", *messages("a"))
    wire.send("b", "a", *messages("b"))
    wire.run_until(lambda: min(len(got) for got in wire.got.values()) > COUNT // 5)
    return wire


# -- nodes ------------------------------------------------------------------------------------------------------------


def test_what_cannot_be_delivered_any_more_is_reported_and_not_waited_for() -> None:
    wire = busy()
    wire.close("a", "b")
    wire.run_until(lambda: wire["a"].closed and wire["b"].closed, 2)
    for closer, other in ("ab", "ba"):
        left = COUNT - len(wire.got[other])
        assert left > 0
        assert wire.got[other] == messages(closer)[: COUNT - left]
        reason = f"{left} not acknowledged, it is closing too"
        assert wire[closer].report() == CloseReport(False, left, 0, {other: reason})


def test_what_has_a_slot_is_delivered_all_the_same() -> None:
    wire = Wire("a", "b")
    for sender, receiver in ("ab", "ba"):
        wire.send(sender, receiver, b"before")
    wire.run(0.5)
    for sender, receiver in ("ab", "ba"):
        wire.send(sender, receiver, b"with the close")
    wire.close("a", "b")
    wire.run_until(lambda: wire["a"].closed and wire["b"].closed, 2)
    assert wire.got == {"a": [b"before", b"with the close"], "b": [b"before", b"with the close"]}
    assert wire["a"].report() == wire["b"].report() == CloseReport(True, 0, 0, {})


def test_one_that_closes_alone_waits_until_all_is_delivered() -> None:
    wire = busy()
    wire.close("a")
    wire.run_until(lambda: wire["a"].closed, 5)
    assert wire.got["b"] == messages("a")
    assert wire["a"].report() == CloseReport(True, 0, 0, {})


def test_one_that_closes_later_does_not_wait_either() -> None:
    wire = busy()
    wire.close("a")
    wire.run(1)
    assert wire["b"].pending("a"), "a takes no more"
    wire.close("b")
    wire.run_until(lambda: wire["a"].closed and wire["b"].closed, 2)
    left = COUNT - len(wire.got["a"])
    assert wire["b"].report() == CloseReport(False, left, 0, {"a": f"{left} not acknowledged, it is closing too"})
    assert wire.got["b"] == messages("a")
    assert wire["a"].report() == CloseReport(True, 0, 0, {})


def test_what_is_delivered_and_what_is_reported_are_all_there_was_through_loss() -> None:
    wire = busy()
    wire.lose = lambda parcel: len(wire.log) % 3 == 0
    wire.close("a", "b")
    wire.run_until(lambda: wire["a"].closed and wire["b"].closed, 20)
    for closer, other in ("ab", "ba"):
        report = wire[closer].report()
        assert len(wire.got[other]) + report.undelivered == COUNT
        assert report.unknown == 0
        assert sorted(wire.got[other]) == sorted(set(wire.got[other]))


# -- endpoints --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slots", [1, 8192])
def test_two_endpoints_that_close_at_once_account_for_every_message(opened: Opener, slots: int) -> None:
    both = opened.pair(max_slots=slots)
    start = Barrier(2)

    def talk_and_close(endpoint: Endpoint, other: Endpoint) -> CloseReport:
        send_all(endpoint, other.id, messages(endpoint.id))
        start.wait(PATIENCE)
        return endpoint.close(timeout=3 * PATIENCE)

    closing = [in_background(talk_and_close, *pair) for pair in (both, both[::-1])]
    reports = [future.result(timeout=PATIENCE) for future in closing]
    for report, sender, receiver in zip(reports, both, both[::-1], strict=True):
        received = sorted(message for _, message in receiver)
        assert received == sorted(set(received) & set(messages(sender.id)))
        assert len(received) + report.undelivered + report.unknown == COUNT
        assert report.clean == (len(received) == COUNT)
        with pytest.raises(Closed):
            receiver.recv(timeout=0)
