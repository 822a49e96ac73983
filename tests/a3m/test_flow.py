"""Credits and order: what may be sent, what has come, and that it does not matter in which order the news arrives."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from a3m.flow import Incoming, Outgoing
from a3m.link_machine import State
from a3m.messages import DATA, FLOW, Message, encode
from a3m.socket import Socket
from tests.a3m.test_links import TAG, Place, Wire, established


def incoming(capacity: int = 4, batch: float = 1.0, ordered: bool = True) -> Incoming:
    return Incoming(capacity, batch, ordered)


def fill(link: Incoming, count: int) -> None:
    first = link.received
    assert link.accept(first, [b"%d" % number for number in range(first, first + count)])


# -- the sender -----------------------------------------------------------------------------------------------------


def test_message_uses_up_a_credit() -> None:
    outgoing = Outgoing(credits=2)
    outgoing.push(b"0")
    assert outgoing.ready
    outgoing.push(b"1")
    assert not outgoing.ready
    assert outgoing.sent == 2
    with pytest.raises(AssertionError, match="without credit"):
        outgoing.push(b"2")


def test_debt_is_worked_off_before_anything_is_sent() -> None:
    outgoing = Outgoing(credits=2)
    outgoing.credits -= 3
    assert not outgoing.ready
    outgoing.credits += 1
    assert not outgoing.ready
    outgoing.credits += 1
    assert outgoing.ready


def test_runs_are_numbered_from_the_first_message_that_has_not_left() -> None:
    outgoing = Outgoing(credits=5)
    for item in (b"0", b"1", b"2"):
        outgoing.push(item)
    assert outgoing.next_run(2) == (0, [b"0", b"1"])
    del outgoing.queue[:2]
    assert outgoing.next_run(2) == (2, [b"2"])
    outgoing.push(b"3")
    assert outgoing.next_run(9) == (2, [b"2", b"3"])


# -- batches --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("capacity", "batch", "returned"),
    [
        (4, 1.0, [0, 0, 0, 4]),
        (4, 0.5, [0, 2, 0, 2]),
        (4, 0.25, [1, 1, 1, 1]),
        (5, 0.5, [0, 2, 0, 2, 0]),
        (3, 0.1, [1, 1, 1]),
        (1, 0.25, [1]),
    ],
)
def test_credits_go_back_in_batches(capacity: int, batch: float, returned: list[int]) -> None:
    link = incoming(capacity, batch)
    fill(link, capacity)
    assert [link.taken() for _ in range(capacity)] == returned
    assert link.granted == capacity + sum(returned)
    assert link.owed == capacity - sum(returned)


@given(capacity=st.integers(1, 50), batch=st.floats(0.01, 1.0), rounds=st.integers(1, 200))
def test_sender_never_starves(capacity: int, batch: float, rounds: int) -> None:
    """However large the batch, an empty queue always means credit at the sender."""
    link, sender = incoming(capacity, batch), Outgoing(credits=capacity)
    for number in range(rounds):
        sender.push(b"")
        assert link.accept(number, [b""])
        link.queue.popleft()
        sender.credits += link.taken()
        assert sender.ready


# -- another capacity -----------------------------------------------------------------------------------------------


def test_larger_capacity_gives_credits() -> None:
    link = incoming(2)
    assert link.resize(5) == 3
    fill(link, 5)
    assert not link.accept(5, [b"x"])


def test_smaller_capacity_takes_credits_away() -> None:
    link = incoming(5)
    assert link.resize(2) == -3
    assert link.capacity == 2


def test_message_under_way_when_credits_are_taken_away_is_welcome() -> None:
    """The sender had used its credits before it heard of it."""
    link = incoming(3)
    link.resize(0)
    fill(link, 3)
    assert [link.taken() for _ in range(3)] == [1, 1, 1]  # and so its debt of 3 is paid


def test_what_is_owed_is_returned_when_it_has_become_a_batch() -> None:
    link, sender = incoming(4), Outgoing(credits=4)
    for number in range(3):
        sender.push(b"")
        assert link.accept(number, [b""])
        link.queue.popleft()
        sender.credits += link.taken()
    assert (sender.credits, link.owed) == (1, 3)
    sender.credits += link.resize(3)
    assert (sender.credits, link.owed) == (3, 0)


def test_same_capacity_changes_nothing() -> None:
    link = incoming(4)
    assert link.resize(4) == 0
    assert link.granted == 4


@st.composite
def histories(draw: st.DrawFn) -> tuple[int, float, list[tuple[str, int]]]:
    """A capacity, a batch, and what happens: sending, arriving, taking, resizing, and news of credits in any order."""
    steps = st.one_of(
        st.tuples(st.just("send"), st.just(0)),
        st.tuples(st.just("arrive"), st.integers(0, 99)),
        st.tuples(st.just("take"), st.just(0)),
        st.tuples(st.just("resize"), st.integers(0, 9)),
        st.tuples(st.just("credits"), st.integers(0, 99)),
    )
    return draw(st.integers(0, 6)), draw(st.sampled_from([0.1, 0.3, 0.5, 1.0])), draw(st.lists(steps, max_size=80))


@given(histories(), st.booleans())
def test_credits_converge_under_any_order(history: tuple[int, float, list[tuple[str, int]]], ordered: bool) -> None:
    capacity, batch, steps = history
    link, sender = Incoming(capacity, batch, ordered), Outgoing(credits=capacity)
    data: list[int] = []
    news: list[int] = []
    received: list[bytes] = []

    def take() -> None:
        received.append(link.queue.popleft())
        if change := link.taken():
            news.append(change)

    def check() -> None:
        waiting = len(link.queue) + sum(map(len, link._early.values()))
        assert link.capacity == sender.credits + len(data) + waiting + link.owed + sum(news)

    for what, number in steps:
        if what == "send" and sender.ready:
            data.append(sender.sent)
            sender.push(b"%d" % sender.sent)
        elif what == "arrive" and data:
            first = data.pop(number % len(data))
            assert link.accept(first, [b"%d" % first])
        elif what == "take" and link.queue:
            take()
        elif what == "resize" and (change := link.resize(number)):
            news.append(change)
        elif what == "credits" and news:
            sender.credits += news.pop(number % len(news))
        check()
    while data:
        assert link.accept(data[-1], [b"%d" % data.pop()])
    while link.queue:
        take()
    sender.credits += sum(news)
    assert sender.credits + link.owed == link.capacity
    assert sender.ready or link.capacity == 0
    expected = [b"%d" % number for number in range(sender.sent)]
    assert (received if ordered else sorted(received, key=int)) == expected


# -- order ----------------------------------------------------------------------------------------------------------


def test_runs_that_overtake_others_wait() -> None:
    link = incoming(6)
    assert link.accept(4, [b"4", b"5"])
    assert link.accept(1, [b"1"])
    assert list(link.queue) == []
    assert link.accept(0, [b"0"])
    assert list(link.queue) == [b"0", b"1"]
    assert link.accept(2, [b"2", b"3"])
    assert list(link.queue) == [b"%d" % number for number in range(6)]
    assert link._early == {}


def test_without_order_nothing_waits() -> None:
    link = incoming(3, ordered=False)
    assert link.accept(2, [b"2"])
    assert link.accept(0, [b"0", b"1"])
    assert list(link.queue) == [b"2", b"0", b"1"]


@given(st.lists(st.integers(1, 4), min_size=1, max_size=10), st.randoms(use_true_random=False))
def test_any_order_of_runs_is_put_right(lengths: list[int], random: Random) -> None:
    def runs() -> Iterator[tuple[int, list[bytes]]]:
        first = 0
        for length in lengths:
            yield first, [b"%d" % number for number in range(first, first + length)]
            first += length

    shuffled = list(runs())
    random.shuffle(shuffled)
    link = incoming(sum(lengths))
    assert all(link.accept(first, items) for first, items in shuffled)
    assert list(link.queue) == [b"%d" % number for number in range(sum(lengths))]


@pytest.mark.parametrize("first", [0, 2, -1])
def test_number_that_was_there_already_is_refused(first: int) -> None:
    link = incoming(9)
    assert link.accept(0, [b"0"])
    assert link.accept(2, [b"2"])
    assert not link.accept(first, [b"again"])


def test_more_than_the_peer_said_it_sent_is_refused() -> None:
    link = incoming(9)
    link.goal = 2
    fill(link, 1)
    assert not link.all_here
    assert not link.accept(1, [b"1", b"2"])
    fill(link, 1)
    assert link.all_here


# -- between sockets ------------------------------------------------------------------------------------------------


def test_slow_receiver_stops_the_sender_and_lets_it_go_on() -> None:
    wire = established()
    for number in range(8):
        wire.send("a", b"%d" % number)
    wire.drain()
    assert wire["a"].route(b"x") is None
    assert wire["b"].take()[1] == b"0"
    wire.collect()
    assert wire.flight == []  # a quarter of 8 makes a batch
    wire["b"].take()
    wire.collect()
    wire.arrive("a", FLOW)
    assert wire["a"].route(b"x") is not None


def test_peer_that_sends_without_credit_is_cut_off() -> None:
    wire = established()
    link = wire.link("b")
    wire.forge("b", DATA, link.theirs, link.mine, 0, [b"x"] * 8)
    assert wire.agree()
    wire.forge("b", DATA, link.theirs, link.mine, 8, [b"one too many"])
    assert wire.state("b") is State.ABSENT
    assert wire.places["b"].core.dropped["message without credit"] == 1
    assert wire.receive("b") == [b"x"] * 8  # what it had credit for
    wire.drain()
    assert wire.state("a") is State.ABSENT


def test_memory_is_links_times_capacity() -> None:
    """A consumer that never takes anything, and peers that send as much as they like."""
    place = Place("b")
    socket = place.make(capacity=4)
    for peer in range(10):
        place.transport.arrived.append(
            ("a", [encode(Message(2, TAG, f"peer{peer}", 100 + peer, 0, ("PLAIN", 4, 0, None)))])
        )
    place.core.expire(0.0)
    links = list(socket.manager.links.values())
    assert len(links) == 10
    for first in range(0, 40, 2):
        for link in links:
            body = (first, [b"x"] * 2) if first % 4 else (first + 2, [b"x"] * 2)  # every other run overtakes
            data = encode(Message(DATA, TAG, link.peer.tag, link.theirs, link.mine, body))
            place.transport.arrived.append(("a", [data]))
        place.core.expire(0.0)
        held = 0
        for link in links:
            assert link.incoming is not None
            held += len(link.incoming.queue) + sum(map(len, link.incoming._early.values()))
        assert held <= 10 * 4
    assert socket.manager.links == {}  # every one of them sent more than it had credit for
    assert place.core.dropped["message without credit"] == 10


def test_socket_that_does_not_receive_gives_no_credit() -> None:
    class Sender(Socket):
        protocol = "PLAIN"
        compatible = frozenset({"PLAIN"})
        receives = False

    wire = Wire(a=None)
    place = wire.places["a"]
    place.socket = Sender(place.core, TAG)  # type: ignore[assignment]
    wire.call_link("a")
    wire.drain()
    assert wire.agree()
    assert wire["b"].route(b"x") is None
    wire.send("a", b"one way")
    wire.drain()
    assert wire.receive("b") == [b"one way"]
