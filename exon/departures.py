"""What leaves: answers, requests and tokens of one peer, put together into datagrams.

What is due is decided elsewhere: acknowledgements and probes by :mod:`exon.inbound`, requests and tokens by
:mod:`exon.outbound`. Here it is packed, answers riding with data wherever they can.
"""

from __future__ import annotations

from collections.abc import Iterator

from exon import packing, plain
from exon.addresses import Address
from exon.frames import Probe
from exon.inbound import Inbound
from exon.peer import Peer
from exon.plain import ACK, TOKEN, WIDE
from exon.records import Token
from exon.state import State
from exon.wire import CLOSING, LOW, SHORT, Header, constant_part, encode, encode_frame, seal, seal_short

_TOKEN = SHORT | TOKEN
_RIDE = 96  # bytes of answers that may ride with a full token (see outbound)
_MOST_RIDING = 3 + 2 * 8  # numbers of an acknowledgement that may ride with a plain token, which leaves room for them


class Departures:
    """The sending half of a node."""

    def __init__(self, state: State) -> None:
        """Work on ``state``."""
        self._state = state
        self.rests = False  # whether there is nothing to say after what plain() answered last
        self.resumes = False  # whether what is left after datagrams() is for plain() again

    def plain(self, peer: Peer, now: float) -> tuple[Address, bytes] | None:
        """The next datagram, if it is as nearly all are: a token, an acknowledgement, or both, to whom knows us.

        None if there is something else to say, which is for :meth:`datagrams`, or nothing: then it ``rests``, which may
        be known already when this was the last one.
        """
        state = self._state
        inbound, address, outbound = peer.inbounds.get(peer.epoch), peer.address, peer.outbound
        self.rests = False
        if (
            inbound is None
            or address is None
            or len(peer.inbounds) > 1
            or inbound.replies
            or inbound.tagged != address
            or inbound.echoed < inbound.written_at
            or inbound.written != (inbound.tag, inbound.proof)
            or outbound.recovery.timeouts
            or inbound.may_ask(now)
            or state.closing
        ):
            return None
        record = state.records.send.get(peer.id)
        has_more = False
        if record is not None:
            if record.epoch != inbound.epoch or not outbound.is_plain(record, now):
                return None
            has_more = outbound.has_more
        ack: list[int] | None = None
        due = inbound.ack_due
        if due is not None and (due <= now or (has_more and self._rides(peer, inbound, now))):
            ack = inbound.plain_ack(state.records.receive.get((peer.id, inbound.epoch)), min(peer.window, LOW))
            if ack is None:
                return None
        token = None
        rides = ack is None or (len(ack) <= _MOST_RIDING and not outbound.repeats)
        if has_more and rides:
            assert record is not None
            token = outbound.next_token(record, now)
        if token is None and (ack is None or (rides and due is not None and due > now)):
            self.rests = True  # until an acknowledgement is due, or something happens
            return None

        time = int(now * 1e6)
        if time <= peer.last_time:
            time = peer.last_time + 1
        peer.last_time = time
        delay = int((now - inbound.arrived) * 1e6)
        numbers = [inbound.proof, time & LOW, inbound.newest & LOW, delay if 0 <= delay <= LOW else LOW * (delay > 0)]
        flags = SHORT
        head: bytes = b""
        payload: bytes | memoryview = b""
        ranges = 0
        if ack is not None:
            flags |= ACK
            numbers += ack
            ranges = ack[2]
            if ack[0] > LOW or ack[-2] > LOW:
                flags |= WIDE
            inbound.said(ack[1], now)
        if token is not None:
            flags |= TOKEN
            numbers += (token.s, token.r, token.kind)
            head, payload = token.head, token.payload
            if token.s > LOW or token.r > LOW:
                flags |= WIDE
        datagram = plain.seal(flags, ranges, numbers, head, payload)
        counters = state.counters
        counters.datagrams_sent += 1
        counters.bytes_sent += len(datagram)
        if token is not None:
            counters.tokens_sent += 1
            recovery = outbound.recovery
            recovery.sent(time, len(datagram), [token], now)
            if not outbound.has_more:
                self.rests = True
                recovery.limited()  # by the application
            if peer.waiting_since is None:
                peer.waiting_since = now
        return address, datagram

    def fragments(self, peer: Peer, now: float) -> Iterator[tuple[Address, bytes]]:
        """Plain datagrams with the fragments that follow one that :meth:`plain` has made, as far as they may leave.

        Nothing that it looked at changes meanwhile, so none of it is looked at again.
        """
        state, outbound, inbound, address = self._state, peer.outbound, peer.inbounds[peer.epoch], peer.address
        assert address is not None
        recovery, counters = outbound.recovery, state.counters
        proof, echo, delay = inbound.proof, inbound.newest & LOW, max(0, min(int((now - inbound.arrived) * 1e6), LOW))
        tokens = outbound.next_fragments(state.records.send[peer.id], now)
        wide = bool(tokens) and (tokens[-1].s > LOW or tokens[0].r > LOW)
        flags = _TOKEN | WIDE if wide else _TOKEN
        sent = 0
        try:
            for token in tokens:
                time = peer.last_time = peer.last_time + 1
                numbers = (proof, time & LOW, echo, delay, token.s, token.r, packing.FRAGMENT)
                datagram = plain.seal(flags, 0, numbers, token.head, token.payload)
                size = len(datagram)
                recovery.sent(time, size, [token], now)
                counters.bytes_sent += size
                sent += 1
                yield address, datagram
        finally:
            counters.datagrams_sent += sent
            counters.tokens_sent += sent
            if sent < len(tokens):  # the network is full
                outbound.repeat(tokens[sent:])

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
            if outbound.has_more:
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
            record = outbound.record
            if record is not None and outbound.is_plain(record, now):
                self.resumes = True
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
