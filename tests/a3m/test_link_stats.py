"""Statistics of one link: on both sides, while it is being made, and when it is over."""

from __future__ import annotations

import json

import pytest

import a3m
from tests.a3m.nodes import Nodes, crash, eventually, linked, restarted, take
from tests.a3m.shells import Shell, both


def test_both_sides_of_a_link_in_numbers(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in", capacity=10, batch=0.2)
    linked(push, pull)
    push.send_many([b"x"] * 6)
    eventually(lambda: pull.stats().queued == 6)
    take(pull, 3)  # two of them are a batch, of which the sender is told
    eventually(lambda: push.stats().by_peer["b/in"].credits == 6)
    assert push.stats().by_peer["b/in"] == a3m.LinkStats(
        peer="b/in",
        state="established",
        since=push.links[0].since,
        capacity=0,
        credits=6,
        queued=0,
        unsent=0,
        sent=6,
        received=0,
        unsettled=4,
        unknown=0,
    )
    assert pull.stats().by_peer["a/out"] == a3m.LinkStats(
        peer="a/out",
        state="established",
        since=pull.links[0].since,
        capacity=10,
        credits=0,
        queued=3,
        unsent=0,
        sent=0,
        received=6,
        unsettled=0,
        unknown=0,
    )
    assert push.link_to("b/in").stats() == push.stats().by_peer["b/in"]


def test_links_that_are_being_made_are_counted_apart(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in")
    linked(push, pull)
    push.link("b/nobody")
    stats = push.stats()
    assert stats.links == 1
    assert {peer: link.since for peer, link in stats.by_peer.items()} == {
        "b/in": push.links[0].since,
        "b/nobody": None,
    }
    waiting = stats.by_peer["b/nobody"]
    assert waiting.state.startswith("linking: ")
    assert (waiting.capacity, waiting.credits, waiting.queued, waiting.sent, waiting.received) == (0, 0, 0, 0, 0)


def test_a_link_that_is_over_says_what_became_of_its_messages(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out", retry=(0.01, 0.05)), b.pull("in")
    linked(push, pull)
    link = push.link_to("b/in")
    crash(b)
    push.send_many([b"unsure"] * 5, timeout=0)
    pull = restarted(nodes, b).pull("in")
    eventually(lambda: [other.peer for other in pull.links] == [push.id])
    over = link.stats()
    assert (over.state, over.sent, over.unsettled, over.unsent, over.unknown) == ("absent", 5, 0, 0, 5)
    assert push.stats().by_peer["b/in"].unknown == 0  # the next link begins anew
    assert push.stats().unknown == 5


@pytest.mark.parametrize("force", [True, False])
def test_messages_that_never_left(nodes: Nodes, force: bool) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in")
    linked(push, pull)
    link = push.link_to("b/in")
    with a._core.lock:  # nothing can leave meanwhile
        for _ in range(3):
            push.try_send(b"x")
        assert link._link.stats().unsent == 3
        push.manager.unlink(pull.id, force)
        assert link._link.stats().unsent == 3
        a._core.work()
    if not force:
        eventually(lambda: link.stats().unsent == 0)
        assert take(pull, 3) == [b"x"] * 3


def test_a_node_has_them_all_as_plain_data(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in")
    linked(push, pull)
    push.send(b"x")
    eventually(lambda: pull.stats().queued == 1)
    plain = json.loads(json.dumps(a.stats().as_dict()))
    assert plain["sockets"]["out"]["by_peer"]["b/in"] == push.link_to("b/in").stats().as_dict()
    assert plain["sockets"]["out"]["by_peer"]["b/in"]["sent"] == 1


@both
def test_tasks_have_them_too(shell: Shell) -> None:
    async def main() -> None:
        async with shell.open_node("a") as a:
            push, pull = a.push("out"), a.pull("in")
            push.link(pull.id)
            await push.send(b"x")
            assert await pull.recv() == b"x"
            assert push.stats().by_peer["a/in"].sent == push.link_to("a/in").stats().sent == 1

    shell.run(main)
