"""Whatever bytes come in: nothing is raised, nothing is delivered that nobody sent, nothing grows, and talk goes on."""

from __future__ import annotations

from collections import deque
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exon.addresses import Address
from exon.frames import Ack, ClosedFrame, Frame, Gone, Probe, Probed, Refused, ReqSlots, Slice, Slots, TokenFrame
from exon.options import Options
from exon.protocol import Node
from exon.wire import MAX_NUMBER, Header, encode, encode_frame
from tests.hostile.forge import FORGED, Forger, damage, repair
from tests.hostile.fuzz import attack, main, report

A, B, ENEMY = ("host-a", 1), ("host-b", 1), ("host-x", 1)
EPOCH_A, EPOCH_B = 1001, 1002


class Pair:
    """Two nodes with a perfect network between them, and an enemy who sends but does not listen."""

    def __init__(self, options: Options | None = None) -> None:
        self.a = Node("a", epoch=EPOCH_A, secret=b"known to a", options=options)
        self.b = Node("b", epoch=EPOCH_B, secret=b"known to b", options=options)
        self.a.register("b", B)
        self.b.register("a", A)
        self.now = 1.0
        self.said: list[bytes] = []  # to b
        self.received: list[tuple[str, bytes]] = []

    def talk(self, seconds: float = 0.0) -> None:
        """Let everything that can leave arrive, and time pass."""
        end = self.now + seconds
        idle_since, turns = self.now, 0
        while True:
            busy = self._exchange()
            turns += 1
            if self.now > idle_since:
                idle_since, turns = self.now, 0
            assert turns < 1000, f"{self.now} s: the nodes go on and on, deadlines {self._deadlines()}"
            if busy:
                continue
            deadlines = [when for when in self._deadlines() if when <= end]
            if not deadlines:
                break
            self.now = max(self.now, min(deadlines))
        self.now = end

    def _deadlines(self) -> list[float]:
        return [when for node in (self.a, self.b) if (when := node.deadline()) is not None]

    def _exchange(self) -> bool:
        leaving: deque[tuple[Node, Address, Address, bytes]] = deque()
        for node, source in ((self.a, A), (self.b, B)):
            node.expire(self.now)
            leaving += ((node, source, destination, datagram) for destination, datagram in node.datagrams(self.now))
        for _, source, destination, datagram in leaving:
            if destination == B:
                self.said.append(datagram)
                self.b.receive(datagram, source, self.now)
            elif destination == A:
                self.a.receive(datagram, source, self.now)
        self.received += ((peer, message) for peer, messages in self.b.deliveries() for message in messages)
        assert not any(self.a.deliveries())
        return bool(leaving)


numbers = st.one_of(
    st.integers(0, 40), st.integers(0, MAX_NUMBER), st.sampled_from([2**32, MAX_NUMBER - 1, MAX_NUMBER])
)
payloads = st.one_of(
    st.just(b"\x00\x91\xc4\x06" + FORGED), st.just(FORGED), st.binary(min_size=1, max_size=40), st.just(b"\x01")
)
ranges = st.tuples(numbers, numbers).map(lambda pair: (min(pair), max(pair)))
frames: st.SearchStrategy[Frame] = st.one_of(
    st.builds(ReqSlots, numbers, numbers, numbers),
    st.builds(Slots, numbers, numbers, numbers, numbers),
    st.builds(TokenFrame, numbers, numbers, payloads),
    st.builds(Ack, numbers, numbers, st.lists(ranges, max_size=4).map(tuple)),
    st.builds(ClosedFrame, numbers),
    st.builds(Refused, st.one_of(numbers, st.sampled_from([EPOCH_A, EPOCH_B]))),
    st.builds(Gone, numbers),
    st.builds(Slice, numbers, numbers, st.just(0), st.sampled_from([6, 7, 65507]), st.just(FORGED)),
    st.builds(Probe, numbers),
    st.builds(Probed, numbers),
)
epochs = st.one_of(st.sampled_from([EPOCH_A, EPOCH_B]), st.integers(1, 3), st.integers(1, MAX_NUMBER))
headers = st.builds(
    Header,
    source=st.sampled_from(["a", "a", "a", "b", "c", "d", "x" * 255]),
    destination=st.sampled_from(["b", "b", "b", "a", "c"]),
    source_epoch=epochs,
    destination_epoch=st.one_of(st.just(0), epochs),
    tag=numbers,
    proof=numbers,
    time=numbers,
    echo=numbers,
    delay=numbers,
)
forgeries = st.builds(
    lambda header, content, flags: encode(header, [encode_frame(frame) for frame in content], flags),
    headers,
    st.lists(frames, max_size=4),
    st.integers(0, 255),
)


@given(st.lists(st.one_of(st.binary(max_size=200), st.binary(max_size=80).map(lambda data: b"EX\x01" + data))))
def test_no_bytes_make_a_node_raise_or_remember(datagrams: list[bytes]) -> None:
    node = Node("b", epoch=EPOCH_B)
    for datagram in datagrams:
        node.receive(datagram, ENEMY, 1.0)
    stats = node.stats()
    assert (stats.datagrams_received, sum(stats.dropped.values())) == (len(datagrams), len(datagrams))
    assert not stats.peers
    assert not node.wants_to_send


@settings(max_examples=50)
@given(st.lists(st.tuples(forgeries, st.sampled_from([A, ENEMY])), max_size=30))
def test_forged_datagrams_do_not_disturb_a_conversation(forged: list[tuple[bytes, Address]]) -> None:
    pair = Pair()
    wanted = []
    for number, (datagram, source) in enumerate([*forged, (b"", ENEMY)]):
        message = b"%d" % number
        assert pair.a.send("b", message, pair.now)
        wanted.append(("a", message))
        pair.talk(0.005)
        pair.b.receive(datagram, source, pair.now)
    pair.talk(10.0)
    assert sorted(pair.received) == sorted(wanted)
    assert not pair.a.pending("b")
    assert pair.a.stats().messages_unknown == 0


@settings(max_examples=50)
@given(st.lists(forgeries, max_size=30))
def test_forged_datagrams_are_forgotten(forged: list[bytes]) -> None:
    pair = Pair(Options(idle_timeout=1.0, forget_after=100.0))
    pair.a.send("b", b"hello", pair.now)
    pair.talk()
    for datagram in forged:
        pair.b.receive(datagram, ENEMY, pair.now)
    pair.talk(1000.0)
    stats = pair.b.stats()
    assert pair.received == [("a", b"hello")]
    assert (stats.peers, stats.send_records, stats.receive_records, stats.buffered_bytes) == ({}, 0, 0, 0)


HOLE = [(0, 1), (60, 1)]  # numbers between two claims must not be taken for used slots


@pytest.mark.parametrize("claims", [[(0, 1)], HOLE, [(5, 1)], [(70, MAX_NUMBER - 70)]], ids=str)
def test_claims_made_before_a_node_first_speaks_cost_it_no_message(claims: list[tuple[int, int]]) -> None:
    """Epochs are no secret, so somebody may ask for slots in the name of a node that has yet to do so itself."""
    pair = Pair()
    for time, (s, n) in enumerate(claims, 1):
        header = Header("a", "b", EPOCH_A, 0, 0, 0, time, 0, 0)
        pair.b.receive(encode(header, [encode_frame(ReqSlots(s, n, 0))]), ENEMY, pair.now)
    wanted = [b"%d" % number for number in range(10)]
    for message in wanted:
        pair.a.send("b", message, pair.now)
        pair.talk(0.05)
    pair.talk(5.0)
    assert sorted(message for _, message in pair.received) == wanted
    assert not pair.a.pending("b")


@settings(max_examples=50)
@given(st.integers(0, 2**32))
def test_damaged_copies_of_a_conversation_do_not_disturb_it(seed: int) -> None:
    dice = Random(seed)
    pair = Pair()
    wanted = [b"%d" % number + bytes(dice.choice((0, 300, 5000))) for number in range(8)]
    for message in wanted:
        pair.a.send("b", message, pair.now)
        pair.talk(0.005)
        said = dice.choice(pair.said)
        hurt = bytearray(said)
        hurt[dice.randrange(len(hurt))] ^= dice.randint(1, 255)
        pair.b.receive(bytes(hurt), dice.choice((A, ENEMY)), pair.now)
        pair.b.receive(said, dice.choice((A, ENEMY)), pair.now)  # and one that is whole, a second time
    pair.talk(10.0)
    assert sorted(pair.received) == sorted(("a", message) for message in wanted)
    assert pair.b.stats().dropped.keys() <= {
        "checksum",
        "magic",
        "version",
        "truncated",
        "unproven",
        "short",
        "frame",
    }


def test_claims_of_many_strangers_and_many_lives_stay_within_the_limits() -> None:
    options = Options(max_unproven=50, max_peer_epochs=3)
    pair = Pair(options)
    pair.a.send("b", b"before", pair.now)
    pair.talk()
    for number in range(1, 2000):
        for source in ("a", f"stranger-{number}"):
            header = Header(source, "b", number, 0, 1, 0, number, 0, 0)
            pair.b.receive(encode(header, [encode_frame(ReqSlots(0, MAX_NUMBER, 0))]), ENEMY, pair.now)
            deque(pair.b.datagrams(pair.now), maxlen=0)
    stats = pair.b.stats()
    assert len(stats.peers) <= 51
    assert stats.receive_records <= 53
    pair.a.send("b", b"after", pair.now)
    pair.talk(5.0)
    assert pair.received == [("a", b"before"), ("a", b"after")]


def test_answers_to_strangers_are_no_larger_than_what_they_sent() -> None:
    """Or a forged source address would make the node an amplifier."""
    forger = Forger(3, "b", "a", [EPOCH_A, EPOCH_B], [b"?"], [])
    node = Node("b", epoch=EPOCH_B)
    for _ in range(3000):
        datagram = forger.forged()
        node.receive(datagram, ENEMY, 1.0)
        answers = [answer for address, answer in node.datagrams(1.0) if address == ENEMY]
        assert sum(map(len, answers)) <= 3 * len(datagram)


def test_repair_makes_damage_well_formed() -> None:
    header = Header("a", "b", 1, 2, 3, 4, 5, 6, 7)
    whole = encode(header, [encode_frame(Gone(1))])
    assert repair(whole) == whole
    assert damage(whole, Random(1)) != whole


def test_an_attack_on_a_live_endpoint_comes_to_nothing() -> None:
    outcome = attack(20_000, seed=1)
    assert not outcome.failures
    stats = outcome.target
    assert stats is not None
    assert {"checksum", "magic", "short", "version", "truncated", "encoding", "frame", "epoch", "own id"} <= set(
        stats.dropped
    )
    assert outcome.talked > 0
    assert "nothing broken" in report(outcome)


def test_the_command_line_refuses_an_empty_attack(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(["--datagrams", "0"])
    assert refused.value.code == 2
    assert "at least 1" in capsys.readouterr().err
