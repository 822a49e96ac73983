"""The process between the two hosts: makes the namespaces and devices, then carries packets until its input ends.

Started by :class:`benchmarks.wan.hosts.Wan`, which talks to it in lines of JSON over its standard input and output.

Nothing has to be cleaned up. A namespace without a name lives as long as somebody has it open or runs in it, and a TUN
device as long as its file; both end with this process, however it ends. And this process ends with its input: when
whoever started it closes that, or crashes.
"""

from __future__ import annotations

import gc
import json
import os
import select
import subprocess
import sys
from contextlib import suppress
from time import monotonic, sleep
from typing import Any

from attrs import define

from benchmarks.wan.channel import Channel, Conditions
from benchmarks.wan.kernel import enter_namespace, new_namespace, open_tun, wait_precisely

MTU = 1500
DEVICE = "wan0"

_BATCH = 64  # packets read from one side before looking at the time and at the other side again
_DEVICE_QUEUE = 10_000  # packets; the device's usual 500 would be a second queue, with drops that nobody ordered
_LATE = 0.001
_MODERATION = 0.00025  # seconds between two looks, when packets keep coming


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, timeout=30, check=False)
    if done.returncode:
        raise OSError(done.returncode, f"ip {' '.join(arguments)}: {done.stderr.strip()}")


@define
class Side:
    """One host, as the router sees it."""

    namespace: int
    device: int

    @classmethod
    def make(cls, address: str) -> Side:
        """A new namespace with one device, open for us; this process is in the namespace afterwards."""
        namespace = new_namespace()
        # Neighbour discovery and the like would be in the way of what is measured.
        with suppress(OSError), open("/proc/sys/net/ipv6/conf/default/disable_ipv6", "w", encoding="ascii") as file:
            file.write("1")
        device = open_tun(DEVICE)
        _ip("link", "set", "lo", "up")
        _ip("link", "set", DEVICE, "mtu", str(MTU), "txqueuelen", str(_DEVICE_QUEUE), "up")
        _ip("address", "add", f"{address}/24", "dev", DEVICE)
        return cls(namespace, device)

    def dropped_by_device(self) -> int:
        """Packets that we never saw because we did not read them fast enough."""
        enter_namespace(self.namespace)
        with open("/proc/thread-self/net/dev", encoding="ascii") as file:
            for line in file:
                name, _, figures = line.partition(":")
                if name.strip() == DEVICE:
                    return int(figures.split()[11])
        return 0


class Router:
    """Carries packets between two sides until told to stop."""

    def __init__(self, sides: tuple[Side, Side], channels: tuple[Channel, Channel]) -> None:
        self._sides = sides
        self._channels = channels
        self._routes = [
            (sides[0].device, channels[0], sides[1].device),
            (sides[1].device, channels[1], sides[0].device),
        ]
        self._rounds = 0
        self._late = 0
        self._latest = 0.0
        self._lateness = 0.0
        self._refused = 0

    def run(self, control: int) -> None:
        """Until the control input ends."""
        devices = [side.device for side in self._sides]
        while True:
            due = min(channel.due for channel in self._channels)
            # select() rather than epoll, which counts in milliseconds here.
            timeout = None if due == float("inf") else max(0.0, due - monotonic())
            readable, _, _ = select.select([*devices, control], [], [], timeout)
            begun = monotonic()
            for source, channel, _ in self._routes:
                if source in readable:
                    self._read(source, channel)
            if control in readable and not self._obey(control):
                return
            for _, channel, destination in self._routes:
                now = monotonic()
                if channel.due <= now:
                    self._note_lateness(now - channel.due)
                    for packet in channel.take(now):
                        self._write(destination, packet)
            self._rest(begun)

    @staticmethod
    def _rest(begun: float) -> None:
        """Let packets gather, as a network card does that interrupts its host some thousand times a second at most.

        Looking at every packet when it comes would take most of a core, and make both hosts do the same, so that a
        machine with two of them would measure the emulation. The first packet after a pause is not delayed.
        """
        if (early := begun + _MODERATION - monotonic()) > 0:
            sleep(early)

    @staticmethod
    def _read(device: int, channel: Channel) -> None:
        now = monotonic()
        with suppress(BlockingIOError):
            for _ in range(_BATCH):
                channel.put(os.read(device, MTU), now)

    def _write(self, device: int, packet: bytes) -> None:
        try:
            os.write(device, packet)
        except OSError:  # the host has taken its device down: it is not there
            self._refused += 1

    def _note_lateness(self, seconds: float) -> None:
        self._rounds += 1
        self._lateness += seconds
        self._latest = max(self._latest, seconds)
        self._late += seconds > _LATE

    def _obey(self, control: int) -> bool:
        line = os.read(control, 65536)
        if not line:
            return False
        for side, conditions in json.loads(line).items():
            self._channels[side == "back"].change(Conditions(**conditions))
        say(self.statistics())
        return True

    def statistics(self) -> dict[str, Any]:
        """What happened to packets, and how punctual we were."""
        return {
            "there": self._channels[0].as_dict(),
            "back": self._channels[1].as_dict(),
            "dropped_by_device": sum(side.dropped_by_device() for side in self._sides),
            "refused_by_device": self._refused,
            "rounds": self._rounds,
            "late_ms_mean": round(1000 * self._lateness / max(1, self._rounds), 3),
            "late_ms_worst": round(1000 * self._latest, 3),
            "rounds_late_by_1_ms": self._late,
            "cpu_seconds": round(sum(os.times()[:2]), 3),
        }


def say(facts: dict[str, Any]) -> None:
    """One line to whoever started us."""
    os.write(1, json.dumps(facts).encode() + b"\n")


def main() -> int:
    """Make the path, say where it is, and carry packets. The argument is JSON: addresses, there, back, seed."""
    given = json.loads(sys.argv[1])
    channels = (
        Channel(Conditions(**given["there"]), given["seed"]),
        Channel(Conditions(**given["back"]), given["seed"] + 1),
    )
    try:
        near, far = (Side.make(address) for address in given["addresses"])
    except OSError as error:
        say({"error": str(error)})
        return 1
    # Punctuality: waits to the microsecond instead of 50 more, ahead of the processes that are measured (also if those
    # run with "chrt --rr 1", as on a machine that does other things, too), no pauses.
    wait_precisely()
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(2))
    gc.freeze()
    gc.disable()
    say({"pid": os.getpid(), "namespaces": [near.namespace, far.namespace]})
    with suppress(KeyboardInterrupt):
        Router((near, far), channels).run(control=0)
    return 0


if __name__ == "__main__":
    sys.exit(main())
