"""Whoever closes with a deadline, or ends links by force, is told of every message that does not arrive."""

from __future__ import annotations

import pytest

from a3m.core import Core
from a3m.patterns import PullSocket, PushSocket
from a3m.simulation import Step, Topology
from a3m.socket import Socket
from a3m.socket_core import WOULD_BLOCK
from exon.options import Options

COUNT = 60


class Bench:
    """A sender and a receiver, and what the receiver's application got."""

    def __init__(self, seed: int = 1, *, options: Options | None = None, **network: float) -> None:
        self.net = Topology(seed, **network)
        self.sockets: dict[str, Socket] = {}
        self.got: list[bytes] = []
        self.net.start("receiver", self._receiver)
        self.net.start("sender", self._sender, options)
        while not self.push.links:
            self.net.run(self.net.now + 1)

    def _receiver(self, core: Core) -> Step:
        pull = self.sockets[core.id] = PullSocket(core, "s")

        def step() -> bool:
            message = pull.try_receive()
            if message is not WOULD_BLOCK:
                self.got.append(message)
            return message is not WOULD_BLOCK

        return step

    def _sender(self, core: Core) -> Step:
        push = self.sockets[core.id] = PushSocket(core, "s")
        push.link("receiver/s")
        return lambda: False

    @property
    def push(self) -> Socket:
        return self.sockets["sender"]

    @property
    def core(self) -> Core:
        return self.net.cores["sender"]

    def pass_time(self, seconds: float) -> None:
        self.net.run(self.net.now + seconds)

    def send(self, *messages: bytes) -> None:
        def send() -> None:
            for message in messages:
                assert self.push.try_send(message) is not WOULD_BLOCK

        self.net.act("sender", send)

    def lose(self, *messages: bytes) -> None:
        """Send what is lost the first time."""
        self.net.loss = 1.0
        self.send(*messages)
        self.net.loss = 0.0

    def end(self) -> int:
        """Let the sender be gone, without a word; how many messages it reports."""
        reported = sum(self.core.count_undelivered())
        self.net.cut("sender", "receiver")
        self.pass_time(60)
        return reported


def close_with_deadline(seed: int, seconds: float) -> tuple[Bench, int]:
    """What :meth:`a3m.Node.close` does, on a network that loses and reorders; and what it reports."""
    bench = Bench(seed, loss=0.3, reorder=0.2, latency=0.002)
    for number in range(COUNT):
        bench.send(b"%d" % number)
        bench.pass_time(0.0002)
    bench.net.act("sender", bench.push.begin_close)
    bench.pass_time(seconds * 0.8)
    if bench.push.try_closed() is WOULD_BLOCK:
        bench.net.act("sender", bench.push.force_close)
    bench.net.act("sender", lambda: bench.core.finish(bench.net.now))
    bench.pass_time(seconds * 0.2)
    return bench, bench.end()


@pytest.mark.parametrize("seconds", [0.0, 0.01, 0.02, 0.03])
def test_a_close_with_a_deadline_counts_every_message_that_does_not_arrive(seconds: float) -> None:
    lost = 0
    for seed in range(40):
        bench, reported = close_with_deadline(seed, seconds)
        assert bench.got == [b"%d" % number for number in range(len(bench.got))]
        assert COUNT - len(bench.got) <= reported, f"seed {seed}: {len(bench.got)} arrived, {reported} were reported"
        lost += COUNT - len(bench.got)
    assert lost


def test_a_forced_end_that_overtakes_messages_is_counted() -> None:
    bench = Bench()
    bench.lose(b"0", b"1")
    bench.net.act("sender", lambda: bench.push.unlink("receiver/s", force=True))
    bench.pass_time(60)  # everything is acknowledged, and the receiver had no use for it any more
    assert bench.got == []
    assert bench.core.count_undelivered() == (0, 2)
    assert bench.push.stats().unknown == bench.core.statistics().unknown == 2


def test_messages_held_back_behind_a_gap_when_the_link_ends_by_force_are_counted() -> None:
    bench = Bench(latency=0.001)
    bench.lose(b"0")
    bench.send(b"1", b"2")
    bench.pass_time(0.0014)  # they have arrived, and the sender has not heard of it
    bench.net.act("sender", lambda: bench.push.unlink("receiver/s", force=True))
    bench.pass_time(60)
    assert bench.got == []
    assert bench.core.count_undelivered() == (0, 3)
    assert bench.net.cores["receiver"].dropped["message after a gap"] == 2


def ended_by_agreement_with_a_gap() -> Bench:
    """The first message is lost, the second one waits for it at the receiver, and the link has ended at the sender."""
    bench = Bench(latency=0.001)
    bench.lose(b"0")
    bench.send(b"1")
    bench.net.act("sender", bench.push.begin_close)
    while bench.push.try_closed() is WOULD_BLOCK:
        bench.pass_time(0.0005)
    assert bench.got == []
    return bench


def test_messages_behind_one_that_the_transport_could_not_deliver_are_counted() -> None:
    bench = ended_by_agreement_with_a_gap()
    assert bench.end() == 2
    assert bench.got == []


def test_messages_that_arrive_after_an_end_by_agreement_are_not_counted() -> None:
    bench = ended_by_agreement_with_a_gap()
    bench.pass_time(60)
    assert bench.got == [b"0", b"1"]
    assert bench.core.count_undelivered() == (0, 0)


def test_messages_behind_one_that_was_lost_with_the_memory_of_the_peer_are_counted() -> None:
    bench = ended_by_agreement_with_a_gap()
    bench.net.restart("receiver")
    bench.pass_time(600)
    assert bench.got == []
    assert bench.core.count_undelivered() == (0, 2)


def test_messages_for_a_link_that_ended_are_not_counted_twice() -> None:
    bench = Bench()
    bench.net.cut("sender", "receiver")
    bench.send(b"0", b"1")
    bench.net.act("sender", lambda: bench.push.unlink("receiver/s", force=True))
    assert sum(bench.core.count_undelivered()) == 2  # the transport has them still
    bench.net.restart("receiver")
    bench.net.heal()
    bench.pass_time(600)
    assert sum(bench.core.count_undelivered()) == 2


def test_messages_that_the_transport_never_sent_are_reported_as_such() -> None:
    bench = Bench(options=Options(send_bytes=1 << 20))
    bench.net.cut("sender", "receiver")
    bench.net.cut("receiver", "sender")
    for number in range(100):
        bench.send(b"%d" % number + bytes(5000))
    bench.net.act("sender", bench.push.begin_close)
    bench.net.act("sender", bench.push.force_close)
    undelivered, unknown = bench.core.count_undelivered()
    assert undelivered > 0
    assert unknown > 0
    assert undelivered + unknown == 100


def test_links_that_are_done_are_not_remembered() -> None:
    bench = Bench()
    accounts = bench.core.accounts
    for _ in range(300):
        bench.send(b"x")
        bench.net.act("sender", lambda: bench.push.unlink("receiver/s"))
        bench.net.act("sender", lambda: bench.push.link("receiver/s"))
        while not bench.push.links:
            bench.pass_time(0.01)
    assert len(accounts._endings) <= 64
    assert accounts.at_close(()) == (0, 0)
    assert bench.got == [b"x"] * 300


def test_a_socket_whose_peer_ends_its_link_by_force_while_it_closes_says_so() -> None:
    bench = Bench()
    bench.net.cut("sender", "receiver")
    bench.send(b"0")
    bench.net.act("sender", bench.push.begin_close)
    bench.net.act("receiver", lambda: bench.sockets["receiver"].unlink("sender/s", force=True))
    bench.pass_time(1)
    assert bench.push.try_closed() is None
    assert not bench.push.close()
    assert sum(bench.core.count_undelivered()) == 1
