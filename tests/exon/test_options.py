"""Options refuse what cannot work, when they are made and not when they are needed."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from exon.options import Options
from exon.wire import BASE_DATAGRAM, MAX_DATAGRAM

NAMES = [field.name for field in attrs.fields(Options)]
COUNTS = [field.name for field in attrs.fields(Options) if field.type in ("int", int)]  # the others are seconds


def make(**values: Any) -> Options:
    return Options(**values)


def test_the_defaults_are_legal() -> None:
    assert {"max_slots", "max_message"} <= set(COUNTS) < set(NAMES)
    options = Options()
    assert options.max_message == 64 << 20
    assert options.max_slots == 8192
    assert BASE_DATAGRAM <= options.max_datagram <= MAX_DATAGRAM


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [0, -1, 0.0, -0.5, float("nan"), "1", None, True])
def test_every_option_is_a_number_above_zero(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"{name} must be"):
        make(**{name: value})


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("value", [5000.5, 5000.0, float("inf")])
def test_what_is_counted_is_whole(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{name} must be"):
        make(**{name: value})


@pytest.mark.parametrize("size", [BASE_DATAGRAM, MAX_DATAGRAM])
def test_datagrams_from_the_least_to_the_most(size: int) -> None:
    assert make(max_datagram=size).max_datagram == size


@pytest.mark.parametrize("size", [BASE_DATAGRAM - 1, MAX_DATAGRAM + 1])
def test_other_datagrams_are_refused(size: int) -> None:
    with pytest.raises(ValueError, match="max_datagram must be from 1200 to 65507"):
        make(max_datagram=size)


def test_receivers_must_outwait_idle_senders() -> None:
    assert make(idle_timeout=10, forget_after=100).forget_after == 100
    with pytest.raises(ValueError, match="forget_after"):
        make(idle_timeout=10, forget_after=99.9)


def test_receivers_may_wait_for_ever() -> None:
    assert make(forget_after=float("inf")).forget_after == float("inf")


def test_the_largest_message_must_fit_reassembly() -> None:
    assert make(max_message=1000, reassembly_bytes=1000).reassembly_bytes == 1000
    with pytest.raises(ValueError, match="reassembly_bytes"):
        make(max_message=1001, reassembly_bytes=1000)


def test_options_are_named_and_fixed() -> None:
    with pytest.raises(TypeError):
        Options(1024)  # type: ignore[call-arg]
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        Options().max_slots = 1  # type: ignore[misc]
