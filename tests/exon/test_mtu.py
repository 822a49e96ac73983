"""Path MTU probing, step by step."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from exon.mtu import SIZES, PathMtu
from exon.wire import BASE_DATAGRAM, MAX_DATAGRAM

LARGEST = SIZES[-1]


def test_begins_with_what_every_path_carries_and_probes_nothing_unasked() -> None:
    mtu = PathMtu(LARGEST)
    assert mtu.size == BASE_DATAGRAM == 1200
    assert mtu.probes(100.0, 0.1) == []
    assert mtu.probe_at is None


def test_all_larger_sizes_leave_at_once() -> None:
    mtu = PathMtu(LARGEST)
    mtu.want(5.0)
    assert mtu.probe_at == 5.0
    assert mtu.probes(5.0, 0.1) == list(SIZES)
    assert mtu.probes(5.05, 0.1) == []


def test_the_largest_answer_counts_in_whatever_order_they_come() -> None:
    mtu = PathMtu(LARGEST)
    mtu.want(0.0)
    mtu.probes(0.0, 0.1)
    for size in (1452, 8952, 1372, 4312):
        mtu.probed(size)
    assert mtu.size == 8952


def test_lost_probes_leave_three_times_and_again_after_a_minute() -> None:
    mtu = PathMtu(LARGEST)
    mtu.want(0.0)
    assert mtu.probes(0.0, 0.2)
    mtu.probed(1452)
    assert mtu.probes(0.1, 0.2) == []
    assert mtu.probes(0.2, 0.2) == [size for size in SIZES if size > 1452]
    assert mtu.probes(0.4, 0.2) == [size for size in SIZES if size > 1452]
    mtu.want(0.5)
    for now in (0.6, 30.0, 60.3):
        assert mtu.probes(now, 0.2) == []
        mtu.want(now)
    assert mtu.probe_at == pytest.approx(60.4)
    assert mtu.probes(60.5, 0.2) == []  # the minute is over; there must be something to send to begin again
    assert mtu.probe_at is None
    mtu.want(61.0)
    assert mtu.probes(61.0, 0.2) == [size for size in SIZES if size > 1452]


def test_a_short_timeout_does_not_make_probes_hasty() -> None:
    mtu = PathMtu(LARGEST)
    mtu.want(0.0)
    mtu.probes(0.0, 0.002)
    assert mtu.probe_at == 0.05


def test_the_limit_is_kept() -> None:
    mtu = PathMtu(5000)
    mtu.want(0.0)
    assert mtu.probes(0.0, 0.1) == [1372, 1452, 4312]
    mtu.probed(8952)
    assert mtu.size == BASE_DATAGRAM
    mtu.probed(4312)
    assert mtu.size == 4312


def test_with_no_larger_size_allowed_there_is_nothing_to_want() -> None:
    mtu = PathMtu(BASE_DATAGRAM)
    mtu.want(0.0)
    assert mtu.probe_at is None


@pytest.mark.parametrize("size", [0, 1, 1199, 1300, 9000, MAX_DATAGRAM, 2**63 - 1])
def test_an_answer_to_what_was_never_asked_is_ignored(size: int) -> None:
    mtu = PathMtu(MAX_DATAGRAM)
    mtu.want(0.0)
    mtu.probes(0.0, 0.1)
    mtu.probed(size)
    assert mtu.size == BASE_DATAGRAM


def test_a_reset_goes_back_and_may_probe_at_once() -> None:
    mtu = PathMtu(LARGEST)
    mtu.want(0.0)
    mtu.probes(0.0, 0.1)
    mtu.probed(LARGEST)
    mtu.reset()
    assert mtu.size == BASE_DATAGRAM
    assert mtu.probe_at is None
    mtu.want(1.0)
    assert mtu.probes(1.0, 0.1) == list(SIZES)


class AnyPath(RuleBasedStateMachine):
    """Whatever happens, the size is one that is allowed and was answered since the last reset."""

    def __init__(self) -> None:
        super().__init__()
        self.most = 9000
        self.mtu = PathMtu(self.most)
        self.now = 0.0
        self.answered: set[int] = set()

    @rule(later=st.sampled_from([0.0, 0.05, 1.0, 70.0]))
    def probe(self, later: float) -> None:
        self.now += later
        due = self.mtu.probe_at
        sizes = self.mtu.probes(self.now, 0.1)
        assert all(self.mtu.size < size <= self.most for size in sizes)
        if sizes:
            assert due is not None
            assert due <= self.now
            after = self.mtu.probe_at
            assert after is not None
            assert after >= self.now + 0.05

    @rule()
    def want(self) -> None:
        self.mtu.want(self.now)

    @rule(size=st.sampled_from((*SIZES, 1, 5000)))
    def probed(self, size: int) -> None:
        self.mtu.probed(size)
        self.answered.add(size)

    @rule()
    def reset(self) -> None:
        self.mtu.reset()
        self.answered.clear()

    @invariant()
    def believes_only_answers(self) -> None:
        allowed = {size for size in self.answered if size in SIZES and size <= self.most}
        assert self.mtu.size == max(allowed, default=BASE_DATAGRAM)


TestAnyPath = AnyPath.TestCase
