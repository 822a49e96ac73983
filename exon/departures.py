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
from exon.wire import CLOSING, Header, encode, encode_frame, overhead

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
        for inbound in list(peer.inbounds.values()):
            frames = self._answers(peer, inbound, now)
            if inbound.epoch != target or sum(map(len, frames)) > _RIDE:
                for some in _portions(frames, outbound.mtu.size - overhead(self._state.id, peer.id)):
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
        probe_at = peer.probe_at(inbound, self._state.closing)
        if record is not None and probe_at is not None and probe_at <= now:
            inbound.probe(self._state.closing, now)
            frames.append(encode_frame(self._state.records.probe(record, peer.window)))
        if inbound.ack_due is not None and (inbound.ack_due <= now or not peer.outbound.idle):
            frames += map(encode_frame, inbound.take_acks(record, peer.window))
        return frames

    def _tokens(self, peer: Peer, epoch: int, frames: list[bytes], now: float) -> Iterator[tuple[Address, bytes]]:
        """Requests and tokens, the answers riding with the first of them."""
        outbound = peer.outbound
        address = peer.route(epoch)
        if address is None:
            return
        outbound.wants_probe(now)
        for size in outbound.mtu.probes(now, outbound.recovery.rtt.timeout) if epoch else ():
            yield self._assemble(peer, epoch, address, [encode_frame(Probe(size))], now, size)[0]
        room = outbound.mtu.size - overhead(self._state.id, peer.id)
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
            datagram, time = self._assemble(peer, epoch, address, frames, now)
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
        tag = (
            self._state.tag(peer, inbound, address)
            if inbound is not None
            else self._state.tags.tag(peer.id, epoch, address)
        )
        proof = inbound.proof if inbound is not None else 0
        header = Header(self._state.id, peer.id, self._state.epoch, epoch, tag, proof, time, echo, delay)
        data = encode(header, frames, CLOSING if self._state.closing else 0, size)
        return self._state.count((address, data)), time


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
