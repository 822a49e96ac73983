"""What a run of sockets is judged by.

It looks at every message where it enters a link (``push``) and where it leaves one (``take``), and knows links by the
name of the conversation: sender, its life, its incarnation. So it can say at any moment, not only at the end, that what
came out of a link is what went in: each once, and in order where that is promised.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterable
from typing import Any, NamedTuple

from a3m.core import Core
from a3m.link import Link
from a3m.patterns import ReqSocket, XPubSocket
from a3m.simulation import Topology, Violation
from a3m.socket import Socket
from a3m.socket_core import WOULD_BLOCK


class Way(NamedTuple):
    """One direction of one conversation."""

    node: str
    life: int
    incarnation: int


def fail(what: str, which: object = "") -> None:
    raise Violation(f"{what}: {str(which)[:400]}" if which != "" else what)


class Turns:
    """Whether everybody gets a turn: nobody is served twice while somebody waits who could have been served."""

    def __init__(self, whose: str) -> None:
        self._whose = whose
        self._passed: dict[Link, Counter[Link]] = {}

    def served(self, chosen: Link, others: Iterable[Link]) -> None:
        """``chosen`` is served although ``others`` could have been."""
        before, self._passed = self._passed, {}
        for other in others:
            passed = self._passed[other] = before.get(other, Counter())
            passed[chosen] += 1
            if passed[chosen] > 1:
                fail(f"{self._whose} serves {chosen.peer} twice while {other.peer} waits")

    def reset(self) -> None:
        """Nobody could be served."""
        self._passed = {}


class Oracle:
    """Watches the sockets of a topology."""

    def __init__(self, net: Topology) -> None:
        self.net = net
        net.watch = self._look
        self.sent: dict[Way, list[Any]] = defaultdict(list)
        self.taken: dict[Way, list[Any]] = defaultdict(list)
        self.cores: dict[tuple[str, int], Core] = {}  # of all lives
        self.forced = False  # whether links were ended by force, which may lose what was on the way
        self.agreed: set[Way] = set()  # ended by agreement: everything has arrived, or is on its way
        self.pushed: list[Link] = []  # by the present call
        self.capacity: dict[Link, int] = {}  # the largest that each link ever had
        self.latest: dict[Link, int] = {}  # the one it had last
        self.taken_away: Counter[Link] = Counter()  # credits, by making it smaller
        self.peaks: dict[Any, tuple[int, int]] = {}  # the most links and the largest capacity that a socket ever had
        self.subscriptions: dict[XPubSocket, dict[Link, set[bytes]]] = {}  # in force, by publisher

    # -- looking on --------------------------------------------------------------------------------------------------

    def watch(self, socket: Socket) -> Socket:
        """Look on from now on."""
        self.cores[socket.core.id, socket.core.life] = socket.core
        self._watch_push(socket)
        self._watch_take(socket)
        self._watch_end(socket)
        if isinstance(socket, XPubSocket):
            self._watch_subscriptions(socket)
        elif type(socket).route is Socket.route:
            self._watch_route(socket)
        return socket

    def _watch_push(self, socket: Socket) -> None:
        push = socket.push

        def watched(link: Link, item: Any) -> None:
            if not link.established:
                fail(f"{socket.id} sends to {link.peer} over a link that is {link.state.value}")
            push(link, item)
            self.sent[Way(socket.core.id, socket.core.life, link.mine)].append(item)
            self.pushed.append(link)

        socket.push = watched  # type: ignore[method-assign]

    def _watch_end(self, socket: Socket) -> None:
        link_down = socket.link_down

        def watched(link: Link, reason: str) -> None:
            if link.incoming is not None and link.incoming.all_here and link.replied:
                self.agreed.add(Way(socket.core.id, socket.core.life, link.mine))
            link_down(link, reason)

        socket.link_down = watched  # type: ignore[method-assign]

    def _watch_take(self, socket: Socket) -> None:
        turns = Turns(f"{socket.id}, receiving,")
        if isinstance(socket, ReqSocket):
            on_message = socket.on_message

            def came(link: Link, items: list[Any]) -> None:
                for item in items:
                    self.took(link, item, socket.options.ordered)
                on_message(link, items)

            socket.on_message = came  # type: ignore[method-assign]
            return
        take = socket.take

        def watched() -> Any:
            waiting = [link for link in socket._readable if link.incoming is not None and link.incoming.queue]
            taken = take()
            if taken is not WOULD_BLOCK:
                turns.served(taken[0], [link for link in waiting if link is not taken[0]])
                link, item = taken
                self.took(link, item, socket.options.ordered)
            return taken

        socket.take = watched  # type: ignore[method-assign]

    def took(self, link: Link, item: Any, ordered: bool) -> None:
        """The application gets a message."""
        assert link.metadata is not None
        way = Way(link.peer.node, link.metadata.life, link.theirs)
        sent, taken = self.sent[way], self.taken[way]
        if item not in sent:
            fail(f"{link.peer} never sent over this link", item)
        if item in taken:
            fail(f"twice from {link.peer}", item)
        if ordered and sent[len(taken)] != item:
            fail(f"out of order from {link.peer}, {sent[len(taken)]} should have come first", item)
        taken.append(item)

    def _watch_route(self, socket: Socket) -> None:
        route, turns = socket.route, Turns(f"{socket.id}, sending,")

        def watched(item: Any) -> Link | None:
            able = [link for link in socket.established if link.can_send]
            link = route(item)
            if link is None:
                turns.reset()
                if able:
                    fail(f"{socket.id} finds no link although {able[0].peer} has room")
            else:
                turns.served(link, [other for other in able if other is not link])
            return link

        socket.route = watched  # type: ignore[method-assign]

    def _watch_subscriptions(self, socket: XPubSocket) -> None:
        on_control, try_send, on_unlink = socket.on_control, socket.try_send, socket.on_unlink
        wishes = self.subscriptions[socket] = defaultdict(set)

        def came(link: Link, type_: int, body: tuple[Any, ...]) -> None:
            on_control(link, type_, body)
            add, prefixes = body
            wishes[link] = wishes[link] | set(prefixes) if add else wishes[link] - set(prefixes)

        def gone(link: Link, reason: str) -> None:
            wishes.pop(link, None)
            on_unlink(link, reason)

        def published(item: Any) -> Any:
            self.pushed = []
            reached = try_send(item)
            wanted = [link for link, prefixes in wishes.items() if any(map(item[0].encode().startswith, prefixes))]
            wanted = [link for link in wanted if link.established]
            if reached is not WOULD_BLOCK and (set(self.pushed) != set(wanted) or len(self.pushed) != reached):
                names = [str(link.peer) for link in self.pushed], [str(link.peer) for link in wanted]
                fail("{} publishes {!r} to {}, wanted by {}".format(socket.id, item[0], *names))
            return reached

        socket.on_control = came  # type: ignore[method-assign]
        socket.on_unlink = gone  # type: ignore[method-assign]
        socket.try_send = published  # type: ignore[method-assign]

    # -- at every moment ---------------------------------------------------------------------------------------------

    def _look(self, core: Core) -> None:
        """Memory is bounded: each link holds at most its capacity, and closed ones not much more than one in all."""
        for socket in core.sockets.values():
            links = {*socket._links.values(), *socket._readable}
            total = 0
            for link in links:
                incoming, outgoing = link.incoming, link.outgoing
                assert incoming is not None
                assert outgoing is not None
                most = self.capacity[link] = max(self.capacity.get(link, 0), incoming.capacity)
                held = len(incoming.queue) + sum(map(len, incoming._early.values()))
                total += held
                # What was taken away counts until the sender knows; what is given back meanwhile may overtake the news.
                before = self.latest.get(link, link.capacity)
                self.latest[link] = incoming.capacity
                self.taken_away[link] += max(0, before - incoming.capacity)
                if held > most + self.taken_away[link]:
                    fail(f"{socket.id} holds {held} messages of {link.peer}, its capacity is {most}")
            peak, largest = self.peaks.get(socket, (0, 0))
            largest = max([largest, *(self.capacity[link] for link in links)])
            peak, _ = self.peaks[socket] = max(peak, len(socket._links)), largest
            if total > (peak + 1) * largest:
                fail(f"{socket.id} holds {total} messages, and never had more than {peak} links of {largest}")

    # -- at the end --------------------------------------------------------------------------------------------------

    def missing(self, except_for: Container[Way] = ()) -> dict[tuple[str, int], list[Any]]:
        """What was accepted and not delivered, by the life of the sender."""
        lost: dict[tuple[str, int], list[Any]] = defaultdict(list)
        for way, items in self.sent.items():
            taken = self.taken[way]
            if way not in except_for:
                lost[way.node, way.life] += [item for item in items if item not in taken]
        return lost

    def check(self) -> None:
        """Everything was delivered or is accounted for, and nothing is left."""
        restarted = any(host.life for host in self.net.hosts.values())
        # Who ends a link is told that everything has arrived; that a restart is faster than the application which
        # should take it is then nothing that the sender could be told; nor that the application gives its end up.
        for (node, life), items in self.missing(except_for=self.agreed if restarted or self.forced else set()).items():
            core = self.cores[node, life]
            alive = self.net.cores[node] is core
            unknown, given_up = core.accounts.unknown, core.accounts.given_up
            if alive and len(items) > unknown + given_up:
                fail(f"{node} reports {unknown} unknown and {given_up} given up, but missing are", items)
        for core in self.net.cores.values():
            if (core.accounts.unknown or core.accounts.given_up) and not restarted and not self.forced:
                fail(f"{core.id} reports losses although nobody lost anything")
            # Whoever comes too late is told so, and whoever ends a link by force counts what may be lost with it.
            dropped = set(core.dropped) - {"no such socket", "no such link", "message after a gap"}
            if dropped and not restarted:
                fail(f"{core.id} dropped", dict(core.dropped))
        if not self.net.quiet and not (restarted and self._only_ghosts_are_left()):
            fail("not quiet", self.describe())

    def _only_ghosts_are_left(self) -> bool:
        """Whether all that is left are records of lives that ended before they had shown to receive our answers.

        Exon asks after such only a few times, because somebody may have forged them, and keeps a limited number.
        """
        if any(core.sockets or core.wants_to_send for core in self.net.cores.values()):
            return False
        for host in self.net.hosts.values():
            for peer in host.node._state.peers.values():
                known = [inbound for epoch, inbound in peer.inbounds.items() if peer.receive_record(epoch) is not None]
                if peer.outbound.record is not None or not known or any(inbound.proven for inbound in known):
                    return False
        return True

    def describe(self) -> str:
        """Who still has what."""
        lines = []
        for core in self.net.cores.values():
            stats = core.transport.stats()
            links = [
                (socket.id.tag, str(link.peer), link.state.name, link.outgoing and link.outgoing.credits)
                for socket in core.sockets.values()
                for link in socket.manager.links.values()
            ]
            if core.sockets or stats.peers or core.wants_to_send:
                pending = {peer: peer_stats.pending_messages for peer, peer_stats in stats.peers.items()}
                lines.append(f"{core.id}: links {links}, pending {pending}, sends {core.wants_to_send}")
        return "; ".join(lines)
