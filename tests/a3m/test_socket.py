"""What all sockets have in common: links made and unmade, waiting, iterating, closing."""

from __future__ import annotations

from concurrent.futures import Future
from threading import Thread
from typing import Any

import pytest

import a3m
from a3m import waiting as waiting_module
from exon.engine import Engine
from tests.a3m.nodes import (
    PATIENCE,
    Nodes,
    at,
    crash,
    eventually,
    fill,
    in_background,
    linked,
    peers,
    result,
    take,
    waiting,
)

QUICK = (0.001, 0.01)  # pauses before asking again


# ---- making links ----------------------------------------------------------------------------------------------------


def test_linking_twice_is_one_link(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in")
    push.link("b/in")
    push.link(pull.id)
    pull.link("a/out")
    push.wait_linked("b/in", timeout=PATIENCE)
    pull.wait_linked("a/out", timeout=PATIENCE)
    push.link("b/in")
    push.send(b"x")
    assert take(pull, 1) == [b"x"]
    assert peers(push) == [pull.id]
    assert peers(pull) == [push.id]
    assert push.pending == pull.pending == ()


def test_both_sides_link_at_once(nodes: Nodes) -> None:
    a, b = nodes.pair()
    for number in range(30):
        one, two = a.pair(f"one{number}"), b.pair(f"two{number}")
        other = Thread(target=two.link, args=[one.id])
        other.start()
        one.link(two.id)
        other.join()
        one.send(b"1", timeout=PATIENCE)
        two.send(b"2", timeout=PATIENCE)
        assert (take(one, 1), take(two, 1)) == ([b"2"], [b"1"])
        assert (peers(one), peers(two)) == ([two.id], [one.id])


def test_a_socket_links_with_itself(nodes: Nodes) -> None:
    a = nodes("a")
    pair, dealer = a.pair("self"), a.dealer("dealer")
    for socket in (pair, dealer):
        socket.link(socket.id)
        socket.wait_linked(timeout=PATIENCE)
        for number in range(2000):
            socket.send(b"%d" % number, timeout=PATIENCE)
            assert socket.recv(timeout=PATIENCE) == b"%d" % number
        assert peers(socket) == [socket.id]
        socket.close(timeout=PATIENCE)


def test_sockets_of_one_node(nodes: Nodes) -> None:
    a = nodes("a")
    push, pull = a.push("out"), a.pull("in", capacity=4)
    linked(push, pull)
    sending = in_background(push.send_many, [b"%d" % number for number in range(1000)])
    assert [int(message) for message in take(pull, 1000)] == list(range(1000))
    result(sending)
    assert push.close(timeout=PATIENCE)
    pull.wait_unlinked(timeout=PATIENCE)


def test_a_link_to_a_socket_that_is_made_later(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push = a.push("out", retry=QUICK)
    push.link("b/in")
    eventually(lambda: push.pending and "ask again" in push.pending[0][1])
    assert push.links == ()
    pull = b.pull("in")
    assert push.wait_linked("b/in", timeout=PATIENCE) == pull.id


def test_a_link_to_a_node_that_comes_later(nodes: Nodes) -> None:
    a = nodes("a")
    push = a.push("out")
    push.link("b/in")
    pull = nodes("b").pull("in")
    push.send(b"x", timeout=PATIENCE)
    assert take(pull, 1) == [b"x"]


def test_incompatible_patterns_are_refused_with_advice(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push = a.push("out")
    b.req("ask")
    push.link("b/ask")
    with pytest.raises(a3m.LinkRefused, match="PUSH with PULL") as caught:
        push.wait_linked("b/ask", timeout=PATIENCE)
    assert caught.value.code is a3m.Reply.INCOMPATIBLE
    assert caught.value.peer == ("b", "ask")
    assert (push.links, push.pending) == ((), ())
    with pytest.raises(a3m.NoLinks):
        push.send(b"x", require_link=True)


def test_a_socket_that_takes_no_links(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in", accept_links=False)
    push.link(pull.id)
    with pytest.raises(a3m.LinkRefused, match="let it link to us") as caught:
        push.wait_linked(pull.id, timeout=PATIENCE)
    assert caught.value.code is a3m.Reply.INCOMING_NOT_ALLOWED
    linked(pull, push)  # it can still link itself
    pull.options.accept_links = True
    other = a.push("other")
    linked(other, pull)


def test_full_and_closed_to_others_is_refused_for_good(nodes: Nodes) -> None:
    a, b = nodes.pair()
    pull = b.pull("in", max_links=1)
    linked(a.push("first"), pull)
    pull.options.accept_links = False
    second = a.push("second")
    second.link(pull.id)
    with pytest.raises(a3m.LinkRefused):
        second.wait_linked(pull.id, timeout=PATIENCE)


def test_links_beyond_the_limit_wait_for_a_place(nodes: Nodes) -> None:
    a, b = nodes.pair()
    pull = b.pull("in", max_links=2)
    pushes = [a.push(f"out{number}", retry=QUICK) for number in range(3)]
    linked(pushes[0], pull)
    linked(pushes[1], pull)
    pushes[2].link(pull.id)
    eventually(lambda: pushes[2].pending and "ask again" in pushes[2].pending[0][1])
    pushes[0].unlink(pull.id)
    pushes[2].wait_linked(pull.id, timeout=PATIENCE)
    eventually(lambda: set(peers(pull)) == {pushes[1].id, pushes[2].id})


class Guarded(a3m.PullSocket):
    """Takes links from those who know the word."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.asked: list[tuple[a3m.SocketId, Any]] = []

    def on_link_request(self, peer: a3m.SocketId, metadata: Any) -> a3m.Reply:
        self.asked.append((peer, metadata))
        if metadata == {"word": "please", "numbers": [1, 2]}:
            return a3m.Reply.OK
        return a3m.Reply.TMP_NAVAIL if metadata == "later" else a3m.Reply.INCOMING_NOT_ALLOWED


def test_metadata_decides(nodes: Nodes) -> None:
    a, b = nodes.pair()
    guarded: Guarded = b.socket(Guarded, "in")
    polite, rude, early = a.push("polite"), a.push("rude"), a.push("early")
    polite.link(guarded.id, metadata={"word": "please", "numbers": [1, 2]})
    polite.wait_linked(guarded.id, timeout=PATIENCE)
    rude.link(guarded.id)
    with pytest.raises(a3m.LinkRefused):
        rude.wait_linked(guarded.id, timeout=PATIENCE)
    early.link(guarded.id, metadata="later")
    eventually(lambda: early.pending and "ask again" in early.pending[0][1])
    assert (rude.id, None) in guarded.asked


def test_metadata_that_cannot_travel_changes_nothing(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in")
    for wrong in (object(), {1: {2, 3}}, 2**70):
        with pytest.raises(a3m.BadPayload, match="metadata"):
            push.link("b/in", metadata=wrong)
    with pytest.raises(a3m.MessageTooLarge, match="metadata"):
        push.link("b/in", metadata=bytes(100_000))
    assert push.pending == ()
    linked(push, pull)


# ---- ending links ----------------------------------------------------------------------------------------------------


def test_unlink_after_everything_arrived(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in")
    linked(push, pull)
    push.send_many([b"%d" % number for number in range(1000)])
    push.unlink(pull.id)
    push.wait_unlinked(timeout=PATIENCE)
    pull.wait_unlinked(push.id, timeout=PATIENCE)
    assert push.links == pull.links == ()
    assert [int(message) for message in take(pull, 1000)] == list(range(1000))
    push.unlink(pull.id)  # again: nothing to do
    push.unlink("b/unknown")


def test_unlink_with_more_than_the_transport_takes_at_once(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in")
    linked(push, pull)
    sent = [bytes([number]) * 1_000_000 for number in range(40)]
    assert push.send_many(sent) == 40
    push.unlink(pull.id)
    push.wait_unlinked(timeout=PATIENCE)
    assert take(pull, 40) == sent
    pull.wait_unlinked(timeout=PATIENCE)


def test_the_receiver_unlinks_and_still_gets_what_was_sent(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in")
    linked(push, pull)
    sending = in_background(push.send_many, [b"%d" % number for number in range(1000)], timeout=0)
    pull.unlink(push.id)
    pull.wait_unlinked(timeout=PATIENCE)
    push.wait_unlinked(timeout=PATIENCE)
    try:
        sent = result(sending)
    except a3m.Timeout:
        sent = 0
    assert [int(message) for message in take(pull, sent)] == list(range(sent))
    with pytest.raises(a3m.Timeout):
        pull.recv(timeout=0)


def test_a_forced_unlink_ends_at_once(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in")
    linked(push, pull)
    crash(b)  # nobody answers
    push.unlink(pull.id)
    assert push.links == ()
    assert [peer for peer, _ in push.pending] == [pull.id]
    push.unlink(pull.id, force=True)
    assert push.pending == ()
    push.wait_unlinked(timeout=0)


def test_relinking_while_the_old_link_still_closes(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out", retry=QUICK), b.pull("in")
    linked(push, pull)
    for number in range(50):
        push.send(b"%d" % number, timeout=PATIENCE)
        push.unlink(pull.id)
        push.link(pull.id)
    push.send(b"last", timeout=PATIENCE)
    assert sorted(take(pull, 51)) == sorted([*(b"%d" % number for number in range(50)), b"last"])
    assert peers(push) == [pull.id]


def test_cancelling_a_link_that_is_being_made(nodes: Nodes) -> None:
    a = nodes("a")
    push = a.push("out")
    push.link("nobody/knows")
    push.unlink("nobody/knows", force=True)
    assert push.pending == ()
    push.link("nobody/knows")
    waiter = in_background(push.wait_linked, "nobody/knows")
    waiting(push)
    push.unlink("nobody/knows", force=True)
    with pytest.raises(a3m.LinkClosed):
        result(waiter)
    assert push.close(timeout=PATIENCE)


# ---- waiting for links -----------------------------------------------------------------------------------------------


def test_waiting_for_links(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in")
    with pytest.raises(a3m.Timeout, match="it has no link: call link"):
        push.wait_linked(timeout=0)
    with pytest.raises(a3m.LinkClosed, match=r"call link\(\) first"):
        push.wait_linked("b/in", timeout=PATIENCE)
    waiter = in_background(pull.wait_linked)
    waiting(pull)
    push.link("b/in")
    assert result(waiter) == push.id
    with pytest.raises(a3m.Timeout):
        pull.wait_unlinked(timeout=0)
    with pytest.raises(a3m.Timeout):
        pull.wait_unlinked(push.id, timeout=0)
    pull.wait_unlinked("a/other", timeout=0)
    waiters = [in_background(pull.wait_unlinked) for _ in range(3)]
    waiting(pull, 3)
    push.unlink("b/in")
    for each in waiters:
        result(each)


def test_require_link(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in")
    with pytest.raises(a3m.NoLinks, match="call link"):
        push.send(b"x", require_link=True)
    with pytest.raises(a3m.NoLinks):
        pull.recv(require_link=True)
    with pytest.raises(a3m.NoLinks):
        pull.recv_many(1, require_link=True)
    push.link("b/in")
    push.send(b"x", require_link=True, timeout=PATIENCE)  # one is being made
    assert pull.recv(timeout=PATIENCE) == b"x"
    receivers = [in_background(pull.recv, timeout=PATIENCE, require_link=True) for _ in range(5)]
    waiting(pull, 5)
    push.unlink("b/in")
    for receiver in receivers:
        with pytest.raises(a3m.NoLinks):
            result(receiver)


# ---- iterating -------------------------------------------------------------------------------------------------------


def test_an_iteration_waits_for_the_first_link_and_ends_with_the_last(nodes: Nodes) -> None:
    a, b = nodes.pair()
    pull = b.pull("in")
    iterating = in_background(lambda: list(pull))
    waiting(pull)
    one, two = a.push("one"), a.push("two")
    linked(one, pull)
    linked(two, pull)
    one.send_many([b"%d" % number for number in range(100)])
    one.close(timeout=PATIENCE)
    two.send_many([b"%d" % number for number in range(100, 200)])
    two.close(timeout=PATIENCE)
    assert sorted(int(message) for message in result(iterating)) == list(range(200))


def test_several_threads_iterate_over_one_socket(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in", capacity=8)
    iterating = [in_background(lambda: list(pull)) for _ in range(4)]
    waiting(pull, 4)
    linked(push, pull)
    push.send_many([b"%d" % number for number in range(1000)], timeout=PATIENCE)
    push.close(timeout=PATIENCE)
    received = [int(message) for future in iterating for message in result(future)]
    assert sorted(received) == list(range(1000))


def test_an_iteration_ends_when_the_link_is_refused_or_the_socket_closed(nodes: Nodes) -> None:
    a, b = nodes.pair()
    refused, closed = a.pull("refused"), a.pull("closed")
    b.rep("answer")
    refused.link("b/answer")
    assert list(refused) == []
    iterating = in_background(lambda: list(closed))
    waiting(closed)
    closed.close()
    assert result(iterating) == []
    with pytest.raises(a3m.NotSupported):
        list(a.push("out"))


def test_leaving_an_iteration_loses_nothing(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in")
    linked(push, pull)
    push.send_many([b"%d" % number for number in range(10)])
    for message in pull:
        if message == b"4":
            break
    assert take(pull, 5) == [b"5", b"6", b"7", b"8", b"9"]


# ---- looking at links ------------------------------------------------------------------------------------------------


def test_links_in_numbers(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in", capacity=100, batch=0.5)
    linked(push, pull)
    push.send_many([b"x"] * 10)
    eventually(lambda: pull.stats().queued == 10)
    (there,), (here,) = push.links, pull.links
    assert (there.peer, there.capacity, there.credits, there.queued, there.sent) == (pull.id, 0, 90, 0, 10)
    assert (here.peer, here.capacity, here.credits, here.queued, here.received) == (push.id, 100, 0, 10, 10)
    assert here.since > 0
    take(pull, 49 - 39)
    assert push.link_to("b/in").info().credits == 90  # they come back in batches
    with pytest.raises(a3m.NoLinks, match="wait_linked"):
        push.link_to("b/other")
    assert push.link_to(pull.id).peer == pull.id


def test_capacity_follows_up_and_down(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in", capacity=10, batch=0.01)
    linked(push, pull)
    link = pull.link_to(push.id)
    link.capacity = 25
    eventually(lambda: push.link_to(pull.id).info().credits == 25)
    link.capacity = 5
    eventually(lambda: push.link_to(pull.id).info().credits == 5)
    assert len(fill(push, lambda _: b"x")) == 5
    link.capacity = 2
    assert take(pull, 5) == [b"x"] * 5
    eventually(lambda: push.link_to(pull.id).info().credits == 2)
    assert link.capacity == 2
    pull.options.capacity = 7
    assert link.capacity == 2  # of new links only
    push.unlink(pull.id)
    pull.wait_unlinked(timeout=PATIENCE)
    push.wait_unlinked(timeout=PATIENCE)
    with pytest.raises(a3m.LinkClosed):
        link.capacity = 3
    linked(push, pull)
    assert pull.link_to(push.id).capacity == 7
    with pytest.raises(ValueError, match="capacity"):
        pull.link_to(push.id).capacity = -1
    assert pull.link_to(push.id).capacity == 7


def test_shrinking_while_messages_are_on_the_way_loses_none(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in", capacity=500)
    linked(push, pull)
    sending = in_background(push.send_many, [b"%d" % number for number in range(5000)])
    received = []
    for capacity in (1, 1000, 3, 700, 2, 50) * 5:
        pull.link_to(push.id).capacity = capacity
        received += take(pull, 100)
    received += take(pull, 2000)
    assert [int(message) for message in received] == list(range(5000))
    assert result(sending) == 5000


# ---- closing ---------------------------------------------------------------------------------------------------------


def test_close_delivers_what_was_sent(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in")
    linked(push, pull)
    sent = [bytes([number]) * 500_000 for number in range(60)]
    push.send_many(sent)
    assert push.close(timeout=PATIENCE)
    assert take(pull, 60) == sent
    assert push.close(timeout=0)  # again


def test_close_with_a_deadline(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in")
    linked(push, pull)
    crash(b)  # nobody answers
    push.send(b"x")
    assert not push.close(timeout=0.01)
    with pytest.raises(a3m.Closed, match="a/out"):
        push.send(b"y")
    a.push("out")  # the tag is free


def test_a_tag_is_free_after_close(nodes: Nodes) -> None:
    a, b = nodes.pair()
    pull = b.pull("in")
    for number in range(20):
        with a.push("out") as push:
            with pytest.raises(a3m.BadIdentifier, match="already"):
                a.pull("out")
            push.link(pull.id)
            push.send(b"%d" % number, timeout=PATIENCE)
    assert [int(message) for message in take(pull, 20)] == list(range(20))


def test_everything_on_a_closed_socket(nodes: Nodes) -> None:
    a, b = nodes.pair()
    pair, other = a.pair("one"), b.pair("two")
    linked(pair, other)
    other.send(b"kept")
    eventually(lambda: pair.stats().queued == 1)
    pair.close(timeout=PATIENCE)
    assert pair.recv(timeout=0) == b"kept"  # what came can still be taken
    for call in (
        lambda: pair.send(b"x"),
        pair.recv,
        lambda: pair.recv_many(2),
        lambda: pair.link("b/two"),
        pair.wait_linked,
        lambda: pair.send_many([b"x"]),
    ):
        with pytest.raises(a3m.Closed):
            call()
    assert list(pair) == []
    pair.wait_unlinked(timeout=0)
    pair.unlink("b/two")
    assert (pair.links, pair.pending) == ((), ())
    assert pair.poll_events(None) & a3m.POLLHUP
    assert pair.stats().links == 0


def test_close_wakes_everybody(nodes: Nodes) -> None:
    a = nodes("a")
    pair = a.pair("one")
    calls: list[Future[Any]] = [
        in_background(pair.send, b"x"),
        in_background(pair.send_many, [b"x"]),
        in_background(pair.recv),
        in_background(pair.recv),
        in_background(pair.wait_linked),
    ]
    waiting(pair, 5)
    pair.close()
    for call in calls:
        with pytest.raises(a3m.Closed):
            result(call)


def test_several_threads_close_one_socket(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in")
    linked(push, pull)
    push.send_many([b"x"] * 500)
    closing = [in_background(push.close) for _ in range(5)]
    assert all(result(future) for future in closing)
    assert take(pull, 500) == [b"x"] * 500


def test_an_exception_closes_at_once(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in")
    linked(push, pull)
    crash(b)  # nobody answers, so any other close would wait
    with pytest.raises(ZeroDivisionError), push:
        raise ZeroDivisionError
    with pytest.raises(a3m.Closed):
        push.send(b"x")


def test_send_many_says_how_many_were_sent_before_the_socket_was_closed(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in", capacity=3)
    linked(push, pull)
    sending = in_background(push.send_many, [b"%d" % number for number in range(10)])
    waiting(push)
    push.close(timeout=PATIENCE)
    assert result(sending) == 3
    assert take(pull, 3) == [b"0", b"1", b"2"]


# ---- wake-ups --------------------------------------------------------------------------------------------------------


def test_a_parked_call_that_is_interrupted_passes_its_wake_up_on(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = nodes.pair()
    push, pull, other = a.push("out"), b.pull("in"), b.pull("other")
    linked(push, pull)
    wait = waiting_module._Parked.wait

    def interrupted(parked: waiting_module._Parked, timeout: float | None) -> None:
        wait(parked, timeout)
        if timeout is not None:  # the one call below that has a time-out
            raise KeyboardInterrupt

    monkeypatch.setattr(waiting_module._Parked, "wait", interrupted)
    leader = in_background(other.recv, timeout=1000)  # it drives the node, so the others park
    waiting(other, 1)
    unlucky = in_background(pull.recv, timeout=1000)
    waiting(pull, 1)
    lucky = in_background(pull.recv)
    waiting(pull, 2)
    push.send(b"x")
    with pytest.raises(KeyboardInterrupt):
        result(unlucky)
    assert result(lucky) == b"x"
    other.close()
    with pytest.raises(a3m.Closed):
        result(leader)


def test_a_leader_that_is_interrupted_passes_its_wake_up_on(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in")
    linked(push, pull)
    turn = Engine.turn

    def interrupted(engine: Engine, deadline: float | None) -> bool:
        go_on = turn(engine, deadline)
        if deadline is not None and pull.can_receive_now():  # the one call below that has a time-out
            raise KeyboardInterrupt
        return go_on

    monkeypatch.setattr(Engine, "turn", interrupted)
    unlucky = in_background(pull.recv, timeout=1000)
    waiting(pull, 1)
    lucky = in_background(pull.recv)
    waiting(pull, 2)
    push.send(b"x")
    with pytest.raises(KeyboardInterrupt):
        result(unlucky)
    assert result(lucky) == b"x"


def test_receivers_with_short_deadlines_lose_no_message_and_no_wake_up(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in", capacity=4)
    linked(push, pull)
    count = 3000

    def impatient(socket: a3m.Socket) -> list[bytes]:
        taken: list[bytes] = []
        while True:
            try:
                message = socket.recv(timeout=0.0005)
            except a3m.Timeout:
                continue
            if message == b"end":
                return taken
            taken.append(message)

    hurried = [in_background(impatient, pull) for _ in range(3)]
    patient = in_background(lambda: list(iter(lambda: pull.recv(timeout=PATIENCE), b"end")))
    for number in range(count):
        push.send(b"%d" % number, timeout=PATIENCE)
    for _ in range(4):
        push.send(b"end", timeout=PATIENCE)
    received = [int(message) for future in [*hurried, patient] for message in result(future)]
    assert sorted(received) == list(range(count))


def test_a_node_that_moved_is_found_again(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in", capacity=64)
    linked(push, pull)
    sending = in_background(push.send_many, [b"%d" % number for number in range(20_000)])
    received = take(pull, 5_000)
    b.rebind("127.0.0.1:0")
    received += take(pull, 5_000)
    a.rebind("127.0.0.1:0")
    received += take(pull, 10_000)
    assert [int(message) for message in received] == list(range(20_000))
    assert result(sending) == 20_000
    a.register("b", at(b))
    moved = next(event for event in a.events(timeout=PATIENCE) if event.kind == "moved")
    assert moved.peer == "b"


def test_what_comes_while_a_call_does_the_nodes_work_is_not_waited_for(nodes: Nodes) -> None:
    pull = nodes("a").pull("in")
    work, here = pull.core.work_apart, []

    def takes_something_in() -> bool:
        work()
        here.append(b"x")
        return True

    pull.core.work_apart = takes_something_in
    pull.try_receive = lambda: here.pop() if here else a3m.WOULD_BLOCK  # type: ignore[method-assign]
    assert result(in_background(pull.recv)) == b"x"
