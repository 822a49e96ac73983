"""What leaves: answers, requests and tokens of one peer, put together into datagrams.

What is due is decided elsewhere: acknowledgements and probes by :mod:`exon.inbound`, requests and tokens by
:mod:`exon.outbound`. Here it is packed, answers riding with data wherever they can.
"""

from __future__ import annotations

from collections.abc import Iterator

from exon.addresses import Address
from exon.frames import Probe
from exon.inbound import Inbound
from exon.peer import Peer
from exon.records import Token
from exon.state import State
from exon.wire import CLOSING, Header, constant_part, encode, encode_frame, encode_token, seal

_RIDE = 96  # bytes of answers that may ride with a full token (see outbound)


class Departures:
    """The sending half of a node."""

    def __init__(self, state: State) -> None:
        """Work on ``state``."""
        self._state = state

    def datagrams(self, peer: Peer, now: float) -> Iterator[tuple[Address, bytes]]:
        """Everything that may leave for one peer now."""
        outbound = peer.outbound
        record = outbound.record
        target = (record.epoch if record is not None else None) or peer.epoch
        for inbound in tuple(peer.inbounds.values()):
            frames = self._answers(peer, inbound, now)
            if frames and (inbound.epoch != target or sum(map(len, frames)) > _RIDE):
                for some in _portions(frames, outbound.mtu.size - peer.overhead):
                    yield self._assemble(peer, inbound.epoch, peer.route_to(inbound), some, now)[0]
                frames = []
            if inbound.epoch == target and (frames or record is not None):
                yield from self._tokens(peer, target, frames, now)
        if target not in peer.inbounds:
            yield from self._tokens(peer, target, [], now)

    def _answers(self, peer: Peer, inbound: Inbound, now: float) -> list[bytes]:
        """What is due to one life of a peer: replies, acknowledgements, a probe."""
        frames: list[bytes] = []
        if inbound.replies:
            frames += map(encode_frame, inbound.replies)
            inbound.replies.clear()
        closing = self._state.closing
        if closing or inbound.may_ask(now):
            record = peer.receive_record(inbound.epoch)
            probe_at = peer.probe_at(inbound, closing)
            if record is not None and probe_at is not None and probe_at <= now:
                inbound.probe(closing, now)
                frames.append(encode_frame(self._state.records.probe(record, peer.window)))
        due = inbound.ack_due
        if due is not None and (due <= now or not peer.outbound.idle):
            frames += [encode_frame(ack) for ack in inbound.take_acks(peer.receive_record(inbound.epoch), peer.window)]
        return frames

    def _tokens(self, peer: Peer, epoch: int, frames: list[bytes], now: float) -> Iterator[tuple[Address, bytes]]:
        """Requests and tokens, the answers riding with the first of them."""
        outbound = peer.outbound
        record = outbound.record
        address = peer.route(epoch)
        if address is None:
            return
        if epoch and outbound.probes_path(now):
            for size in outbound.mtu.probes(now, outbound.recovery.rtt.timeout):
                yield self._assemble(peer, epoch, address, [encode_frame(Probe(size))], now, size)[0]
        while True:
            request = outbound.request(now)
            if request is not None:
                frames.append(encode_frame(request))
            tokens: list[Token] = []
            token = outbound.quick_token(record, now) if record is not None else None
            if token is not None:
                frames.append(encode_token(token.s, token.r, token.payload))
                tokens.append(token)
            elif outbound.has_more:
                room = outbound.mtu.size - peer.overhead
                for frame, carried in outbound.tokens(room - sum(map(len, frames)), now):
                    frames.append(frame)
                    tokens += carried
            if not frames:
                return
            datagram, time = self._assemble(peer, epoch, address, frames, now)
            if tokens:
                outbound.recovery.sent(time, len(datagram[1]), tokens, now)
            if peer.waiting_since is None and not outbound.idle:
                peer.waiting_since = now
            yield datagram
            if not outbound.has_more:
                outbound.recovery.limited()  # by the application
                return
            frames = []

    def _assemble(
        self, peer: Peer, epoch: int, address: Address, frames: list[bytes], now: float, size: int = 0
    ) -> tuple[tuple[Address, bytes], int]:
        state = self._state
        time = peer.last_time = max(peer.last_time + 1, int(now * 1e6))
        inbound = peer.inbounds.get(epoch)
        flags = CLOSING if state.closing else 0
        if inbound is None:
            header = Header(
                state.id, peer.id, state.epoch, epoch, state.tags.tag(peer.id, epoch, address), 0, time, 0, 0
            )
            return state.count((address, encode(header, frames, flags, size))), time
        times = time, inbound.newest, max(0, int((now - inbound.arrived) * 1e6))
        tag = inbound.tag if address == inbound.tagged else state.tag(peer, inbound, address)
        if inbound.written != (tag, inbound.proof):
            inbound.written = tag, inbound.proof
            inbound.constant = constant_part(Header(state.id, peer.id, state.epoch, epoch, tag, inbound.proof, *times))
        return state.count((address, seal(inbound.constant, times, frames, flags, size))), time


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
