"""Links that nobody has set a capacity for grow, while messages are small and the application takes all of them."""

from __future__ import annotations

import pytest

import a3m
from a3m.flow import Incoming
from tests.a3m.nodes import PATIENCE, Nodes, eventually, in_background, linked, result


def through(push: a3m.PushSocket, pull: a3m.PullSocket, count: int, size: int) -> None:
    """Send messages, a few at a time, and take all of them."""
    for _ in range(count // 100):
        assert push.send_many([bytes(size)] * 100, timeout=PATIENCE) == 100
        for _ in range(100):
            assert len(pull.recv(timeout=PATIENCE)) == size


def capacity_of(pull: a3m.PullSocket) -> int:
    (link,) = pull.links
    return link.capacity


def test_a_link_left_at_its_default_grows(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in")
    linked(push, pull)
    assert capacity_of(pull) == 1024
    through(push, pull, 30_000, 10)
    assert capacity_of(pull) == 8192
    # What the receiver has room for, the sender may send.
    eventually(lambda: push.links[0].credits > 4096)


@pytest.mark.parametrize("capacity", [1023, 100, 5000])
def test_a_capacity_that_was_set_stays(nodes: Nodes, capacity: int) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in", capacity=capacity)
    linked(push, pull)
    through(push, pull, 30_000, 10)
    assert capacity_of(pull) == capacity


def test_a_capacity_that_is_set_later_stays_too(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in")
    linked(push, pull)
    pull.link_to(push.id).capacity = 512
    through(push, pull, 30_000, 10)
    assert capacity_of(pull) == 512


def test_large_messages_do_not_add_up_to_more_than_8_mib(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in")
    linked(push, pull)
    through(push, pull, 12_000, 3_000)
    assert capacity_of(pull) == 2048
    assert 2 * 2048 * 3_000 > 8 << 20


def test_who_takes_nothing_gets_no_more_than_1024(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in")
    linked(push, pull)
    sent = result(in_background(lambda: push.send_many([b"x"] * 3000, timeout=0)))
    while True:
        try:
            push.send(b"x", timeout=0.05)
        except a3m.Timeout:
            break
        sent += 1
    assert sent == 1024
    assert capacity_of(pull) == 1024


def test_growing_keeps_the_sum_of_all_credits() -> None:
    incoming = Incoming(1024, 0.25, True, 8192)
    given = incoming.capacity
    for first in range(0, 100_000, 256):
        assert incoming.accept(first, [b"x"] * 256)
        incoming.queue.clear()
        credits = incoming.taken(256)
        if credits:
            credits += incoming.grow()
        given += credits
        assert given == incoming.granted
        assert given - incoming.received == incoming.capacity - incoming.owed
    assert incoming.capacity == 8192
