"""What passes sockets without their lock: nothing is lost, doubled or out of order, and every credit comes back."""

from __future__ import annotations

from typing import Any

import pytest

import a3m
from a3m.lanes import LANE, SMALL
from tests.a3m.nodes import PATIENCE, Nodes, at, eventually, in_background, linked, result

MANY = 20_000


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def streaming(nodes: Nodes, **options: object) -> tuple[a3m.PushSocket, a3m.PullSocket]:
    """A sender whose lane is open: something is on the way."""
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in", **options)
    linked(push, pull)
    for _ in range(1000):
        push.send(b"warm")
        if push._limit:
            break
    assert push._limit, "the lane never opened"
    return push, pull


def skip_warm(pull: a3m.PullSocket) -> bytes:
    """The first message after those that opened the lane."""
    while (message := pull.recv(timeout=30)) == b"warm":
        pass
    assert isinstance(message, bytes)
    return message


# ---- sending ---------------------------------------------------------------------------------------------------------


def test_order_and_number_are_kept(nodes: Nodes) -> None:
    push, pull = streaming(nodes)

    def send() -> bool:
        for message in numbers(MANY):
            push.send(message)
        return push.close(timeout=30)

    sending = in_background(send)
    assert [skip_warm(pull), *pull] == numbers(MANY)
    assert result(sending)


def test_small_and_large_messages_keep_their_order(nodes: Nodes) -> None:
    push, pull = streaming(nodes)
    sent = [b"%d " % number + bytes(SMALL if number % 7 == 3 else 1) for number in range(2000)]

    def send() -> None:
        for message in sent:
            push.send(message)

    sending = in_background(send)
    assert [skip_warm(pull), *(pull.recv(timeout=30) for _ in sent[1:])] == sent
    result(sending)


def test_what_is_in_the_lane_arrives_before_an_unlink(nodes: Nodes) -> None:
    push, pull = streaming(nodes)
    for message in numbers(100):
        push.send(message)
    push.unlink(pull.id)
    assert [skip_warm(pull), *pull] == numbers(100)


def test_messages_in_the_lane_are_counted(nodes: Nodes) -> None:
    push, pull = streaming(nodes)
    before = push.stats().sent
    for message in numbers(50):
        push.send(message)
    assert push.stats().sent == before + 50
    assert push.link_to(pull.id).info().sent == before + 50


def test_the_lane_holds_no_more_than_there_are_credits(nodes: Nodes) -> None:
    push, pull = streaming(nodes, capacity=40)
    room = 40 - push.stats().sent
    for _ in range(room):
        push.send(b"x", timeout=0)
    with pytest.raises(a3m.Timeout):
        push.send(b"x", timeout=0)
    assert push.stats().sent == 40
    assert pull.recv(timeout=30) == b"warm"


def test_a_message_that_meets_a_closing_lane_is_not_lost_and_not_sent(nodes: Nodes) -> None:
    push, pull = streaming(nodes)
    closed = in_background(push.close, timeout=30)
    eventually(lambda: push.closed)
    # As if a thread had found the lane open just before: it puts its message in, looks again, and finds it closed.
    with push.core.lock:
        push._lane.append(b"late")
        assert push.withdraw(b"late")  # and then it is sent as if it had never been there
        assert push._lane == []
    with pytest.raises(a3m.Closed):
        push.send(b"late")
    assert set(pull) == {b"warm"}
    assert result(closed)


def test_a_message_that_meets_a_lane_being_emptied_is_sent(nodes: Nodes) -> None:
    push, pull = streaming(nodes)
    with push.core.lock:
        push.settle()
        push._lane.append(b"late")
        assert not push.withdraw(b"late")
        push.core.work()
    assert skip_warm(pull) == b"late"


def test_what_a_closed_socket_finds_in_its_lane_is_reported(nodes: Nodes) -> None:
    push, pull = streaming(nodes)
    push.unlink(pull.id)
    push.wait_unlinked(timeout=30)
    push._lane.append(b"late")  # as if a thread had found room just before the link went, and was not heard of since
    push.close(timeout=30)
    assert push.core.count_undelivered() == (1, 0)


def test_threads_that_find_the_same_last_place_do_not_overbook_it(nodes: Nodes) -> None:
    push, pull = streaming(nodes, capacity=40)
    room = 40 - push.stats().sent
    for _ in range(room - 1):
        push.send(b"x", timeout=0)
    with push.core.lock:
        assert push.open_lane()
        push._lane += [b"one", b"two"]  # two threads looked at the same time, and both found a place
        assert [push.withdraw(b"one"), push.withdraw(b"two")] == [False, True]
        push.core.work()
    assert push.stats().sent == 40
    assert [pull.recv(timeout=30) for _ in range(40)][-1] == b"one"


def test_what_a_pattern_prepares_is_what_is_sent(nodes: Nodes) -> None:
    class Loud(a3m.PushSocket):
        def prepare(self, payload: object) -> bytes:
            prepared: bytes = super().prepare(payload).upper()  # type: ignore[arg-type]
            return prepared

    a, b = nodes.pair()
    loud, pull = a.socket(Loud, "out"), b.pull("in")
    linked(loud, pull)
    for _ in range(300):
        loud.send(b"hello")
    assert {pull.recv(timeout=30) for _ in range(300)} == {b"HELLO"}


def test_too_large_is_too_large_in_a_burst(nodes: Nodes) -> None:
    a, b = nodes("a", options=a3m.Options(max_message=2000)), nodes("b")
    a.register("b", at(b))
    push, pull = a.push("out"), b.pull("in")
    linked(push, pull)
    for number in range(100):
        push.send(b"%d" % number)
        with pytest.raises(a3m.MessageTooLarge):
            push.send(bytes(3000))
    assert [pull.recv(timeout=30) for _ in range(100)] == numbers(100)


def test_there_is_no_lane_while_a_peer_does_not_answer(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    push, _ = streaming(nodes)
    with push.core.lock:
        push.settle()
        assert push.open_lane()
        monkeypatch.setattr(push.core.transport, "flowing", lambda _: False)
        assert not push.open_lane()  # or a message would wait for an answer that does not come, whoever it is for


def test_a_pattern_that_looks_at_every_message_has_no_lane(nodes: Nodes) -> None:
    class Loud(a3m.PushSocket):
        def try_send(self, item: bytes) -> object:
            return super().try_send(item.upper())

    a, b = nodes.pair()
    loud, pull = a.socket(Loud, "out"), b.pull("in")
    linked(loud, pull)
    for _ in range(300):
        loud.send(b"hello")
        assert not loud._limit
    assert {pull.recv(timeout=30) for _ in range(300)} == {b"HELLO"}


def test_a_full_lane_is_some_datagrams(nodes: Nodes) -> None:
    push, _ = streaming(nodes, capacity=100_000)
    for _ in range(20_000):
        push.send(bytes(1000))  # from now on it knows how large messages are
    for _ in range(3000):
        push.send(bytes(1000))
        assert len(push._lane) * 1000 <= LANE


def test_a_child_has_nothing_of_what_passes_its_parent(nodes: Nodes) -> None:
    push, pull = streaming(nodes)
    eventually(lambda: pull.stats().queued)
    assert pull.recv() == b"warm"
    with pull.core.lock:
        pull._batch.append(b"borrowed")
        pull.abandon()  # what a fork() does to it in the child
    with pytest.raises(a3m.Closed):
        pull.recv(timeout=0)
    with push.core.lock:
        push._limit = 10
        push.abandon()
    with pytest.raises(a3m.Closed):
        push.send(b"x", timeout=0)


# ---- receiving -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [0.01, 0.25, 0.3, 1.0])
@pytest.mark.parametrize("capacity", [1, 2, 3, 10, 1024])
def test_every_credit_comes_back(nodes: Nodes, capacity: int, batch: float) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in", capacity=capacity, batch=batch)
    linked(push, pull)
    count = 5 * capacity + 1
    sending = in_background(push.send_many, numbers(count))
    assert [pull.recv(timeout=30) for _ in range(count)] == numbers(count)
    assert result(sending) == count
    # What is not given back yet is less than a batch.
    least = capacity - max(1, int(capacity * batch)) + 1
    eventually(lambda: push.link_to(pull.id).info().credits >= least)


def test_a_socket_with_several_links_takes_turns(nodes: Nodes) -> None:
    a, b = nodes.pair()
    pull = b.pull("in")
    pushes = [a.push(f"out {name}") for name in "abc"]
    for push, name in zip(pushes, (b"a", b"b", b"c"), strict=True):
        linked(push, pull)
        assert push.send_many([name] * 90) == 90
    eventually(lambda: pull.stats().queued == 270)
    taken = [pull.recv(timeout=30) for _ in range(270)]
    assert taken == [taken[0], taken[1], taken[2]] * 90
    assert {taken[0], taken[1], taken[2]} == {b"a", b"b", b"c"}


def test_what_was_borrowed_and_not_taken_is_still_there(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in", capacity=100)
    linked(push, pull)
    push.send_many(numbers(60))
    eventually(lambda: pull.stats().queued == 60)
    assert pull.recv() == b"0"
    assert len(pull._batch) > 0
    assert pull.link_to(push.id).info().queued == 59
    assert (pull.stats().received, pull.stats().queued) == (1, 59)
    assert pull.recv_many(2) == [b"1", b"2"]
    assert [pull.recv(timeout=30) for _ in range(57)] == numbers(60)[3:]


def test_parts_and_plain_messages_keep_their_order(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in")
    linked(push, pull)
    messages: list[object] = [b"1", (b"2", b"3"), b"4", (b"5", b"")]
    push.send_many(messages)  # type: ignore[arg-type]
    eventually(lambda: pull.stats().queued == 4)
    assert [pull.recv(timeout=30) for _ in messages] == messages


def test_a_closed_socket_still_gives_what_was_borrowed(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in")
    linked(push, pull)
    push.send_many(numbers(10))
    eventually(lambda: pull.stats().queued == 10)
    assert pull.recv() == b"0"
    assert pull.close(timeout=30)
    assert [pull.recv() for _ in range(9)] == numbers(10)[1:]
    with pytest.raises(a3m.Closed):
        pull.recv()


def test_a_link_gets_its_credits_although_messages_of_others_wait(nodes: Nodes) -> None:
    a, b = nodes.pair()
    first, second, pull = a.push("first"), a.push("second"), b.pull("in", capacity=1)
    for push, message in ((first, b"1"), (second, b"2")):
        linked(push, pull)
        push.send(message)
    eventually(lambda: pull.stats().queued == 2)
    taken = pull.recv()
    (first if taken == b"1" else second).send(b"next", timeout=30)


def test_credits_are_told_when_they_are_a_batch(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in", capacity=8, batch=0.25)
    linked(push, pull)
    push.send_many(numbers(8))
    eventually(lambda: pull.stats().queued == 8)
    assert [pull.recv(), pull.recv()] == numbers(2)
    with b._core.lock:
        assert not b._core.speakers  # it has left


def test_a_pattern_of_ones_own_that_raises_loses_one_message(nodes: Nodes) -> None:
    class Picky(a3m.PullSocket):
        def present(self, link: object, item: object) -> object:
            if item == b"3":
                raise ValueError("not this one")
            return item

    a, b = nodes.pair()
    push, pull = a.push("out"), b.socket(Picky, "in")
    linked(push, pull)
    push.send_many(numbers(6))
    assert [pull.recv(timeout=30) for _ in range(3)] == numbers(3)
    with pytest.raises(ValueError, match="not this one"):
        pull.recv(timeout=30)
    assert [pull.recv(timeout=30) for _ in range(2)] == numbers(6)[4:]


@pytest.mark.parametrize("timeout", [1e7, 1e10, float("inf"), 1e300, 10**400])
def test_as_long_as_it_takes(nodes: Nodes, timeout: float) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in")
    receiving = in_background(pull.recv, timeout=timeout)
    linked(push, pull)
    push.send(b"x", timeout=timeout)
    assert result(receiving) == b"x"


def test_many_at_a_time_keep_their_order_and_their_turns(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, one, two = a.push("out"), b.pull("one"), b.pull("two")
    linked(push, one)
    linked(push, two)
    assert push.send_many(numbers(1000)) == 1000
    for pull, own in ((one, numbers(1000)[::2]), (two, numbers(1000)[1::2])):
        taken: list[bytes] = []
        while len(taken) < 500:
            some = pull.recv_many(64, timeout=30)
            assert len(some) <= 64
            taken += some
        assert taken == own
    eventually(lambda: all(link.credits > 1024 * 0.75 for link in push.links))


def test_many_at_a_time_wait_for_room(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in", capacity=10)
    linked(push, pull)
    sending = in_background(push.send_many, numbers(1000))
    taken: list[bytes] = []
    while len(taken) < 1000:
        taken += pull.recv_many(7, timeout=30)
    assert taken == numbers(1000)
    assert result(sending) == 1000
    eventually(lambda: push.link_to(pull.id).info().credits >= 9)  # one may be owed, because two are given at a time
    assert push.send_many(numbers(30), timeout=0) in {9, 10}


def test_many_at_a_time_may_be_of_any_kind(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in")
    linked(push, pull)
    messages: list[object] = [b"1", (b"2", b"3"), bytes(100_000), b""]
    assert push.send_many(messages) == 4  # type: ignore[arg-type]
    eventually(lambda: pull.stats().queued == 4)
    assert pull.recv_many(10) == messages
    with pytest.raises(a3m.BadPayload):
        push.send_many([b"fine", "not fine"])  # type: ignore[list-item]
    assert push.send_many([]) == 0


# ── answers of a ROUTER ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("capacity", [3, 20, 1000])
def test_answers_of_a_router_pass_the_lane_and_arrive_once(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch, capacity: int
) -> None:
    a, b = nodes.pair()
    router = b.router("router")
    dealers = [a.dealer(f"dealer{number}", capacity=capacity) for number in range(2)]
    for dealer in dealers:
        linked(dealer, router)
    passed: list[object] = []
    settle = type(router).settle

    def counting(self: a3m.RouterSocket) -> None:
        if self._limit:
            passed.extend(self._lane[: self._limit])
        settle(self)

    monkeypatch.setattr(type(router), "settle", counting)
    count = 3000

    def serve() -> None:
        for _ in range(count):
            question = router.recv(timeout=PATIENCE)
            router.send(question.payload, to=question.route, timeout=PATIENCE)

    serving = [in_background(serve) for _ in dealers]
    asking = [
        in_background(dealer.send_many, [b"%d" % number for number in range(count)], timeout=PATIENCE)
        for dealer in dealers
    ]

    def take(dealer: a3m.DealerSocket) -> list[int]:
        return [int(dealer.recv(timeout=PATIENCE)) for _ in range(count)]

    for taken in [in_background(take, dealer) for dealer in dealers]:
        answers: list[int] = result(taken)
        assert sorted(answers) == list(range(count))
    for served in serving:
        result(served)
    for asked in asking:
        assert result(asked) == count
    assert passed or capacity == 3
    assert router.stats().sent == 2 * count


def test_an_answer_in_the_lane_is_sent_before_its_link_ends(nodes: Nodes) -> None:
    a, b = nodes.pair()
    router, dealer = b.router("router"), a.dealer("dealer")
    linked(dealer, router)
    dealer.send(b"?", timeout=PATIENCE)
    route = router.recv(timeout=PATIENCE).route
    with b._core.lock:  # as if something were on the way
        router._named["a/dealer"] = next(iter(router._links.values()))
        router._limit = 2
        b._core.lanes[router] = None
    router.send(b"in the lane", to=route)
    assert router._lane
    with pytest.raises(a3m.NoRoute):
        router.send(b"to nobody", to="a/nobody")
    router.unlink("a/dealer")
    assert dealer.recv(timeout=PATIENCE) == b"in the lane"
    with pytest.raises(a3m.NoRoute):
        router.send(b"too late", to=route)


def test_an_answer_whose_link_ends_before_it_is_in_the_lane_is_not_sent(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = nodes.pair()
    router, dealer, other = b.router("router"), a.dealer("dealer"), a.dealer("other")
    linked(dealer, router)
    linked(other, router)
    dealer.send(b"?", timeout=PATIENCE)
    route = router.recv(timeout=PATIENCE).route
    link = router._links[dealer.id]
    real = router._as_reply

    def look_and_be_interrupted(payload: bytes, to: Any) -> Any:
        found = real(payload, to)
        monkeypatch.setattr(router, "_as_reply", real)
        router.unlink("a/dealer", force=True)
        with b._core.lock:  # as soon as something is on the way to all that are left
            monkeypatch.setattr(b._core.transport, "flowing", lambda _: True)
            assert router.open_lane()
        return found

    with b._core.lock:
        router._named["a/dealer"] = link
        router._limit = 2
    monkeypatch.setattr(router, "_as_reply", look_and_be_interrupted)
    with pytest.raises(a3m.NoRoute):
        router.send(b"too late", to=route, timeout=PATIENCE)
    assert not router._lane
    router.send(b"still working", to=str(other.id), timeout=PATIENCE)
    assert other.recv(timeout=PATIENCE) == b"still working"
