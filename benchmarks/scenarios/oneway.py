"""One-way: PUSH to PULL, from one process to another.

The sender sends as fast as it is allowed to until it is killed; the receiver counts what arrives in a window after the
warm-up. So what only sits in a queue does not count as sent, and slow and fast libraries take the same time. The clock
is read once for a chunk of messages, because for the fastest it would be seen.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat
from time import monotonic
from typing import Any

from benchmarks.harness import PATIENCE, Crew, Desk, Place, Window, Worker
from benchmarks.peers import Sender, default_congestion_control, find
from benchmarks.scenario import Case, Scenario, Settings

BATCH = 1000  # messages for send_many(), and at the most for recv_many()
BATCH_BYTES = 1_000_000


def batch_of(size: int) -> int:
    """Messages in one call."""
    return max(1, min(BATCH, BATCH_BYTES // size))


def send_for_ever(sender: Sender, size: int) -> None:
    """Until killed."""
    message = bytes(size)
    if sender.send_many is not None:
        batch = [message] * batch_of(size)
        for send_many in repeat(sender.send_many):
            send_many(batch)
    for send in repeat(sender.send):
        send(message)


def be_sender(desk: Desk, library: str, source: str, size: int) -> None:
    """Sends until killed, to the address that it is told."""
    peer = find(library, source)
    sender = peer.push(desk.hear())
    desk.tell("sending")
    send_for_ever(sender, size)


def be_receiver(desk: Desk, library: str, address: str, size: int, warm_up: float, seconds: float) -> None:
    """Counts what arrives in the window."""
    receiver = find(library, address).pull()
    recv, recv_many = receiver.recv, receiver.recv_many
    chunk = max(1, min(100, 10_000 // size))

    def receive_some() -> int:
        if recv_many is not None:
            return len(recv_many(BATCH))
        for _ in range(chunk):
            recv()
        return chunk

    desk.tell(receiver.address)
    report_rate(desk, receive_some, warm_up, seconds)


def report_rate(desk: Desk, receive_some: Callable[[], int], warm_up: float, seconds: float) -> None:
    """Receive until the window is over, say when it begins, and report how much came in it."""
    receive_some()  # the first have the time that they need
    window = Window.after(warm_up, seconds)
    count = 0
    begin = 0.0
    while True:  # at least once after the window has begun
        count += receive_some()
        now = monotonic()
        if begin and now >= window.end:
            break
        if not begin and now >= window.begin:
            begin, count = now, 0
            desk.tell("begin")
    desk.report({"rate": count / (now - begin), "messages": count, "seconds": now - begin})


def measure_between(
    places: tuple[Place, Place], library: str, size: int, warm_up: float, seconds: float
) -> dict[str, Any]:
    """One run between two places."""
    with Crew() as crew:
        near, far = places
        receiver = crew.start(be_receiver, library, far.address, size, warm_up, seconds, place=far)
        sender = crew.start(be_sender, library, near.address, size, place=near)
        return measure_between_workers(sender, receiver, size)


def measure_between_workers(sender: Worker, receiver: Worker, size: int, patience: float = PATIENCE) -> dict[str, Any]:
    """One run of workers that talk like those above, and the processor time of each for a message."""
    sender.tell(receiver.hear(patience))
    sender.hear(patience)
    receiver.hear()
    used = -sender.cpu(), -receiver.cpu()
    result: dict[str, Any] = receiver.hear()
    per_message = 1e6 / max(1, result["messages"])
    result["sender_cpu_us"] = (used[0] + sender.cpu()) * per_message
    result["receiver_cpu_us"] = (used[1] + receiver.cpu()) * per_message
    result["mbit_per_s"] = result["rate"] * size * 8 / 1e6
    return result


def _measure(case: Case, library: str, settings: Settings, _run: int) -> dict[str, Any]:
    here = Place()
    return measure_between((here, here), library, case["bytes"], settings.warm_up, settings.seconds)


ONE_WAY = Scenario(
    name="oneway",
    title="one way, PUSH to PULL, loopback, two processes",
    cases=tuple({"bytes": size} for size in (1, 10, 100, 500, 1000, 10_000, 1_000_000)),
    short=tuple({"bytes": size} for size in (1, 100, 1000, 10_000)),
    libraries=("a3m", "a3m-many", "a3m-1400", "pyzmq", "pynng", f"tcp-{default_congestion_control()}"),
    measure=_measure,
    x="bytes",
    also=("sender_cpu_us", "receiver_cpu_us"),
)
