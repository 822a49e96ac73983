"""A node of Exon, without I/O: five verbs, time always an argument.

::

    node.receive(datagram, source, now)  # a datagram came
    node.datagrams(now)  # everything that wants to leave now
    node.deadline()  # when to call expire() at the latest
    node.expire(now)  # time has passed
    node.deliveries() / node.events()  # what the layer above should see

and :meth:`Node.send`. A driver is a dozen lines: wait for the socket or the deadline, feed, drain, send. The blocking
:class:`exon.Endpoint` is one driver, :mod:`exon.simulation` another. No method blocks, none raises for anything that
the network did, and every container that a peer can fill has a limit in :class:`exon.options.Options`.

What makes delivery exactly once is in :mod:`exon.records`; this module carries frames to and from it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import NamedTuple

import attrs
from attrs import frozen

from exon import packing
from exon.addresses import Address
from exon.clock import Clock
from exon.errors import BadPayload, Closed, MessageTooLarge
from exon.events import DuplicateId, Event, LookupWanted, PeerMoved, PeerRestarted, PeerUnreachable
from exon.frames import (
    Ack,
    ClosedFrame,
    Frame,
    Gone,
    Probe,
    Probed,
    Refused,
    ReqSlots,
    Slice,
    Slots,
    TokenFrame,
)
from exon.inbound import Inbound
from exon.options import Options
from exon.outbound import Outbound
from exon.packing import BadPacking
from exon.peer import Peer
from exon.peers import AddressBook, check_id
from exon.records import Records, Token, Verdict
from exon.stats import Counters, NodeStats, PeerStats
from exon.tags import Tags
from exon.wire import CLOSING, MAX_NUMBER, Datagram, Header, Malformed, decode, encode, encode_frame, overhead

_MESSAGE_COST = 64  # bytes a buffered message is taken to cost beyond its own, so that empty ones count too
_MOST_STRAYS = 256  # answers to nodes we keep no state for, waiting to leave
_RIDE = 96  # bytes of answers that may ride with a full token (see outbound)


class Delivery(NamedTuple):
    """Messages from one peer that arrived together."""

    peer: str
    messages: list[bytes]


@frozen
class CloseReport:
    """How a close went: whether everything arrived, and if not, how much is left and with whom.

    ``undelivered`` messages never left; ``unknown`` ones did, and nobody said what became of them.
    """

    clean: bool
    undelivered: int
    unknown: int
    peers: dict[str, str]


def check_payload(payload: bytes, options: Options) -> bytes:
    """The payload as bytes, if it can be sent."""
    if type(payload) is not bytes:
        if not isinstance(payload, (bytes, bytearray, memoryview)):
            raise BadPayload(
                f"a payload is bytes, bytearray or memoryview, not {type(payload).__name__}; encode it first, "
                "for example text with .encode()"
            )
        payload = bytes(payload)
    if len(payload) > options.max_message:
        raise MessageTooLarge(
            f"the message has {len(payload)} bytes, the limit is {options.max_message}; "
            "raise the option max_message on both sides or send it in parts"
        )
    return payload


class Node:
    """The protocol of one node.

    >>> a, b = Node("a", epoch=1), Node("b", epoch=2)
    >>> a.register("b", ("host-b", 1))
    >>> a.send("b", b"hello", now=0.0)
    True
    >>> for step in range(4):
    ...     for _, datagram in a.datagrams(0.0):
    ...         b.receive(datagram, ("host-a", 1), 0.0)
    ...     for _, datagram in b.datagrams(0.0):
    ...         a.receive(datagram, ("host-b", 1), 0.0)
    >>> list(b.deliveries())
    [Delivery(peer='a', messages=[b'hello'])]
    """

    def __init__(
        self,
        node_id: str,
        *,
        epoch: int,
        secret: bytes = b"",
        clock: Clock | None = None,
        options: Options | None = None,
    ) -> None:
        """``epoch`` names this life of the node: above 0, never used before; ``secret``: see :mod:`exon.tags`."""
        if not 0 < epoch < 2**63:
            raise ValueError(f"an epoch is a number from 1 to 2**63 - 1, not {epoch}")
        self.id = check_id(node_id)
        self.epoch = epoch
        self.options = options if options is not None else Options()
        self.book = AddressBook()
        self.closing = False
        self._records = Records(clock if clock is not None else Clock(), max_slots=self.options.max_slots)
        self._tags = Tags(secret)
        self._unproven: set[tuple[str, int]] = set()  # receive records of lives that have proved nothing yet
        self._counters = Counters()
        self._peers: dict[str, Peer] = {}
        self._ready: dict[str, Peer] = {}  # may have something to send; a dict, because it is an ordered set
        self._strays: list[tuple[Header, Address, bytes]] = []
        self._inbox: deque[tuple[Peer | None, str, list[bytes], int, int]] = deque()
        self._own_buffered = 0
        self._events: deque[Event] = deque()
        self._timers: list[tuple[float, str]] = []
        self._unknown_on_close = 0
        self._unconfirmed: set[str] = set()  # peers that did not answer while we closed

    # -- the application's side --------------------------------------------------------------------------------------

    def send(self, peer_id: str, message: bytes, now: float) -> bool:
        """Take a message for a peer, to be delivered exactly once; False while there is no room for it."""
        if self.closing:
            raise Closed(f"node {self.id!r} is closed and takes no more messages")
        message = check_payload(message, self.options)
        if peer_id == self.id:
            return self._send_to_self(message)
        peer = self._peers.get(peer_id)
        if peer is None:
            peer = self._meet(check_id(peer_id), now)
        if not peer.outbound.has_room(len(message)):
            return False
        peer.outbound.accept(message)
        if peer.waiting_since is None:
            peer.waiting_since = now
        self._counters.messages_sent += 1
        self._ready[peer_id] = peer
        return True

    def _send_to_self(self, message: bytes) -> bool:
        cost = len(message) + _MESSAGE_COST
        if self._own_buffered and self._own_buffered + cost > self.options.receive_bytes:
            return False
        self._own_buffered += cost
        self._counters.messages_sent += 1
        self._counters.messages_delivered += 1
        self._inbox.append((None, self.id, [message], cost, 0))
        return True

    def deliveries(self) -> Iterator[Delivery]:
        """Take messages out, in the order in which they came; what is not taken keeps its room occupied."""
        while self._inbox:
            peer, peer_id, messages, cost, large = self._inbox.popleft()
            if peer is None:
                self._own_buffered -= cost
            else:
                self._make_room(peer, cost, large)
            yield Delivery(peer_id, messages)

    def pending(self, peer_id: str) -> int:
        """How many messages to a peer are accepted and not yet acknowledged."""
        peer = self._peers.get(peer_id)
        return peer.outbound.pending_messages if peer is not None else 0

    @property
    def wants_to_send(self) -> bool:
        """Whether :meth:`datagrams` may have something."""
        return bool(self._ready or self._strays)

    @property
    def deliverable(self) -> bool:
        """Whether :meth:`deliveries` has something."""
        return bool(self._inbox)

    def _make_room(self, peer: Peer, cost: int, large: int) -> None:
        peer.buffered -= cost
        peer.large -= large
        peer.full = False
        inbound = peer.inbounds.get(peer.epoch)
        if inbound is not None and inbound.last_window < self.options.receive_bytes // 4 <= peer.window:
            inbound.owe_answer(0.0, 0.0)  # the peer was told to hold back, and need not any more
            self._ready[peer.id] = peer
        elif peer.forgettable:
            self._ready[peer.id] = peer

    def events(self) -> Iterator[Event]:
        """Take events out."""
        while self._events:
            yield self._events.popleft()

    def register(self, peer_id: str, address: Address) -> None:
        """Say where a peer is. Traffic from it may teach otherwise later."""
        self.book.register(peer_id, address)
        peer = self._peers.get(peer_id)
        if peer is not None and peer.address != address:
            self._go_to(peer, address)

    def unregister(self, peer_id: str) -> None:
        """Take back what was registered."""
        self.book.unregister(peer_id)

    def located(self, peer_id: str, address: Address | None) -> None:
        """The answer of a discovery service to :class:`~exon.events.LookupWanted`."""
        peer = self._peers.get(peer_id)
        if peer is None or address is None or address == peer.address or not peer.lost:
            return  # the last: it was heard meanwhile, and knows better where it is
        self._go_to(peer, address)

    def _go_to(self, peer: Peer, address: Address) -> None:
        peer.address = address
        peer.outbound.moved()
        self._ready[peer.id] = peer

    def moved(self) -> None:
        """This node has another address now: tell everyone it is talking with."""
        for peer in self._peers.values():
            peer.outbound.moved()
            for inbound in peer.inbounds.values():
                inbound.ask_now()
                inbound.owe_answer(0.0, 0.0)
            self._ready[peer.id] = peer

    def close(self) -> None:
        """Take no more messages, deliver what was taken, then end every half-connection; see :attr:`closed`."""
        self.closing = True
        self._records.max_slots = 0  # nothing new from others either
        for peer in self._peers.values():
            peer.outbound.hurry = True
            for inbound in peer.inbounds.values():
                inbound.ask_now()
            self._ready[peer.id] = peer

    @property
    def closed(self) -> bool:
        """Whether a close is complete: all delivered, every record gone here and, as far as they say, there."""
        return self.closing and not any(
            peer.outbound.record is not None
            or any(peer.probe_at(inbound, closing=True) is not None for inbound in peer.inbounds.values())
            for peer in self._peers.values()
        )

    def report(self) -> CloseReport:
        """What a close had to leave."""
        peers = dict.fromkeys(self._unconfirmed, "did not confirm the close")
        undelivered, unknown = 0, self._unknown_on_close
        for peer in self._peers.values():
            outbound = peer.outbound
            if outbound.pending_messages:
                undelivered += outbound.unsent_messages
                unknown += outbound.pending_messages - outbound.unsent_messages
                where = "address unknown" if peer.address is None else f"no answer from {peer.address[0]}"
                state = where if peer.lost else "still being delivered"
                peers[peer.id] = f"{outbound.pending_messages} not acknowledged, {state}"
            elif outbound.record is not None:
                peers[peer.id] = "did not confirm the close"
        return CloseReport(self.closed and not peers, undelivered, unknown, peers)

    # -- datagrams in ------------------------------------------------------------------------------------------------

    def receive(self, datagram: bytes, source: Address, now: float) -> None:
        """Take a datagram. Whatever it is, nothing is raised: what cannot be right is counted and dropped."""
        counters = self._counters
        counters.datagrams_received += 1
        counters.bytes_received += len(datagram)
        try:
            decoded = decode(datagram)
        except Malformed as malformed:
            counters.dropped[malformed.reason] += 1
            return
        header = decoded.header
        if decoded.skipped:
            counters.dropped["unknown frame"] += decoded.skipped
        if header.destination != self.id:
            counters.dropped["destination"] += 1
        elif header.source == self.id:
            counters.dropped["own id"] += 1
        elif header.destination_epoch not in (0, self.epoch):
            counters.dropped["epoch"] += 1
            self._refuse(decoded, source, now)
        elif self._is_proven(header, source):
            self._receive_valid(decoded, source, now)
        else:
            self._receive_unproven(decoded, source, now)

    def _is_proven(self, header: Header, source: Address) -> bool:
        """Whether its sender has received what we sent to it: at its address, or where it was before."""
        proof = header.proof
        if not proof or not header.destination_epoch:
            return False
        peer = self._peers.get(header.source)
        if peer is not None:
            if any(proof in (inbound.tag, inbound.old_tag) for inbound in peer.inbounds.values()):
                return True
            # The answer to a first request: sent to where we took the peer to be, before we knew its epoch.
            if peer.address is not None and proof == self._tags.tag(peer.id, 0, peer.address):
                return True
        return proof == self._tags.tag(header.source, header.source_epoch, source)

    def _refuse(self, datagram: Datagram, source: Address, now: float) -> None:
        """Say that an earlier life is over. Never in answer to the same, or two nodes would go on for ever."""
        if not any(type(frame) is Refused for frame in datagram.frames):
            self._stray(datagram.header, source, Refused(datagram.header.destination_epoch), now)

    def _receive_unproven(self, datagram: Datagram, source: Address, now: float) -> None:
        """From anybody: it may ask for slots, as nodes do that talk to us for the first time. For anything else it
        has to show first that it hears us, and gets a tag to show.
        """
        header = datagram.header
        for frame in datagram.frames:
            if not isinstance(frame, ReqSlots) or not self._on_first_request(header, frame, source, now):
                self._counters.dropped["unproven"] += 1
                self._stray(header, source, None, now)

    def _on_first_request(self, header: Header, frame: ReqSlots, source: Address, now: float) -> bool:
        """Grant slots to a node that may be anybody; False if it has to prove itself first."""
        key = header.source, header.source_epoch
        if key in self._records.receive:
            if key not in self._unproven:
                return False
            self._peers[header.source].inbounds[header.source_epoch].hear(header.time, source, now)
            frame = frame._replace(l=0)  # a claim must not waive what the true owner may still use
        elif frame.n and len(self._unproven) >= self.options.max_unproven:
            return False
        self._on_reqslots(header, frame, source, now)
        if key in self._records.receive:
            self._unproven.add(key)
        return True

    def _receive_valid(self, datagram: Datagram, source: Address, now: float) -> None:
        header = datagram.header
        peer = self._peers.get(header.source)
        if peer is not None:
            self._hear(peer, header, source, now)
            if not datagram.frames:
                peer.outbound.challenged()
        newest = peer is not None and peer.inbounds[header.source_epoch].newest == header.time
        tokens = False
        for frame in datagram.frames:
            if isinstance(frame, TokenFrame):
                tokens = True
                self._on_token(header, frame, source, now)
            elif isinstance(frame, Ack):
                self._on_ack(header, frame, newest, now)
            elif isinstance(frame, Slots):
                self._on_slots(header, frame, newest, source, bool(datagram.flags & CLOSING), now)
            elif isinstance(frame, ReqSlots):
                self._on_reqslots(header, frame, source, now)
            else:
                self._on_rare(header, frame, source, now)
        peer = self._peers.get(header.source)
        if peer is not None:
            inbound = peer.inbounds.get(header.source_epoch)
            if tokens and inbound is not None:
                inbound.count_datagram(now)
            peer.outbound.check_losses(now)
            self._ready[peer.id] = peer

    def _on_rare(self, header: Header, frame: Frame, source: Address, now: float) -> None:
        match frame:
            case ClosedFrame():
                self._records.on_closed(header.source, header.source_epoch, frame)
            case Refused():
                self._on_refused(header, frame, now)
            case Gone():
                self._on_gone(header, frame, now)
            case Slice():
                self._on_slice(header, frame, source, now)
            case Probe():
                self._reply(header, Probed(frame.size), source, now)
            case Probed():
                peer = self._peers.get(header.source)
                if peer is not None:
                    peer.outbound.mtu.probed(frame.size)
                    peer.outbound.recovery.congestion.datagram = peer.outbound.mtu.size

    def _life(self, peer: Peer, epoch: int, source: Address, proven: bool, now: float) -> Inbound | None:
        """What is known of one life of a peer; None when too many are known, and none of them worth less."""
        inbound = peer.inbounds.get(epoch)
        if inbound is None:
            if len(peer.inbounds) >= self.options.max_peer_epochs:
                spare = peer.spare_life(proven)
                if spare is None:
                    self._counters.dropped["too many epochs"] += 1
                    return None
                self._evict(peer, spare)
            inbound = peer.inbounds[epoch] = Inbound(epoch, source, self.options, now)
        if proven and not inbound.proven:
            inbound.proven = True
            self._unproven.discard((peer.id, epoch))
        return inbound

    def _hear(self, peer: Peer, header: Header, source: Address, now: float) -> None:
        """Learn from the header of a proven datagram."""
        inbound = self._life(peer, header.source_epoch, source, True, now)
        assert inbound is not None, "a proven life is worth any other"
        outbound = peer.outbound
        outbound.recovery.echoed(header.echo, header.delay, int(now * 1e6), now)
        peer.waiting_since = None if outbound.idle else now
        peer.reported = False
        peer.located()
        if not inbound.hear(header.time, source, now):
            return  # an old one: it may say something new, but not where the peer is
        inbound.proof = header.tag
        self._tag(peer, inbound, source)
        if peer.epoch != header.source_epoch:
            both = (peer.address, source) if peer.address is not None else (source,)
            if peer.switch(header.source_epoch, now):
                self._events.append(DuplicateId(peer.id, both))
        if peer.address != source:
            if peer.address is not None:
                self._counters.moves += 1
                self._events.append(PeerMoved(peer.id, peer.address, source))
            peer.address = source
            outbound.moved()

    def _tag(self, peer: Peer, inbound: Inbound, address: Address) -> int:
        """The tag that one life of a peer is given with datagrams to ``address``."""
        if address != inbound.tagged:
            inbound.retag(address, self._tags.tag(peer.id, inbound.epoch, address))
        return inbound.tag

    # -- frames ------------------------------------------------------------------------------------------------------

    def _on_reqslots(self, header: Header, frame: ReqSlots, source: Address, now: float) -> None:
        peer_id, epoch = header.source, header.source_epoch
        if frame.l > frame.s or frame.s + frame.n > MAX_NUMBER:
            self._counters.dropped["impossible request"] += 1
            return
        peer = self._peers.get(peer_id)
        window = self.options.receive_bytes
        if frame.n and (peer_id, epoch) not in self._records.receive:
            if self.closing:
                self._counters.dropped["closing"] += 1
                return
            if len(self._records.receive) >= self.options.max_records:
                self._counters.dropped["too many records"] += 1
                return
            peer = peer if peer is not None else self._meet(peer_id, now)
            if self._life(peer, epoch, source, False, now) is None:
                self._stray(header, source, None, now)
                return
        if peer is not None:
            window = peer.window
            inbound = peer.inbounds.get(epoch)
            if inbound is not None:
                inbound.last_window = window
                inbound.proof = inbound.proof or header.tag
                if not frame.n:
                    inbound.closed(frame.s)
        answer = self._records.on_reqslots(peer_id, epoch, frame, window)
        self._reply(header, answer, source, now)

    def _on_slots(self, header: Header, frame: Slots, newest: bool, source: Address, closing: bool, now: float) -> None:
        answer = self._records.on_slots(header.source, header.source_epoch, frame)
        peer = self._peers.get(header.source)
        if peer is not None and peer.outbound.record is not None:
            outbound = peer.outbound
            if outbound.severed:
                self._restarted(peer, [], True, now)
            outbound.on_granted(frame.n, frame.window if newest else outbound.window, now)
            if closing and outbound.idle:
                outbound.hurry = True
        if answer is not None:
            self._reply(header, answer, source, now)

    def _on_ack(self, header: Header, frame: Ack, newest: bool, now: float) -> None:
        peer = self._peers.get(header.source)
        if peer is None:
            return
        released = self._records.on_ack(header.source, header.source_epoch, frame.r, frame.ranges)
        if released:
            peer.outbound.on_acked(released, now)
            peer.waiting_since = None if peer.outbound.idle else now
        if newest:
            peer.outbound.set_window(frame.window)

    def _on_refused(self, header: Header, frame: Refused, now: float) -> None:
        peer = self._peers.get(header.source)
        if peer is None or frame.epoch == header.source_epoch:
            return
        peer.inbounds.pop(frame.epoch, None)
        self._unproven.discard((peer.id, frame.epoch))
        record = peer.outbound.record
        bound = record is not None and record.epoch == frame.epoch
        tokens = self._records.on_refused(header.source, frame.epoch)
        if bound:
            self._restarted(peer, tokens, True, now)
            if peer.outbound.idle:
                self._records.forget(peer.id)

    def _on_gone(self, header: Header, frame: Gone, now: float) -> None:
        peer = self._peers.get(header.source)
        record = peer.outbound.record if peer is not None else None
        if peer is None or record is None or record.epoch != header.source_epoch:
            return
        severed = record.rck == frame.r
        tokens = self._records.on_gone(header.source, header.source_epoch, frame.r)
        if tokens or severed:
            self._restarted(peer, tokens, severed, now)

    def _restarted(self, peer: Peer, tokens: list[Token], severed: bool, now: float) -> None:
        unknown = peer.outbound.on_unknown(tokens, severed, now)
        self._counters.messages_unknown += len(unknown)
        if self.closing:
            self._unknown_on_close += len(unknown)
        peer.waiting_since = None if peer.outbound.idle else now
        self._events.append(PeerRestarted(peer.id, tuple(unknown)))

    def _on_slice(self, header: Header, frame: Slice, source: Address, now: float) -> None:
        peer = self._peers.get(header.source)
        inbound = peer.inbounds.get(header.source_epoch) if peer is not None else None
        verdict = self._records.judge(header.source, header.source_epoch, frame.s, frame.r)
        if verdict is not Verdict.DELIVER or inbound is None:
            self._on_token(header, TokenFrame(frame.s, frame.r, b""), source, now)  # only its number matters
            return
        payload = inbound.join(frame)
        if payload is not None:
            self._on_token(header, TokenFrame(frame.s, frame.r, payload), source, now)

    def _on_token(self, header: Header, frame: TokenFrame, source: Address, now: float) -> None:
        peer_id, epoch = header.source, header.source_epoch
        verdict = self._records.judge(peer_id, epoch, frame.s, frame.r)
        peer = self._peers.get(peer_id)
        inbound = peer.inbounds.get(epoch) if peer is not None else None
        if verdict is Verdict.DELIVER:
            assert peer is not None
            assert inbound is not None
            if not self._deliver(peer, inbound, frame, header, source, now):
                inbound.owe_answer(0.0, now)
                return
            inbound.owe(frame.s, frame.r, self._ack_delay(peer), now)
        elif verdict is Verdict.DUPLICATE:
            self._counters.duplicates += 1
            if inbound is not None:
                inbound.owe(frame.s, frame.r, 0.0, now)
            else:
                self._stray(header, source, Ack(frame.r, self.options.receive_bytes, ((frame.s, frame.s + 1),)), now)
        elif verdict is Verdict.UNKNOWN:
            self._reply(header, Gone(frame.r), source, now)
        else:
            self._counters.dropped["impossible token"] += 1

    def _ack_delay(self, peer: Peer) -> float:
        return min(self.options.max_ack_delay, peer.outbound.recovery.rtt.smoothed / 4)

    # -- delivery: the handlers of payload kinds ---------------------------------------------------------------------

    def _deliver(
        self, peer: Peer, inbound: Inbound, frame: TokenFrame, header: Header, source: Address, now: float
    ) -> bool:
        """Use up the slot and put the payload where it belongs, or do neither."""
        if not peer.has_room(len(frame.payload)):
            self._counters.dropped["no room"] += 1
            return False
        handler = _HANDLERS.get(frame.payload[0])
        try:
            if handler is None:
                raise BadPacking
            return handler(self, peer, inbound, frame, header, source, now)
        except BadPacking:
            # No correct sender makes such a payload; keeping the slot would have it sent for ever.
            self._counters.dropped["payload"] += 1
            if frame.s in self._records.receive[peer.id, inbound.epoch].slots:
                self._records.consume(peer.id, inbound.epoch, frame.s)
            return True

    def _deliver_messages(
        self, peer: Peer, inbound: Inbound, frame: TokenFrame, _header: Header, _source: Address, _now: float
    ) -> bool:
        messages = packing.unpack(frame.payload)
        self._records.consume(peer.id, inbound.epoch, frame.s)
        self._put(peer, messages, len(frame.payload) + _MESSAGE_COST * len(messages), 0)
        return True

    def _deliver_fragment(
        self, peer: Peer, inbound: Inbound, frame: TokenFrame, header: Header, source: Address, now: float
    ) -> bool:
        fragment = packing.unpack_fragment(frame.payload)
        if fragment.total > self.options.max_message:
            self._counters.dropped["message too large"] += 1
            raise BadPacking
        if not inbound.begun(fragment.first):
            if fragment.first < self._records.receive[peer.id, inbound.epoch].base:
                # Its first fragments were taken by a record that was given up since, and are gone with it.
                self._reply(header, Gone(frame.r), source, now)
                return False
            if not peer.can_assemble(fragment.total):
                peer.full = True
                self._counters.dropped["no room"] += 1
                return False
        self._records.consume(peer.id, inbound.epoch, frame.s)
        message = inbound.assemble(frame.s, fragment)
        if message is not None:
            self._put(peer, [message], _MESSAGE_COST, len(message))
        return True

    def _put(self, peer: Peer, messages: list[bytes], cost: int, large: int) -> None:
        peer.buffered += cost
        peer.large += large
        self._counters.messages_delivered += len(messages)
        self._inbox.append((peer, peer.id, messages, cost, large))

    # -- datagrams out -----------------------------------------------------------------------------------------------

    def datagrams(self, now: float) -> Iterator[tuple[Address, bytes]]:
        """Everything that wants to leave now. Stop iterating when the network is full; the rest keeps."""
        while self._strays:
            yield self._count(self._strays.pop()[1:])
        while self._ready:
            peer_id = next(iter(self._ready))
            peer = self._ready[peer_id]
            yield from self._peer_datagrams(peer, now)
            self._ready.pop(peer_id, None)
            self._settle(peer, now)

    def _count(self, datagram: tuple[Address, bytes]) -> tuple[Address, bytes]:
        self._counters.datagrams_sent += 1
        self._counters.bytes_sent += len(datagram[1])
        return datagram

    def _peer_datagrams(self, peer: Peer, now: float) -> Iterator[tuple[Address, bytes]]:
        outbound = peer.outbound
        record = outbound.record
        target = (record.epoch if record is not None else None) or peer.epoch
        for inbound in list(peer.inbounds.values()):
            frames = self._answers(peer, inbound, now)
            if inbound.epoch != target or sum(map(len, frames)) > _RIDE:
                for some in _portions(frames, outbound.mtu.size - overhead(self.id, peer.id)):
                    yield self._assemble(peer, inbound.epoch, peer.route_to(inbound), some, now)[0]
                frames = []
            if inbound.epoch == target:
                yield from self._tokens(peer, target, frames, now)
        if target not in peer.inbounds:
            yield from self._tokens(peer, target, [], now)

    def _answers(self, peer: Peer, inbound: Inbound, now: float) -> list[bytes]:
        """What is due to one life of a peer: replies, acknowledgements, a probe."""
        record = peer.receive_record(inbound.epoch)
        frames = [encode_frame(frame) for frame in inbound.replies]
        inbound.replies.clear()
        probe_at = peer.probe_at(inbound, self.closing)
        if record is not None and probe_at is not None and probe_at <= now:
            inbound.probe(self.closing, now)
            frames.append(encode_frame(self._records.probe(record, peer.window)))
        if inbound.ack_due is not None and (inbound.ack_due <= now or not peer.outbound.idle):
            frames += map(encode_frame, inbound.take_acks(record, peer.window))
        return frames

    def _tokens(self, peer: Peer, epoch: int, frames: list[bytes], now: float) -> Iterator[tuple[Address, bytes]]:
        """Requests and tokens, the answers riding with the first of them."""
        outbound = peer.outbound
        if peer.address is None:
            return
        outbound.wants_probe(now)
        for size in outbound.mtu.probes(now, outbound.recovery.rtt.timeout) if epoch else ():
            yield self._assemble(peer, epoch, peer.address, [encode_frame(Probe(size))], now, size)[0]
        room = outbound.mtu.size - overhead(self.id, peer.id)
        while True:
            request = outbound.request(now)
            if request is not None:
                frames.append(encode_frame(request))
            tokens: list[Token] = []
            for frame, carried in outbound.tokens(room - sum(map(len, frames)), now):
                frames.append(frame)
                tokens += carried
            if not frames:
                return
            datagram, time = self._assemble(peer, epoch, peer.address, frames, now)
            if tokens:
                outbound.recovery.sent(time, len(datagram[1]), tokens, now)
            if peer.waiting_since is None and not outbound.idle:
                peer.waiting_since = now
            yield datagram
            frames = []

    def _assemble(
        self, peer: Peer, epoch: int, address: Address, frames: list[bytes], now: float, size: int = 0
    ) -> tuple[tuple[Address, bytes], int]:
        time = peer.last_time = max(peer.last_time + 1, int(now * 1e6))
        inbound = peer.inbounds.get(epoch)
        echo, delay = (inbound.newest, max(0, int((now - inbound.arrived) * 1e6))) if inbound is not None else (0, 0)
        tag = self._tag(peer, inbound, address) if inbound is not None else self._tags.tag(peer.id, epoch, address)
        proof = inbound.proof if inbound is not None else 0
        header = Header(self.id, peer.id, self.epoch, epoch, tag, proof, time, echo, delay)
        data = encode(header, frames, CLOSING if self.closing else 0, size)
        return self._count((address, data)), time

    def _reply(self, header: Header, frame: Frame, source: Address, now: float) -> None:
        """Answer a frame: with the next datagram to that life of the peer if we keep state for it, else at once."""
        peer = self._peers.get(header.source)
        inbound = peer.inbounds.get(header.source_epoch) if peer is not None else None
        if peer is None or inbound is None:
            self._stray(header, source, frame, now)
            return
        inbound.reply(frame)
        self._ready[peer.id] = peer

    def _stray(self, header: Header, source: Address, frame: Frame | None, now: float) -> None:
        """Answer somebody we keep no state for: once per datagram, or one datagram could ask for a thousand.

        Without a frame the answer only carries a tag: an empty datagram is never answered with another.
        """
        if len(self._strays) >= _MOST_STRAYS or (self._strays and self._strays[-1][0] is header):
            return
        tag = self._tags.tag(header.source, header.source_epoch, source)
        time = max(1, int(now * 1e6))
        answer = Header(self.id, header.source, self.epoch, header.source_epoch, tag, header.tag, time, header.time, 0)
        frames = [] if frame is None else [encode_frame(frame)]
        self._strays.append((header, source, encode(answer, frames, CLOSING if self.closing else 0)))

    # -- time --------------------------------------------------------------------------------------------------------

    def deadline(self) -> float | None:
        """When :meth:`expire` must be called at the latest; None if nothing will ever be due by itself."""
        timers = self._timers
        while timers:
            when, peer_id = timers[0]
            peer = self._peers.get(peer_id)
            if peer is not None and peer.wakes_at == when:
                return when
            heappop(timers)
        return None

    def expire(self, now: float) -> None:
        """Do what is due; afterwards :meth:`datagrams` may have something."""
        while (when := self.deadline()) is not None and when <= now:
            _, peer_id = heappop(self._timers)
            peer = self._peers[peer_id]
            peer.wakes_at = float("inf")
            self._expire_peer(peer, now)
            self._ready[peer_id] = peer

    def _expire_peer(self, peer: Peer, now: float) -> None:
        for inbound in list(peer.inbounds.values()):
            if now >= inbound.heard + self.options.forget_after:
                self._evict(peer, inbound)
        if peer.outbound.record is not None and peer.address is not None:
            peer.outbound.expire(now)
            if self.closing and peer.outbound.unconfirmed:
                self._unconfirmed.add(peer.id)
        waiting = peer.waiting_since
        if waiting is not None and not peer.reported and now >= waiting + self.options.unreachable_after:
            peer.reported = True
            self._events.append(PeerUnreachable(peer.id, now - waiting))
        self._look_up(peer, now)

    def _evict(self, peer: Peer, inbound: Inbound) -> None:
        """Give up one life of a peer, with whatever of it is half here."""
        del peer.inbounds[inbound.epoch]
        self._unproven.discard((peer.id, inbound.epoch))
        if peer.receive_record(inbound.epoch) is not None:
            self._records.evict(peer.id, inbound.epoch)
            self._counters.evictions += 1

    def _look_up(self, peer: Peer, now: float) -> None:
        if peer.lost and peer.wanted and peer.lookup_due(now):
            elsewhere = peer.another_address(self.book.find(peer.id))
            if elsewhere is not None:
                self._go_to(peer, elsewhere)
            self._events.append(LookupWanted(peer.id))

    def _settle(self, peer: Peer, now: float) -> None:
        """After everything that could leave has left: forget the peer, or note when to look at it again."""
        if peer.forgettable:
            del self._peers[peer.id]
            peer.wakes_at = float("inf")
            return
        self._look_up(peer, now)
        when = min(peer.deadlines(self.closing, now), default=None)
        if when is not None and when < peer.wakes_at:
            peer.wakes_at = when
            heappush(self._timers, (when, peer.id))

    def _meet(self, peer_id: str, now: float) -> Peer:
        outbound = Outbound(peer_id, overhead(self.id, peer_id), self.options, self._records, self._counters)
        peer = self._peers[peer_id] = Peer(peer_id, outbound, self.options, self._records, now)
        peer.address = self.book.find(peer_id)
        return peer

    # -- looking in --------------------------------------------------------------------------------------------------

    def has_room(self, peer_id: str, size: int) -> bool:
        """Whether :meth:`send` of ``size`` bytes would be accepted now."""
        if peer_id == self.id:
            return not self._own_buffered or self._own_buffered + size + _MESSAGE_COST <= self.options.receive_bytes
        peer = self._peers.get(peer_id)
        return peer is None or peer.outbound.has_room(size)

    def stats(self) -> NodeStats:
        """Everything counted so far, and the present state in numbers."""
        counted = attrs.asdict(self._counters, recurse=False)
        counted["dropped"] = dict(self._counters.dropped)
        return NodeStats(
            **counted,
            send_records=len(self._records.send),
            receive_records=len(self._records.receive),
            buffered_bytes=self._own_buffered + sum(peer.buffered + peer.large for peer in self._peers.values()),
            clock=self._records.clock.value,
            peers={peer.id: _peer_stats(peer) for peer in self._peers.values()},
        )


def _portions(frames: list[bytes], room: int) -> Iterator[list[bytes]]:
    """The frames in order, as many at a time as fit into a datagram."""
    portion: list[bytes] = []
    left = room
    for frame in frames:
        if portion and len(frame) > left:
            yield portion
            portion, left = [], room
        portion.append(frame)
        left -= len(frame)
    if portion:
        yield portion


def _peer_stats(peer: Peer) -> PeerStats:
    outbound = peer.outbound
    return PeerStats(
        address=peer.address,
        rtt=outbound.recovery.rtt.smoothed,
        datagram_size=outbound.mtu.size,
        window=outbound.recovery.congestion.window,
        in_flight=outbound.recovery.in_flight,
        pending_messages=outbound.pending_messages,
        pending_bytes=outbound.pending_bytes,
        buffered_bytes=peer.buffered + peer.large,
    )


_HANDLERS = {
    packing.DELIVER: Node._deliver_messages,
    packing.FRAGMENT: Node._deliver_fragment,
}
