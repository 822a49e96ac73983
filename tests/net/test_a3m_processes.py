"""Sockets on two hosts whose addresses go away, and on a host that cannot be reached for a minute.

The link between the hosts loses datagrams all the while where there is a packet filter; see
:mod:`tests.net.test_namespaces`.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from threading import Timer
from time import monotonic
from typing import Any

import pytest

from tests.net import test_namespaces
from tests.net.processes import PATIENCE, ROOT, Process, Processes
from tests.net.test_namespaces import Host, replace

hosts = test_namespaces.hosts

LINKS = 2
OUTAGE = 60.0  # seconds
EXACTLY_ONCE_IN_ORDER = {"missing": 0, "twice": 0, "strange": 0, "late": 0, "damaged": 0, "disordered": 0}


class SocketProcess(Process):
    """A node with sockets in a process of its own: :mod:`tests.net.a3m_peer`."""

    def __init__(self, arguments: Sequence[object], prefix: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "tests.net.a3m_peer", *map(str, arguments)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._watchdog = Timer(PATIENCE, self._process.kill)
        self._watchdog.start()
        self._unread: list[dict[str, Any]] = []

    def told(self, name: str) -> Any:
        """The next fact of this name. Its threads speak independently, so others may come before it."""
        while not (found := [facts for facts in self._unread if name in facts]):
            self._unread.append(self.said())
        self._unread.remove(found[0])
        return found[0][name]

    def ask(self) -> dict[str, Any]:
        """How far it has come."""
        self.tell("count")
        count: dict[str, Any] = self.told("count")
        return count

    def wait_for(self, kind: str, times: int) -> None:
        """Wait until it has had so many events of a kind."""
        deadline = monotonic() + PATIENCE
        while self.ask()["events"].get(kind, 0) < times:
            assert monotonic() < deadline, f"not {times} times {kind}"

    def run_on(self, seconds: float) -> None:
        """Let it run for so long; it must not end."""
        with pytest.raises(subprocess.TimeoutExpired):
            self._process.wait(seconds)


def start(processes: Processes, hosts: tuple[Host, Host], options: list[object]) -> tuple[SocketProcess, SocketProcess]:
    """Start a server at 10.77.0.2 and a client at 10.77.0.1 that is told where the server is."""
    server = SocketProcess(["pull", "--bind", "10.77.0.2:0", *options], hosts[1].prefix)
    processes.callback(server.end)
    options = ["--server", server.told("at"), *options]
    client = SocketProcess(["push", "--bind", "10.77.0.1:0", *options], hosts[0].prefix)
    processes.callback(client.end)
    client.told("at")
    return server, client


def move(host: Host, process: SocketProcess, old: str, new: str) -> None:
    """Take a host's address away, give it another, and wait until its node is there."""
    replace(host, process, old, new)
    assert process.told("at").startswith(f"{new}:")


def check(sent: dict[str, Any], received: dict[str, Any], count: int) -> None:
    """Every message once and in order, over links that were made once."""
    assert (sent["undelivered"], sent["unknown"]) == (0, 0), sent["why"]
    assert {name: received[name] for name in EXACTLY_ONCE_IN_ORDER} == EXACTLY_ONCE_IN_ORDER
    assert received["distinct"] == LINKS * count
    for facts in (sent, received):
        assert facts["dropped"] == {}
        assert facts["events"]["linked"] == LINKS
        assert "restarted" not in facts["events"]


@pytest.mark.root
def test_links_outlive_the_addresses_of_both_ends(hosts: tuple[Host, Host]) -> None:
    count, step = 25_000, 8_000
    # With one permit in advance messages flow during each move, and no move comes after the last message.
    options: list[object] = ["--links", LINKS, "--count", count, "--size", 200]
    options += ["--capacity", 500, "--step", step, "--permits", 1, "--unreachable-after", 0.5]
    with Processes() as processes:
        server, client = start(processes, hosts, options)
        client_moves = (hosts[0], client, server)
        moves = [
            (*client_moves, 1, "10.77.0.1", "10.77.0.3"),
            (*client_moves, 2, "10.77.0.3", "10.77.0.1"),
            (hosts[1], server, client, 1, "10.77.0.2", "10.77.0.4"),
            (*client_moves, 3, "10.77.0.1", "10.77.0.3"),
            (*client_moves, 4, "10.77.0.3", "10.77.0.1"),
        ]
        for number, (host, mover, other, times, old, new) in enumerate(moves, 1):
            assert server.told("taken") == number * step
            move(host, mover, old, new)
            server.tell("on")
            other.wait_for("moved", times)
        sent, received = client.finish(), server.finish()
    check(sent, received, count)


@pytest.mark.root
@pytest.mark.timeout(200)
def test_a_minute_without_the_server(hosts: tuple[Host, Host]) -> None:
    count, capacity, step = 1_000, 400, 500
    # The server stops after one step, so that what is lost with its address is in the middle of the work.
    options: list[object] = ["--links", LINKS, "--count", count, "--size", 2000]
    options += ["--capacity", capacity, "--step", step, "--permits", 0, "--unreachable-after", 5.0]
    with Processes() as processes:
        server, client = start(processes, hosts, options)
        assert server.told("taken") == step
        before = client.ask()
        hosts[1].lose("10.77.0.2")
        for _ in range(LINKS * count // step):
            server.tell("on")
        client.run_on(OUTAGE)
        after = client.ask()
        hosts[1].gain("10.77.0.2")
        sent, received = client.finish(), server.finish()
    # What the server could not take holds the client back; that is all it notices, besides being told.
    assert before["done"] <= after["done"] <= step + LINKS * capacity < LINKS * count
    assert after["events"].get("unreachable", 0) > before["events"].get("unreachable", 0)
    check(sent, received, count)
