"""The window against a modelled path: random loss alone does not shrink it, a standing queue does."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st

from exon.congestion import DelayWindow, Pacer
from exon.rtt import Rtt
from exon.wire import BASE_DATAGRAM

START = 32 * BASE_DATAGRAM


@define
class Path:
    """A sender that always has enough to send, over a path of one bottleneck.

    What is on the way beyond the bandwidth-delay product waits in a queue and makes the round trip longer. A loss shows
    when later datagrams are acknowledged, as in :mod:`exon.recovery`.
    """

    base: float = 0.04
    bandwidth: float = float("inf")  # bytes per second
    loss: float = 0.0
    share: float = 1.0  # of the window that the application fills
    seed: int = 1
    now: float = 0.0
    missing: int = 0
    rtt: Rtt = field(factory=Rtt)
    congestion: DelayWindow = field(factory=DelayWindow)
    windows: list[int] = field(factory=list)

    @property
    def capacity(self) -> float:
        return self.base * self.bandwidth

    def rounds(self, count: int) -> int:
        """Let some round trips pass; the window afterwards."""
        chance = random.Random(self.seed)
        for _ in range(count):
            in_flight = int(self.congestion.window * self.share)
            queued = max(0.0, in_flight - self.capacity) / self.bandwidth
            trip = self.base + queued
            datagrams = max(1, in_flight // BASE_DATAGRAM)
            for _ in range(datagrams):
                self.now += trip * 1.01 / datagrams
                self.rtt.sample(trip, self.now)
                if chance.random() < self.loss:
                    self.missing += 1
                    continue
                self.congestion.on_acked(BASE_DATAGRAM, in_flight, self.rtt, self.now)
                self.congestion.on_lost(self.missing * BASE_DATAGRAM)
                self.missing = 0
            self.windows.append(self.congestion.window)
        return self.congestion.window


def test_begins_with_thirty_two_datagrams() -> None:
    assert DelayWindow().window == START


def test_doubles_every_round_trip_until_a_queue_shows() -> None:
    path = Path(bandwidth=100e6 / 8)  # 500 kB on the way fill it
    path.rounds(4)
    assert path.windows[0] == 2 * START
    assert path.windows[-1] >= path.capacity
    assert all(later == 2 * earlier for earlier, later in pairwise(path.windows))


def test_settles_near_what_the_path_holds() -> None:
    path = Path(bandwidth=100e6 / 8)
    path.rounds(100)
    assert all(0.8 * path.capacity <= window <= 1.6 * path.capacity for window in path.windows[50:])


@pytest.mark.parametrize("loss", [0.01, 0.05, 0.2])
def test_random_loss_alone_does_not_shrink_the_window(loss: float) -> None:
    path = Path(loss=loss)
    path.rounds(8)
    assert path.windows == sorted(path.windows)
    assert path.congestion.window >= 32 * START


@pytest.mark.parametrize("loss", [0.0, 0.2])
def test_a_standing_queue_shrinks_the_window_with_and_without_loss(loss: float) -> None:
    path = Path(loss=loss)
    before = path.rounds(5)
    path.bandwidth = before / 4 / path.base  # now three quarters of the window stand in a queue
    path.rounds(2)  # the round that was under way may still grow
    worst = path.congestion.window
    assert path.rounds(1) < worst
    path.rounds(60)
    assert path.congestion.window <= 1.6 * path.capacity


def test_after_the_first_queue_it_grows_gently() -> None:
    path = Path(bandwidth=100e6 / 8)
    path.rounds(30)
    path.bandwidth *= 100
    before = path.congestion.window
    after = path.rounds(1)
    assert before < after <= before * 1.15


def test_losing_most_of_a_round_shrinks_it() -> None:
    path = Path()
    path.rounds(4)
    path.loss = 0.7
    before = path.rounds(1)  # the round that was under way may still grow
    assert path.rounds(3) < before


def test_a_window_that_is_not_used_does_not_grow() -> None:
    path = Path(share=0.4)
    assert path.rounds(20) == START
    path.share = 0.6
    assert path.rounds(1) == 2 * START


def test_noise_of_a_millisecond_is_no_queue() -> None:
    congestion, rtt = DelayWindow(), Rtt()
    for step in range(200):
        rtt.sample(0.0001 + 0.001 * (step % 2), step * 0.01)
        congestion.on_acked(BASE_DATAGRAM, congestion.window, rtt, step * 0.01)
    assert congestion.window > 100 * START


def test_silence_halves_it_down_to_four_datagrams() -> None:
    congestion = DelayWindow()
    congestion.on_silence()
    assert congestion.window == START // 2
    for _ in range(50):
        congestion.on_silence()
    assert congestion.window == 4 * BASE_DATAGRAM


def test_the_least_follows_the_datagram_size() -> None:
    congestion = DelayWindow(datagram=8952)
    for _ in range(50):
        congestion.on_silence()
    assert congestion.window == 4 * 8952


def test_it_never_grows_beyond_64_mib() -> None:
    congestion, rtt = DelayWindow(), Rtt()
    for step in range(100):
        rtt.sample(0.01, float(step))
        congestion.on_acked(1, congestion.window, rtt, float(step))
    assert congestion.window == 64 << 20


def test_the_rate_is_more_than_a_window_per_round_trip() -> None:
    path = Path(bandwidth=100e6 / 8)
    assert path.congestion.rate(path.rtt) == pytest.approx(2 * START / path.rtt.smoothed)
    path.rounds(30)
    assert path.congestion.rate(path.rtt) == pytest.approx(1.25 * path.congestion.window / path.rtt.smoothed)


# -- pacing -----------------------------------------------------------------------------------------------------------


def paced(pacer: Pacer, rate: float, size: int, start: float, datagrams: int) -> list[float]:
    """When each datagram leaves if a driver sends as soon as it may."""
    now, left = start, []
    for _ in range(datagrams):
        now = max(now, pacer.ready_at())
        pacer.sent(size, rate, now)
        left.append(now)
    return left


def test_the_first_datagrams_leave_at_once() -> None:
    left = paced(Pacer(), rate=1e6, size=1000, start=5.0, datagrams=200)
    assert left[:10] == [5.0] * 10
    assert left[-1] > 5.1


@given(st.floats(1e4, 1e9), st.integers(100, 65000), st.floats(0.0, 1000.0))
def test_no_more_than_the_rate_and_a_burst(rate: float, size: int, start: float) -> None:
    left = paced(Pacer(), rate, size, start, 200)
    burst = max(0.002 * rate, 64_000, 2 * size) + size
    for count, when in enumerate(left):
        assert count * size <= (when - start) * rate * (1 + 1e-6) + burst + 1e-6 * rate


def test_in_the_long_run_the_rate_is_reached() -> None:
    left = paced(Pacer(), rate=1e6, size=1000, start=0.0, datagrams=2000)
    assert left[-1] == pytest.approx(2.0, rel=0.05)


def test_pausing_saves_up_no_more_than_one_burst() -> None:
    pacer = Pacer()
    paced(pacer, 1e6, 1000, 0.0, 500)
    left = paced(pacer, 1e6, 1000, 100.0, 200)
    assert left.count(100.0) <= 66
    assert left[-1] > 100.1


def test_random_loss_does_not_shrink_the_window_of_thin_traffic() -> None:
    congestion, rtt, chance, now = DelayWindow(), Rtt(), random.Random(1), 0.0
    start = congestion.window
    for _ in range(1000):
        now += 0.0201
        rtt.sample(0.04, now)
        if chance.random() < 0.2:
            congestion.on_lost(BASE_DATAGRAM)
        else:
            congestion.on_acked(BASE_DATAGRAM, 2 * BASE_DATAGRAM, rtt, now)
    assert congestion.window >= start
