"""PAIR: two sockets that talk to each other; a third one waits for the place."""

from __future__ import annotations

import pytest

import a3m
from tests.a3m.nodes import PATIENCE, Nodes, eventually, in_background, linked, peers, result, take


def test_both_ways_in_order(nodes: Nodes) -> None:
    a, b = nodes.pair()
    one, two = a.pair("one", capacity=10), b.pair("two", capacity=10)
    linked(one, two)
    there = in_background(one.send_many, [b"%d" % number for number in range(500)])
    back = in_background(two.send_many, [b"%d" % number for number in range(500)])
    receiving = in_background(take, one, 500)
    assert [int(message) for message in take(two, 500)] == list(range(500))
    assert [int(message) for message in result(receiving)] == list(range(500))
    assert (result(there), result(back)) == (500, 500)


def test_a_third_one_is_put_off_until_the_place_is_free(nodes: Nodes) -> None:
    a, b = nodes.pair()
    one, two, third = a.pair("one"), b.pair("two"), b.pair("third", retry=(0.01, 0.01))
    linked(one, two)
    third.link(one.id)
    eventually(lambda: "ask again" in third.pending[0][1])
    with pytest.raises(a3m.Timeout):
        third.wait_linked(one.id, timeout=0)
    assert peers(one) == [two.id]
    two.close(timeout=PATIENCE)
    third.wait_linked(one.id, timeout=PATIENCE)
    third.send(b"now")
    assert take(one, 1) == [b"now"]


def test_a_pair_has_one_link_whatever_its_options_say(nodes: Nodes) -> None:
    a = nodes("a")
    with pytest.raises(ValueError, match="one link"):
        a.pair("wrong", max_links=2)
    one = a.pair("one")
    for wrong in (2, None):
        with pytest.raises(ValueError, match="one link"):
            one.options.max_links = wrong
    assert one.options.max_links == 1
    a.pair("wrong").close()  # the tag was not taken
