"""Runs are as long as fits, and never empty."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from a3m.core import Core
from a3m.flow import Outgoing
from a3m.messages import DATA
from a3m.payload import size_of
from a3m.runs import _ITEM, run_length
from a3m.simulation import WOULD_BLOCK, PullSocket, PushSocket, Step, Topology

PLAIN = st.integers(0, 400).map(bytes)
PARTS = st.lists(PLAIN, min_size=2, max_size=4)


def cost(items: list[Any]) -> int:
    return sum(map(size_of, items)) + _ITEM * len(items)


@given(st.lists(PLAIN, min_size=1, max_size=60), st.integers(1, 5000))
def test_a_run_of_plain_messages(queue: list[bytes], most: int) -> None:
    length = run_length(Outgoing(queue=list(queue)), most)
    assert 1 <= length <= len(queue)
    assert length == 1 or cost(queue[:length]) <= most


@given(st.lists(PLAIN | PARTS, min_size=1, max_size=60), st.integers(1, 5000))
def test_a_run_of_any_messages_is_the_longest_that_fits(queue: list[Any], most: int) -> None:
    length = run_length(Outgoing(queue=list(queue), mixed=True), most)
    assert length == 1 or cost(queue[:length]) <= most
    assert length == len(queue) or cost(queue[: length + 1]) > most


@given(st.integers(0, 300), st.integers(1, 200), st.integers(1, 5000))
def test_a_run_of_messages_of_one_size_is_the_longest_that_fits(size: int, number: int, most: int) -> None:
    queue = [bytes(size)] * number
    length = run_length(Outgoing(queue=list(queue)), most)
    assert length == 1 or cost(queue[:length]) <= most
    assert length == number or cost(queue[: length + 1]) > most


def test_a_run_has_no_more_messages_than_a_receiver_takes_at_a_time() -> None:
    assert run_length(Outgoing(queue=[b""] * 10_000), 10**9) == 4096


@pytest.mark.parametrize(("latency", "size"), [(0.005, 10), (0.005, 1000), (0.00002, 10), (0.00002, 1000)])
def test_a_run_is_one_datagram_long_except_on_a_short_path(latency: float, size: int) -> None:
    net = Topology(seed=1, latency=latency, jitter=0.0, mtu=1472)
    taken: list[bytes] = []

    def consumer(core: Core) -> Step:
        pull = PullSocket(core, "in")

        def step() -> bool:
            taken.append(pull.try_receive())
            return taken[-1] is not WOULD_BLOCK or taken.pop() is None

        return step

    def producer(core: Core) -> Step:
        push = PushSocket(core, "out")
        push.link("consumer/in")
        sent = 0

        def step() -> bool:
            nonlocal sent
            before = sent
            while sent < 5000 and push.try_send(push.prepare(b"%04d" % sent + bytes(size - 4))) is not WOULD_BLOCK:
                sent += 1
            return sent > before

        return step

    net.start("consumer", consumer)
    net.start("producer", producer)
    net.run(until=30.0)
    assert [int(message[:4]) for message in taken] == list(range(5000))
    stats = net["producer"].node.stats()
    runs = stats.messages_sent
    if latency > 0.001:
        assert stats.tokens_sent - stats.retransmissions <= 1.05 * runs, "hardly any run was cut"
        assert runs < 1.2 * 5000 / max(1, 1150 // (size + _ITEM))
    else:
        assert stats.tokens_sent > 2 * runs, "many runs are longer than a datagram"


def test_a_large_message_is_written_once_however_long_it_has_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Topology(seed=1, latency=0.005)
    large = bytes(3 << 20)  # two of them are more than the transport takes at a time
    taken: list[bytes] = []
    written: list[Any] = []

    def consumer(core: Core) -> Step:
        pull = PullSocket(core, "in")

        def step() -> bool:
            message = pull.try_receive()
            if message is not WOULD_BLOCK:
                taken.append(message)
            return message is not WOULD_BLOCK

        return step

    def producer(core: Core) -> Step:
        push = PushSocket(core, "out")
        push.link("b/in")
        waiting = [large] * 3
        return lambda: bool(waiting) and push.try_send(waiting[-1]) is not WOULD_BLOCK and bool(waiting.pop())

    net.start("b", consumer)
    net.start("a", producer)
    real = msgpack.packb

    def packb(body: Any) -> bytes:
        if body[0] == DATA:
            written.append(body)
        packed: bytes = real(body)
        return packed

    monkeypatch.setattr("a3m.core.msgpack.packb", packb)
    net.run(net.now + 60)
    assert taken == [large] * 3
    assert len(written) == 3
