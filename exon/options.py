"""Every limit and time-out in one place: a peer can make nothing grow that has no number here."""

from __future__ import annotations

from typing import Any

from attrs import Attribute, field, frozen

from exon.wire import BASE_DATAGRAM, MAX_DATAGRAM

MIB = 1 << 20


def _positive(_: object, attribute: Attribute[Any], value: float) -> None:
    if type(value) not in (int, float) or not value > 0:
        raise ValueError(f"{attribute.name} must be a number above 0, not {value!r}")


def _whole(_: object, attribute: Attribute[Any], value: int) -> None:
    if type(value) is not int or value < 1:
        raise ValueError(f"{attribute.name} must be a whole number above 0, not {value!r}")


@frozen(kw_only=True)
class Options:
    """What a node allows and how long it waits. The defaults are meant to be left alone.

    >>> Options(max_message=1024).max_message
    1024
    >>> Options(idle_timeout=0)
    Traceback (most recent call last):
    ValueError: idle_timeout must be a number above 0, not 0
    """

    max_message: int = field(default=64 * MIB, validator=_whole)
    """Bytes in one message. Sending a larger one raises; a larger one from a peer is dropped and counted."""

    send_bytes: int = field(default=4 * MIB, validator=_whole)
    """Bytes accepted for one peer and not yet acknowledged; above that, sending waits. One message always fits."""

    send_messages: int = field(default=65536, validator=_whole)
    """Messages accepted for one peer and not yet acknowledged; above that, sending waits."""

    receive_bytes: int = field(default=4 * MIB, validator=_whole)
    """Bytes from one peer that the application has not taken; above that, tokens are left unacknowledged."""

    reassembly_bytes: int = field(default=64 * MIB, validator=_whole)
    """Bytes of large messages from one peer, begun or not yet taken. One message of any legal size always fits."""

    max_slots: int = field(default=8192, validator=_whole)
    """Slots held for one peer."""

    max_records: int = field(default=100_000, validator=_whole)
    """Receive records held; a request that would make one more is dropped and counted."""

    max_unproven: int = field(default=1024, validator=_whole)
    """Receive records of nodes that have not yet shown to receive our answers; above that, they must do so first."""

    max_peer_epochs: int = field(default=4, validator=_whole)
    """Lives of one peer known at the same time (it restarts, and old datagrams still arrive)."""

    max_datagram: int = field(default=65487, validator=_whole)
    """The largest datagram ever tried; the path decides what is really used."""

    min_standby: int = field(default=16, validator=_whole)
    """The least N: envelopes kept ready for messages to come."""

    idle_timeout: float = field(default=10.0, validator=_positive)
    """Seconds without anything pending after which a sender closes its half-connection and forgets the peer."""

    probe_after: float = field(default=1.0, validator=_positive)
    """Seconds of silence after which a receiver asks whether its record is still needed; doubles up to a minute."""

    forget_after: float = field(default=7 * 86400.0, validator=_positive)
    """Seconds of silence after which a receiver gives up a record; late tokens are then answered with "unknown". Long,
    because a partition that lasts longer costs the certainty about what was under way."""

    unreachable_after: float = field(default=10.0, validator=_positive)
    """Seconds without an answer after which a peer is reported as unreachable and looked up again."""

    max_ack_delay: float = field(default=0.010, validator=_positive)
    """Seconds an acknowledgement may wait for data to ride on."""

    max_backoff: float = field(default=2.0, validator=_positive)
    """The longest time between two tries to reach a silent peer, in seconds."""

    close_timeout: float = field(default=30.0, validator=_positive)
    """Seconds that closing waits for deliveries and confirmations when the caller names no time."""

    def __attrs_post_init__(self) -> None:
        """Refuse combinations that cannot work."""
        if not BASE_DATAGRAM <= self.max_datagram <= MAX_DATAGRAM:
            raise ValueError(f"max_datagram must be from {BASE_DATAGRAM} to {MAX_DATAGRAM}, not {self.max_datagram}")
        if self.forget_after < 10 * self.idle_timeout:
            raise ValueError("forget_after must be at least ten times idle_timeout, or live peers are given up")
        if self.reassembly_bytes < self.max_message:
            raise ValueError("reassembly_bytes must be at least max_message, or the largest message never arrives")
