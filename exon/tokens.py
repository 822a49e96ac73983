"""From a token to the application: its slot is used up and its payload delivered in one step, or neither.

Only the record decides whether a token is delivered (:mod:`exon.records`); a payload begins with its kind, and each
kind has a handler.
"""

from __future__ import annotations

from exon import packing
from exon.addresses import Address
from exon.frames import Ack, Gone, Slice, TokenFrame
from exon.inbound import Inbound
from exon.packing import BadPacking
from exon.peer import Peer
from exon.records import Verdict
from exon.state import MESSAGE_COST, Arrived, State
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
            self.on_token(header, TokenFrame(frame.s, frame.r, b""), source, now)  # only its number matters
            return
        payload = inbound.join(frame)
        if payload is not None:
            self.on_token(header, TokenFrame(frame.s, frame.r, payload), source, now)

    def take_quickly(self, peer: Peer, inbound: Inbound, frame: TokenFrame, now: float) -> bool:
        """Deliver a token with one whole message that has its slot, and room; False if there is more to be said."""
        s, r, payload = frame
        state = self._state
        record = state.records.receive.get((peer.id, inbound.epoch))
        if record is None or record.rck != r or payload[0] != packing.WHOLE:
            return False
        size = len(payload)
        if peer.full or size > state.options.receive_bytes - peer.buffered - peer.large:
            return False
        if not record.slots.discard(s):
            return False
        inbound.doubtful = 0
        self._put(peer, [payload[1:]], size + MESSAGE_COST, 0)
        inbound.owe(s, r, self._ack_delay(peer), now)
        return True

    def on_token(self, header: Header, frame: TokenFrame, source: Address, now: float) -> None:
        """A token came: deliver it, acknowledge it, or say that nobody knows."""
        peer_id, epoch = header.source, header.source_epoch
        verdict = self._state.records.judge(peer_id, epoch, frame.s, frame.r)
        peer = self._state.peers.get(peer_id)
        inbound = peer.inbounds.get(epoch) if peer is not None else None
        if verdict is Verdict.DELIVER:
            assert peer is not None
            assert inbound is not None
            if not self._deliver(peer, inbound, frame, header, source, now):
                inbound.owe_answer(0.0, now)
                return
            inbound.doubtful = 0
            inbound.owe(frame.s, frame.r, self._ack_delay(peer), now)
        elif verdict is Verdict.DUPLICATE:
            self._state.counters.duplicates += 1
            if inbound is not None:
                inbound.owe(frame.s, frame.r, 0.0, now)
            else:
                self._state.stray(
                    header, source, Ack(frame.r, self._state.options.receive_bytes, ((frame.s, frame.s + 1),)), now
                )
        elif verdict is Verdict.UNKNOWN:
            self._state.reply(header, Gone(frame.r), source, now)
        else:
            self._state.counters.dropped["impossible token"] += 1

    def _ack_delay(self, peer: Peer) -> float:
        return min(self._state.options.max_ack_delay, peer.outbound.recovery.ack_interval)

    # -- delivery: the handlers of payload kinds ---------------------------------------------------------------------

    def _deliver(
        self, peer: Peer, inbound: Inbound, frame: TokenFrame, header: Header, source: Address, now: float
    ) -> bool:
        """Use up the slot and put the payload where it belongs, or do neither."""
        if not peer.has_room(len(frame.payload)):
            self._state.counters.dropped["no room"] += 1
            return False
        handler = _HANDLERS.get(frame.payload[0])
        try:
            if handler is None:
                raise BadPacking
            return handler(self, peer, inbound, frame, header, source, now)
        except BadPacking:
            # No correct sender makes such a payload; keeping the slot would have it sent for ever.
            self._state.counters.dropped["payload"] += 1
            if frame.s in self._state.records.receive[peer.id, inbound.epoch].slots:
                self._state.records.consume(peer.id, inbound.epoch, frame.s)
            return True

    def _deliver_messages(
        self, peer: Peer, inbound: Inbound, frame: TokenFrame, _header: Header, _source: Address, _now: float
    ) -> bool:
        messages = packing.unpack(frame.payload)
        self._state.records.consume(peer.id, inbound.epoch, frame.s)
        self._put(peer, messages, len(frame.payload) + MESSAGE_COST * len(messages), 0)
        return True

    def _deliver_fragment(
        self, peer: Peer, inbound: Inbound, frame: TokenFrame, header: Header, source: Address, now: float
    ) -> bool:
        fragment = packing.unpack_fragment(frame.payload)
        if fragment.total > self._state.options.max_message:
            self._state.counters.dropped["message too large"] += 1
            raise BadPacking
        if not inbound.begun(fragment.first):
            if fragment.first < self._state.records.receive[peer.id, inbound.epoch].base:
                # Its first fragments were taken by a record that was given up since, and are gone with it.
                self._state.reply(header, Gone(frame.r), source, now)
                return False
            if not peer.can_assemble(fragment.total):
                peer.full = True
                self._state.counters.dropped["no room"] += 1
                return False
        self._state.records.consume(peer.id, inbound.epoch, frame.s)
        message = inbound.assemble(frame.s, fragment)
        if message is not None:
            self._put(peer, [message], MESSAGE_COST, len(message))
        return True

    def _put(self, peer: Peer, messages: list[bytes], cost: int, large: int) -> None:
        peer.buffered += cost
        peer.large += large
        self._state.counters.messages_delivered += len(messages)
        self._state.inbox.append(Arrived(peer, peer.id, messages, cost, large))


_HANDLERS = {
    packing.DELIVER: Tokens._deliver_messages,
    packing.WHOLE: Tokens._deliver_messages,
    packing.FRAGMENT: Tokens._deliver_fragment,
}
