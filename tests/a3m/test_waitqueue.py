"""Who is told what, and in which order."""

from __future__ import annotations

from a3m.waitqueue import POLLHUP, POLLIN, POLLOUT, WaitEntry, WaitQueue


class Line:
    """A queue, and a log of who was told what."""

    def __init__(self) -> None:
        self.queue = WaitQueue()
        self.told: list[tuple[str, int]] = []

    def join(
        self, name: str, events: int = POLLIN, *, exclusive: bool = True, useful: bool = True, once: bool = False
    ) -> WaitEntry:
        def wake(events: int) -> bool:
            self.told.append((name, events))
            if once:
                self.queue.remove(entry)
            return useful

        entry = WaitEntry(events, wake, exclusive=exclusive)
        self.queue.add(entry)
        return entry

    def names(self) -> list[str]:
        return [name for name, _ in self.told]


def test_all_shared_entries_are_told_and_one_exclusive_one() -> None:
    line = Line()
    for name in ("a", "b"):
        line.join(name)
    for name in ("s", "t"):
        line.join(name, exclusive=False)
    assert line.queue.wake(POLLIN) == 1
    assert line.names() == ["s", "t", "a"]


def test_exclusive_entries_take_turns() -> None:
    line = Line()
    for name in ("a", "b", "c"):
        line.join(name)
    for _ in range(4):
        line.queue.wake(POLLIN)
    assert line.names() == ["a", "b", "c", "a"]


def test_entries_are_told_only_what_they_wait_for() -> None:
    line = Line()
    line.join("in", POLLIN)
    line.join("out", POLLOUT | POLLHUP)
    line.join("shared", POLLIN | POLLOUT, exclusive=False)
    assert line.queue.wake(POLLOUT) == 1
    assert line.told == [("shared", POLLOUT), ("out", POLLOUT)]
    assert line.queue.wake(POLLHUP | POLLIN, 2) == 2
    assert line.told[2:] == [("shared", POLLIN), ("in", POLLIN), ("out", POLLHUP)]


def test_whoever_has_no_use_for_it_lets_the_next_have_it() -> None:
    line = Line()
    line.join("gone", useful=False)
    line.join("here")
    assert line.queue.wake(POLLIN) == 1
    assert line.names() == ["gone", "here"]


def test_nobody_had_any_use_for_it() -> None:
    line = Line()
    line.join("gone", useful=False)
    line.join("shared", exclusive=False)
    assert line.queue.wake(POLLIN) == 0


def test_as_many_are_told_as_can_make_progress() -> None:
    line = Line()
    for name in ("a", "b", "c"):
        line.join(name)
    assert line.queue.wake(POLLIN, 2) == 2
    assert line.queue.wake(POLLIN, 0) == 0
    assert line.queue.wake(POLLIN, 9) == 3
    assert line.names() == ["a", "b", "c", "a", "b"]


def test_everybody_is_told_of_the_end() -> None:
    line = Line()
    for name in ("a", "b"):
        line.join(name, POLLHUP, once=True)
    line.join("s", POLLHUP, exclusive=False)
    line.queue.wake_all(POLLHUP)
    assert line.names() == ["s", "a", "b"]
    assert len(line.queue) == 1


def test_removed_entries_are_told_nothing() -> None:
    line = Line()
    entries = [line.join("a"), line.join("s", exclusive=False)]
    assert [line.queue.remove(entry) for entry in entries] == [True, True]
    assert [line.queue.remove(entry) for entry in entries] == [False, False]
    line.queue.wake_all(POLLIN)
    assert line.told == []
    assert len(line.queue) == 0


def test_an_entry_removed_by_another_while_both_are_told_is_left_alone() -> None:
    line = Line()
    line.queue.add(WaitEntry(POLLIN, lambda events: line.queue.remove(second), exclusive=True))
    second = line.join("second")
    line.queue.wake_all(POLLIN)
    assert line.told == []
    assert len(line.queue) == 1


def test_passing_on_is_for_exclusive_entries_only() -> None:
    line = Line()
    line.join("s", exclusive=False)
    line.join("a")
    assert line.queue.pass_on(POLLIN) == 1
    assert line.names() == ["a"]


def test_what_a_removed_entry_took_and_did_not_use_goes_to_the_next() -> None:
    line = Line()
    taker = line.join("taker", POLLIN | POLLOUT)
    line.join("next", POLLIN | POLLOUT)
    line.queue.wake(POLLOUT)
    taker.unspent = POLLOUT
    line.queue.remove(taker)
    assert line.told == [("taker", POLLOUT), ("next", POLLOUT)]
    assert taker.unspent == 0
    line.queue.remove(taker)
    assert len(line.told) == 2
