"""Three hundred seeds over all topologies; and that a seed is a run, and that the scenarios do what they say."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha256

import pytest

from a3m.simulation import Topology
from tests.sim_a3m.__main__ import main
from tests.sim_a3m.scenarios import SCENARIOS, run

SEEDS = 300
PARTS = 5  # of a scenario's share of the seeds, so that parallel test processes get even loads


def shares() -> Iterator[tuple[str, range]]:
    """The seeds of every scenario, in parts: together at least SEEDS runs."""
    each = -(-SEEDS // len(SCENARIOS))
    size = -(-each // PARTS)
    for start in range(0, each, size):
        for name in SCENARIOS:
            yield name, range(start, min(start + size, each))


@pytest.mark.parametrize(("name", "seeds"), list(shares()), ids=lambda value: str(value).replace("range", ""))
def test_every_promise_is_kept(name: str, seeds: range) -> None:
    for seed in seeds:
        run(name, seed)


def test_three_hundred_seeds_are_run() -> None:
    assert sum(len(seeds) for _, seeds in shares()) >= SEEDS
    assert {name for name, _ in shares()} == set(SCENARIOS)


def digest(name: str, seed: int) -> str:
    """Everything that happens in a run, to the last datagram, as one number."""
    hashed = sha256()
    run(name, seed, trace=lambda now, what: hashed.update(f"{now!r} {what}\n".encode()))
    return hashed.hexdigest()


@pytest.mark.parametrize("name", ["pair", "proxy-chain", "restarts"])
def test_the_same_seed_gives_the_same_run(name: str) -> None:
    assert digest(name, 3) == digest(name, 3)
    assert digest(name, 3) != digest(name, 4)


def test_a_run_is_the_same_in_every_process() -> None:
    def trace(hash_seed: str) -> str:
        command = [sys.executable, "-m", "tests.sim_a3m", "--seed", "5", "--scenario", "publish-subscribe", "--trace"]
        environment = {"PYTHONHASHSEED": hash_seed}
        lines = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()
        return "\n".join(lines[:-1])  # the last one says how long it took

    assert trace("1") == trace("2")


# -- scenarios do what they say ---------------------------------------------------------------------------------------


def lives(net: Topology) -> int:
    return sum(host.life for host in net.hosts.values())


def test_nodes_restart_and_losses_are_reported() -> None:
    nets = [run("restarts", seed) for seed in range(10)]
    assert all(lives(net) == 3 for net in nets)
    assert any(core.accounts.unknown for net in nets for core in net.cores.values())


def test_datagrams_are_lost_and_nodes_move() -> None:
    output: list[str] = []
    net = run("proxy-chain", 1, trace=lambda _, what: output.append(what))
    assert net.lost > net.datagrams // 20
    for word in ("moves to", "exchange", "any more", "everything passes again", "doubled"):
        assert any(word in line for line in output), word


# -- the command line -------------------------------------------------------------------------------------------------


def test_a_run_is_replayed_with_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "7", "--scenario", "pair"]) == 0
    assert re.search(r"pair +1 runs, 0 violations, [\d,]+ datagrams", capsys.readouterr().out)


def test_a_violation_is_printed_with_its_replay_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("a3m.flow.Incoming.resize", lambda incoming, capacity: 1 // 0)
    assert main(["--seeds", "1", "--scenario", "churn"]) == 1
    output = capsys.readouterr().out
    assert "VIOLATION in churn, seed 0: ZeroDivisionError" in output
    assert "replay with: python -m tests.sim_a3m --seed 0 --scenario churn" in output


def test_a_seed_without_a_scenario_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(["--seed", "1"])
    assert refused.value.code == 2
    assert "name its scenario" in capsys.readouterr().err
