"""The frames that half-connections exchange: plain tuples, so they compare, hash and encode at C speed.

Field names are the letters of Algorithm 1 (001): ``s`` is a sender's number, ``r`` a receiver's incarnation, ``n`` a
count of slots, ``l`` the sender's frontier. The byte-level form of each is in ``docs/protocol.md``.
"""

from __future__ import annotations

from typing import NamedTuple


class ReqSlots(NamedTuple):
    """Sender to receiver: grant ``n`` slots from ``s`` on, and drop those below ``l``. ``n == 0`` closes."""

    s: int
    n: int
    l: int  # noqa: E741  # the paper's name


class Slots(NamedTuple):
    """Receiver to sender: slots ``s`` to ``s + n - 1`` of incarnation ``r`` are yours; ``window`` bytes have room."""

    s: int
    r: int
    n: int
    window: int


class TokenFrame(NamedTuple):
    """Sender to receiver: the payload that goes into slot ``(s, r)``."""

    s: int
    r: int
    payload: bytes


class Ack(NamedTuple):
    """Receiver to sender: tokens of incarnation ``r`` in these ``(start, stop)`` ranges are done."""

    r: int
    window: int
    ranges: tuple[tuple[int, int], ...]


class ClosedFrame(NamedTuple):
    """Receiver to sender: after your closing request from ``s`` on, no record is left here (003, section 6.3)."""

    s: int


class Refused(NamedTuple):
    """Your datagram was for ``epoch`` of this node, which is gone for ever with everything it held."""

    epoch: int


class Gone(NamedTuple):
    """Receiver to sender: what happened to tokens of incarnation ``r`` is not known here any more."""

    r: int


class Slice(NamedTuple):
    """A part of a token too large for the path it has to travel now; parts are joined before the slot is used."""

    s: int
    r: int
    offset: int
    total: int
    chunk: bytes


class Probe(NamedTuple):
    """Does a datagram of ``size`` bytes get through? The datagram is padded to that size."""

    size: int


class Probed(NamedTuple):
    """A datagram of ``size`` bytes got through."""

    size: int


Frame = ReqSlots | Slots | TokenFrame | Ack | ClosedFrame | Refused | Gone | Slice | Probe | Probed
