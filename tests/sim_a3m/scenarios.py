"""Topologies of sockets, and what their applications do; every one ends with nothing left anywhere."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, ClassVar

from a3m.core import Core
from a3m.errors import LinkClosed, NoLinks, StateError
from a3m.patterns import (
    DealerSocket,
    PairSocket,
    PubSocket,
    PullSocket,
    PushSocket,
    RepSocket,
    ReqSocket,
    RouterSocket,
    SubSocket,
)
from a3m.simulation import Step, Topology, Violation
from a3m.socket import Socket
from a3m.socket_core import WOULD_BLOCK
from exon.options import Options
from exon.simulation.scenarios import Scenario as Faults
from exon.simulation.scenarios import schedule_faults
from tests.sim_a3m.oracle import Oracle, fail

_PATIENCE = 600.0  # seconds of virtual time after which something that has not happened never will

BAD = Faults(
    seconds=2.0,
    max_loss=0.3,
    max_duplicate=0.2,
    max_reorder=0.3,
    latency=(0.001, 0.03),
    partitions=1,
    one_way_partitions=1,
    moves=2,
    swaps=1,
)


OPTIONS = (
    None,
    None,
    Options(idle_timeout=0.2, probe_after=0.2),  # nodes forget each other quickly
    Options(send_bytes=2_000, receive_bytes=2_000, max_slots=8),  # the transport has hardly any room
)


class Scenario:
    """A topology under faults."""

    faults: ClassVar[Faults] = BAD

    def __init__(self, seed: int, trace: Callable[[float, str], None] | None = None) -> None:
        self.dice = Random(f"{type(self).__name__}-{seed}")
        uniform, faults = self.dice.uniform, self.faults
        self.net = Topology(
            seed,
            loss=uniform(0, faults.max_loss),
            duplicate=uniform(0, faults.max_duplicate),
            reorder=uniform(0, faults.max_reorder),
            latency=uniform(*faults.latency),
            trace=trace,
        )
        self.oracle = Oracle(self.net)
        self.sockets: dict[str, Socket] = {}  # by name, "node/tag"; of the present life of their node
        self.end = self.net.now + faults.seconds  # of sending
        self.options = self.dice.choice(OPTIONS)
        self.padding = self.dice.choice((0, 0, 0, 500, 30_000))

    # -- for scenarios -----------------------------------------------------------------------------------------------

    def build(self) -> None:
        """Start the nodes, and schedule what they do."""
        raise NotImplementedError

    def done(self) -> bool:
        """Whether everything has happened that was to happen before the sockets are closed."""
        raise NotImplementedError

    def check(self) -> None:
        """What else must hold before they are."""

    def socket(self, pattern: type[Any], core: Core, tag: str, **options: Any) -> Any:
        socket = self.oracle.watch(pattern(core, tag, **options))
        self.sockets[str(socket.id)] = socket
        return socket

    def at_random(self, node: str, action: Callable[[], object]) -> None:
        """Let a node's application do something at some moment."""
        when = self.dice.uniform(self.net.now, self.end)
        self.net.at(when, lambda: self.net.act(node, action))

    def consumer(self, socket: Socket, pace: float, take: Callable[[Any], object] = lambda _: None) -> Step:
        """Takes a message, and the next one not before it has worked on it."""
        busy_until = 0.0

        def step() -> bool:
            nonlocal busy_until
            if self.net.now < busy_until or (message := socket.try_receive()) is WOULD_BLOCK:
                return False
            take(message)
            if pace:
                busy_until = self.net.now + pace
                self.net.wake(socket.core.id, busy_until)
            return True

        return step

    def message(self, text: str) -> bytes:
        """A message of the size of this run."""
        return text.encode() + bytes(self.padding)

    def pace(self) -> float:
        return self.dice.choice((0.0, 0.0, 0.002, 0.03))

    # -- the run -----------------------------------------------------------------------------------------------------

    def run(self) -> Topology:
        self.build()
        schedule_faults(self.net, self.faults, list(self.net.hosts), self.dice)
        self.net.run(self.end)
        self.net.heal()
        self._wait_for("everything is delivered", self.done)
        self.check()
        for socket in list(self.sockets.values()):
            self.net.act(socket.core.id, socket.begin_close)
        self._wait_for("all sockets are closed", lambda: not any(core.sockets for core in self.net.cores.values()))
        self.net.run()
        self.oracle.check()
        return self.net

    def _wait_for(self, what: str, done: Callable[[], bool]) -> None:
        limit = self.net.now + _PATIENCE
        while not done():
            if self.net.now >= limit:
                fail(f"stalled: it is never true that {what}", self.oracle.describe())
            self.net.run(self.net.now + 0.5)


def producer(socket: Socket, todo: list[bytes], finished: Callable[[], object] = lambda: None) -> Step:
    """Sends what is in the list, one after the other."""

    def step() -> bool:
        if not todo or socket.closed or socket.try_send(socket.prepare(todo[0])) is WOULD_BLOCK:
            return False
        del todo[0]
        if not todo:
            finished()
        return True

    return step


def both(*steps: Step) -> Step:
    """All of them; whether any did something."""
    return lambda: sum(step() for step in steps) > 0


class ScatterGather(Scenario):
    """1-8-8-1: a source, two rows of workers, a sink; each ends when its last link is gone (003, section 7.3)."""

    rows: ClassVar = (1, 8, 8, 1)
    messages: ClassVar = 64

    def build(self) -> None:
        self.results: list[bytes] = []
        self.ended = 0
        for row, size in reversed(list(enumerate(self.rows))):
            for number in range(size):
                self._start(row, number)

    def _names(self, row: int) -> list[str]:
        return [f"n{row}-{number}" for number in range(self.rows[row])] if 0 <= row < len(self.rows) else []

    def _start(self, row: int, number: int) -> None:
        before, after = self._names(row - 1), self._names(row + 1)
        name = f"n{row}-{number}"
        capacity = self.dice.choice((1, 3, 1024))
        pace = self.pace()

        def application(core: Core) -> Step:
            push = self.socket(PushSocket, core, "out") if after else None
            if not before:
                assert push is not None
                todo = [self.message(f"{n}:") for n in range(self.messages)]
                send = producer(push, todo, push.begin_close)
                return lambda: len(list(push.established)) == len(after) and send()
            pull = self.socket(PullSocket, core, "in", capacity=capacity)
            for other in before:
                pull.link(f"{other}/out")
            return self._work(core, pull, push, len(after), pace)

        self.net.start(name, application, self.options)

    def _work(self, core: Core, pull: PullSocket, push: PushSocket | None, after: int, pace: float) -> Step:
        hand: list[bytes] = []
        busy_until = 0.0

        def step() -> bool:
            nonlocal busy_until
            if pull.closed or self.net.now < busy_until:
                return False
            if push is not None and (len(list(push.established)) < after or (hand and not send())):
                return False
            try:
                message = pull.try_iterate()
            except NoLinks:
                self.ended += 1
                pull.begin_close()
                if push is not None:
                    push.begin_close()
                return True
            if message is WOULD_BLOCK:
                return False
            (hand if push is not None else self.results).append(message)
            busy_until = self.net.now + pace
            if pace:
                self.net.wake(core.id, busy_until)
            return True

        send = producer(push, hand) if push is not None else lambda: False
        return step

    def done(self) -> bool:
        return self.ended == sum(self.rows) - 1

    def check(self) -> None:
        if sorted(self.results) != sorted(self.message(f"{n}:") for n in range(self.messages)):
            fail("the sink has", sorted(self.results))


class RequestReply(Scenario):
    """20 REQ against 5 REP."""

    clients, servers, questions = 20, 5, 4

    def build(self) -> None:
        self.handled: list[bytes] = []
        self.answered: list[bytes] = []
        self.failed: list[bytes] = []
        for number in range(self.servers):
            self.net.start(f"rep-{number}", self._server(self.pace()), self.options)
        for number in range(self.clients):
            self.net.start(f"req-{number}", self._client, self.options)

    def _server(self, pace: float) -> Callable[[Core], Step]:
        def application(core: Core) -> Step:
            rep = self.socket(RepSocket, core, "s")
            answer: list[bytes] = []

            def ask(question: bytes) -> None:
                self.handled.append(question)
                answer.append(question[::-1])

            receive = self.consumer(rep, pace, ask)

            def step() -> bool:
                try:
                    if answer and rep.try_send(rep.prepare(answer[0])) is not WOULD_BLOCK:
                        answer.clear()
                        return True
                except (LinkClosed, StateError):
                    answer.clear()
                    return True
                return not answer and receive()

            return step

        return application

    def _client(self, core: Core) -> Step:
        req = self.socket(ReqSocket, core, "c")
        for number in range(self.servers):
            req.link(f"rep-{number}/s")
        todo = [b"%s.%d:%d" % (core.id.encode(), core.life, n) for n in range(self.questions)]
        asked: list[bytes] = []

        def step() -> bool:
            if not asked:
                if not todo or req.try_send(req.prepare(todo[0])) is WOULD_BLOCK:
                    return False
                asked.append(todo.pop(0))
                return True
            try:
                answer = req.try_receive()
            except LinkClosed:
                self.failed.append(asked.pop())
                return True
            if answer is WOULD_BLOCK:
                return False
            if answer != asked[0][::-1]:
                fail(f"{core.id} asked {asked[0]!r} and is answered", answer)
            self.answered.append(asked.pop())
            return True

        return step

    def done(self) -> bool:
        return len(self.answered) == self.clients * self.questions

    def check(self) -> None:
        if sorted(self.handled) != sorted(self.answered):
            fail("handled and answered differ", (self.handled, self.answered))


class PublishSubscribe(Scenario):
    """3 publishers, 10 subscribers of different speeds that change their minds."""

    publishers, subscribers, messages = 3, 10, 25
    topics: ClassVar = ("", "a", "ab", "abc", "b", "bc", "ä")

    def build(self) -> None:
        self.todo: dict[str, list[tuple[str, bytes]]] = {}
        for number in range(self.publishers):
            self.net.start(name := f"pub-{number}", self._publisher, self.options)
            for n in range(self.messages):
                message = (self.dice.choice(self.topics), self.message(f"{number}:{n}:"))
                self.at_random(name, lambda name=name, message=message: self.todo[name].append(message))  # type: ignore[misc]
        for number in range(self.subscribers):
            subscriber = self._subscriber(self.dice.choice((1, 4, 1024)), self.pace())
            self.net.start(f"sub-{number}", subscriber, self.options)
            self._change_mind(f"sub-{number}")

    def _publisher(self, core: Core) -> Step:
        pub = self.socket(PubSocket, core, "p")
        todo = self.todo[core.id] = []

        def step() -> bool:
            if not todo or pub.try_send(pub.prepare(*todo[0])) is WOULD_BLOCK:
                return False
            del todo[0]
            return True

        return step

    def _subscriber(self, capacity: int, pace: float) -> Callable[[Core], Step]:
        def application(core: Core) -> Step:
            sub = self.socket(SubSocket, core, "s", capacity=capacity)
            for number in range(self.publishers):
                sub.link(f"pub-{number}/p")
            return self.consumer(sub, pace)

        return application

    def _change_mind(self, name: str) -> None:
        def change(topics: list[str], add: bool) -> None:
            sub = self.sockets[f"{name}/s"]
            assert isinstance(sub, SubSocket)
            (sub.subscribe if add else sub.unsubscribe)(*topics)

        for _ in range(6):
            topics, add = self.dice.sample(self.topics, self.dice.randrange(1, 4)), self.dice.random() < 0.6
            self.at_random(name, lambda topics=topics, add=add: change(topics, add))  # type: ignore[misc]

    def _pubs(self) -> list[PubSocket]:
        return [socket for socket in self.sockets.values() if isinstance(socket, PubSocket)]

    def done(self) -> bool:
        if any(self.todo.values()) or any(self.oracle.missing().values()):
            return False
        return all(len(list(pub.established)) == self.subscribers for pub in self._pubs()) and self._agreed()

    def _agreed(self) -> bool:
        for pub in self._pubs():
            wishes = self.oracle.subscriptions[pub]
            for link in pub.established:
                sub = self.sockets[str(link.peer)]
                assert isinstance(sub, SubSocket)
                if {prefix.decode() for prefix in wishes[link]} != set(sub.subscriptions):
                    return False
        return True


class PublishSubscribeRestarts(PublishSubscribe):
    """Publishers and subscribers restart; the links and the subscriptions come back."""

    faults = Faults(seconds=3.0, max_loss=0.2, max_duplicate=0.2, max_reorder=0.2, latency=(0.001, 0.02), restarts=3)
    publishers, subscribers = 2, 5

    def done(self) -> bool:
        pubs = self._pubs()
        return (
            not any(self.todo.values())
            and not any(socket.can_receive_now() for socket in self.sockets.values() if socket not in pubs)
            and all(len(list(pub.established)) == self.subscribers for pub in pubs)
            and self._agreed()
        )


class ProxyChain(Scenario):
    """REQ -> ROUTER|DEALER -> ROUTER|DEALER -> REP."""

    clients, servers, questions = 4, 3, 8

    def build(self) -> None:
        self.answered = 0
        for number in range(self.servers):
            self.net.start(f"rep-{number}", self._server(self.pace()), self.options)
        self.net.start("proxy-2", self._proxy([f"rep-{n}/s" for n in range(self.servers)]), self.options)
        self.net.start("proxy-1", self._proxy(["proxy-2/front"]), self.options)
        for number in range(self.clients):
            self.net.start(f"req-{number}", self._client, self.options)

    def _server(self, pace: float) -> Callable[[Core], Step]:
        def application(core: Core) -> Step:
            rep = self.socket(RepSocket, core, "s", capacity=2)
            answer: list[bytes] = []
            receive = self.consumer(rep, pace, lambda question: answer.append(b"re:" + question))
            send = producer(rep, answer)
            return lambda: send() or (not answer and receive())

        return application

    def _proxy(self, behind: list[str]) -> Callable[[Core], Step]:
        capacity = self.dice.choice((1, 2, 1024))

        def application(core: Core) -> Step:
            front = self.socket(RouterSocket, core, "front", capacity=capacity)
            back = self.socket(DealerSocket, core, "back", capacity=capacity)
            for peer in behind:
                back.link(peer)
            there: list[Any] = []
            here: list[Any] = []

            def forward(hand: list[Any], take: Callable[[], Any], send: Callable[[Any], Any]) -> bool:
                if not hand:
                    item = take()
                    if item is not WOULD_BLOCK:
                        hand.append(item)
                if hand and send(hand[0]) is not WOULD_BLOCK:
                    hand.clear()
                    return True
                return False

            def answer() -> Any:
                taken = back.take()
                return taken if taken is WOULD_BLOCK else taken[1]

            return both(
                lambda: forward(there, front.try_take, back.try_send), lambda: forward(here, answer, front.try_send)
            )

        return application

    def _client(self, core: Core) -> Step:
        req = self.socket(ReqSocket, core, "c")
        req.link("proxy-1/front")
        todo = [b"%s:%d" % (core.id.encode(), n) for n in range(self.questions)]
        asked: list[bytes] = []

        def step() -> bool:
            if not asked:
                if not todo or req.try_send(req.prepare(todo[0])) is WOULD_BLOCK:
                    return False
                asked.append(todo.pop(0))
                return True
            if (answer := req.try_receive()) is WOULD_BLOCK:
                return False
            if answer != b"re:" + asked.pop():
                fail(f"{core.id} is answered", answer)
            self.answered += 1
            return True

        return step

    def done(self) -> bool:
        return self.answered == self.clients * self.questions


class Churn(Scenario):
    """Links come and go, capacities change, messages flow."""

    pushers, pullers, messages = 3, 3, 80
    force: ClassVar = False

    def build(self) -> None:
        self.todo: dict[str, list[bytes]] = {}
        self.oracle.forced = self.force
        pulls = [f"pull-{number}" for number in range(self.pullers)]
        pushes = [f"push-{number}" for number in range(self.pushers)]
        for name in pulls:
            self.net.start(name, self._puller(self.dice.choice((1, 5, 100)), self.pace()), self.options)
        for name in pushes:
            self.net.start(name, self._pusher, self.options)
            for n in range(self.messages):
                message = self.message(f"{name}:{n}:")
                self.at_random(name, lambda name=name, message=message: self.todo[name].append(message))  # type: ignore[misc]
        for _ in range(60):
            self._schedule_change(self.dice.choice(pushes) + "/out", self.dice.choice(pulls) + "/in")
        for push in pushes:  # in the end everything is linked, so that everything can be sent
            for pull in pulls:
                self.net.at(self.end, lambda push=push, pull=pull: self._link(f"{push}/out", f"{pull}/in"))  # type: ignore[misc]

    def _link(self, one: str, other: str) -> None:
        socket = self.sockets[one]
        self.net.act(socket.core.id, lambda: socket.link(other))

    def _schedule_change(self, push: str, pull: str) -> None:
        one, other = (push, pull) if self.dice.random() < 0.5 else (pull, push)
        node = one.partition("/")[0]
        what, capacity = self.dice.random(), self.dice.choice((0, 1, 2, 10, 300))
        force = self.force and self.dice.random() < 0.5

        def resize() -> None:
            puller = self.sockets[pull]
            if any(str(link.peer) == push for link in puller.links):
                puller.link_to(push).capacity = capacity

        if what < 0.45:
            self.at_random(node, lambda: self.sockets[one].link(other))
        elif what < 0.75:
            self.at_random(node, lambda: self.sockets[one].unlink(other, force=force))
        else:
            self.at_random(pull.partition("/")[0], resize)

    def _pusher(self, core: Core) -> Step:
        push = self.socket(PushSocket, core, "out")
        todo = self.todo[core.id] = []
        return producer(push, todo)

    def _puller(self, capacity: int, pace: float) -> Callable[[Core], Step]:
        def application(core: Core) -> Step:
            return self.consumer(self.socket(PullSocket, core, "in", capacity=capacity), pace)

        return application

    def done(self) -> bool:
        for socket in self.sockets.values():  # capacity 0 was only for a while
            if isinstance(socket, PullSocket):
                for link in socket.links:
                    if link.capacity == 0:
                        self._grow(socket, str(link.peer))
        return not any(self.todo.values()) and (self.force or not any(self.oracle.missing().values()))

    def _grow(self, socket: Socket, peer: str) -> None:
        self.net.act(socket.core.id, lambda: setattr(socket.link_to(peer), "capacity", 5))


class ForcedChurn(Churn):
    """The same, and some links are ended by force: nothing twice, order kept, no stall."""

    force = True


class RestartChurn(Churn):
    """Links come and go, and so do nodes."""

    faults = Faults(seconds=3.0, max_loss=0.2, max_duplicate=0.2, max_reorder=0.2, latency=(0.001, 0.02), restarts=3)

    def done(self) -> bool:
        super().done()
        busy = any(socket.can_receive_now() for socket in self.sockets.values())
        return not busy and not any(self.todo.values())


class Pair(Scenario):
    """Two PAIR sockets that link each other at the same time, and a third one that waits for the place."""

    messages: ClassVar = 60

    def build(self) -> None:
        self.got: dict[str, list[bytes]] = {"a": [], "b": [], "c": []}
        for name, links in (("a", ["b"]), ("b", ["a"]), ("c", ["a"])):
            self.net.start(name, self._application(links, self.dice.choice((1, 7, 1024)), self.pace()), self.options)

    def _application(self, links: list[str], capacity: int, pace: float) -> Callable[[Core], Step]:
        def application(core: Core) -> Step:
            pair = self.socket(PairSocket, core, "p", capacity=capacity)
            for other in links:
                pair.link(f"{other}/p")
            todo = [self.message(f"{core.id}:{n}:") for n in range(self.messages)]
            got = self.got[core.id]
            send = producer(pair, todo)
            receive = self.consumer(pair, pace, got.append)

            def leave() -> bool:
                """Make room for the third when everything has come from the second, or the other way round."""
                if core.id == "a" or pair.closed or todo or len(got) < self.messages // 2:
                    return False
                pair.begin_close()
                return True

            def talk() -> bool:
                if core.id == "a" and not todo and len(self.got["b"]) + len(self.got["c"]) < self.messages:
                    return False
                return send()

            return both(receive, talk if core.id != "a" else send, leave)

        return application

    def done(self) -> bool:
        return not any(self.oracle.missing().values()) and len(self.got["a"]) >= self.messages


class Restarts(Scenario):
    """PUSH and PULL nodes that lose their memory now and then; whoever wanted a link gets it back."""

    faults = Faults(
        seconds=4.0, max_loss=0.2, max_duplicate=0.2, max_reorder=0.3, latency=(0.001, 0.02), restarts=3, moves=1
    )
    messages: ClassVar = 150

    def build(self) -> None:
        self.todo: dict[str, list[bytes]] = {}
        self.pushes, self.pulls = ["push-0", "push-1"], ["pull-0", "pull-1"]
        pushers_link = self.dice.random() < 0.5
        for name in self.pulls:
            wanted = [] if pushers_link else [f"{other}/out" for other in self.pushes]
            self.net.start(name, self._puller(wanted, self.dice.choice((2, 20, 1024)), self.pace()), self.options)
        for name in self.pushes:
            wanted = [f"{other}/in" for other in self.pulls] if pushers_link else []
            self.net.start(name, self._pusher(wanted), self.options)
            for n in range(self.messages):
                message = self.message(f"{name}:{n}:")
                self.at_random(name, lambda name=name, message=message: self.todo[name].append(message))  # type: ignore[misc]

    def _pusher(self, wanted: list[str]) -> Callable[[Core], Step]:
        def application(core: Core) -> Step:
            push = self.socket(PushSocket, core, "out")
            for other in wanted:
                push.link(other)
            todo = self.todo[core.id] = []
            return producer(push, todo)

        return application

    def _puller(self, wanted: list[str], capacity: int, pace: float) -> Callable[[Core], Step]:
        def application(core: Core) -> Step:
            pull = self.socket(PullSocket, core, "in", capacity=capacity)
            for other in wanted:
                pull.link(other)
            return self.consumer(pull, pace)

        return application

    def done(self) -> bool:
        sockets = self.sockets.values()
        full = all(len(socket.links) == 2 for socket in sockets)
        return full and not any(self.todo.values()) and not any(socket.can_receive_now() for socket in sockets)


class IdleRestarts(Restarts):
    """The same, and nodes forget each other quickly: a restart is found out only by talking."""

    faults = Faults(seconds=12.0, max_loss=0.1, max_duplicate=0.1, latency=(0.001, 0.02), restarts=3)
    messages = 15

    def build(self) -> None:
        self.options = Options(idle_timeout=0.2, probe_after=0.2)
        super().build()


class RequestReplyRestarts(RequestReply):
    """Servers and clients restart: every question is answered, or its fate is said to be unknown."""

    faults = Faults(seconds=2.0, max_loss=0.2, max_duplicate=0.2, max_reorder=0.2, latency=(0.001, 0.02), restarts=3)
    clients, servers, questions = 5, 2, 6

    def done(self) -> bool:
        return all(socket.can_send_now() for socket in self.sockets.values() if isinstance(socket, ReqSocket))

    def check(self) -> None:
        for what, questions in (("handled", self.handled), ("finished", self.answered + self.failed)):
            if len(questions) != len(set(questions)):
                fail(f"{what} twice", sorted(questions))
        if set(self.answered) - set(self.handled):
            fail("answered by nobody", set(self.answered) - set(self.handled))


SCENARIOS: dict[str, type[Scenario]] = {
    "scatter-gather": ScatterGather,
    "request-reply": RequestReply,
    "publish-subscribe": PublishSubscribe,
    "publish-subscribe-restarts": PublishSubscribeRestarts,
    "proxy-chain": ProxyChain,
    "churn": Churn,
    "forced-churn": ForcedChurn,
    "restart-churn": RestartChurn,
    "pair": Pair,
    "restarts": Restarts,
    "idle-restarts": IdleRestarts,
    "request-reply-restarts": RequestReplyRestarts,
}


def run(name: str, seed: int, *, trace: Callable[[float, str], None] | None = None) -> Topology:
    """Run one scenario with one seed; :class:`Violation` if a promise is broken."""
    try:
        return SCENARIOS[name](seed, trace).run()
    except Exception as error:  # what a node raises is as bad as what the oracle finds, and is replayed the same way
        what = str(error) if isinstance(error, Violation) else f"{type(error).__name__}: {error}"
        raise Violation(f"{what}\nreplay with: python -m tests.sim_a3m --seed {seed} --scenario {name}") from error
