"""Options are checked when they are given and when they are changed; a wrong value changes nothing."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

import a3m
from tests.a3m.nodes import PATIENCE, Nodes, eventually, fill, linked, take

WRONG: dict[str, list[Any]] = {
    "capacity": [-1, 1.5, "7", None, True, 2**20 + 1],
    "batch": [0, -0.1, 1.1, "half", None, True, float("nan")],
    "max_links": [0, -1, 1.5, "7", True],
    "accept_links": [None, 0, 1, "yes"],
    "retry": [None, 1.0, (1,), (2, 1), (0, 1), [0.1, 1], ("a", "b"), (float("nan"), 1.0)],
    "ordered": [None, 0, 1, "yes"],
}


def test_defaults() -> None:
    assert attrs.asdict(a3m.SocketOptions()) == {
        "capacity": 1024,
        "batch": 0.25,
        "max_links": None,
        "accept_links": True,
        "retry": (0.05, 2.0),
        "ordered": True,
    }
    assert set(WRONG) == set(attrs.asdict(a3m.SocketOptions()))


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_a_wrong_value_changes_nothing(nodes: Nodes, name: str, value: Any) -> None:
    a = nodes("a")
    with pytest.raises(ValueError, match=name):
        a.pull("in", **{name: value})
    pull = a.pull("in")  # the tag was not taken
    before = attrs.asdict(pull.options)
    with pytest.raises(ValueError, match=name):
        setattr(pull.options, name, value)
    assert attrs.asdict(pull.options) == before


def test_unknown_options(nodes: Nodes) -> None:
    a = nodes("a")
    with pytest.raises(TypeError, match=r"capacty.*a3m\.SocketOptions"):
        a.pull("in", capacty=7)
    with pytest.raises(TypeError, match="high_water"):
        a.pair("in", high_water=7, capacity=3)
    with pytest.raises(AttributeError):
        a.pull("in").options.capacty = 7  # type: ignore[attr-defined]


def test_credits_come_back_in_batches(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in", capacity=100, batch=0.5)
    linked(push, pull)
    assert len(fill(push, lambda _: b"x")) == 100
    take(pull, 49)
    assert b.stats().sockets["in"].received == 49
    assert push.link_to(pull.id).info().credits == 0
    take(pull, 1)
    eventually(lambda: push.link_to(pull.id).info().credits == 50)


def test_capacity_of_new_links(nodes: Nodes) -> None:
    a, b = nodes.pair()
    pull = b.pull("in", capacity=3)
    first, second = a.push("first"), a.push("second")
    linked(first, pull)
    pull.options.capacity = 5
    linked(second, pull)
    assert len(fill(first, lambda _: b"x")) == 3
    assert len(fill(second, lambda _: b"x")) == 5


def test_no_capacity_until_there_is_some(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in", capacity=0)
    linked(push, pull)
    assert fill(push, lambda _: b"x") == []
    pull.link_to(push.id).capacity = 2
    push.send(b"1", timeout=PATIENCE)
    assert take(pull, 1) == [b"1"]
