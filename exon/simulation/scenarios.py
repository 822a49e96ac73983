"""Scenarios: what happens on a simulated network, as options that can be read, and the oracle that judges the run."""

from __future__ import annotations

from collections import Counter
from random import Random

from attrs import frozen

from exon.options import Options
from exon.simulation.network import Network


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
    slow_consumer: bool = False
    small_limits: bool = False
    discovery: bool = True


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
        nodes=2, messages=200, sizes=(100, 2000), max_loss=0.2, slow_consumer=True, small_limits=True
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
}


class Violation(AssertionError):
    """The oracle found a message that was not delivered exactly once, or a node that cannot forget."""


def run(name: str, seed: int) -> Network:
    """Run one scenario with one seed; :class:`Violation` if the guarantee does not hold."""
    scenario = SCENARIOS[name]
    network = prepare(scenario, seed)
    network.run(network.now + scenario.seconds)
    network.heal()
    network.mtu = 65507 if not scenario.mtu_changes else network.mtu
    network.run()
    check(network, f"python -m exon.simulation --seed {seed} --scenario {name}")
    return network


def prepare(scenario: Scenario, seed: int) -> Network:
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
    )
    names = [f"node-{number}" for number in range(scenario.nodes)]
    limits = Options(send_bytes=20_000, receive_bytes=4_000, max_slots=8) if scenario.small_limits else None
    for name in names:
        network.add(name, limits, pace=0.01 if scenario.slow_consumer else 0.0)
    _schedule_messages(network, scenario, names, dice)
    _schedule_faults(network, scenario, names, dice)
    return network


def _schedule_messages(network: Network, scenario: Scenario, names: list[str], dice: Random) -> None:
    for number in range(scenario.messages):
        source, destination = dice.sample(names, 2) if dice.random() < 0.95 else [dice.choice(names)] * 2
        payload = b"%d:" % number + bytes(dice.choice(scenario.sizes))
        when = network.now + dice.uniform(0, scenario.seconds)
        network.at(when, lambda s=source, d=destination, p=payload: network.send(s, d, p))  # type: ignore[misc]


def _schedule_faults(network: Network, scenario: Scenario, names: list[str], dice: Random) -> None:
    def moment() -> float:
        return network.now + dice.uniform(0.05, 0.95) * scenario.seconds

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
        network.at(moment(), lambda n=name, w=aware: network.move(n, aware=w))  # type: ignore[misc]
    for _ in range(scenario.swaps):
        a, b = dice.sample(names, 2)
        network.at(moment(), lambda a=a, b=b: network.swap(a, b))  # type: ignore[misc]
    for _ in range(scenario.mtu_changes):
        size = dice.choice((1200, 1500, 9000, 65507))
        network.at(moment(), lambda size=size: setattr(network, "mtu", size))  # type: ignore[misc]
    for _ in range(scenario.restarts):
        name = dice.choice(names)
        network.at(moment(), lambda n=name: network.restart(n))  # type: ignore[misc]


def check(network: Network, replay: str) -> None:
    """Compare what was accepted with what was delivered; everything must be forgotten, too."""
    accepted = Counter((host.id, *sent) for host in network.hosts.values() for sent in host.accepted)
    delivered = Counter((peer, host.id, payload) for host in network.hosts.values() for peer, payload in host.received)
    dead = {
        (host.id, *sent) for host in network.hosts.values() for life in host.lives_lost for sent in life
    }  # accepted by senders that forgot them
    unknown = {(host.id, payload) for host in network.hosts.values() for payload in host.unknown}

    def fail(what: str, which: object) -> None:
        raise Violation(f"{what}: {str(which)[:300]}\nreplay with: {replay}")

    twice = [message for message, times in delivered.items() if times > 1]
    if twice:
        fail("delivered more than once", twice)
    strange = [message for message in delivered if message not in accepted and message not in dead]
    if strange:
        fail("delivered but never accepted", strange)
    lost = [m for m in accepted if m not in delivered and (m[0], m[2]) not in unknown]
    if lost:
        fail("neither delivered nor reported as unknown", lost)
    if unknown and not any(host.lives_lost for host in network.hosts.values()):
        fail("reported as unknown although nobody lost anything", unknown)
    if not network.quiet:
        fail("not forgotten", {host.id: host.node.stats() for host in network.hosts.values()})
