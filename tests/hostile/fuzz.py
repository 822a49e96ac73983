"""Hostile datagrams into a live endpoint: ``python -m tests.hostile.fuzz --datagrams 1000000``.

A real peer talks to the endpoint all the while. Afterwards every message of that conversation must have been delivered
exactly once and nothing else, nothing may have been raised, and memory must not have grown. The exit status is 1 when
that is not so.
"""

from __future__ import annotations

import argparse
import secrets
import socket
import sys
from collections import Counter, deque
from collections.abc import Callable, Sequence
from threading import Condition, Semaphore, Thread
from time import monotonic

import psutil
from attrs import Factory, define

from exon import Endpoint, NodeStats, Options, PeerRestarted
from exon.addresses import Address
from exon.udp import UdpSocket
from exon.wire import decode, is_short
from tests.hostile.forge import Forger

_LOOPBACK = "127.0.0.1:0"
_OPTIONS = Options()
_SOCKETS = 8  # the attacker has, so that it comes from several addresses
_LAG = 400  # hostile datagrams on their way at a time: as many as surely fit the socket's buffer
_PATIENCE = 2.0  # seconds without progress after which those are taken for lost
_OUTSTANDING = 4  # messages of the conversation under way
_SHARE = 0.9  # of the hostile datagrams that must really have arrived
_WARM = 0.2  # of them go by before memory is first measured: limits are reached, caches are full
_GROWTH = 16 << 20  # bytes that the process may grow after that
_TIMEOUT = 60.0


class TapSocket(UdpSocket):
    """Keeps copies of what it sends."""

    def __init__(self, bind: str | Address, keep: deque[bytes]) -> None:
        super().__init__(bind)
        self._keep = keep

    def send(self, datagrams: Sequence[tuple[Address, bytes]]) -> int:
        sent = super().send(datagrams)
        self._keep.extend(datagram for _, datagram in datagrams[:sent])
        return sent


class CountingSocket(UdpSocket):
    """Counts what comes from the attacker, and says so: nothing else knows how much the kernel had to drop."""

    def __init__(self, bind: str | Address) -> None:
        super().__init__(bind)
        self.arrived = 0
        self.enemies: frozenset[Address] = frozenset()
        self.changed = Condition()

    def receive(self) -> list[tuple[bytes, Address]]:
        datagrams = super().receive()
        hostile = sum(source in self.enemies for _, source in datagrams)
        if hostile:
            with self.changed:
                self.arrived += hostile
                self.changed.notify()
        return datagrams


@define
class Outcome:
    """What an attack came to."""

    sent: Counter[str] = Factory(Counter)
    arrived: int = 0
    talked: int = 0  # messages of the conversation, there and back
    seconds: float = 0.0
    warm: int = 0  # bytes of memory after the warm-up
    memory: int = 0  # and at the end
    failures: list[str] = Factory(list)
    target: NodeStats | None = None


def record_traffic() -> tuple[list[bytes], list[int]]:
    """What two endpoints say to each other in an earlier life, and their epochs."""
    said: deque[bytes] = deque(maxlen=5000)

    def tap(bind: str) -> TapSocket:
        return TapSocket(bind, said)

    with (
        Endpoint("target", bind=_LOOPBACK, socket=tap) as target,
        Endpoint("friend", bind=_LOOPBACK, socket=tap) as friend,
    ):
        friend.register("target", f"127.0.0.1:{target.address[1]}")
        for size in (0, 1, 100, 1000, 5000, 300_000) * 5:
            friend.send("target", bytes(size), timeout=_TIMEOUT)
            peer, message = target.recv(timeout=_TIMEOUT)
            target.send(peer, message, timeout=_TIMEOUT)
            friend.recv(timeout=_TIMEOUT)
    recorded = sorted(set(said), key=len)
    small = [datagram for datagram in recorded if len(datagram) <= 1500]
    # Some large ones are enough: what matters is in their first bytes, and they take long to send.
    return small + recorded[len(small) :: 16], sorted(
        {decode(datagram).header.source_epoch for datagram in recorded if not is_short(datagram)}
    )


class Conversation:
    """Two endpoints that talk to each other; who says what is remembered."""

    def __init__(self, target: Endpoint, friend: Endpoint) -> None:
        self._target = target
        self._friend = friend
        self._asked: list[bytes] = []
        self._heard: Counter[tuple[str, bytes]] = Counter()  # at the target
        self._answers: Counter[tuple[str, bytes]] = Counter()  # at the friend
        self._tickets = Semaphore(_OUTSTANDING)
        self._over = False
        self._errors: list[str] = []
        self._threads = [self._thread(work) for work in (self._ask, self._answer, self._listen)]

    def _thread(self, work: Callable[[], None]) -> Thread:
        def watched() -> None:
            try:
                work()
            except Exception as error:
                self._errors.append(f"the conversation broke off: {error!r}")

        thread = Thread(target=watched, daemon=True)
        thread.start()
        return thread

    def _ask(self) -> None:
        while not self._over:
            if not self._tickets.acquire(timeout=_TIMEOUT):
                raise TimeoutError(f"no answer to the friend in {_TIMEOUT} s")
            question = b"question %d" % len(self._asked)
            self._asked.append(question)
            self._friend.send("target", question, timeout=_TIMEOUT)

    def _answer(self) -> None:
        for peer, message in self._target:
            self._heard[peer, message] += 1
            if peer == "friend":
                self._target.send("friend", b"answer to " + message, timeout=_TIMEOUT)

    def _listen(self) -> None:
        for peer, message in self._friend:
            self._answers[peer, message] += 1
            self._tickets.release()

    def end(self) -> tuple[int, list[str]]:
        """Close both; how many messages went there and back, and what went wrong."""
        self._over = True
        self._threads[0].join()
        for _ in range(_OUTSTANDING):
            if not self._tickets.acquire(timeout=_TIMEOUT):
                self._errors.append("the last answers did not come")
                break
        for endpoint in (self._friend, self._target):
            report = endpoint.close(timeout=10)
            if report.undelivered or report.unknown:
                self._errors.append(f"{endpoint.id} closed with {report}")
        for thread in self._threads:
            thread.join()
        self._judge("target", self._heard, Counter(("friend", question) for question in self._asked))
        self._judge("friend", self._answers, Counter(("target", b"answer to " + asked) for asked in self._asked))
        return len(self._asked), self._errors

    def _judge(self, who: str, heard: Counter[tuple[str, bytes]], said: Counter[tuple[str, bytes]]) -> None:
        for what, difference in (("delivered to", heard - said), ("not delivered to", said - heard)):
            if difference:
                self._errors.append(f"{what} {who}: {str(difference)[:200]}")


class Attack:
    """So many hostile datagrams from several sockets to one endpoint."""

    def __init__(self, udp: CountingSocket, forger: Forger) -> None:
        self._udp = udp
        self._forger = forger
        self._address = udp.address
        self._sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(_SOCKETS)]
        for each in self._sockets:
            each.bind(("127.0.0.1", 0))
        udp.enemies = frozenset(each.getsockname() for each in self._sockets)
        self._lost = 0

    def fire(self, datagrams: int, outcome: Outcome, look: Callable[[int], None]) -> None:
        """Send, never more than the receiver's buffer holds; ``look(sent)`` is called now and then."""
        sent = 0
        while sent < datagrams:
            for _ in range(min(_LAG // 2, datagrams - sent)):
                kind, datagram = self._forger.next()
                outcome.sent[kind] += 1
                self._sockets[sent % _SOCKETS].sendto(datagram, self._address)
                sent += 1
            self._wait(sent, _LAG // 2)
            look(sent)
        self._wait(sent, 0)
        outcome.arrived = self._udp.arrived

    def _wait(self, sent: int, allowed: int) -> None:
        udp = self._udp
        with udp.changed:
            while (missing := sent - self._lost - udp.arrived) > allowed:
                before = udp.arrived
                if not udp.changed.wait(_PATIENCE) and udp.arrived == before:
                    self._lost += missing

    def close(self) -> None:
        for each in self._sockets:
            each.close()


def attack(datagrams: int, seed: int, tell: Callable[[str], None] = lambda _: None) -> Outcome:
    """Fire ``datagrams`` at an endpoint that is in conversation with another; what came of it."""
    recorded, epochs = record_traffic()
    tell(f"recorded {len(recorded)} datagrams of earlier lives")
    outcome = Outcome()
    live: deque[bytes] = deque(maxlen=500)
    counting: list[CountingSocket] = []

    def open_counting(bind: str) -> CountingSocket:
        counting.append(CountingSocket(bind))
        return counting[0]

    target = Endpoint("target", bind=_LOOPBACK, options=_OPTIONS, socket=open_counting)
    friend = Endpoint("friend", bind=_LOOPBACK, socket=lambda bind: TapSocket(bind, live))
    friend.register("target", f"127.0.0.1:{target.address[1]}")
    friend.send("target", b"question first")
    process = psutil.Process()
    started = shown = monotonic()

    def look(sent: int) -> None:
        nonlocal shown
        if not outcome.warm and sent >= _WARM * datagrams:
            outcome.warm = process.memory_info().rss
        if monotonic() - shown >= 5:
            shown = monotonic()
            memory = process.memory_info().rss >> 20
            tell(f"{sent:>10,} sent, {counting[0].arrived:,} arrived, {memory} MiB, {sent / (shown - started):,.0f}/s")

    peer, _ = target.recv(timeout=_TIMEOUT)
    target.send(peer, b"answer first")
    friend.recv(timeout=_TIMEOUT)
    both = {decode(datagram).header for datagram in live if not is_short(datagram)}
    epochs += {epoch for header in both for epoch in (header.source_epoch, header.destination_epoch) if epoch}
    conversation = Conversation(target, friend)
    assault = Attack(counting[0], Forger(seed, "target", "friend", epochs, recorded, live))
    try:
        assault.fire(datagrams, outcome, look)
        outcome.memory = process.memory_info().rss
        outcome.target = target.stats()
    finally:
        outcome.talked, outcome.failures = conversation.end()
        assault.close()
    outcome.seconds = monotonic() - started
    outcome.failures += _judge(outcome, outcome.target, [target, friend])
    return outcome


def _judge(outcome: Outcome, stats: NodeStats, endpoints: Sequence[Endpoint]) -> list[str]:
    failures = []
    for endpoint in endpoints:
        errors = endpoint.stats().dropped.get("internal error", 0)
        if errors:
            failures.append(f"{errors} internal errors in {endpoint.id}")
        if any(isinstance(event, PeerRestarted) for event in endpoint.events(timeout=0)):
            failures.append(f"{endpoint.id} was made to believe that its peer had lost its state")
    sent = outcome.sent.total()
    if outcome.arrived < _SHARE * sent:
        failures.append(f"only {outcome.arrived:,} of {sent:,} hostile datagrams arrived")
    if outcome.memory - outcome.warm > _GROWTH:
        failures.append(f"memory grew from {outcome.warm >> 20} to {outcome.memory >> 20} MiB")
    most = _OPTIONS.max_unproven + _OPTIONS.max_peer_epochs
    if stats.receive_records > most or len(stats.peers) > most:
        failures.append(f"{stats.receive_records} records and {len(stats.peers)} peers, {most} are allowed")
    if not outcome.talked:
        failures.append("the friend could not talk")
    return failures


def report(outcome: Outcome) -> list[str]:
    """The outcome for people to read."""
    stats = outcome.target
    assert stats is not None
    sent = outcome.sent.total()
    lines = ["", "hostile datagrams sent"]
    lines += [f"  {kind:<32}{count:>12,}" for kind, count in sorted(outcome.sent.items())]
    lines += ["dropped by the endpoint, by reason"]
    lines += [f"  {reason:<32}{count:>12,}" for reason, count in sorted(stats.dropped.items())]
    lines += [
        f"  {'duplicates of what was delivered':<32}{stats.duplicates:>12,}",
        "",
        f"{sent:,} sent, {outcome.arrived:,} arrived ({outcome.arrived / sent:.1%}), in {outcome.seconds:.1f} s "
        f"({sent / outcome.seconds:,.0f} per second)",
        f"{len(stats.peers):,} peers and {stats.receive_records:,} receive records at the end, "
        f"memory {outcome.warm >> 20} MiB after the warm-up and {outcome.memory >> 20} MiB at the end",
        f"{outcome.talked:,} messages there and back meanwhile",
    ]
    return lines + ([f"FAILED: {failure}" for failure in outcome.failures] or ["nothing broken"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and attack; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.fuzz", description="Attack a live endpoint.")
    parser.add_argument("--datagrams", type=int, default=1_000_000, help="how many (%(default)s)")
    parser.add_argument("--seed", type=int, help="of the attacker (drawn)")
    options = parser.parse_args(arguments)
    if options.datagrams < 1:
        parser.error("--datagrams must be at least 1")
    seed = options.seed if options.seed is not None else secrets.randbelow(2**31)

    def tell(text: str) -> None:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    tell(f"{options.datagrams:,} datagrams with seed {seed}")
    outcome = attack(options.datagrams, seed, tell)
    tell("\n".join(report(outcome)))
    return 1 if outcome.failures else 0


if __name__ == "__main__":
    sys.exit(main())
