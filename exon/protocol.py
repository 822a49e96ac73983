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

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

import attrs
from attrs import frozen

from exon.addresses import Address
from exon.arrivals import Arrivals
from exon.clock import Clock
from exon.departures import Departures
from exon.errors import BadPayload, Closed, MessageTooLarge
from exon.events import Event, LookupWanted, PeerUnreachable
from exon.options import Options
from exon.peer import Peer
from exon.peers import check_id
from exon.state import MESSAGE_COST, Arrived, Data, State
from exon.stats import NodeStats, PeerStats

_SOON = 0.002  # seconds: how late an acknowledgement may be, or how early a look at a peer


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
        self._state = State(node_id, epoch, secret, clock or Clock(), options or Options())
        self._arrivals = Arrivals(self._state)
        self._departures = Departures(self._state)
        self._timers: list[tuple[float, str]] = []
        self._own_buffered = 0  # bytes of messages to ourselves that the application has not taken
        self._unconfirmed: set[str] = set()  # peers that did not answer while we closed

    @property
    def id(self) -> str:
        """The node's name."""
        return self._state.id

    @property
    def epoch(self) -> int:
        """The number of this life."""
        return self._state.epoch

    @property
    def options(self) -> Options:
        """Limits and time-outs."""
        return self._state.options

    @property
    def closing(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._state.closing

    # -- the application's side --------------------------------------------------------------------------------------

    def send(self, peer_id: str, message: bytes, now: float) -> bool:
        """Take a message for a peer, to be delivered exactly once; False while there is no room for it."""
        state = self._state
        if state.closing:
            raise Closed(f"node {self.id!r} is closed and takes no more messages")
        if type(message) is not bytes or len(message) > state.options.max_message:
            message = check_payload(message, state.options)
        if peer_id == state.id:
            return self._send_to_self(message)
        peer = state.peers.get(peer_id)
        if peer is None:
            peer = state.meet(check_id(peer_id), now)
        outbound = peer.outbound
        if not outbound.has_room(len(message)):
            return False
        outbound.accept(message)
        if peer.waiting_since is None:
            peer.waiting_since = now
        state.counters.messages_sent += 1
        state.ready[peer_id] = peer
        return True

    def _send_to_self(self, message: bytes) -> bool:
        cost = len(message) + MESSAGE_COST
        if self._own_buffered and self._own_buffered + cost > self.options.receive_bytes:
            return False
        self._own_buffered += cost
        self._state.counters.messages_sent += 1
        self._state.counters.messages_delivered += 1
        self._state.inbox.append(Arrived(None, self.id, [message], cost, 0))
        return True

    def deliveries(self) -> Iterator[Delivery]:
        """Take messages out, in the order in which they came; what is not taken keeps its room occupied."""
        for peer_id, messages in self.views():
            yield Delivery(peer_id, list(map(bytes, messages)))

    def views(self) -> Iterator[tuple[str, list[Data]]]:
        """The same, without copying: large messages are views of the datagrams that they came in."""
        inbox = self._state.inbox
        while inbox:
            peer, peer_id, messages, cost, large = inbox.popleft()
            if peer is None:
                self._own_buffered -= cost
            else:
                self._make_room(peer, cost, large)
            yield peer_id, messages

    def pending(self, peer_id: str) -> int:
        """How many messages to a peer are accepted and not yet acknowledged."""
        peer = self._state.peers.get(peer_id)
        return peer.outbound.pending_messages if peer is not None else 0

    def flowing(self, peer_id: str) -> bool:
        """Whether messages are on the way to a peer that answers, so that one more may wait for the next answer."""
        peer = self._state.peers.get(peer_id)
        return peer is not None and peer.outbound.pending_messages > 0 and not peer.outbound.recovery.timeouts

    def message_budget(self, peer_id: str) -> int | None:
        """How large a message may be to travel in one datagram; None if it does not matter, because the path is short.

        For whoever can choose how to divide what it has to say: a larger message is here when its last part is.
        """
        peer = self._state.peers.get(peer_id)
        return peer.outbound.message_budget if peer is not None else None

    @property
    def wants_to_send(self) -> bool:
        """Whether :meth:`datagrams` may have something."""
        return bool(self._state.ready or self._state.strays)

    @property
    def eventful(self) -> bool:
        """Whether :meth:`events` has something."""
        return bool(self._state.events)

    @property
    def deliverable(self) -> bool:
        """Whether :meth:`deliveries` has something."""
        return bool(self._state.inbox)

    def _make_room(self, peer: Peer, cost: int, large: int) -> None:
        peer.buffered -= cost
        peer.large -= large
        peer.full = False
        inbound = peer.inbounds.get(peer.epoch)
        if inbound is not None and inbound.last_window < self.options.receive_bytes // 4 <= peer.window:
            inbound.owe_answer(0.0, 0.0)  # the peer was told to hold back, and need not any more
            self._state.ready[peer.id] = peer
        elif peer.forgettable:
            self._state.ready[peer.id] = peer

    def events(self) -> Iterator[Event]:
        """Take events out."""
        while self._state.events:
            yield self._state.events.popleft()

    def register(self, peer_id: str, address: Address) -> None:
        """Say where a peer is. Traffic from it may teach otherwise later."""
        self._state.book.register(peer_id, address)
        peer = self._state.peers.get(peer_id)
        if peer is not None and peer.address != address:
            self._state.go_to(peer, address)

    def unregister(self, peer_id: str) -> None:
        """Take back what was registered."""
        self._state.book.unregister(peer_id)

    def located(self, peer_id: str, address: Address | None) -> None:
        """The answer of a discovery service to :class:`~exon.events.LookupWanted`."""
        peer = self._state.peers.get(peer_id)
        if peer is None or address is None or address == peer.address or not peer.lost:
            return  # the last: it was heard meanwhile, and knows better where it is
        self._state.go_to(peer, address)

    def moved(self) -> None:
        """This node has another address now: tell everyone it is talking with."""
        for peer in self._state.peers.values():
            peer.outbound.moved()
            peer.outbound.announce()
            for inbound in peer.inbounds.values():
                inbound.ask_now()
                inbound.owe_answer(0.0, 0.0)
            self._state.ready[peer.id] = peer

    def close(self) -> None:
        """Take no more messages, deliver what was taken, then end every half-connection; see :attr:`closed`."""
        self._state.closing = True
        self._state.records.max_slots = 0  # nothing new from others either
        for peer in self._state.peers.values():
            peer.outbound.hurry = True
            for inbound in peer.inbounds.values():
                inbound.ask_now()
            self._state.ready[peer.id] = peer

    def abandon(self) -> None:
        """Be closed, and have nothing for anybody: what is here belongs to another process."""
        state = self._state
        state.closing = True
        for container in (state.ready, state.strays, state.inbox, state.events):
            container.clear()

    @property
    def closed(self) -> bool:
        """Whether a close is complete: all delivered, every record gone here and, as far as they say, there."""
        return self.closing and not any(
            (peer.outbound.record is not None and not peer.outbound.hopeless)
            or any(peer.probe_at(inbound, closing=True) is not None for inbound in peer.inbounds.values())
            for peer in self._state.peers.values()
        )

    def report(self) -> CloseReport:
        """What a close had to leave."""
        peers = dict.fromkeys(self._unconfirmed, "did not confirm the close")
        undelivered, unknown = 0, self._state.unknown_on_close
        for peer in self._state.peers.values():
            outbound = peer.outbound
            if outbound.pending_messages:
                undelivered += outbound.unsent_messages
                unknown += outbound.pending_messages - outbound.unsent_messages
                where = "address unknown" if peer.address is None else f"no answer from {peer.address[0]}"
                state = "it is closing too" if outbound.hopeless else where if peer.lost else "still being delivered"
                peers[peer.id] = f"{outbound.pending_messages} not acknowledged, {state}"
            elif outbound.record is not None:
                peers[peer.id] = "did not confirm the close"
        clean = self.closed and not (peers or undelivered or unknown)
        return CloseReport(clean, undelivered, unknown, peers)

    def unfinished(self) -> Iterator[tuple[bytes, bool]]:
        """Every message that is accepted and not acknowledged, and whether any of it was ever sent."""
        for peer in self._state.peers.values():
            yield from peer.outbound.unfinished()

    # -- datagrams in ------------------------------------------------------------------------------------------------

    def receive(self, datagram: bytes, source: Address, now: float) -> None:
        """Take a datagram. Whatever it is, nothing is raised: what cannot be right is counted and dropped."""
        self._arrivals.receive(datagram, source, now)

    def receive_some(self, train: Sequence[tuple[bytes, Address]], at: int, now: float) -> int:
        """Take the datagram ``at`` this place, and those behind it that go with it; how many they were.

        The same as :meth:`receive` for each of them, with less work for the parts of a large message.
        """
        return self._arrivals.receive_some(train, at, now)

    # -- datagrams out -----------------------------------------------------------------------------------------------

    def datagrams(self, now: float) -> Iterator[tuple[Address, bytes]]:
        """Everything that wants to leave now. Stop iterating when the network is full; the rest keeps."""
        while self._state.strays:
            yield self._state.count(self._state.strays.pop()[1:])
        while self._state.ready:
            peer_id = next(iter(self._state.ready))
            peer = self._state.ready[peer_id]
            yield from self._datagrams_to(peer, now)
            self._state.ready.pop(peer_id, None)
            self._settle(peer, now)

    def _datagrams_to(self, peer: Peer, now: float) -> Iterator[tuple[Address, bytes]]:
        departures = self._departures
        departures.resumes = True
        while departures.resumes:
            departures.rests = departures.resumes = False
            while not departures.rests and (datagram := departures.plain(peer, now)) is not None:
                yield datagram
                if peer.outbound.cutting:
                    yield from departures.fragments(peer, now)
            if not departures.rests:
                yield from departures.datagrams(peer, now)

    # -- time --------------------------------------------------------------------------------------------------------

    def deadline(self) -> float | None:
        """When :meth:`expire` must be called at the latest; None if nothing will ever be due by itself."""
        timers = self._timers
        while timers:
            when, peer_id = timers[0]
            peer = self._state.peers.get(peer_id)
            if peer is not None and peer.wakes_at == when:
                return when
            heappop(timers)
        return None

    def expire(self, now: float) -> None:
        """Do what is due; afterwards :meth:`datagrams` may have something."""
        if not self._timers or self._timers[0][0] > now:
            return
        while (when := self.deadline()) is not None and when <= now:
            _, peer_id = heappop(self._timers)
            peer = self._state.peers[peer_id]
            peer.wakes_at = float("inf")
            peer.looked_at = True
            self._expire_peer(peer, now)
            self._state.ready[peer_id] = peer

    def _expire_peer(self, peer: Peer, now: float) -> None:
        for inbound in list(peer.inbounds.values()):
            if now >= inbound.heard + self.options.forget_after:
                self._state.evict(peer, inbound)
        if peer.outbound.record is not None and peer.address is not None:
            peer.outbound.expire(now)
            if self.closing and peer.outbound.unconfirmed and not peer.outbound.peer_closes:
                self._unconfirmed.add(peer.id)
        waiting = peer.waiting_since
        if waiting is not None and not peer.reported and now >= waiting + self.options.unreachable_after:
            peer.reported = True
            self._state.events.append(PeerUnreachable(peer.id, now - waiting))
        self._look_up(peer, now)

    def _look_up(self, peer: Peer, now: float) -> None:
        if peer.lost and peer.wanted and peer.lookup_due(now):
            elsewhere = peer.another_address(self._state.book.registered(peer.id))
            if elsewhere is not None and not peer.outbound.idle:
                self._state.go_to(peer, elsewhere)
            self._state.events.append(LookupWanted(peer.id))

    def _settle(self, peer: Peer, now: float) -> None:
        """After everything that could leave has left: forget the peer, or note when to look at it again."""
        if peer.forgettable:
            self._state.forget(peer)
            peer.wakes_at = float("inf")
            return
        if peer.looked_at or self.closing:
            peer.looked_at = False
            self._look_up(peer, now)
            when = min(peer.deadlines(self.closing, now), default=None)
        else:
            # To find out when exactly something is due costs as much as a datagram. While there is traffic it is
            # enough to look soon, which is once for many datagrams.
            if peer.address is None:
                self._look_up(peer, now)
            when = now + _SOON
            ready_at = peer.outbound.recovery.pacer.ready_at
            if now < ready_at < when:  # it has just said no
                when = ready_at
        if when is not None and when < peer.wakes_at:
            peer.wakes_at = when
            heappush(self._timers, (when, peer.id))

    # -- looking in --------------------------------------------------------------------------------------------------

    def has_room(self, peer_id: str, size: int) -> bool:
        """Whether :meth:`send` of ``size`` bytes would be accepted now."""
        if peer_id == self.id:
            return not self._own_buffered or self._own_buffered + size + MESSAGE_COST <= self.options.receive_bytes
        peer = self._state.peers.get(peer_id)
        return peer is None or peer.outbound.has_room(size)

    def address_of(self, peer_id: str) -> Address | None:
        """Where a peer is taken to be, if anybody knows."""
        peer = self._state.peers.get(peer_id)
        return peer.address if peer is not None else self._state.book.find(peer_id)

    def stats(self) -> NodeStats:
        """Everything counted so far, and the present state in numbers."""
        counted = attrs.asdict(self._state.counters, recurse=False)
        counted["dropped"] = dict(self._state.counters.dropped)
        return NodeStats(
            **counted,
            send_records=len(self._state.records.send),
            receive_records=len(self._state.records.receive),
            buffered_bytes=self._own_buffered + sum(peer.buffered + peer.large for peer in self._state.peers.values()),
            clock=self._state.records.clock.value,
            peers={peer.id: _peer_stats(peer) for peer in self._state.peers.values()},
        )


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
