"""One node with very many sockets and links: the work is proportional to their number, and an idle link is small.

Work is counted in calls of functions, Python's and C's, not in seconds.
"""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from a3m.core import Core
from a3m.patterns import PullSocket, PushSocket
from a3m.simulation import Step, Topology
from a3m.socket import Socket

FEW, MANY = 2_000, 10_000
MOST_PER_LINK = 25 * 1024  # bytes, at both ends together


class Star:
    """A node with many links to another, each of a socket of its own or all of one."""

    def __init__(self, number: int, *, own_sockets: bool) -> None:
        self.number = number
        self.own_sockets = own_sockets
        self.net = Topology(seed=1, latency=0.001)
        self.pushes: list[Socket] = []
        self.pulls: list[Socket] = []

    def create(self) -> None:
        self.net.start("there", self._start(PullSocket, self.pulls, self.number))
        self.net.start("here", self._start(PushSocket, self.pushes, self.number if self.own_sockets else 1))

    @staticmethod
    def _start(pattern: type[Socket], sockets: list[Socket], number: int) -> Callable[[Core], Step]:
        def application(core: Core) -> Step:
            sockets.extend(pattern(core, f"{n}") for n in range(number))
            return lambda: False

        return application

    def link(self) -> None:
        for number in range(self.number):
            self.pushes[number if self.own_sockets else 0].link(f"there/{number}")
        self._let_it_happen()
        assert sum(link.established for pull in self.pulls for link in pull._links.values()) == self.number

    def close(self) -> None:
        for socket in (*self.pushes, *self.pulls):
            socket.begin_close()
        self._let_it_happen()
        assert not any(core.sockets for core in self.net.cores.values())

    def _let_it_happen(self) -> None:
        self.net.act("here", lambda: None)
        self.net.act("there", lambda: None)
        self.net.run(self.net.now + 4)


def count_calls(action: Callable[[], None]) -> int:
    calls = 0

    def profile(_: FrameType, event: str, __: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        action()
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("own_sockets", [True, False])
def test_creating_linking_and_closing_are_linear(own_sockets: bool) -> None:
    costs = []
    for number in (FEW, MANY):
        star = Star(number, own_sockets=own_sockets)
        costs.append([count_calls(action) / number for action in (star.create, star.link, star.close)])
    for few, many in zip(*costs, strict=True):
        assert many < 1.3 * few


def test_an_idle_link_is_small() -> None:
    gc.collect()
    tracemalloc.start()
    try:
        star = Star(FEW, own_sockets=True)
        star.create()
        star.link()
        star.net.run(star.net.now + 60)  # the nodes have forgotten each other
        gc.collect()
        per_link = tracemalloc.get_traced_memory()[0] / FEW
    finally:
        tracemalloc.stop()
    assert per_link < MOST_PER_LINK
