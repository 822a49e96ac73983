"""Frames are plain tuples whose fields are in the order of the wire."""

from __future__ import annotations

import typing
from typing import Any

import pytest

from exon import frames
from exon.wire import Header, decode, encode, encode_frame

EXPECTED: dict[Any, tuple[str, ...]] = {
    frames.ReqSlots: ("s", "n", "l"),
    frames.Slots: ("s", "r", "n", "window"),
    frames.TokenFrame: ("s", "r", "payload"),
    frames.Ack: ("r", "window", "ranges"),
    frames.ClosedFrame: ("s",),
    frames.Refused: ("epoch",),
    frames.Gone: ("r",),
    frames.Slice: ("s", "r", "offset", "total", "chunk"),
    frames.Probe: ("size",),
    frames.Probed: ("size",),
}


def test_every_kind_of_frame_is_listed_here_with_its_fields() -> None:
    kinds = set(typing.get_args(frames.Frame))
    assert kinds == set(EXPECTED)
    assert all(kind._fields == fields for kind, fields in EXPECTED.items())


@pytest.mark.parametrize("kind", [frames.ClosedFrame, frames.Refused, frames.Gone, frames.Probe, frames.Probed])
def test_frames_that_are_equal_as_tuples_stay_apart_on_the_wire(kind: type) -> None:
    """``Gone(7) == Probe(7)`` in Python; the type is what tells them apart."""
    header = Header("a", "b", 1, 0, 1, 0, 1, 0, 0)
    (frame,) = decode(encode(header, [encode_frame(kind(7))])).frames
    assert type(frame) is kind
