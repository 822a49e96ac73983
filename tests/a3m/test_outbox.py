"""The queue of what is not data: in order, and its size is known whatever happens to it."""

from __future__ import annotations

import pytest

from a3m import outbox
from a3m.messages import DATA, LINK, LINKREPLY
from a3m.outbox import Outbox


@pytest.fixture
def box(monkeypatch: pytest.MonkeyPatch) -> Outbox:
    monkeypatch.setattr(outbox, "MOST_ANSWERS", 4)
    monkeypatch.setattr(outbox, "MOST_ANSWER_BYTES", 100)
    return Outbox()


def drain(box: Outbox) -> list[bytes]:
    taken = []
    while box:
        taken.append(box.first)
        box.remove_first()
    return taken


def test_first_in_first_out(box: Outbox) -> None:
    for type_, mine, data in ((LINKREPLY, 7, b"a"), (LINK, 7, b"b"), (DATA, 7, b"c"), (LINKREPLY, 0, b"d")):
        assert not box.full
        box.add(type_, mine, data)
    assert box.full
    assert drain(box) == [b"a", b"b", b"c", b"d"]
    assert not box.full


def test_bytes_count_until_they_are_taken(box: Outbox) -> None:
    box.add(LINKREPLY, 0, b"x" * 60)
    box.add(LINKREPLY, 0, b"x" * 40)
    assert box.full
    box.remove_first()
    assert not box.full
    box.add(LINKREPLY, 0, b"x" * 60)
    assert box.full


def test_only_the_link_that_is_meant_is_taken_back(box: Outbox) -> None:
    box.add(LINK, 1, b"x" * 60)
    box.add(LINK, 2, b"y" * 40)
    assert box.full
    box.retract_link(3)
    box.retract_link(1)
    assert not box.full
    box.retract_link(1)
    assert drain(box) == [b"y" * 40]


def test_a_link_that_is_asked_for_again_waits_once(box: Outbox) -> None:
    for _ in range(10):
        box.add(LINK, 1, b"x" * 60)
    assert not box.full
    assert drain(box) == [b"x" * 60]
