"""One side: a real core with a real socket and real links, on a transport that only passes messages on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from enum import Enum
from random import Random
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple, cast

from attrs import frozen

from a3m.accounts import Accounts
from a3m.core import Core
from a3m.flow import Incoming
from a3m.ids import SocketId
from a3m.link import Link
from a3m.link_end import TAKEN
from a3m.link_machine import State
from a3m.link_manager import BY_US, LIVE, LinkManager
from a3m.messages import Message, Reply, decode
from a3m.socket_core import WOULD_BLOCK, SocketCore
from exon.events import PeerRestarted
from tests.model_links.scenarios import Acts, Scenario

TAG = "socket"
_NEWS = b"restarted "
_LIFE = 100  # each life counts its conversations from another number
NOW = 0.0
PAUSE = 1.0  # longest time until a link is asked for again


class Kind(Enum):
    """What can happen to a side."""

    LINK = "links"
    UNLINK = "unlinks"
    FORCE = "unlinks by force"
    CLOSE = "closes its socket"
    KILL = "closes its socket by force"
    CREATE = "makes its socket"
    SEND = "sends a message"
    RECEIVE = "takes a message"
    RESIZE = "changes the capacity"
    FREE = "is no longer busy"
    RETRY = "asks again"
    QUESTION = "asks whether the conversation still exists"
    HAND_OVER = "hands its data to the transport"
    CRASH = "restarts without memory"
    ARRIVAL = "gets"
    LOSS = "sent in vain"


class Step(NamedTuple):
    """One thing that happens to one side."""

    kind: Kind
    peer: str = ""
    message: Envelope | None = None


class Envelope(NamedTuple):
    """A message on its way."""

    to: str
    sender: str
    data: bytes
    doomed: bool = False  # one of its ends has restarted since: it may arrive or not

    @property
    def news(self) -> int | None:
        """The life of the sender that is over, if this is what the transport has to say about that."""
        return int(self.data[len(_NEWS) :]) if self.data.startswith(_NEWS) else None

    def open(self) -> Message:
        """What is inside."""
        return decode(self.data)


class Property(Enum):
    """What must hold."""

    SOUND = "nothing is raised, dropped as malformed or cut off"
    ONCE = "each message is received once, and in order if that was promised"
    LIMIT = "never more links than max_links"
    CREDITS = "capacity = credits + queued there + on the way + queued here + owed"
    SCHEDULED = "whoever waits to ask again will ask again"
    QUIET = "it comes to rest"
    AGREED = "at rest both sides agree: established in the same conversation, or nothing"
    FLOWING = "at rest a link with room has credits"
    WISHED = "who wants a link with somebody willing has it, and who does not get it is told"
    ARRIVED = "what was accepted arrives, unless the link was ended by force, and then the sender knows"
    COUNTED = "whoever knows that a link was ended by force counts at least the messages that do not arrive"


class Violation(NamedTuple):
    """A broken property."""

    property: Property
    detail: str


class Broken(Exception):
    """A property does not hold."""

    def __init__(self, property_: Property, detail: str) -> None:
        super().__init__(property_, detail)
        self.violation = Violation(property_, detail)


@frozen(kw_only=True)
class Variant:
    """The real classes, or such with a known bug."""

    name: str = "correct"
    story: str = ""
    manager: type[LinkManager] = LinkManager
    incoming: type[Incoming] = Incoming
    accounts: type[Accounts] = Accounts
    scenario: Scenario | None = None
    damage: Property | None = None


CORRECT = Variant()


class Transport:
    """Takes messages, and hands them out again to whoever carries them."""

    def __init__(self, name: str, lazy: bool) -> None:
        self.id = name
        self.epoch = 0
        self.closing = False
        self.open = not lazy
        self.options = SimpleNamespace(max_message=1 << 20)
        self.arrived: list[tuple[str, list[bytes]]] = []
        self.sent: list[tuple[str, bytes]] = []
        self.news: list[PeerRestarted] = []

    @property
    def eventful(self) -> bool:
        return bool(self.news)

    @property
    def deliverable(self) -> bool:
        return bool(self.arrived)

    def send(self, peer: str, data: bytes, now: float) -> bool:
        self.sent.append((peer, data))
        return True

    def has_room(self, peer: str, size: int) -> bool:
        return self.open

    def message_budget(self, peer: str) -> int | None:
        return None

    def views(self) -> Iterator[tuple[str, list[bytes]]]:
        arrived, self.arrived = self.arrived, []
        yield from arrived

    def flowing(self, peer: str) -> bool:
        return self.pending(peer)

    def pending(self, peer: str) -> bool:
        return False  # the search asks questions only while nothing is on the way

    def unfinished(self) -> Iterator[tuple[bytes, bool]]:
        yield from ()  # it does not wait for acknowledgements

    def events(self) -> Iterator[Any]:
        news, self.news = self.news, []
        yield from news

    def expire(self, now: float) -> None:
        """Nothing of its own is ever due."""

    def datagrams(self, now: float) -> Iterator[Any]:
        yield from ()


class ModelSocket(SocketCore):
    """Any number of links, and a note of what they were told."""

    protocol = "MODEL"
    compatible = frozenset({"MODEL"})
    defaults: ClassVar[dict[str, Any]] = {"retry": (PAUSE, PAUSE)}

    def __init__(self, core: Core, side: Side, scenario: Scenario, acts: Acts, variant: Variant) -> None:
        self.side = side
        self.protocol = acts.protocol  # type: ignore[misc]  # each side has its own
        options = {"max_links": acts.max_links, "accept_links": acts.accept_links}
        super().__init__(
            core, TAG, capacity=scenario.capacity, batch=scenario.batch, ordered=scenario.ordered, **options
        )
        self.manager = variant.manager(self)
        self.incoming = variant.incoming

    def on_link_request(self, peer: SocketId, metadata: Any) -> Reply:
        return Reply.TMP_NAVAIL if self.side.busy else Reply.OK

    def on_link(self, link: Link) -> None:
        assert link.incoming is not None
        link.incoming = self.incoming(link.capacity, self.options.batch, self.options.ordered)

    def link_down(self, link: Link, reason: str) -> None:
        self.side.told.add(link.peer.node)
        if link.outgoing is not None:
            self.side.ended[link.peer.node, link.mine] = reason == BY_US
        super().link_down(link, reason)
        if link.outgoing is not None:
            self.side.counted[link.peer.node, link.mine] = link.unsent + link.unknown

    def link_refused(self, link: Link, code: Reply) -> None:
        self.side.told.add(link.peer.node)
        super().link_refused(link, code)


class Side:
    """A node with one socket, and what its application knows."""

    def __init__(self, name: str, scenario: Scenario, variant: Variant = CORRECT) -> None:
        self.name = name
        self.scenario = scenario
        self.acts = scenario.acts(name)
        self.variant = variant
        self.life = 0
        self._begin()
        self.busy = self.acts.busy
        self.used: Counter[Kind] = Counter()
        self.incarnations = 0
        self.wants: set[str] = set()  # peers: link() was called after the last unlink()
        self.told: set[str] = set()  # peers: the link ended or was refused after the last link()
        self.crashed: set[str] = set()  # peers that are known to have restarted
        self.unwilling: set[str] = set()  # peers: unlink() was called at any time
        self.accepted: dict[tuple[str, int], int] = {}  # (peer, our incarnation) -> messages sent
        self.received: dict[tuple[str, int], frozenset[int]] = {}  # (peer, its incarnation) -> numbers
        self.ended: dict[tuple[str, int], bool] = {}  # (peer, our incarnation) -> in good order, as far as we know
        self.counted: dict[tuple[str, int], int] = {}  # (peer, our incarnation) -> messages that may be lost
        self.forced: dict[tuple[str, int], bool] = {}  # (peer, its incarnation) -> was unlinking when we forced
        self.gave_up: set[tuple[str, int]] = set()  # (peer, our incarnation) that we ended by force
        self.socket: ModelSocket | None = None
        if not self.acts.absent:
            self._create()

    def _begin(self) -> None:
        """A new life of the node."""
        self.transport = Transport(self.name, self.scenario.lazy)
        self.transport.epoch = self.life * _LIFE
        self.core = Core(cast(Any, self.transport), random=Random(0), time=lambda: NOW)
        self.core.accounts = self.variant.accounts(cast(Any, self.transport))

    # -- what may happen --------------------------------------------------------------------------------------------

    def steps(self) -> list[Step]:
        """What may happen next, besides arrivals."""
        return [Step(kind, peer) for kind, peer in self._possible()]

    def _possible(self) -> Iterator[tuple[Kind, str]]:
        acts, socket = self.acts, self.socket
        if self.busy:
            yield Kind.FREE, ""
        if self.used[Kind.CRASH] < acts.crash:
            yield Kind.CRASH, ""
        if socket is None or socket._closed:
            if self.used[Kind.CREATE] < acts.reborn + acts.absent:
                yield Kind.CREATE, ""
            if socket is None:
                return
        if not socket.closed:
            yield from self._calls(socket)
        elif not socket._closed and self.used[Kind.KILL] < acts.kill:
            yield Kind.KILL, ""
        if self.used[Kind.QUESTION] < acts.question and any(link.mine for link in self.links):
            yield Kind.QUESTION, ""
        if self._retrying and self.incarnations < self.scenario.incarnations:
            yield Kind.RETRY, ""
        yield from self._chores()

    def _calls(self, socket: ModelSocket) -> Iterator[tuple[Kind, str]]:
        acts = self.acts
        limits = {Kind.LINK: acts.link, Kind.UNLINK: acts.unlink, Kind.FORCE: acts.force}
        for kind, limit in limits.items():
            if self.used[kind] < limit:
                for peer in self.scenario.peers(self.name):
                    # Unlinking what is not there does nothing.
                    if kind is Kind.LINK or SocketId(peer, TAG) in socket.manager.links:
                        yield kind, peer
        if self.used[Kind.CLOSE] < acts.close:
            yield Kind.CLOSE, ""
        if self.used[Kind.KILL] < acts.kill:
            yield Kind.KILL, ""
        if self.used[Kind.SEND] < acts.send and socket.can_send_now():
            yield Kind.SEND, ""
        if self.used[Kind.RESIZE] < len(acts.resize) and any(socket.established):
            yield Kind.RESIZE, ""

    def _chores(self) -> Iterator[tuple[Kind, str]]:
        """What applications and transports do sooner or later."""
        if self.socket is not None and self.socket.can_receive_now():
            yield Kind.RECEIVE, ""
        if any(link.outgoing is not None and link.outgoing.queue for link in self.core.dirty):
            yield Kind.HAND_OVER, ""

    def chores(self) -> list[Step]:
        """What is left to do once nothing is on the way: first what costs nothing, then asking again."""
        return [Step(kind) for kind, _ in self._chores()]

    @property
    def _retrying(self) -> bool:
        return any(link.state is State.WAIT_RETRY for link in self.links)

    @property
    def links(self) -> list[Link]:
        """All links of the manager."""
        return [] if self.socket is None else list(self.socket.manager.links.values())

    def link_with(self, peer: str) -> Link | None:
        """The link with a peer."""
        return None if self.socket is None else self.socket.manager.links.get(SocketId(peer, TAG))

    # -- doing it ---------------------------------------------------------------------------------------------------

    def take(self, step: Step) -> list[Envelope]:
        """Let it happen; the messages that are sent."""
        self.transport.sent = []
        try:
            self._perform(step)
            if step.kind not in (Kind.RECEIVE, Kind.HAND_OVER) and not self.scenario.patient:
                self._receive_all()
            for _ in self.core.datagrams(NOW):
                pass
            self._check()
        except Broken:
            raise
        except Exception as error:
            raise Broken(Property.SOUND, f"{type(error).__name__}: {error}") from error
        return [Envelope(peer, self.name, data) for peer, data in self.transport.sent]

    def _perform(self, step: Step) -> None:
        self.used[step.kind] += 1
        peer = SocketId(step.peer, TAG)
        match step.kind:
            case Kind.ARRIVAL:
                assert step.message is not None
                self._arrive(step.message)
            case Kind.CRASH:
                self._crash()
            case Kind.RETRY:
                self.core.expire(NOW + PAUSE)
            case Kind.QUESTION:
                self.core._ask_the_silent(NOW)
            case Kind.CREATE:
                self._create()
            case Kind.FREE:
                self.busy = False
            case Kind.HAND_OVER:
                self.transport.open = True
                for _ in self.core.datagrams(NOW):
                    pass
                self.transport.open = not self.scenario.lazy
            case _:
                assert self.socket is not None
                self._call(self.socket, step.kind, peer)

    def _arrive(self, message: Envelope) -> None:
        over = message.news
        if over is None:
            self.transport.arrived.append((message.sender, [message.data]))
        else:
            self.transport.news.append(PeerRestarted(message.sender, (), over))
            self.crashed.add(message.sender)
        self.core.expire(NOW)

    def _crash(self) -> None:
        """Lose everything, be there again at once, and let the others hear of it sooner or later."""
        news = b"%s%d" % (_NEWS, self.life * _LIFE)
        self.life += 1
        for memory in (self.wants, self.told, self.accepted, self.received, self.ended, self.forced, self.gave_up):
            memory.clear()
        self.counted.clear()
        self._begin()
        self._create()
        self.transport.sent += [(peer, news) for peer in self.scenario.peers(self.name)]

    def _call(self, socket: ModelSocket, kind: Kind, peer: SocketId) -> None:
        match kind:
            case Kind.LINK:
                self.wants.add(peer.node)
                self.told.discard(peer.node)
                socket.manager.link(peer)
            case Kind.UNLINK:
                self._unwant(peer.node)
                socket.manager.unlink(peer)
            case Kind.FORCE:
                self._unwant(peer.node)
                self._note_force(peer.node)
                socket.manager.unlink(peer, force=True)
            case Kind.CLOSE:
                self._unwant(*self.scenario.peers(self.name))
                socket.begin_close()
            case Kind.KILL:
                self._unwant(*self.scenario.peers(self.name))
                socket.begin_close()
                for link in self.links:
                    self._note_force(link.peer.node)
                socket.force_close()
            case Kind.SEND:
                self._send(socket)
            case Kind.RECEIVE:
                self._receive(socket)
            case Kind.RESIZE:
                link = next(socket.established)
                assert link.incoming is not None
                change = link.incoming.resize(self.acts.resize[self.used[kind] - 1])
                if change:
                    socket.give_credits(link, change)

    def _unwant(self, *peers: str) -> None:
        self.wants.difference_update(peers)
        self.unwilling.update(peers)

    def _note_force(self, peer: str) -> None:
        link = self.link_with(peer)
        if link is not None:
            self.gave_up.add((peer, link.mine))
            self.forced[peer, link.theirs] = link.state is State.UNLINKING

    def _create(self) -> None:
        self.socket = ModelSocket(self.core, self, self.scenario, self.acts, self.variant)

    def _send(self, socket: ModelSocket) -> None:
        link = socket.route(b"")
        assert link is not None
        assert link.outgoing is not None
        number = link.outgoing.sent
        socket.push(link, f"{link.mine}.{number}".encode())
        self.accepted[link.peer.node, link.mine] = number + 1

    def _receive_all(self) -> None:
        while self.socket is not None and self.socket.can_receive_now():
            self._receive(self.socket)

    def _receive(self, socket: ModelSocket) -> None:
        taken = socket.take()
        assert taken is not WOULD_BLOCK
        link, item = taken
        incarnation, number = map(int, item.decode().split("."))
        before = self.received.get((link.peer.node, incarnation), frozenset())
        if number in before or (self.scenario.ordered and number != len(before)):
            raise Broken(Property.ONCE, f"{self.name} received {item.decode()} from {link.peer} after {sorted(before)}")
        self.received[link.peer.node, incarnation] = before | {number}

    def _check(self) -> None:
        fine = ("no such socket", "no such link", "message after a gap")
        dropped = {what: number for what, number in self.core.dropped.items() if what not in fine}
        if dropped:
            raise Broken(Property.SOUND, f"{self.name}: {dropped}")
        most = self.acts.max_links
        if most is not None and sum(link.state in TAKEN for link in self.links) > most:
            raise Broken(Property.LIMIT, f"{self.name}: {[(str(link.peer), link.state.name) for link in self.links]}")
        scheduled = {id(link) for when, _, _, link in self.core._retries if link.retry_at == when}
        for link in self.links:
            if link.state is State.WAIT_RETRY and id(link) not in scheduled:
                raise Broken(Property.SCHEDULED, f"{self.name}: {link.peer}")

    # -- comparing --------------------------------------------------------------------------------------------------

    def key(self) -> tuple[Any, ...]:
        """Everything that matters for what can happen from here on."""
        incarnations = self.core.next_incarnation()
        self.core._incarnations = iter(range(incarnations, 1 << 30))  # type: ignore[assignment]
        self.incarnations = incarnations - 1 - self.life * _LIFE
        socket = self.socket
        used = tuple(sorted((kind.name, number) for kind, number in self.used.items() if kind in _BOUNDED))
        mind = (
            _sorted(self.wants),
            _sorted(self.told),
            self.life,
            _sorted(self.crashed),
            _sorted(self.unwilling),
            _sorted(self.gave_up),
            *(_sorted(each.items()) for each in (self.accepted, self.received, self.ended, self.counted, self.forced)),
        )
        if socket is None:
            return (used, mind, self.busy, incarnations)
        others = {*socket._readable, *self.core.dirty} - set(self.links)
        return (
            used,
            mind,
            self.busy,
            incarnations,
            socket.closed,
            socket._closed,
            _sorted(map(_link_key, self.links)),
            tuple(link.peer for link in socket._sendable if link.can_send),
            _sorted(map(_link_key, others)),
        )


_BOUNDED = frozenset(Kind) - {Kind.ARRIVAL, Kind.RECEIVE, Kind.RETRY, Kind.HAND_OVER}


def _sorted(items: Any) -> tuple[Any, ...]:
    return tuple(sorted(items, key=repr))


def _link_key(link: Link) -> tuple[Any, ...]:
    outgoing, incoming = link.outgoing, link.incoming
    return (
        link.peer,
        link.state.name,
        link.wanted,
        link.relink,
        link.mine,
        link.theirs,
        link.asked,
        link.told,
        link.metadata,
        link.replied,
        link.confirmed,
        link.silent,
        link.capacity,
        None if outgoing is None else (outgoing.credits, outgoing.sent, outgoing.settled, tuple(outgoing.queue)),
        None
        if incoming is None
        else (
            incoming.capacity,
            incoming.granted,
            incoming.received,
            incoming.goal,
            tuple(incoming.queue),
            incoming.owed,
            incoming._next,
            tuple((first, tuple(run)) for first, run in sorted(incoming._early.items())),
        ),
    )


def live(link: Link | None) -> bool:
    """Whether a link carries messages."""
    return link is not None and link.state in LIVE
