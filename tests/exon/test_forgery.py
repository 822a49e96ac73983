"""Datagrams that no honest node sends: by strangers who know every id and epoch, and by peers that do as they like."""

from __future__ import annotations

from random import Random

import pytest

from exon import packing
from exon.addresses import Address
from exon.frames import (
    Ack,
    ClosedFrame,
    Frame,
    Gone,
    Probe,
    Probed,
    Refused,
    ReqSlots,
    Slice,
    Slots,
    TokenFrame,
)
from exon.options import Options
from exon.protocol import Node
from exon.wire import MAX_NUMBER, Malformed, decode
from tests.exon.wire_pair import Parcel, Wire, forge, forgot_everything, total

EVIL = ("evil", 1)
EVIL_PAYLOAD = packing.pack([b"forged"])
SMALL = Options(max_message=2_000_000, reassembly_bytes=2_000_000, idle_timeout=1.0, forget_after=10.0)


class Stranger:
    """A node played by hand: it keeps to the rules about tags, and to no other."""

    def __init__(self, wire: Wire, peer: str, *, name: str = "stranger", address: Address = EVIL) -> None:
        self.wire, self.peer, self.name, self.address = wire, peer, name, address
        self.epoch, self.tag, self.time = 777, 0, 0

    def say(self, *frames: Frame, name: str | None = None, epoch: int | None = None) -> list[Parcel]:
        """Send a datagram; what comes back to its address at once."""
        self.time += 1
        epochs = epoch or self.epoch, self.wire[self.peer].epoch
        data = forge(name or self.name, self.peer, *frames, epochs=epochs, time=self.time, tag=5, proof=self.tag)
        answers = [p for p in self.wire.inject(self.peer, data, self.address) if p.destination == self.address]
        if answers:
            self.tag = answers[-1].header.tag
        return answers

    def open(self, *frames: ReqSlots) -> int:
        """Ask for slots; the incarnation granted."""
        (slots,) = [slots for parcel in self.say(*frames) for slots in parcel.frames(Slots)][-1:]
        return slots.r


def talking() -> Wire:
    """Nodes a and b that talk in both directions."""
    wire = Wire("a", "b")
    wire.send("a", "b", b"a1")
    wire.send("b", "a", b"b1")
    wire.run(0.5)
    return wire


def proofs(wire: Wire) -> dict[str, int]:
    """What a stranger may show: nothing, a guess, or a tag that was given to itself under its own name."""
    stranger = Stranger(wire, "a")
    stranger.say(ReqSlots(0, 0, 0))
    assert stranger.tag
    return {"none": 0, "guess": 123456789, "own": stranger.tag}


HUGE = [1, MAX_NUMBER]


# -- in the name of a receiver ----------------------------------------------------------------------------------------


def as_receiver(wire: Wire) -> list[list[Frame]]:
    """What would hurt if a believed that b says it. The token under way is (1, 0)."""
    return [
        [],
        [Ack(0, 0, ((0, 1000),))],
        [Ack(0, 0, ())],
        [Gone(0)],
        [Refused(wire["b"].epoch)],
        [Slots(79, 0, 0, 0)],
        [Slots(79, 5, 1, 0)],
        [Slots(2**40, 10**6, 0, 0)],
        [ClosedFrame(79)],
        [Probed(65487)],
    ]


@pytest.mark.parametrize("proof", ["none", "guess", "own"])
@pytest.mark.parametrize("time", HUGE)
@pytest.mark.parametrize("case", range(10))
def test_nobody_can_speak_for_a_receiver(case: int, time: int, proof: str) -> None:
    wire = talking()
    shown = proofs(wire)[proof]
    wire.lose = lambda parcel: parcel.has(TokenFrame)
    wire.send("a", "b", b"precious")
    wire.run(0.05)
    before = wire["a"].stats().peers["b"]
    epochs = wire["b"].epoch, wire["a"].epoch
    for epoch in (wire["b"].epoch, 999):
        frames = as_receiver(wire)[case]
        data = forge("b", "a", *frames, epochs=(epoch, epochs[1]), time=time, proof=shown, tag=9, echo=time)
        wire.inject("a", data, EVIL)
    after = wire["a"].stats().peers["b"]
    assert (after.address, after.pending_messages, after.datagram_size) == (before.address, 1, before.datagram_size)
    assert wire.events["a"] == []
    wire.lose = lambda parcel: False
    wire.run(3)
    assert wire.got["b"] == [b"a1", b"precious"]
    assert wire["a"].pending("b") == 0
    wire.send("b", "a", b"b2")
    wire.run(1)
    assert wire.got["a"] == [b"b1", b"b2"]
    wire.run(60)
    assert wire.oblivious


# -- in the name of a sender ------------------------------------------------------------------------------------------


AS_SENDER: list[list[Frame]] = [
    [],
    [ReqSlots(79, 0, 79)],
    [ReqSlots(79, 1, 79)],
    [ReqSlots(2**40, 1, 2**40)],
    [ReqSlots(0, 1, 0)],
    [TokenFrame(1, 0, EVIL_PAYLOAD)],
    [Slice(1, 0, 0, len(EVIL_PAYLOAD), EVIL_PAYLOAD)],
    [Refused(999), TokenFrame(1, 0, EVIL_PAYLOAD)],
]


@pytest.mark.parametrize("proof", ["none", "guess", "own"])
@pytest.mark.parametrize("time", HUGE)
@pytest.mark.parametrize("frames", AS_SENDER)
def test_nobody_can_speak_for_a_sender(frames: list[Frame], time: int, proof: str) -> None:
    wire = talking()
    shown = proofs(wire)[proof]
    for target in (wire["b"].epoch, 0):
        data = forge("a", "b", *frames, epochs=(wire["a"].epoch, target), time=time, proof=shown, tag=9, echo=time)
        answers = wire.inject("b", data, EVIL)
        assert len(answers) <= 1
    assert wire["b"].stats().peers["a"].address == ("a", 1)
    wire.send("a", "b", b"a2")
    wire.run(1)
    wire.send("b", "a", b"b2")
    wire.run(1)
    assert wire.got == {"a": [b"b1", b"b2"], "b": [b"a1", b"a2"]}
    assert wire.events["b"] == []
    told = [parcel.datagram.frames for parcel in wire.sent_by("b") if parcel.destination == EVIL]
    assert told in ([], [[]], [[], []])
    wire.move("a", "a2", aware=True)
    wire.run(0.1)
    assert wire["b"].stats().peers["a"].address == ("a2", 1)
    wire.run(60)
    assert wire.oblivious


@pytest.mark.parametrize(
    "request_", [ReqSlots(0, 5, 0), ReqSlots(3, 5, 3), ReqSlots(0, 8192, 0), ReqSlots(2**62, 1, 0)]
)
@pytest.mark.parametrize("time", HUGE)
def test_a_claim_made_before_the_true_node_speaks_does_not_harm_it(request_: ReqSlots, time: int) -> None:
    wire = Wire("a", "b", options=Options(idle_timeout=5.0, forget_after=100.0))
    data = forge("a", "b", request_, epochs=(wire["a"].epoch, 0), time=time, tag=9)
    wire.inject("b", data, EVIL)
    messages = [b"%d" % i + bytes(500) for i in range(40)]
    wire.send("a", "b", *messages)
    wire.run(10)
    assert wire.got["b"] == messages
    wire.run(300)
    assert wire.oblivious


@pytest.mark.parametrize("life", ["known", "new"])
def test_nobody_harms_a_peer_that_is_here_by_being_challenged(life: str) -> None:
    wire = talking()
    epochs = wire["a"].epoch if life == "known" else 999, wire["b"].epoch
    (challenge,) = wire.inject("b", forge("a", "b", Gone(0), epochs=epochs, time=1), EVIL)
    frames = ReqSlots(79, 1, 79), Refused(wire["a"].epoch)
    time, proof = int(wire.now * 1e6), challenge.header.tag
    wire.inject("b", forge("a", "b", *frames, epochs=epochs, time=time, proof=proof), EVIL)
    if life == "known":  # a new life may be anywhere: ids are not protected, what the old life sends is
        assert wire["b"].stats().peers["a"].address == ("a", 1)
    wire.send("a", "b", b"precious")
    wire.run(30)
    assert wire.got["b"] == [b"a1", b"precious"]


# -- what strangers are told ------------------------------------------------------------------------------------------


def test_an_unproven_datagram_gets_one_empty_answer_that_carries_a_tag() -> None:
    wire = talking()
    data = forge("b", "a", Gone(0), Gone(1), Gone(2), epochs=(wire["b"].epoch, wire["a"].epoch), tag=42, time=7)
    (answer,) = wire.inject("a", data, EVIL)
    assert answer.destination == EVIL
    assert answer.datagram.frames == []
    assert answer.header.tag
    assert (answer.header.proof, answer.header.echo) == (42, 7)
    assert len(answer.data) <= len(data) + 32


@pytest.mark.parametrize("proof", [0, 99])
def test_an_empty_datagram_is_never_answered(proof: int) -> None:
    wire = talking()
    for name in ("b", "stranger"):
        for target in (0, wire["a"].epoch):
            assert wire.inject("a", forge(name, "a", epochs=(999, target), proof=proof), EVIL) == []


def test_a_datagram_for_an_earlier_life_is_refused_once_and_a_refusal_never() -> None:
    wire = Wire("a")
    (answer,) = wire.inject("a", forge("x", "a", Gone(0), Gone(1), epochs=(5, 4)), EVIL)
    assert answer.frames(Refused) == [Refused(4)]
    assert wire.inject("a", forge("x", "a", Refused(5), epochs=(5, 4)), EVIL) == []
    assert forgot_everything(wire["a"])


@pytest.mark.parametrize("n", [0, 1])
def test_one_datagram_with_thousands_of_requests_is_answered_with_little(n: int) -> None:
    wire = Wire("b")
    data = forge("x" * 200, "b", *[ReqSlots(i, n, 0) for i in range(8000)], epochs=(5, 0))
    answers = wire.inject("b", data, EVIL)
    assert 0 < len(answers) <= 2
    assert max(len(parcel.data) for parcel in answers) <= 1200
    assert total(answers) < len(data) / 10
    assert wire["b"].stats().receive_records <= 1


def test_a_proven_peer_with_thousands_of_requests_gets_answers_that_fit_its_path() -> None:
    wire = Wire("b")
    stranger = Stranger(wire, "b", name="x" * 200)
    stranger.open(ReqSlots(0, 1, 0))
    answers = stranger.say(*[ReqSlots(i, 1, 0) for i in range(8000)])
    assert max(len(parcel.data) for parcel in answers) <= 1200
    assert total(answers) < 5000


def test_answers_to_strangers_are_bounded_while_they_wait_to_leave() -> None:
    node = Node("b", epoch=22)
    for i in range(5000):
        node.receive(forge(f"x{i}", "b", ReqSlots(0, 0, 0), epochs=(5, 0)), EVIL, 1.0)
    assert len(list(node.datagrams(1.0))) <= 256
    assert forgot_everything(node)


def test_forged_first_requests_are_bounded_and_their_victim_is_left_alone() -> None:
    victim = ("victim", 1)
    wire = Wire("b", options=Options(max_unproven=10, idle_timeout=1.0, forget_after=100.0))
    for i in range(200):
        wire.inject("b", forge(f"x{i}", "b", ReqSlots(0, 1, 0), epochs=(5, 0)), victim)
    assert wire["b"].stats().receive_records == 10
    wire.run(90)
    # Each was answered once, and each of ten records was asked about a few times.
    assert len(wire.log) <= 200 + 10 * 5
    wire.run(60)
    assert forgot_everything(wire["b"])
    (answer,) = wire.inject("b", forge("x", "b", ReqSlots(0, 1, 0), epochs=(5, 0)), victim)
    assert answer.has(Slots), "those that were forgotten do not count any more"


def test_an_honest_node_gets_through_a_crowd_of_forged_requests() -> None:
    wire = Wire("a", "b", options=Options(max_unproven=10, idle_timeout=1.0, forget_after=100.0))
    for i in range(50):
        wire.inject("b", forge(f"x{i}", "b", ReqSlots(0, 1, 0), epochs=(5, 0)), EVIL)
    wire.send("a", "b", b"honest")
    wire.run(1)
    assert wire.got["b"] == [b"honest"]


def test_records_that_were_proven_do_not_count_as_unproven() -> None:
    names = [f"n{i}" for i in range(6)]
    wire = Wire("b", *names, options=Options(max_unproven=2))
    for name in names:
        wire.send(name, "b", name.encode())
        wire.run(0.2)
    assert sorted(wire.got["b"]) == sorted(name.encode() for name in names)
    (answer,) = wire.inject("b", forge("x", "b", ReqSlots(0, 1, 0), epochs=(5, 0)), EVIL)
    assert answer.has(Slots)


def test_no_more_records_are_kept_than_allowed() -> None:
    wire = Wire("b", options=Options(max_records=5))
    for i in range(20):
        Stranger(wire, "b", name=f"x{i}").say(ReqSlots(0, 1, 0))
    assert wire["b"].stats().receive_records == 5
    assert wire["b"].stats().dropped["too many records"] == 15


# -- numbers that cannot be -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("proven", [True, False])
@pytest.mark.parametrize(
    "frame", [ReqSlots(5, 1, 6), ReqSlots(5, 0, 6), ReqSlots(MAX_NUMBER, 1, 0), ReqSlots(1, MAX_NUMBER, 0)]
)
def test_an_impossible_request_is_dropped(frame: ReqSlots, proven: bool) -> None:
    wire = Wire("b")
    stranger = Stranger(wire, "b")
    if proven:
        stranger.say(ReqSlots(0, 0, 0))
        assert stranger.tag
    stranger.say(frame)
    assert wire["b"].stats().dropped == {"impossible request": 1}
    assert forgot_everything(wire["b"])


def test_slots_that_lie_far_apart_cost_nothing() -> None:
    wire = Wire("b")
    stranger = Stranger(wire, "b")
    stranger.open(ReqSlots(0, 1, 0))
    r = stranger.open(ReqSlots(2**62, 1, 0))
    payload = packing.pack([b"x"])
    stranger.say(TokenFrame(0, r, payload), TokenFrame(2**62, r, payload))
    wire.run(0.5)
    assert wire.got["b"] == [b"x", b"x"]
    acked = [ranges for parcel in wire.log for ack in parcel.frames(Ack) for ranges in ack.ranges]
    assert all(any(start <= s < stop for start, stop in acked) for s in (0, 2**62))
    assert max(len(parcel.data) for parcel in wire.log) < 200


def test_acknowledgements_of_anything_at_all_fit_the_path() -> None:
    wire = Wire("b")
    others = [Stranger(wire, "b", name=f"y{i}") for i in range(70)]
    for other in others:
        other.open(ReqSlots(0, 1, 0))
    stranger = Stranger(wire, "b")
    stranger.open(ReqSlots(0, 1, 0))
    for k in range(6):
        frames = [TokenFrame(2**40 + 2 * j, r, b"q") for r in range(k * 11, k * 11 + 11) for j in range(200)]
        stranger.say(*frames)
    wire.run(1)
    assert max(len(parcel.data) for parcel in wire.log) <= 1200


def test_an_acknowledgement_of_everything_releases_only_what_the_peer_was_sent() -> None:
    wire = Wire("a", "b")
    stranger = Stranger(wire, "a")
    wire.off.add("b")
    wire.send("a", "b", b"to b")
    stranger.say(Ack(0, 0, ((0, MAX_NUMBER),) * 100))
    assert wire["a"].pending("b") == 1


def test_tokens_that_no_honest_sender_makes_are_taken_and_never_delivered() -> None:
    wire = Wire("b", options=Options(max_message=10_000))
    stranger = Stranger(wire, "b")
    r = stranger.open(ReqSlots(0, 20, 0))
    payloads = [
        b"\x07unknown kind",
        b"\x00not msgpack",
        packing.pack([]),
        b"\x01",
        packing.pack_fragment(packing.Fragment(0, 2, 20_000, b"z" * 1000)),  # too large a message
        packing.pack_fragment(packing.Fragment(9, 2, 2000, b"z" * 1000)),  # begins after itself
        packing.pack_fragment(packing.Fragment(0, 2**40, 2**50, b"z" * 1000)),
    ]
    for s, payload in enumerate(payloads):
        stranger.say(TokenFrame(s, r, payload))
    wire.run(0.5)
    assert wire.got["b"] == []
    assert wire["b"].stats().dropped["payload"] == len(payloads)
    stranger.say(TokenFrame(len(payloads), r, packing.pack([b"good"])))
    wire.run(0.5)
    assert wire.got["b"] == [b"good"]


def test_half_a_message_is_forgotten_although_its_record_went_first() -> None:
    wire = Wire("b", options=SMALL)
    stranger = Stranger(wire, "b")
    r = stranger.open(ReqSlots(10, 1, 10))
    stranger.say(TokenFrame(10, r, packing.pack_fragment(packing.Fragment(10, 2, 2000, bytes(1000)))))
    stranger.say(ReqSlots(10, 1, 10))  # the same again: there is no slot left, and nothing to make one for
    assert wire["b"].stats().receive_records == 0
    assert wire["b"].stats().peers
    wire.run(60)
    assert forgot_everything(wire["b"])


def test_tokens_of_slots_and_incarnations_that_never_were_are_dropped() -> None:
    wire = Wire("b")
    stranger = Stranger(wire, "b")
    r = stranger.open(ReqSlots(5, 2, 5))
    for s, incarnation in ((4, r), (7, r), (5, r + 1), (5, MAX_NUMBER), (MAX_NUMBER, r)):
        stranger.say(TokenFrame(s, incarnation, EVIL_PAYLOAD))
    assert wire["b"].stats().dropped == {"impossible token": 5}
    assert wire.got["b"] == []


# -- anything whatever ------------------------------------------------------------------------------------------------


def number(random: Random) -> int:
    return random.choice(
        [random.randrange(40), random.randrange(200), random.choice([0, 2**31, 2**62, MAX_NUMBER]), 79]
    )


def anything(random: Random) -> Frame:
    s, r, n = number(random), number(random), number(random)
    fragment = packing.Fragment(max(0, s - random.randrange(4)), random.choice([2, 3]), 1000, bytes(256))
    payload = random.choice([EVIL_PAYLOAD, packing.pack_fragment(fragment), random.randbytes(9)])
    chunk = bytes(random.randrange(1, 6))
    frames: list[Frame] = [
        ReqSlots(s, n, number(random)),
        Slots(s, r, n, number(random)),
        TokenFrame(s, r, payload),
        Ack(r, n, ((s, s + number(random)),)),
        ClosedFrame(s),
        Refused(random.choice([11, 22, 33, s])),
        Gone(r),
        Slice(s, r, random.randrange(3), 100, chunk),
        Probe(n),
        Probed(random.choice([n, 1372, 65487])),
    ]
    return random.choice(frames)


@pytest.mark.parametrize("seed", range(12))
def test_whatever_strangers_forge_honest_nodes_talk_on(seed: int) -> None:
    random = Random(seed)
    wire = Wire("a", "b", options=SMALL)
    stranger = Stranger(wire, "a")
    sent: dict[str, list[bytes]] = {"a": [], "b": []}
    for step in range(60):
        source, destination = random.sample("ab", 2)
        if random.random() < 0.3:
            sent[destination].append(b"%d" % step + bytes(random.choice([1, 3000])))
            wire.send(source, destination, sent[destination][-1])
        frames = [anything(random) for _ in range(random.randrange(1, 5))]
        epochs = (
            random.choice([wire[source].epoch, wire[source].epoch, 44, random.randrange(1, 60)]),
            random.choice([wire[destination].epoch, wire[destination].epoch, 0, 7]),
        )
        time = random.choice([int(wire.now * 1e6), MAX_NUMBER, random.randrange(2**63)])
        data = forge(source, destination, *frames, epochs=epochs, time=time, proof=random.choice([0, stranger.tag]))
        try:
            decode(data)
        except Malformed:
            continue
        wire.inject(destination, data, random.choice([EVIL, ("a", 1), ("b", 1)]))
        wire.run(random.choice([0.0, 0.001, 0.01, 0.3, 1.5]))
    wire.run(20)
    assert {name: sorted(got) for name, got in wire.got.items()} == {n: sorted(m) for n, m in sent.items()}
    wire.run(200)
    assert wire.oblivious


@pytest.mark.parametrize("seed", range(12))
def test_whatever_a_peer_says_the_others_talk_on(seed: int) -> None:
    random = Random(seed)
    wire = Wire("a", "b", options=SMALL)
    wire["a"].register("stranger", EVIL)
    stranger = Stranger(wire, "a")
    sent: dict[str, list[bytes]] = {"a": [], "b": []}
    for step in range(60):
        if random.random() < 0.3:
            source, destination = random.sample("ab", 2)
            sent[destination].append(b"%d" % step + bytes(random.choice([1, 3000])))
            wire.send(source, destination, sent[destination][-1])
        if random.random() < 0.2:
            wire["a"].send("stranger", bytes(random.choice([1, 3000])), wire.now)
        try:
            stranger.say(*[anything(random) for _ in range(random.randrange(1, 5))])
        except Malformed:
            continue
        wire.run(random.choice([0.0, 0.001, 0.01, 0.3, 1.5]))
    wire.run(20)
    for name, got in wire.got.items():
        assert sorted(message for message in got if message[:1].isdigit()) == sorted(sent[name])
