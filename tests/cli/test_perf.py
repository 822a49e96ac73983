"""``a3m perf`` as users run it: real processes on loopback."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

import a3m
from a3m.cli import main

PATIENCE = 120.0  # seconds until a test that hangs fails; no test that passes waits for it
COMMAND = [sys.executable, "-m", "a3m", "perf"]
SHORT = ["--size", "100", "--seconds", "0.05"]
ENDLESS = ",".join(map(str, range(1000, 1500)))  # sizes that would take a minute
# A background job may have Ctrl-C ignored, and its children inherit that.
INTERRUPTIBLE = [
    sys.executable,
    "-c",
    "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from a3m.cli import main; sys.exit(main())",
    "perf",
]
WITHOUT_RICH = [
    sys.executable,
    "-c",
    "import sys; sys.modules['rich'] = None; from a3m.cli import main; sys.exit(main())",
    "perf",
]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=PATIENCE, check=False)


def start(*arguments: str) -> subprocess.Popen[str]:
    command, pipe = [*INTERRUPTIBLE, *arguments], subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True)


def press_ctrl_c(process: subprocess.Popen[str]) -> None:
    """As a terminal does it, which sends the signal to all the processes that it has."""
    os.killpg(process.pid, signal.SIGINT)


def line_of(process: subprocess.Popen[str], wanted: str) -> str:
    """The first line that it prints with these words."""
    assert process.stdout is not None
    while line := process.stdout.readline():
        if re.search(wanted, line):
            return line
    raise AssertionError(f"it ended without {wanted!r}: {process.stderr and process.stderr.read()}")


def rest_of(process: subprocess.Popen[str]) -> tuple[str, str, int]:
    output, errors = process.communicate(timeout=PATIENCE)
    return output, errors, process.returncode


def check_exact(runs: list[dict[str, Any]]) -> None:
    for figures in runs:
        assert figures["exact"]
        assert figures["sent"] == figures["received"] > 0
        assert [figures[name] for name in ("lost", "doubled", "damaged")] == [0, 0, 0]
        assert figures["per_second"] > 0


@pytest.fixture
def server() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server, and where it is."""
    process = start("--serve", "--bind", "127.0.0.1:0")
    try:
        yield process, line_of(process, "Serving on").split()[2]
    finally:
        process.kill()
        process.communicate()


# -- on one machine --------------------------------------------------------------------------------------------------


def test_json_is_one_document_that_accounts_for_every_message() -> None:
    ended = run("--json", "--size", "1", "--size", "20000", "--seconds", "0.05", "--runs", "2", "--clients", "3")
    assert (ended.returncode, ended.stderr) == (0, "")
    report = json.loads(ended.stdout)
    assert (report["ok"], report["exact"], report["interrupted"], report["error"]) == (True, True, False, None)
    assert report["where"] == "loopback"
    assert report["server"]["a3m"] == report["client"]["a3m"] == a3m.__version__
    cases = report["cases"]
    assert [(case["pattern"], case["size"]) for case in cases] == [
        (pattern, size) for pattern in ("PUSH/PULL", "REQ/REP") for size in (1, 20000)
    ]
    for case in cases:
        assert len(case["a3m"]["runs"]) == 2
        check_exact(case["a3m"]["runs"])
        for figures in case["a3m"]["runs"]:
            assert figures["alone"]
            transport = figures["transport"]
            assert transport["tokens"] >= transport["sent_again"] >= 0
            assert min(transport[name] for name in ("datagrams", "rtt", "datagram", "window")) > 0
            if case["mode"] == "latency":
                assert figures["handled"] == figures["sent"]
                times = figures["latency_seconds"]
                assert 0 < times["p50"] <= times["p90"] <= times["p99"] <= times["worst"]
    assert {case.get("clients") for case in cases} == {None, 3}


def test_the_table_in_a_pipe_has_no_escape_codes_and_ends_with_the_verdict() -> None:
    ended = run("--size", "1,1000", "--seconds", "0.05", "--many", "--max-datagram", "1452")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "\x1b" not in ended.stdout
    assert "\r" not in ended.stdout
    lines = ended.stdout.splitlines()
    assert "One way, PUSH/PULL, send_many() and recv_many()" in lines
    assert "Round trips, REQ/REP, 1 client" in lines
    rows = [line.split() for line in lines if re.match(r" +1(,000)? ", line)]
    assert [row[0] for row in rows] == ["1", "1,000", "1", "1,000"]
    for row in rows[:2]:
        assert row[3] == row[4] != "0"  # sent and received
        assert 1200 <= int(row[-2].replace(",", "")) <= 1452
    exactly = re.fullmatch(r"Exactly once: ([\d,]+) of \1 messages, none lost, none twice\.", lines[-1])
    assert exactly is not None
    requests = [int(row[-5].replace(",", "")) for row in rows[2:]]
    sent = [int(row[3].replace(",", "")) for row in rows[:2]]
    assert int(exactly[1].replace(",", "")) == sum(sent) + sum(requests)


@pytest.mark.parametrize(
    ("command", "bar"), [pytest.param(COMMAND, True, id="rich"), pytest.param(WITHOUT_RICH, False, id="without rich")]
)
def test_on_a_terminal_there_is_a_bar_if_possible(command: list[str], bar: bool) -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "200"}
    arguments = [*command, *SHORT, "--mode", "throughput"]
    with subprocess.Popen(arguments, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        output = b""
        try:
            while more := os.read(ours, 4096):
                output += more
        except OSError:  # how a terminal says that nobody is left on the other side
            pass
        os.close(ours)
        assert process.wait(timeout=PATIENCE) == 0
    assert (b"\x1b" in output) is bar
    assert b"One way, PUSH/PULL" in output
    assert b"Exactly once: " in output


def test_comparing_alternates_and_says_the_ratio() -> None:
    pytest.importorskip("zmq")
    ended = run("--json", *SHORT, "--compare", "pyzmq", "--runs", "2", "--both")
    assert (ended.returncode, ended.stderr) == (0, "")
    cases = json.loads(ended.stdout)["cases"]
    assert [(case["mode"], case.get("reverse")) for case in cases] == [
        ("throughput", False),
        ("throughput", True),
        ("latency", None),
    ]
    for case in cases:
        for library in ("a3m", "pyzmq"):
            assert len(case[library]["runs"]) == 2
            check_exact(case[library]["runs"])
        ratios = [
            ours["per_second"] / theirs["per_second"]
            for ours, theirs in zip(case["a3m"]["runs"], case["pyzmq"]["runs"], strict=True)
        ]
        assert case["ratio"]["least"] == pytest.approx(min(ratios), rel=0.01)
        assert case["ratio"]["most"] == pytest.approx(max(ratios), rel=0.01)


# -- between two -----------------------------------------------------------------------------------------------------


def test_a_server_measures_with_several_clients_at_once_until_ctrl_c(
    server: tuple[subprocess.Popen[str], str],
) -> None:
    serving, where = server
    clients = [start(where, *SHORT, "--json", *more) for more in (["--both"], ["--reverse", "--many"])]
    reports = []
    for client in clients:
        output, errors, status = rest_of(client)
        assert (errors, status) == ("", 0)
        reports.append(json.loads(output))
    for report in reports:
        assert report["where"] == where
        for case in report["cases"]:
            check_exact(case["a3m"]["runs"])
    assert [case.get("reverse") for case in reports[0]["cases"]] == [False, True, None]
    assert [case.get("reverse") for case in reports[1]["cases"]] == [True, None]
    serving.send_signal(signal.SIGINT)
    output, errors, status = rest_of(serving)
    assert (errors, status) == ("", 0)
    assert output.count(" is here") == 2
    # What a client is told is what the server received.
    rate = reports[0]["cases"][0]["a3m"]["runs"][0]["per_second"]
    said = re.search(r"PUSH/PULL, 100 bytes: ([\d,]+) messages/s", output)
    assert said is not None
    assert int(said[1].replace(",", "")) == pytest.approx(rate, abs=1)  # both are rounded
    assert output.endswith("Ended.\n")


def test_a_server_that_ends_is_noticed(server: tuple[subprocess.Popen[str], str]) -> None:
    serving, where = server
    with start(where, "--size", "100", "--seconds", "3600", "--mode", "throughput") as client:
        line_of(serving, "is here")
        serving.send_signal(signal.SIGINT)
        _, errors, status = rest_of(client)
    assert (errors, status) == ("a3m perf: the server has ended\n", 1)


def test_a_server_that_is_not_there() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        where = f"127.0.0.1:{silent.getsockname()[1]}"
        ended = run(where, "--timeout", "0.2", "--json")
    assert ended.returncode == 1
    report = json.loads(ended.stdout)
    assert (report["ok"], report["cases"]) == (False, [])
    for advice in (f"no answer from {where} in 0.2 s", "a3m perf --serve", f"UDP port {where.split(':')[1]}"):
        assert advice in report["error"]
    assert ended.stderr == f"a3m perf: {report['error']}\n"


def test_an_address_that_is_taken() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        ended = run("--serve", "--bind", where)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == f"a3m perf: {where} is already in use; choose another port, or 0 for any free one\n"


# -- the end ---------------------------------------------------------------------------------------------------------


def test_ctrl_c_ends_with_the_figures_so_far_and_leaves_no_process_behind() -> None:
    with start("--seconds", "3600") as process:
        line_of(process, "Measuring between two processes")
        others = second_processes(process)
        press_ctrl_c(process)
        output, errors, status = rest_of(process)
    assert (errors, status) == ("", 130)
    assert "Interrupted" in output.splitlines()[-1]
    check_ended(others)


def test_ctrl_c_keeps_what_is_measured() -> None:
    with start("--size", ENDLESS, "--seconds", "0.05", "--mode", "throughput") as process:
        first = line_of(process, r"^ +1,000 ")
        press_ctrl_c(process)
        output, errors, status = rest_of(process)
    assert (errors, status) == ("", 130)
    rows = [line.split() for line in [first, *output.splitlines()] if re.match(r" +1,\d\d\d ", line)]
    assert [row[0] for row in rows] == [f"{size:,}" for size in range(1000, 1000 + len(rows))]  # each of them once
    sent = f"{sum(int(row[3].replace(',', '')) for row in rows):,}"
    exactly = f"Exactly once: {sent} of {sent} messages, none lost, none twice."
    assert output.splitlines()[-1] == f"Interrupted: the figures so far. {exactly}"


def test_the_second_process_ends_even_if_the_first_is_killed() -> None:
    with start("--size", ENDLESS, "--seconds", "0.05", "--mode", "throughput") as process:
        line_of(process, r"^ +1,000 ")  # so the second one is at work, too
        others = second_processes(process)
        process.kill()
        process.communicate()
    check_ended(others)


def check_ended(processes: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(processes, timeout=PATIENCE)
    for process in alive:
        process.kill()
    assert alive == []


def second_processes(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """Those that it has started, as soon as it has."""
    while True:
        assert process.poll() is None
        others = psutil.Process(process.pid).children(recursive=True)
        if any("spawn_main" in " ".join(other.cmdline()) for other in others):
            return others


def test_output_that_nobody_reads_is_no_error_to_complain_about() -> None:
    with start(*SHORT) as process:
        line_of(process, "Measuring")
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == ""
        assert process.wait(timeout=PATIENCE) == 1


# -- arguments -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--size", "0"], "--size: must be from 1 to 16,777,216, not 0"),
        (["--size", "1,many"], "--size: 'many' is not a whole number"),
        (["--size", "99999999"], "--size: must be from 1 to 16,777,216, not 99,999,999"),
        (["--seconds", "0"], "--seconds: must be from 0.01 to 3600 seconds, not 0"),
        (["--seconds", "nan"], "--seconds: must be from 0.01 to 3600 seconds, not nan"),
        (["--seconds", "soon"], "--seconds: 'soon' is not a number of seconds"),
        (["--runs", "0"], "--runs: must be from 1 to 1,000, not 0"),
        (["--clients", "1000"], "--clients/--threads: must be from 1 to 100, not 1,000"),
        (["--max-datagram", "576"], "--max-datagram: must be from 1,200 to 65,507, not 576"),
        (["--mode", "fast"], "--mode: invalid choice"),
        (["--compare", "tcp"], "--compare: invalid choice"),
        (["--reverse", "--both"], "not allowed with argument"),
        (["localhost:port"], "'port' in 'localhost:port' is not a port"),
        (["udp://localhost:1"], "names a protocol"),
        ([":5757"], "names no host and port"),
        (["localhost:0"], "names no host and port"),
        (["--bind", "127.0.0.1:0"], "it needs --serve"),
        (["--serve", "--bind", "nowhere"], "--bind: 'nowhere' has no port"),
        (["--serve", "localhost"], "--serve goes with --bind and --max-datagram only"),
        (["--serve", "--size", "1"], "--serve goes with --bind and --max-datagram only"),
        (["--serve", "--json"], "--serve goes with --bind and --max-datagram only"),
        (["localhost", "--compare", "pyzmq"], "--compare works on one machine only"),
    ],
)
def test_bad_arguments(arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["perf", *arguments])
    assert ended.value.code == 2
    output = capsys.readouterr()
    assert complaint in output.err
    assert output.out == ""


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["perf", "--help"])
    assert ended.value.code == 0
    assert "a3m perf --compare pyzmq" in capsys.readouterr().out


def test_without_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([])
    assert ended.value.code == 2
    assert "COMMAND" in capsys.readouterr().err
