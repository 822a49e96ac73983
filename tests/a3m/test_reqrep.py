"""REQ and REP: one question at a time, answered by whoever was asked, or known to be lost."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

import a3m
from tests.a3m.nodes import PATIENCE, Nodes, can_send, eventually, in_background, linked, result, take, waiting
from tests.a3m.shells import Shell, both, meet


def answer(rep: a3m.RepSocket, count: int) -> Future[None]:
    """Answer so many questions with themselves, in the background."""

    def run() -> None:
        for _ in range(count):
            rep.send(rep.recv(timeout=PATIENCE), timeout=PATIENCE)

    return in_background(run)


def ask(req: a3m.ReqSocket, question: Any) -> Any:
    req.send(question, timeout=PATIENCE)
    return req.recv(timeout=PATIENCE)


def test_ask_and_be_answered(nodes: Nodes) -> None:
    a, b = nodes.pair()
    req, rep = a.req("ask"), b.rep("answer")
    linked(req, rep)
    answering = answer(rep, 3)
    assert ask(req, b"one") == b"one"
    assert ask(req, b"") == b""
    assert ask(req, [b"two", b"parts"]) == (b"two", b"parts")
    result(answering)


def test_repliers_are_asked_in_turn(nodes: Nodes) -> None:
    a, b = nodes.pair()
    req = a.req("ask")
    reps = [b.rep(f"answer{number}") for number in range(3)]
    linked(req, *reps)
    answering = [answer(rep, 5) for rep in reps]
    for number in range(15):
        assert ask(req, b"%d" % number) == b"%d" % number
    for future in answering:
        result(future)


def test_turns_are_kept(nodes: Nodes) -> None:
    a, b = nodes.pair()
    req, rep = a.req("ask"), b.rep("answer")
    with pytest.raises(a3m.StateError, match="asked nothing"):
        req.recv(timeout=0)
    with pytest.raises(a3m.StateError, match="no question"):
        rep.send(b"x", timeout=0)
    linked(req, rep)
    req.send(b"x")
    with pytest.raises(a3m.Timeout):
        req.send(b"y", timeout=0)
    assert rep.recv(timeout=PATIENCE) == b"x"
    with pytest.raises(a3m.Timeout):
        rep.recv(timeout=0)
    rep.send(b"z")
    with pytest.raises(a3m.StateError):
        rep.send(b"z")
    assert req.recv(timeout=PATIENCE) == b"z"
    with pytest.raises(a3m.StateError):
        req.recv(timeout=0)


def test_a_second_question_waits_for_the_first_answer(nodes: Nodes) -> None:
    a, b = nodes.pair()
    req, rep = a.req("ask"), b.rep("answer")
    linked(req, rep)
    req.send(b"first")
    second = in_background(req.send, b"second")
    waiting(req)
    answering = answer(rep, 2)
    assert req.recv(timeout=PATIENCE) == b"first"
    result(second)
    assert req.recv(timeout=PATIENCE) == b"second"
    result(answering)


def test_a_second_receive_waits_for_the_first_answer(nodes: Nodes) -> None:
    a, b = nodes.pair()
    one, two, rep = a.req("one"), a.req("two"), b.rep("answer")
    linked(rep, one, two)
    one.send(b"1")
    two.send(b"2")
    eventually(lambda: rep.stats().queued == 2)
    first = rep.recv(timeout=0)
    second = in_background(rep.recv)
    waiting(rep)
    rep.send(b"answer to " + first)
    assert {first, result(second)} == {b"1", b"2"}
    rep.send(b"answer to " + result(second))
    assert (take(one, 1), take(two, 1)) == ([b"answer to 1"], [b"answer to 2"])


def test_cancel_gives_up_and_late_answers_are_discarded(nodes: Nodes) -> None:
    a, b = nodes.pair()
    req, rep = a.req("ask"), b.rep("answer")
    linked(req, rep)
    req.cancel()  # nothing to give up
    req.send(b"first")
    assert rep.recv(timeout=PATIENCE) == b"first"
    req.cancel()
    with pytest.raises(a3m.StateError):
        req.recv(timeout=0)
    req.send(b"second", timeout=0)
    rep.send(b"late answer to the first")
    assert rep.recv(timeout=PATIENCE) == b"second"
    rep.send(b"answer to the second")
    assert req.recv(timeout=PATIENCE) == b"answer to the second"


def test_cancel_discards_an_answer_that_is_here(nodes: Nodes) -> None:
    a, b = nodes.pair()
    req, rep = a.req("ask"), b.rep("answer")
    linked(req, rep)
    answering = answer(rep, 2)
    req.send(b"first")
    assert a3m.poll([(req, a3m.POLLIN)], timeout=PATIENCE) == [(req, a3m.POLLIN)]
    req.cancel()
    assert ask(req, b"second") == b"second"
    result(answering)


def test_cancel_discards_the_news_that_the_replier_is_gone(nodes: Nodes) -> None:
    a, b = nodes.pair()
    req, rep, other = a.req("ask"), b.rep("answer"), b.rep("other")
    linked(req, rep)
    req.send(b"first")
    assert take(rep, 1) == [b"first"]
    rep.close(timeout=PATIENCE)
    assert a3m.poll([(req, a3m.POLLIN)], timeout=PATIENCE) == [(req, a3m.POLLIN)]
    req.cancel()
    linked(req, other)
    answering = answer(other, 1)
    assert ask(req, b"second") == b"second"
    result(answering)


def test_cancel_wakes_who_waits_for_the_answer_and_who_wants_to_ask(nodes: Nodes) -> None:
    a, b = nodes.pair()
    req, rep = a.req("ask"), b.rep("answer")
    linked(req, rep)
    req.send(b"first")
    receiving = in_background(req.recv)
    waiting(req, 1)
    req.cancel()
    with pytest.raises(a3m.StateError):
        result(receiving)
    req.send(b"second")
    asking = in_background(req.send, b"third")
    waiting(req, 1)
    req.cancel()
    result(asking)
    assert rep.recv(timeout=PATIENCE) in {b"first", b"second", b"third"}


def test_an_answer_lost_with_its_link_is_known(nodes: Nodes) -> None:
    a, b = nodes.pair()
    req, rep, other = a.req("ask"), b.rep("answer"), b.rep("other")
    linked(req, rep)
    req.send(b"x")
    assert take(rep, 1) == [b"x"]
    linked(req, other)  # there are other links, and none of them will answer
    receiving = in_background(req.recv)
    waiting(req)
    rep.close(timeout=PATIENCE)
    with pytest.raises(a3m.LinkClosed, match="b/answer") as caught:
        result(receiving)
    assert caught.value.peer == rep.id
    answering = answer(other, 1)
    assert ask(req, b"y") == b"y"
    result(answering)


@both
def test_a_task_is_told_that_the_replier_lost_its_memory(shell: Shell) -> None:
    async def main() -> None:
        async with shell.open_node("a") as a:
            req = a.req("ask", retry=(0.01, 0.05))
            async with shell.open_node("b") as b:
                meet(a, b)
                rep = b.rep("answer")
                req.link("b/answer")
                await req.send(b"x")
                assert await rep.recv() == b"x"
                b._driver.stop()  # it crashes
                b.close_now()
                address = f"127.0.0.1:{b.address[1]}"
            async with shell.open_node("b", bind=address) as b:
                rep = b.rep("answer")
                a.dealer("probe").link("b/answer")  # something is said to the new life
                with pytest.raises(a3m.DeliveryUnknown) as caught:
                    await req.recv()
                assert caught.value.peer == rep.id
                await req.send(b"y")
                assert await rep.recv() == b"y"
                rep.close_now()
                with pytest.raises(a3m.LinkClosed) as caught_again:
                    await req.recv()
                assert type(caught_again.value) is a3m.LinkClosed

    shell.run(main)


def test_an_answer_sent_before_the_link_ended_arrives(nodes: Nodes) -> None:
    a, b = nodes.pair()
    req, rep = a.req("ask"), b.rep("answer")
    linked(req, rep)
    req.send(b"x")
    rep.send(rep.recv(timeout=PATIENCE))
    rep.close(timeout=PATIENCE)
    assert req.recv(timeout=PATIENCE) == b"x"


def test_whoever_asked_is_gone(nodes: Nodes) -> None:
    a, b = nodes.pair()
    req, other, rep = a.req("ask"), a.req("other"), b.rep("answer")
    linked(rep, req, other)
    req.send(b"x")
    assert take(rep, 1) == [b"x"]
    req.close(timeout=PATIENCE)
    rep.wait_unlinked(req.id, timeout=PATIENCE)
    with pytest.raises(a3m.LinkClosed, match="the answer was not sent"):
        rep.send(b"x")
    other.send(b"y")
    assert take(rep, 1) == [b"y"]


def test_a_reply_that_waits_for_credit_is_told_when_whoever_asked_goes(nodes: Nodes) -> None:
    a, b = nodes.pair()
    req, other, rep = a.req("ask", capacity=0), a.req("other"), b.rep("answer")
    linked(rep, req, other)
    req.send(b"x")
    assert take(rep, 1) == [b"x"]
    answering = in_background(rep.send, b"y")
    waiting(rep)
    req.unlink(rep.id)
    with pytest.raises(a3m.LinkClosed):
        result(answering)


def test_many_at_once_take_what_is_there(nodes: Nodes) -> None:
    a, b = nodes.pair()
    req, rep = a.req("ask"), b.rep("answer")
    linked(req, rep)
    req.send(b"x")
    assert rep.recv_many(10, timeout=PATIENCE) == [b"x"]
    rep.send(b"y")
    assert req.recv_many(10, timeout=PATIENCE) == [b"y"]
    assert req.send_many([b"1", b"2"], timeout=0) == 1
    assert take(rep, 1) == [b"1"]
    assert rep.send_many([b"3", b"4"]) == 1  # there is one question only
    assert take(req, 1) == [b"3"]


def test_a_timed_out_question_can_be_asked_again(nodes: Nodes) -> None:
    a, b = nodes.pair()
    req = a.req("ask")
    with pytest.raises(a3m.Timeout):
        req.send(b"x", timeout=0)
    rep = b.rep("answer")
    linked(req, rep)
    answering = answer(rep, 1)
    assert ask(req, b"y") == b"y"
    result(answering)


def test_readiness(nodes: Nodes) -> None:
    a, b = nodes.pair()
    req, rep = a.req("ask"), b.rep("answer")
    assert not can_send(req)
    linked(req, rep)
    assert can_send(req)
    assert not can_send(rep)
    req.send(b"x")
    assert not can_send(req)
    take(rep, 1)
    assert can_send(rep)
    rep.send(b"y")
    assert not can_send(rep)
    take(req, 1)
    assert can_send(req)


def test_threads_share_a_requester(nodes: Nodes) -> None:
    a, b = nodes.pair()
    req, rep = a.req("ask"), b.rep("answer")
    linked(req, rep)
    answering = answer(rep, 200)

    def worker() -> int:
        good = 0
        for _ in range(50):
            req.send(b"x", timeout=PATIENCE)
            good += req.recv(timeout=PATIENCE) == b"x"
        return good

    workers = [in_background(worker) for _ in range(4)]
    assert [result(future) for future in workers] == [50] * 4
    result(answering)
