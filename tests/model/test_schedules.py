"""Schedules written out by hand: each goes wrong without one correction, and ends well with the real records.

They are played with :class:`tests.model.schedule.World`, so that they stay readable next to Algorithm 1, and stay as
they are when the search that found them changes.
"""

from __future__ import annotations

import pytest

from exon.frames import Ack, ClosedFrame, ReqSlots, Slots, TokenFrame
from tests.model.node import CORRECT, Property, Variant
from tests.model.scenarios import CLOSE_BETWEEN, TWO_MESSAGES, WIDE_WINDOW
from tests.model.schedule import World
from tests.model.variants import (
    CLOCK_NOT_RAISED,
    ENVELOPES_FROM_ZERO,
    FRONTIER_PAST_TOKENS,
    PUBLISHED_RETRANSMISSION,
)

# -- correction 1: a token keeps the incarnation of its envelope ----------------------------------------------------


def play_duplicate_delivery(variant: Variant) -> World:
    """Both acknowledgements are lost, and the request for slots arrives three times."""
    world = World(TWO_MESSAGES, variant)
    world.send("a")
    world.send("a")
    [request] = world.request("a", 2)
    assert request == ReqSlots(0, 2, 0)
    [grant] = world.deliver("b", request)
    assert grant == Slots(0, 0, 2, 0)
    tokens = world.deliver("a", grant)
    assert tokens == [TokenFrame(0, 0, b"m0"), TokenFrame(1, 0, b"m1")]
    for token in tokens:
        world.deliver("b", token)
    world.deliver("b", request)
    assert world.nodes["b"].receive_record is None
    world.deliver("b", request)
    [probe] = world.probe("b")
    assert probe == Slots(2, 1, 0, 0)
    world.deliver("a", probe)
    for s in (0, 1):
        [token] = world.retransmit("a", s)
        world.deliver("b", token)
    return world


def test_published_retransmission_delivers_twice() -> None:
    world = play_duplicate_delivery(PUBLISHED_RETRANSMISSION)
    assert world.deliveries == ["m0", "m1", "m0", "m1"]
    assert world.shows(Property.ONCE) is not None
    assert not world.settle()


def test_token_keeps_its_incarnation() -> None:
    world = play_duplicate_delivery(CORRECT)
    assert world.deliveries == ["m0", "m1"]
    assert not world.violations
    assert world.settle()
    assert world.deliveries == ["m0", "m1"]


def test_grant_of_a_record_made_again_is_not_taken() -> None:
    """Its slots 0 and 1 are the sender's no longer; they go when the sender closes."""
    world = play_duplicate_delivery(CORRECT)
    world.deliver("a", Ack(0, 0, ((0, 1),)))
    world.deliver("a", Ack(0, 0, ((1, 2),)))
    [closing] = world.close("a")
    assert closing == ReqSlots(2, 0, 2)
    [answer] = world.deliver("b", closing)
    assert answer == ClosedFrame(2)
    world.deliver("a", answer)
    assert all(node.save().oblivious for node in world.nodes.values())
    assert not world.violations


# -- correction 5: envelopes start at sck ---------------------------------------------------------------------------


def play_lost_closing_request(variant: Variant) -> World:
    """The receiver keeps a record that the sender has forgotten, and the sender begins anew."""
    world = World(CLOSE_BETWEEN, variant)
    world.send("a")
    [request] = world.request("a", 2)
    [grant] = world.deliver("b", request)
    [token] = world.deliver("a", grant)
    [ack] = world.deliver("b", token)
    world.deliver("a", ack)
    assert world.close("a") == [ReqSlots(2, 0, 2)]  # and it is lost
    world.forget("a")
    world.send("a")
    [request] = world.request("a", 2)
    assert request == ReqSlots(2, 2, 2)
    [grant] = world.deliver("b", request)
    assert grant == Slots(2, 0, 2, 0)
    [token] = world.deliver("a", grant)
    [ack] = world.deliver("b", token)
    world.deliver("a", ack)
    assert world.nodes["a"].released == 0b11
    return world


def test_envelopes_from_zero_lose_an_acknowledged_message() -> None:
    world = play_lost_closing_request(ENVELOPES_FROM_ZERO)
    assert world.deliveries == ["m0"]
    assert world.shows(Property.SAFE_RELEASE) is not None
    assert not world.settle()
    assert world.deliveries == ["m0"]


def test_envelopes_start_at_sck() -> None:
    world = play_lost_closing_request(CORRECT)
    assert world.deliveries == ["m0", "m1"]
    assert not world.violations
    assert world.settle(send_rest=True)
    assert world.deliveries == ["m0", "m1", "m2"]


# -- correction 3: numbers that the receiver holds slots for are skipped --------------------------------------------


def play_shrinking_request(variant: Variant) -> World:
    """Two slots are asked for, then one only, and the answer to the second request arrives first."""
    world = World(WIDE_WINDOW, variant)
    world.send("a")
    [larger] = world.request("a", 2)
    [smaller] = world.request("a", 1)
    world.deliver("b", larger)
    [grant] = world.deliver("b", smaller)
    assert grant == Slots(0, 0, 1, 0)
    [token] = world.deliver("a", grant)
    [ack] = world.deliver("b", token)
    world.deliver("a", ack)
    assert world.deliveries == ["m0"]
    [closing] = world.close("a")
    assert closing == ReqSlots(1, 0, 1)
    world.deliver("b", closing)
    return world


@pytest.mark.parametrize("forgotten", [False, True], ids=["closing", "forgotten"])
def test_clock_not_raised_keeps_a_record_for_ever(forgotten: bool) -> None:
    world = play_shrinking_request(CLOCK_NOT_RAISED)
    if forgotten:
        world.forget("a")
    [probe] = world.probe("b")
    assert probe == Slots(2, 0, 0, 0)
    assert world.deliver("a", probe) == [ReqSlots(1, 0, 1)]
    assert not world.settle()
    assert world.nodes["b"].receive_record is not None


@pytest.mark.parametrize("forgotten", [False, True], ids=["closing", "forgotten"])
def test_clock_is_raised(forgotten: bool) -> None:
    world = play_shrinking_request(CORRECT)
    if forgotten:
        world.forget("a")
    [probe] = world.probe("b")
    [closing] = world.deliver("a", probe)
    assert closing == ReqSlots(2, 0, 2)
    assert world.deliver("b", closing) == [ClosedFrame(2)]
    assert world.nodes["b"].save().oblivious
    assert world.settle(send_rest=True)
    assert world.deliveries == ["m0", "m1", "m2"]


# -- the frontier never passes a token ------------------------------------------------------------------------------


def play_request_with_tokens_outstanding(variant: Variant) -> World:
    """Both tokens are lost; the sender asks for more slots before it repeats the first."""
    world = World(TWO_MESSAGES, variant)
    world.send("a")
    world.send("a")
    [request] = world.request("a", 2)
    [grant] = world.deliver("b", request)
    world.deliver("a", grant)
    [request] = world.request("a", 1)
    world.deliver("b", request)
    [token] = world.retransmit("a", 0)
    [ack] = world.deliver("b", token)
    assert ack == Ack(0, 0, ((0, 1),))
    world.deliver("a", ack)
    return world


def test_frontier_past_tokens_loses_an_acknowledged_message() -> None:
    world = play_request_with_tokens_outstanding(FRONTIER_PAST_TOKENS)
    assert world.deliveries == []
    assert world.shows(Property.SAFE_RELEASE) is not None
    assert not world.settle()


def test_frontier_stays_at_the_lowest_token() -> None:
    world = play_request_with_tokens_outstanding(CORRECT)
    assert world.deliveries == ["m0"]
    assert not world.violations
    assert world.settle()
    assert world.deliveries == ["m0", "m1"]


# -- the world itself -----------------------------------------------------------------------------------------------


def test_a_frame_must_have_been_sent() -> None:
    world = World(TWO_MESSAGES)
    with pytest.raises(AssertionError, match=r"REQSLOTS\(0,2,0\) was never sent to b"):
        world.deliver("b", ReqSlots(0, 2, 0))


def test_nothing_is_settled_while_messages_are_unsent() -> None:
    world = World(TWO_MESSAGES)
    assert world.settle()
    assert world.deliveries == []
    assert world.settle(send_rest=True)
    assert world.deliveries == ["m0", "m1"]
