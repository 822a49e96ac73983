"""PUSH and PULL: each message to one receiver, links in turn, first in first out on each link, waits when full."""

from __future__ import annotations

from collections import Counter
from itertools import chain, pairwise

import pytest

import a3m
from tests.a3m.nodes import (
    PATIENCE,
    Nodes,
    can_send,
    eventually,
    fill,
    in_background,
    linked,
    nothing_left,
    result,
    take,
    waiting,
)


def test_a_message_goes_to_one_receiver_once(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in")
    linked(push, pull)
    push.send(b"hello")
    assert pull.recv(timeout=PATIENCE) == b"hello"
    assert nothing_left(pull)


def test_links_take_turns(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push = a.push("out")
    pulls = [b.pull(f"in{number}") for number in range(4)]
    linked(push, *pulls)
    for number in range(400):
        push.send(b"%d" % number)
    received = [[int(message) for message in take(pull, 100)] for pull in pulls]
    assert sorted(chain.from_iterable(received)) == list(range(400))
    for numbers in received:  # exactly every fourth one: nobody is skipped, nobody is served twice in a row
        assert all(later - earlier == 4 for earlier, later in pairwise(numbers))


def test_a_full_link_is_skipped_and_gets_its_turn_back(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, slow, fast = a.push("out"), b.pull("slow", capacity=2, batch=0.1), b.pull("fast")
    linked(push, slow, fast)
    for number in range(100):
        push.send(b"%d" % number)
    assert len(take(fast, 98)) == 98
    assert nothing_left(fast)
    assert len(take(slow, 2)) == 2
    eventually(lambda: push.link_to(slow.id).info().credits == 2)
    for number in range(4):
        push.send(b"%d" % number)
    assert len(take(slow, 2)) == len(take(fast, 2)) == 2


def test_first_in_first_out_on_each_link(nodes: Nodes) -> None:
    a, b = nodes.pair()
    pull = b.pull("in", capacity=10)
    pushes = [a.push(f"out{number}") for number in range(3)]
    for push in pushes:
        linked(push, pull)
    sending = [
        in_background(push.send_many, [b"%d %d" % (which, number) for number in range(500)])
        for which, push in enumerate(pushes)
    ]
    received = [tuple(map(int, message.split())) for message in take(pull, 1500)]
    assert [result(future) for future in sending] == [500, 500, 500]
    for which in range(3):
        assert [number for sender, number in received if sender == which] == list(range(500))


def test_links_are_received_from_in_turn(nodes: Nodes) -> None:
    a, b = nodes.pair()
    pull = b.pull("in")
    pushes = [a.push(f"out{number}") for number in range(3)]
    for which, push in enumerate(pushes):
        linked(push, pull)
        push.send_many([b"%d" % which] * 50)
    eventually(lambda: pull.stats().queued == 150)
    received = take(pull, 150)
    for first in range(0, 150, 3):
        assert Counter(received[first : first + 3]) == {b"0": 1, b"1": 1, b"2": 1}


def test_without_a_link_a_send_waits_for_one(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in")
    sending = in_background(push.send, b"early")
    waiting(push)
    push.link("b/in")
    result(sending)
    assert take(pull, 1) == [b"early"]


def test_a_send_without_credit_waits_for_one(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in", capacity=3, batch=0.1)
    linked(push, pull)
    accepted = fill(push, lambda number: b"%d" % number)
    assert len(accepted) == 3
    sending = in_background(push.send, b"fourth")
    waiting(push)
    assert take(pull, 1) == [b"0"]
    result(sending)
    assert take(pull, 3) == [b"1", b"2", b"fourth"]


def test_a_message_whose_send_timed_out_never_arrives(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in", capacity=2, batch=0.1)
    with pytest.raises(a3m.Timeout, match="no link"):
        push.send(b"never", timeout=0)
    linked(push, pull)
    accepted = fill(push, lambda number: b"%d" % number)
    with pytest.raises(a3m.Timeout, match="was not sent"):
        push.send(b"never", timeout=0.01)
    assert take(pull, 2) == accepted
    eventually(lambda: can_send(push))
    push.send(b"last")
    assert take(pull, 1) == [b"last"]
    assert nothing_left(pull)


def test_send_many_says_how_many_were_sent(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in", capacity=5)
    linked(push, pull)
    assert push.send_many([]) == 0
    assert push.send_many((b"%d" % number for number in range(8)), timeout=0) == 5
    with pytest.raises(a3m.Timeout):
        push.send_many([b"x"], timeout=0)
    assert take(pull, 5) == [b"0", b"1", b"2", b"3", b"4"]
    assert nothing_left(pull)


def test_a_wrong_payload_among_many_sends_none(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in")
    linked(push, pull)
    with pytest.raises(a3m.BadPayload):
        push.send_many([b"fine", "text"])  # type: ignore[list-item]
    push.send(b"after")
    assert take(pull, 1) == [b"after"]


def test_recv_many_takes_what_is_here(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in")
    linked(push, pull)
    push.send_many([b"%d" % number for number in range(10)])
    eventually(lambda: pull.stats().queued == 10)
    assert pull.recv_many(4) == [b"0", b"1", b"2", b"3"]
    assert pull.recv_many(100) == [b"4", b"5", b"6", b"7", b"8", b"9"]
    with pytest.raises(a3m.Timeout):
        pull.recv_many(1, timeout=0)
    for wrong in (0, -1, 2.5, True):
        with pytest.raises(ValueError, match="whole number above 0"):
            pull.recv_many(wrong)  # type: ignore[arg-type]


def test_a_stalled_receiver_holds_links_times_capacity(nodes: Nodes) -> None:
    a, b = nodes.pair()
    pull = b.pull("in", capacity=7)
    pushes = [a.push(f"out{number}") for number in range(5)]
    accepted = 0
    for push in pushes:
        linked(push, pull)
        accepted += len(fill(push, lambda _: bytes(1000)))
    assert accepted == 5 * 7
    eventually(lambda: pull.stats().queued == 5 * 7)


def test_every_waiting_thread_gets_its_message(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in")
    linked(push, pull)
    receiving = [in_background(pull.recv) for _ in range(20)]
    waiting(pull, 20)
    push.send_many([b"%d" % number for number in range(20)])
    assert sorted(int(result(future)) for future in receiving) == list(range(20))


def test_every_waiting_thread_sends_its_message(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in", capacity=1)
    linked(push, pull)
    sending = [in_background(push.send, b"%d" % number) for number in range(20)]
    assert sorted(int(message) for message in take(pull, 20)) == list(range(20))
    for future in sending:
        result(future)
    assert nothing_left(pull)


def test_large_messages_pass(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in")
    linked(push, pull)
    large = [bytes([number]) * 1_000_000 for number in range(12)]
    sending = in_background(push.send_many, large)
    assert take(pull, 12) == large
    assert result(sending) == 12
