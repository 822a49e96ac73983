"""Addresses as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exon.addresses import Address, format_address, parse_address
from exon.errors import BadAddress

HOSTS = st.one_of(
    st.ip_addresses().map(str),
    st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,40}[a-z0-9])?", fullmatch=True),
    st.just(""),
)


@given(HOSTS, st.integers(0, 65535))
def test_what_is_written_reads_back(host: str, port: int) -> None:
    assert parse_address(format_address((host, port))) == (host, port)


@given(st.text(max_size=30))
def test_any_text_is_an_address_or_refused(text: str) -> None:
    try:
        host, port = parse_address(text)
    except BadAddress:
        return
    assert 0 <= port <= 65535
    assert text.rpartition(":")[0] in (host, f"[{host}]")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:5555", ("127.0.0.1", 5555)),
        ("localhost:0", ("localhost", 0)),
        (":65535", ("", 65535)),
        ("[::]:1", ("::", 1)),
        ("[fe80::1%2]:9", ("fe80::1%2", 9)),
        ("host:00080", ("host", 80)),
    ],
)
def test_parse(text: str, address: Address) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no port"),
        ("localhost", "no port"),
        ("localhost:", "not a port"),
        ("localhost:http", "not a port"),
        ("localhost:65536", "not a port"),
        ("localhost:-1", "not a port"),
        ("localhost: 80", "not a port"),
        ("localhost:٨٠", "not a port"),
        ("localhost:" + "9" * 5000, "not a port"),
        ("::1:5555", "brackets"),
        ("[::1]", "brackets"),
    ],
)
def test_refused_with_the_reason(text: str, says: str) -> None:
    with pytest.raises(BadAddress, match=says):
        parse_address(text)


def test_only_text_is_parsed() -> None:
    with pytest.raises(BadAddress, match="not tuple"):
        parse_address(("localhost", 80))  # type: ignore[arg-type]
