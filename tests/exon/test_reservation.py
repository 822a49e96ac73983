"""The disk is full: no number is used that a later life might use again, and the node goes on when there is room."""

from __future__ import annotations

import pytest

from exon.clock import Clock
from exon.frames import ReqSlots, Slots, TokenFrame
from exon.records import Records
from tests.exon.wire_pair import Wire


class Disk:
    """Keeps the limit of a clock; may be full."""

    def __init__(self) -> None:
        self.full = False
        self.limit = 0

    def save(self, limit: int) -> None:
        if self.full:
            raise OSError("no space left")
        self.limit = limit


def wire_with(disk: Disk, node_id: str) -> Wire:
    """Two nodes, of which one keeps its clock on this disk, in small blocks."""
    wire = Wire("a", "b")
    wire.add(node_id, clock=Clock(reserve=disk.save, block=1))
    wire.introduce()
    return wire


def test_a_grant_that_cannot_be_reserved_gives_no_envelopes() -> None:
    disk = Disk()
    records = Records(Clock(100, reserve=disk.save))
    record = records.open("b")
    record.request(50)
    disk.full = True
    with pytest.raises(OSError, match="no space"):
        records.on_slots("b", 1, Slots(100, 0, 50, 0))
    assert (record.envelopes, record.sck, record.rck, record.requested) == (0, 100, None, 50)
    disk.full = False
    records.on_slots("b", 1, Slots(100, 0, 50, 0))
    assert record.envelopes == 50
    assert disk.limit >= 150


def test_an_incarnation_that_cannot_be_reserved_makes_no_record() -> None:
    disk = Disk()
    records = Records(Clock(100, reserve=disk.save))
    disk.full = True
    with pytest.raises(OSError, match="no space"):
        records.on_reqslots("b", 1, ReqSlots(0, 5, 0))
    assert (records.receive, records.clock.value) == ({}, 100)


def test_grants_nobody_asked_for_reserve_nothing() -> None:
    disk = Disk()
    records = Records(Clock(100, reserve=disk.save))
    records.open("b").request(50)
    records.on_slots("b", 1, Slots(100, 0, 51, 0))
    records.on_slots("b", 1, Slots(2**62, 0, 50, 0))
    assert disk.limit == 0


def test_a_sender_with_a_full_disk_sends_nothing_and_goes_on_when_there_is_room() -> None:
    disk = Disk()
    wire = wire_with(disk, "a")
    disk.full = True
    wire.send("a", "b", b"hello")
    with pytest.raises(OSError, match="no space"):
        wire.run(1)
    assert not any(parcel.has(TokenFrame) for parcel in wire.sent_by("a"))
    disk.full = False
    wire.run(5)
    assert wire.got["b"] == [b"hello"]
    used = [token.s for parcel in wire.sent_by("a") for token in parcel.frames(TokenFrame)]
    assert max(used) < disk.limit
    wire.run(30)
    assert wire.oblivious


def test_a_receiver_with_a_full_disk_grants_nothing_and_goes_on_when_there_is_room() -> None:
    disk = Disk()
    wire = wire_with(disk, "b")
    disk.full = True
    wire.send("a", "b", b"hello")
    with pytest.raises(OSError, match="no space"):
        wire.run(1)
    assert not any(parcel.has(Slots) for parcel in wire.sent_by("b"))
    disk.full = False
    wire.run(5)
    assert wire.got["b"] == [b"hello"]
    used = [slots.r for parcel in wire.sent_by("b") for slots in parcel.frames(Slots)]
    assert max(used) < disk.limit
    wire.run(30)
    assert wire.oblivious
