"""Messages of 1 KiB over an emulated network, see :mod:`benchmarks.wan`, next to TCP with its congestion control named.

Conditions hold in both directions: rate, half of the round-trip time, and loss, which hits acknowledgements too. Every
run has a new network, and libraries that take turns have the same seed. While a stream flows, a small datagram goes
back and forth through the same queue: that is the round-trip time under load.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from statistics import median
from threading import Event, Thread
from time import monotonic
from typing import Any

from benchmarks.harness import Crew, Place, percentile
from benchmarks.scenario import Case, Scenario, Settings
from benchmarks.scenarios.oneway import be_receiver, be_sender, measure_between
from benchmarks.scenarios.rpc import be_dealer, be_server
from benchmarks.wan import Conditions, Host, Wan

SIZE = 1024
_PROBE_EVERY = 0.02
_WARM_UP = 3.0  # seconds, for congestion controls to find their rate; like all others, times --seconds


def network(case: Case, seed: int) -> Wan:
    """The network that a case describes."""
    conditions = Conditions(
        rate=case["mbit"] * 1e6, delay=case["rtt_ms"] / 2000, loss=case.get("loss_percent", 0) / 100
    )
    return Wan(conditions, seed=seed)


def place(host: Host) -> Place:
    """To run a worker there."""
    return Place(address=host.address, namespace=host.namespace)


class Probe:
    """Measures round-trip times of small datagrams in the background, one at a time."""

    def __init__(self, wan: Wan, longest: float) -> None:
        self._near, self._far = wan.near.socket(), wan.far.socket()
        self._near.settimeout(longest)
        self._far.settimeout(longest)
        self._near.connect(self._far.getsockname())
        self._far.connect(self._near.getsockname())
        self._stop = Event()
        self._thread = Thread(target=self._run)
        self._times: list[tuple[float, float]] = []

    def _run(self) -> None:
        number = 0
        while not self._stop.wait(_PROBE_EVERY):
            number += 1
            token = number.to_bytes(4, "big")
            begin = monotonic()
            with suppress(TimeoutError):  # lost
                self._near.send(token)
                _receive(self._far, token)
                self._far.send(token)
                _receive(self._near, token)
                self._times.append((begin, monotonic() - begin))

    def facts(self, since: float) -> dict[str, float | None]:
        """Of probes sent after that moment."""
        times = [1000 * took for begin, took in self._times if begin >= since]
        if not times:
            return {"rtt_ms_median": None, "rtt_ms_p99": None}
        return {"rtt_ms_median": median(times), "rtt_ms_p99": percentile(times, 0.99)}

    @contextmanager
    def running(self) -> Iterator[Probe]:
        """For the time of the block."""
        self._thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            self._thread.join()
            self._near.close()
            self._far.close()


def _receive(end: socket.socket, token: bytes) -> None:
    """That one; older ones come late."""
    while end.recv(16) != token:
        pass


def _network_facts(wan: Wan) -> dict[str, Any]:
    """What the network did, and whether it could keep up."""
    counts = wan.statistics()
    return {
        "queue_drops": counts["there"]["overflowed"] + counts["back"]["overflowed"],
        "lost": counts["there"]["lost"] + counts["back"]["lost"],
        "router_late_ms": counts["late_ms_mean"],
        "router_missed": counts["dropped_by_device"],
    }


# -- one way ---------------------------------------------------------------------------------------------------------


def _one_way(case: Case, library: str, settings: Settings, run: int) -> dict[str, Any]:
    with network(case, run) as wan, Probe(wan, longest=0.6 + case["rtt_ms"] / 250).running() as probe:
        # After a loss TCP hands over much at once; that must be little in relation to what a slow path carries.
        seconds = (5 if case["mbit"] >= 100 else 20) * settings.seconds
        result = measure_between((place(wan.near), place(wan.far)), library, SIZE, _WARM_UP * settings.seconds, seconds)
        return {**result, **probe.facts(since=monotonic() - seconds), **_network_facts(wan)}


_ALSO = ("mbit_per_s", "rtt_ms_median", "rtt_ms_p99", "queue_drops")

WAN_ONE_WAY = Scenario(
    name="wan-oneway",
    title="one way, 1 KiB messages, 100 Mbit/s, RTT 10 ms, by loss",
    cases=tuple({"mbit": 100, "rtt_ms": 10, "loss_percent": loss} for loss in (0, 1, 5)),
    short=tuple({"mbit": 100, "rtt_ms": 10, "loss_percent": loss} for loss in (0, 1, 5)),
    libraries=("a3m", "tcp-cubic", "tcp-bbr", "mqtt"),
    measure=_one_way,
    also=_ALSO,
    needs_network=True,
)

WAN_PATHS = Scenario(
    name="wan-paths",
    title="one way, 1 KiB messages, by bandwidth and round-trip time",
    cases=(
        {"mbit": 1, "rtt_ms": 10},
        {"mbit": 10, "rtt_ms": 10},
        {"mbit": 100, "rtt_ms": 10},
        {"mbit": 100, "rtt_ms": 6},
        {"mbit": 100, "rtt_ms": 100},
    ),
    short=({"mbit": 10, "rtt_ms": 10}, {"mbit": 100, "rtt_ms": 100}),
    libraries=("a3m", "tcp-cubic", "tcp-bbr"),
    measure=_one_way,
    also=_ALSO,
    needs_network=True,
)


# -- requests --------------------------------------------------------------------------------------------------------


def _rpc(case: Case, library: str, settings: Settings, run: int) -> dict[str, Any]:
    with network(case, run) as wan, Crew() as crew:
        near, far = place(wan.near), place(wan.far)
        server = crew.start(be_server, library, far.address, "route", place=far)
        warm_up, seconds = _WARM_UP / 2 * settings.seconds, 3 * settings.seconds
        client = crew.start(be_dealer, library, near.address, case["actors"], SIZE, warm_up, seconds, place=near)
        client.tell(server.hear())
        result: dict[str, Any] = client.hear()
        return {**result, **_network_facts(wan)}


WAN_RPC = Scenario(
    name="wan-rpc",
    title="requests and replies of 1 KiB, 100 Mbit/s, RTT 10 ms, by actors (requests at the same time) and loss",
    cases=tuple(
        {"mbit": 100, "rtt_ms": 10, "loss_percent": loss, "actors": actors}
        for loss in (0, 1, 5)
        for actors in (1, 10, 50, 100, 200)
    ),
    short=tuple({"mbit": 100, "rtt_ms": 10, "loss_percent": loss, "actors": 100} for loss in (0, 1, 5)),
    libraries=("a3m", "a3m-req", "tcp-cubic", "tcp-bbr"),
    measure=_rpc,
    unit="round trips/s",
    x="actors",
    also=("p50_ms", "p99_ms", "queue_drops"),
    needs_network=True,
)


# -- two flows on one bottleneck -------------------------------------------------------------------------------------


def _fairness(case: Case, library: str, settings: Settings, run: int) -> dict[str, Any]:
    warm_up, seconds = 2 * _WARM_UP * settings.seconds, 10 * settings.seconds
    with network(case, run) as wan, Crew() as crew, Probe(wan, longest=0.6 + case["rtt_ms"] / 250).running() as probe:
        near, far = place(wan.near), place(wan.far)
        flows = []
        for name in (library, case["against"]):
            receiver = crew.start(be_receiver, name, far.address, SIZE, warm_up, seconds, place=far)
            sender = crew.start(be_sender, name, near.address, SIZE, place=near)
            flows.append((sender, receiver, receiver.hear()))
        for sender, _, address in flows if run % 2 == 0 else reversed(flows):  # who is first may matter
            sender.tell(address)
            sender.hear()
        for _, receiver, _ in flows:
            receiver.hear()
        ours, theirs = (receiver.hear() for _, receiver, _ in flows)
        return {
            "share": ours["rate"] / max(theirs["rate"], 1e-9),
            "mbit_per_s": ours["rate"] * SIZE * 8 / 1e6,
            "their_mbit_per_s": theirs["rate"] * SIZE * 8 / 1e6,
            **probe.facts(since=monotonic() - seconds),
            **_network_facts(wan),
        }


WAN_FAIRNESS = Scenario(
    name="wan-fairness",
    title="one flow next to one TCP flow on the same bottleneck, 100 Mbit/s, RTT 10 ms",
    cases=tuple({"mbit": 100, "rtt_ms": 10, "against": against} for against in ("tcp-cubic", "tcp-bbr")),
    short=tuple({"mbit": 100, "rtt_ms": 10, "against": against} for against in ("tcp-cubic", "tcp-bbr")),
    libraries=("a3m", "tcp-cubic", "tcp-bbr"),
    measure=_fairness,
    figure="share",
    unit="goodput / that of the TCP flow",
    also=("mbit_per_s", "their_mbit_per_s", "rtt_ms_median"),
    needs_network=True,
)
