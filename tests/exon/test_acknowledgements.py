"""What a receiver says about what arrived: all of it, however many holes there are."""

from __future__ import annotations

from exon.frames import Ack
from exon.inbound import Inbound
from exon.options import Options
from exon.wire import Header, decode, encode


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
