"""What is not data and waits for a peer that takes nothing stays small, whatever is repeated, and ends well."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

import a3m.outbox
from a3m.core import Core
from a3m.ids import SocketId
from a3m.link import Link
from a3m.messages import DATA, FLOW, LINK, LINKREPLY, UNLINK, Metadata
from a3m.patterns import PubSocket, PullSocket, PushSocket, SubSocket, XPubSocket, pubsub
from a3m.simulation import Topology
from a3m.socket import Socket
from a3m.socket_core import MOST_CONTROL, WOULD_BLOCK
from exon.options import Options

WINDOW = 4  # messages that the transport takes for a peer that acknowledges none
ROUNDS = 500
NOTE = 7


class Chatty(Socket):
    """Sends control messages, and keeps those that come."""

    protocol = "CHATTY"
    compatible = frozenset({"CHATTY"})

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.heard: list[Any] = []
        self.room = 0

    def on_control(self, link: Link, type_: int, body: tuple[Any, ...]) -> None:
        self.heard.append(body[0])

    def on_control_room(self, link: Link) -> None:
        self.room += 1


class Bench:
    """The nodes ``here`` and ``there``, and a path between them that can be blocked."""

    def __init__(self) -> None:
        self.net = Topology(seed=1)
        self.net.start("here", lambda _: lambda: False, Options(send_messages=WINDOW))
        # Whoever is cut off can say more than what it is answered is taken, if it has envelopes.
        self.net.start("there", lambda _: lambda: False, Options(min_standby=1000))

    @property
    def here(self) -> Core:
        return self.net.cores["here"]

    @property
    def there(self) -> Core:
        return self.net.cores["there"]

    def linked(self, ours: type[Socket], theirs: type[Socket], **options: Any) -> tuple[Any, Any]:
        """A socket ``s`` on each node, and a link between them."""
        sockets = ours(self.here, "s", **options), theirs(self.there, "s")
        self.do(sockets[0].link, "there/s")
        self.pass_time()
        assert [len(socket.links) for socket in sockets] == [1, 1]
        return sockets

    def do(self, action: Callable[..., object], *arguments: Any, who: str = "here") -> None:
        self.net.act(who, lambda: action(*arguments))

    def block(self) -> None:
        self.net.cut("here", "there")
        self.net.cut("there", "here")

    def unblock(self) -> None:
        self.net.heal()
        self.pass_time()
        assert self.here.backlog == 0

    def pass_time(self, seconds: float = 60.0) -> None:
        self.net.run(self.net.now + seconds)


def fill(bench: Bench, socket: Socket) -> None:
    """Give the transport as much as it takes."""
    for capacity in range(WINDOW + 2):
        bench.do(resize, socket, 20 + capacity)
    assert bench.here.backlog > 0


def resize(socket: Socket, capacity: int) -> None:
    socket.link_to("there/s").capacity = capacity


def end(socket: Socket, peer: str) -> None:
    socket.unlink(peer, force=True)


def prefixes(publisher: XPubSocket) -> set[bytes]:
    return set(publisher._subscriptions.prefixes())


def ask(bench: Bench, count: int) -> None:
    """Let somebody ask for sockets that do not exist; once it could, it can for a while without being answered."""

    def post() -> None:
        for number in range(count):
            metadata = Metadata("PUSH", 0, bench.there.life)
            bench.there.post(SocketId("there", "ghost"), SocketId("here", "nobody"), LINK, 1 + number, 0, metadata)

    bench.do(post, who="there")
    bench.pass_time(0.1)


def say(bench: Bench, to: SocketId, type_: int, mine: int, yours: int, *body: Any) -> None:
    """Let somebody say something who is no socket."""
    bench.do(bench.there.post, SocketId("there", "ghost"), to, type_, mine, yours, body, who="there")
    bench.pass_time(0.1)


# -- subscriptions ---------------------------------------------------------------------------------------------------


def test_a_subscription_that_comes_and_goes_costs_one_message() -> None:
    bench = Bench()
    sub, pub = bench.linked(SubSocket, PubSocket)
    bench.block()
    before = bench.here.transport.stats().messages_sent
    for _ in range(ROUNDS):
        bench.do(sub.subscribe, "t")
        bench.do(sub.unsubscribe, "t")
        assert bench.here.backlog <= 1
    bench.do(sub.subscribe, "t")
    bench.unblock()
    assert prefixes(pub) == {b"t"}
    assert bench.here.transport.stats().messages_sent <= before + WINDOW + 2


@pytest.mark.parametrize("seed", range(5))
def test_a_publisher_that_comes_back_knows_exactly_what_is_wanted(seed: int) -> None:
    bench = Bench()
    random = Random(seed)
    sub, pub = bench.linked(SubSocket, PubSocket)
    for _ in range(4):
        bench.block()
        for _ in range(ROUNDS):
            change = random.choice([sub.subscribe, sub.unsubscribe])
            topics = [str(random.randrange(30)) for _ in range(random.randrange(1, 4))]
            bench.do(change, *topics)
            assert bench.here.backlog <= 1
        bench.unblock()
        assert prefixes(pub) == {topic.encode() for topic in sub.subscriptions}
    assert not bench.there.dropped


def test_changes_that_are_left_over_keep_to_the_limit_of_subscriptions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pubsub, "MOST_PREFIXES", 3)
    bench = Bench()
    sub, pub = bench.linked(SubSocket, PubSocket)
    bench.do(sub.subscribe, "a", "b", "c")
    bench.pass_time()
    bench.block()
    fill(bench, sub)
    for change, topic in ((sub.unsubscribe, "a"), (sub.subscribe, "d"), (sub.unsubscribe, "b"), (sub.subscribe, "a")):
        bench.do(change, topic)
    bench.unblock()
    assert not bench.there.dropped
    assert prefixes(pub) == {b"a", b"c", b"d"}


def test_many_subscriptions_leave_together() -> None:
    bench = Bench()
    sub, _ = bench.linked(SubSocket, PubSocket)
    bench.do(sub.subscribe, *(str(number) * 20_000 for number in range(3)))  # each of them is a message
    assert bench.here.transport.pending("there") == 3


def test_a_topic_is_taken_before_the_one_it_replaces_is_given_up() -> None:
    bench = Bench()
    sub, xpub = bench.linked(SubSocket, XPubSocket)
    bench.do(sub.subscribe, "old")
    bench.pass_time()
    assert xpub.try_receive().topics == ("old",)
    bench.block()
    fill(bench, sub)
    bench.do(sub.subscribe, "new")
    bench.do(sub.unsubscribe, "old")
    bench.unblock()
    news = [xpub.try_receive() for _ in range(2)]
    assert [(each.topics, each.subscribe) for each in news] == [(("new",), True), (("old",), False)]


def test_a_publisher_that_is_linked_again_is_told_everything() -> None:
    bench = Bench()
    sub, pub = bench.linked(SubSocket, PubSocket)
    bench.block()
    fill(bench, sub)
    bench.do(sub.subscribe, "a", "b")
    bench.do(end, sub, "there/s")
    bench.do(sub.unsubscribe, "a")
    bench.do(sub.link, "there/s")
    bench.unblock()
    assert prefixes(pub) == {b"b"}
    assert len(sub._untold) == 1  # the publisher that was unlinked is forgotten


# -- credits ---------------------------------------------------------------------------------------------------------


def test_a_capacity_that_changes_all_the_time_costs_one_message() -> None:
    bench = Bench()
    pull, push = bench.linked(PullSocket, PushSocket, capacity=10)
    bench.block()
    for capacity in [*range(ROUNDS), 7]:
        bench.do(resize, pull, capacity)
        assert bench.here.backlog <= 2
    bench.unblock()
    assert push.links[0].credits == 7


def test_a_link_that_is_gone_has_nothing_more_to_say() -> None:
    bench = Bench()
    pull, push = bench.linked(PullSocket, PushSocket, capacity=10)
    ask(bench, 1)
    bench.net.cut("here", "there")
    fill(bench, pull)
    bench.do(resize, pull, 100)
    before = bench.here.backlog
    bench.do(end, push, "here/s", who="there")
    bench.pass_time(1.0)
    assert not pull.links
    assert bench.here.backlog == before - 1
    bench.unblock()


def test_what_was_taken_is_said_before_the_link_is_ended_by_force() -> None:
    bench = Bench()
    pull, push = bench.linked(PullSocket, PushSocket, capacity=10, batch=0.1)
    bench.do(push.send_many, [b"x"] * 3, who="there")
    bench.pass_time()

    def take_and_leave() -> None:
        assert [pull.try_receive() for _ in range(2)] == [b"x", b"x"]
        pull.unlink("there/s", force=True)

    bench.do(take_and_leave)
    bench.pass_time()
    assert push.stats().unknown == 1


# -- links -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tags", [1, ROUNDS])
def test_links_that_are_asked_for_and_given_up_leave_nothing_behind(tags: int) -> None:
    bench = Bench()
    pull = PullSocket(bench.there, "s0")
    push = PushSocket(bench.here, "s")
    bench.block()
    for number in range(ROUNDS):
        peer = f"there/s{number % tags}"
        bench.do(push.link, peer)
        assert bench.here.backlog <= 1
        bench.do(end, push, peer)
    assert bench.here.backlog == 0
    bench.do(push.link, "there/s0")
    bench.unblock()
    assert len(push.links) == len(pull.links) == 1


def test_a_peer_that_asks_and_gives_up_all_the_time_without_listening(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(a3m.outbox, "MOST_ANSWERS", 10)
    bench = Bench()
    pull = PullSocket(bench.here, "s")
    ask(bench, 1)
    bench.net.cut("here", "there")
    for number in range(1, 50):
        say(bench, pull.id, LINK, number, 0, *Metadata("PUSH", 0, bench.there.life))
        for link in list(pull.manager.links.values()):
            say(bench, pull.id, UNLINK, number, link.mine, bench.there.life, True)
        assert not pull.manager.links
        assert bench.here.backlog <= 10
    bench.unblock()


def test_silent_peers_are_not_asked_more_than_the_transport_takes() -> None:
    bench = Bench()
    pulls = [PullSocket(bench.there, f"s{number}") for number in range(10)]
    push = PushSocket(bench.here, "s")
    for pull in pulls:
        bench.do(push.link, pull.id)
    bench.pass_time()
    bench.block()
    bench.pass_time(3000.0)
    assert bench.here.backlog <= len(pulls)
    bench.unblock()
    assert len(push.links) == len(pulls)


# -- answers ---------------------------------------------------------------------------------------------------------


def provoke(bench: Bench, count: int) -> None:
    """Let somebody ask who takes no answer."""
    bench.net.cut("here", "there")
    ask(bench, count)


def test_answers_that_nobody_takes_are_counted_and_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(a3m.outbox, "MOST_ANSWERS", 10)
    bench = Bench()
    ask(bench, 1)
    provoke(bench, 100)
    assert bench.here.backlog <= 10
    assert bench.here.dropped["no such socket"] == 101
    assert bench.here.dropped["answer not taken"] >= 100 - 10 - WINDOW
    bench.unblock()


@pytest.mark.parametrize(
    ("tag", "type_", "yours", "body"),
    [
        ("nobody", DATA, 1, (0, [b"x"])),
        ("nobody", FLOW, 0, ()),
        ("s", LINK, 0, Metadata("PULL", 0, 1)),  # it does not fit
        ("s", LINK, 0, Metadata("PUSH", 0, 1)),  # there is a link already
        ("s", LINK, 0, Metadata("PUSH", 0, 2)),  # and it was made in another life
        ("s", LINKREPLY, 1, (0,)),
        ("s", UNLINK, 1, (0, False)),
        ("s", DATA, 1, (0, [b"x"])),
        ("s", FLOW, 0, ()),
    ],
)
def test_nothing_can_be_said_to_make_more_answers_wait(
    monkeypatch: pytest.MonkeyPatch, tag: str, type_: int, yours: int, body: tuple[Any, ...]
) -> None:
    monkeypatch.setattr(a3m.outbox, "MOST_ANSWERS", 10)
    bench = Bench()
    pull = PullSocket(bench.here, "s")
    ask(bench, 1)
    bench.net.cut("here", "there")
    say(bench, pull.id, LINK, 1, 0, *Metadata("PUSH", 0, 1))
    assert pull.pending
    for number in range(2, 50):
        say(bench, SocketId("here", tag), type_, number, yours, *body)
        assert bench.here.backlog <= 10
    assert bench.here.backlog == 10
    assert bench.here.dropped["answer not taken"]
    bench.unblock()


def test_answers_that_nobody_takes_are_limited_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(a3m.outbox, "MOST_ANSWER_BYTES", 100)
    bench = Bench()
    ask(bench, 1)
    provoke(bench, 100)
    assert bench.here.backlog <= 10
    dropped = bench.here.dropped["answer not taken"]
    assert dropped >= 100 - 10 - WINDOW
    bench.unblock()
    ask(bench, 3)  # there is room again
    assert bench.here.dropped == {"no such socket": 104, "answer not taken": dropped}


def test_whoever_missed_an_answer_asks_again_and_gets_its_link(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(a3m.outbox, "MOST_ANSWERS", 10)
    bench = Bench()
    pull, push = PullSocket(bench.here, "s"), PushSocket(bench.there, "s")
    ask(bench, 1)
    provoke(bench, 100)
    bench.do(push.link, "here/s", who="there")
    bench.pass_time(1.0)
    assert not pull.manager.links  # or this would be a way round the limit
    bench.unblock()
    assert len(pull.links) == len(push.links) == 1


def test_whoever_missed_that_its_reply_came_too_late_waits_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(a3m.outbox, "MOST_ANSWERS", 10)
    bench = Bench()
    pull, push = PullSocket(bench.here, "s"), PushSocket(bench.there, "s")
    ask(bench, 1)
    bench.net.cut("there", "here")
    bench.do(pull.link, "there/s")
    bench.do(end, pull, "there/s")
    bench.pass_time(1.0)
    assert push.pending  # it has said yes, to nobody
    bench.net.heal()
    bench.net.cut("here", "there")
    # What it said is repeated only later than what it says now.
    provoke(bench, 100)
    bench.pass_time(1.0)
    bench.unblock()
    assert not push.pending


# -- patterns --------------------------------------------------------------------------------------------------------


def test_control_messages_that_nobody_takes_are_refused_at_a_limit() -> None:
    bench = Bench()
    ours, theirs = bench.linked(Chatty, Chatty)
    (link,) = ours.established
    bench.block()
    accepted = []
    for number in range(3 * MOST_CONTROL):
        bench.do(lambda number: accepted.append(ours.send_control(link, NOTE, (number,))), number)
    assert bench.here.backlog <= 2 * MOST_CONTROL
    assert accepted[-1] is WOULD_BLOCK
    assert ours.room == 0
    bench.unblock()
    assert theirs.heard == [number for number, answer in enumerate(accepted) if answer is None]
    assert len(theirs.heard) >= MOST_CONTROL
    assert ours.room == 1


def test_room_for_control_messages_is_told_of_at_once_when_there_is_room() -> None:
    bench = Bench()
    ours, _ = bench.linked(Chatty, Chatty)
    (link,) = ours.established
    bench.do(ours.want_control, link)
    assert ours.room == 1
    bench.do(ours.send_control, link, NOTE, ("something else",))
    assert ours.room == 1


def test_control_messages_leave_before_the_end_of_their_link() -> None:
    bench = Bench()
    ours, theirs = bench.linked(Chatty, Chatty)
    (link,) = ours.established

    def say_and_leave() -> None:
        for number in range(3):
            ours.send_control(link, NOTE, (number,))
        ours.unlink("there/s")

    bench.do(say_and_leave)
    bench.pass_time()
    assert theirs.heard == [0, 1, 2]
