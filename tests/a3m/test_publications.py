"""Publications travel in columns: what comes out is what went in, and nothing else passes for it."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from a3m.messages import Malformed, with_last
from a3m.payload import size_of
from a3m.publications import Runs, largest, unfold

TOPICS = st.sampled_from(["", "a", "weather", "zoë ☃", "\U0001f600" * 9]) | st.text(
    st.characters(codec="utf-8"), max_size=20
)
BODIES = st.binary(max_size=40) | st.lists(st.binary(max_size=20), min_size=1, max_size=3)
QUEUES = st.lists(st.tuples(TOPICS, BODIES), min_size=1, max_size=40) | st.builds(
    lambda topic, bodies: [(topic, body) for body in bodies], TOPICS, st.lists(BODIES, min_size=1, max_size=40)
)


def over_the_network(run: list[Any]) -> Any:
    _, encoded = Runs(msgpack.packb).next(run, 10**9)
    return msgpack.unpackb(encoded, use_list=True, strict_map_key=False)


@given(QUEUES)
def test_what_is_folded_is_unfolded(run: list[Any]) -> None:
    assert unfold(7, over_the_network(run), tuple) == (run, all(type(body) is bytes for _, body in run))


def test_a_topic_that_all_have_travels_once() -> None:
    assert over_the_network([("a", b"1"), ("a", b"2")]) == [None, ["a"], [b"1", b"2"]]
    assert over_the_network([("a", b"1"), ("b", b"2"), ("a", b"3")]) == [None, ["a", "b", "a"], [b"1", b"2", b"3"]]


@pytest.mark.parametrize(
    "run",
    [
        None,
        [],
        [b"plain"],
        [[b"topic", b"body"]],
        [None, ["a"]],
        [None, ["a"], [b"x"], 1],
        [b"", ["a"], [b"x"]],
        [None, "a", [b"x"]],
        [None, ["a"], b"x"],
        [None, [b"a"], [b"x"]],
        [None, ["a", None], [b"x", b"y"]],
        [None, ["a"], ["x"]],
        [None, ["a"], [[]]],
        [None, ["a"], [[b"x", None]]],
        [None, ["a"], [[None, ["hop"], b"x"]]],
        [None, ["a", "b"], [b"x"]],
        [None, ["a", "b"], [b"x"] * 3],
        [None, [], [b"x"]],
        [None, ["a"], []],
        [None, [], []],
        [None, ["a"], [b""] * 4097],
    ],
)
def test_what_is_no_run_of_publications_is_refused(run: Any) -> None:
    with pytest.raises(Malformed):
        unfold(0, run, tuple)


def test_a_run_without_a_number_is_refused() -> None:
    with pytest.raises(Malformed):
        unfold(None, [None, ["a"], [b"x"]], tuple)


@given(QUEUES, st.integers(1, 600))
def test_a_run_is_as_long_as_fits(queue: list[Any], most: int) -> None:
    run, encoded = Runs(msgpack.packb).next(queue, most)
    assert 1 <= len(run) <= len(queue)
    assert run == queue[: len(run)]
    assert unfold(0, msgpack.unpackb(encoded), tuple)[0] == run
    assert len(run) == 1 or len(encoded) <= most


@given(st.integers(0, 300), st.integers(1, 400), st.integers(100, 5000))
def test_a_run_of_messages_of_one_size_is_nearly_as_long_as_possible(size: int, number: int, most: int) -> None:
    run, _ = Runs(msgpack.packb).next([("topic", bytes(size))] * number, most)
    assert len(run) == number or (len(run) + 1) * (size + 10) + 21 > most


def test_a_run_has_no_more_messages_than_a_receiver_takes_at_a_time() -> None:
    assert len(Runs(msgpack.packb).next([("", b"")] * 10_000, 10**9)[0]) == 4096


@given(QUEUES, QUEUES, st.integers(0, 40), st.integers(1, 600))
def test_links_with_other_queues_get_their_own_runs(one: list[Any], two: list[Any], common: int, most: int) -> None:
    runs = Runs(msgpack.packb)
    for queue in (one, one[:common] + two, one[:common], one, two):
        if queue:
            run, encoded = runs.next(queue, most)
            assert run
            assert run == queue[: len(run)]
            assert unfold(0, msgpack.unpackb(encoded), tuple)[0] == run
            assert len(run) == 1 or len(encoded) <= most


def test_a_run_that_links_have_in_common_is_encoded_once() -> None:
    packed = []

    def pack(run: Any) -> bytes:
        packed.append(run)
        encoded: bytes = msgpack.packb(run)
        return encoded

    runs = Runs(pack)
    queue = [("topic", b"%d" % number) for number in range(100)]
    for _ in range(3):  # link after link
        left = queue
        while left:
            run, _ = runs.next(left, 300)
            left = left[len(run) :]
    assert 3 < len(packed) < 20
    assert sum(len(bodies) for _, _, bodies in packed) == 100
    runs.forget()
    runs.next(queue, 300)
    assert packed[-1] == packed[0]


def test_a_run_that_is_all_there_is_does_not_limit_others() -> None:
    runs = Runs(msgpack.packb)
    queue = [("topic", b"%d" % number) for number in range(10)]
    assert runs.next(queue[:2], 300)[0] == queue[:2]
    assert runs.next(queue, 300)[0] == queue
    assert runs.next(queue[:2], 300)[0] == queue[:2]
    assert runs.next(queue, 40)[0] != queue


def test_only_some_runs_are_remembered() -> None:
    runs = Runs(msgpack.packb)
    queue = [("topic", b"%d" % number) for number in range(1000)]
    for number in range(1000):
        runs.next(queue[number:], 100)
    assert len(runs._known) <= 16


@given(QUEUES)
def test_a_capacity_does_not_grow_beyond_what_the_largest_allows(run: list[Any]) -> None:
    _, plain = unfold(0, over_the_network(run), tuple)
    assert largest(run, plain) >= max(size_of(body) + len(topic.encode()) for topic, body in run)


def test_the_last_field_of_a_message_may_be_encoded_before() -> None:
    fields = (6, "pull", "push", 2**40, 2**40, 0)
    assert with_last(msgpack.packb((*fields, None)), msgpack.packb([b"x"])) == msgpack.packb((*fields, [b"x"]))
