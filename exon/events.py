"""What the layer above should hear about, apart from messages."""

from __future__ import annotations

from attrs import field, frozen

from exon.addresses import Address


@frozen
class PeerMoved:
    """A peer sends from another address; the conversation goes on there."""

    peer: str
    old: Address | None
    new: Address


@frozen
class PeerRestarted:
    """A peer lost its state (or gave our record up): what became of ``unknown`` is not known and never will be.

    ``epoch`` is the life of the peer that is over; its next one may have been heard long before.
    """

    peer: str
    unknown: tuple[bytes, ...]
    epoch: int = field(default=0, eq=False)


@frozen
class PeerUnreachable:
    """Nothing was heard from a peer for ``seconds`` although something is pending. Exon goes on trying."""

    peer: str
    seconds: float


@frozen
class DuplicateId:
    """Two live nodes use one id; whoever talks to it talks to both by turns. One of them must be renamed."""

    peer: str
    addresses: tuple[Address, ...]


@frozen
class LookupWanted:
    """For the driver: ask the discovery service for this peer and call :meth:`exon.protocol.Node.located`."""

    peer: str


Event = PeerMoved | PeerRestarted | PeerUnreachable | DuplicateId | LookupWanted
