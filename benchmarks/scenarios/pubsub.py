"""PUB to several SUBs on loopback, each in a process of its own.

The publisher publishes as fast as it is allowed to for a while. What counts is what a subscriber received, by its own
clock, from the publisher's beginning to its last message; pyzmq drops what a subscriber is too slow for, and that is
counted.
"""

from __future__ import annotations

from statistics import mean
from time import monotonic, sleep
from typing import Any

from benchmarks.harness import Crew, Desk
from benchmarks.peers import find
from benchmarks.scenario import Case, Scenario, Settings

SUBSCRIBERS = 3
_WARM, _DATA, _END = b"w", b"d", b"e"


def be_publisher(desk: Desk, library: str, size: int, seconds: float) -> None:
    """Publishes until everyone is there, then for a while, then the end until everyone has it."""
    address, publish = find(library).publish()
    desk.tell(address)
    publish_until_told(desk, publish, _WARM)
    message = _DATA + bytes(size - 1)
    begin = now = monotonic()
    sent = 0
    while now < begin + seconds:
        for _ in range(100):
            publish(message)
        sent += 100
        now = monotonic()
    desk.tell((begin, now - begin, sent))
    publish_until_told(desk, publish, _END)
    desk.report(None)


def publish_until_told(desk: Desk, publish: Any, message: bytes) -> None:
    """Now and then, so that it is not lost among many."""
    while not desk.is_told():
        publish(message)
        sleep(0.01)
    desk.hear()


def be_subscriber(desk: Desk, library: str, name: str) -> None:
    """Counts messages until the end."""
    recv = find(library).subscribe(desk.hear(), name)
    recv()
    desk.tell("there")
    count = 0
    last = 0.0
    while (message := recv()) != _END:
        if message[:1] == _DATA:
            count += 1
            if count % 16 == 0:
                last = monotonic()
    desk.report((count, last or monotonic()))


def _measure(case: Case, library: str, settings: Settings, _run: int) -> dict[str, Any]:
    with Crew() as crew:
        publisher = crew.start(be_publisher, library, case["bytes"], settings.seconds)
        subscribers = [crew.start(be_subscriber, library, f"client{number}") for number in range(SUBSCRIBERS)]
        address = publisher.hear()
        for subscriber in subscribers:
            subscriber.tell(address)
        for subscriber in subscribers:
            subscriber.hear()
        publisher.tell("go")
        begin, took, sent = publisher.hear()
        received = [subscriber.hear() for subscriber in subscribers]
        publisher.tell("stop")
        return {
            "rate": mean(count / (last - begin) for count, last in received),
            "published_rate": sent / took,
            "dropped_per_cent": 100 * (1 - mean(count for count, _ in received) / sent),
        }


PUB_SUB = Scenario(
    name="pubsub",
    title=f"PUB to {SUBSCRIBERS} SUBs, loopback, received by each",
    cases=({"bytes": 100},),
    short=({"bytes": 100},),
    libraries=("a3m", "pyzmq"),
    measure=_measure,
    also=("published_rate", "dropped_per_cent"),
)
