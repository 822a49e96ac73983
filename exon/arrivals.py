"""What arrives: from a datagram to the records. From a token to the application it is :mod:`exon.tokens`.

The order of trust is the order of the code: bytes become a datagram (:mod:`exon.wire`), its header says whether it is
for this node and this life of it, its proof whether its sender receives our answers (:mod:`exon.tags`); only then may
its frames touch a record, and only the record decides whether a token is delivered (:mod:`exon.records`).
"""

from __future__ import annotations

from collections.abc import Sequence

from exon import plain
from exon.addresses import Address
from exon.events import DuplicateId, PeerMoved, PeerRestarted
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
from exon.peer import Peer
from exon.plain import ACK, TOKEN
from exon.records import Token
from exon.state import Constant, State
from exon.tokens import Tokens
from exon.wire import (
    CLOSING,
    LOW,
    MAX_NUMBER,
    Datagram,
    Header,
    Malformed,
    Short,
    decode,
    decode_short,
    is_short,
    time_until,
)

_WORTH_A_VIEW = 4096  # bytes: to copy less costs less than not to copy it
_FEWEST = 3  # datagrams behind one that are worth a look at whether they go with it
_HEADS = 25  # bytes of a payload that a fragment has besides its chunk
_AHEAD = 60_000_000  # microseconds by which a datagram may have been faster than the newest one


class Arrivals:
    """The receiving half of a node."""

    def __init__(self, state: State) -> None:
        """Work on ``state``."""
        self._state = state
        self._tokens = Tokens(state)

    def receive(self, datagram: bytes, source: Address, now: float) -> None:
        """Take a datagram. Whatever it is, nothing is raised: what cannot be right is counted and dropped."""
        counters = self._state.counters
        counters.datagrams_received += 1
        counters.bytes_received += len(datagram)
        try:
            if plain.is_plain(datagram):
                self._receive_plain(datagram, source, now)
            elif is_short(datagram):
                self._receive_short(decode_short(datagram), source, now)
            else:
                self._receive_full(decode(datagram), source, now)
        except Malformed as malformed:
            counters.dropped[malformed.reason] += 1

    def receive_some(self, train: Sequence[tuple[bytes, Address]], at: int, now: float) -> int:
        """Take the datagram ``at`` this place, and those behind it that go with it; how many they were."""
        datagram, source = train[at]
        self.receive(datagram, source, now)
        if len(train) - at > _FEWEST and plain.is_fragment(datagram):
            return 1 + self._receive_fragments(train, at + 1, now)
        return 1

    def _receive_fragments(self, train: Sequence[tuple[bytes, Address]], begin: int, now: float) -> int:
        """Take the datagrams from ``begin`` on that hold the next parts of the message that the one before is part of.

        They differ from it in a few numbers, and nothing about the peer is new. How many there were; whatever is not as
        it usually is takes the general way, on which it makes no difference who came with whom.
        """
        state = self._state
        before, source = train[begin - 1]
        known = state.known.get(plain.proof_of(before))
        if known is None:
            return 0
        _, peer, inbound = known
        record = state.records.receive.get((peer.id, inbound.epoch))
        if state.ready.get(peer.id) is not peer or not inbound.gave(plain.proof_of(before)):
            return 0  # the one before was turned away
        if record is None or inbound.address != source or peer.address != source or peer.epoch != inbound.epoch:
            return 0
        chunks, newest = plain.fragments_after(before, train, begin, source)
        if not chunks:
            return 0
        s, r, first, parts, total = plain.fragment_numbers(before)
        assembly = inbound.assembly(first, parts, total)
        size = sum(map(len, chunks))
        number = len(chunks)
        time = inbound.newest + ((newest - inbound.newest) & LOW)
        if (
            assembly is None
            or not assembly.takes(s + 1 - first, number, size)
            or record.rck != r
            or peer.full
            or size + _HEADS * number > state.options.receive_bytes - peer.buffered - peer.large
            or time - inbound.newest > _AHEAD
            or not record.slots.discard_range(s + 1, s + 1 + number)
        ):
            return 0
        counters = state.counters
        counters.datagrams_received += number
        counters.bytes_received += sum([len(datagram) for datagram, _ in train[begin : begin + number]])
        inbound.newest = time
        message = inbound.add_parts(s + 1 - first, first, chunks, size)
        if message is not None:
            self._tokens.put_large(peer, message)
        paced = peer.outbound.recovery.paced
        inbound.owe_many(s + 1, s + 1 + number, r, self._tokens.ack_delay(peer), now)
        inbound.count_datagrams(number, paced, now)
        return number

    def _receive_short(self, short: Short, source: Address, now: float) -> None:
        """A datagram from somebody who is known by its proof: nearly all are."""
        state = self._state
        proof, low_time, low_echo, delay, flags, frames, skipped = short
        heard = self._hear_short(proof, low_time, low_echo, delay, source, now)
        if heard is None:
            return
        constant, peer, inbound, time, echo, newest = heard
        if skipped:
            state.counters.dropped["unknown frame"] += skipped
        peer.outbound.peer_closes = bool(flags & CLOSING)
        header = None
        tokens = acks = False
        for frame in frames:
            if type(frame) is TokenFrame:
                tokens = True
                header = header or Header(*constant, time, echo, delay)
                self._tokens.on_token(header, frame.s, frame.r, frame.payload[0], frame.payload[1:], source, now)
            elif type(frame) is Ack:
                acks = True
                self._on_ack(peer, inbound.epoch, frame, newest, echo, now)
            else:
                header = header or Header(*constant, time, echo, delay)
                self._on_frame(header, flags, frame, newest, source, now)
        if tokens:
            inbound.count_datagrams(1, peer.outbound.recovery.paced, now)
        if not (acks or tokens):
            peer.outbound.recovery.told(echo)
        if (acks or newest) and peer.outbound.recovery.in_flight:
            peer.outbound.check_losses(now)
        state.ready[peer.id] = peer

    def _receive_plain(self, datagram: bytes, source: Address, now: float) -> None:
        """An acknowledgement, a token, or both, from somebody who is known by its proof: nearly all are like that."""
        state = self._state
        numbers, payload_at = plain.read(datagram)
        flags, delay = datagram[3], numbers[3]
        heard = self._hear_short(numbers[0], numbers[1], numbers[2], delay, source, now)
        if heard is None:
            return
        constant, peer, inbound, time, echo, newest = heard
        outbound = peer.outbound
        outbound.peer_closes = bool(flags & CLOSING)
        at = 4
        if flags & ACK:
            r, window, ranges = numbers[4:7]
            at = 7 + 2 * ranges
            ack = Ack(r, window, plain.ranges_of(numbers, ranges))
            self._on_ack(peer, inbound.epoch, ack, newest, echo, now)
        if flags & TOKEN:
            s, r, kind = numbers[at:]
            data = datagram[payload_at:] if len(datagram) < _WORTH_A_VIEW else memoryview(datagram)[payload_at:]
            if not self._tokens.take_quickly(peer, inbound, s, r, kind, data, now):
                header = Header(*constant, time, echo, delay)
                self._tokens.on_token(header, s, r, kind, data, source, now)
            inbound.count_datagrams(1, outbound.recovery.paced, now)
        if outbound.recovery.in_flight:
            outbound.check_losses(now)
        state.ready[peer.id] = peer

    def _hear_short(
        self, proof: int, low_time: int, low_echo: int, delay: int, source: Address, now: float
    ) -> tuple[Constant, Peer, Inbound, int, int, bool] | None:
        """Learn from a short header whom it is from, what it leaves out, and whether the datagram is the newest so far.

        None if its proof stands for nobody.
        """
        state = self._state
        known = state.known.get(proof)
        if known is None:
            state.counters.dropped["unknown proof"] += 1
            return None
        constant, peer, inbound = known
        if peer.inbounds.get(inbound.epoch) is not inbound or not (proof == inbound.tag or inbound.gave(proof)):
            state.counters.dropped["unknown proof"] += 1
            return None
        # Its clock goes as fast as ours: what seems to come from its future is from an hour ago.
        time = time_until(low_time, inbound.newest + int((now - inbound.arrived) * 1e6) + _AHEAD)
        echo = time_until(low_echo, peer.last_time)
        if time > inbound.newest and inbound.address == source == peer.address and peer.epoch == inbound.epoch:
            # Nothing about the peer is new but what it says.
            inbound.heard = inbound.arrived = now
            inbound.newest = time
            inbound.probes = 0
            self._hear_echo(peer, inbound, echo, delay, time, now)
            return constant, peer, inbound, time, echo, True
        newest = self._hear(peer, Header(*constant, time, echo, delay), source, now)
        return constant, peer, peer.inbounds[inbound.epoch], time, echo, newest

    def _receive_full(self, datagram: Datagram, source: Address, now: float) -> None:
        counters = self._state.counters
        header = datagram.header
        if datagram.skipped:
            counters.dropped["unknown frame"] += datagram.skipped
        if header.destination != self._state.id:
            counters.dropped["destination"] += 1
        elif header.source == self._state.id:
            counters.dropped["own id"] += 1
        elif header.destination_epoch not in (0, self._state.epoch):
            counters.dropped["epoch"] += 1
            self._refuse(datagram, source, now)
        elif self._is_proven(header, source):
            self._receive_valid(datagram, source, now)
            self._state.remember(header)
        else:
            self._receive_unproven(datagram, source, now)

    def _is_proven(self, header: Header, source: Address) -> bool:
        """Whether its sender has received what we sent to it: at its address, or where it was before."""
        proof = header.proof
        if not proof or not header.destination_epoch:
            return False
        peer = self._state.peers.get(header.source)
        if peer is not None:
            if any(inbound.gave(proof) for inbound in peer.inbounds.values()):
                return True
            present = peer.inbounds.get(header.source_epoch)
            if present is not None and present.proven:
                return False  # it shows a tag that we gave it, not one that anybody gets who asks
            # The answer to a first request, sent to where we took the peer to be before we knew its epoch; or to what
            # was sent to a life of which nothing else is known here any more.
            record = peer.outbound.record
            lives = {0, peer.epoch, (record.epoch or 0) if record is not None else 0}
            address = peer.address
            if address is not None and any(proof == self._state.tags.tag(peer.id, life, address) for life in lives):
                return True
        return proof == self._state.tags.tag(header.source, header.source_epoch, source)

    def _refuse(self, datagram: Datagram, source: Address, now: float) -> None:
        """Say that an earlier life is over. Never in answer to the same, or two nodes would go on for ever."""
        if not any(type(frame) is Refused for frame in datagram.frames):
            self._state.stray(datagram.header, source, Refused(datagram.header.destination_epoch), now)

    def _receive_unproven(self, datagram: Datagram, source: Address, now: float) -> None:
        """From anybody: it may ask for slots, as nodes do that talk to us for the first time. For anything else it
        has to show first that it hears us, and gets a tag to show.
        """
        header = datagram.header
        for frame in datagram.frames:
            if not isinstance(frame, ReqSlots) or not self._on_first_request(header, frame, source, now):
                self._state.counters.dropped["unproven"] += 1
                self._state.stray(header, source, None, now)

    def _on_first_request(self, header: Header, frame: ReqSlots, source: Address, now: float) -> bool:
        """Grant slots to a node that may be anybody; False if it has to prove itself first."""
        key = header.source, header.source_epoch
        if key in self._state.records.receive:
            # Only the same request again: slots elsewhere would leave a hole that the true owner takes for granted.
            if key not in self._state.unproven or frame.s != self._state.records.receive[key].base:
                return False
            self._state.peers[header.source].inbounds[header.source_epoch].hear(header.time, source, now)
            frame = frame._replace(l=0)  # a claim must not waive what the true owner may still use
        elif frame.n and len(self._state.unproven) >= self._state.options.max_unproven:
            return False
        self._on_reqslots(header, frame, source, now)
        if key in self._state.records.receive:
            self._state.unproven.add(key)
            self._state.peers[header.source].inbounds[header.source_epoch].doubtful = max(1, int(now * 1e6))
        return True

    def _receive_valid(self, datagram: Datagram, source: Address, now: float) -> None:
        state = self._state
        header, flags, frames, _ = datagram
        peer = state.peers.get(header.source)
        newest = False
        if peer is not None:
            newest = self._hear(peer, header, source, now)
            peer.outbound.peer_closes = bool(flags & CLOSING)
            if not frames and not peer.outbound.peer_closes:
                peer.outbound.challenged(now)
        tokens = acks = False
        for frame in frames:
            if type(frame) is TokenFrame:
                tokens = True
                self._tokens.on_token(header, frame.s, frame.r, frame.payload[0], frame.payload[1:], source, now)
            elif type(frame) is Ack:
                acks = True
                peer = state.peers.get(header.source)
                if peer is not None:
                    self._on_ack(peer, header.source_epoch, frame, newest, header.echo, now)
            else:
                self._on_frame(header, flags, frame, newest, source, now)
        peer = state.peers.get(header.source)
        if peer is not None:
            if tokens:
                inbound = peer.inbounds.get(header.source_epoch)
                if inbound is not None:
                    inbound.count_datagrams(1, peer.outbound.recovery.paced, now)
            if not (acks or tokens):
                peer.outbound.recovery.told(header.echo)
            if acks or newest:
                peer.outbound.check_losses(now)
            state.ready[peer.id] = peer

    def _on_frame(self, header: Header, flags: int, frame: Frame, newest: bool, source: Address, now: float) -> None:
        """Any but tokens and acknowledgements, of which there are most."""
        if type(frame) is Slots:
            self._on_slots(header, frame, newest, source, bool(flags & CLOSING), now)
        elif type(frame) is ReqSlots:
            self._on_reqslots(header, frame, source, now)
        else:
            self._on_rare(header, frame, source, now)

    def _on_rare(self, header: Header, frame: Frame, source: Address, now: float) -> None:
        match frame:
            case ClosedFrame():
                self._state.records.on_closed(header.source, header.source_epoch, frame)
            case Refused():
                self._on_refused(header, frame, now)
            case Gone():
                self._on_gone(header, frame, now)
            case Slice():
                self._tokens.on_slice(header, frame, source, now)
            case Probe():
                self._state.reply(header, Probed(frame.size), source, now)
            case Probed():
                peer = self._state.peers.get(header.source)
                if peer is not None:
                    peer.outbound.mtu.probed(frame.size)
                    peer.outbound.recovery.congestion.datagram = peer.outbound.mtu.size

    def _hear(self, peer: Peer, header: Header, source: Address, now: float) -> bool:
        """Learn from the header of a proven datagram; whether it is the newest so far."""
        state = self._state
        epoch = header.source_epoch
        inbound = peer.inbounds.get(epoch)
        if inbound is None or not inbound.proven:
            inbound = state.life(peer, epoch, source, True, now)
            assert inbound is not None, "a proven life is worth any other"
        outbound = peer.outbound
        self._hear_echo(peer, inbound, header.echo, header.delay, header.time, now)
        if not inbound.hear(header.time, source, now):
            return False  # an old one: it may say something new, but not where the peer is
        inbound.proof, inbound.shown = header.tag, header.proof
        if inbound.tagged != source:
            state.tag(peer, inbound, source)
        if peer.epoch == epoch and peer.address == source and peer.heard_at == source:
            return True
        if peer.epoch != epoch:
            both = (peer.address, source) if peer.address is not None else (source,)
            state.records.on_new_life(peer.id, epoch)
            if outbound.severed:
                self._restarted(peer, peer.epoch, [], True, now)
            if peer.switch(epoch, now):
                state.events.append(DuplicateId(peer.id, both))
        old = peer.heard_at or peer.address  # a look-up may have been faster than the peer's own word
        peer.heard_at = source
        if old is not None and old != source:
            state.counters.moves += 1
            state.events.append(PeerMoved(peer.id, old, source))
        if peer.address != source:
            peer.address = source
            state.book.learn(peer.id, source)
            outbound.moved()
        return True

    def _hear_echo(self, peer: Peer, inbound: Inbound, echo: int, delay: int, time: int, now: float) -> None:
        """A sign of life came, and how long that took."""
        outbound = peer.outbound
        if echo > inbound.echoed:
            inbound.echoed = echo
            record = self._state.records.send.get(peer.id)
            if record is None or record.epoch is None or record.epoch == inbound.epoch:
                outbound.recovery.echoed(echo, delay, time, int(now * 1e6), now)
        peer.waiting_since = now if outbound.pending_messages else None
        peer.reported = False
        peer.located()

    # -- frames ------------------------------------------------------------------------------------------------------

    def _on_reqslots(self, header: Header, frame: ReqSlots, source: Address, now: float) -> None:
        peer_id, epoch = header.source, header.source_epoch
        if frame.l > frame.s or frame.s + frame.n > MAX_NUMBER:
            self._state.counters.dropped["impossible request"] += 1
            return
        peer = self._state.peers.get(peer_id)
        if not self._settle_doubt(peer, header, frame):
            self._state.stray(header, source, None, now)
            return
        window = self._state.options.receive_bytes
        if frame.n and (peer_id, epoch) not in self._state.records.receive:
            if self._state.closing:
                self._state.counters.dropped["closing"] += 1
                self._state.stray(header, source, None, now)  # the flag in it says why
                return
            if len(self._state.records.receive) >= self._state.options.max_records:
                self._state.counters.dropped["too many records"] += 1
                return
            peer = peer if peer is not None else self._state.meet(peer_id, now)
            if self._state.life(peer, epoch, source, False, now) is None:
                self._state.stray(header, source, None, now)
                return
        if peer is not None:
            window = peer.window
            inbound = peer.inbounds.get(epoch)
            if inbound is not None:
                inbound.last_window = window
                inbound.proof = inbound.proof or header.tag
                if not frame.n:
                    inbound.closed(frame.s)
        answer = self._state.records.on_reqslots(peer_id, epoch, frame, window)
        self._state.reply(header, answer, source, now)

    def _settle_doubt(self, peer: Peer | None, header: Header, frame: ReqSlots) -> bool:
        """A record that somebody else asked for, in this peer's name, may begin where its true owner never will.

        Only a request that answers what we said since the record was made can show that: an old one that arrives late
        has a low number too. False if the request does not count.
        """
        inbound = peer.inbounds.get(header.source_epoch) if peer is not None else None
        if peer is None or inbound is None or not (inbound.proven and inbound.doubtful):
            return True
        record = peer.receive_record(header.source_epoch)
        if record is not None and frame.s < record.base:
            if header.echo < inbound.doubtful:
                return False
            self._state.records.evict(peer.id, header.source_epoch)
            self._state.counters.evictions += 1
        inbound.doubtful = 0
        return True

    def _on_slots(self, header: Header, frame: Slots, newest: bool, source: Address, closing: bool, now: float) -> None:
        answer = self._state.records.on_slots(header.source, header.source_epoch, frame)
        peer = self._state.peers.get(header.source)
        if peer is not None and peer.outbound.record is not None:
            outbound = peer.outbound
            if outbound.severed:
                self._restarted(peer, header.source_epoch, [], True, now)
            outbound.on_granted(frame.n, frame.window if newest else outbound.window, now)
            if closing and outbound.idle:
                outbound.hurry = True
        if answer is not None:
            self._state.reply(header, answer, source, now)

    def _on_ack(self, peer: Peer, epoch: int, frame: Ack, newest: bool, echo: int, now: float) -> None:
        outbound = peer.outbound
        outbound.recovery.told(echo)
        record = self._state.records.send.get(peer.id)
        if record is not None:
            released = record.release(epoch, frame.r, frame.ranges)
            if released:
                outbound.on_acked(released, now)
                peer.waiting_since = now if outbound.pending_messages else None
        if newest:
            outbound.set_window(frame.window)

    def _on_refused(self, header: Header, frame: Refused, now: float) -> None:
        peer = self._state.peers.get(header.source)
        if peer is None or frame.epoch == header.source_epoch:
            return
        dead = peer.inbounds.get(frame.epoch)
        if dead is not None and not dead.gave(header.proof):
            return  # it did not hear what we said to that life, so how would it know?
        self._state.drop_life(peer, frame.epoch)
        record = peer.outbound.record
        bound = record is not None and record.epoch == frame.epoch
        tokens = self._state.records.on_refused(header.source, frame.epoch)
        if bound:
            self._restarted(peer, frame.epoch, tokens, True, now)
            if peer.outbound.idle:
                self._state.records.forget(peer.id)

    def _on_gone(self, header: Header, frame: Gone, now: float) -> None:
        peer = self._state.peers.get(header.source)
        record = peer.outbound.record if peer is not None else None
        if peer is None or record is None or record.epoch != header.source_epoch:
            return
        severed = record.rck == frame.r
        tokens = self._state.records.on_gone(header.source, header.source_epoch, frame.r)
        if tokens or severed:
            self._restarted(peer, header.source_epoch, tokens, severed, now)

    def _restarted(self, peer: Peer, epoch: int, tokens: list[Token], severed: bool, now: float) -> None:
        unknown = peer.outbound.on_unknown(tokens, severed, now)
        self._state.counters.messages_unknown += len(unknown)
        if self._state.closing:
            self._state.unknown_on_close += len(unknown)
        peer.waiting_since = None if peer.outbound.idle else now
        self._state.events.append(PeerRestarted(peer.id, tuple(unknown), epoch))
