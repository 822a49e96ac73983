from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from multiprocessing import Pipe
from threading import Thread

import attrs
import pytest

from exon import Endpoint
from exon.demo import Account, Direction, Outcome, Party, Plan, Report, main, make_payload

COMMAND = [sys.executable, "-m", "exon.demo"]
WITHOUT_RICH = [
    sys.executable,
    "-c",
    "import sys; sys.modules['rich'] = None; from exon import demo; sys.exit(demo.main())",
]
PLAN = Plan(messages=4, size=16, loss=0.0, duplicate=0.0, reorder=0.0, moves=0, seed=1)
ALL_SEEN = Outcome(
    sent=4,
    seen=bytes([1, 1, 1, 1]),
    duplicates=0,
    damaged=0,
    unknown=0,
    retransmissions=0,
    datagrams=0,
    dropped=0,
    bytes=0,
    moves=0,
)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=120, check=False)


def account(alice: Outcome, bob: Outcome, interrupted: bool = False) -> Account:
    return Account(PLAN, (Direction.between(alice, bob), Direction.between(bob, alice)), 1.0, interrupted)


# -- the command -----------------------------------------------------------------------------------------------------


def test_two_processes_deliver_everything_exactly_once_over_a_bad_network() -> None:
    ended = run("--messages", "2000", "--json", "--seed", "7", "--moves", "2")
    assert (ended.returncode, ended.stderr) == (0, "")
    result = json.loads(ended.stdout)
    assert result["exact"]
    assert result["plan"] == {
        "messages": 2000,
        "size": 100,
        "loss": 0.2,
        "duplicate": 0.05,
        "reorder": 0.1,
        "moves": 2,
        "seed": 7,
    }
    for way in ("alice_to_bob", "bob_to_alice"):
        figures = result[way]
        assert (figures["sent"], figures["delivered"]) == (2000, 2000)
        assert [figures[name] for name in ("duplicates", "lost", "unknown", "damaged")] == [0, 0, 0, 0]
        # 2,000 messages of 100 bytes fill more than 138 datagrams of 1,452 bytes, so some loss is as good as certain.
        assert figures["datagrams"] > figures["dropped"] > 0
        assert figures["retransmissions"] > 0
        assert figures["bytes"] > 2000 * 100
    assert (result["alice_to_bob"]["moves"], result["bob_to_alice"]["moves"]) == (0, 2)
    assert result["both"]["delivered"] == 4000


def test_plain_output_has_no_escape_codes_and_ends_with_the_verdict() -> None:
    ended = run("--messages", "2000", "--plain", "--seed", "8")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "\x1b" not in ended.stdout
    assert "bob moves from port" in ended.stdout
    assert "100 %  4,000 of 4,000 messages delivered" in ended.stdout
    lines = ended.stdout.splitlines()
    assert lines[-1] == "Exactly once: 4,000 of 4,000 messages, none lost, none twice."
    assert ["delivered", "2,000", "2,000", "4,000"] in [line.split() for line in lines]
    assert ["lost", "0", "0", "0"] in [line.split() for line in lines]


@pytest.mark.parametrize(
    ("command", "bars"),
    [
        pytest.param(COMMAND, True, id="rich"),
        pytest.param([*COMMAND, "--plain"], False, id="plain"),
        pytest.param(WITHOUT_RICH, False, id="without rich"),
    ],
)
def test_on_a_terminal_there_are_bars_unless_unwanted_or_impossible(command: list[str], bars: bool) -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm"}
    with subprocess.Popen(
        [*command, "--messages", "50", "--loss", "0", "--reorder", "0"], stdout=theirs, env=environment
    ) as process:
        os.close(theirs)
        output = b""
        try:
            while more := os.read(ours, 4096):
                output += more
        except OSError:  # how a terminal says that nobody is left on the other side
            pass
        os.close(ours)
        assert process.wait(timeout=60) == 0
    assert (b"\x1b" in output) is bars
    assert b"Exactly once: 100 of 100 messages" in output


def test_ctrl_c_ends_with_the_account_so_far() -> None:
    command = [*COMMAND, "--plain", "--messages", "10000000", "--moves", "9999"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        while "bob moves" not in process.stdout.readline():
            pass
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
        assert process.stderr.read() == ""
        assert process.wait(timeout=60) == 130
    assert "under way" in rest
    assert rest.endswith("Interrupted: the account so far.\n")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--messages", "0"], "--messages: must be at least 1, not 0"),
        (["--messages", "many"], "--messages: 'many' is not a whole number"),
        (["--size", "7"], "--size: must be at least 8, not 7"),
        (["--size", "67108865"], "--size: the largest message is 67108864 bytes"),
        (["--loss", "1"], "--loss: a share is from 0 to less than 1, as 0.2 for 20 %, not 1"),
        (["--loss", "nan"], "--loss: a share is from 0 to less than 1, as 0.2 for 20 %, not nan"),
        (["--duplicate", "-0.1"], "--duplicate: a share is from 0 to less than 1"),
        (["--reorder", "x"], "--reorder: 'x' is not a number"),
        (["--moves", "5", "--messages", "5"], "--moves: 5 moves need more than 5 messages"),
        (["--seed", "-1"], "--seed: must be at least 0, not -1"),
    ],
)
def test_bad_arguments(arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    output = capsys.readouterr()
    assert complaint in output.err
    assert output.out == ""


# -- the account -----------------------------------------------------------------------------------------------------


def test_an_exact_account() -> None:
    exact = account(ALL_SEEN, ALL_SEEN)
    assert exact.exact
    assert exact.status == 0
    assert exact.total.delivered == 8


@pytest.mark.parametrize(
    "bob",
    [
        pytest.param(attrs.evolve(ALL_SEEN, seen=bytes([1, 1, 0, 1])), id="lost"),
        pytest.param(attrs.evolve(ALL_SEEN, seen=bytes([1, 1, 0, 1]), duplicates=1), id="lost, but the count is right"),
        pytest.param(attrs.evolve(ALL_SEEN, duplicates=1), id="twice"),
        pytest.param(attrs.evolve(ALL_SEEN, unknown=1), id="unknown"),
        pytest.param(attrs.evolve(ALL_SEEN, damaged=1), id="damaged"),
        pytest.param(attrs.evolve(ALL_SEEN, sent=3), id="seen, though never sent"),
        pytest.param(attrs.evolve(ALL_SEEN, seen=b"", sent=0), id="nothing happened"),
    ],
)
def test_an_account_that_is_not_exact(bob: Outcome) -> None:
    wrong = account(ALL_SEEN, bob)
    assert not wrong.exact
    assert wrong.status == 1
    assert "NOT" in wrong.verdict


def test_an_interrupted_run_never_counts_as_a_success() -> None:
    assert account(ALL_SEEN, ALL_SEEN, interrupted=True).status == 130


def test_a_party_tells_duplicates_and_damage_from_messages() -> None:
    watcher, theirs = Pipe()
    with watcher, theirs, Endpoint("bob", bind="127.0.0.1:0") as bob:
        watcher.send(bob.address[1])
        party = Party("alice", "bob", PLAN, theirs)
        bob.register("alice", f"127.0.0.1:{watcher.recv()}")
        running = Thread(target=party.run)
        running.start()
        damaged = make_payload(3, 16)[:-1] + b"\xff"
        for payload in (
            make_payload(0, 16),
            make_payload(2, 16),
            make_payload(0, 16),
            damaged,
            b"",
            make_payload(4, 16),
        ):
            bob.send("alice", payload)
        received = {bob.recv(timeout=30)[1] for _ in range(PLAN.messages)}
        while bob.stats().peers["alice"].pending_messages:
            assert isinstance(watcher.recv(), Report)  # one every few milliseconds, so this is no busy loop
        watcher.send(False)
        while not isinstance(outcome := watcher.recv(), Outcome):
            pass
        running.join(timeout=30)
        assert not running.is_alive()
    assert received == {make_payload(number, 16) for number in range(PLAN.messages)}
    assert (outcome.sent, outcome.seen) == (4, bytes([1, 0, 1, 0]))
    assert (outcome.duplicates, outcome.damaged) == (1, 3)
