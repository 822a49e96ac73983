"""A node's verbs, driven by hand: what leaves when, what is delivered, and that nothing is left afterwards."""

from __future__ import annotations

from itertools import count
from random import Random

import pytest

from exon.errors import BadIdentifier, BadPayload, Closed, MessageTooLarge
from exon.events import LookupWanted, PeerUnreachable
from exon.frames import Ack, ClosedFrame, Probe, ReqSlots, Slots, TokenFrame
from exon.options import Options
from exon.protocol import Node
from tests.exon.wire_pair import Parcel, Wire, forgot_everything, reachable

QUICK = Options(idle_timeout=1.0, forget_after=60.0)


def kinds(parcel: Parcel) -> list[str]:
    return [type(frame).__name__ for frame in parcel.datagram.frames]


# -- one conversation, looked at closely ------------------------------------------------------------------------------


def test_a_first_message_takes_four_datagrams() -> None:
    wire = Wire("a", "b")
    wire.send("a", "b", b"hello")
    wire.run(0.5)
    assert [(parcel.header.source, kinds(parcel)) for parcel in wire.log] == [
        ("a", ["ReqSlots"]),
        ("b", ["Slots"]),
        ("a", ["TokenFrame"]),
        ("b", ["Ack"]),
    ]
    assert wire.got["b"] == [b"hello"]
    assert wire["a"].pending("b") == 0


def test_a_second_message_takes_two() -> None:
    wire = Wire("a", "b")
    wire.send("a", "b", b"hello")
    wire.run(0.5)
    before = len(wire.log)
    wire.send("a", "b", b"again")
    wire.run(0.5)
    assert [kinds(parcel) for parcel in wire.log[before:]] == [["TokenFrame"], ["Ack"]]


def test_small_messages_share_a_token() -> None:
    wire = Wire("a", "b")
    messages = [b"%d" % i for i in range(100)]
    wire.send("a", "b", *messages)
    wire.run(0.5)
    assert wire.got["b"] == messages
    assert sum(len(parcel.frames(TokenFrame)) for parcel in wire.log) == 1


def test_an_acknowledgement_rides_with_data_that_goes_the_other_way() -> None:
    wire = Wire("a", "b")
    wire.send("a", "b", b"open")
    wire.send("b", "a", b"open")
    wire.run(0.5)
    since = wire.now
    wire.send("a", "b", b"question")
    wire.run_until(lambda: b"question" in wire.got["b"])
    wire.send("b", "a", b"answer")
    wire.run_until(lambda: b"answer" in wire.got["a"])
    assert [kinds(parcel) for parcel in wire.sent_by("b", since)] == [["Ack", "TokenFrame"]]


def test_the_last_datagram_is_not_answered_for_ever() -> None:
    wire = Wire("a", "b")
    wire.send("a", "b", b"open")
    wire.send("b", "a", b"open")
    wire.run(60)
    assert wire.oblivious
    assert len(wire.log) < 50


# -- every single datagram --------------------------------------------------------------------------------------------


def conversation(wire: Wire) -> None:
    """A few messages each way, large ones too, and both forget."""
    wire.send("a", "b", b"a1", b"a2" + bytes(3000))
    wire.run(0.02)
    wire.send("b", "a", b"b1")
    wire.run(0.3)
    wire.send("a", "b", b"a3")
    wire.run(20)


def check(wire: Wire) -> None:
    assert sorted(wire.got["a"]) == [b"b1"]
    assert sorted(wire.got["b"]) == [b"a1", b"a2" + bytes(3000), b"a3"]
    wire.run(200)
    assert wire.oblivious


def length() -> int:
    wire = Wire("a", "b", options=QUICK)
    conversation(wire)
    check(wire)
    return len(wire.log)


@pytest.mark.parametrize("run_of", [1, 2, 5])
def test_whichever_datagrams_are_lost_every_message_arrives_exactly_once(run_of: int) -> None:
    for first in range(length()):
        wire, numbers = Wire("a", "b", options=QUICK), count()
        lost = range(first, first + run_of)
        wire.lose = lambda parcel, numbers=numbers, lost=lost: next(numbers) in lost  # type: ignore[misc]
        conversation(wire)
        check(wire)


@pytest.mark.parametrize("later", [0.001, 0.03, 0.9, 3.0, 40.0])
def test_whichever_datagram_is_doubled_every_message_arrives_exactly_once(later: float) -> None:
    for number in range(length()):
        wire, numbers = Wire("a", "b", options=QUICK), count()

        def double(parcel: Parcel, wire: Wire = wire, numbers: count[int] = numbers, number: int = number) -> bool:
            if next(numbers) == number:
                wire.deliver(parcel, later)
            return False

        wire.lose = double
        conversation(wire)
        check(wire)


@pytest.mark.parametrize("late", [0.008, 0.05, 2.0])
def test_whichever_datagram_is_late_every_message_arrives_exactly_once(late: float) -> None:
    for number in range(length()):
        wire, numbers = Wire("a", "b", options=QUICK), count()

        def hold(parcel: Parcel, wire: Wire = wire, numbers: count[int] = numbers, number: int = number) -> bool:
            if next(numbers) != number:
                return False
            wire.deliver(parcel, late)
            return True

        wire.lose = hold
        conversation(wire)
        check(wire)


@pytest.mark.parametrize("seed", range(6))
def test_much_of_everything_goes_wrong_and_every_message_arrives_exactly_once(seed: int) -> None:
    random = Random(seed)
    wire = Wire("a", "b", "c", options=QUICK)

    def mistreat(parcel: Parcel) -> bool:
        if random.random() < 0.2:
            wire.deliver(parcel, random.choice([0.001, 0.02, 1.0]))
        return random.random() < 0.3

    wire.lose = mistreat
    expected: dict[str, list[bytes]] = {"a": [], "b": [], "c": []}
    for i in range(60):
        source, destination = random.sample("abc", 2)
        message = b"%d" % i + bytes(random.choice([1, 100, 5000]))
        wire.send(source, destination, message)
        expected[destination].append(message)
        wire.run(random.choice([0, 0.001, 0.1]))
    wire.run(60)
    wire.lose = lambda parcel: False
    wire.run(300)
    assert {node: sorted(got) for node, got in wire.got.items()} == {n: sorted(m) for n, m in expected.items()}
    assert wire.oblivious


# -- slots ------------------------------------------------------------------------------------------------------------


def requests(wire: Wire, since: float = 0.0) -> list[Parcel]:
    return [parcel for parcel in wire.sent_by("a", since) if parcel.has(ReqSlots)]


def test_slots_are_asked_for_when_half_of_the_reserve_is_used() -> None:
    wire = Wire("a", "b")
    wire.send("a", "b", b"first")
    wire.run(0.5)
    reserve = requests(wire)[0].frames(ReqSlots)[0].n
    since = wire.now
    for i in range(10 * reserve):
        wire.send("a", "b", b"%d" % i)
        wire.run(0.05)
    assert len(wire.got["b"]) == 10 * reserve + 1
    asked = [frame.n for parcel in requests(wire, since) for frame in parcel.frames(ReqSlots)]
    assert len(asked) > 1
    assert min(asked) >= reserve // 2, "for half a reserve at least, not for every message"


def test_a_request_for_slots_rides_with_data_that_leaves_anyway() -> None:
    wire = Wire("a", "b")
    wire.mtu = 1200
    for i in range(300):  # of changing number, so that some reserve runs low in their midst
        wire.send("a", "b", *[bytes(900)] * (2 + i % 5))
        wire.run(0.05)
    riding = [kinds(parcel) for parcel in requests(wire)[1:] if parcel.has(TokenFrame)]
    assert riding
    assert all(kind == ["ReqSlots", "TokenFrame"] for kind in riding)


def test_no_message_waits_for_slots_while_they_are_asked_for_in_time() -> None:
    wire = Wire("a", "b")
    wire.send("a", "b", b"first")
    wire.run(0.5)
    for i in range(100):
        sent = wire.now
        wire.send("a", "b", b"%d" % i)
        wire.run_until(lambda i=i: len(wire.got["b"]) == i + 2)  # type: ignore[misc]
        assert wire.now - sent == pytest.approx(wire.latency)
        wire.run(0.02)


def test_the_reserve_grows_with_the_window() -> None:
    wire = Wire("a", "b", latency=0.02)
    wire.mtu = 1200
    wire.send("a", "b", b"first")
    wire.run(0.5)
    small = max(frame.n for parcel in requests(wire) for frame in parcel.frames(ReqSlots))
    wire.send("a", "b", *[bytes(1000)] * 3000)
    wire.run(5)
    since = wire.now
    assert wire["a"].pending("b") == 0
    assert wire["a"].stats().peers["b"].window > 10 * 32 * 1200
    for _ in range(5000):  # more than half of the largest reserve
        wire.send("a", "b", b"x")
        wire.run(0.001)
    grown = [frame.n for parcel in requests(wire, since) for frame in parcel.frames(ReqSlots)]
    # Nothing is queued, so what is asked for beyond a single slot is reserve.
    assert max(grown) > 4 * small


def test_a_receiver_grants_no_more_than_its_limit() -> None:
    wire = Wire("a", "b", options=Options(max_slots=4))
    wire.send("a", "b", *[bytes(1000)] * 50)
    wire.run(10)
    assert len(wire.got["b"]) == 50
    assert max(frame.n for parcel in wire.log for frame in parcel.frames(Slots)) <= 4


# -- the end of a half-connection -------------------------------------------------------------------------------------


def test_idle_nodes_forget_each_other() -> None:
    wire = Wire("a", "b", options=QUICK)
    wire.send("a", "b", b"x")
    wire.run(0.5)
    assert wire["a"].stats().send_records == 1
    assert wire["b"].stats().receive_records == 1
    wire.run(1.0)
    assert wire.oblivious


def test_a_half_connection_is_opened_again_after_it_was_forgotten() -> None:
    wire = Wire("a", "b", options=QUICK)
    for i in range(5):
        wire.send("a", "b", b"%d" % i)
        wire.run(10)
        assert wire.oblivious
    assert wire.got["b"] == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("lost", [(ClosedFrame,), (ReqSlots,)])
def test_a_message_sent_while_its_half_connection_closes_arrives_exactly_once(lost: tuple[type, ...]) -> None:
    wire = Wire("a", "b", options=QUICK)
    wire.send("a", "b", b"before")
    wire.run(0.9)
    since = wire.now
    closing: list[Parcel] = []

    def lose_close(parcel: Parcel) -> bool:
        if parcel.has(*lost) and parcel.sent >= since and not closing:
            closing.append(parcel)
            return True
        return False

    wire.lose = lose_close
    wire.run_until(lambda: bool(closing))
    wire.send("a", "b", b"after")
    wire.run(1)
    for parcel in closing:
        wire.deliver(parcel)  # late
    wire.run(20)
    assert wire.got["b"] == [b"before", b"after"]
    assert wire.oblivious


def test_a_receiver_asks_whether_its_record_is_needed_and_forgets_it_when_the_sender_has() -> None:
    wire = Wire("a", "b", options=QUICK)
    wire.send("a", "b", b"x")
    wire.run(0.9)
    wire.lose = lambda parcel: parcel.has(ReqSlots)
    wire.run_until(lambda: not wire["a"].stats().send_records)  # it gave up closing
    assert wire["b"].stats().receive_records == 1
    wire.lose = lambda parcel: False
    wire.run(120)
    assert wire.oblivious


def test_probes_of_a_silent_peer_become_rarer() -> None:
    wire = Wire("a", "b")
    wire.send("a", "b", b"x")
    wire.run(0.5)
    wire.off.add("a")
    since = wire.now
    wire.run(3600)
    probes = wire.sent_by("b", since)
    assert 5 < len(probes) < 80
    assert probes[-1].sent - probes[-2].sent == pytest.approx(60, abs=1)


def test_ten_thousand_short_lived_peers_leave_no_trace() -> None:
    server = Node("server", epoch=1, secret=b"s", options=Options(idle_timeout=1.0, forget_after=60.0))
    # What has a limit (a memory of records given up) is full after the first thousands; nothing else may grow.
    before, now = 0, 1.0
    for number in range(10_000):
        now = _short_life(server, number, now)
        if number == 4999:
            _quieten(server, now)
            now += 600
            before = reachable(server)
    _quieten(server, now)
    assert server.stats().messages_delivered == 10_000
    assert forgot_everything(server)
    assert reachable(server) < before + 100


def _short_life(server: Node, number: int, now: float) -> float:
    """Send one message; then close, fall silent half-way through closing, or fall silent at once."""
    name, home = f"c{number}", (f"h{number}", 1)
    client = Node(name, epoch=number + 1, secret=b"c%d" % number)
    client.register("server", ("server", 1))
    client.send("server", b"x", now)
    for step in range(8):
        for _, datagram in client.datagrams(now):
            server.receive(datagram, home, now)
        for address, datagram in server.datagrams(now):
            if address == home:
                client.receive(datagram, ("server", 1), now)
        now += 0.001
        server.expire(now)
        client.expire(now)
        for _ in server.deliveries():
            pass
        if step == 3 and number % 5:
            client.close()
        if step == 4 and number % 5 < 2:
            break
    return now


def _quieten(server: Node, now: float) -> None:
    """Minutes pass; nobody answers any more."""
    while (when := server.deadline()) is not None and when < now + 600:
        server.expire(when)
        for _ in server.datagrams(when):
            pass
    for _ in server.events():
        pass


def test_traffic_over_a_long_time_leaves_nothing_behind() -> None:
    wire = Wire("a", "b")
    sizes = []
    for _ in range(3):
        for _message in range(300):
            wire.send("a", "b", b"x")
            wire.run(0.02)
        wire.log.clear()
        sizes.append(reachable(wire["a"]) + reachable(wire["b"]))
    assert sizes[2] < 2 * sizes[0]


# -- messages to oneself ----------------------------------------------------------------------------------------------


def test_a_node_can_send_to_itself() -> None:
    node = Node("a", epoch=1)
    assert node.send("a", b"1", 0.0)
    assert node.send("a", b"2", 0.0)
    assert node.deliverable
    assert [(delivery.peer, delivery.messages) for delivery in node.deliveries()] == [("a", [b"1"]), ("a", [b"2"])]
    assert not node.wants_to_send
    assert forgot_everything(node)


def test_messages_to_oneself_wait_until_earlier_ones_are_taken() -> None:
    node = Node("a", epoch=1, options=Options(receive_bytes=1000))
    assert node.send("a", bytes(600), 0.0)
    assert not node.has_room("a", 600)
    assert not node.send("a", bytes(600), 0.0)
    assert node.has_room("a", 100)
    assert [delivery.messages for delivery in node.deliveries()] == [[bytes(600)]]
    assert node.has_room("a", 600)
    assert node.send("a", bytes(600), 0.0)


def test_empty_messages_to_oneself_take_room_too() -> None:
    node = Node("a", epoch=1, options=Options(receive_bytes=10_000))
    accepted = 0
    while node.send("a", b"", 0.0):
        accepted += 1
        assert accepted < 10_000
    assert accepted


def test_a_message_to_oneself_of_any_legal_size_is_taken_when_nothing_waits() -> None:
    node = Node("a", epoch=1, options=Options(receive_bytes=10))
    assert node.send("a", bytes(5000), 0.0)


# -- drivers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at_once", [1, 2, 3])
def test_a_driver_that_stops_half_way_through_the_datagrams_loses_nothing(at_once: int) -> None:
    nodes = {"a": Node("a", epoch=1, secret=b"a"), "b": Node("b", epoch=2, secret=b"b")}
    homes = {"a": ("a", 1), "b": ("b", 1)}
    nodes["a"].register("b", homes["b"])
    nodes["b"].register("a", homes["a"])
    now, sent, got = 1.0, [], []
    for i in range(30):
        sent.append(b"%d" % i + bytes(2000))
        nodes["a"].send("b", sent[-1], now)
        nodes["b"].send("a", b"%d" % i, now)
    for _ in range(4000):
        for node_id, node in nodes.items():
            node.expire(now)
            leaving = node.datagrams(now)
            for _number in range(at_once):
                for destination, datagram in leaving:
                    nodes[destination[0]].receive(datagram, homes[node_id], now)
                    break
            leaving.close()  # type: ignore[attr-defined]
            if node_id == "b":
                got += [message for delivery in node.deliveries() for message in delivery.messages]
        now += 0.001
    assert sorted(got) == sorted(sent)
    assert nodes["a"].pending("b") == nodes["b"].pending("a") == 0
    assert nodes["a"].stats().retransmissions == 0, "what did not leave was not taken for lost"


def test_a_driver_that_stops_half_way_still_has_something_to_send() -> None:
    node = Node("a", epoch=1)
    for peer in ("b", "c"):
        node.register(peer, (peer, 1))
        node.send(peer, b"x", 1.0)
    destination, _ = next(node.datagrams(1.0))
    assert destination == ("b", 1)
    assert node.wants_to_send
    assert [destination for destination, _ in node.datagrams(1.0)] == [("c", 1)]
    assert not node.wants_to_send


def test_deliveries_that_are_not_taken_stay() -> None:
    wire = Wire("a", "b", "c")
    wire.busy.add("c")
    wire.send("a", "c", b"1")
    wire.send("b", "c", b"2")
    wire.run(0.5)
    node = wire["c"]
    assert next(node.deliveries()).messages == [b"1"]
    assert node.deliverable
    assert [delivery.messages for delivery in node.deliveries()] == [[b"2"]]
    assert not node.deliverable


# -- what cannot be sent ----------------------------------------------------------------------------------------------


def test_what_cannot_be_sent_is_refused_with_a_reason() -> None:
    node = Node("a", epoch=1, options=Options(max_message=10))
    with pytest.raises(MessageTooLarge, match="11 bytes, the limit is 10"):
        node.send("b", bytes(11), 0.0)
    with pytest.raises(BadPayload, match="not str"):
        node.send("b", "text", 0.0)  # type: ignore[arg-type]
    with pytest.raises(BadIdentifier):
        node.send("", b"x", 0.0)
    node.close()
    with pytest.raises(Closed):
        node.send("b", b"x", 0.0)
    assert forgot_everything(node)


@pytest.mark.parametrize("epoch", [0, -1, 2**63])
def test_an_epoch_that_headers_cannot_carry_is_refused(epoch: int) -> None:
    with pytest.raises(ValueError, match="epoch"):
        Node("a", epoch=epoch)


def test_bytes_that_may_change_are_copied() -> None:
    wire = Wire("a", "b")
    message = bytearray(b"before")
    wire["a"].send("b", memoryview(message), wire.now)  # type: ignore[arg-type]
    message[:] = b"after!"
    wire.run(0.5)
    assert wire.got["b"] == [b"before"]


def test_messages_for_others_and_from_oneself_are_dropped_and_counted() -> None:
    wire = Wire("a", "b", "c")
    wire.send("a", "b", b"x")
    data = wire.log[0].data
    wire["c"].receive(data, ("a", 1), wire.now)
    wire["a"].receive(data, ("a", 1), wire.now)
    wire["b"].receive(data[:-1], ("a", 1), wire.now)
    assert wire["c"].stats().dropped == {"destination": 1}
    assert wire["a"].stats().dropped == {"destination": 1}
    assert wire["b"].stats().dropped == {"truncated": 1}
    assert not wire["c"].wants_to_send


# -- peers that do not answer -----------------------------------------------------------------------------------------


def test_a_silent_peer_is_reported_once_and_again_after_it_was_heard() -> None:
    wire = Wire("a", "b")
    wire.off.add("b")
    wire.send("a", "b", b"x")
    wire.run(9.9)
    assert wire.events_of("a", PeerUnreachable) == []
    wire.run(60)
    assert [event.peer for event in wire.events_of("a", PeerUnreachable)] == ["b"]
    wire.off.clear()
    wire.run(3)
    assert wire.got["b"] == [b"x"]
    wire.off.add("b")
    wire.send("a", "b", b"y")
    wire.run(60)
    assert len(wire.events_of("a", PeerUnreachable)) == 2


def test_an_idle_peer_is_not_reported() -> None:
    wire = Wire("a", "b", options=Options(idle_timeout=100.0))
    wire.send("a", "b", b"x")
    wire.run(0.5)
    wire.off.add("b")
    wire.run(90)
    assert wire.events["a"] == []


def test_a_peer_without_address_is_looked_up_with_growing_patience() -> None:
    wire = Wire("a", "b")
    wire["a"].unregister("b")
    wire.send("a", "b", b"x")
    wire.run(60)
    lookups = wire.events_of("a", LookupWanted)
    assert 10 < len(lookups) < 30
    assert wire.sent_by("a") == []
    wire["a"].located("b", None)
    wire["a"].located("nobody", ("x", 1))
    wire["a"].located("b", ("b", 1))
    wire.run(1)
    assert wire.got["b"] == [b"x"]
    wire.run(5)
    assert len(wire.events_of("a", LookupWanted)) == len(lookups)


@pytest.mark.parametrize("began", [1.0 + i * 0.0137 for i in range(40)] + [24.0 + i * 0.178 for i in range(40)])
def test_rounding_does_not_make_a_node_due_at_a_moment_that_has_passed(began: float) -> None:
    node = Node("a", epoch=1)
    node.register("b", ("b", 1))
    node.send("b", b"x", began)
    now, calls = began, 0
    for _ in node.datagrams(now):
        pass
    while now < began + 11:
        when = node.deadline()
        assert when is not None
        calls = calls + 1 if when <= now else 0
        assert calls < 5
        now = max(now, when)
        node.expire(now)
        for _ in node.datagrams(now):
            pass
    assert [event.peer for event in node.events() if isinstance(event, PeerUnreachable)] == ["b"]


def test_a_node_whose_request_for_reserve_is_lost_for_ever_does_not_spin() -> None:
    wire = Wire("a", "b")
    wire.send("a", "b", b"x")
    wire.run(0.2)
    since = wire.now
    wire.lose = lambda parcel: (
        parcel.has(Slots) or (parcel.has(ReqSlots) and not parcel.has(TokenFrame))
    )  # the reserve runs down, what is in it arrives
    for _ in range(60):
        wire.send("a", "b", bytes(900))
        wire.run(0.05)
    wire.run(5)
    assert len(wire.sent_by("a", since)) < 400


# -- sizes ------------------------------------------------------------------------------------------------------------


def test_no_datagram_but_a_probe_is_larger_than_the_path_is_known_to_carry() -> None:
    names = "a-node-with-a-long-name-a", "a-node-with-a-long-name-b"
    wire = Wire(*names)
    wire.mtu = 1200
    random = Random(3)
    wire.lose = lambda parcel: random.random() < 0.05
    for source, destination in (names, names[::-1]):
        wire.send(source, destination, *[bytes(1500)] * 150, *[bytes(100)] * 50)
    wire.run(30)
    assert len(wire.got[names[0]]) == len(wire.got[names[1]]) == 200
    assert max(len(parcel.data) for parcel in wire.log if not parcel.has(Probe)) <= 1200


def test_large_datagrams_are_used_where_the_path_carries_them() -> None:
    wire = Wire("a", "b")
    wire.send("a", "b", bytes(1_000_000))
    wire.run(2)
    assert len(wire.got["b"]) == 1
    assert wire["a"].stats().peers["b"].datagram_size > 60_000


def test_acknowledgements_are_delayed_for_company_but_not_for_long() -> None:
    wire = Wire("a", "b", latency=0.05)
    wire.send("a", "b", b"x")
    wire.run(1)
    since = wire.now
    wire.send("a", "b", b"y")
    wire.run(1)
    (ack,) = [parcel for parcel in wire.sent_by("b", since) if parcel.has(Ack)]
    assert since + 0.05 < ack.sent <= since + 0.05 + 0.010 + 1e-9
