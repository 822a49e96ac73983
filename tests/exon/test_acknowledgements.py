"""What a receiver says about what arrived: all of it, however many holes there are, and no more often than it helps."""

from __future__ import annotations

from exon.frames import Ack, TokenFrame
from exon.inbound import Inbound
from exon.options import Options
from exon.wire import Header, decode, encode
from tests.exon.wire_pair import Parcel, Wire

RTT = 0.04


def test_many_holes_take_several_frames_and_none_is_left_out() -> None:
    inbound = Inbound(1, ("host", 1), Options(), 0.0)
    arrived = [s for s in range(1000) if s % 5]
    for s in arrived:
        inbound.owe(s, 0, 0.0, 0.0)
    said: list[int] = []
    header = Header("a", "b", 1, 2, 3, 4, 5, 6, 7)
    for ack in decode(encode(header, inbound.take_acks(None, 4096))).frames:
        assert isinstance(ack, Ack)
        assert len(ack.ranges) <= 24
        assert (ack.r, ack.window) == (0, 4096)
        for start, stop in ack.ranges:
            said += range(start, stop)
    assert said == arrived
    assert inbound.take_acks(None, 4096) == []


def streaming(*both: str, count: int = 2000) -> tuple[Wire, float]:
    """A wire over which these have sent so many messages, and since when."""
    wire = Wire("a", "b", latency=RTT / 2)
    wire.mtu = 1200
    for source, destination in (("a", "b"), ("b", "a")):
        wire.send(source, destination, b"open")
    wire.run(1)
    since = wire.now
    for source in both:
        wire.send(source, "b" if source == "a" else "a", *[b"%05d" % i + bytes(900) for i in range(count)])
    wire.run(10)
    for source in both:
        assert len(wire.got["b" if source == "a" else "a"]) == 1 + count
        assert wire[source].stats().retransmissions == 0
    return wire, since


def spread(parcels: list[Parcel], since: float) -> float:
    return max(parcel.sent for parcel in parcels) - since


def test_on_a_long_path_a_quarter_of_a_round_trip_is_acknowledged_together() -> None:
    wire, since = streaming("a")
    tokens = [parcel for parcel in wire.sent_by("a", since) if parcel.has(TokenFrame)]
    acks = [parcel for parcel in wire.sent_by("b", since) if parcel.has(Ack)]
    assert len(tokens) >= 2000
    # Every datagram of the first round trips may be the last of those that may be on the way.
    assert len(acks) < len(tokens) / 15
    assert len(acks) > spread(tokens, since) / (RTT / 2), "often enough for the sender to go on"


def test_acknowledgements_do_not_ride_with_every_datagram_that_goes_the_other_way() -> None:
    wire, since = streaming("a", "b")
    for source in "ab":
        tokens = [parcel for parcel in wire.sent_by(source, since) if parcel.has(TokenFrame)]
        acks = [parcel for parcel in wire.sent_by(source, since) if parcel.has(Ack)]
        assert len(acks) < len(tokens) / 10
        alone = [parcel for parcel in acks if not parcel.has(TokenFrame)]
        assert len(alone) < len(tokens) / 20


def test_what_overtook_a_datagram_is_acknowledged_when_that_says_that_it_is_lost() -> None:
    inbound = Inbound(1, ("host", 1), Options(), 0.0)
    for s in (0, 1, 2, 4):
        inbound.owe(s, 0, 0.5, 1.0)
        inbound.count_datagrams(1, True, 1.0)
    for s in (5, 6):
        assert inbound.ack_due == 1.5
        inbound.owe(s, 0, 0.5, 1.0)
        inbound.count_datagrams(1, True, 1.0)
    assert inbound.ack_due == 1.0
    inbound.take_acks(None, 4096)
    inbound.owe(3, 0, 0.5, 2.0)  # it comes again, and nothing is missing
    inbound.count_datagrams(1, True, 2.0)
    inbound.owe(7, 0, 0.5, 2.0)
    inbound.count_datagrams(1, True, 2.0)
    inbound.owe(8, 0, 0.5, 2.0)
    inbound.count_datagrams(1, True, 2.0)
    assert inbound.ack_due == 2.5


def test_on_a_short_path_every_second_datagram_is_acknowledged_at_once() -> None:
    inbound = Inbound(1, ("host", 1), Options(), 0.0)
    inbound.owe(0, 0, 0.5, 1.0)
    inbound.count_datagrams(1, False, 1.0)
    assert inbound.ack_due == 1.5
    inbound.owe(1, 0, 0.5, 1.0)
    inbound.count_datagrams(1, False, 1.0)
    assert inbound.ack_due == 1.0


def test_many_datagrams_are_acknowledged_however_soon_they_came() -> None:
    inbound = Inbound(1, ("host", 1), Options(), 0.0)
    for s in range(64):
        assert inbound.ack_due != 1.0
        inbound.owe(s, 0, 0.5, 1.0)
        inbound.count_datagrams(1, True, 1.0)
    assert inbound.ack_due == 1.0
