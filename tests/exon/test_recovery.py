"""Loss detection: what counts as lost, when, and how long to wait for an answer; alone, and between two nodes."""

from __future__ import annotations

from collections import deque
from itertools import count, pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exon.frames import Ack, TokenFrame
from exon.records import Token
from exon.recovery import Recovery
from exon.wire import BASE_DATAGRAM
from tests.exon.wire_pair import Parcel, Wire

RTT = 0.1


class Path:
    """Tokens that leave one by one, a millisecond apart, and answers that come a round trip later."""

    def __init__(self, max_backoff: float = 2.0) -> None:
        self.recovery = Recovery(max_backoff)
        self.now = 1.0
        self._numbers = count()
        self._times = count(1_000_000)

    def send(self, *, size: int = 1000, token: Token | None = None) -> Token:
        token = token or Token(next(self._numbers), 0, b"x")
        time = max(next(self._times), int(self.now * 1e6))
        self._times = count(time + 1)
        self.recovery.sent(time, size, [token], self.now)
        self.sent_at = time
        self.now += 0.001
        return token

    def echo(self, time: int) -> None:
        """An answer to the datagram of that time comes now."""
        self.recovery.echoed(time, 0, int(self.now * 1e6), int(self.now * 1e6), self.now)
        self.recovery.told(time)

    def measure(self) -> None:
        """One round trip, so that the time-outs are those of the path."""
        token = self.send()
        self.now += RTT - 0.001
        self.echo(self.sent_at)
        self.recovery.acked([token], self.now)

    def lost(self) -> list[int]:
        return [token.s for token in self.recovery.lost(self.now)]

    def expired(self) -> list[int]:
        return [token.s for token in self.recovery.expired(self.now)]


def test_a_token_overtaken_by_three_datagrams_is_lost_at_once() -> None:
    path = Path()
    path.measure()
    first = path.send()
    for _ in range(2):
        path.send()
    path.echo(path.sent_at)
    assert path.lost() == []
    path.send()
    path.echo(path.sent_at)
    assert path.lost() == [first.s]


def test_a_token_overtaken_by_two_of_many_is_not_lost_yet() -> None:
    path = Path()
    path.measure()
    first = path.send()
    for _ in range(2):
        path.send()
    second_next = path.sent_at
    for _ in range(5):
        path.send()
    path.echo(second_next)
    assert path.lost() == []
    path.echo(second_next + 1000)
    assert first.s in path.lost()


def test_a_token_overtaken_by_one_datagram_is_lost_after_a_little_more_than_a_round_trip() -> None:
    path = Path()
    path.measure()
    sent = path.now
    first = path.send()
    path.send()
    path.now = sent + RTT
    path.echo(path.sent_at)
    assert path.lost() == []
    deadline = path.recovery.deadline()
    assert deadline is not None
    assert deadline == pytest.approx(sent + RTT * 9 / 8, abs=0.001)
    path.now = deadline
    assert path.lost() == [first.s]


def test_what_is_lost_no_longer_counts_as_under_way() -> None:
    path = Path()
    path.measure()
    for _ in range(4):
        path.send(size=1000)
    path.echo(path.sent_at)
    assert path.recovery.in_flight == 4000
    assert len(path.lost()) == 1
    assert path.recovery.in_flight == 3000


def test_nothing_is_lost_while_nothing_later_has_arrived() -> None:
    path = Path()
    path.measure()
    for _ in range(10):
        path.send()
    path.now += 60
    assert path.lost() == []


def test_silence_sends_the_oldest_again_and_only_the_third_time_everything() -> None:
    path = Path()
    path.measure()
    sent = [path.send().s for _ in range(4)]
    window = path.recovery.congestion.window
    tries = []
    for _ in range(3):
        deadline = path.recovery.deadline()
        assert deadline is not None
        path.now = deadline - 1e-6
        assert path.expired() == []
        path.now = deadline
        tries.append(path.expired())
    assert tries == [sent[:1], sent[:1], sent]
    assert path.recovery.in_flight == 0
    assert path.recovery.congestion.window < window


def test_patience_doubles_with_every_silent_time_out_up_to_the_limit() -> None:
    path = Path(max_backoff=1.0)
    path.measure()
    path.send()
    waits = []
    for _ in range(6):
        deadline = path.recovery.deadline()
        assert deadline is not None
        waits.append(deadline - path.now)
        path.now = deadline
        for token in path.recovery.expired(path.now):
            path.send(token=token)
            path.now -= 0.001
    base = path.recovery.rtt.timeout
    assert waits[1:] == pytest.approx([2 * base, 1.0, 1.0, 1.0, 1.0], abs=0.002)
    assert waits[0] < waits[1] < 1.0
    assert path.recovery.patience(10**6) == 1.0


def test_any_echo_ends_the_back_off() -> None:
    path = Path()
    path.measure()
    path.send()
    for _ in range(2):
        path.now += 10
        path.expired()
    assert path.recovery.timeouts == 2
    path.echo(path.sent_at)
    assert path.recovery.timeouts == 0


def test_an_echo_of_a_moment_still_to_come_or_of_an_older_one_teaches_nothing() -> None:
    path = Path()
    path.measure()
    measured = path.recovery.rtt.smoothed
    path.send()
    newest = path.sent_at
    path.now += 5
    path.echo(int(path.now * 1e6) + 10**6)
    assert path.recovery.rtt.smoothed == measured
    path.now += RTT - 5
    path.echo(newest)
    after = path.recovery.rtt.smoothed
    path.now += 5
    path.echo(newest)
    path.echo(newest - 1)
    assert path.recovery.rtt.smoothed == after


def test_the_end_of_a_burst_is_tried_again_one_and_a_half_round_trips_after_it_left() -> None:
    path = Path()
    for _ in range(50):
        path.measure()
    left = path.now
    first, last = path.send(), path.send()
    path.now = left + RTT
    path.echo(path.sent_at - 1)
    path.recovery.acked([first], path.now)  # the answer to its neighbour must not make it wait longer
    deadline = path.recovery.deadline()
    assert deadline is not None
    assert deadline - left == pytest.approx(1.5 * RTT, rel=0.05)
    path.now = deadline
    assert path.expired() == [last.s]


def test_a_second_copy_that_is_lost_too_is_noticed_by_its_own_time() -> None:
    path = Path()
    path.measure()
    token = path.send()
    for _ in range(2):
        for _ in range(3):
            path.send()
        path.echo(path.sent_at)
        assert token.s in path.lost()
        path.send(token=token)
    path.echo(path.sent_at)
    assert token.s not in path.lost()


def test_on_another_path_what_was_learnt_and_what_is_still_on_the_way_teach_nothing() -> None:
    path = Path()
    path.measure()
    token = path.send()
    path.recovery.moved()
    path.now += 5
    path.echo(path.sent_at)
    path.recovery.acked([token], path.now)
    assert path.recovery.rtt.samples == 0
    assert path.recovery.delivery.delivered == 1000, "what went before the move"
    path.send()
    path.now += 0.3
    path.echo(path.sent_at)
    assert path.recovery.rtt.smoothed == pytest.approx(0.301, abs=0.002)


def test_what_arrived_and_was_turned_away_goes_again_without_counting_as_lost() -> None:
    path = Path()
    path.measure()
    turned_away, under_way = path.send(), None
    path.echo(path.sent_at)
    under_way = path.send()
    window = path.recovery.congestion.window
    assert [token.s for token in path.recovery.refused()] == [turned_away.s]
    assert path.recovery.in_flight == 1000
    assert path.recovery.congestion.window == window
    assert under_way.flight is not None


def test_a_path_that_swallows_large_datagrams_is_noticed_although_small_ones_pass() -> None:
    path = Path()
    path.measure()
    for _ in range(8):
        path.send(size=8 * BASE_DATAGRAM)
    for _ in range(4):
        small = path.send(size=100)
        path.echo(path.sent_at)
        path.recovery.acked([small], path.now)
    assert len(path.lost()) == 8
    assert not path.recovery.swallows_large(path.now), "it may have been one bad moment"
    path.now += 10
    assert path.recovery.swallows_large(path.now)
    assert not path.recovery.swallows_large(path.now), "said once"


def test_a_large_datagram_that_arrives_clears_the_path_of_suspicion() -> None:
    path = Path()
    path.measure()
    for _ in range(8):
        path.send(size=8 * BASE_DATAGRAM)
    arrived = path.send(size=8 * BASE_DATAGRAM)
    path.echo(path.sent_at)
    path.lost()
    path.recovery.acked([arrived], path.now)
    path.now += 10
    assert not path.recovery.swallows_large(path.now)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 9000)), max_size=80))
def test_bytes_under_way_are_those_of_datagrams_with_tokens_outstanding(steps: list[tuple[int, int]]) -> None:
    path = Path()
    held: list[Token] = []
    for kind, number in steps:
        if kind <= 1:
            held.append(path.send(size=number))
        elif kind == 2 and held:
            path.send(size=number, token=held[number % len(held)])
        elif kind == 3 and held:
            path.recovery.acked([held.pop(number % len(held))], path.now)
        elif kind == 4:
            path.echo(path.sent_at if held else 0)
            path.lost()
        elif kind == 5:
            path.now += number / 1000
            path.expired()
        sizes = {id(token.flight): getattr(token.flight, "size", 0) for token in held if token.flight is not None}
        assert path.recovery.in_flight == sum(sizes.values())
    path.recovery.dropped(held)
    assert path.recovery.in_flight == 0
    assert path.recovery.deadline() is None


# -- between two nodes ------------------------------------------------------------------------------------------------


def talking() -> Wire:
    """Two nodes that know each other's round-trip time."""
    wire = Wire("a", "b")
    wire.send("a", "b", b"first")
    wire.run(0.5)
    assert wire.got["b"] == [b"first"]
    return wire


def tokens(parcel: Parcel) -> list[bytes]:
    return [frame.payload for frame in parcel.frames(TokenFrame)]


def test_a_lost_token_comes_after_a_time_out_not_after_a_fixed_time() -> None:
    wire = talking()
    lost: list[Parcel] = []

    def first_token(parcel: Parcel) -> bool:
        if parcel.has(TokenFrame) and not lost:
            lost.append(parcel)
            return True
        return False

    wire.lose = first_token
    began = wire.now
    wire.send("a", "b", b"second")
    wire.run_until(lambda: len(wire.got["b"]) == 2)
    assert lost
    assert 0.015 < wire.now - began < 0.1


def test_an_overtaken_token_goes_again_before_any_time_out() -> None:
    wire = talking()
    payload = bytes(900)
    lost: list[Parcel] = []

    def one_token(parcel: Parcel) -> bool:
        if parcel.has(TokenFrame) and not lost:
            lost.append(parcel)
            return True
        return False

    wire.lose = one_token
    began = wire.now
    wire.send("a", "b", *[payload] * 8)
    wire.run_until(lambda: len(wire.got["b"]) == 9)
    # Half a round trip to arrive, half for the acknowledgement that shows the gap, half for the second try.
    assert wire.now - began == pytest.approx(3 * wire.latency, abs=0.002)
    assert wire["a"].stats().retransmissions == 1


def test_only_what_was_lost_goes_again() -> None:
    wire = talking()
    numbers = count()
    lost: list[bytes] = []

    def every_fifth(parcel: Parcel) -> bool:
        if parcel.header.source == "a" and parcel.has(TokenFrame) and next(numbers) % 5 == 2 and len(lost) < 8:
            lost.extend(tokens(parcel))
            return True
        return False

    wire.lose = every_fifth
    wire.send("a", "b", *[b"%03d" % i + bytes(900) for i in range(60)])
    wire.run(5)
    assert len(wire.got["b"]) == 61
    assert lost
    assert wire["a"].stats().retransmissions == len(lost)
    assert wire["b"].stats().duplicates == 0


def test_processes_that_are_late_do_not_make_a_path_look_faster() -> None:
    """A sender that runs now and then, and makes up for it, and a receiver that answers late."""
    path, chance = Path(), Random(1)
    path.measure()
    recovery, rates = path.recovery, []
    spacing = 0.001  # of datagrams at the bottleneck, and on average at the sender
    answers: deque[tuple[float, float, int, Token]] = deque()
    begin = free_at = answered = path.now
    sent = 0
    while sent < 3000:
        path.now += chance.uniform(0.001, 0.06)
        while answers and answers[0][0] + RTT / 2 <= path.now:
            answered, arrived, time, token = answers.popleft()
            delay = int(1e6 * (answered - arrived))
            # Its clock began elsewhere.
            recovery.echoed(time, delay, int(1e6 * (answered + 77.0)), int(1e6 * path.now), path.now)
            recovery.told(time)
            recovery.acked([token], path.now)
            rates.append(recovery.delivery.rate)
        while begin + sent * spacing <= path.now:
            now = path.now
            token = path.send()
            path.now = now
            free_at = max(free_at, now + RTT / 2) + spacing
            answered = max(answered, free_at + chance.choice([0.0, 0.0, 0.04]))
            answers.append((answered, free_at, path.sent_at, token))
            sent += 1
    assert max(rates[100:]) == pytest.approx(1000 / spacing, rel=0.02)


def test_a_lost_acknowledgement_costs_no_retransmission_when_another_follows() -> None:
    wire = talking()
    lost: list[Parcel] = []

    def first_ack(parcel: Parcel) -> bool:
        if parcel.has(Ack) and not lost:
            lost.append(parcel)
            return True
        return False

    wire.lose = first_ack
    wire.send("a", "b", *[bytes(900)] * 3)
    wire.run(0.01)
    wire.send("a", "b", *[bytes(900)] * 3)
    wire.run(2)
    assert lost
    assert len(wire.got["b"]) == 7
    assert wire["a"].stats().retransmissions == 0
    assert wire["a"].pending("b") == 0


def test_the_round_trip_time_of_a_retransmission_is_that_of_its_last_copy() -> None:
    wire = Wire("a", "b", latency=0.05)
    wire.lose = lambda parcel: parcel.has(TokenFrame) and wire.now < 5
    wire.send("a", "b", b"late")
    wire.run(10)
    assert wire.got["b"] == [b"late"]
    assert wire["a"].stats().retransmissions > 3
    assert wire["a"].stats().peers["b"].rtt == pytest.approx(0.1, rel=0.1)


def test_the_delay_of_an_acknowledgement_is_not_taken_for_the_path() -> None:
    wire = Wire("a", "b", latency=0.05)
    for i in range(20):
        wire.send("a", "b", b"%d" % i)
        wire.run(0.3)  # one at a time: every acknowledgement waits for company as long as it may
    assert wire["a"].stats().peers["b"].rtt == pytest.approx(0.1, abs=0.002)


def test_tries_to_reach_a_silent_peer_become_rarer_and_never_end() -> None:
    wire = talking()
    wire.off.add("b")
    wire.send("a", "b", b"anybody there?")
    wire.run(3600)
    tries = [parcel.sent for parcel in wire.sent_by("a", wire.now - 3600) if parcel.has(TokenFrame)]
    pauses = [later - earlier for earlier, later in pairwise(tries)]
    assert pauses[:4] == sorted(pauses[:4])
    assert max(pauses) == pytest.approx(2.0, abs=0.1)
    assert wire.now - tries[-1] <= 2.1
    wire.off.clear()
    wire.run(5)
    assert wire.got["b"] == [b"first", b"anybody there?"]
