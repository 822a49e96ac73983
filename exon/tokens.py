"""From a token to the application: its slot is used up and its payload delivered in one step, or neither.

Only the record decides whether a token is delivered (:mod:`exon.records`); what it delivers is a matter of the kind of
its payload (:mod:`exon.packing`).
"""

from __future__ import annotations

from exon import packing
from exon.addresses import Address
from exon.frames import Ack, Gone, Slice
from exon.inbound import Inbound
from exon.packing import BadPacking
from exon.peer import Peer
from exon.records import Verdict
from exon.state import MESSAGE_COST, Arrived, Data, State
from exon.wire import Header


class Tokens:
    """What a node does with tokens that arrive."""

    def __init__(self, state: State) -> None:
        """Work on ``state``."""
        self._state = state

    def on_slice(self, header: Header, frame: Slice, source: Address, now: float) -> None:
        """A part of a token came."""
        peer = self._state.peers.get(header.source)
        inbound = peer.inbounds.get(header.source_epoch) if peer is not None else None
        verdict = self._state.records.judge(header.source, header.source_epoch, frame.s, frame.r)
        if verdict is not Verdict.DELIVER or inbound is None:
            self.on_token(header, frame.s, frame.r, 0, b"", source, now)  # only its number matters
            return
        payload = inbound.join(frame)
        if payload is not None:
            self.on_token(header, frame.s, frame.r, payload[0], payload[1:], source, now)

    def take_quickly(self, peer: Peer, inbound: Inbound, s: int, r: int, kind: int, data: Data, now: float) -> bool:
        """Deliver a token that has its slot, and room, if it is a whole message or a further part of one.

        False if there is more to be said about it; then nothing has happened.
        """
        state = self._state
        record = state.records.receive.get((peer.id, inbound.epoch))
        if record is None or record.rck != r:
            return False
        size = len(data) + 1
        if peer.full or size > state.options.receive_bytes - peer.buffered - peer.large:
            return False
        if kind == packing.WHOLE:
            if not record.slots.discard(s):
                return False
            cost = size + MESSAGE_COST
            peer.buffered += cost
            state.counters.messages_delivered += 1
            state.inbox.append(Arrived(peer, peer.id, [data], cost, 0))
        elif kind == packing.FRAGMENT:
            first = inbound.further_part(s, data)
            if first is None or not record.slots.discard(s):
                return False
            message = inbound.add_part(s, first, data)
            if message is not None:
                self.put_large(peer, message)
        else:
            return False
        inbound.doubtful = 0
        inbound.owe(s, r, self.ack_delay(peer), now)
        return True

    def on_token(self, header: Header, s: int, r: int, kind: int, data: Data, source: Address, now: float) -> None:
        """A token came, with a payload of this kind: deliver it, acknowledge it, or say that nobody knows."""
        peer_id, epoch = header.source, header.source_epoch
        verdict = self._state.records.judge(peer_id, epoch, s, r)
        peer = self._state.peers.get(peer_id)
        inbound = peer.inbounds.get(epoch) if peer is not None else None
        if verdict is Verdict.DELIVER:
            assert peer is not None
            assert inbound is not None
            if not self._deliver(peer, inbound, s, r, kind, data, header, source, now):
                inbound.owe_answer(0.0, now)
                return
            inbound.doubtful = 0
            inbound.owe(s, r, self.ack_delay(peer), now)
        elif verdict is Verdict.DUPLICATE:
            self._state.counters.duplicates += 1
            if inbound is not None:
                inbound.owe(s, r, 0.0, now)
            else:
                self._state.stray(header, source, Ack(r, self._state.options.receive_bytes, ((s, s + 1),)), now)
        elif verdict is Verdict.UNKNOWN:
            self._state.reply(header, Gone(r), source, now)
        else:
            self._state.counters.dropped["impossible token"] += 1

    def ack_delay(self, peer: Peer) -> float:
        """How long an acknowledgement may wait for data to ride on."""
        delay, most = peer.outbound.recovery.ack_interval, self._state.options.max_ack_delay
        return delay if delay < most else most

    # -- delivery: the handlers of payload kinds ---------------------------------------------------------------------

    def _deliver(
        self,
        peer: Peer,
        inbound: Inbound,
        s: int,
        r: int,
        kind: int,
        data: Data,
        header: Header,
        source: Address,
        now: float,
    ) -> bool:
        """Use up the slot and put the payload where it belongs, or do neither."""
        if not peer.has_room(len(data) + 1):
            self._state.counters.dropped["no room"] += 1
            return False
        try:
            if kind in (packing.DELIVER, packing.WHOLE):
                self._deliver_messages(peer, inbound, s, kind, data)
                return True
            if kind == packing.FRAGMENT:
                return self._deliver_fragment(peer, inbound, s, r, data, header, source, now)
            raise BadPacking
        except BadPacking:
            # No correct sender makes such a payload; keeping the slot would have it sent for ever.
            self._state.counters.dropped["payload"] += 1
            if s in self._state.records.receive[peer.id, inbound.epoch].slots:
                self._state.records.consume(peer.id, inbound.epoch, s)
            return True

    def _deliver_messages(self, peer: Peer, inbound: Inbound, s: int, kind: int, data: Data) -> None:
        messages = packing.messages_of(kind, data)
        self._state.records.consume(peer.id, inbound.epoch, s)
        self._put(peer, messages, len(data) + 1 + MESSAGE_COST * len(messages), 0)

    def _deliver_fragment(
        self, peer: Peer, inbound: Inbound, s: int, r: int, data: Data, header: Header, source: Address, now: float
    ) -> bool:
        fragment = packing.fragment_of(data)
        if fragment.total > self._state.options.max_message:
            self._state.counters.dropped["message too large"] += 1
            raise BadPacking
        if not inbound.begun(fragment.first):
            if fragment.first < self._state.records.receive[peer.id, inbound.epoch].base:
                # Its first fragments were taken by a record that was given up since, and are gone with it.
                self._state.reply(header, Gone(r), source, now)
                return False
            if not peer.can_assemble(fragment.total):
                peer.full = True
                self._state.counters.dropped["no room"] += 1
                return False
        self._state.records.consume(peer.id, inbound.epoch, s)
        message = inbound.assemble(s, fragment)
        if message is not None:
            self.put_large(peer, message)
        return True

    def put_large(self, peer: Peer, message: bytes) -> None:
        """A message that came in parts is whole."""
        self._put(peer, [message], MESSAGE_COST, len(message))

    def _put(self, peer: Peer, messages: list[Data], cost: int, large: int) -> None:
        peer.buffered += cost
        peer.large += large
        self._state.counters.messages_delivered += len(messages)
        self._state.inbox.append(Arrived(peer, peer.id, messages, cost, large))
