"""One endpoint in a process of its own: ``python -m tests.net.peer send|receive ...``; see :mod:`tests.net.processes`.

It talks to the test in lines of JSON: where it is, how far it has come if asked with ``--mark``, and at the end what it
saw. Each line of its standard input is an address to move to. A receiver goes on until its standard input ends, so that
a message that comes twice is counted however late it comes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

from exon import Endpoint, Options
from exon.addresses import format_address
from exon.simulation.lossy import lossy

PATIENCE = 120.0


class Folder:
    """A discovery service for a few processes: one file for each node, with its address."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def publish(self, endpoint: Endpoint) -> None:
        fresh = self.path / f".{endpoint.id}"
        fresh.write_text(format_address(endpoint.address))
        fresh.replace(self.path / endpoint.id)

    def lookup(self, node_id: str, /) -> str | None:
        try:
            return (self.path / node_id).read_text()
        except FileNotFoundError:
            return None


def payload(number: int, size: int) -> bytes:
    """Message ``number``: its own name, and as many bytes more as make it about ``size`` long, all checkable."""
    name = b"%d " % number
    more = max(0, size - len(name)) * (number % 3) // 2 if size < 1 << 20 else size - len(name)
    pattern = bytes((number + index) % 251 for index in range(251))
    return name + (pattern * (more // 251 + 1))[:more]


def say(**facts: Any) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def obey(endpoint: Endpoint, folder: Folder, role: str) -> None:
    """Move where the test says."""
    for line in sys.stdin:
        endpoint.rebind(line.strip())
        folder.publish(endpoint)
    if role == "receive":
        endpoint.close(timeout=10)


class Mover:
    """Rebinds an endpoint, or says so, when the work has come so far."""

    def __init__(self, endpoint: Endpoint, folder: Folder, binds: list[str], count: int, mark: int) -> None:
        self.moved = 0
        self._mark = mark
        self._endpoint = endpoint
        self._folder = folder
        self._binds = binds
        self._step = max(1, count // (len(binds) + 1))
        self._next = self._step

    def at(self, done: int) -> None:
        if done == self._mark:
            say(done=done)
        if self._binds and done >= self._next:
            self._next += self._step
            self._endpoint.rebind(self._binds.pop(0))
            self._folder.publish(self._endpoint)
            self.moved += 1


def send(endpoint: Endpoint, arguments: argparse.Namespace, mover: Mover) -> dict[str, Any]:
    for number in range(arguments.count):
        endpoint.send(arguments.peer, payload(number, arguments.size), timeout=PATIENCE)
        mover.at(number + 1)
    report = endpoint.close(timeout=PATIENCE)
    return {"clean": report.clean, "undelivered": report.undelivered, "unknown": report.unknown, "why": report.peers}


def receive(endpoint: Endpoint, arguments: argparse.Namespace, mover: Mover) -> dict[str, Any]:
    seen: Counter[int] = Counter()
    damaged = 0
    for done, (_, message) in enumerate(endpoint, 1):
        number = int(message[: message.index(b" ")])
        damaged += message != payload(number, arguments.size)
        seen[number] += 1
        mover.at(done)
    return {
        "distinct": len(seen),
        "missing": sum(number not in seen for number in range(arguments.count)),
        "twice": sum(times > 1 for times in seen.values()),
        "strange": sum(not 0 <= number < arguments.count for number in seen),
        "damaged": damaged,
    }


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=["send", "receive"])
    parser.add_argument("--id", required=True)
    parser.add_argument("--peer", default="")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--bind", nargs="+", default=["127.0.0.1:0"], help="the first, then where to move to")
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--size", type=int, default=200)
    parser.add_argument("--loss", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mark", type=int, default=-1, help="say when so many messages are done")
    parser.add_argument("--ahead", type=int, default=65536, help="messages on the way at the most")
    return parser.parse_args()


def main() -> Iterator[dict[str, Any]]:
    arguments = parse()
    folder = Folder(arguments.folder)
    endpoint = Endpoint(
        arguments.id,
        bind=arguments.bind[0],
        discovery=folder,
        options=Options(unreachable_after=0.5, send_messages=arguments.ahead),
        socket=lossy(arguments.loss, seed=arguments.seed),
    )
    folder.publish(endpoint)
    yield {"at": format_address(endpoint.address)}
    Thread(target=obey, args=(endpoint, folder, arguments.role), daemon=True).start()
    mover = Mover(endpoint, folder, arguments.bind[1:], arguments.count, arguments.mark)
    result = (send if arguments.role == "send" else receive)(endpoint, arguments, mover)
    stats = endpoint.stats()
    yield {**result, "moved": mover.moved, "stats": {**stats.as_dict(), "peers": {}}}


if __name__ == "__main__":
    for facts in main():
        say(**facts)
