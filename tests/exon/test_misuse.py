"""What a user reads who does it wrong: an exception of its own class that says what to do instead."""

from __future__ import annotations

import socket as sockets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from exon import (
    AddressInUse,
    BadAddress,
    BadIdentifier,
    BadPayload,
    Closed,
    Endpoint,
    ExonError,
    MessageTooLarge,
    Options,
    StoreError,
    Timeout,
)
from tests.exon.endpoints import Opener, at


@pytest.fixture
def opened() -> Iterator[Opener]:
    with Opener() as opener:
        yield opener


def test_every_error_has_a_class_of_its_own_and_a_common_root() -> None:
    classes = [AddressInUse, BadAddress, BadIdentifier, BadPayload, Closed, MessageTooLarge, StoreError, Timeout]
    for one in classes:
        assert issubclass(one, ExonError)
        assert not any(issubclass(one, other) for other in classes if other is not one)


def test_errors_are_what_python_programmers_expect() -> None:
    assert issubclass(Timeout, TimeoutError)
    assert issubclass(BadIdentifier, ValueError)
    assert issubclass(BadAddress, ValueError)
    assert issubclass(MessageTooLarge, ValueError)
    assert issubclass(BadPayload, TypeError)
    assert issubclass(AddressInUse, OSError)
    assert issubclass(StoreError, OSError)


# ── ids ──────────────────────────────────────────────────────────────────────────────────────────────────────────────

BAD_IDS = [
    pytest.param("", "must not be empty; use 1 to 255 bytes of UTF-8 text", id="empty"),
    pytest.param("x" * 256, "at most 255 bytes of UTF-8, this one has 256", id="oversized"),
    pytest.param("é" * 128, "at most 255 bytes of UTF-8, this one has 256", id="oversized-in-bytes"),
    pytest.param("lone \udc80", "cannot be written as UTF-8; leave out lone surrogates", id="surrogate"),
    pytest.param(b"bytes", r"is text \(str\), not bytes", id="bytes"),
    pytest.param(7, r"is text \(str\), not int", id="number"),
    pytest.param(None, r"is text \(str\), not NoneType", id="none"),
    pytest.param(["list"], r"is text \(str\), not list", id="list"),
]


@pytest.mark.parametrize(("bad", "advice"), BAD_IDS)
def test_a_bad_id_of_ones_own(bad: Any, advice: str) -> None:
    with pytest.raises(BadIdentifier, match=advice):
        Endpoint(bad, bind="127.0.0.1:0")


@pytest.mark.parametrize(("bad", "advice"), BAD_IDS)
def test_a_bad_id_to_send_to(opened: Opener, bad: Any, advice: str) -> None:
    a = opened("a")
    with pytest.raises(BadIdentifier, match=advice):
        a.send(bad, b"x")
    assert a.stats().messages_sent == 0


@pytest.mark.parametrize(("bad", "advice"), BAD_IDS)
def test_a_bad_id_to_register(opened: Opener, bad: Any, advice: str) -> None:
    with pytest.raises(BadIdentifier, match=advice):
        opened("a").register(bad, "127.0.0.1:9")


@pytest.mark.parametrize("good", ["x", "x" * 255, "é" * 127, "with spaces / and:colons", "\0"])
def test_a_good_id(opened: Opener, good: str) -> None:
    a, b = opened("a"), opened(good)
    a.register(good, at(b))
    a.send(good, b"hello")
    assert b.recv(timeout=20) == ("a", b"hello")


# ── payloads ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("bad", ["text", 7, None, ["list"], 1.5, object()])
def test_a_payload_of_a_wrong_type(opened: Opener, bad: Any) -> None:
    a = opened("a")
    with pytest.raises(BadPayload, match=f"not {type(bad).__name__}; encode it first, for example text with .encode"):
        a.send("a", bad)
    assert a.stats().messages_sent == 0


def test_a_message_above_the_limit(opened: Opener) -> None:
    a = opened("a", options=Options(max_message=1000))
    a.send("a", bytes(1000))
    with pytest.raises(
        MessageTooLarge, match="has 1001 bytes, the limit is 1000; raise the option max_message on both"
    ):
        a.send("a", bytes(1001))
    with pytest.raises(MessageTooLarge):
        a.send("nobody", bytes(5000))
    assert a.stats().messages_sent == 1


# ── addresses ────────────────────────────────────────────────────────────────────────────────────────────────────────

BAD_ADDRESSES = [
    pytest.param("127.0.0.1", r"has no port; write 'host:port', '\[ipv6\]:port' or ':port'", id="no-port"),
    pytest.param("", "has no port", id="empty"),
    pytest.param("127.0.0.1:", "'' in '127.0.0.1:' is not a port; use a number from 0 to 65535", id="empty-port"),
    pytest.param("127.0.0.1:http", "is not a port", id="name-of-a-port"),
    pytest.param("127.0.0.1:65536", "is not a port", id="port-too-high"),
    pytest.param("127.0.0.1:-1", "is not a port", id="port-too-low"),
    pytest.param("::1:5555", r"is ambiguous; put the IPv6 address in brackets: '\[::1\]:5555'", id="no-brackets"),
    pytest.param("x" * 64 + ":5555", "cannot resolve host .*; check the spelling", id="unresolvable"),
    pytest.param("256.0.0.1.:5555", "cannot resolve host", id="not-numeric"),
    pytest.param(5555, "is text such as 'host:port', not int", id="number"),
    pytest.param(("127.0.0.1", 5555), "is text such as 'host:port', not tuple", id="pair"),
    pytest.param(None, "is text such as 'host:port', not NoneType", id="none"),
]


@pytest.fixture(autouse=True)
def no_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without a name service, so that no test asks one."""
    real = sockets.getaddrinfo

    def numeric_only(host: Any, port: Any, *rest: Any) -> Any:
        family, kind = rest[0], rest[1]
        return real(host, port, family, kind, 0, sockets.AI_NUMERICHOST)

    monkeypatch.setattr(sockets, "getaddrinfo", numeric_only)


@pytest.mark.parametrize(("bad", "advice"), BAD_ADDRESSES)
def test_a_bad_address_to_register(opened: Opener, bad: Any, advice: str) -> None:
    with pytest.raises(BadAddress, match=advice):
        opened("a").register("b", bad)


@pytest.mark.parametrize(
    ("bad", "advice"), [case for case in BAD_ADDRESSES if case.id not in ("pair", "none", "number")]
)
def test_a_bad_address_to_bind(bad: Any, advice: str) -> None:
    with pytest.raises(BadAddress, match=advice):
        Endpoint("a", bind=bad)


@pytest.mark.parametrize(
    ("bad", "advice"), [case for case in BAD_ADDRESSES if case.id not in ("pair", "none", "number")]
)
def test_a_bad_address_to_move_to(opened: Opener, bad: Any, advice: str) -> None:
    a = opened("a")
    before = a.address
    with pytest.raises(BadAddress, match=advice):
        a.rebind(bad)
    assert a.address == before


def test_a_peer_needs_a_host(opened: Opener) -> None:
    with pytest.raises(BadAddress, match="names no host; write 'host:port'"):
        opened("a").register("b", ":5555")


def test_a_peer_of_the_other_family(opened: Opener) -> None:
    with pytest.raises(BadAddress, match="write a numeric IPv4 address"):
        opened("a").register("b", "[::1]:5555")


def test_a_port_in_use(opened: Opener) -> None:
    a = opened("a")
    with pytest.raises(AddressInUse, match=f"{at(a)} is already in use; choose another port, or 0 for any free one"):
        opened("b", bind=at(a))


def test_an_address_of_another_machine() -> None:
    with pytest.raises(
        BadAddress, match="is not an address of this machine; bind to one it has, or to ':port' for all"
    ):
        Endpoint("a", bind="192.0.2.1:0")


# ── options ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"max_message": 0}, "max_message must be a whole number above 0, not 0"),
        ({"idle_timeout": -1}, "idle_timeout must be a number above 0, not -1"),
        ({"max_datagram": 500}, "max_datagram must be from 1200 to 65507, not 500"),
        ({"forget_after": 5}, "forget_after must be at least ten times idle_timeout"),
        ({"max_message": 1 << 30}, "reassembly_bytes must be at least max_message"),
    ],
)
def test_bad_options(options: dict[str, Any], advice: str) -> None:
    with pytest.raises(ValueError, match=advice):
        Options(**options)


def test_options_that_are_none(tmp_path: Path) -> None:
    wrong: Any = {"max_message": 10}
    with pytest.raises(TypeError, match=r"options are exon.Options\(name=value, ...\), not dict"):
        Endpoint("a", bind="127.0.0.1:0", options=wrong, clock=tmp_path / "clock")
    Endpoint("a", bind="127.0.0.1:0", clock=tmp_path / "clock").close()


# ── closed ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_using_what_is_closed(opened: Opener) -> None:
    a = opened("a")
    a.close()
    with pytest.raises(Closed, match="node 'a' is closed and takes no more messages"):
        a.send("b", b"x")
    with pytest.raises(Closed, match="endpoint 'a' is closed and every message that had arrived is taken"):
        a.recv()
    with pytest.raises(Closed, match="endpoint 'a' is closed"):
        a.register("b", "127.0.0.1:9")
    with pytest.raises(Closed, match="endpoint 'a' is closed"):
        a.rebind("127.0.0.1:0")


# ── clock files ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_clock_file_in_use(opened: Opener, tmp_path: Path) -> None:
    opened("a", clock=tmp_path / "clock")
    with pytest.raises(StoreError, match="clock is in use by another node; give every node a clock file of its own"):
        opened("b", clock=tmp_path / "clock")


def test_a_damaged_clock_file(opened: Opener, tmp_path: Path) -> None:
    (tmp_path / "clock").write_text("exon-clock-1 17 00000000\n")
    with pytest.raises(StoreError, match=r"is damaged; numbers might be used twice.*delete the file to begin anew"):
        opened("a", clock=tmp_path / "clock")


def test_a_clock_file_without_a_folder(opened: Opener, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="No such file or directory; is its folder there and writable"):
        opened("a", clock=tmp_path / "nowhere" / "clock")


def test_a_clock_file_that_is_a_folder(opened: Opener, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot read the clock file"):
        opened("a", clock=tmp_path)


@pytest.mark.parametrize("nameless", ["", "/", "."])
def test_a_clock_file_without_a_name(opened: Opener, nameless: str) -> None:
    with pytest.raises(StoreError, match="names no file; give the path of one"):
        opened("a", clock=nameless)
