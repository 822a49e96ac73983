"""The bad network in front of a real socket is as bad as it was told to be, and no worse."""

from __future__ import annotations

import select
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from itertools import pairwise

import pytest

from exon.simulation.lossy import LossySocket, lossy
from exon.udp import UdpSocket


class Pair:
    """A bad socket and a good one that hears it."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.good = stack.enter_context(closing(UdpSocket("127.0.0.1:0")))

    def bad(self, loss: float, **arguments: float) -> LossySocket:
        seed = int(arguments.pop("seed", 1))
        return self._stack.enter_context(closing(lossy(loss, seed=seed, **arguments)("127.0.0.1:0")))

    def pass_on(self, bad: LossySocket, count: int) -> list[int]:
        """Send numbers, a few at a time as an engine does; what arrives, in the order of arrival."""
        got: list[int] = []
        for first in range(0, count, 20):
            batch = [(self.good.address, b"%d" % number) for number in range(first, min(count, first + 20))]
            assert bad.send(batch) == len(batch)
            while select.select([self.good], [], [], 0)[0]:
                got += [int(data) for data, _ in self.good.receive()]
        return got


@pytest.fixture
def pair() -> Iterator[Pair]:
    with ExitStack() as stack:
        yield Pair(stack)


def test_no_loss_loses_nothing(pair: Pair) -> None:
    bad = pair.bad(0.0)
    assert pair.pass_on(bad, 1000) == list(range(1000))
    assert (bad.lost, bad.passed) == (0, 1000)


def test_full_loss_loses_everything(pair: Pair) -> None:
    bad = pair.bad(1.0)
    assert pair.pass_on(bad, 100) == []
    assert (bad.lost, bad.passed) == (100, 0)


def test_the_rate_of_loss(pair: Pair) -> None:
    bad = pair.bad(0.2)
    got = pair.pass_on(bad, 5000)
    assert got == sorted(set(got))
    assert len(got) == bad.passed == 5000 - bad.lost
    assert 900 < bad.lost < 1100  # the seed is fixed


def test_the_rate_of_doubling(pair: Pair) -> None:
    bad = pair.bad(0.0, duplicate=0.1)
    times = Counter(Counter(pair.pass_on(bad, 5000)).values())
    assert set(times) == {1, 2}
    assert times.total() == 5000
    assert 425 < times[2] < 575


def test_reordering_delays_and_loses_nothing(pair: Pair) -> None:
    bad = pair.bad(0.0, reorder=0.1)
    got = pair.pass_on(bad, 5000)
    held = set() if bad._held is None else {int(bad._held[1])}
    assert set(got) | held == set(range(5000))
    assert len(got) == 5000 - len(held)
    late = sum(later < earlier for earlier, later in pairwise(got))
    assert 300 < late < 600


def test_a_seed_repeats_the_same_network(pair: Pair) -> None:
    runs = [pair.pass_on(pair.bad(0.3, duplicate=0.1, reorder=0.1, seed=seed), 500) for seed in (7, 7, 8)]
    assert runs[0] == runs[1] != runs[2]


def test_a_move_goes_on_with_the_same_luck(pair: Pair) -> None:
    open_socket = lossy(0.5, seed=3)
    with closing(open_socket("127.0.0.1:0")) as first, closing(open_socket("127.0.0.1:0")) as second:
        halves = pair.pass_on(first, 100), pair.pass_on(second, 100)
    assert halves[0] != halves[1]


def test_what_a_full_kernel_refuses_is_lost(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = pair.bad(0.0)
    monkeypatch.setattr(UdpSocket, "send", lambda self, datagrams: len(datagrams) - 1)
    assert bad.send([(pair.good.address, b"x")] * 5) == 5
    assert bad.lost == 1


def test_what_arrives_is_left_alone(pair: Pair) -> None:
    bad = pair.bad(1.0)
    assert pair.good.send([(bad.address, b"%d" % number) for number in range(50)]) == 50
    got: list[int] = []
    while len(got) < 50:
        assert select.select([bad], [], [], 10)[0]
        got += [int(data) for data, _ in bad.receive()]
    assert got == list(range(50))
