"""What is logged goes where the application wants it, never to standard output, and never floods."""

from __future__ import annotations

import logging
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from exon.log import log
from tests.exon.endpoints import Opener, eventually


@pytest.fixture
def opened() -> Iterator[Opener]:
    with Opener() as opener:
        yield opener


def run(script: str) -> tuple[str, str]:
    """What a program that has configured no logging prints, to standard output and to standard error."""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout, done.stderr


def data(record: logging.LogRecord) -> dict[str, Any]:
    """The event of a log record."""
    event: dict[str, Any] = record.__dict__["event"]
    return event


def test_without_configuration_a_warning_is_one_line_on_standard_error() -> None:
    printed = run("from exon.log import log; log.warning('lookup-failed', peer='bob', tries=2)")
    assert printed == ("", "lookup-failed peer='bob' tries=2\n")


def test_without_configuration_what_is_less_than_a_warning_is_not_printed() -> None:
    assert run("from exon.log import log; log.info('hello', peer='bob'); log.debug('hello')") == ("", "")


def test_an_exception_brings_its_traceback_to_standard_error() -> None:
    out, err = run("""if True:
        from exon.log import log
        try:
            1 / 0
        except ZeroDivisionError:
            log.exception("engine-error", node="a")
    """)
    lines = err.splitlines()
    assert out == ""
    assert lines[0] == "engine-error node='a'"
    assert lines[-1] == "ZeroDivisionError: division by zero"


def test_a_program_finds_the_event_as_data(caplog: pytest.LogCaptureFixture) -> None:
    log.warning("lookup-failed", peer="bob", tries=2)
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("exon", logging.WARNING)
    assert record.getMessage() == "lookup-failed peer='bob' tries=2"
    assert data(record) == {"event": "lookup-failed", "peer": "bob", "tries": 2}


def test_per_cent_signs_in_what_is_logged_are_only_text(caplog: pytest.LogCaptureFixture) -> None:
    log.warning("odd", peer="100%s %d")
    assert caplog.records[0].getMessage() == "odd peer='100%s %d'"


def test_the_application_decides_by_level_and_name(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.CRITICAL, logger="exon"):
        log.error("unwanted")
    with caplog.at_level(logging.DEBUG, logger="exon"):
        log.debug("wanted")
    assert [data(record)["event"] for record in caplog.records] == ["wanted"]


def test_a_fault_that_repeats_is_logged_at_powers_of_two(
    opened: Opener, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint = opened("a")

    def faulty(*_: object) -> None:
        raise RuntimeError("a fault of our own")

    monkeypatch.setattr(endpoint._node, "receive", faulty)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        for number in range(20):
            udp.sendto(b"datagram %d" % number, endpoint.address)
        eventually(lambda: endpoint.stats().dropped.get("internal error") == 20)
        source = udp.getsockname()[1]
    assert [data(record)["count"] for record in caplog.records] == [1, 2, 4, 8, 16]
    assert {data(record)["event"] for record in caplog.records} == {"datagram-error"}
    first = data(caplog.records[0])
    assert (first["node"], first["source"][1], bytes.fromhex(first["datagram"])) == ("a", source, b"datagram 0")
    assert caplog.records[0].exc_info is not None
