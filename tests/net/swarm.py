"""Ten thousand short-lived peers, a few hundred at a time, and the one endpoint that they all talk to.

The endpoint is a real one in a process of its own (:class:`Hub`). A peer is a :class:`exon.protocol.Node` and shares
its socket with others, because ten thousand threads and sockets would test the machine. It sends a few numbered
messages, waits for as many answers and then either closes or falls idle.
"""

from __future__ import annotations

import gc
import multiprocessing
import select
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from heapq import heappop, heappush
from multiprocessing.connection import Connection
from threading import Thread
from time import monotonic
from types import TracebackType
from typing import Any

import psutil
from attrs import define, field, frozen

from exon import Closed, Endpoint, Options
from exon.addresses import Address
from exon.plain import read_short
from exon.protocol import Node
from exon.udp import UdpSocket
from exon.wire import Malformed, decode, is_short

PATIENCE = 60.0  # seconds until a run that hangs fails; no run that works waits for it
OPTIONS = Options(idle_timeout=0.25)
HUB = "hub"


# -- the endpoint's process ------------------------------------------------------------------------------------------


@frozen
class Picture:
    """The endpoint's process at one moment."""

    peers: int
    send_records: int
    receive_records: int
    buffered: int
    delivered: int
    unknown: int
    resident: int  # bytes of memory
    missing: int  # numbers that never came, of all that will
    twice: int  # numbers that came more than once

    @property
    def oblivious(self) -> bool:
        """Whether nothing is left of any peer."""
        return not (self.peers or self.send_records or self.receive_records or self.buffered)


def _answer(endpoint: Endpoint, seen: bytearray) -> None:
    """The application: note each number, by itself and not only their count, and send it back."""
    with suppress(Closed):
        for peer, message in endpoint:
            number = int(message)
            seen[number] = min(255, seen[number] + 1)
            endpoint.send(peer, message)


def _picture(endpoint: Endpoint, seen: bytearray) -> Picture:
    gc.collect()
    stats = endpoint.stats()
    return Picture(
        peers=len(stats.peers),
        send_records=stats.send_records,
        receive_records=stats.receive_records,
        buffered=stats.buffered_bytes,
        delivered=stats.messages_delivered,
        unknown=stats.messages_unknown,
        resident=psutil.Process().memory_info().rss,
        missing=seen.count(0),
        twice=len(seen) - seen.count(0) - seen.count(1),
    )


def _serve(pipe: Connection, messages: int) -> None:
    seen = bytearray(messages)  # all of it now, so that it is no growth later
    with Endpoint(HUB, bind="127.0.0.1:0", options=OPTIONS) as endpoint:
        Thread(target=_answer, args=(endpoint, seen), daemon=True).start()
        pipe.send(endpoint.address)
        with suppress(EOFError):
            while True:
                pipe.recv()
                pipe.send(_picture(endpoint, seen))


class Hub:
    """An endpoint that answers messages numbered from 0 to ``messages`` - 1."""

    def __init__(self, messages: int) -> None:
        """Start its process."""
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, messages), daemon=True)
        self._process.start()
        theirs.close()
        host, port = self._take()
        self.address: Address = (host, port)

    def _take(self) -> Any:
        assert self._pipe.poll(PATIENCE), "the endpoint's process is silent"
        return self._pipe.recv()

    def picture(self) -> Picture:
        """How it is now."""
        self._pipe.send("picture")
        picture = self._take()
        assert isinstance(picture, Picture)
        return picture

    def forgotten(self) -> Picture:
        """How it is once it has forgotten every peer, or, if it does not, still is after a long time."""
        deadline = monotonic() + PATIENCE
        while not (picture := self.picture()).oblivious and monotonic() < deadline:
            pass
        return picture

    def __enter__(self) -> Hub:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pipe.close()
        self._process.join(PATIENCE)
        if self._process.exitcode is None:
            self._process.kill()
            self._process.join()


# -- the peers -------------------------------------------------------------------------------------------------------


@define(eq=False)
class Guest:
    """One peer: its messages, and how it leaves."""

    node: Node
    udp: UdpSocket
    unanswered: set[bytes]
    closes: bool
    answers: Counter[bytes] = field(factory=Counter)
    wakes_at: float = float("inf")

    def work(self, now: float) -> None:
        """What a driver does after every wake-up."""
        self.node.expire(now)
        for delivery in self.node.deliveries():
            self.answers.update(delivery.messages)
            self.unanswered.difference_update(delivery.messages)
        if self.closes and not self.unanswered and not self.node.closing:
            self.node.close()
        self.udp.send(list(self.node.datagrams(now)))

    @property
    def gone(self) -> bool:
        """Whether it has nothing to do any more: it is closed, or has forgotten the endpoint."""
        if self.unanswered:
            return False
        return self.node.closed if self.closes else not self.node.stats().peers


class Swarm:
    """Drives peers over a few sockets. What a full socket does not take is lost, as on any network."""

    def __init__(self, hub: Address, *, sockets: int = 4, at_once: int = 300) -> None:
        """Nobody is there yet."""
        self.answers: Counter[bytes] = Counter()
        self.guests = 0
        self._hub = hub
        self._at_once = at_once
        self._sockets = [UdpSocket("127.0.0.1:0") for _ in range(sockets)]
        self._poll = select.poll()
        self._by_descriptor = {udp.fileno(): udp for udp in self._sockets}
        for descriptor in self._by_descriptor:
            self._poll.register(descriptor, select.POLLIN)
        self._here: dict[str, Guest] = {}
        self._proofs: dict[int, str] = {}  # whom short datagrams are for, by what they show
        self._timers: list[tuple[float, str]] = []

    def run(self, visits: Iterable[range]) -> None:
        """Let a peer come for each of these ranges of message numbers, and return when the last one is gone."""
        deadline = monotonic() + PATIENCE
        waiting = iter(visits)
        while self._admit(waiting) or self._here:
            assert monotonic() < deadline, f"{len(self._here)} peers cannot end, such as {next(iter(self._here))}"
            self._receive()
            self._expire()

    def _admit(self, waiting: Iterator[range]) -> bool:
        """Let peers in while there is room; whether there may be more of them."""
        while len(self._here) < self._at_once:
            numbers = next(waiting, None)
            if numbers is None:
                return False
            self._come(numbers)
        return True

    def _come(self, numbers: range) -> None:
        self.guests += 1
        name = f"guest-{self.guests}"
        node = Node(name, epoch=self.guests, secret=name.encode(), options=OPTIONS)
        node.register(HUB, self._hub)
        messages = {b"%d" % number for number in numbers}
        for message in messages:
            assert node.send(HUB, message, monotonic())
        udp = self._sockets[self.guests % len(self._sockets)]
        guest = self._here[name] = Guest(node, udp, messages, closes=self.guests % 2 == 0)
        self._work(guest)

    def _receive(self) -> None:
        upcoming = self._timers[0][0] - monotonic() if self._timers else 1.0
        for descriptor, _ in self._poll.poll(max(0.0, min(1.0, upcoming)) * 1000):
            arrived: dict[str, Guest] = {}
            for data, source in self._by_descriptor[descriptor].receive():
                guest = self._addressee(data)
                if guest is not None:
                    guest.node.receive(data, source, monotonic())
                    arrived[guest.node.id] = guest
            for guest in arrived.values():
                self._work(guest)

    def _addressee(self, data: bytes) -> Guest | None:
        try:
            if is_short(data):
                return self._here.get(self._proofs.get(read_short(data).proof, ""))
            header = decode(data).header
        except Malformed:
            return None
        self._proofs[header.proof] = header.destination
        return self._here.get(header.destination)

    def _expire(self) -> None:
        now = monotonic()
        while self._timers and self._timers[0][0] <= now:
            when, name = heappop(self._timers)
            guest = self._here.get(name)
            if guest is not None and guest.wakes_at == when:
                guest.wakes_at = float("inf")
                self._work(guest)

    def _work(self, guest: Guest) -> None:
        guest.work(monotonic())
        if guest.gone:
            self.answers.update(guest.answers)
            del self._here[guest.node.id]
            return
        when = guest.node.deadline()
        if when is not None and when < guest.wakes_at:
            guest.wakes_at = when
            heappush(self._timers, (when, guest.node.id))

    def __enter__(self) -> Swarm:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for udp in self._sockets:
            udp.close()
