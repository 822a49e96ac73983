"""Scenarios: what happens on a simulated network, as options that can be read, and the oracle that judges the run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

from attrs import frozen

from exon.options import Options
from exon.simulation.network import Network, Violation

__all__ = ["SCENARIOS", "Scenario", "Violation", "check", "finish", "prepare", "run", "schedule_faults"]

_ALL_DATAGRAMS = 65507


@frozen(kw_only=True)
class Scenario:
    """The faults of a run; where a number is an upper bound, the seed draws the value."""

    nodes: int = 3
    messages: int = 60
    sizes: tuple[int, ...] = (1, 20, 300)
    seconds: float = 3.0  # how long messages are sent and faults happen
    max_loss: float = 0.0
    max_duplicate: float = 0.0
    max_reorder: float = 0.0
    latency: tuple[float, float] = (0.001, 0.05)
    bandwidth: float | None = None
    partitions: int = 0
    one_way_partitions: int = 0
    moves: int = 0  # announced and unannounced
    swaps: int = 0
    mtu_changes: int = 0
    restarts: int = 0
    closes: int = 0
    returns: bool = True  # whether nodes that were closed come back; if not, nothing is sent to them at all
    slow_consumer: bool = False
    discovery: bool = True  # without it, addresses are registered by hand, again after every move
    options: Options | None = None  # of every node


SCENARIOS: dict[str, Scenario] = {
    "clean": Scenario(),
    "loss": Scenario(max_loss=0.3),
    "duplication": Scenario(max_loss=0.1, max_duplicate=0.2),
    "reordering": Scenario(max_loss=0.1, max_duplicate=0.1, max_reorder=0.5),
    "partitions": Scenario(max_loss=0.2, partitions=2, one_way_partitions=2),
    "moves": Scenario(max_loss=0.3, max_duplicate=0.2, max_reorder=0.3, moves=4),
    "swaps": Scenario(nodes=4, max_loss=0.3, max_duplicate=0.2, max_reorder=0.3, swaps=3),
    "large": Scenario(
        nodes=2, messages=6, sizes=(40, 20_000, 200_000), max_loss=0.1, max_duplicate=0.1, max_reorder=0.2
    ),
    "shrinking-path": Scenario(
        nodes=2, messages=12, sizes=(100, 60_000), max_loss=0.1, moves=1, mtu_changes=3, latency=(0.001, 0.005)
    ),
    "slow-consumer": Scenario(
        nodes=2,
        messages=200,
        sizes=(100, 2000),
        max_loss=0.2,
        slow_consumer=True,
        options=Options(send_bytes=20_000, receive_bytes=4_000, max_slots=8),
    ),
    "slow-link": Scenario(nodes=2, messages=200, sizes=(1000,), max_loss=0.05, bandwidth=125_000.0),
    "everything": Scenario(
        nodes=4,
        max_loss=0.3,
        max_duplicate=0.2,
        max_reorder=0.3,
        partitions=1,
        one_way_partitions=1,
        moves=2,
        swaps=1,
        mtu_changes=1,
    ),
    "restarts": Scenario(nodes=3, max_loss=0.2, max_duplicate=0.2, max_reorder=0.3, restarts=4, moves=1),
    "restarts-large": Scenario(
        nodes=2, messages=10, sizes=(10, 50_000), max_loss=0.1, max_duplicate=0.2, max_reorder=0.2, restarts=3
    ),
    "closing": Scenario(max_loss=0.3, max_duplicate=0.2, max_reorder=0.3, closes=2),
    "closing-large": Scenario(
        nodes=2, messages=10, sizes=(10, 50_000), max_loss=0.1, max_duplicate=0.1, max_reorder=0.2, closes=1
    ),
    "leaving": Scenario(
        nodes=4,
        max_loss=0.3,
        max_duplicate=0.2,
        max_reorder=0.3,
        closes=2,
        returns=False,
        options=Options(idle_timeout=1.0, forget_after=20.0),
    ),
    "evictions": Scenario(
        max_loss=0.1,
        max_duplicate=0.1,
        seconds=20.0,
        partitions=3,
        one_way_partitions=2,
        options=Options(idle_timeout=0.2, forget_after=2.0, probe_after=0.2),
    ),
    "evictions-large": Scenario(
        nodes=2,
        messages=12,
        sizes=(10, 50_000),
        max_loss=0.1,
        max_duplicate=0.1,
        seconds=20.0,
        partitions=4,
        one_way_partitions=2,
        bandwidth=50_000.0,
        options=Options(idle_timeout=0.2, forget_after=2.0, probe_after=0.2),
    ),
    "crowd": Scenario(nodes=25, messages=150, max_loss=0.2, max_duplicate=0.1, max_reorder=0.2, moves=3),
    "few-records": Scenario(
        nodes=8, messages=80, max_loss=0.1, options=Options(max_records=2, idle_timeout=0.3, probe_after=0.3)
    ),
    "by-hand": Scenario(
        max_loss=0.2, max_duplicate=0.1, max_reorder=0.2, moves=2, swaps=1, restarts=1, discovery=False
    ),
}


def run(name: str, seed: int, *, trace: Callable[[float, str], None] | None = None) -> Network:
    """Run one scenario with one seed; :class:`Violation` if the guarantee does not hold."""
    scenario = SCENARIOS[name]
    try:
        network = prepare(scenario, seed, trace=trace)
        network.run(network.now + scenario.seconds)
        finish(network, scenario)
        check(network)
    except Exception as error:  # what a node raises is as bad as what the oracle finds, and is replayed the same way
        what = str(error) if isinstance(error, Violation) else f"{type(error).__name__}: {error}"
        raise Violation(f"{what}\nreplay with: python -m exon.simulation --seed {seed} --scenario {name}") from error
    return network


def prepare(scenario: Scenario, seed: int, *, trace: Callable[[float, str], None] | None = None) -> Network:
    """The network of a scenario, with everything that will happen to it scheduled."""
    dice = Random(f"scenario-{seed}")
    network = Network(
        seed,
        loss=dice.uniform(0, scenario.max_loss),
        duplicate=dice.uniform(0, scenario.max_duplicate),
        reorder=dice.uniform(0, scenario.max_reorder),
        latency=dice.uniform(*scenario.latency),
        bandwidth=scenario.bandwidth,
        discovery=scenario.discovery,
        trace=trace,
    )
    names = [f"node-{number}" for number in range(scenario.nodes)]
    for name in names:
        network.add(name, scenario.options, pace=0.01 if scenario.slow_consumer else 0.0)
    if not scenario.discovery:
        network.introduce()
    closers = [dice.choice(names) for _ in range(scenario.closes)]
    _schedule_messages(network, scenario, names, [] if scenario.returns else closers, dice)
    schedule_faults(network, scenario, names, dice)
    _schedule_closes(network, scenario, closers, dice)
    return network


def finish(network: Network, scenario: Scenario) -> None:
    """Repair the network and wait for everything to be delivered and forgotten."""
    network.heal()
    if not scenario.mtu_changes:
        network.change_mtu(_ALL_DATAGRAMS)
    network.run()


def _schedule_messages(
    network: Network, scenario: Scenario, names: list[str], leavers: list[str], dice: Random
) -> None:
    for number in range(scenario.messages):
        source, destination = dice.sample(names, 2) if dice.random() < 0.95 else [dice.choice(names)] * 2
        payload = b"%d:" % number + bytes(dice.choice(scenario.sizes))
        when = network.now + dice.uniform(0, scenario.seconds)
        if destination not in leavers:
            network.at(when, lambda s=source, d=destination, p=payload: network.send(s, d, p))  # type: ignore[misc]


def schedule_faults(network: Network, scenario: Scenario, names: list[str], dice: Random) -> None:
    """Let everything go wrong that the scenario names, among the hosts ``names``, at moments of its duration."""

    def moment() -> float:
        return network.now + dice.uniform(0.05, 0.95) * scenario.seconds

    def change(action: Callable[[], None]) -> None:
        """Something after which registrations by hand are out of date for a while."""
        network.at(when := moment(), action)
        if not scenario.discovery:
            network.at(when + dice.uniform(0, 0.5), network.introduce)

    for _ in range(scenario.partitions):
        a, b = dice.sample(names, 2)
        network.at(start := moment(), lambda a=a, b=b: network.cut(a, b))  # type: ignore[misc]
        network.at(start, lambda a=a, b=b: network.cut(b, a))  # type: ignore[misc]
        network.at(moment(), network.heal)
    for _ in range(scenario.one_way_partitions):
        a, b = dice.sample(names, 2)
        network.at(moment(), lambda a=a, b=b: network.cut(a, b))  # type: ignore[misc]
        network.at(moment(), network.heal)
    for _ in range(scenario.moves):
        name, aware = dice.choice(names), dice.random() < 0.5
        change(lambda n=name, w=aware: network.move(n, aware=w))  # type: ignore[misc]
    for _ in range(scenario.swaps):
        a, b = dice.sample(names, 2)
        change(lambda a=a, b=b: network.swap(a, b))  # type: ignore[misc]
    for _ in range(scenario.mtu_changes):
        size = dice.choice((1200, 1500, 9000, _ALL_DATAGRAMS))
        network.at(moment(), lambda size=size: network.change_mtu(size))  # type: ignore[misc]
    for _ in range(scenario.restarts):
        name = dice.choice(names)
        change(lambda n=name: network.restart(n))  # type: ignore[misc]


def _schedule_closes(network: Network, scenario: Scenario, closers: list[str], dice: Random) -> None:
    for name in closers:
        pause = dice.uniform(0, scenario.seconds)

        def come_back(name: str = name, pause: float = pause) -> None:
            network.at(network.now + pause, lambda: network.restart(name))

        def close(name: str = name, then: Callable[[], None] = come_back) -> None:
            network.close(name, then=then if scenario.returns else None)

        network.at(network.now + dice.uniform(0.2, 0.95) * scenario.seconds, close)


def check(network: Network) -> None:
    """Compare what was accepted with what was delivered; everything must be forgotten, too."""
    hosts = network.hosts.values()
    accepted = Counter((host.id, *sent) for host in hosts for sent in host.accepted)
    delivered = Counter((peer, host.id, payload) for host in hosts for peer, payload in host.received)
    dead = {(host.id, *sent) for host in hosts for life in host.lives_lost for sent in life}  # by those who forgot it
    closed = {(host.id, *sent) for host in hosts for farewell in host.farewells for sent in farewell.accepted}
    unknown = {(host.id, payload) for host in hosts for payload in host.unknown}

    def fail(what: str, which: object) -> None:
        raise Violation(f"{what}: {str(which)[:300]}")

    twice = [message for message, times in delivered.items() if times > 1]
    if twice:
        fail("delivered more than once", twice)
    strange = delivered.keys() - accepted.keys() - dead - closed
    if strange:
        fail("delivered but never accepted", strange)
    lost = [m for m in accepted if m not in delivered and (m[0], m[2]) not in unknown]
    if lost:
        fail("neither delivered nor reported as unknown", lost)
    forgetful = any(host.life or host.evictions or host.node.stats().evictions for host in hosts)
    if unknown and not forgetful:
        fail("reported as unknown although nobody lost anything", unknown)
    for host in hosts:
        for farewell in host.farewells:
            missing = [m for to, m in farewell.accepted if (host.id, to, m) not in delivered]
            silent = [m for m in missing if (host.id, m) not in unknown]
            report = farewell.report
            if len(silent) > report.undelivered + report.unknown or (report.clean and silent):
                fail(f"{host.id} closed with {report}, and said nothing of", silent)
            if len(missing) < report.undelivered:
                fail(f"{host.id} closed with {report}, but everything is delivered except", missing)
    if not network.quiet:
        fail("not forgotten", {host.id: host.node.stats() for host in hosts})
