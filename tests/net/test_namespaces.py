"""Two hosts with an Ethernet link between them: network namespaces and a veth pair.

An address really goes away here, and another one comes, while messages flow. The link loses datagrams by a rule of the
kernel's packet filter where there is one, else in front of the sockets. Offloads are switched off where ``ethtool`` is
there, because with them one loss would take a whole train of datagrams.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.net.processes import Process, Processes
from tests.net.test_processes import EXACTLY_ONCE

LOSS = 5  # per cent
COUNT = 20_000


def run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"


class Host:
    """A network namespace with one interface."""

    def __init__(self, name: str, interface: str) -> None:
        self.prefix = ("ip", "netns", "exec", name)
        self.filters = False
        self._name = name
        self._interface = interface

    def ip(self, *arguments: str) -> None:
        run("ip", "-n", self._name, *arguments)

    def set_up(self, address: str) -> None:
        self.ip("link", "set", "lo", "up")
        self.ip("link", "set", self._interface, "up")
        self.gain(address)
        if shutil.which("ethtool"):
            off = ("tso", "off", "gso", "off", "gro", "off", "tx-udp-segmentation", "off")
            run(*self.prefix, "ethtool", "-K", self._interface, *off)

    def gain(self, address: str) -> None:
        self.ip("address", "add", f"{address}/24", "dev", self._interface)

    def lose(self, address: str) -> None:
        self.ip("address", "delete", f"{address}/24", "dev", self._interface)

    def drop_at_random(self) -> None:
        """Lose what arrives, before anything else in this namespace sees it."""
        rules = f"""
            table inet bad {{
                chain arriving {{
                    type filter hook input priority 0;
                    meta l4proto udp numgen random mod 100 < {LOSS} counter drop
                }}
            }}"""
        done = subprocess.run(
            [*self.prefix, "nft", "-f", "-"], input=rules, capture_output=True, text=True, timeout=30, check=False
        )
        self.filters = done.returncode == 0

    def dropped(self) -> int:
        """How many datagrams the rule dropped."""
        listed = subprocess.run(
            [*self.prefix, "nft", "list", "table", "inet", "bad"],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
        return int(listed.stdout.split("counter packets ")[1].split()[0])


@pytest.fixture
def hosts() -> Iterator[tuple[Host, Host]]:
    """Two hosts, 10.77.0.1 and 10.77.0.2, that nothing else can reach."""
    if os.geteuid():
        pytest.skip("needs root, to make network namespaces")
    if not shutil.which("ip"):
        pytest.skip("needs the command ip (package iproute2)")
    with ExitStack() as stack:
        names = [f"exon-{os.getpid()}-{side}" for side in "ab"]
        interfaces = [f"ex{os.getpid() % 1_000_000}{side}" for side in "ab"]
        for name in names:
            made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, timeout=30, check=False)
            if made.returncode:
                pytest.skip(f"not allowed to make network namespaces: {made.stderr.strip()}")
            stack.callback(run, "ip", "netns", "delete", name)
        ends = [["name", interface, "netns", name] for interface, name in zip(interfaces, names, strict=True)]
        run("ip", "link", "add", *ends[0], "type", "veth", "peer", *ends[1])
        both = Host(names[0], interfaces[0]), Host(names[1], interfaces[1])
        for host, address in zip(both, ("10.77.0.1", "10.77.0.2"), strict=True):
            host.set_up(address)
            if shutil.which("nft"):
                host.drop_at_random()
        yield both


def replace(host: Host, process: Process, old: str, new: str) -> None:
    """Take a host's address away, give it another, and have its endpoint move there."""
    host.lose(old)
    host.gain(new)
    process.tell(f"{new}:0")


@pytest.mark.root
def test_addresses_that_go_away_and_come(hosts: tuple[Host, Host], tmp_path: Path) -> None:
    loss = 0 if all(host.filters for host in hosts) else LOSS / 100
    common: list[object] = ["--folder", tmp_path, "--count", COUNT, "--ahead", 1000, "--loss", loss]
    with Processes() as processes:
        receiver = processes.start(
            *("receive", "--id", "bob", "--mark", 3 * COUNT // 4, "--bind", "10.77.0.2:0"),
            *common,
            prefix=hosts[1].prefix,
        )
        sender = processes.start(
            *("send", "--id", "alice", "--peer", "bob", "--mark", COUNT // 4, "--bind", "10.77.0.1:0"),
            *common,
            prefix=hosts[0].prefix,
        )
        # With at most 1000 messages on the way, all the rest has to follow after the moves.
        assert sender.said() == {"done": COUNT // 4}
        replace(hosts[0], sender, "10.77.0.1", "10.77.0.3")
        assert receiver.said() == {"done": 3 * COUNT // 4}
        replace(hosts[1], receiver, "10.77.0.2", "10.77.0.4")
        sent, received = sender.finish(), receiver.finish()
    assert (sent["undelivered"], sent["unknown"]) == (0, 0), sent["why"]
    assert received["distinct"] == COUNT
    assert {name: received[name] for name in EXACTLY_ONCE} == EXACTLY_ONCE
    assert sent["stats"]["moves"] >= 1  # bob's
    assert received["stats"]["moves"] >= 1  # alice's
    if not loss:
        assert all(host.dropped() > 0 for host in hosts)
