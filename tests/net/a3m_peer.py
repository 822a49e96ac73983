"""A node with sockets in a process of its own: ``python -m tests.net.a3m_peer push|pull ...``.

The node ``server`` has one PULL socket. The node ``client`` has a PUSH socket for each link, and sends to them in turn.
Like :mod:`tests.net.peer` it talks to the test in lines of JSON: where it is, where it is after a move, and at the end
what it saw. A line of its standard input is ``on``, ``count``, or an address to move to.

The server says so after every ``--step`` messages, and then takes more only with a permit, of which every ``on`` is
one. So the test decides how far the work may come before something else happens, however slow the machine is.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from threading import Event, Semaphore, Thread
from typing import Any

import a3m
from exon.addresses import format_address
from tests.net.peer import PATIENCE, payload, say


class Peer:
    """What both roles have: a node that obeys the test, and counts what happens to it."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.events: Counter[str] = Counter()
        self.done = 0
        self.permits = Semaphore(arguments.permits)
        self.dismissed = Event()
        self.node = a3m.Node(
            "client" if arguments.role == "push" else "server",
            bind=arguments.bind,
            options=a3m.Options(unreachable_after=arguments.unreachable_after),
        )
        say(at=format_address(self.node.address))
        self._watcher = Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def obey(self) -> None:
        """Do what the test says until it has nothing more to say."""
        for line in sys.stdin:
            match line.strip():
                case "on":
                    self.permits.release()
                case "count":
                    say(count={"done": self.done, "events": self.events})
                case address:
                    self.node.rebind(address)
                    say(at=format_address(self.node.address))
        self.dismissed.set()
        self.permits.release(self.arguments.count)  # nobody is left to give them

    def close(self) -> dict[str, Any]:
        report = self.node.close(timeout=PATIENCE)
        self._watcher.join(PATIENCE)
        stats = self.node.stats()
        return {
            "undelivered": report.undelivered,
            "unknown": report.unknown + stats.unknown,
            "why": dict(report.peers),
            "events": self.events,
            "dropped": dict(stats.dropped),
            "retransmissions": stats.transport.retransmissions,
        }

    def _watch(self) -> None:
        for event in self.node.events():
            self.events[event.kind] += 1


def push(peer: Peer) -> dict[str, Any]:
    arguments = peer.arguments
    peer.node.register("server", arguments.server)
    sockets = [peer.node.push(f"jobs-{link}") for link in range(arguments.links)]
    for socket in sockets:
        socket.link("server/worker")
    for number in range(arguments.count):
        for link, socket in enumerate(sockets):
            socket.send([b"%d" % link, payload(number, arguments.size)], timeout=PATIENCE)
            peer.done += 1
    return peer.close()


def pull(peer: Peer) -> dict[str, Any]:
    arguments = peer.arguments
    socket = peer.node.pull("worker", capacity=arguments.capacity)
    seen: Counter[tuple[int, int]] = Counter()
    latest = [-1] * arguments.links
    damaged = disordered = 0
    for name, message in socket:  # until the client has closed its links
        link, number = int(name), int(message[: message.index(b" ")])
        damaged += message != payload(number, arguments.size)
        disordered += number != latest[link] + 1
        latest[link] = number
        seen[link, number] += 1
        peer.done += 1
        if not peer.done % arguments.step:
            say(taken=peer.done)
            peer.permits.acquire()
    peer.dismissed.wait(PATIENCE)  # a message that comes after the end would come until then
    expected = {(link, number) for link in range(arguments.links) for number in range(arguments.count)}
    return {
        "distinct": len(seen),
        "missing": len(expected - seen.keys()),
        "twice": sum(times > 1 for times in seen.values()),
        "strange": len(seen.keys() - expected),
        "late": socket.stats().queued,
        "damaged": damaged,
        "disordered": disordered,
        **peer.close(),
    }


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=["push", "pull"])
    parser.add_argument("--bind", required=True)
    parser.add_argument("--server", default="", help="where the server is at first; nobody says where it is later")
    parser.add_argument("--links", type=int, required=True)
    parser.add_argument("--count", type=int, required=True, help="messages on each link")
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--capacity", type=int, required=True, help="messages on the way on each link at the most")
    parser.add_argument("--step", type=int, required=True, help="messages for a permit")
    parser.add_argument("--permits", type=int, required=True, help="permits at the start, after the first step")
    parser.add_argument("--unreachable-after", type=float, required=True)
    return parser.parse_args()


def main() -> None:
    peer = Peer(parse())
    Thread(target=peer.obey, daemon=True).start()
    say(**(push if peer.arguments.role == "push" else pull)(peer))


if __name__ == "__main__":
    main()
