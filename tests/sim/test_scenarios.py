"""A thousand seeds over all scenarios; and that a seed is a run, and that the oracle is not blind."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha256

import attrs
import pytest

from exon.events import PeerRestarted
from exon.options import Options
from exon.protocol import CloseReport, Delivery, Node
from exon.simulation import SCENARIOS, Host, Network, Violation, run
from exon.simulation.__main__ import main
from exon.simulation.network import Farewell
from exon.simulation.scenarios import Scenario, check, finish, prepare

SEEDS = 1000
PARTS = 4  # of a scenario's share of the seeds, so that parallel test processes get even loads


def shares() -> Iterator[tuple[str, range]]:
    """The seeds of every scenario, in parts: together at least SEEDS runs."""
    each = -(-SEEDS // len(SCENARIOS))
    size = -(-each // PARTS)
    for start in range(0, each, size):
        for name in SCENARIOS:
            yield name, range(start, min(start + size, each))


@pytest.mark.parametrize(("name", "seeds"), list(shares()), ids=lambda value: str(value).replace("range", ""))
def test_every_message_is_delivered_exactly_once_and_everything_forgotten(name: str, seeds: range) -> None:
    for seed in seeds:
        run(name, seed)


def test_a_thousand_seeds_are_run() -> None:
    assert sum(len(seeds) for _, seeds in shares()) >= SEEDS
    assert {name for name, _ in shares()} == set(SCENARIOS)


# -- a seed is a run --------------------------------------------------------------------------------------------------


def digest(name: str, seed: int) -> str:
    """Everything that happens in a run, to the last datagram, as one number."""
    hashed = sha256()
    run(name, seed, trace=lambda now, what: hashed.update(f"{now!r} {what}\n".encode()))
    return hashed.hexdigest()


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_same_seed_gives_the_same_run(name: str) -> None:
    assert digest(name, 3) == digest(name, 3)
    assert digest(name, 3) != digest(name, 4)


def test_a_run_is_the_same_in_every_process() -> None:
    def trace(hash_seed: str) -> str:
        command = [sys.executable, "-m", "exon.simulation", "--seed", "5", "--scenario", "everything", "--trace"]
        environment = os.environ | {"PYTHONHASHSEED": hash_seed}
        lines = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()
        return "\n".join(lines[:-1])  # the last one says how long it took

    assert trace("1") == trace("2")


def test_looking_on_changes_nothing() -> None:
    watched = run("everything", 6, trace=lambda now, what: None)
    unwatched = run("everything", 6)
    assert (watched.now, watched.datagrams, watched.lost) == (unwatched.now, unwatched.datagrams, unwatched.lost)


# -- every scenario does what its name says ---------------------------------------------------------------------------


def test_evictions_happen_and_are_told() -> None:
    networks = [run("evictions", seed) for seed in range(25)]
    assert any(host.node.stats().evictions for network in networks for host in network.hosts.values())
    assert any(host.unknown for network in networks for host in network.hosts.values())


def test_closed_nodes_leave_with_clean_reports() -> None:
    networks = [run("leaving", seed) for seed in range(5)]
    reports = [farewell.report for net in networks for host in net.hosts.values() for farewell in host.farewells]
    assert len(reports) >= 5
    assert all(report.clean for report in reports)


def test_a_node_that_closes_takes_no_more_and_delivers_what_it_took() -> None:
    network = Network(seed=1, loss=0.2)
    network.add("a")
    network.add("b")
    for number in range(50):
        network.send("a", "b", b"%d" % number)
    network.close("a")
    network.send("a", "b", b"too late")
    network.run()
    check(network)
    assert sorted(network["b"].received) == sorted(("a", b"%d" % number) for number in range(50))
    assert not network["a"].online
    assert network["a"].farewells[0].report == CloseReport(clean=True, undelivered=0, unknown=0, peers={})


def test_a_close_that_takes_too_long_says_what_it_leaves() -> None:
    network = Network(seed=1)
    network.add("a")
    network.add("b")
    network.cut("b", "a")
    network.send("a", "b", b"never granted")
    network.close("a", timeout=5.0)
    network.run(limit=20.0)
    (farewell,) = network["a"].farewells
    assert (farewell.report.clean, farewell.report.undelivered) == (False, 1)


def test_without_discovery_nodes_meet_by_registration_alone() -> None:
    network = Network(seed=1, discovery=False)
    network.add("a")
    network.add("b")
    network.send("a", "b", b"where are you?")
    network.run(until=10.0)
    assert not network["b"].received
    network.introduce()
    network.run()
    assert network["b"].received == [("a", b"where are you?")]
    assert network.quiet


# -- the oracle can fail ----------------------------------------------------------------------------------------------


def finished(scenario: Scenario = SCENARIOS["loss"]) -> Network:
    """A run that nobody has judged yet."""
    network = prepare(scenario, 1)
    network.run(network.now + scenario.seconds)
    finish(network, scenario)
    return network


class TwiceNode(Node):
    """Delivers everything twice."""

    def deliveries(self) -> Iterator[Delivery]:
        for peer, messages in super().deliveries():
            yield Delivery(peer, messages * 2)


class LosingNode(Node):
    """Delivers all but one message."""

    lost = False

    def deliveries(self) -> Iterator[Delivery]:
        for peer, messages in super().deliveries():
            keep = messages if self.lost else messages[1:]
            self.lost = True
            yield Delivery(peer, keep)


class InventingNode(Node):
    """Delivers what nobody sent."""

    def deliveries(self) -> Iterator[Delivery]:
        for peer, messages in super().deliveries():
            yield Delivery(peer, [message + b"!" for message in messages])


class SpinningNode(Node):
    """Wants to be woken in the past, and then does nothing."""

    def expire(self, now: float) -> None:
        pass

    def deadline(self) -> float | None:
        return 0.5


class FailingNode(Node):
    """Has a bug of the plain kind."""

    def expire(self, now: float) -> None:
        raise ZeroDivisionError("no time")


def bad_run(kind: type[Node], monkeypatch: pytest.MonkeyPatch) -> Network:
    """A run of nodes of another class."""
    monkeypatch.setattr("exon.simulation.network.Node", kind)
    network = Network(seed=1)
    network.add("a")
    network.add("b")
    for number in range(5):
        network.send("a", "b", b"%d" % number)
    network.run()
    return network


def test_the_oracle_accepts_what_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    check(bad_run(Node, monkeypatch))
    check(finished())


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        (TwiceNode, "delivered more than once"),
        (LosingNode, "neither delivered nor reported"),
        (InventingNode, "never accepted"),
    ],
)
def test_the_oracle_sees_wrong_deliveries(kind: type[Node], complaint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Violation, match=complaint):
        check(bad_run(kind, monkeypatch))


def test_the_oracle_sees_a_record_that_stays() -> None:
    network = finished()
    network["node-0"].node.send("node-1", b"nobody carries this", network.now)
    with pytest.raises(Violation, match="not forgotten"):
        check(network)


def test_the_oracle_sees_a_message_that_is_never_taken() -> None:
    network = Network(seed=1, discovery=False)
    network.add("a", Options(send_messages=1))
    for number in range(3):
        network.send("a", "nobody", b"%d" % number)
    network.run(limit=100.0)
    with pytest.raises(Violation, match="neither delivered"):
        check(network)
    network["a"].accepted.clear()
    with pytest.raises(Violation, match="not forgotten"):
        check(network)


def test_the_oracle_sees_messages_declared_unknown_without_a_reason() -> None:
    network = finished()
    host = network["node-0"]
    host.unknown += PeerRestarted("node-1", (b"why?",)).unknown
    with pytest.raises(Violation, match="nobody lost anything"):
        check(network)


def closed(change: CloseReport, lose: bool) -> Network:
    network = Network(seed=1)
    network.add("a")
    network.add("b")
    network.send("a", "b", b"before the end")
    network.close("a")
    network.run()
    host: Host = network["a"]
    host.farewells[0] = Farewell(change, host.farewells[0].accepted)
    if lose:
        network["b"].received.clear()
    return network


def test_the_oracle_sees_a_close_report_that_is_wrong() -> None:
    clean = CloseReport(clean=True, undelivered=0, unknown=0, peers={})
    check(closed(clean, lose=False))
    with pytest.raises(Violation, match="said nothing of"):
        check(closed(clean, lose=True))
    check(closed(attrs.evolve(clean, clean=False, unknown=1), lose=True))
    with pytest.raises(Violation, match="everything is delivered except"):
        check(closed(attrs.evolve(clean, clean=False, undelivered=1), lose=False))


def test_a_node_that_spins_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Violation, match="spins"):
        bad_run(SpinningNode, monkeypatch)


def test_whatever_a_node_raises_comes_with_the_line_that_replays_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exon.simulation.network.Node", FailingNode)
    with pytest.raises(Violation, match=r"ZeroDivisionError: no time\nreplay with: .* --seed 8 --scenario clean"):
        run("clean", 8)


# -- the command line -------------------------------------------------------------------------------------------------


def test_a_run_is_replayed_with_every_datagram(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "7", "--scenario", "everything", "--trace"]) == 0
    output = capsys.readouterr().out
    network = run("everything", 7)
    sent = re.findall(r"> host-\d+ (?:sent|doubled|lost|too large), ", output)
    assert len(sent) == network.datagrams
    for word in (
        "REQSLOTS",
        "SLOTS",
        "TOKEN",
        "ACK",
        "CLOSED",
        "moves to",
        "exchange",
        "any more",
        "every promise kept",
    ):
        assert word in output


def test_many_runs_are_added_up(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "3", "--first", "10", "--scenario", "clean", "restarts", "--jobs", "1"]) == 0
    output = capsys.readouterr().out
    networks = [run(name, seed) for name in ("clean", "restarts") for seed in range(10, 13)]
    delivered = sum(len(host.received) for network in networks for host in network.hosts.values())
    datagrams = sum(network.datagrams for network in networks)
    assert "3 seeds (10 to 12) of each of 2 scenarios: 6 runs in 1 processes" in output
    assert f"6 runs: 360 messages sent, {delivered} delivered" in output
    assert f"{datagrams:,} datagrams" in output
    assert output.rstrip().endswith("no violations")


def test_processes_give_the_same_totals(capsys: pytest.CaptureFixture[str]) -> None:
    def table(jobs: str) -> list[str]:
        assert main(["--seeds", "12", "--scenario", "clean", "swaps", "--jobs", jobs]) == 0
        return [line for line in capsys.readouterr().out.splitlines() if re.match(r"(clean|swaps|total) ", line)]

    assert table("1") == table("2")


def test_a_soak_runs_until_its_time_is_over(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--hours", "0.00001", "--first", "3", "--scenario", "clean", "--jobs", "1"]) == 0
    assert "10 runs: 600 messages sent, 600 delivered" in capsys.readouterr().out


def test_a_violation_is_printed_with_its_replay_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("exon.simulation.network.Node", TwiceNode)
    for arguments in (["--seeds", "1", "--scenario", "loss", "--jobs", "1"], ["--seed", "0", "--scenario", "loss"]):
        assert main(arguments) == 1
        output = capsys.readouterr().out
        assert "VIOLATION in loss, seed 0: delivered more than once" in output
        assert "replay with: python -m exon.simulation --seed 0 --scenario loss" in output


def test_the_list_names_every_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    output = capsys.readouterr().out
    assert all(f"\n  {name}" in output for name in SCENARIOS)
    assert "options=(max_records=2 " in output


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "one of the arguments"),
        (["--seed", "1"], "name its scenario"),
        (["--seed", "1", "--scenario", "clean", "loss"], "name its scenario"),
        (["--seed", "-1", "--scenario", "clean"], "expected one argument|not a whole number"),
        (["--seed", "x", "--scenario", "clean"], "'x' is not a whole number from 0 on"),
        (["--seed", "1", "--seeds", "1", "--scenario", "clean"], "not allowed with"),
        (["--seed", "1", "--first", "1", "--scenario", "clean"], "--first goes with"),
        (["--seeds", "0"], "'0' is not a whole number from 1 on"),
        (["--seeds", "1", "--jobs", "0"], "'0' is not a whole number from 1 on"),
        (["--seeds", "1", "--trace"], "--trace is for one run"),
        (["--seeds", "1", "--scenario", "sunshine"], "invalid choice: 'sunshine'"),
        (["--hours", "nan"], "'nan' is not a number above 0"),
        (["--hours", "soon"], "'soon' is not a number above 0"),
    ],
)
def test_a_command_line_that_makes_no_sense_is_refused(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        main(arguments)
    assert refused.value.code == 2
    assert re.search(complaint, capsys.readouterr().err)
