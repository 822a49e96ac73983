"""Pollers: what is reported, to whom, and what is left behind."""

from __future__ import annotations

import asyncio
import gc
import os
import select
import signal
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from queue import SimpleQueue
from threading import Lock
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from a3m.errors import PollError
from a3m.poller import MAX_NESTING, POLLET, POLLEXCLUSIVE, POLLONESHOT, Poller, poll
from a3m.waitqueue import POLLERR, POLLHUP, POLLIN, POLLOUT, WaitEntry, WaitQueue
from tests.children import main_thread_sleeps
from tests.exon.endpoints import PATIENCE, eventually, in_background

MODES = [0, POLLET, POLLONESHOT, POLLET | POLLONESHOT, POLLEXCLUSIVE, POLLET | POLLEXCLUSIVE]


class Box:
    """Something that can be polled: events come and go, and those who wait are told of each that comes."""

    def __init__(self, name: str = "box", held: int = 0) -> None:
        self.name = name
        self.lock = Lock()
        self.queue = WaitQueue()
        self.held = held
        self.on_ask: Callable[[], None] = lambda: None  # while it is asked, before it answers

    def __repr__(self) -> str:
        return self.name

    def begin(self, events: int) -> None:
        with self.lock:
            self.held |= events
            self.queue.wake(events)

    def end(self, events: int) -> None:
        with self.lock:
            self.held &= ~events

    def close(self) -> None:
        with self.lock:
            self.held = POLLHUP
            self.queue.wake_all(POLLHUP)

    def poll_events(self, entry: WaitEntry | None) -> int:
        self.on_ask()
        with self.lock:
            if entry is not None and not self.held & POLLHUP:
                self.queue.add(entry)
            return self.held

    def unpoll(self, entry: WaitEntry) -> None:
        with self.lock:
            self.queue.remove(entry)


def readable(descriptor: int) -> bool:
    return select.select([descriptor], [], [], 0)[0] != []


def in_line(poller: Poller, told: list[str], name: str) -> WaitEntry:
    """Somebody who waits for a poller as its threads do, and is told once."""

    def wake(events: int) -> bool:
        told.append(name)
        poller._ready._waiters.remove(entry)  # as a thread does that wakes; the poller's lock is held
        return True

    entry = WaitEntry(POLLIN | POLLHUP, wake, exclusive=True)
    poller.poll_events(entry)
    return entry


def asleep(poller: Poller, count: int) -> None:
    eventually(lambda: poller.stats().waiting == count)


# ── level, edge, one shot ────────────────────────────────────────────────────────────────────────────────────────────


def test_level_triggered_objects_are_reported_while_they_hold_something() -> None:
    box = Box()
    with Poller() as poller:
        poller.add(box, POLLIN)
        assert poller.wait(0) == []
        box.begin(POLLIN)
        assert [poller.wait(0), poller.wait()] == [[(box, POLLIN)]] * 2
        box.end(POLLIN)
        assert poller.wait(0) == []
        box.begin(POLLIN)
        assert poller.wait(0) == [(box, POLLIN)]


def test_edge_triggered_objects_are_reported_when_something_happens() -> None:
    box = Box()
    with Poller() as poller:
        poller.add(box, POLLIN | POLLET)
        box.begin(POLLIN)
        assert [poller.wait(0), poller.wait(0)] == [[(box, POLLIN)], []]
        box.begin(POLLIN)
        box.begin(POLLIN)
        assert [poller.wait(0), poller.wait(0)] == [[(box, POLLIN)], []]


def test_one_shot_objects_are_reported_once_until_armed_again() -> None:
    box = Box()
    with Poller() as poller:
        poller.add(box, POLLIN | POLLONESHOT)
        box.begin(POLLIN)
        assert [poller.wait(0), poller.wait(0)] == [[(box, POLLIN)], []]
        box.begin(POLLIN)
        box.close()
        assert poller.wait(0) == []
        poller.modify(box, POLLIN | POLLONESHOT)
        assert [poller.wait(0), poller.wait(0)] == [[(box, POLLHUP)], []]


@pytest.mark.parametrize("mode", MODES)
def test_what_holds_already_is_reported_when_added(mode: int) -> None:
    box = Box(held=POLLIN | POLLOUT)
    with Poller() as poller:
        poller.add(box, POLLOUT | mode)
        assert poller.wait(0) == [(box, POLLOUT)]


def test_what_holds_already_is_reported_when_modified() -> None:
    box = Box(held=POLLIN)
    with Poller() as poller:
        poller.add(box, POLLOUT | POLLET)
        assert poller.wait(0) == []
        poller.modify(box, POLLIN | POLLET)
        assert [poller.wait(0), poller.wait(0)] == [[(box, POLLIN)], []]


def test_events_nobody_asked_for_are_not_reported() -> None:
    box = Box(held=POLLIN)
    with Poller() as poller:
        poller.add(box, POLLOUT)
        box.begin(POLLIN)
        assert poller.stats().ready == 0
        assert poller.wait(0) == []
        poller.modify(box, 0)
        box.begin(POLLOUT)
        assert poller.wait(0) == []


@pytest.mark.parametrize("mode", MODES)
def test_errors_and_the_end_are_always_reported(mode: int) -> None:
    for events in (POLLERR, POLLHUP):
        box = Box()
        with Poller() as poller:
            poller.add(box, mode)
            box.begin(events)
            assert poller.wait(0) == [(box, events)]


def test_objects_are_told_apart_by_identity() -> None:
    class Equal(Box):
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = None  # type: ignore[assignment]

    one, two = Equal(), Equal()
    with Poller() as poller:
        poller.add(one, POLLIN)
        poller.add(two, POLLIN)
        two.begin(POLLIN)
        ((found, events),) = poller.wait(0)
        assert found is two
        assert events == POLLIN


def test_what_happens_while_an_edge_is_reported_is_not_lost() -> None:
    box = Box()
    with Poller() as poller:
        poller.add(box, POLLIN | POLLET)
        box.begin(POLLIN)
        later = Box(held=POLLIN)
        # The box is asked, then something happens to it while another is asked, before anything is settled.
        poller.add(later, POLLIN | POLLET)
        later.on_ask = lambda: box.begin(POLLOUT | POLLIN)
        assert poller.wait(0) == [(box, POLLIN), (later, POLLIN)]
        assert poller.wait(0) == [(box, POLLIN)]
        assert poller.wait(0) == []


def test_what_comes_while_nothing_is_found_is_not_lost() -> None:
    box, later = Box(), Box()
    with Poller() as poller:
        for added in (box, later):
            poller.add(added, POLLIN | POLLET)
            added.begin(POLLIN)
            added.end(POLLIN)
        later.on_ask = lambda: box.begin(POLLIN)
        # The first look finds nothing, and the thread must not go to sleep over what came meanwhile.
        assert in_background(poller.wait).result(PATIENCE) == [(box, POLLIN)]


def test_what_comes_while_others_look_at_the_poller_is_not_lost() -> None:
    box, later = Box(), Box()
    with Poller() as poller:
        for added in (box, later):
            poller.add(added, POLLIN | POLLET)
            added.begin(POLLIN)
            added.end(POLLIN)
        later.on_ask = lambda: box.begin(POLLIN)
        assert poll([(poller, POLLIN)], 0) == [(poller, POLLIN)]
        assert poller.wait(0) == [(box, POLLIN)]


def test_a_wake_up_that_comes_too_late_is_refused() -> None:
    class Late(Box):
        def poll_events(self, entry: WaitEntry | None) -> int:
            if entry is not None:
                self.entry = entry
            return super().poll_events(entry)

    box = Late()
    with Poller() as poller:
        poller.add(box, POLLIN)
        poller.remove(box)
        assert not box.entry.wake(POLLIN)
        assert poller.stats().ready == 0
        poller.add(box, POLLIN | POLLONESHOT)
        box.begin(POLLIN)
        assert poller.wait(0) == [(box, POLLIN)]
        assert not box.entry.wake(POLLIN)
        assert poller.stats().ready == 0


# ── a machine against a model ────────────────────────────────────────────────────────────────────────────────────────


class Registration:
    """What the model knows of a registered box."""

    def __init__(self, flags: int) -> None:
        self.arm(flags)
        self.pending = False

    def arm(self, flags: int) -> None:
        self.events = flags & (POLLIN | POLLOUT) | POLLERR | POLLHUP
        self.edge = bool(flags & POLLET)
        self.oneshot = bool(flags & POLLONESHOT)
        self.exclusive = bool(flags & POLLEXCLUSIVE)


INDEX = st.integers(0, 3)
EVENT_SETS = st.sampled_from([0, POLLIN, POLLOUT, POLLIN | POLLOUT])
HAPPENINGS = st.sampled_from([POLLIN, POLLOUT, POLLIN | POLLOUT, POLLERR])


class AgainstModel(RuleBasedStateMachine):
    """Reported is what holds and is wanted: always by levels, by edges if something happened since the last report."""

    def __init__(self) -> None:
        super().__init__()
        self.boxes = [Box(f"box {number}") for number in range(4)]
        self.model: dict[Box, Registration] = {}
        self.poller, self.outer = Poller(), Poller()
        self.outer.add(self.poller, POLLIN)
        self.descriptor = self.poller.fileno()

    def expected(self) -> dict[Box, int]:
        return {
            box: box.held & registration.events
            for box, registration in self.model.items()
            if box.held & registration.events and (registration.pending or not registration.edge)
        }

    @rule(index=INDEX, events=EVENT_SETS, mode=st.sampled_from(MODES))
    def add(self, index: int, events: int, mode: int) -> None:
        box = self.boxes[index]
        if box in self.model:
            with pytest.raises(PollError, match="already registered"):
                self.poller.add(box, events | mode)
        elif box.held & POLLHUP:
            with pytest.raises(PollError, match=r"box \d is closed"):
                self.poller.add(box, events | mode)
        else:
            self.poller.add(box, events | mode)
            self.model[box] = Registration(events | mode)
            self.model[box].pending = True

    @rule(index=INDEX, events=EVENT_SETS, mode=st.sampled_from(MODES[:4]))
    def modify(self, index: int, events: int, mode: int) -> None:
        box = self.boxes[index]
        if box not in self.model:
            with pytest.raises(PollError, match="not registered"):
                self.poller.modify(box, events | mode)
        elif self.model[box].exclusive:
            with pytest.raises(PollError, match="exclusive registration"):
                self.poller.modify(box, events | mode)
        else:
            self.poller.modify(box, events | mode)
            self.model[box].arm(events | mode)
            self.model[box].pending = True

    @rule(index=INDEX)
    def remove(self, index: int) -> None:
        box = self.boxes[index]
        if box in self.model:
            self.poller.remove(box)
            del self.model[box]
        else:
            with pytest.raises(PollError, match="not registered"):
                self.poller.remove(box)

    @rule(index=INDEX, events=HAPPENINGS)
    def begin(self, index: int, events: int) -> None:
        box = self.boxes[index]
        if box.held & POLLHUP:
            return
        box.begin(events)
        if box in self.model and events & self.model[box].events:
            self.model[box].pending = True

    @rule(index=INDEX, events=HAPPENINGS)
    def end(self, index: int, events: int) -> None:
        self.boxes[index].end(events)

    @rule(index=INDEX)
    def reopen_or_close(self, index: int) -> None:
        box = self.boxes[index]
        if not box.held & POLLHUP:
            box.close()
            if box in self.model:
                self.model[box].pending = True
        elif box not in self.model:
            self.boxes[index] = Box(box.name)

    @rule(most=st.none() | st.integers(1, 5))
    def wait(self, most: int | None) -> None:
        expected = self.expected()
        found = self.poller.wait(0, most)
        assert len(found) == min(len(expected), most or len(expected))
        assert len({box for box, _ in found}) == len(found)
        for box, events in found:
            assert events == expected[box]
            registration = self.model[box]
            registration.pending = False
            if registration.oneshot:
                registration.events = 0
        if not found:
            assert not readable(self.descriptor)

    @precondition(lambda self: self.expected())
    @rule()
    def nobody_starves(self) -> None:
        expected = set(self.expected())
        seen = set()
        for _ in expected:
            ((box, _),) = self.poller.wait(0, 1)
            seen.add(box)
            self.model[box].pending = False
            if self.model[box].oneshot:
                self.model[box].events = 0
        assert seen == expected

    @invariant()
    def whoever_waits_for_the_poller_knows(self) -> None:
        ready = bool(self.expected())
        if ready:
            assert readable(self.descriptor)
        assert self.outer.wait(0) == ([(self.poller, POLLIN)] if ready else [])
        assert poll([(self.poller, POLLIN)], 0) == ([(self.poller, POLLIN)] if ready else [])
        assert readable(self.poller.fileno()) == ready

    @invariant()
    def nothing_is_left_behind(self) -> None:
        assert self.poller.stats().registered == len(self.model)
        for box in self.boxes:
            assert len(box.queue) == (box in self.model)

    def teardown(self) -> None:
        self.outer.close()
        self.poller.close()
        assert [len(box.queue) for box in self.boxes] == [0] * 4


AgainstModel.TestCase.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
TestAgainstModel = AgainstModel.TestCase


# ── taking turns ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_ready_objects_take_turns() -> None:
    boxes = [Box(str(number), POLLIN) for number in range(5)]
    with Poller() as poller:
        for box in boxes:
            poller.add(box, POLLIN)
        seen = [box for _ in range(5) for box, _ in poller.wait(0, 2)]
        assert [box.name for box in seen] == ["0", "1", "2", "3", "4", "0", "1", "2", "3", "4"]


def test_objects_that_hold_nothing_any_more_do_not_use_up_max_events() -> None:
    boxes = [Box(str(number), POLLIN) for number in range(6)]
    with Poller() as poller:
        for box in boxes:
            poller.add(box, POLLIN)
        for box in boxes[:4]:
            box.end(POLLIN)
        assert poller.wait(0, 2) == [(boxes[4], POLLIN), (boxes[5], POLLIN)]
        assert poller.stats().ready == 2


def test_those_who_wait_take_turns() -> None:
    box = Box()
    told: list[str] = []
    with Poller() as poller:
        poller.add(box, POLLIN | POLLET)
        for name in ("a", "b", "c"):
            in_line(poller, told, name)
        for expected in (["a"], ["a", "b"], ["a", "b", "c"]):
            box.begin(POLLIN)
            assert told == expected
            assert poller.wait(0) == [(box, POLLIN)]


def test_one_event_is_reported_to_one_thread() -> None:
    box = Box()
    reports: SimpleQueue[list[tuple[Any, int]]] = SimpleQueue()
    poller = Poller()
    poller.add(box, POLLIN | POLLET)

    def wait() -> None:
        reports.put(poller.wait())

    threads = [in_background(wait) for _ in range(5)]
    box.begin(POLLIN)
    assert reports.get(timeout=PATIENCE) == [(box, POLLIN)]
    asleep(poller, 4)
    poller.close()
    ends = [thread.exception(PATIENCE) for thread in threads]
    assert reports.empty()
    assert Counter(type(end) for end in ends) == {type(None): 1, PollError: 4}


def test_every_sleeping_thread_gets_one_of_as_many_objects() -> None:
    boxes = [Box(str(number)) for number in range(4)]
    with Poller() as poller:
        for box in boxes:
            poller.add(box, POLLIN | POLLET)
        threads = [in_background(poller.wait, None, 1) for _ in boxes]
        asleep(poller, 4)
        for box in boxes:
            box.begin(POLLIN)
        found = [thread.result(PATIENCE) for thread in threads]
        assert sorted(box.name for ((box, _),) in found) == ["0", "1", "2", "3"]


def test_a_level_wakes_all_threads_one_after_the_other() -> None:
    box = Box()
    with Poller() as poller:
        poller.add(box, POLLIN)
        threads = [in_background(poller.wait) for _ in range(4)]
        asleep(poller, 4)
        box.begin(POLLIN)
        assert [thread.result(PATIENCE) for thread in threads] == [[(box, POLLIN)]] * 4


def test_an_object_added_wakes_a_thread_that_waits_already() -> None:
    box = Box(held=POLLIN)
    with Poller() as poller:
        thread = in_background(poller.wait)
        asleep(poller, 1)
        poller.add(box, POLLIN)
        assert thread.result(PATIENCE) == [(box, POLLIN)]


def test_a_thread_woken_in_vain_goes_on_waiting() -> None:
    box = Box()
    asked = threading.Event()
    with Poller() as poller:
        poller.add(box, POLLIN)
        thread = in_background(poller.wait)
        asleep(poller, 1)
        box.on_ask = asked.set
        with box.lock:  # what comes is gone before the thread can ask
            box.queue.wake(POLLIN)
        assert asked.wait(PATIENCE)
        asleep(poller, 1)
        box.begin(POLLIN)
        assert thread.result(PATIENCE) == [(box, POLLIN)]


def test_a_thread_that_fails_after_it_was_woken_lets_the_next_have_the_event() -> None:
    box = Box()
    told: list[str] = []

    def fail() -> None:
        raise KeyboardInterrupt

    with Poller() as poller:
        poller.add(box, POLLIN | POLLET | POLLONESHOT)
        thread = in_background(poller.wait)
        asleep(poller, 1)
        in_line(poller, told, "next")
        box.on_ask = fail
        box.begin(POLLIN)
        assert isinstance(thread.exception(PATIENCE), KeyboardInterrupt)
        assert told == ["next"]
        box.on_ask = lambda: None
        assert poller.wait(0) == [(box, POLLIN)]


def test_a_thread_that_leaves_what_still_holds_lets_the_next_see_it() -> None:
    box = Box()
    told: list[str] = []
    with Poller() as poller:
        poller.add(box, POLLIN)
        thread = in_background(poller.wait)
        asleep(poller, 1)
        in_line(poller, told, "next")
        box.begin(POLLIN)
        assert thread.result(PATIENCE) == [(box, POLLIN)]
        assert told == ["next"]


def test_an_interrupted_wait_leaves_nothing_behind_and_loses_nothing() -> None:
    box = Box()

    def interrupt() -> None:
        asleep(poller, 1)
        eventually(main_thread_sleeps)
        os.kill(os.getpid(), signal.SIGINT)

    with Poller() as poller:
        poller.add(box, POLLIN | POLLET)
        thread = in_background(interrupt)
        with pytest.raises(KeyboardInterrupt):
            poller.wait(PATIENCE)
        thread.result(PATIENCE)
        assert poller.stats().waiting == 0
        box.begin(POLLIN)
        assert poller.wait(0) == [(box, POLLIN)]


def test_time_over() -> None:
    box = Box()
    with Poller() as poller:
        poller.add(box, POLLIN)
        for timeout in (0.001, 0, -1):
            assert poller.wait(timeout) == []
            assert poll([(box, POLLIN)], timeout) == []
        assert poller.stats().waiting == 0
        assert len(box.queue) == 1
        box.begin(POLLIN)
        assert poller.wait(float("inf")) == [(box, POLLIN)]


def test_an_event_that_comes_as_the_time_is_over_is_reported_or_kept() -> None:
    box = Box()
    with Poller() as poller:
        poller.add(box, POLLIN | POLLET)
        for _ in range(50):
            thread = in_background(poller.wait, 0.001)
            box.begin(POLLIN)
            reports = [thread.result(PATIENCE), poller.wait(0)]
            assert sorted(map(len, reports)) == [0, 1]


# ── several pollers for one object ───────────────────────────────────────────────────────────────────────────────────


def test_an_event_wakes_one_of_several_exclusive_pollers_in_turn() -> None:
    box = Box()
    told: list[str] = []
    with Poller() as one, Poller() as two:
        for poller, name in ((one, "one"), (two, "two")):
            poller.add(box, POLLIN | POLLET | POLLEXCLUSIVE)
            in_line(poller, told, name)
        box.begin(POLLIN)
        assert told == ["one"]
        assert [one.wait(0), two.wait(0)] == [[(box, POLLIN)], []]
        in_line(one, told, "one")
        box.begin(POLLIN)
        assert told == ["one", "two"]
        assert [one.wait(0), two.wait(0)] == [[], [(box, POLLIN)]]


def test_shared_pollers_are_all_woken() -> None:
    box = Box()
    with Poller() as one, Poller() as two:
        for poller in (one, two):
            poller.add(box, POLLIN | POLLET)
        box.begin(POLLIN)
        assert [one.wait(0), two.wait(0)] == [[(box, POLLIN)]] * 2


def test_an_exclusive_poller_nobody_waits_for_lets_others_have_the_event_too() -> None:
    box = Box()
    told: list[str] = []
    with Poller() as idle, Poller() as busy:
        idle.add(box, POLLIN | POLLET | POLLEXCLUSIVE)
        busy.add(box, POLLIN | POLLET | POLLEXCLUSIVE)
        in_line(busy, told, "busy")
        box.begin(POLLIN)
        assert told == ["busy"]
        assert [idle.wait(0), busy.wait(0)] == [[(box, POLLIN)]] * 2


@pytest.mark.parametrize("end", [lambda poller, box: poller.remove(box), lambda poller, box: poller.close()])
def test_an_event_not_harvested_when_the_registration_ends_wakes_another_poller(
    end: Callable[[Poller, Box], None],
) -> None:
    box = Box()
    told: list[str] = []
    with Poller() as one, Poller() as two:
        for poller, name in ((one, "one"), (two, "two")):
            poller.add(box, POLLIN | POLLET | POLLEXCLUSIVE)
            in_line(poller, told, name)
        box.begin(POLLIN)
        assert told == ["one"]
        end(one, box)
        assert told[-1] == "two"
        assert two.wait(0) == [(box, POLLIN)]


def test_a_thread_that_is_awake_takes_no_event_from_a_poller_with_one_asleep() -> None:
    box, other = Box("box"), Box("other")
    told: list[str] = []
    with Poller() as one, Poller() as two:
        one.add(other, POLLIN | POLLET)
        for poller in (one, two):
            poller.add(box, POLLIN | POLLET | POLLEXCLUSIVE)
        thread = in_background(one.wait, None, 1)
        asleep(one, 1)
        in_line(two, told, "two")
        other.on_ask = lambda: box.begin(POLLIN)  # by then the thread is awake, busy with the other one
        other.begin(POLLIN)
        assert thread.result(PATIENCE) == [(other, POLLIN)]
        assert told == ["two"]


def test_an_event_that_was_harvested_is_not_passed_on() -> None:
    box = Box()
    told: list[str] = []
    with Poller() as one, Poller() as two:
        for poller, name in ((one, "one"), (two, "two")):
            poller.add(box, POLLIN | POLLET | POLLEXCLUSIVE)
            in_line(poller, told, name)
        box.begin(POLLIN)
        assert one.wait(0) == [(box, POLLIN)]
        one.remove(box)
        assert told == ["one"]
        assert two.wait(0) == []


# ── pollers in pollers ───────────────────────────────────────────────────────────────────────────────────────────────


def nested(count: int) -> list[Poller]:
    """The outermost first."""
    pollers = [Poller() for _ in range(count)]
    for outer, inner in pairwise(pollers):
        outer.add(inner, POLLIN)
    return pollers


def test_an_event_wakes_a_thread_that_waits_for_the_outermost_poller() -> None:
    box = Box()
    pollers = nested(MAX_NESTING)
    pollers[-1].add(box, POLLIN)
    thread = in_background(pollers[0].wait)
    asleep(pollers[0], 1)
    box.begin(POLLIN)
    assert thread.result(PATIENCE) == [(pollers[1], POLLIN)]
    assert pollers[-1].wait(0) == [(box, POLLIN)]
    box.end(POLLIN)
    assert [poller.wait(0) for poller in pollers] == [[]] * MAX_NESTING


def test_an_outer_poller_with_edges_is_told_of_each_object_that_becomes_ready() -> None:
    one, two = Box("one"), Box("two")
    with Poller() as outer, Poller() as inner:
        outer.add(inner, POLLIN | POLLET)
        for box in (one, two):
            inner.add(box, POLLIN)
            box.begin(POLLIN)
            assert [outer.wait(0), outer.wait(0)] == [[(inner, POLLIN)], []]


def test_the_end_of_an_inner_poller_is_reported() -> None:
    with Poller() as outer:
        inner = Poller()
        outer.add(inner, POLLIN)
        thread = in_background(outer.wait)
        asleep(outer, 1)
        inner.close()
        assert thread.result(PATIENCE) == [(inner, POLLHUP)]
        outer.remove(inner)
        with pytest.raises(PollError, match=r"Poller at .* is closed"):
            outer.add(inner, POLLIN)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_circles_are_refused(count: int) -> None:
    pollers = nested(count)
    with pytest.raises(PollError, match="circle"):
        pollers[-1].add(pollers[0], POLLIN)
    assert pollers[-1].stats().registered == 0
    if count > 1:
        pollers[0].remove(pollers[1])
        pollers[-1].add(pollers[0], POLLIN)


def test_a_poller_that_was_closed_closes_no_circle() -> None:
    one, two, three = nested(3)
    two.close()
    three.add(one, POLLIN)
    assert three.stats().registered == 1


def test_a_failed_add_ties_no_pollers_together() -> None:
    class Unwilling(Poller):
        def poll_events(self, entry: WaitEntry | None) -> int:
            raise RuntimeError("not today")

    outer, inner = Poller(), Unwilling()
    with pytest.raises(RuntimeError):
        outer.add(inner, POLLIN)
    inner.add(outer, POLLIN)
    assert [outer.stats().registered, inner.stats().registered] == [0, 1]


@pytest.mark.parametrize("middle", [1, 4, MAX_NESTING - 1])
def test_nesting_has_a_limit_wherever_the_link_is_made(middle: int) -> None:
    above, below = nested(middle), nested(MAX_NESTING - middle)
    above[-1].add(below[0], POLLIN)
    with Poller() as another:
        with pytest.raises(PollError, match="8 deep"):
            another.add(above[0], POLLIN)
        with pytest.raises(PollError, match="8 deep"):
            below[-1].add(another, POLLIN)


def test_two_threads_that_would_close_a_circle_together_do_not_wait_for_each_other() -> None:
    for _ in range(50):
        one, two = Poller(), Poller()
        barrier = threading.Barrier(2, timeout=PATIENCE)

        def add(outer: Poller, inner: Poller, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            outer.add(inner, POLLIN)

        threads = [in_background(add, one, two), in_background(add, two, one)]
        failed = [thread.exception(PATIENCE) for thread in threads]
        assert sorted(type(error).__name__ for error in failed) == ["NoneType", "PollError"]


# ── misuse ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (POLLIN | POLLEXCLUSIVE | POLLONESHOT, "exclude each other"),
        (0x100, "0x100 is not a set of events and flags"),
        (-1, "-0x1 is not a set of events and flags"),
        ("in", "'in' is not a set of events and flags"),
        (None, "None is not a set"),
    ],
)
def test_flags_that_cannot_be(flags: Any, message: str) -> None:
    box = Box()
    with Poller() as poller:
        with pytest.raises(PollError, match=message):
            poller.add(box, flags)
        assert len(box.queue) == 0
        poller.add(box, POLLIN)
        with pytest.raises(PollError, match=message):
            poller.modify(box, flags)
        box.begin(POLLIN)
        assert poller.wait(0) == [(box, POLLIN)]


def test_modes_are_not_for_poll() -> None:
    for mode in MODES[1:]:
        with pytest.raises(PollError, match="not a set of events to poll for"):
            poll([(Box(), POLLIN | mode)], 0)


@pytest.mark.parametrize("thing", [None, 3, "box", object(), Box, Poller])
def test_things_that_are_not_pollable(thing: Any) -> None:
    with Poller() as poller:
        with pytest.raises(PollError, match="is not pollable"):
            poller.add(thing, POLLIN)
        with pytest.raises(PollError, match="is not pollable"):
            poll([(thing, POLLIN)], 0)
        for misuse in (poller.remove, lambda it: poller.modify(it, POLLIN)):
            with pytest.raises(PollError, match="not registered"):
                misuse(thing)


def test_added_twice() -> None:
    box = Box()
    with Poller() as poller:
        poller.add(box, POLLIN)
        with pytest.raises(PollError, match="box is already registered"):
            poller.add(box, POLLOUT)
        box.begin(POLLIN | POLLOUT)
        assert poller.wait(0) == [(box, POLLIN)]
        assert len(box.queue) == 1


@pytest.mark.parametrize(("before", "after"), [(POLLET | POLLEXCLUSIVE, POLLET), (POLLET, POLLET | POLLEXCLUSIVE)])
def test_exclusive_registrations_are_not_modified(before: int, after: int) -> None:
    box = Box()
    with Poller() as poller:
        poller.add(box, POLLIN | before)
        with pytest.raises(PollError, match="exclusive registration"):
            poller.modify(box, POLLOUT | after)
        box.begin(POLLIN | POLLOUT)
        assert poller.wait(0) == [(box, POLLIN)]


def test_an_object_that_is_closed_is_not_added() -> None:
    box = Box()
    box.close()
    with Poller() as poller:
        with pytest.raises(PollError, match="box is closed"):
            poller.add(box, POLLIN)
        assert poller.stats().registered == 0
        assert poller.wait(0) == []


def test_an_object_that_fails_is_not_added() -> None:
    class Failing(Box):
        def poll_events(self, entry: WaitEntry | None) -> int:
            super().poll_events(entry)
            self.begin(POLLIN)
            raise RuntimeError("broken")

    box = Failing()
    with Poller() as poller:
        with pytest.raises(RuntimeError, match="broken"):
            poller.add(box, POLLIN)
        assert poller.stats().as_dict() == {"registered": 0, "ready": 0, "waiting": 0}
        assert len(box.queue) == 0
        assert poller.wait(0) == []


@pytest.mark.parametrize("most", [0, -1])
def test_to_report_nothing_makes_no_sense(most: int) -> None:
    with Poller() as poller, pytest.raises(PollError, match="max_events"):
        poller.wait(0, most)
    with pytest.raises(PollError, match="max_events"):
        poll([(Box(), POLLIN)], 0, most)


def test_a_closed_poller() -> None:
    box = Box(held=POLLIN)
    poller = Poller()
    poller.add(box, POLLIN)
    poller.close()
    poller.close()
    assert len(box.queue) == 0
    for misuse in (
        lambda: poller.add(Box(), POLLIN),
        lambda: poller.modify(box, POLLIN),
        lambda: poller.remove(box),
        lambda: poller.wait(0),
        poller.wait,
        poller.fileno,
    ):
        with pytest.raises(PollError, match="the poller is closed"):
            misuse()
    assert poll([(poller, POLLIN)]) == [(poller, POLLHUP)]
    assert "closed" in repr(poller)


# ── the file descriptor ──────────────────────────────────────────────────────────────────────────────────────────────


def test_the_descriptor_is_readable_while_something_is_ready() -> None:
    box = Box(held=POLLIN)
    with Poller() as poller:
        poller.add(box, POLLIN)
        descriptor = poller.fileno()
        assert readable(descriptor)
        assert poller.wait(0) == [(box, POLLIN)]
        assert readable(descriptor)
        box.end(POLLIN)
        assert poller.wait(0) == []
        assert not readable(descriptor)
        box.begin(POLLIN)
        assert readable(descriptor)
        box.end(POLLIN)
        assert poller.fileno() == descriptor
        assert not readable(descriptor)
        box.begin(POLLIN)
        poller.remove(box)
        assert not readable(descriptor)


def test_epoll_wakes_on_the_descriptor() -> None:
    box = Box()
    with Poller() as poller, select.epoll() as kernel:
        poller.add(box, POLLIN | POLLET)
        kernel.register(poller, select.EPOLLIN)
        thread = in_background(kernel.poll, PATIENCE)
        box.begin(POLLIN)
        assert thread.result(PATIENCE) == [(poller.fileno(), select.EPOLLIN)]
        assert poller.wait(0) == [(box, POLLIN)]
        assert kernel.poll(0) == []


def test_asyncio_waits_for_the_descriptor() -> None:
    box = Box()

    async def main(poller: Poller) -> list[tuple[Any, int]]:
        loop = asyncio.get_running_loop()
        report: asyncio.Future[list[tuple[Any, int]]] = loop.create_future()

        def ready() -> None:
            loop.remove_reader(poller.fileno())
            report.set_result(poller.wait(0))

        loop.add_reader(poller.fileno(), ready)
        thread = in_background(box.begin, POLLIN)
        try:
            return await asyncio.wait_for(report, PATIENCE)
        finally:
            thread.result(PATIENCE)

    with Poller() as poller:
        poller.add(box, POLLIN | POLLET)
        assert asyncio.run(main(poller)) == [(box, POLLIN)]


def test_there_is_no_descriptor_unless_asked_for() -> None:
    def descriptors() -> int:
        count = 0
        for name in os.listdir("/proc/self/fd"):
            with suppress(FileNotFoundError):  # the one of the directory itself
                count += os.readlink(f"/proc/self/fd/{name}") == "anon_inode:[eventfd]"
        return count

    gc.collect()
    before = descriptors()
    closed, dropped = Poller(), Poller()
    closed.wait(0)
    assert descriptors() == before
    closed.fileno()
    dropped.fileno()
    assert descriptors() == before + 2
    closed.close()
    assert descriptors() == before + 1
    del dropped
    gc.collect()
    assert descriptors() == before


# ── poll ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_poll_reports_what_holds_now() -> None:
    one, two, three, closed = Box("one", POLLIN), Box("two"), Box("three", POLLIN | POLLOUT), Box("closed")
    closed.close()
    wanted = [(one, POLLIN), (two, POLLIN), (three, POLLOUT), (closed, 0)]
    for timeout in (None, 0, 5.0):
        assert poll(wanted, timeout) == [(one, POLLIN), (three, POLLOUT), (closed, POLLHUP)]
        assert poll(wanted, timeout, 2) == [(one, POLLIN), (three, POLLOUT)]
        assert poll(wanted, timeout, 1) == [(one, POLLIN)]
    assert [len(box.queue) for box, _ in wanted] == [0] * 4


def test_poll_waits_for_the_first_event() -> None:
    boxes = [Box(str(number)) for number in range(3)]
    thread = in_background(poll, [(box, POLLIN) for box in boxes])
    eventually(lambda: len(boxes[2].queue) == 1)
    boxes[0].begin(POLLOUT)
    boxes[1].begin(POLLIN)
    assert thread.result(PATIENCE) == [(boxes[1], POLLIN)]
    assert [len(box.queue) for box in boxes] == [0] * 3


def test_poll_is_woken_twice_before_it_sleeps() -> None:
    one, two = Box("one"), Box("two")

    def twice() -> None:
        two.on_ask = lambda: None
        one.begin(POLLIN)
        one.begin(POLLIN)

    two.on_ask = twice
    thread = in_background(poll, [(one, POLLIN), (two, POLLIN)])
    assert thread.result(PATIENCE) == [(one, POLLIN)]


def test_poll_goes_on_waiting_when_woken_in_vain() -> None:
    box = Box()
    asked: SimpleQueue[None] = SimpleQueue()
    box.on_ask = lambda: asked.put(None)
    thread = in_background(poll, [(box, POLLIN)])
    asked.get(timeout=PATIENCE)
    eventually(lambda: len(box.queue) == 1)
    with box.lock:
        box.queue.wake(POLLIN)
    asked.get(timeout=PATIENCE)
    box.begin(POLLIN)
    assert thread.result(PATIENCE) == [(box, POLLIN)]


def test_poll_reports_the_end_of_what_it_waits_for() -> None:
    box = Box()
    thread = in_background(poll, [(box, POLLIN)])
    eventually(lambda: len(box.queue) == 1)
    box.close()
    assert thread.result(PATIENCE) == [(box, POLLHUP)]


def test_poll_leaves_nothing_behind_when_it_fails() -> None:
    class Failing(Box):
        def poll_events(self, entry: WaitEntry | None) -> int:
            super().poll_events(entry)
            raise RuntimeError("broken")

    one, two, three = Box(), Failing(), Box()
    with pytest.raises(RuntimeError, match="broken"):
        poll([(one, POLLIN), (two, POLLIN), (three, POLLIN)])
    assert [len(box.queue) for box in (one, two, three)] == [0] * 3


def test_poll_takes_an_object_twice() -> None:
    box = Box(held=POLLIN | POLLOUT)
    assert poll([(box, POLLIN), (box, POLLOUT)]) == [(box, POLLIN), (box, POLLOUT)]


def test_poll_with_nothing_to_wait_for() -> None:
    with pytest.raises(PollError, match="for ever"):
        poll([])
    nothing: list[tuple[Box, int]] = []
    assert poll(nothing, 0) == []
    assert poll(nothing, 0.001) == []


# ── everything at once ───────────────────────────────────────────────────────────────────────────────────────────────


class Counting(Box):
    """Holds numbered messages until they are taken."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.messages: list[int] = []

    def put(self, message: int) -> None:
        with self.lock:
            self.messages.append(message)
            self.held |= POLLIN
            self.queue.wake(POLLIN)

    def get(self) -> int | None:
        with self.lock:
            message = self.messages.pop() if self.messages else None
            if not self.messages:
                self.held &= ~POLLIN
            return message


@pytest.mark.parametrize("mode", [0, POLLET, POLLONESHOT, POLLET | POLLEXCLUSIVE])
def test_threads_take_every_message_once(mode: int) -> None:
    boxes = [Counting(str(number)) for number in range(3)]
    total = 600
    taken: SimpleQueue[int] = SimpleQueue()
    pollers = [Poller(), Poller()] if mode & POLLEXCLUSIVE else [Poller()]
    for poller in pollers:
        for box in boxes:
            poller.add(box, POLLIN | mode)

    def consume(poller: Poller) -> None:
        while True:
            try:
                found = poller.wait(max_events=1)
            except PollError:
                return
            for box, _ in found:
                while (message := box.get()) is not None:
                    taken.put(message)
                    if not mode & POLLET:
                        break
                if mode & POLLONESHOT:
                    rearm(poller, box)

    def rearm(poller: Poller, box: Box) -> None:
        try:
            poller.modify(box, POLLIN | mode)
        except PollError:  # closed meanwhile
            return

    def produce(box: Counting, first: int) -> None:
        for message in range(first, total, len(boxes)):
            box.put(message)

    consumers = [in_background(consume, poller) for poller in pollers for _ in range(4 // len(pollers))]
    producers = [in_background(produce, box, first) for first, box in enumerate(boxes)]
    got = [taken.get(timeout=PATIENCE) for _ in range(total)]
    for poller in pollers:
        poller.close()
    for thread in [*producers, *consumers]:
        thread.result(PATIENCE)
    assert sorted(got) == list(range(total))
    assert taken.empty()
    assert [len(box.queue) for box in boxes] == [0] * 3
