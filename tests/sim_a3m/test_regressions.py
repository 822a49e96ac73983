"""What runs of the simulation once found, each as small as it can be made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from a3m.core import Core
from a3m.errors import DeliveryUnknown, LinkClosed
from a3m.events import Event
from a3m.patterns import PullSocket, PushSocket, RepSocket, ReqSocket
from a3m.simulation import Step, Topology
from a3m.socket import Socket
from a3m.socket_core import WOULD_BLOCK
from exon.options import Options


class Bench:
    """Two nodes whose applications do only what a test tells them."""

    def __init__(self, options: Options | None = None, push_links: bool = True, **pull: Any) -> None:
        self.net = Topology(seed=1)
        self.sockets: dict[str, Socket] = {}
        self.got: list[bytes] = []
        self.events: list[Event] = []
        self._options = pull
        self._push_links = push_links
        self.net.start("receiver", self._application(PullSocket), options)
        self.net.start("sender", self._application(PushSocket), options)
        self.pass_time()

    def _application(self, pattern: type[Socket]) -> Callable[[Core], Step]:
        def start(core: Core) -> Step:
            options = self._options if pattern is PullSocket else {}
            socket = self.sockets[core.id] = pattern(core, "s", **options)
            if (pattern is PushSocket) == self._push_links:
                socket.link("receiver/s" if pattern is PushSocket else "sender/s")
            return lambda: False

        return start

    @property
    def push(self) -> Socket:
        return self.sockets["sender"]

    @property
    def pull(self) -> Socket:
        return self.sockets["receiver"]

    def pass_time(self, seconds: float = 5.0) -> None:
        self.net.run(self.net.now + seconds)

    def send(self, *messages: bytes) -> int:
        """How many were accepted."""
        return sum(self.push.try_send(self.push.prepare(message)) is not WOULD_BLOCK for message in messages)

    def receive(self, most: int = 1000) -> None:
        while most and (message := self.pull.try_receive()) is not WOULD_BLOCK:
            self.got.append(message)
            most -= 1

    def do(self, who: str, action: Callable[[], object]) -> None:
        self.net.act(who, action)

    def resize(self, capacity: int) -> None:
        self.pull.link_to("sender/s").capacity = capacity

    def details(self) -> str:
        """What the sender's application was told."""
        core = self.net.cores["sender"]
        told = []
        while (event := core.take_event()) is not None:
            told.append(f"{event.kind}: {event.detail}")
        return "\n".join(told)


MESSAGES = [b"%d" % number for number in range(10)]


def test_credits_that_are_taken_away_while_they_are_being_used_cost_no_message() -> None:
    bench = Bench(capacity=10)
    bench.do("sender", lambda: bench.send(*MESSAGES))
    bench.do("receiver", lambda: bench.resize(2))  # the messages are on the way
    bench.pass_time()
    assert not bench.net.cores["receiver"].dropped
    bench.receive()
    assert bench.got == MESSAGES


def test_a_smaller_capacity_gives_back_at_once_what_is_owed() -> None:
    bench = Bench(capacity=100, batch=0.5)
    bench.do("sender", lambda: bench.send(*MESSAGES))
    bench.pass_time()
    bench.do("receiver", bench.receive)
    bench.do("receiver", lambda: bench.resize(3))  # the sender has 90 credits, and 10 are owed to it
    bench.pass_time()
    assert bench.send(*MESSAGES) == 3


def test_a_peer_that_links_again_waits_until_its_old_messages_are_taken() -> None:
    bench = Bench(capacity=10)
    bench.do("sender", lambda: bench.send(*MESSAGES))
    bench.do("sender", lambda: bench.push.unlink("receiver/s"))
    bench.pass_time()
    bench.do("sender", lambda: bench.push.link("receiver/s"))
    bench.pass_time()
    assert bench.send(*MESSAGES) == 0
    bench.do("receiver", bench.receive)
    bench.pass_time()
    assert bench.got == MESSAGES
    assert bench.send(*MESSAGES) == 10


def test_messages_that_die_unread_with_their_receiver_are_reported() -> None:
    bench = Bench(capacity=20)
    bench.do("sender", lambda: bench.send(*MESSAGES))
    bench.pass_time()
    assert bench.net.cores["sender"].accounts.unknown == 0
    bench.net.restart("receiver")
    bench.do("sender", lambda: bench.send(b"is anybody there?"))
    bench.pass_time()
    assert bench.net.cores["sender"].accounts.unknown == 11
    assert "11 messages may not have arrived" in bench.details()
    assert bench.send(b"hello") == 1  # the link was wanted, and is there again


def test_messages_that_the_receiver_took_are_not_reported_when_it_restarts() -> None:
    bench = Bench(capacity=10, batch=0.1)
    bench.do("sender", lambda: bench.send(*MESSAGES))
    bench.pass_time()
    bench.do("receiver", lambda: bench.receive(4))
    bench.do("receiver", lambda: bench.resize(50))
    bench.pass_time()
    bench.net.restart("receiver")
    bench.do("sender", lambda: bench.send(b"is anybody there?"))
    bench.pass_time()
    assert bench.net.cores["sender"].accounts.unknown == 7


def test_a_link_that_was_wanted_comes_back_when_a_restart_shows_only_in_the_answer() -> None:
    bench = Bench(Options(idle_timeout=0.2, probe_after=0.2), capacity=10)
    bench.pass_time(60)  # both nodes have forgotten each other
    bench.net.restart("receiver")
    bench.pass_time()
    bench.do("sender", lambda: bench.send(b"into the void"))
    bench.pass_time()
    assert bench.net.cores["sender"].accounts.unknown == 1
    assert bench.send(b"hello") == 1
    bench.pass_time()
    assert "its node restarted" in bench.details()


def test_a_link_that_the_peer_ends_by_force_stays_ended() -> None:
    bench = Bench(capacity=10)
    bench.do("receiver", lambda: bench.pull.unlink("sender/s", force=True))
    bench.do("sender", lambda: bench.send(*MESSAGES))
    bench.pass_time()
    assert bench.push.links == ()
    assert bench.push.pending == ()


def test_what_waits_for_the_transport_when_its_link_closes_still_arrives() -> None:
    bench = Bench(Options(send_bytes=1000), capacity=10)
    bench.do("sender", lambda: bench.send(*(bytes(40_000) + message for message in MESSAGES)))
    bench.do("sender", lambda: bench.push.unlink("receiver/s"))
    bench.do("receiver", lambda: bench.pull.unlink("sender/s"))
    bench.pass_time()
    bench.receive()
    assert [message[40_000:] for message in bench.got] == MESSAGES
    assert bench.push.pending == ()
    assert bench.pull.pending == ()


def test_a_receiver_that_wanted_the_link_gets_it_back_although_it_never_sends() -> None:
    bench = Bench(push_links=False, capacity=10)
    bench.pass_time(60)
    bench.net.restart("sender")
    bench.pass_time(600)
    assert bench.send(b"hello") == 1


def test_a_sender_without_credit_finds_out_that_its_receiver_restarted() -> None:
    bench = Bench(capacity=10)
    bench.do("sender", lambda: bench.send(*MESSAGES))
    bench.pass_time()
    bench.net.restart("receiver")
    bench.pass_time(600)
    assert bench.net.cores["sender"].accounts.unknown == 10
    assert bench.send(*MESSAGES) == 10


def test_a_question_to_a_server_that_restarts_is_not_waited_for_for_ever() -> None:
    net, req = request_and_reply()
    net.act("client", lambda: req.try_send(b"question"))
    net.run(net.now + 1)
    net.restart("server")
    net.run(net.now + 600)
    with pytest.raises(DeliveryUnknown, match="its node restarted"):
        req.try_receive()


def test_a_question_that_never_left_is_known_not_to_have_arrived() -> None:
    net, req = request_and_reply()

    def ask_too_late() -> None:
        req.try_send(b"question")
        req.peer_restarted("server", net.cores["server"].life)

    net.act("client", ask_too_late)
    with pytest.raises(LinkClosed, match="its node restarted; 1 messages were not sent; the request was not") as caught:
        req.try_receive()
    assert type(caught.value) is LinkClosed


def request_and_reply() -> tuple[Topology, ReqSocket]:
    net = Topology(seed=1)
    asked: list[ReqSocket] = []

    def client(core: Core) -> Step:
        asked.append(ReqSocket(core, "c"))
        asked[0].link("server/s")
        return lambda: False

    def server(core: Core) -> Step:
        RepSocket(core, "s")
        return lambda: False

    net.start("server", server)
    net.start("client", client)
    net.run(net.now + 5)
    return net, asked[0]


def test_a_link_that_is_being_made_with_a_node_that_restarts_is_made() -> None:
    net = Topology(seed=1)
    sockets: dict[str, Socket] = {}

    def application(core: Core) -> Step:
        pattern = PushSocket if core.id == "sender" else PullSocket
        sockets[core.id] = pattern(core, "s")
        return lambda: False

    for name in ("receiver", "sender"):
        net.start(name, application)
    for pause in range(1, 60):  # somewhere in between the request has arrived and the answer is lost
        net.act("sender", lambda: sockets["sender"].link("receiver/s"))
        net.run(net.now + pause / 1000)
        net.restart("receiver")
        net.run(net.now + 600)
        assert [str(link.peer) for link in sockets["sender"].links] == ["receiver/s"]
        net.act("sender", lambda: sockets["sender"].unlink("receiver/s", force=True))
        net.run(net.now + 600)


def test_idle_links_are_asked_after_less_and_less_often() -> None:
    bench = Bench()
    bench.pass_time(600)
    before = bench.net.datagrams
    bench.pass_time(3600)
    assert 0 < bench.net.datagrams - before < 300
