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
from exon.wire import CLOSING, Header, constant_part, encode, encode_frame, encode_token, seal, seal_short

_RIDE = 96  # bytes of answers that may ride with a full token (see outbound)


class Departures:
    """The sending half of a node."""

    def __init__(self, state: State) -> None:
        """Work on ``state``."""
        self._state = state

    def quick(self, peer: Peer, now: float) -> tuple[Address, bytes] | None:
        """The only datagram there is to send, if it is one as nearly all are: a token, and what is owed."""
        state = self._state
        inbound, address = peer.inbounds.get(peer.epoch), peer.address
        if inbound is None or address is None or len(peer.inbounds) > 1 or inbound.replies or state.closing:
            return None
        outbound = peer.outbound
        record = outbound.record
        if record is None or record.epoch != inbound.epoch or inbound.may_ask(now) or not outbound.has_ample(record):
            return None
        if outbound.mtu.deadline() is not None:  # the path is being probed
            return None
        token = outbound.quick_token(record, now)
        if token is None:
            return None
        recovery = outbound.recovery
        frames = [encode_token(token.s, token.r, token.payload)]
        if inbound.ack_due is not None and (not recovery.paced or now >= inbound.told_at + recovery.ack_interval):
            frames[:0] = self._owed(peer, inbound, now)
        datagram, time = self._assemble(peer, inbound.epoch, address, frames, now, familiar=True)
        recovery.sent(time, len(datagram[1]), [token], now)
        recovery.limited()  # by the application: there is nothing more
        if peer.waiting_since is None:
            peer.waiting_since = now
        return datagram

    def datagrams(self, peer: Peer, now: float) -> Iterator[tuple[Address, bytes]]:
        """Everything that may leave for one peer now."""
        outbound = peer.outbound
        record = outbound.record
        target = (record.epoch if record is not None else None) or peer.epoch
        for inbound in tuple(peer.inbounds.values()):
            frames, familiar = self._answers(peer, inbound, now)
            if frames and (inbound.epoch != target or sum(map(len, frames)) > _RIDE):
                for some in _portions(frames, outbound.mtu.size - peer.overhead):
                    yield self._assemble(peer, inbound.epoch, peer.route_to(inbound), some, now, familiar=familiar)[0]
                frames, familiar = [], True
            if inbound.epoch == target and (frames or record is not None):
                yield from self._tokens(peer, target, frames, familiar, now)
        if target not in peer.inbounds:
            yield from self._tokens(peer, target, [], False, now)

    def _answers(self, peer: Peer, inbound: Inbound, now: float) -> tuple[list[bytes], bool]:
        """What is due to one life of a peer: replies, acknowledgements, a probe; and whether it must know us for it."""
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
        if due is not None and (frames or due <= now or self._rides(peer, inbound, now)):
            familiar = not frames
            return frames + self._owed(peer, inbound, now), familiar
        return frames, not frames

    @staticmethod
    def _rides(peer: Peer, inbound: Inbound, now: float) -> bool:
        """Whether an acknowledgement that need not leave yet had better do so with what else may leave.

        Where it is not due for every second datagram, it would not be due for every one that goes the other way.
        """
        outbound = peer.outbound
        recovery = outbound.recovery
        if not recovery.paced:
            return not outbound.idle
        return outbound.has_more and now >= inbound.told_at + recovery.ack_interval

    def _tokens(
        self, peer: Peer, epoch: int, frames: list[bytes], familiar: bool, now: float
    ) -> Iterator[tuple[Address, bytes]]:
        """Requests and tokens, the answers riding with the first of them."""
        outbound = peer.outbound
        record = outbound.record
        address = peer.route(epoch)
        if address is None:
            return
        if epoch and outbound.probes_path(now):
            for size in outbound.mtu.probes(now, outbound.recovery.rtt.timeout):
                probe = [*self._owed(peer, peer.inbounds.get(epoch), now), encode_frame(Probe(size))]
                yield self._assemble(peer, epoch, address, probe, now, size)[0]
        while True:
            request = outbound.request(now)
            if request is not None:
                frames += self._owed(peer, peer.inbounds.get(epoch), now)
                frames.append(encode_frame(request))
                familiar = False
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
            datagram, time = self._assemble(peer, epoch, address, frames, now, familiar=familiar)
            if tokens:
                outbound.recovery.sent(time, len(datagram[1]), tokens, now)
            if peer.waiting_since is None and not outbound.idle:
                peer.waiting_since = now
            yield datagram
            if not outbound.has_more:
                outbound.recovery.limited()  # by the application
                return
            frames, familiar = [], True

    @staticmethod
    def _owed(peer: Peer, inbound: Inbound | None, now: float) -> list[bytes]:
        """The acknowledgements for one life, to leave now.

        What is no mere token leaves with them: it tells which of the peer's datagrams have come, so what it does not
        acknowledge would be taken for lost (:meth:`exon.recovery.Recovery.told`).
        """
        if inbound is None or inbound.ack_due is None:
            return []
        inbound.told_at = now
        return inbound.take_acks(peer.receive_record(inbound.epoch), peer.window)

    def _assemble(
        self,
        peer: Peer,
        epoch: int,
        address: Address,
        frames: list[bytes],
        now: float,
        size: int = 0,
        familiar: bool = False,
    ) -> tuple[tuple[Address, bytes], int]:
        """A datagram, and its time.

        It is a short one if it says nothing but what is of use only to somebody who knows us anyway (``familiar``), as
        tokens and acknowledgements are. While nobody answers, the peer may have forgotten us, or have moved; so it is
        told again who speaks.
        """
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
            inbound.written_at = time
            inbound.constant = constant_part(Header(state.id, peer.id, state.epoch, epoch, tag, inbound.proof, *times))
        if familiar and inbound.echoed >= inbound.written_at and not peer.outbound.recovery.timeouts:
            return state.count((address, seal_short(inbound.proof, times, frames, flags))), time
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
