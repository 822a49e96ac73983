"""The blocking interface over real sockets on loopback."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from itertools import count, product
from queue import SimpleQueue
from threading import Thread
from typing import Any

import pytest

from exon import (
    AddressInUse,
    Closed,
    DuplicateId,
    Endpoint,
    Options,
    PeerMoved,
    PeerRestarted,
    PeerUnreachable,
    Timeout,
)
from exon import endpoint as module
from exon.simulation.lossy import lossy
from exon.udp import UdpSocket
from tests.exon.endpoints import PATIENCE, Opener, at, crash, eventually, fill, in_background, send_all, take
from tests.exon.test_udp import needs_ipv6


@pytest.fixture
def opened() -> Iterator[Opener]:
    with Opener() as opener:
        yield opener


# ── sending and receiving ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("host", ["127.0.0.1", pytest.param("[::1]", marks=needs_ipv6)])
def test_messages_both_ways(opened: Opener, host: str) -> None:
    a, b = opened("a", bind=f"{host}:0"), opened("b", bind=f"{host}:0")
    a.register("b", at(b))
    a.send("b", b"question", timeout=PATIENCE)
    assert b.recv(timeout=PATIENCE) == ("a", b"question")
    b.send("a", b"answer", timeout=PATIENCE)  # nobody registered a: it was heard
    assert a.recv(timeout=PATIENCE) == ("b", b"answer")


def test_all_interfaces_serve_both_families(opened: Opener) -> None:
    server, client = opened("server", bind=":0"), opened("client")
    client.register("server", f"127.0.0.1:{server.address[1]}")
    client.send("server", b"hello")
    assert server.recv(timeout=PATIENCE) == ("client", b"hello")
    server.send("client", b"welcome")
    assert client.recv(timeout=PATIENCE) == ("server", b"welcome")


@pytest.mark.parametrize(
    "payload", [b"", b"bytes", bytearray(b"bytearray"), memoryview(b"view"), memoryview(b"every second")[::2]]
)
def test_payloads_arrive_as_bytes(opened: Opener, payload: Any) -> None:
    a, b = opened.pair()
    a.send("b", payload, timeout=PATIENCE)
    a.send("a", payload, timeout=PATIENCE)
    for receiver in (a, b):
        sender, received = receiver.recv(timeout=PATIENCE)
        assert (sender, received, type(received)) == ("a", bytes(payload), bytes)


def test_a_payload_may_be_changed_after_it_was_sent(opened: Opener) -> None:
    a, b = opened("a"), opened("b")
    payload: Any = bytearray(b"before")
    a.send("b", payload)  # nobody knows yet where b is, so it has not left
    payload[:] = b"after!"
    a.register("b", at(b))
    assert b.recv(timeout=PATIENCE) == ("a", b"before")


@pytest.mark.parametrize("size", [65_486, 65_536, 1_000_000, 5 << 20])
def test_large_messages(opened: Opener, size: int) -> None:
    a, b = opened.pair()
    message = (b"0123456789abcdef" * (size // 16 + 1))[:size]
    a.send("b", message, timeout=PATIENCE)
    a.send("b", b"small")
    assert sorted(take(b, 2), key=len) == [b"small", message]


def test_messages_to_oneself(opened: Opener) -> None:
    a = opened("a")
    for number in range(100):
        a.send("a", b"%d" % number)
    assert take(a, 100) == [b"%d" % number for number in range(100)]
    assert a.stats().datagrams_sent == 0


def test_a_receiver_that_waits_is_woken_by_a_message_to_oneself(opened: Opener) -> None:
    a = opened("a")
    received = in_background(a.recv)
    eventually(lambda: a._receivers)
    a.send("a", b"hello")
    assert received.result(PATIENCE) == ("a", b"hello")


def test_iterating_ends_with_the_close(opened: Opener) -> None:
    a = opened("a")
    for number in range(3):
        a.send("a", b"%d" % number)
    a.close()
    assert list(a) == [("a", b"0"), ("a", b"1"), ("a", b"2")]


def test_both_are_told_apart_by_id_not_by_address(opened: Opener) -> None:
    hub = opened("hub")
    for name in ("one", "two", "three"):
        spoke = opened(name)
        spoke.register("hub", at(hub))
        spoke.send("hub", name.encode())
    assert sorted(hub.recv(timeout=PATIENCE) for _ in range(3)) == [
        ("one", b"one"),
        ("three", b"three"),
        ("two", b"two"),
    ]


def test_the_repr_says_who_and_where(opened: Opener) -> None:
    a = opened("a")
    assert repr(a) == f"<exon.Endpoint 'a' at 127.0.0.1:{a.address[1]}>"


# ── time-outs ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("timeout", [0, 0.01, -1])
def test_nothing_to_receive(opened: Opener, timeout: float) -> None:
    a = opened("a")
    with pytest.raises(Timeout, match="no message for 'a'"):
        a.recv(timeout=timeout)
    assert not a._receivers


def test_no_time_is_enough_for_what_is_here(opened: Opener) -> None:
    a = opened("a")
    a.send("a", b"x", timeout=0)
    assert a.recv(timeout=0) == ("a", b"x")


@pytest.mark.parametrize("timeout", [None, float("inf"), 1e12])
def test_waiting_without_a_limit(opened: Opener, timeout: float | None) -> None:
    a, b = opened("a", options=Options(send_messages=1)), opened("b")
    received = in_background(b.recv, timeout)
    a.send("b", b"first", timeout=timeout)
    sent = in_background(a.send, "b", b"second", timeout)
    eventually(lambda: a._senders)
    a.register("b", at(b))
    assert received.result(PATIENCE) == ("a", b"first")
    assert sent.result(PATIENCE) is None
    assert b.recv(timeout=PATIENCE) == ("a", b"second")


def test_a_message_that_timed_out_is_never_sent(opened: Opener) -> None:
    a, b = opened("a", options=Options(send_messages=3)), opened("b")
    for number in range(3):
        a.send("b", b"%d" % number)
    for timeout in (0, 0.01):
        with pytest.raises(Timeout, match=r"no room for .* to 'b'.* its receiver is slow or out of reach"):
            a.send("b", b"never", timeout=timeout)
    assert not a._senders
    a.register("b", at(b))
    assert sorted(take(b, 3)) == [b"0", b"1", b"2"]
    assert a.close(timeout=PATIENCE).clean
    with pytest.raises(Timeout):
        b.recv(timeout=0)


# ── back-pressure ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_back_pressure_by_messages(opened: Opener) -> None:
    a, b = opened("a", options=Options(send_messages=5)), opened("b")
    for number in range(5):
        a.send("b", b"%d" % number, timeout=0)
    with pytest.raises(Timeout):
        a.send("b", b"5", timeout=0)
    assert a.stats().peers["b"].pending_messages == 5
    a.register("b", at(b))
    a.send("b", b"5", timeout=PATIENCE)
    assert sorted(take(b, 6)) == [b"%d" % number for number in range(6)]


def test_back_pressure_by_bytes(opened: Opener) -> None:
    a, b = opened("a", options=Options(send_bytes=1000)), opened("b")
    a.send("b", bytes(600), timeout=0)
    with pytest.raises(Timeout):
        a.send("b", bytes(401), timeout=0)
    a.send("b", bytes(400), timeout=0)
    assert a.stats().peers["b"].pending_bytes == 1000
    a.register("b", at(b))
    a.send("b", bytes(2000), timeout=PATIENCE)  # above the limit, and alone: one message always fits
    assert sorted(map(len, take(b, 3))) == [400, 600, 2000]


@pytest.mark.parametrize("size", [20, 3000])
def test_a_receiver_that_takes_nothing_fills_no_memory(opened: Opener, size: int) -> None:
    a, b = opened.pair(send_bytes=50_000, send_messages=400, receive_bytes=100_000)
    accepted = fill(a, "b", lambda number: b"%d " % number + bytes(size))
    # The last token to find room may bring bookkeeping for all of its messages, of which a sends 400 at the most.
    assert b.stats().buffered_bytes <= 100_000 + 400 * 100
    assert a.stats().peers["b"].pending_bytes <= 50_000
    assert a.stats().peers["b"].pending_messages <= 400
    more = [b"more %d" % number for number in range(50)]
    rest = in_background(send_all, a, "b", more)
    assert Counter(take(b, len(accepted) + 50)) == Counter(accepted + more)
    rest.result(PATIENCE)
    assert a.close(timeout=PATIENCE).clean
    with pytest.raises(Timeout):
        b.recv(timeout=0)


def test_large_messages_wait_for_the_receiver_too(opened: Opener) -> None:
    a, b = opened.pair(send_bytes=1 << 20, max_message=300_000, reassembly_bytes=600_000)
    accepted = fill(a, "b", lambda number: b"%d " % number + bytes(300_000 - 10))
    assert 4 <= len(accepted) < 20
    assert b.stats().buffered_bytes <= 700_000
    assert Counter(take(b, len(accepted))) == Counter(accepted)


def test_back_pressure_of_messages_to_oneself(opened: Opener) -> None:
    a = opened("a", options=Options(receive_bytes=1000))
    accepted = fill(a, "a", lambda number: b"%d" % number + bytes(100))
    assert a.stats().buffered_bytes <= 1000
    waiting = in_background(a.send, "a", b"waited")
    eventually(lambda: a._senders)
    assert a.recv(timeout=0) == ("a", accepted[0])
    waiting.result(PATIENCE)
    assert take(a, len(accepted)) == [*accepted[1:], b"waited"]


def queue_senders(endpoint: Endpoint, messages: list[bytes]) -> list[Future[None]]:
    """Threads that wait to send, in this order."""
    waiting = []
    for place, message in enumerate(messages, 1):
        waiting.append(in_background(endpoint.send, "b", message))
        eventually(lambda: sum(map(len, endpoint._senders.values())) == place)  # noqa: B023  # called at once
    return waiting


def test_senders_that_wait_are_served_in_their_order(opened: Opener) -> None:
    a, b = opened("a", options=Options(send_messages=1)), opened("b")
    a.send("b", b"first")
    messages = [b"%d" % number for number in range(10)]
    waiting = queue_senders(a, messages)
    with pytest.raises(Timeout):
        a.send("b", b"pushing in", timeout=0)
    a.register("b", at(b))
    # One message is on the way at a time, so they arrive in the order in which they were accepted.
    assert take(b, 11) == [b"first", *messages]
    assert [sent.result(PATIENCE) for sent in waiting] == [None] * 10


def test_nobody_overtakes_who_waits(opened: Opener) -> None:
    a = opened("a", options=Options(send_bytes=1000))
    a.send("b", bytes(600))
    in_background(a.send, "b", bytes(500))
    eventually(lambda: a._senders)
    with pytest.raises(Timeout):
        a.send("b", bytes(400), timeout=0)  # there is room for it, but not its turn


def test_whoever_gives_up_leaves_the_place_to_the_next(opened: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    a = opened("a", options=Options(send_bytes=1000))
    a.send("b", bytes(600))
    monkeypatch.setattr(a._node, "deadline", lambda: None)  # no timer helps
    large = in_background(a.send, "b", bytes(500), 0.2)
    eventually(lambda: a._senders)
    small = in_background(a.send, "b", bytes(400))  # would fit, and waits for its turn
    with pytest.raises(Timeout):
        large.result(PATIENCE)
    assert small.result(PATIENCE) is None
    assert a.stats().peers["b"].pending_bytes == 1000


def test_waiting_for_one_peer_holds_up_no_other(opened: Opener) -> None:
    a, c = opened("a", options=Options(send_messages=1)), opened("c")
    a.register("c", at(c))
    a.send("b", b"nobody knows where b is")
    waiting = in_background(a.send, "b", b"nor will they")
    eventually(lambda: a._senders)
    for number in range(20):
        a.send("c", b"%d" % number, timeout=PATIENCE)
    assert len(set(take(c, 20))) == 20
    assert not waiting.done()


def test_nobody_may_send_more_than_the_kernel_can_keep(opened: Opener) -> None:
    small = opened("small", socket=lambda bind: UdpSocket(bind, receive_buffer=50_000))
    large = opened("large", options=Options(receive_bytes=1000))
    assert small._node.options.receive_bytes == small._engine.udp.receive_buffer // 2
    assert large._node.options.receive_bytes == 1000


# ── threads ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_many_threads_on_shared_endpoints(opened: Opener) -> None:
    names = ["a", "b", "c"]
    endpoints = {name: opened(name, options=Options(send_messages=50)) for name in names}
    for one, other in product(names, names):
        if one != other:
            endpoints[one].register(other, at(endpoints[other]))
    arrived: SimpleQueue[tuple[str, str, bytes]] = SimpleQueue()

    def receive(name: str) -> None:
        for sender, message in endpoints[name]:
            arrived.put((sender, name, message))

    def send(name: str, thread: int) -> None:
        for number, other in product(range(150), names):
            endpoints[name].send(other, b"%d.%d" % (thread, number), timeout=PATIENCE)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # many more interleavings than usual
    try:
        receivers = [Thread(target=receive, args=(name,)) for name in names for _ in range(3)]
        for receiver in receivers:
            receiver.start()
        senders = [in_background(send, name, thread) for name in names for thread in range(3)]
        for sender in senders:
            sender.result(60)
        expected = Counter(
            (one, other, b"%d.%d" % (thread, number))
            for one, other, thread, number in product(names, names, range(3), range(150))
        )
        got = Counter(arrived.get(timeout=PATIENCE) for _ in range(expected.total()))
        for endpoint in endpoints.values():
            endpoint.close(timeout=PATIENCE)
        for receiver in receivers:
            receiver.join(PATIENCE)
            assert not receiver.is_alive()
    finally:
        sys.setswitchinterval(interval)
    assert got == expected
    assert arrived.empty()


def test_a_receiver_may_find_the_batch_gone(opened: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    a = opened("a")
    a.send("a", b"only one")
    take_batch = a._take_batch
    quick: list[tuple[str, bytes]] = []

    def take_batch_too_late() -> bool:
        taken = take_batch()
        if taken:
            quick.append(in_background(a.recv, 0).result(PATIENCE))  # needs no lock, as the batch is out
        return taken

    monkeypatch.setattr(a, "_take_batch", take_batch_too_late)
    with pytest.raises(Timeout):
        a.recv(timeout=0)
    assert quick == [("a", b"only one")]


def test_an_interrupted_receiver_passes_its_message_on(opened: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    a = opened("a")
    wait, calls = module._Waiter.wait, count()

    def interrupted_when_woken(waiter: module._Waiter, deadline: float | None) -> None:
        first = next(calls) == 0
        wait(waiter, deadline)
        if first:
            raise KeyboardInterrupt

    monkeypatch.setattr(module._Waiter, "wait", interrupted_when_woken)
    unlucky = in_background(a.recv)
    eventually(lambda: len(a._receivers) == 1)
    lucky = in_background(a.recv)
    eventually(lambda: len(a._receivers) == 2)
    a.send("a", b"for whoever is left")
    with pytest.raises(KeyboardInterrupt):
        unlucky.result(PATIENCE)
    assert lucky.result(PATIENCE) == ("a", b"for whoever is left")


def test_an_interrupted_thread_leaves_no_trace(opened: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = opened("a", options=Options(send_messages=1)), opened("b")
    a.send("b", b"first")

    def interrupted(waiter: module._Waiter, deadline: float | None) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module._Waiter, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            a.recv()
        with pytest.raises(KeyboardInterrupt):
            a.send("b", b"interrupted")
        with pytest.raises(KeyboardInterrupt):
            next(a.events())
        with pytest.raises(KeyboardInterrupt):
            a.close()
    assert [len(queue) for queue in (a._receivers, a._senders, a._watchers, a._closers)] == [0, 0, 0, 0]
    a._node.register("b", b.address)  # it is closing already, so the endpoint would refuse
    assert a.close(timeout=PATIENCE).clean
    assert take(b, 1) == [b"first"]
    with pytest.raises(Timeout):
        b.recv(timeout=0)


# ── closing ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_close_delivers_what_was_accepted(opened: Opener) -> None:
    a, b = opened.pair()
    for number in range(1000):
        a.send("b", b"%d" % number)
    report = a.close(timeout=PATIENCE)
    assert (report.clean, report.undelivered, report.unknown, report.peers) == (True, 0, 0, {})
    assert Counter(take(b, 1000)) == Counter(b"%d" % number for number in range(1000))


def test_a_closed_endpoint_refuses_everything_but_what_had_arrived(opened: Opener) -> None:
    a, b = opened.pair()
    for number in range(3):
        a.send("b", b"%d" % number)
    a.close(timeout=PATIENCE)
    b.close(timeout=PATIENCE)
    assert sorted(take(b, 3)) == [b"0", b"1", b"2"]
    with pytest.raises(Closed, match="'b' is closed and every message that had arrived is taken"):
        b.recv()
    with pytest.raises(Closed, match="takes no more messages"):
        b.send("a", b"late")
    with pytest.raises(Closed, match="'b' is closed"):
        b.register("c", "127.0.0.1:9")
    with pytest.raises(Closed, match="'b' is closed"):
        b.rebind("127.0.0.1:0")
    assert list(b.events()) == []


def test_a_close_wakes_whoever_waits(opened: Opener) -> None:
    a = opened("a", options=Options(send_messages=1))
    a.send("b", b"on its way to nowhere")
    receiving, sending = in_background(a.recv), in_background(a.send, "b", b"no room")
    watching = in_background(lambda: list(a.events()))
    eventually(lambda: a._receivers and a._senders and a._watchers)
    a.close(timeout=0)
    with pytest.raises(Closed):
        receiving.result(PATIENCE)
    with pytest.raises(Closed, match="closed before there was room"):
        sending.result(PATIENCE)
    assert watching.result(PATIENCE) == []


def test_the_report_of_a_peer_nobody_knows(opened: Opener) -> None:
    a = opened("a")
    a.send("b", b"1")
    a.send("b", b"2")
    report = a.close(timeout=0.05)
    assert (report.clean, report.undelivered, report.unknown) == (False, 2, 0)
    assert report.peers == {"b": "2 not acknowledged, address unknown"}


def test_the_report_of_a_peer_that_never_answers(opened: Opener) -> None:
    a = opened("a", options=Options(unreachable_after=0.02))
    a.register("b", opened.silent())
    a.send("b", b"1")
    next(a.events())
    report = a.close(timeout=0.05)
    assert (report.clean, report.undelivered, report.unknown) == (False, 1, 0)
    assert report.peers == {"b": "1 not acknowledged, no answer from 127.0.0.1"}


def test_the_report_of_a_peer_that_died(opened: Opener) -> None:
    a, b = opened.pair()
    a.send("b", b"arrives")
    take(b, 1)
    eventually(lambda: not a.stats().peers["b"].pending_messages)
    crash(b)
    a.send("b", b"leaves and is not answered")
    report = a.close(timeout=0.05)
    assert (report.clean, report.undelivered, report.unknown) == (False, 0, 1)
    assert report.peers == {"b": "1 not acknowledged, still being delivered"}


def test_the_report_of_a_slow_peer_leaves_nothing_out(opened: Opener) -> None:
    a, b = opened.pair(send_messages=100, receive_bytes=2000)
    accepted = fill(a, "b", lambda number: b"%d " % number + bytes(500))
    report = a.close(timeout=0.05)
    assert not report.clean
    b.close(timeout=0)
    arrived = [message for _, message in b]
    assert len(set(arrived)) == len(arrived)
    assert set(arrived) <= set(accepted)
    left = report.undelivered + report.unknown
    assert len(accepted) - left <= len(arrived) <= len(accepted) - report.undelivered


def test_a_close_does_not_wait_for_a_source_that_died(opened: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = opened.pair()
    a.send("b", b"x")
    take(b, 1)
    crash(a)
    node, deadline = b._node, b._node.deadline
    monkeypatch.setattr(node, "deadline", lambda: None if node.closed else deadline())  # no other timer ends it
    assert in_background(b.close, 2 * PATIENCE).result(PATIENCE).clean


def test_closing_twice_gives_the_same_report(opened: Opener) -> None:
    a = opened("a")
    a.send("b", b"x")
    report = a.close(timeout=0)
    assert a.close() is report
    assert a.stats().messages_sent == 1


def test_closing_in_several_threads_gives_the_same_report(opened: Opener) -> None:
    a, b = opened("a"), opened("b")
    a.send("b", b"x")
    closing = [in_background(a.close, PATIENCE) for _ in range(5)]
    eventually(lambda: len(a._closers) == 5)
    a._node.register("b", b.address)
    with a._lock:
        a._engine.wake()
    reports = [future.result(PATIENCE) for future in closing]
    assert reports[0].clean
    assert all(report is reports[0] for report in reports)


def test_an_impatient_close_ends_a_patient_one(opened: Opener) -> None:
    a = opened("a")
    a.send("b", b"x")
    patient = in_background(a.close)
    eventually(lambda: a._closers)
    assert a.close(timeout=0) is patient.result(PATIENCE)


def test_both_sides_may_close_at_once(opened: Opener) -> None:
    for _ in range(5):
        a, b = opened.pair()
        a.send("b", b"1")
        b.send("a", b"2")
        assert (take(a, 1), take(b, 1)) == ([b"2"], [b"1"])
        eventually(lambda: not any(e.stats().peers[p].pending_messages for e, p in ((a, "b"), (b, "a"))))  # noqa: B023
        reports = [in_background(endpoint.close, PATIENCE) for endpoint in (a, b)]
        assert [report.result(PATIENCE).clean for report in reports] == [True, True]


def test_closing_while_the_peer_sends(opened: Opener) -> None:
    a, b = opened.pair(send_messages=200)
    accepted: list[bytes] = []

    def send() -> None:
        for number in count():
            a.send("b", b"%d" % number)
            accepted.append(b"%d" % number)

    sending = in_background(send)
    arrived = take(b, 500)
    b.close(timeout=PATIENCE)
    report = a.close(timeout=0.05)
    with pytest.raises(Closed):
        sending.result(PATIENCE)
    arrived += [message for _, message in b]
    assert len(set(arrived)) == len(arrived)
    assert set(arrived) <= set(accepted)
    left = report.undelivered + report.unknown
    assert len(accepted) - left <= len(arrived) <= len(accepted) - report.undelivered


def fail_in_a_with_block(endpoint: Endpoint) -> None:
    with endpoint:
        raise ZeroDivisionError


def test_an_exception_in_a_with_block_does_not_wait(opened: Opener) -> None:
    a = opened("a")
    a.send("b", b"for nobody, whom a close would wait for until close_timeout")
    failing = in_background(fail_in_a_with_block, a)
    with pytest.raises(ZeroDivisionError):
        failing.result(PATIENCE)
    assert not a.close().clean


def test_nothing_is_left_after_a_close(opened: Opener) -> None:
    a, b = opened.pair()
    a.send("b", b"x")
    take(b, 1)
    a.close(timeout=PATIENCE)
    b.close(timeout=PATIENCE)
    for endpoint in (a, b):
        stats = endpoint.stats()
        assert (stats.send_records, stats.receive_records) == (0, 0)
        assert not endpoint._engine._thread.is_alive()
        assert endpoint._engine.udp.fileno() == -1


# ── moving ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("mover", ["a", "b"])
def test_moving_while_messages_flow(opened: Opener, mover: str) -> None:
    a, b = opened.pair(send_messages=50, probe_after=1e6)  # so that only a move makes b speak first
    numbers = [b"%d" % number for number in range(3000)]
    sending = in_background(send_all, a, "b", numbers)
    arrived = []
    for _ in range(5):
        arrived += take(b, 500)
        moving = a if mover == "a" else b
        before = moving.address
        moving.rebind("127.0.0.1:0")
        assert moving.address != before
    arrived += take(b, 500)
    sending.result(PATIENCE)
    assert Counter(arrived) == Counter(numbers)
    assert a.close(timeout=PATIENCE).clean
    with pytest.raises(Timeout):
        b.recv(timeout=0)


def test_peers_hear_of_a_move(opened: Opener) -> None:
    a, b = opened.pair()
    a.send("b", b"before")
    take(b, 1)
    before = a.address
    a.rebind("127.0.0.1:0")
    a.send("b", b"after")
    assert next(b.events(timeout=PATIENCE)) == PeerMoved("a", before, a.address)
    assert take(b, 1) == [b"after"]
    b.send("a", b"found")
    assert take(a, 1) == [b"found"]
    assert b.stats().moves == 1


def test_a_move_that_fails_changes_nothing(opened: Opener) -> None:
    a, b = opened.pair()
    before = a.address
    with pytest.raises(AddressInUse, match="already in use"):
        a.rebind(at(b))
    assert a.address == before
    a.send("b", b"still here")
    assert take(b, 1) == [b"still here"]
    b.send("a", b"so it is")
    assert take(a, 1) == [b"so it is"]


def test_what_the_old_address_had_received_is_not_lost(opened: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = opened.pair()
    a.send("b", b"known by now")
    take(b, 1)
    eventually(lambda: not a.stats().peers["b"].pending_messages)
    monkeypatch.setattr(b._engine, "_read", lambda now: False)  # it comes too late for what the old socket has
    a.send("b", b"in the old socket")
    crash(a)  # so it will not be sent again
    b.rebind("127.0.0.1:0")
    assert take(b, 1) == [b"in the old socket"]


def test_counts_survive_a_move(opened: Opener) -> None:
    a = opened("a")
    a.register("b", "127.0.0.1:1")
    a._engine.udp.dropped["EPERM"] = 7
    a.rebind("127.0.0.1:0")
    assert a.stats().dropped == {"send EPERM": 7}


# ── events ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_no_events(opened: Opener) -> None:
    a = opened("a")
    assert list(a.events(timeout=0)) == []
    assert list(a.events(timeout=0.01)) == []
    assert not a._watchers


def test_a_restarted_peer_is_reported_with_what_it_may_have_lost(opened: Opener) -> None:
    a, b = opened.pair()
    a.send("b", b"arrives")
    take(b, 1)
    eventually(lambda: not a.stats().peers["b"].pending_messages)
    crash(b)
    for message in (b"1", b"2"):
        a.send("b", message)
    eventually(lambda: a.stats().peers["b"].in_flight)
    reborn = opened("b", bind=at(b))
    event = next(a.events(timeout=PATIENCE))
    assert isinstance(event, PeerRestarted)
    assert (event.peer, sorted(event.unknown)) == ("b", [b"1", b"2"])
    a.send("b", b"to the new one")
    assert take(reborn, 1) == [b"to the new one"]
    assert a.stats().messages_unknown == 2


def test_an_unreachable_peer_is_reported_once_and_not_given_up(opened: Opener) -> None:
    a = opened("a", options=Options(unreachable_after=0.02))
    a.register("b", opened.silent())
    a.send("b", b"patience")
    event = next(a.events(timeout=PATIENCE))
    assert isinstance(event, PeerUnreachable)
    assert event.peer == "b"
    assert event.seconds >= 0.02
    b = opened("b")
    a.register("b", at(b))
    assert take(b, 1) == [b"patience"]
    assert list(a.events(timeout=0)) == []


def test_two_nodes_with_one_id_are_reported(opened: Opener) -> None:
    c = opened("c")
    twins = [opened("twin"), opened("twin")]
    for twin in twins:
        twin.register("c", at(c))
    sent = []
    for number in range(20):
        sent.append(b"%d" % number)
        twins[number % 2].send("c", sent[-1])
        assert take(c, 1) == [sent[-1]]
    duplicates = [event for event in c.events(timeout=0) if isinstance(event, DuplicateId)]
    assert duplicates
    assert duplicates[0].peer == "twin"
    assert set(duplicates[0].addresses) == {twin.address for twin in twins}


def test_old_events_make_room_for_new_ones(opened: Opener) -> None:
    a = opened("a")
    for number in range(1030):
        a._keep_event(PeerUnreachable(f"{number}", 1.0))
    kept = list(a.events(timeout=0))
    assert [event.peer for event in kept] == [f"{number}" for number in range(6, 1030)]


def test_events_go_to_one_watcher_each(opened: Opener) -> None:
    a = opened("a")
    watching = [in_background(lambda: next(a.events())) for _ in range(3)]
    eventually(lambda: len(a._watchers) == 3)
    events = [PeerUnreachable(name, 1.0) for name in ("x", "y", "z")]
    for event in events:
        with a._lock:
            a._keep_event(event)
    assert {future.result(PATIENCE) for future in watching} == set(events)


# ── a bad network ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("seed", range(3))
def test_losing_doubling_and_reordering_changes_nothing(opened: Opener, seed: int) -> None:
    bad = lossy(0.2, duplicate=0.1, reorder=0.1, seed=seed)
    a, b = opened("a", socket=bad), opened("b", socket=bad)
    a.register("b", at(b))
    messages = [b"%d " % number + bytes(number % 700) for number in range(2000)]
    sending = in_background(send_all, a, "b", messages)
    assert Counter(take(b, 2000)) == Counter(messages)
    sending.result(PATIENCE)
    report = a.close(timeout=PATIENCE)  # may find that every confirmation was lost, so it need not be clean
    assert (report.undelivered, report.unknown) == (0, 0)
    with pytest.raises(Timeout):
        b.recv(timeout=0)
