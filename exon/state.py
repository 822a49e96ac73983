"""What the parts of a node share: everything it knows, and the few things that more than one part does with it.

:class:`exon.protocol.Node` is the face of it, :mod:`exon.arrivals` what datagrams do to it, :mod:`exon.departures` how
it becomes datagrams. Every container that a peer can fill has a limit.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from exon.addresses import Address
from exon.clock import Clock
from exon.events import Event
from exon.frames import Frame
from exon.inbound import Inbound
from exon.options import Options
from exon.outbound import Outbound
from exon.peer import Peer
from exon.peers import AddressBook, check_id
from exon.records import Records
from exon.stats import Counters
from exon.tags import Tags
from exon.wire import CLOSING, Header, encode, encode_frame, overhead

MESSAGE_COST = 64  # bytes a buffered message is taken to cost beyond its own, so that empty ones count too
MOST_PROOFS = 16  # of one peer: one for each address that it has lately been at, and each of its lives
_MOST_STRAYS = 256  # answers to nodes we keep no state for, waiting to leave


Data = bytes | memoryview  # a part of a datagram that is large enough to be worth not copying is a view of it


class Arrived(NamedTuple):
    """Messages that came together and wait for the application."""

    peer: Peer | None  # None: from the node itself
    peer_id: str
    messages: list[Data]
    cost: int
    large: int  # bytes of a reassembled message


Constant = tuple[str, str, int, int, int, int]  # source, destination, their epochs, tag and proof


class Known(NamedTuple):
    """Whom a proof stands for: what a short datagram that shows it leaves out."""

    constant: Constant
    peer: Peer
    inbound: Inbound


class State:
    """A node's knowledge."""

    def __init__(self, node_id: str, epoch: int, secret: bytes, clock: Clock, options: Options) -> None:
        """Know nobody."""
        self.id = check_id(node_id)
        self.epoch = epoch
        self.options = options
        self.closing = False
        self.book = AddressBook()
        self.records = Records(clock, max_slots=options.max_slots)
        self.tags = Tags(secret)
        self.counters = Counters()
        self.peers: dict[str, Peer] = {}
        self.unproven: set[tuple[str, int]] = set()  # receive records of lives that have proved nothing yet
        self.ready: dict[str, Peer] = {}  # may have something to send; a dict, because it is an ordered set
        self.strays: list[tuple[Header, Address, bytes]] = []  # answers that belong to no peer, and to what
        self.known: dict[int, Known] = {}  # by proof
        self.inbox: deque[Arrived] = deque()
        self.events: deque[Event] = deque()
        self.unknown_on_close = 0

    # -- peers and their lives ---------------------------------------------------------------------------------------

    def meet(self, peer_id: str, now: float) -> Peer:
        """Begin to keep state for a peer."""
        header = overhead(self.id, peer_id)
        outbound = Outbound(peer_id, header, self.options, self.records, self.counters)
        peer = self.peers[peer_id] = Peer(peer_id, outbound, self.options, self.records, header, now)
        peer.address = self.book.find(peer_id)
        return peer

    def life(self, peer: Peer, epoch: int, source: Address, proven: bool, now: float) -> Inbound | None:
        """What is known of one life of a peer; None when too many are known, and none of them worth less."""
        inbound = peer.inbounds.get(epoch)
        if inbound is None:
            if len(peer.inbounds) >= self.options.max_peer_epochs:
                spare = peer.spare_life(proven)
                if spare is None:
                    self.counters.dropped["too many epochs"] += 1
                    return None
                self.evict(peer, spare)
            inbound = peer.inbounds[epoch] = Inbound(epoch, source, self.options, now)
        if proven and not inbound.proven:
            inbound.proven = True
            self.unproven.discard((peer.id, epoch))
        return inbound

    def evict(self, peer: Peer, inbound: Inbound) -> None:
        """Give up one life of a peer, with whatever of it is half here."""
        self.drop_life(peer, inbound.epoch)
        if peer.receive_record(inbound.epoch) is not None:
            self.records.evict(peer.id, inbound.epoch)
            self.counters.evictions += 1

    def drop_life(self, peer: Peer, epoch: int) -> None:
        """Know nothing of one life any more, nor of what its proofs stand for."""
        inbound = peer.inbounds.pop(epoch, None)
        self.unproven.discard((peer.id, epoch))
        for proof in [proof for proof in peer.proofs if self.known[proof].inbound is inbound]:
            peer.proofs.remove(proof)
            del self.known[proof]

    def go_to(self, peer: Peer, address: Address) -> None:
        """Talk to a peer at another address from now on."""
        peer.address = address
        peer.outbound.moved()
        self.ready[peer.id] = peer

    def tag(self, peer: Peer, inbound: Inbound, address: Address) -> int:
        """The tag that one life of a peer is given with datagrams to ``address``."""
        if address != inbound.tagged:
            inbound.retag(address, self.tags.tag(peer.id, inbound.epoch, address))
        return inbound.tag

    def remember(self, header: Header) -> None:
        """The header is proven: short datagrams with its proof stand for it from now on."""
        peer = self.peers.get(header.source)
        inbound = peer.inbounds.get(header.source_epoch) if peer is not None else None
        if peer is None or inbound is None or not inbound.proven:
            return
        known = self.known.get(header.proof)
        if known is None or known.inbound is not inbound or known.constant[4] != header.tag:
            if known is None:
                peer.proofs.append(header.proof)
                if len(peer.proofs) > MOST_PROOFS:
                    self.known.pop(peer.proofs.pop(0), None)
            self.known[header.proof] = Known(header[:6], peer, inbound)

    def forget(self, peer: Peer) -> None:
        """Nothing is pending with a peer: keep nothing about it."""
        del self.peers[peer.id]
        for proof in peer.proofs:
            self.known.pop(proof, None)

    # -- answers -----------------------------------------------------------------------------------------------------

    def reply(self, header: Header, frame: Frame, source: Address, now: float) -> None:
        """Answer a frame: with the next datagram to that life of the peer if we keep state for it, else at once."""
        peer = self.peers.get(header.source)
        inbound = peer.inbounds.get(header.source_epoch) if peer is not None else None
        if peer is None or inbound is None:
            self.stray(header, source, frame, now)
            return
        inbound.reply(frame)
        self.ready[peer.id] = peer

    def stray(self, header: Header, source: Address, frame: Frame | None, now: float) -> None:
        """Answer somebody we keep no state for: once per datagram, or one datagram could ask for a thousand.

        Without a frame the answer only carries a tag: an empty datagram is never answered with another.
        """
        if len(self.strays) >= _MOST_STRAYS or (self.strays and self.strays[-1][0] is header):
            return
        tag = self.tags.tag(header.source, header.source_epoch, source)
        time = max(1, int(now * 1e6))
        answer = Header(self.id, header.source, self.epoch, header.source_epoch, tag, header.tag, time, header.time, 0)
        frames = [] if frame is None else [encode_frame(frame)]
        self.strays.append((header, source, encode(answer, frames, CLOSING if self.closing else 0)))

    def count(self, datagram: tuple[Address, bytes]) -> tuple[Address, bytes]:
        """A datagram leaves."""
        self.counters.datagrams_sent += 1
        self.counters.bytes_sent += len(datagram[1])
        return datagram
