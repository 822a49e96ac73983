"""Half-connection records, frame by frame: the corrections to Algorithm 1, giving records up, and hostile numbers.

The explorer in ``tests/model`` goes through all interleavings; here are the schedules that tell the story, by hand.
"""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exon.clock import Clock
from exon.frames import ClosedFrame, ReqSlots, Slots, TokenFrame
from exon.records import MOST_EVICTED, Records, SendRecord, Token, Verdict

A, B = 101, 202  # the epochs of the nodes a and b
MOST = 2**63 - 1


class Receiver:
    """Node b: real records, and what its application got."""

    def __init__(self, clock: int = 0, max_slots: int = 8192) -> None:
        self.records = Records(Clock(clock), max_slots=max_slots)
        self.delivered: list[bytes] = []

    def request(self, frame: ReqSlots) -> Slots:
        answer = self.records.on_reqslots("a", A, frame)
        assert isinstance(answer, Slots)
        return answer

    def token(self, frame: TokenFrame) -> Verdict:
        verdict = self.records.judge("a", A, frame.s, frame.r)
        if verdict is Verdict.DELIVER:
            self.records.consume("a", A, frame.s)
            self.delivered.append(frame.payload)
        return verdict

    @property
    def oblivious(self) -> bool:
        return not self.records.receive


def sent(token: Token) -> TokenFrame:
    """A token as it leaves, now or later."""
    return TokenFrame(token.s, token.r, bytes(token.payload))


def pair(n: int = 2, clock: int = 0) -> tuple[Records, SendRecord, Receiver]:
    """A sender with ``n`` envelopes and the receiver that granted them."""
    sender, receiver = Records(Clock(clock)), Receiver()
    record = sender.open("b")
    assert sender.on_slots("b", B, receiver.request(record.request(n))) is None
    return sender, record, receiver


def finish(sender: Records, receiver: Receiver) -> None:
    """A network that loses nothing: b probes, a answers, until both are oblivious."""
    for _ in range(5):
        if "b" in sender.send and not sender.send["b"].tokens:
            frame = sender.send["b"].close()
            answer = receiver.records.on_reqslots("a", A, frame)
            if isinstance(answer, ClosedFrame):
                sender.on_closed("b", B, answer)
        held = receiver.records.receive.get(("a", A))
        if held is not None:
            reply = sender.on_slots("b", B, receiver.records.probe(held))
            if reply is not None:
                receiver.records.on_reqslots("a", A, reply)
    assert not sender.send
    assert receiver.oblivious


# -- the four steps ---------------------------------------------------------------------------------------------------


def test_one_message_in_four_steps_and_nothing_is_left() -> None:
    sender, receiver = Records(Clock(5)), Receiver(clock=40)
    record = sender.open("b")
    request = record.request(3)
    assert request == ReqSlots(5, 3, 5)
    grant = receiver.request(request)
    assert grant == Slots(5, 40, 3, 0)
    assert sender.on_slots("b", B, grant) is None
    assert (record.env, record.sck, record.rck, record.envelopes) == (5, 8, 40, 3)
    token = record.seal(b"m")
    assert sent(token) == TokenFrame(5, 40, b"m")
    assert receiver.token(sent(token)) is Verdict.DELIVER
    assert receiver.token(sent(token)) is Verdict.DUPLICATE
    assert sender.on_ack("b", B, 40, [(5, 6)]) == [token]
    closing = record.close()
    assert closing == ReqSlots(8, 0, 8)
    assert receiver.records.on_reqslots("a", A, closing) == ClosedFrame(8)
    assert receiver.oblivious
    assert sender.on_closed("b", B, ClosedFrame(8))
    assert not sender.send
    assert sender.clock.value == 8
    assert receiver.delivered == [b"m"]


def test_more_slots_do_not_touch_the_first() -> None:
    sender, record, receiver = pair(2)
    first = record.seal(b"0")
    receiver.token(sent(first))
    grant = receiver.request(record.request(4))
    assert grant == Slots(2, 0, 4, 0)
    assert receiver.request(record.request(4)) == grant  # asked again: the same answer, no more slots
    sender.on_slots("b", B, grant)
    assert not record.accept(grant, B)  # the answer twice: for another sck
    assert list(receiver.records.receive["a", A].slots) == [(1, 6)]
    assert record.envelopes == 5


def test_the_frontier_is_the_lowest_token_then_the_first_envelope() -> None:
    _, record, _ = pair(4)
    assert record.frontier == 0
    tokens = [record.seal(bytes([number])) for number in range(3)]
    assert record.frontier == 0
    record.release(B, 0, [(0, 1), (2, 3)])
    assert record.frontier == tokens[1].s == 1
    record.release(B, 0, [(1, 2)])
    assert record.frontier == record.env == 3


# -- correction 1: a token keeps the (s, r) of its envelope for life --------------------------------------------------


def test_correction_1_the_published_double_delivery_does_not_happen() -> None:
    """The schedule of eleven steps that delivers both messages twice with Algorithm 1 as printed."""
    sender, receiver = Records(Clock()), Receiver()
    record = sender.open("b")
    request = record.request(2)
    sender.on_slots("b", B, receiver.request(request))
    tokens = [record.seal(b"m0"), record.seal(b"m1")]
    assert [receiver.token(sent(token)) for token in tokens] == [Verdict.DELIVER] * 2  # both acks are lost
    receiver.request(request)  # a duplicate: nothing to create, so the record goes
    assert receiver.oblivious
    again = receiver.request(request)  # another: a new incarnation has slots 0 and 1 a second time
    assert again.r == 1
    probe = receiver.records.probe(receiver.records.receive["a", A])
    assert probe == Slots(2, 1, 0, 0)
    sender.on_slots("b", B, probe)
    assert record.rck == 1
    assert [sent(token).r for token in tokens] == [0, 0]
    assert [receiver.token(sent(token)) for token in tokens] == [Verdict.DUPLICATE] * 2
    assert receiver.delivered == [b"m0", b"m1"]
    assert sender.on_ack("b", B, 0, [(0, 2)]) == tokens
    finish(sender, receiver)


def test_correction_1_an_ack_of_another_incarnation_releases_nothing() -> None:
    sender, record, _ = pair(2)
    token = record.seal(b"m")
    record.accept(Slots(2, 7, 0, 0), B)
    assert record.rck == 7
    assert sender.on_ack("b", B, 7, [(0, 5)]) == []
    assert sender.on_ack("b", B, 0, [(0, 5)]) == [token]


# -- correction 2: new slots start at max(c.sck, s) -------------------------------------------------------------------


def test_correction_2_a_record_made_by_a_stale_request_grants_nothing_below_what_is_asked() -> None:
    receiver = Receiver()
    receiver.request(ReqSlots(0, 2, 0))  # stale: the sender is at 50 by now
    grant = receiver.request(ReqSlots(50, 3, 50))
    assert grant == Slots(50, 0, 3, 0)
    record = receiver.records.receive["a", A]
    assert list(record.slots) == [(50, 53)]
    assert record.sck == 53


# -- correction 3: a SLOTS that finds no send record raises the clock -------------------------------------------------


def test_correction_3_a_receiver_ahead_of_a_sender_that_forgot_becomes_oblivious() -> None:
    sender, receiver = Records(Clock()), Receiver()
    record = sender.open("b")
    receiver.request(record.request(100))  # the grant is lost, and then the sender no longer needs any
    record.close()
    sender.forget("b")
    assert sender.clock.value == 0
    probe = receiver.records.probe(receiver.records.receive["a", A])
    answer = sender.on_slots("b", B, probe)
    assert answer == ReqSlots(100, 0, 100)
    assert sender.clock.value == 100
    assert receiver.records.on_reqslots("a", A, answer) == ClosedFrame(100)
    assert receiver.oblivious
    assert sender.open("b").sck == 100  # the numbers the receiver held are never used


def test_correction_3_while_closing_too() -> None:
    sender, receiver = Records(Clock()), Receiver()
    record = sender.open("b")
    receiver.request(record.request(100))
    probe = receiver.records.on_reqslots("a", A, record.close())
    assert probe == Slots(100, 0, 0, 0)  # slots the sender does not know of
    answer = sender.on_slots("b", B, probe)
    assert answer == ReqSlots(100, 0, 100)
    assert receiver.records.on_reqslots("a", A, answer) == ClosedFrame(100)
    assert sender.on_closed("b", B, ClosedFrame(100))
    assert sender.clock.value == 100


def test_correction_3_nobody_can_push_the_clock_beyond_what_was_ever_asked_for() -> None:
    sender = Records(Clock(), max_request=1000)
    assert sender.on_slots("b", B, Slots(1001, 0, 0, 0)) is None
    assert sender.on_slots("b", B, Slots(MOST, 0, 0, 0)) is None
    assert sender.clock.value == 0
    record = sender.open("b")
    record.close()
    assert sender.on_slots("b", B, Slots(MOST, 0, 0, 0)) is None
    assert record.sck == 0


# -- correction 4: a changed rck voids what is left of the old incarnation --------------------------------------------


def test_correction_4_no_envelope_survives_a_change_of_incarnation() -> None:
    _, record, _ = pair(4)
    record.seal(b"m")
    record.request(2)
    assert record.accept(Slots(4, 9, 2, 0), B)
    assert (record.env, record.sck, record.rck) == (4, 6, 9)
    token = record.seal(b"n")
    assert (token.s, token.r) == (4, 9)
    assert [(token.s, token.r) for token in record.tokens.values()] == [(0, 0), (4, 9)]


def test_correction_4_a_receiver_that_forgets_by_the_rules_leaves_no_envelope() -> None:
    """It only forgets a record without slots, and then every envelope of it was used or waived."""
    sender, record, receiver = pair(2)
    for payload in (b"0", b"1"):
        receiver.token(sent(record.seal(payload)))
    assert record.envelopes == 0
    grant = receiver.request(record.request(2))  # the same record goes on
    assert grant.r == 0
    assert sender.on_slots("b", B, grant) is None
    assert record.envelopes == 2


# -- correction 5: the envelopes of a new record start at sck ---------------------------------------------------------


def test_correction_5_a_lost_closing_request_does_not_bring_old_numbers_back() -> None:
    """The Java library starts the envelopes at 0: its second message would be acknowledged and never delivered."""
    sender, record, receiver = pair(1)
    token = record.seal(b"first")
    receiver.token(sent(token))
    sender.on_ack("b", B, 0, [(0, 1)])
    receiver.request(ReqSlots(1, 1, 0))  # the receiver keeps its record
    record.close()  # lost
    sender.forget("b")
    record = sender.open("b")
    assert (record.env, record.sck, record.envelopes) == (1, 1, 0)
    with pytest.raises(AssertionError, match="no envelope"):
        record.seal(b"too early")
    sender.on_slots("b", B, receiver.request(record.request(1)))
    token = record.seal(b"second")
    assert token.s == 1
    assert receiver.token(sent(token)) is Verdict.DELIVER
    assert receiver.delivered == [b"first", b"second"]


# -- grants that must not be believed ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("frame", "epoch"),
    [
        (Slots(2, 0, 5, 0), B),  # nobody asked for five
        (Slots(2, 0, MOST, 0), B),
        (Slots(1, 0, 3, 0), B),  # late: for an earlier sck
        (Slots(3, 0, 3, 0), B),  # for a later one
        (Slots(2, 0, 3, 0), B + 1),  # from another life
    ],
)
def test_a_grant_that_fits_nothing_changes_nothing(frame: Slots, epoch: int) -> None:
    sender, record, _ = pair(2)
    record.request(4)
    assert sender.on_slots("b", epoch, frame) is None
    assert (record.env, record.sck, record.rck, record.epoch) == (0, 2, 0, B)


def test_a_late_grant_of_a_forgotten_incarnation_is_ignored() -> None:
    _, record, _ = pair(2)
    record.request(2)
    assert record.accept(Slots(2, 5, 0, 0), B)
    assert not record.accept(Slots(2, 4, 2, 0), B)
    assert record.rck == 5


def test_acks_from_elsewhere_release_nothing() -> None:
    sender, record, _ = pair(2)
    token = record.seal(b"m")
    assert sender.on_ack("b", B + 1, 0, [(0, 2)]) == []
    assert sender.on_ack("c", B, 0, [(0, 2)]) == []
    assert sender.on_ack("b", B, 1, [(0, 2)]) == []
    assert sender.on_ack("b", B, 0, [(1, 2), (0, 0)]) == []
    assert list(record.tokens.values()) == [token]


@given(st.sets(st.integers(0, 29)), st.lists(st.tuples(st.integers(0, 35), st.integers(0, 40)), max_size=5))
def test_release_takes_exactly_the_named_tokens(kept: set[int], ranges: list[tuple[int, int]]) -> None:
    sender, record, _ = pair(30)
    for number in range(30):
        record.seal(bytes([number]))
    sender.on_ack("b", B, 0, [(s, s + 1) for s in range(30) if s not in kept])
    named = {s for s in kept if any(start <= s < stop for start, stop in ranges)}
    assert {token.s for token in sender.on_ack("b", B, 0, ranges)} == named
    assert list(record.tokens) == sorted(kept - named)


@pytest.mark.parametrize("frame", [ClosedFrame(1), ClosedFrame(3), ClosedFrame(MOST)])
def test_a_confirmation_of_another_close_is_ignored(frame: ClosedFrame) -> None:
    sender, record, _ = pair(2)
    assert not sender.on_closed("b", B, ClosedFrame(2))  # not closing
    record.close()
    assert not sender.on_closed("b", B, frame)
    assert not sender.on_closed("b", B + 1, ClosedFrame(2))
    assert not sender.on_closed("c", B, ClosedFrame(2))
    assert sender.on_closed("b", B, ClosedFrame(2))


def test_a_record_with_tokens_is_never_closed_or_forgotten() -> None:
    sender, record, _ = pair(2)
    record.seal(b"m")
    with pytest.raises(AssertionError, match="outstanding"):
        record.close()
    with pytest.raises(AssertionError):
        sender.forget("b")


def test_a_message_that_comes_while_closing_goes_on_with_the_same_record() -> None:
    sender, record, _ = pair(5)
    record.close()
    assert sender.open("b") is record
    assert not record.closing
    assert (record.env, record.sck) == (5, 5)  # the envelopes were waived and stay so
    assert not sender.on_closed("b", B, ClosedFrame(5))


# -- tokens that no sender can have -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("s", "r"),
    [
        (10, 8),  # an incarnation that never was
        (10, MOST),
        (9, 7),  # below the first number of this record
        (12, 7),  # above the last
        (MOST, 7),
    ],
)
def test_impossible_tokens(s: int, r: int) -> None:
    receiver = Receiver(clock=7)
    receiver.request(ReqSlots(10, 2, 10))
    assert receiver.token(TokenFrame(s, r, b"m")) is Verdict.IMPOSSIBLE
    assert receiver.delivered == []


def test_without_a_record_too_an_incarnation_that_never_was_is_not_acknowledged() -> None:
    receiver = Receiver(clock=7)
    assert receiver.token(TokenFrame(0, 7, b"m")) is Verdict.IMPOSSIBLE
    assert receiver.token(TokenFrame(0, 6, b"m")) is Verdict.DUPLICATE


def test_an_incarnation_between_this_record_and_the_clock_was_another_peers() -> None:
    receiver = Receiver(clock=7)
    receiver.request(ReqSlots(10, 2, 10))
    receiver.records.on_reqslots("c", 1, ReqSlots(0, 1, 0))
    assert receiver.token(TokenFrame(10, 8, b"m")) is Verdict.IMPOSSIBLE


def test_a_waived_slot_delivers_nothing() -> None:
    receiver = Receiver()
    receiver.request(ReqSlots(0, 4, 0))
    receiver.request(ReqSlots(4, 1, 3))
    assert list(receiver.records.receive["a", A].slots) == [(3, 5)]
    assert receiver.token(TokenFrame(2, 0, b"m")) is Verdict.DUPLICATE
    assert receiver.delivered == []


def test_lives_of_one_peer_are_apart() -> None:
    receiver = Receiver()
    receiver.request(ReqSlots(0, 1, 0))
    receiver.records.on_reqslots("a", A + 1, ReqSlots(0, 1, 0))
    assert receiver.records.receive["a", A].rck != receiver.records.receive["a", A + 1].rck
    receiver.records.consume("a", A + 1, 0)
    assert receiver.token(TokenFrame(0, 0, b"m")) is Verdict.DELIVER


def test_consuming_twice_is_a_bug_here_and_not_the_networks() -> None:
    receiver = Receiver()
    receiver.request(ReqSlots(0, 2, 0))
    receiver.records.consume("a", A, 0)
    with pytest.raises(AssertionError, match="not there"):
        receiver.records.consume("a", A, 0)


# -- closing a half-connection that is not there ----------------------------------------------------------------------


def test_closing_nothing_uses_up_no_incarnation() -> None:
    receiver = Receiver(clock=7)
    assert receiver.records.on_reqslots("a", A, ReqSlots(5, 0, 5)) == ClosedFrame(5)
    assert receiver.records.clock.value == 7
    assert receiver.oblivious


def test_a_stale_close_takes_only_what_it_names() -> None:
    receiver = Receiver()
    receiver.request(ReqSlots(5, 5, 5))
    assert receiver.records.on_reqslots("a", A, ReqSlots(7, 0, 7)) == Slots(10, 0, 0, 0)
    assert list(receiver.records.receive["a", A].slots) == [(7, 10)]


# -- giving records up ------------------------------------------------------------------------------------------------


def test_a_token_of_an_evicted_record_has_an_unknown_fate() -> None:
    sender, record, receiver = pair(3)
    done, open_ = record.seal(b"0"), record.seal(b"1")
    receiver.token(sent(done))
    receiver.records.evict("a", A)
    assert receiver.oblivious
    assert list(receiver.records.evicted) == [(0, 1)]
    assert [receiver.token(sent(token)) for token in (done, open_)] == [Verdict.UNKNOWN] * 2
    assert sender.on_gone("b", B, 0) == [done, open_]
    assert not record.tokens
    assert record.envelopes == 0  # the third is void
    sender.on_slots("b", B, receiver.request(record.request(1)))
    token = record.seal(b"2")
    assert (token.s, token.r) == (3, 1)
    assert receiver.token(sent(token)) is Verdict.DELIVER
    assert receiver.token(sent(open_)) is Verdict.UNKNOWN  # still
    assert receiver.delivered == [b"0", b"2"]


def test_eviction_leaves_the_tokens_of_other_records_alone() -> None:
    receiver = Receiver()
    receiver.request(ReqSlots(0, 1, 0))  # r = 0, consumed and forgotten by the rules
    receiver.token(TokenFrame(0, 0, b"m"))
    receiver.records.on_reqslots("a", A, ReqSlots(1, 0, 1))
    receiver.records.on_reqslots("c", 1, ReqSlots(0, 1, 0))  # r = 1
    receiver.request(ReqSlots(1, 1, 1))  # r = 2
    receiver.token(TokenFrame(1, 2, b"n"))
    receiver.records.on_reqslots("a", A, ReqSlots(2, 0, 2))
    receiver.records.evict("c", 1)
    assert receiver.records.judge("c", 1, 0, 1) is Verdict.UNKNOWN
    assert receiver.token(TokenFrame(0, 0, b"m")) is Verdict.DUPLICATE
    assert receiver.token(TokenFrame(1, 2, b"n")) is Verdict.DUPLICATE


def test_what_was_evicted_takes_bounded_memory_and_is_never_acknowledged() -> None:
    records = Records(Clock())
    evicted = []
    for number in range(2 * MOST_EVICTED + 10):
        answer = records.on_reqslots("a", number, ReqSlots(0, 1, 0))
        assert isinstance(answer, Slots)
        if number % 2:
            records.evict("a", number)
            evicted.append((number, answer.r))
    assert records.evicted.ranges <= MOST_EVICTED
    assert {records.judge("a", epoch, 0, r) for epoch, r in evicted} == {Verdict.UNKNOWN}


def test_gone_only_touches_its_own_incarnation_and_life() -> None:
    sender, record, _ = pair(2)
    old = record.seal(b"0")
    record.request(2)
    record.accept(Slots(2, 5, 2, 0), B)
    new = record.seal(b"1")
    assert sender.on_gone("b", B + 1, 0) == []
    assert sender.on_gone("c", B, 0) == []
    assert sender.on_gone("b", B, 0) == [old]
    assert list(record.tokens.values()) == [new]
    assert record.envelopes == 1


def test_refused_frees_the_record_from_the_dead_life_and_keeps_the_numbers() -> None:
    sender, record, _ = pair(4)
    tokens = [record.seal(b"0"), record.seal(b"1")]
    sender.on_reqslots("b", B, ReqSlots(0, 3, 0))
    assert sender.on_refused("b", B + 1) == []  # another life is dead, which has nothing of ours
    assert sender.on_refused("b", B) == tokens
    fresh = sender.send["b"]
    assert (fresh.sck, fresh.env, fresh.rck, fresh.epoch) == (4, 4, None, None)
    assert not fresh.tokens
    assert ("b", B) not in sender.receive  # slots for a dead sender go too
    fresh.request(1)
    assert fresh.accept(Slots(4, 0, 1, 0), B + 1)
    assert fresh.seal(b"2").s == 4


# -- hostile numbers cost nothing -------------------------------------------------------------------------------------


@pytest.mark.parametrize("s", [0, 5, MOST])
@pytest.mark.parametrize("n", [2**40, 2**62, MOST])
def test_a_request_for_everything_is_clamped_and_takes_no_memory(s: int, n: int) -> None:
    receiver = Receiver()
    tracemalloc.start()
    try:
        grant = receiver.request(ReqSlots(s, n, 0))
        for _ in range(5):
            receiver.request(ReqSlots(s, n, s))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert grant == Slots(s, 0, 8192, 0)
    record = receiver.records.receive["a", A]
    assert (record.slots.ranges, record.slots.count) == (1, 8192)
    assert peak < 16384  # 8192 numbers as objects would be more than a quarter of a megabyte


@given(
    st.lists(
        st.tuples(*[st.one_of(st.integers(0, 60), st.integers(MOST - 60, MOST))] * 3).map(lambda snl: ReqSlots(*snl)),
        max_size=20,
    ),
    st.integers(1, 10),
)
def test_no_sequence_of_requests_gets_more_than_the_limit(requests: list[ReqSlots], most: int) -> None:
    receiver = Receiver(max_slots=most)
    for frame in requests:
        answer = receiver.records.on_reqslots("a", A, frame)
        record = receiver.records.receive.get(("a", A))
        if record is not None:
            assert 0 < record.slots.count <= most
            assert record.slots.ranges <= most
        if isinstance(answer, Slots):
            assert 0 <= answer.n <= max(0, frame.n)


def test_an_ack_of_everything_walks_the_tokens_and_not_the_numbers() -> None:
    sender, record, _ = pair(3)
    tokens = [record.seal(b"x") for _ in range(3)]
    assert sender.on_ack("b", B, 0, [(0, 2 * MOST)]) == tokens


def test_a_life_that_was_declared_dead_and_lives_is_told_that_its_messages_are_unknown() -> None:
    sender, record, receiver = pair(3)
    token = record.seal(b"0")
    receiver.records.on_refused("a", A)  # its successor says so; but it was only stopped
    assert receiver.token(sent(token)) is Verdict.UNKNOWN
    assert sender.on_gone("b", B, 0) == [token]
    assert receiver.delivered == []
