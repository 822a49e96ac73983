"""Many links, idle links, and a gibibyte: A3M in relation to itself.

Both ends of all links are two nodes in two processes. A link is between two sockets, so many links take many sockets at
one end.
"""

from __future__ import annotations

from time import monotonic
from typing import Any

import a3m
from benchmarks.harness import Crew, Desk
from benchmarks.peers import find
from benchmarks.peers.ours import A3m
from benchmarks.scenario import Case, Scenario, Settings
from benchmarks.scenarios.oneway import BATCH, be_sender, measure_between_workers, report_rate

SIZE = 100
_PATIENCE = 600.0  # seconds to make all links


def _link_all(socket_pairs: list[tuple[Any, str]]) -> None:
    """Ask for all of them first, then wait."""
    for socket, peer in socket_pairs:
        socket.link(peer)
    for socket, peer in socket_pairs:
        socket.wait_linked(peer, timeout=_PATIENCE)


# -- many links in use -----------------------------------------------------------------------------------------------


def be_many_pulls(desk: Desk, library: str, links: int, warm_up: float, seconds: float) -> None:
    """As many PULL sockets, all of them read by one thread."""
    peer = find(library)
    assert isinstance(peer, A3m)
    node, address = peer.server()
    poller = a3m.Poller()
    for number in range(links):
        poller.add(node.pull(f"socket{number}"), a3m.POLLIN)
    desk.tell(address)
    report_rate(desk, lambda: sum(len(socket.recv_many(BATCH)) for socket, _ in poller.wait()), warm_up, seconds)


def be_push_to_many(desk: Desk, library: str, links: int) -> None:
    """One PUSH socket with that many links; sends until killed."""
    peer = find(library)
    assert isinstance(peer, A3m)
    push = peer.client(desk.hear()).push("socket")
    _link_all([(push, f"server/socket{number}") for number in range(links)])
    desk.tell("sending")
    message = bytes(SIZE)
    while True:
        push.send(message)


def _links(case: Case, library: str, settings: Settings, _run: int) -> dict[str, Any]:
    with Crew() as crew:
        receiver = crew.start(be_many_pulls, library, case["links"], settings.warm_up, settings.seconds)
        sender = crew.start(be_push_to_many, library, case["links"])
        return measure_between_workers(sender, receiver, SIZE, patience=_PATIENCE)


_CPU = ("sender_cpu_us", "receiver_cpu_us")

LINKS = Scenario(
    name="links",
    title=f"one PUSH with many links, {SIZE} bytes, loopback",
    cases=tuple({"links": links} for links in (1, 10, 100, 1000)),
    short=tuple({"links": links} for links in (1, 1000)),
    libraries=("a3m",),
    measure=_links,
    x="links",
    also=_CPU,
    baseline={"links": 1},
)


# -- idle links ------------------------------------------------------------------------------------------------------


def be_idle_and_sender(desk: Desk, library: str, idle: int) -> None:
    """That many sockets with a link that nothing happens on, and one that sends until killed."""
    peer = find(library)
    assert isinstance(peer, A3m)
    node = peer.client(desk.hear())
    _link_all([(node.push(f"idle{number}"), "server/idle") for number in range(idle)])
    push = node.push("socket")
    _link_all([(push, "server/socket")])
    desk.tell("sending")
    message = bytes(SIZE)
    while True:
        push.send(message)


def be_idle_and_receiver(desk: Desk, library: str, warm_up: float, seconds: float) -> None:
    """One socket for all idle links, and one that receives."""
    peer = find(library)
    assert isinstance(peer, A3m)
    node, address = peer.server()
    node.pull("idle")
    recv = node.pull("socket").recv

    def receive_one() -> int:
        recv()
        return 1

    desk.tell(address)
    report_rate(desk, receive_one, warm_up, seconds)


def _idle(case: Case, library: str, settings: Settings, _run: int) -> dict[str, Any]:
    with Crew() as crew:
        receiver = crew.start(be_idle_and_receiver, library, settings.warm_up, settings.seconds)
        sender = crew.start(be_idle_and_sender, library, case["idle_links"])
        result = measure_between_workers(sender, receiver, SIZE, patience=_PATIENCE)
        result["cpu_us"] = result["sender_cpu_us"] + result["receiver_cpu_us"]
        return result


IDLE_LINKS = Scenario(
    name="idle-links",
    title=f"processor time of both ends per message of {SIZE} bytes, with idle links beside",
    cases=tuple({"idle_links": idle} for idle in (1, 10, 100, 1000, 10_000)),
    short=tuple({"idle_links": idle} for idle in (1, 1000)),
    libraries=("a3m",),
    measure=_idle,
    figure="cpu_us",
    unit="µs/message",
    x="idle_links",
    also=("rate", *_CPU),
    baseline={"idle_links": 1},
)


# -- memory ----------------------------------------------------------------------------------------------------------

_STEPS = 64


def be_counting_receiver(desk: Desk, library: str, messages: int) -> None:
    """Receives that many messages, and says so now and then."""
    receiver = find(library).pull()
    desk.tell(receiver.address)
    recv = receiver.recv
    for _ in range(_STEPS):
        for _ in range(messages // _STEPS):
            recv()
        desk.tell(monotonic())
    desk.report("done")


def _memory(case: Case, library: str, _settings: Settings, _run: int) -> dict[str, Any]:
    messages = case["mib"] * (1 << 20) // case["bytes"]
    with Crew() as crew:
        receiver = crew.start(be_counting_receiver, library, messages)
        sender = crew.start(be_sender, library, "127.0.0.1", case["bytes"])
        sender.tell(receiver.hear())
        sender.hear()
        begin = monotonic()
        series: dict[str, list[tuple[float, float]]] = {"sender": [], "receiver": []}
        for step in range(_STEPS):
            end = receiver.hear()
            for name, worker in (("sender", sender), ("receiver", receiver)):
                series[name].append((case["mib"] * (step + 1) / _STEPS, round(worker.rss(), 2)))
        # The first eighth fills buffers and caches; what comes afterwards should not need more.
        growth = {}
        for name, points in series.items():
            sizes = [size for _, size in points]
            growth[f"{name}_growth_mib"] = max(sizes) - max(sizes[: _STEPS // 8])
        return {
            "growth_mib": max(growth.values()),
            **growth,
            "most_mib": max(size for points in series.values() for _, size in points),
            "rate": messages / (end - begin),
            "series": series,
        }


MEMORY = Scenario(
    name="memory",
    title="memory while messages go through one pair",
    cases=({"bytes": 1000, "mib": 1024}, {"bytes": 100_000, "mib": 1024}),
    short=({"bytes": 1000, "mib": 64},),
    libraries=("a3m", "pyzmq"),
    measure=_memory,
    figure="growth_mib",
    unit="MiB",
    x="MiB received",
    also=("sender_growth_mib", "receiver_growth_mib", "most_mib", "rate"),
    series=True,
)
