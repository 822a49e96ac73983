"""Runs are as long as fits, and never empty."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from a3m.flow import Outgoing
from a3m.payload import size_of
from a3m.runs import _ITEM, run_length

PLAIN = st.integers(0, 400).map(bytes)
PARTS = st.lists(PLAIN, min_size=2, max_size=4)


def cost(items: list[Any]) -> int:
    return sum(map(size_of, items)) + _ITEM * len(items)


@given(st.lists(PLAIN, min_size=1, max_size=60), st.integers(1, 5000))
def test_a_run_of_plain_messages(queue: list[bytes], most: int) -> None:
    length = run_length(Outgoing(queue=list(queue)), most)
    assert 1 <= length <= len(queue)
    assert length == 1 or cost(queue[:length]) <= most


@given(st.lists(PLAIN | PARTS, min_size=1, max_size=60), st.integers(1, 5000))
def test_a_run_of_any_messages_is_the_longest_that_fits(queue: list[Any], most: int) -> None:
    length = run_length(Outgoing(queue=list(queue), mixed=True), most)
    assert length == 1 or cost(queue[:length]) <= most
    assert length == len(queue) or cost(queue[: length + 1]) > most


@given(st.integers(0, 300), st.integers(1, 200), st.integers(1, 5000))
def test_a_run_of_messages_of_one_size_is_the_longest_that_fits(size: int, number: int, most: int) -> None:
    queue = [bytes(size)] * number
    length = run_length(Outgoing(queue=list(queue)), most)
    assert length == 1 or cost(queue[:length]) <= most
    assert length == number or cost(queue[: length + 1]) > most


def test_a_run_has_no_more_messages_than_a_receiver_takes_at_a_time() -> None:
    assert run_length(Outgoing(queue=[b""] * 10_000), 10**9) == 4096
