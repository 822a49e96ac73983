"""A node without I/O: sockets over an Exon node, driven by the same verbs as that.

``receive``, ``datagrams``, ``deadline``, ``expire``, ``events``: the engine thread, an event loop and the simulated
network all drive it in the same way. Whoever calls anything here, or on a socket, holds :attr:`Core.lock`.

What sockets have to say waits here, per destination, until the transport has room: messages of the link protocol first,
then credits and control messages, then runs of data. All are bounded: see :mod:`a3m.outbox`, and credits.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import count
from random import Random
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakSet

import msgpack

import exon.events
from a3m import messages
from a3m.accounts import Accounts
from a3m.errors import BadIdentifier, Closed
from a3m.events import Event
from a3m.ids import RESERVED, SocketId, check_node, check_tag
from a3m.link import Link
from a3m.link_machine import State
from a3m.messages import DATA, ERROR, FLOW, LOW, SHORT_FIELDS, Malformed, Message, Reply
from a3m.outbox import Outbox
from a3m.payload import OVERHEAD
from a3m.publications import Runs
from a3m.runs import RUN_BYTES, RUN_HEADER, run_length
from a3m.stats import NodeStats
from exon.addresses import Address
from exon.errors import MessageTooLarge
from exon.log import log
from exon.protocol import Node as Transport

if TYPE_CHECKING:
    from a3m.lanes import Lanes
    from a3m.link_end import LinkEnd
    from a3m.socket_core import SocketCore

_EVENTS = 1024
_ROUND = 5.0  # seconds between two rounds of looking for links that are silent
_NOBODY = None, None
_RARELY = 64  # rounds between two questions on a link that has been silent for long


class Driver(Protocol):
    """What a waiting thread can do for its node, besides waiting: see :class:`exon.engine.Engine`."""

    def begin(self) -> bool:
        """Drive from now on, unless somebody else does. With the lock held, as for the others."""

    def turn(self, deadline: float | None) -> bool:
        """Do what is due, and sleep until something comes; False if there is nothing to drive any more."""

    def end(self) -> None:
        """Drive no longer."""

    def wake(self) -> None:
        """Interrupt whoever sleeps in :meth:`turn`."""

    def interrupt(self) -> None:
        """The same from a signal handler, where nobody knows who holds the lock."""


class Core:
    """The sockets of one node."""

    def __init__(self, transport: Transport, *, random: Random, time: Callable[[], float]) -> None:
        """Speak through ``transport``. ``time`` is asked when an application calls; the verbs are told."""
        self._id = check_node(transport.id)
        self.transport = transport
        self.time = time
        self.lock = Lock()
        # Tells the driver that something wants to leave; whether anything may have come in meanwhile.
        self.work: Callable[[], bool] = lambda: False
        self.work_apart: Callable[[], bool] = lambda: self.work()  # noqa: PLW0108  # and may release the lock
        self.driver: Driver | None = None  # lets threads that wait drive the node
        self.conversations: dict[int, tuple[LinkEnd, Link]] = {}  # links by our name for them, while they exist
        self.lanes: dict[Lanes, None] = {}  # sockets that may hold messages which were accepted without the lock
        self._pack: Callable[[Any], bytes] = msgpack.Packer().pack
        self._publications = Runs(self._pack)
        self.unsent = 0  # about how many bytes were accepted since the transport was last given what there was
        self.sockets: dict[str, SocketCore] = {}
        self._made: WeakSet[SocketCore] = WeakSet()  # also those that are closed, and may still have messages
        self.dropped: Counter[str] = Counter()
        self.accounts = Accounts(transport)
        self.life = transport.epoch
        self.closing = False
        self._run_bytes = max(1, min(RUN_BYTES, transport.options.max_message - OVERHEAD))
        self._finishing = False
        self._random = random
        self._events: deque[Event] = deque(maxlen=_EVENTS)
        self._lookups: deque[exon.events.LookupWanted] = deque()
        # The transport may deliver to this life what was sent to the one before: they must have no number in common.
        self._incarnations = count(1 + transport.epoch % 2**62)
        # What sockets have to say that the transport has not been given.
        self.outbox: dict[str, Outbox] = {}
        self.speakers: dict[Link, LinkEnd] = {}  # have more to say as soon as the outbox is empty
        self.dirty: dict[Link, SocketCore] = {}
        self._addressees: set[str] = set()  # the nodes that they are for
        self._retries: list[tuple[float, int, LinkEnd, Link]] = []
        self._retry_order = count()
        self._round_at: float | None = None
        self.when_closed: Callable[[], None] | None = None  # called once when the transport has closed
        self.watchers: list[Callable[[], None]] = []  # called once when an event happens

    @property
    def id(self) -> str:
        """The node's name."""
        return self._id

    # -- sockets -----------------------------------------------------------------------------------------------------

    def add(self, socket: SocketCore) -> None:
        """Make a socket visible to others."""
        tag = check_tag(socket.id.tag)
        if self.closing:
            raise Closed(f"node {self.id!r} is closed")
        if tag.startswith(RESERVED):
            raise BadIdentifier(f"tags that begin with {RESERVED!r} are reserved; {tag!r} needs another name")
        if tag in self.sockets:
            raise BadIdentifier(
                f"there is a socket {tag!r} on node {self.id!r} already; close it first, or use another tag"
            )
        self.sockets[tag] = socket
        self._made.add(socket)

    def remove(self, socket: LinkEnd) -> None:
        """A socket is closed."""
        if self.sockets.get(socket.id.tag) is socket:
            del self.sockets[socket.id.tag]
            for link in socket.manager.links.values():
                self.conversations.pop(link.mine, None)

    # -- what sockets need -------------------------------------------------------------------------------------------

    def next_incarnation(self) -> int:
        """A number that no link of this node ever had, whichever socket and whichever life it belongs to."""
        return next(self._incarnations)

    def post(self, sender: SocketId, peer: SocketId, type_: int, mine: int, yours: int, body: tuple[Any, ...]) -> None:
        """Send a message between sockets."""
        data = messages.encode(Message(type_, peer.tag, sender.tag, mine, yours, body))
        if self._round_at is None:
            self._round_at = self.time() + _ROUND
        self.outbox.setdefault(peer.node, Outbox()).add(type_, mine, data)
        self._addressees.add(peer.node)

    def answer(
        self, sender: SocketId, peer: SocketId, type_: int, mine: int, yours: int, body: tuple[Any, ...]
    ) -> None:
        """Answer somebody we have no conversation with, unless it has not taken thousands of answers before.

        Whoever misses the answer asks again (:meth:`_ask_the_silent`), and gets one when it takes them.
        """
        if self.full(peer.node):
            self.dropped["answer not taken"] += 1
        else:
            self.post(sender, peer, type_, mine, yours, body)

    def full(self, node: str) -> bool:
        """Whether a node makes us say more than it takes."""
        return node in self.outbox and self.outbox[node].full

    def retract_link(self, link: Link) -> None:
        """Nobody wants a link any more: LINK need not leave if it has not yet."""
        if link.peer.node in self.outbox:
            self.outbox[link.peer.node].retract_link(link.mine)

    def control_waits(self, socket: LinkEnd, link: Link) -> None:
        """A link has something to say that is not data; it is asked for it when there is room."""
        self.speakers[link] = socket
        self._addressees.add(link.peer.node)

    def link_gone(self, link: Link) -> None:
        """A link has nothing more to say."""
        self.speakers.pop(link, None)

    @property
    def backlog(self) -> int:
        """How many messages that are not data wait for the transport to take them."""
        return sum(map(len, self.outbox.values())) + sum(link.unsaid for link in self.speakers)

    def data_waits(self, socket: SocketCore, link: Link, size: int) -> None:
        """A link has messages to send, of about so many bytes."""
        self.dirty[link] = socket
        self._addressees.add(link.peer.node)
        self.unsent += size

    def schedule(self, socket: LinkEnd, link: Link) -> None:
        """Ask again for a link, after a pause that grows with every try and is never quite the same."""
        first, longest = socket.options.retry
        pause = min(longest, first * 2.0 ** min(link.tries, 30)) * self._random.uniform(0.5, 1.0)
        link.tries += 1
        link.retry_at = self.time() + pause
        heappush(self._retries, (link.retry_at, next(self._retry_order), socket, link))

    def tell(self, kind: str, peer: str, link: SocketId | None, detail: str = "") -> None:
        """Note an event."""
        self._events.append(Event(kind, peer, link, detail, self.time()))
        self.wake_watchers()

    def wake_watchers(self) -> None:
        """Let whoever waits for events look again."""
        watchers, self.watchers = self.watchers, []
        for wake in watchers:
            wake()

    def take_event(self) -> Event | None:
        """The oldest event that nobody has taken."""
        return self._events.popleft() if self._events else None

    @property
    def wants_to_send(self) -> bool:
        """Whether :meth:`datagrams` may have something."""
        return bool(self.outbox or self.speakers or self.dirty or self.transport.wants_to_send)

    @property
    def busy(self) -> bool:
        """Whether something is on the way already to everybody there is more for, and will be answered soon."""
        return all(map(self.transport.flowing, self._addressees))

    # -- the verbs ---------------------------------------------------------------------------------------------------

    def receive(self, datagram: bytes, source: Address, now: float) -> None:
        """A datagram came."""
        self.transport.receive(datagram, source, now)

    def receive_some(self, train: Sequence[tuple[bytes, Address]], at: int, now: float) -> int:
        """Several datagrams came; how many were taken, from this place on."""
        return self.transport.receive_some(train, at, now)

    def expire(self, now: float) -> None:
        """Time has passed, or datagrams have come: do what is due."""
        self.transport.expire(now)
        self._take_in()
        while self._retries and self._retries[0][0] <= now:
            when, _, socket, link = heappop(self._retries)
            if link.retry_at == when:
                link.retry_at = None
                socket.manager.retry(link)
        if self._round_at is not None and self._round_at <= now:
            self._ask_the_silent(now)

    def datagrams(self, now: float) -> Iterator[tuple[Address, bytes]]:
        """Everything that wants to leave now."""
        if self.transport.deliverable:
            self._take_in()
        self._hand_over(now)
        while self.transport.deliverable:  # sockets of this node talk to each other
            self._take_in()
            self._hand_over(now)
        return self.transport.datagrams(now)

    def deadline(self) -> float | None:
        """When :meth:`expire` must be called at the latest."""
        due = self.transport.deadline()
        retries = self._retries
        while retries and retries[0][3].retry_at != retries[0][0]:
            heappop(retries)
        if retries and (due is None or retries[0][0] < due):
            due = retries[0][0]
        if self._round_at is not None and (due is None or self._round_at < due):
            due = self._round_at
        return due

    @property
    def eventful(self) -> bool:
        """Whether :meth:`events` may have something."""
        return bool(self._lookups or self.transport.eventful)

    def events(self) -> Iterator[exon.events.Event]:
        """For the driver: what only it can do."""
        for event in self.transport.events():
            self._on_transport_event(event)
        while self._lookups:
            yield self._lookups.popleft()

    def located(self, peer_id: str, address: Address | None) -> None:
        """The answer to a look-up."""
        self.transport.located(peer_id, address)

    def moved(self) -> None:
        """This node is at another address now."""
        self.transport.moved()

    # -- ending ------------------------------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """Whether the transport has closed, too."""
        return self.transport.closed

    @property
    def unsettled(self) -> bool:
        """Whether messages of the application are neither acknowledged nor given up."""
        with self.lock:
            return self.accounts.unsettled or bool(self.dirty)

    def abandon(self) -> None:
        """Everything here belongs to another process."""
        self.closing = True
        self.work = self.work_apart = lambda: False
        self.when_closed = None
        self.transport.abandon()
        for socket in list(self._made):
            socket.abandon()
        for waiting in (self._events, self.watchers, self._lookups, self.outbox, self.speakers, self.dirty):
            waiting.clear()
        self._addressees.clear()
        for known in (self.sockets, self.conversations, self.lanes):
            known.clear()

    def check_closed(self) -> None:
        """Tell whoever waits for the end, if it has come."""
        if self.when_closed is not None and self.closed:
            done, self.when_closed = self.when_closed, None
            done()

    def finish(self, now: float) -> None:
        """Close the transport as soon as it has taken everything that waits here."""
        self._finishing = True
        self._hand_over(now)

    def hand_over_all(self, now: float) -> None:
        """The last chance: what the transport does not take now is given up."""
        self._hand_over(now)

    def count_undelivered(self) -> tuple[int, int]:
        """After a close: messages that never left, and messages whose fate is unknown."""
        return self.accounts.at_close(link for _, link in self.conversations.values())

    def statistics(self) -> NodeStats:
        """Everything in numbers."""
        return NodeStats(
            sockets={tag: socket.statistics() for tag, socket in self.sockets.items()},
            unknown=self.accounts.unknown,
            dropped=dict(self.dropped),
            transport=self.transport.stats(),
        )

    # -- out ---------------------------------------------------------------------------------------------------------

    def _hand_over(self, now: float) -> None:
        """Give the transport as much as it takes."""
        lanes = self.lanes
        if lanes:
            for socket in lanes:
                socket.settle()
        if self.outbox:
            for peer in list(self.outbox):
                self._empty_outbox(peer, now)
        if self.speakers:
            for link in list(self.speakers):
                self._let_speak(link, now)
        if self.dirty:
            for link, owner in list(self.dirty.items()):
                if self._send_runs(owner, link, now):
                    del self.dirty[link]
            self._publications.forget()
        self.unsent = 0
        self._addressees.clear()
        if self.dirty or self.speakers or self.outbox:
            self._addressees.update(self.outbox)
            for links in (self.dirty, self.speakers):
                self._addressees.update(link.peer.node for link in links)
        if lanes:
            for socket in list(lanes):
                if not socket.open_lane():
                    del lanes[socket]
        if self._finishing and not self.transport.closing and not (self.outbox or self.speakers or self.dirty):
            self.transport.close()

    def _empty_outbox(self, peer: str, now: float) -> None:
        box = self.outbox[peer]
        while box and (self.transport.closing or self.transport.send(peer, box.first, now)):
            box.remove_first()
        if not box:
            del self.outbox[peer]

    def _let_speak(self, link: Link, now: float) -> None:
        """Ask a link for what it has to say besides data, again and again while that is taken at once."""
        node = link.peer.node
        said = True
        while said and node not in self.outbox and link in self.speakers:
            self.speakers.pop(link).say_waiting(link)
            said = node in self.outbox
            if said:
                self._empty_outbox(node, now)

    def _send_runs(self, socket: SocketCore, link: Link, now: float) -> bool:
        """Send what a link has, in runs; False when the transport is full."""
        outgoing, transport, node = link.outgoing, self.transport, link.peer.node
        assert outgoing is not None
        most = self._run_bytes
        datagram = transport.message_budget(node)
        if datagram is not None:
            most = min(most, datagram - RUN_HEADER)
        while outgoing.queue:
            head = outgoing.queue[0]  # the next run may be it alone, and larger than any other
            size = RUN_BYTES + (len(head) if type(head) is bytes and len(head) > RUN_BYTES else 0)
            if node in self.outbox or transport.closing or not transport.has_room(node, size):
                return False
            encoded: bytes | None = None
            waiting = len(outgoing.queue)
            if isinstance(outgoing.queue[0], tuple):  # what is published
                first = outgoing.sent - waiting
                run, encoded = self._publications.next(outgoing.queue, most)
            else:
                first, run = outgoing.next_run(1 if waiting == 1 else run_length(outgoing, most))
            body: tuple[Any, ...]
            if link.confirmed:
                body = (DATA, link.mine & LOW, link.theirs, first, run)
            else:
                body = (DATA, link.peer.tag, socket.id.tag, link.mine, link.theirs, first, run)
            if encoded is not None:
                data = messages.with_last(self._pack((*body[:-1], None)), encoded)
            else:
                # A packer keeps its buffer, so that of large messages is not for keeps.
                data = self._pack(body) if len(run) > 1 or len(run[0]) < RUN_BYTES else msgpack.packb(body)
            try:
                taken = transport.send(node, data, now)
            except MessageTooLarge:  # a route that grew on its way through proxies; nothing else is not checked before
                self.dropped["message too large"] += 1
                socket.settle()
                socket.manager.unlink(link.peer, force=True)
                self.accounts.given_up += len(outgoing.queue)  # unless the end of the link has accounted for them
                outgoing.queue.clear()
                return True
            if not taken:
                return False
            if len(run) < waiting:
                del outgoing.queue[: len(run)]
            else:
                outgoing.queue.clear()
        outgoing.mixed = False
        return True

    def _ask_the_silent(self, now: float) -> None:
        """Ask peers that say nothing whether they still know of the conversation, less and less often.

        A node that restarts knows nobody to tell, so whoever waits for it (for credit, for an answer, for anything to
        be published) would wait for ever. One that does not answer at all may be cut off: that is the transport's
        business, and for as long as it is trying nothing is asked.
        """
        self._round_at = None
        for socket in self.sockets.values():
            for link in socket.manager.links.values():
                if not link.mine:
                    continue
                self._round_at = now + _ROUND
                if link.peer.node not in self.outbox and not self.transport.pending(link.peer.node):
                    link.silent += 1
                    if not link.silent & (link.silent - 1) or not link.silent % _RARELY:
                        self.post(socket.id, link.peer, FLOW, link.mine, 0, ())

    # -- in ----------------------------------------------------------------------------------------------------------

    def _take_in(self) -> None:
        # First that a peer has restarted, then what its new life says: the old links are gone by then.
        transport = self.transport
        if transport.eventful:
            for event in transport.events():
                self._on_transport_event(event)
        if transport.deliverable:
            for peer, delivered in transport.views():
                for data in delivered:
                    self._dispatch(peer, data)

    def _dispatch(self, peer: str, data: bytes | memoryview) -> None:
        try:
            fields = messages.unpack(data)
            number = len(fields)
            if number == SHORT_FIELDS and fields[0] == DATA:
                self._on_short_data(peer, fields)
                return
            if number == 7 and self._is_traffic(peer, fields):
                return
            message = messages.check(fields)
            sender = SocketId(peer, message.sender)
            socket = self.sockets.get(message.to)
            if message.type == FLOW and not message.yours:
                self._on_question(sender, message)
            elif socket is not None:
                socket.on_arrival(sender, message)
            elif _needs_answer(message):
                self.dropped["no such socket"] += 1
                self.answer(SocketId(self.id, message.to), sender, ERROR, 0, message.mine, ())
        except Malformed:
            self.dropped["malformed message"] += 1
        except Exception:  # a pattern's fault must not cost the messages behind this one
            self.dropped["internal error"] += 1
            log.exception("message-error", node=self.id, peer=peer)

    def _on_short_data(self, peer: str, fields: list[Any]) -> None:
        """Take data of a link that both ends know to be established."""
        _, theirs, mine, first, run = fields
        if type(mine) is not int:
            raise Malformed
        socket, link = self.conversations.get(mine, _NOBODY)
        if socket is None or link is None or link.peer.node != peer or link.theirs & LOW != theirs:
            self.dropped["no such link"] += 1  # it has ended, and its peer is told, or was
        elif link.state is State.ESTABLISHED:
            link.silent = 0
            link.confirmed = True
            socket.on_run(link, first, run)
        else:
            message = Message(DATA, socket.id.tag, link.peer.tag, link.theirs, mine, (first, run))
            socket.on_arrival(link.peer, message)

    def _is_traffic(self, peer: str, fields: list[Any]) -> bool:
        """Take data or credits of an established link, which most other messages are, by the shortest way."""
        type_, _, _, theirs, mine, first, second = fields
        if type(mine) is not int or type_ not in (DATA, FLOW):
            return False
        socket, link = self.conversations.get(mine, (None, None))
        if socket is None or link is None or not link.established or link.theirs != theirs or link.peer.node != peer:
            return False
        link.silent = 0
        link.confirmed = True
        if type_ == DATA:
            socket.on_run(link, first, second)
        else:
            socket.on_credits(link, first, second)
        return True

    def _on_question(self, sender: SocketId, message: Message) -> None:
        """A peer asks whether there is a conversation; silence is yes."""
        socket = self.sockets.get(message.to)
        link = socket.manager.links.get(sender) if socket is not None else None
        if link is None or link.theirs != message.mine:
            self.answer(SocketId(self.id, message.to), sender, ERROR, 0, message.mine, (self.life,))

    def _on_transport_event(self, event: exon.events.Event) -> None:
        match event:
            case exon.events.LookupWanted():
                self._lookups.append(event)
            case exon.events.PeerMoved():
                self.tell("moved", event.peer, None, f"from {event.old} to {event.new}")
            case exon.events.PeerUnreachable():
                self.tell("unreachable", event.peer, None, f"silent for {event.seconds:.1f} s, still trying")
            case exon.events.DuplicateId():
                log.warning("duplicate-id", node=self.id, peer=event.peer, addresses=event.addresses)
                self.tell("duplicate-id", event.peer, None, f"two nodes use this id, at {event.addresses}")
            case exon.events.PeerRestarted():
                self._on_restart(event)

    def _on_restart(self, event: exon.events.PeerRestarted) -> None:
        """A peer lost its memory: its links are gone, and what was on the way may or may not have arrived."""
        lost = self.accounts.peer_restarted(event.peer, event.unknown)
        detail = f"; {lost} messages over links that are closed may not have arrived" if lost else ""
        self.tell("restarted", event.peer, None, "its state is gone" + detail)
        for socket in list(self.sockets.values()):
            socket.peer_restarted(event.peer, event.epoch)


def _needs_answer(message: Message) -> bool:
    """Whether the sender waits for somebody who is not there. Never for an error, or two nodes would echo for ever."""
    if message.type == messages.LINKREPLY:
        return bool(message.body) and message.body[0] == Reply.OK
    if message.type == messages.UNLINK:
        return len(message.body) == 2 and message.body[1] is False
    return message.type in (messages.LINK, DATA)
