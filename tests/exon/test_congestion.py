"""The controller by itself: how it starts, what it makes of loss, and where it stays out of the way.

How it does on whole paths, with queues and competitors, is in :mod:`tests.paths`.
"""

from __future__ import annotations

from collections import deque
from random import Random

import pytest
from attrs import define, field

from exon.congestion import Bottleneck, Phase
from exon.delivery import Delivery, Mark
from exon.rtt import Rtt
from exon.wire import BASE_DATAGRAM

START = 16 * BASE_DATAGRAM


@define
class Path:
    """A sender that always fills its window, paced, over one bottleneck with a queue; one event per datagram."""

    base: float = 0.04
    bandwidth: float = 12.5e6  # bytes per second
    queue: float = 1e9  # bytes
    loss: float = 0.0
    share: float = 1.0  # of the window that the application fills
    now: float = 1.0
    free_at: float = 0.0
    in_flight: int = 0
    control: Bottleneck = field(factory=Bottleneck)
    rtt: Rtt = field(factory=Rtt)
    delivery: Delivery = field(factory=Delivery)
    chance: Random = field(factory=lambda: Random(1))
    windows: list[int] = field(factory=list)
    rates: list[float] = field(factory=list)
    longest: float = 0.0
    _under_way: deque[tuple[float, float, Mark, bool]] = field(factory=deque)
    _leaves_at: float = 0.0

    def __attrs_post_init__(self) -> None:
        self.rtt.sample(self.base, self.now)
        self.control.restart(self.rtt)

    @property
    def capacity(self) -> float:
        return self.base * self.bandwidth

    def run(self, seconds: float) -> Bottleneck:
        end = self.now + seconds
        size = BASE_DATAGRAM
        while self.now < end:
            room = self.in_flight < self.share * self.control.window
            if not room and self.share < 1:
                self.delivery.limit(self.in_flight)
            due = self._under_way[0][0] if self._under_way else float("inf")
            if room and max(self._leaves_at, self.now) <= due:
                self.now = max(self._leaves_at, self.now)
                self._leaves_at = self.now + size / self.control.rate
                if not self.in_flight:
                    self.delivery.begin(self.now, self.now)
                waits = max(0.0, self.free_at - self.now)
                self.longest = max(self.longest, waits)
                arrives = waits * self.bandwidth <= self.queue
                if arrives:
                    self.free_at = self.now + waits + size / self.bandwidth
                    arrives = self.chance.random() >= self.loss
                answered = max(self.free_at + self.base, due if due < float("inf") else 0.0)
                self._under_way.append((answered, self.now, self.delivery.mark, arrives))
                self.in_flight += size
                continue
            self.now, sent, mark, arrived = self._under_way.popleft()
            before = self.in_flight
            self.in_flight -= size
            if arrived:
                self.rtt.sample(self.now - sent, self.now)
                self.delivery.arrived(size, mark, sent, self.rtt.minimum, self.now)
                self.control.on_acked(size, before, self.delivery, self.rtt, self.now)
                if self.delivery.new_round:
                    self.windows.append(self.control.window)
                    self.rates.append(self.control.bandwidth)
            else:
                self.control.on_lost(size)
        return self.control


def test_begins_with_sixteen_datagrams_paced_over_a_third_of_a_round_trip() -> None:
    path = Path()
    assert path.control.window == START
    assert path.control.rate == pytest.approx(2.77 * START / path.base)


def test_doubles_every_round_trip_until_the_path_is_full() -> None:
    path = Path()
    path.run(1.0)
    full = next(index for index, window in enumerate(path.windows) if window >= path.capacity)
    assert full <= 7  # two to the fifth times the start is what the path holds; the first round measures nothing
    assert path.control.phase is not Phase.STARTUP


def test_finds_the_rate_and_leaves_no_queue() -> None:
    path = Path()
    path.run(1.0)
    path.longest = 0.0
    control = path.run(5.0)
    assert control.bandwidth == pytest.approx(path.bandwidth, rel=0.01)
    assert path.longest < 0.5 * path.base


@pytest.mark.parametrize("loss", [0.01, 0.05])
def test_random_loss_alone_does_not_shrink_the_rate(loss: float) -> None:
    path = Path(loss=loss)
    path.run(3.0)
    assert all(rate >= (1 - loss) * 0.97 * path.bandwidth for rate in path.rates[-50:])
    # More than arrives has to leave, for the bottleneck to be full.
    assert path.control.rate >= 0.97 * path.bandwidth * (1.0 if path.control.phase is not Phase.EMPTY else 0.5)


def test_rate_and_window_are_those_of_the_phase_from_its_beginning_on() -> None:
    path = Path()
    path.run(1.0)
    seen = set()
    for _ in range(5000):
        path.run(0.0002)
        control = path.control
        seen.add(control.phase)
        if control.phase is Phase.UP:
            assert control.rate > 1.2 * control.bandwidth
        elif control.phase is Phase.DOWN:
            assert control.rate < 1.1 * control.bandwidth
            assert control.window < 1.5 * path.capacity
        elif control.phase is Phase.CRUISE:
            assert control.window > 1.8 * path.capacity
    assert {Phase.UP, Phase.DOWN, Phase.CRUISE} <= seen


def test_what_probing_loses_is_not_what_the_path_always_loses() -> None:
    path = Path(queue=0.05 * 12.5e6 * 0.04)
    path.run(10.0)
    assert (path.control._usual_loss or 0.0) < 0.005


def test_an_overrun_buffer_bounds_what_is_on_the_way() -> None:
    path = Path(queue=0.1 * 12.5e6 * 0.04)
    path.run(5.0)
    lossless = Path()
    lossless.run(5.0)
    assert max(path.windows[-50:]) < 0.8 * max(lossless.windows[-50:])
    assert max(path.rates[-50:]) == pytest.approx(path.bandwidth, rel=0.02)


def test_a_path_that_becomes_slower_is_believed_and_its_queue_goes() -> None:
    path = Path()
    path.run(2.0)
    path.bandwidth /= 4
    path.run(4.0)
    path.longest = 0.0
    control = path.run(2.0)
    assert control.bandwidth == pytest.approx(path.bandwidth, rel=0.02)
    assert path.longest < path.base


def test_a_path_that_becomes_longer_is_believed() -> None:
    path = Path()
    path.run(2.0)
    path.base *= 4
    path.run(12.0)
    assert path.rtt.minimum == pytest.approx(path.base, rel=0.1)
    assert path.control.bandwidth == pytest.approx(path.bandwidth, rel=0.02)


def test_what_the_application_does_not_send_says_nothing_about_the_path() -> None:
    path = Path()
    path.run(2.0)
    path.share = 0.2
    path.run(3.0)
    assert path.control.bandwidth > 0.95 * path.bandwidth


def test_a_short_path_is_not_paced_and_holds_what_arrives_in_some_milliseconds() -> None:
    path = Path(base=0.0001, bandwidth=500e6)
    path.run(0.2)
    assert path.control.rate == float("inf")
    assert path.control.window >= 0.01 * path.bandwidth


def test_noise_of_milliseconds_does_not_shrink_the_window_of_a_short_path() -> None:
    control, rtt, delivery = Bottleneck(datagram=65487), Rtt(), Delivery()
    rtt.sample(0.00005, 1.0)
    control.restart(rtt)
    for step in range(2000):
        now = 1.0 + step * 0.01
        rtt.sample(0.00005 if step % 10 == 0 else 0.008, now)
        delivery.begin(now - 0.008, now - 0.008)
        delivery.arrived(65487, delivery.mark, now - 0.008, rtt.minimum, now)
        control.on_acked(65487, 65487, delivery, rtt, now)
    assert control.window >= 16 * 65487
    assert control.rate == float("inf")


def test_silence_begins_again_with_three_datagrams() -> None:
    path = Path()
    path.run(2.0)
    path.control.restart(path.rtt, silent=True)
    assert path.control.window == 3 * BASE_DATAGRAM
    assert path.control.phase is Phase.STARTUP
    assert path.control.bandwidth == 0


def test_another_path_begins_anew() -> None:
    path = Path()
    path.run(2.0)
    path.control.restart(path.rtt)
    assert path.control.window == START


def test_it_never_grows_beyond_64_mib() -> None:
    control, rtt, delivery = Bottleneck(), Rtt(), Delivery()
    rtt.sample(1.0, 1.0)
    delivery.begin(1.0, 1.0)
    for step in range(1, 20):
        delivery.arrived(1 << 30, delivery.mark, float(step), 1.0, step + 1.0)
        control.on_acked(1 << 30, 1 << 30, delivery, rtt, step + 1.0)
    assert control.window == 64 << 20
