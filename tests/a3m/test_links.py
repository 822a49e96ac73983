"""The link protocol, one interleaving at a time: each test says which message arrives next (003, 4.6.4 and 4.6.5)."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any, ClassVar, cast

import pytest

from a3m.core import Core
from a3m.ids import SocketId
from a3m.link import Link
from a3m.link_machine import TABLE, Action, Input, State, diagram, step
from a3m.messages import DATA, ERROR, FLOW, LINK, LINKREPLY, UNLINK, Message, Metadata, Reply, decode, encode
from a3m.socket_core import SocketCore
from tests.model_links.side import Transport

TAG = "socket"
RETRY = (0.1, 1.0)


class Plain(SocketCore):
    """Does nothing of its own."""

    protocol = "PLAIN"
    compatible = frozenset({"PLAIN"})
    defaults: ClassVar[dict[str, Any]] = {"retry": RETRY, "capacity": 8}
    answer = Reply.OK

    def on_link_request(self, peer: SocketId, metadata: Any) -> Reply:
        return self.answer


class Other(Plain):
    """Fits with nothing but its own kind."""

    protocol = "OTHER"
    compatible = frozenset({"OTHER"})


class Place:
    """One node, and its socket if there is one."""

    def __init__(self, name: str, life: int = 0, seed: int = 0) -> None:
        self.now = 0.0
        self.transport = Transport(name, lazy=False)
        self.transport.epoch = life
        self.core = Core(cast(Any, self.transport), random=Random(seed), time=lambda: self.now)
        self.id = SocketId(name, TAG)
        self.socket: Plain | None = None

    def make(self, kind: type[Plain] = Plain, **options: Any) -> Plain:
        self.socket = kind(self.core, TAG, **options)
        return self.socket

    @property
    def sock(self) -> Plain:
        assert self.socket is not None
        return self.socket


class Wire:
    """Places ``a`` and ``b``, and the messages between them; each is delivered once, when the test says so."""

    def __init__(self, a: type[Plain] | None = Plain, b: type[Plain] | None = Plain) -> None:
        self.places = {name: Place(name) for name in "ab"}
        for name, kind in (("a", a), ("b", b)):
            if kind is not None:
                self.places[name].make(kind)
        self.flight: list[tuple[str, str, bytes]] = []  # to, sender, data

    def __getitem__(self, name: str) -> Plain:
        return self.places[name].sock

    def link(self, name: str) -> Link:
        """This side's link with the other."""
        return self[name].manager.links[self.peer(name)]

    def peer(self, name: str) -> SocketId:
        return self.places["b" if name == "a" else "a"].id

    def state(self, name: str) -> State:
        link = self[name].manager.links.get(self.peer(name))
        return State.ABSENT if link is None else link.state

    @property
    def states(self) -> tuple[State, State]:
        return self.state("a"), self.state("b")

    # -- what sides do ----------------------------------------------------------------------------------------------

    def collect(self) -> None:
        for name, place in self.places.items():
            for _ in place.core.datagrams(place.now):
                pass
            self.flight += [(to, name, data) for to, data in place.transport.sent]
            place.transport.sent = []

    def call_link(self, name: str, metadata: Any = None) -> None:
        self[name].manager.link(self.peer(name), metadata)
        self.collect()

    def call_unlink(self, name: str, force: bool = False) -> None:
        self[name].manager.unlink(self.peer(name), force)
        self.collect()

    def send(self, name: str, *items: bytes) -> None:
        for item in items:
            assert self[name].try_send(item) is None
        self.collect()

    def receive(self, name: str) -> list[bytes]:
        received = []
        while self[name].can_receive_now():
            received.append(self[name].try_receive())
        self.collect()
        return received

    def later(self, name: str, seconds: float = RETRY[1]) -> None:
        """Time passes on one side."""
        place = self.places[name]
        place.now += seconds
        place.core.expire(place.now)
        self.collect()

    # -- what the network does --------------------------------------------------------------------------------------

    @property
    def on_the_way(self) -> list[tuple[str, int, tuple[Any, ...]]]:
        """(to, type, body) of what has not arrived."""
        opened = [(to, decode(data)) for to, _, data in self.flight]
        return [(to, message.type, message.body) for to, message in opened]

    @property
    def types(self) -> list[tuple[str, int]]:
        return [(to, type_) for to, type_, _ in self.on_the_way]

    def arrive(self, to: str, type_: int) -> Message:
        """The first message of this kind arrives."""
        index = self.types.index((to, type_))
        _, sender, data = self.flight.pop(index)
        self.put(to, sender, data)
        return decode(data)

    def put(self, to: str, sender: str, data: bytes) -> None:
        place = self.places[to]
        place.transport.arrived.append((sender, [data]))
        place.core.expire(place.now)
        self.collect()
        assert place.core.dropped["internal error"] == 0

    def forge(self, to: str, type_: int, mine: int, yours: int, *body: Any) -> None:
        """A message that nobody sent arrives."""
        sender = "b" if to == "a" else "a"
        self.put(to, sender, encode(Message(type_, TAG, TAG, mine, yours, body)))

    def drain(self) -> None:
        """Everything arrives, in the order in which it was sent."""
        for _ in range(100):
            if not self.flight:
                return
            to, sender, data = self.flight.pop(0)
            self.put(to, sender, data)
        raise AssertionError(f"no end of messages: {self.on_the_way}")

    def events(self, name: str) -> list[tuple[str, str]]:
        events = []
        while (event := self.places[name].core.take_event()) is not None:
            events.append((event.kind, event.detail))
        return events

    def agree(self) -> bool:
        """Whether both are established in the same conversation."""
        a, b = self.link("a"), self.link("b")
        return self.states == (State.ESTABLISHED,) * 2 and (a.mine, a.theirs) == (b.theirs, b.mine)


NOTHING = (State.ABSENT, State.ABSENT)


def established() -> Wire:
    wire = Wire()
    wire.call_link("a")
    wire.drain()
    assert wire.agree()
    return wire


# -- linking --------------------------------------------------------------------------------------------------------


def test_one_side_links() -> None:
    wire = Wire()
    wire.call_link("a")
    assert wire.on_the_way == [("b", LINK, ("PLAIN", 8, 0, None))]
    wire.arrive("b", LINK)
    assert wire.states == (State.WAIT_BOTH, State.WAIT_REPLY)
    assert wire.on_the_way == [("a", LINKREPLY, (Reply.OK, "PLAIN", 8, 0, None))]
    wire.arrive("a", LINKREPLY)
    assert wire.states == (State.ESTABLISHED, State.WAIT_REPLY)
    assert wire.on_the_way == [("b", LINKREPLY, (Reply.OK,))]
    wire.arrive("b", LINKREPLY)
    assert wire.agree()
    assert wire.flight == []


def test_both_sides_link() -> None:
    wire = Wire()
    wire.call_link("a")
    wire.call_link("b")
    wire.arrive("a", LINK)
    wire.arrive("b", LINK)
    assert wire.states == (State.WAIT_REPLY, State.WAIT_REPLY)
    assert wire.on_the_way == [("b", LINKREPLY, (Reply.OK,)), ("a", LINKREPLY, (Reply.OK,))]
    wire.drain()
    assert wire.agree()


def test_reply_before_the_link_it_follows() -> None:
    """Figure 27."""
    wire = Wire()
    wire.call_link("a")
    wire.call_link("b")
    wire.arrive("b", LINK)
    wire.arrive("a", LINKREPLY)
    assert wire.states == (State.WAIT_METADATA, State.WAIT_REPLY)
    wire.arrive("a", LINK)
    assert wire.states == (State.ESTABLISHED, State.WAIT_REPLY)
    wire.arrive("b", LINKREPLY)
    assert wire.agree()
    assert wire.flight == []


def test_unwanted_after_reply_before_the_link() -> None:
    """Our own verdict comes last, and only when the metadata is here."""
    wire = Wire()
    wire.call_link("a")
    wire.call_link("b")
    wire.arrive("b", LINK)
    wire.arrive("a", LINKREPLY)
    wire["a"].answer = Reply.INCOMING_NOT_ALLOWED
    wire.arrive("a", LINK)
    assert wire.states == (State.ABSENT, State.WAIT_REPLY)
    wire.drain()
    assert wire.states == NOTHING
    assert [kind for kind, _ in wire.events("b")] == ["refused"]


@pytest.mark.parametrize("answer", [Reply.INCOMING_NOT_ALLOWED, Reply.TMP_NAVAIL])
def test_refusal_before_the_link_it_follows(answer: Reply) -> None:
    """It is taken at its word; the LINK, when it comes, begins a conversation that its sender ends at once."""
    wire = Wire()
    wire.call_link("a")
    wire.call_link("b")
    wire["b"].answer = answer
    wire.arrive("b", LINK)
    assert wire.on_the_way[-1] == ("a", LINKREPLY, (answer, "PLAIN", 8, 0, None))
    wire.arrive("a", LINKREPLY)
    after = State.ABSENT if answer.fatal else State.WAIT_RETRY
    assert wire.state("a") is after
    wire.arrive("a", LINK)
    assert wire.state("a") is State.WAIT_REPLY
    wire.drain()
    assert wire.state("a") is after
    assert wire.events("a") == ([("refused", answer.advice)] if answer.fatal else [])


def test_data_before_reply() -> None:
    """Figure 28."""
    wire = Wire()
    wire.call_link("a")
    wire.arrive("b", LINK)
    wire.arrive("a", LINKREPLY)
    wire.send("a", b"early")
    wire.arrive("b", DATA)
    assert wire.agree()
    assert wire.receive("b") == [b"early"]
    wire.arrive("b", LINKREPLY)
    assert wire.agree()
    wire.send("b", b"back")
    wire.arrive("a", DATA)
    assert wire.receive("a") == [b"back"]


def test_credits_before_reply() -> None:
    wire = Wire()
    wire.call_link("a")
    wire.arrive("b", LINK)
    wire.arrive("a", LINKREPLY)
    wire["a"].give_credits(wire.link("a"), 5)
    wire.collect()
    wire.arrive("b", FLOW)
    assert wire.agree()
    outgoing = wire.link("b").outgoing
    assert outgoing is not None
    assert outgoing.credits == 8 + 5


def test_new_link_while_an_old_one_is_being_made() -> None:
    """Figure 29."""
    wire = Wire()
    wire.call_link("a")
    wire.arrive("b", LINK)
    wire["a"].answer = Reply.TMP_NAVAIL
    wire.arrive("a", LINKREPLY)
    assert wire.states == (State.WAIT_RETRY, State.WAIT_REPLY)
    wire["a"].answer = Reply.OK
    wire.later("a")
    assert wire.types == [("b", LINKREPLY), ("b", LINK)]
    wire.arrive("b", LINK)  # the new request overtakes what ends the old conversation
    assert wire.state("b") is State.WAIT_REPLY
    assert wire.on_the_way[-1] == ("a", LINKREPLY, (Reply.LINK_EXISTS, "PLAIN", 8, 0, None))
    wire.arrive("a", LINKREPLY)
    wire.arrive("b", LINKREPLY)
    assert wire.states == (State.WAIT_RETRY, State.ABSENT)
    wire.later("a")
    wire.drain()
    assert wire.agree()


def test_request_that_crosses_with_the_refusal_of_ours() -> None:
    """The peer put us off and then asks itself: it has no metadata of us, and must not wait for it for ever."""
    wire = Wire()
    wire["b"].answer = Reply.TMP_NAVAIL
    wire.call_link("a")
    wire.arrive("b", LINK)
    wire["b"].answer = Reply.OK
    wire.call_link("b")
    wire.arrive("a", LINK)
    wire.arrive("b", LINKREPLY)
    assert wire.states == (State.WAIT_REPLY, State.WAIT_METADATA)
    wire.arrive("a", LINKREPLY)
    assert wire.state("a") is State.WAIT_RETRY
    wire.arrive("b", UNLINK)
    assert wire.states == (State.WAIT_RETRY, State.WAIT_RETRY)
    wire.later("a")
    wire.drain()
    assert wire.agree()


def test_request_that_crosses_with_the_error_about_ours() -> None:
    """The same, because there was no such socket yet."""
    wire = Wire(b=None)
    wire.call_link("a")
    wire.arrive("b", LINK)
    wire.places["b"].make()
    wire.call_link("b")
    wire.arrive("a", LINK)
    wire.arrive("b", LINKREPLY)
    assert wire.states == (State.WAIT_REPLY, State.WAIT_METADATA)
    wire.drain()
    assert wire.states == (State.WAIT_RETRY, State.WAIT_RETRY)
    wire.later("b")
    wire.drain()
    assert wire.agree()


def test_request_that_crosses_with_the_forced_end_of_what_ours_began() -> None:
    wire = Wire()
    wire.call_link("a")
    wire.call_link("b")
    wire.arrive("a", LINK)
    wire.flight.clear()  # our LINK was taken up in another conversation of the peer, which is over
    link = wire.link("a")
    wire.forge("a", UNLINK, 99, link.mine, 0, True)
    assert wire.state("a") is State.WAIT_RETRY
    assert wire.on_the_way == [("b", UNLINK, (0, True))]
    wire.drain()
    assert wire.states == (State.WAIT_RETRY, State.WAIT_RETRY)


def test_linking_twice_is_one_link() -> None:
    wire = Wire()
    wire.call_link("a")
    wire.call_link("a")
    assert wire.types == [("b", LINK)]
    wire.drain()
    wire.call_link("a")
    wire.call_link("b")
    assert wire.flight == []
    assert wire.agree()


def test_socket_links_with_itself() -> None:
    wire = Wire()
    me = wire.places["a"].id
    wire["a"].manager.link(me)
    wire.collect()
    wire.drain()
    assert wire["a"].manager.links[me].state is State.ESTABLISHED
    wire.send("a", b"to myself")
    wire.drain()
    assert wire.receive("a") == [b"to myself"]
    wire["a"].manager.unlink(me)
    wire.collect()
    wire.drain()
    assert wire["a"].manager.links == {}


def test_another_request_does_not_change_what_was_promised() -> None:
    wire = Wire()
    wire.call_link("a")
    wire.arrive("b", LINK)
    wire["b"].options.capacity = 3
    wire.forge("b", LINK, 99, 0, "PLAIN", 8, 0, None)  # answered with LINK_EXISTS, and the capacity of new links
    wire.drain()
    incoming, outgoing = wire.link("b").incoming, wire.link("a").outgoing
    assert incoming is not None
    assert outgoing is not None
    assert (incoming.capacity, outgoing.credits) == (8, 8)


def test_request_of_a_conversation_under_way_asks_nobody_twice() -> None:
    class Asks(Plain):
        asked = 0

        def on_link_request(self, peer: SocketId, metadata: Any) -> Reply:
            self.asked += 1
            return Reply.OK

    wire = Wire(b=Asks)
    wire.call_link("a")
    wire.drain()
    asker = wire["b"]
    assert isinstance(asker, Asks)
    assert asker.asked == 1
    wire.forge("b", LINK, 99, 0, "PLAIN", 8, 0, None)
    assert asker.asked == 1


# -- reply codes ----------------------------------------------------------------------------------------------------


def refusing(code: Reply) -> Wire:
    """A socket ``b`` that answers a request with this code."""
    wire = Wire(b=Other if code is Reply.INCOMPATIBLE else Plain)
    match code:
        case Reply.TMP_NAVAIL:
            wire["b"].options.max_links = 1
            wire["b"].manager.links[SocketId("c", TAG)] = Link(SocketId("c", TAG), State.ESTABLISHED)
        case Reply.LINK_EXISTS:
            wire.forge("b", LINK, 99, 0, "PLAIN", 8, 0, None)
            wire.flight.clear()
        case Reply.INCOMING_NOT_ALLOWED:
            wire["b"].options.accept_links = False
        case Reply.CANCELED:
            wire.call_link("b")
            wire.call_unlink("b")
            wire.flight.clear()
        case Reply.CLOSED:
            wire["b"].closed = True
        case _:
            pass
    return wire


@pytest.mark.parametrize("code", [code for code in Reply if code is not Reply.OK])
def test_reply_codes(code: Reply) -> None:
    wire = refusing(code)
    before = wire.state("b")
    wire.call_link("a")
    wire.arrive("b", LINK)
    to, type_, body = wire.on_the_way[-1]
    assert (to, type_, body[0]) == ("a", LINKREPLY, code)
    assert wire.state("b") is (State.ABSENT if code is Reply.CANCELED else before)
    wire.arrive("a", LINKREPLY)
    wire.flight.clear()
    if code.fatal:
        assert wire.state("a") is State.ABSENT
        assert wire.events("a") == [("refused", code.advice)]
        wire.later("a", 100.0)
        assert wire.flight == []
    else:
        assert wire.state("a") is State.WAIT_RETRY
        assert wire.events("a") == []
        wire.later("a")
        assert wire.types == [("b", LINK)]


def test_fatal_codes() -> None:
    assert {code for code in Reply if code.fatal} == {
        Reply.INCOMPATIBLE,
        Reply.INCOMING_NOT_ALLOWED,
        Reply.CANCELED,
        Reply.CLOSED,
    }


def test_worst_reason_counts() -> None:
    """Full and closed to strangers: whoever is told that it is full asks for ever."""
    wire = refusing(Reply.TMP_NAVAIL)
    peer = wire.places["a"].id
    judge = wire["b"].judge
    assert judge(peer, Metadata("PLAIN", 1, 0), False) is Reply.TMP_NAVAIL
    assert judge(peer, Metadata("OTHER", 1, 0), False) is Reply.INCOMPATIBLE
    wire["b"].answer = Reply.CLOSED
    assert judge(peer, Metadata("PLAIN", 1, 0), False) is Reply.CLOSED
    wire["b"].options.accept_links = False
    assert judge(peer, Metadata("PLAIN", 1, 0), False) is Reply.INCOMING_NOT_ALLOWED
    wire["b"].answer = Reply.OK
    assert judge(peer, Metadata("PLAIN", 1, 0), True) is Reply.TMP_NAVAIL


def test_our_refusal_counts_when_the_peer_only_says_later() -> None:
    wire = refusing(Reply.TMP_NAVAIL)
    wire["a"].answer = Reply.INCOMING_NOT_ALLOWED
    wire.call_link("a")
    wire.drain()
    assert wire.states == NOTHING
    assert wire.events("a") == [("refused", Reply.INCOMING_NOT_ALLOWED.advice)]


def test_link_that_was_wanted_is_allowed_by_whoever_accepts_no_strangers() -> None:
    wire = Wire()
    wire["a"].options.accept_links = False
    wire.call_link("a")
    wire.drain()
    assert wire.agree()


def test_as_many_links_as_allowed_even_if_all_answer_at_once() -> None:
    wire = Wire()
    hub = wire["b"]
    hub.options.max_links = 2
    for number in range(4):
        data = encode(Message(LINK, TAG, f"peer{number}", 10 + number, 0, ("PLAIN", 1, 0, None)))
        wire.put("b", "a", data)
    codes = [decode(data).body[0] for _, _, data in wire.flight]
    assert codes == [Reply.OK, Reply.OK, Reply.TMP_NAVAIL, Reply.TMP_NAVAIL]


# -- asking again ---------------------------------------------------------------------------------------------------


def test_pauses_grow_and_are_never_quite_the_same() -> None:
    first, longest = RETRY
    pauses: list[list[float]] = []
    for seed in range(8):
        wire = Wire(b=None)
        place = wire.places["a"] = Place("a", seed=seed)
        place.make()
        wire.call_link("a")
        mine = []
        for _ in range(7):
            wire.drain()  # there is no such socket
            when = wire.link("a").retry_at
            assert when is not None
            mine.append(when - place.now)
            wire.later("a", when - place.now)
        pauses.append(mine)
    for tries, column in enumerate(zip(*pauses, strict=True)):
        most = min(longest, first * 2**tries)
        assert all(most / 2 <= pause <= most * (1 + 1e-9) for pause in column)
        assert len(set(column)) == len(column)


def test_pauses_start_anew_after_a_link() -> None:
    wire = refusing(Reply.LINK_EXISTS)
    wire.call_link("a")
    for _ in range(5):
        wire.drain()
        wire.later("a")
    wire["b"].manager.links.clear()
    wire.drain()
    if not wire.agree():
        wire.later("a")
        wire.drain()
    assert wire.agree()
    assert wire.link("a").tries == 0


def test_request_from_the_peer_is_taken_while_waiting_to_ask_again() -> None:
    wire = Wire(b=None)
    wire.call_link("a")
    wire.drain()
    assert wire.state("a") is State.WAIT_RETRY
    wire.places["b"].make()
    wire.call_link("b")
    wire.drain()
    assert wire.agree()
    wire.later("a", 100.0)
    assert LINK not in [type_ for _, type_ in wire.types]
    assert wire.agree()


def test_absent_socket_is_asked_again_until_it_is_there() -> None:
    wire = Wire(b=None)
    wire.call_link("a")
    wire.arrive("b", LINK)
    assert wire.types == [("a", ERROR)]
    wire.arrive("a", ERROR)
    assert wire.state("a") is State.WAIT_RETRY
    wire.places["b"].make()
    wire.later("a")
    wire.drain()
    assert wire.agree()


# -- unlinking ------------------------------------------------------------------------------------------------------


def test_unlinking_waits_for_every_message() -> None:
    """Figure 30, with the data last."""
    wire = established()
    wire.send("a", b"1")
    wire.send("a", b"2")
    wire.call_unlink("a")
    assert wire.on_the_way[-1] == ("b", UNLINK, (2, False))
    wire.arrive("b", UNLINK)
    assert wire.on_the_way[-1] == ("a", UNLINK, (0, False))
    wire.arrive("a", UNLINK)
    assert wire.states == (State.ABSENT, State.UNLINKING)
    wire.arrive("b", DATA)
    assert wire.state("b") is State.UNLINKING
    wire.arrive("b", DATA)
    assert wire.states == NOTHING
    assert wire.receive("b") == [b"1", b"2"]
    assert wire.flight == []


def test_both_unlink_at_the_same_time() -> None:
    wire = established()
    wire.send("a", b"from a")
    wire.send("b", b"from b")
    wire.call_unlink("a")
    wire.call_unlink("b")
    wire.arrive("a", UNLINK)
    wire.arrive("b", UNLINK)
    assert wire.states == (State.UNLINKING, State.UNLINKING)
    wire.drain()
    assert wire.states == NOTHING
    assert (wire.receive("a"), wire.receive("b")) == ([b"from b"], [b"from a"])


def test_nothing_is_sent_over_a_link_that_is_being_unlinked() -> None:
    wire = established()
    wire.call_unlink("a")
    assert wire["a"].route(b"x") is None
    wire.arrive("b", UNLINK)
    assert wire["b"].route(b"x") is None


def test_unlink_before_reply() -> None:
    """The reply is yes, and still awaited: if it came later, it would seem to be the reply of a stranger."""
    wire = Wire()
    wire.call_link("a")
    wire.arrive("b", LINK)
    wire.arrive("a", LINKREPLY)
    wire.send("a", b"short visit")
    wire.call_unlink("a")
    wire.arrive("b", UNLINK)
    assert wire.state("b") is State.UNLINKING
    wire.arrive("b", DATA)
    assert wire.state("b") is State.UNLINKING
    wire.arrive("b", LINKREPLY)
    assert wire.state("b") is State.ABSENT
    wire.drain()
    assert wire.states == NOTHING
    assert wire.receive("b") == [b"short visit"]


def test_late_reply_costs_no_message() -> None:
    """What the other side sent before it heard of the end still arrives."""
    wire = Wire()
    wire.call_link("a")
    wire.arrive("b", LINK)
    wire.arrive("a", LINKREPLY)
    wire.send("a", b"1")
    wire.arrive("b", DATA)
    wire.send("b", b"2")
    wire.call_unlink("a")
    wire.arrive("b", UNLINK)
    wire.arrive("b", LINKREPLY)
    wire.arrive("a", UNLINK)
    assert wire.state("a") is State.UNLINKING
    wire.drain()
    assert wire.states == NOTHING
    assert wire.receive("a") == [b"2"]
    assert [kind for kind, _ in wire.events("a")] == ["linked", "unlinked"]


def test_data_that_has_not_left_keeps_its_conversation() -> None:
    wire = established()
    wire.places["a"].transport.open = False
    wire.send("a", b"slow")
    wire.call_unlink("a")
    wire.drain()
    assert wire.states == (State.ABSENT, State.UNLINKING)
    wire.places["a"].transport.open = True
    wire.collect()
    wire.drain()
    assert wire.states == NOTHING
    assert wire.receive("b") == [b"slow"]


def test_new_link_during_unlinking() -> None:
    wire = established()
    wire.send("a", b"last words")
    wire.call_unlink("a")
    wire.call_link("a")
    wire.arrive("b", UNLINK)
    wire.arrive("a", UNLINK)
    assert wire.states == (State.WAIT_BOTH, State.UNLINKING)
    wire.arrive("b", LINK)
    assert wire.on_the_way[-1] == ("a", LINKREPLY, (Reply.LINK_EXISTS, "PLAIN", 8, 0, None))
    wire.arrive("a", LINKREPLY)
    assert wire.state("a") is State.WAIT_RETRY
    wire.arrive("b", DATA)
    wire.later("a")
    wire.drain()
    assert wire.agree()
    assert wire.receive("b") == [b"last words"]


def test_unlinking_again_forgets_the_wish_for_another_link() -> None:
    wire = established()
    wire.call_unlink("a")
    wire.call_link("a")
    wire.call_unlink("a")
    wire.drain()
    wire.later("a", 100.0)
    assert wire.states == NOTHING
    assert wire.flight == []


def test_immediate_close_when_scheduled() -> None:
    wire = Wire(b=None)
    wire.call_link("a")
    wire.drain()
    assert wire.state("a") is State.WAIT_RETRY
    wire.call_unlink("a")
    assert wire.state("a") is State.ABSENT
    wire.later("a", 100.0)
    assert wire.flight == []


# -- cancelling -----------------------------------------------------------------------------------------------------


def test_cancel_before_own_reply() -> None:
    wire = Wire()
    wire.call_link("a")
    wire.call_unlink("a")
    assert wire.state("a") is State.CANCELLING_BOTH
    wire.arrive("b", LINK)
    wire.arrive("a", LINKREPLY)
    assert wire.on_the_way == [("b", LINKREPLY, (Reply.CANCELED, "PLAIN", 8, 0, None))]
    assert wire.states == (State.ABSENT, State.WAIT_REPLY)
    wire.arrive("b", LINKREPLY)
    assert wire.states == NOTHING
    assert wire.events("a") == wire.events("b") == []


def test_cancel_before_own_reply_while_both_link() -> None:
    wire = Wire()
    wire.call_link("a")
    wire.call_link("b")
    wire.call_unlink("a")
    wire.arrive("a", LINK)
    assert wire.state("a") is State.ABSENT
    wire.drain()
    assert wire.states == NOTHING
    assert wire.events("b") == [("refused", Reply.CANCELED.advice)]


def test_cancel_while_waiting_for_metadata() -> None:
    wire = Wire()
    wire.call_link("a")
    wire.call_link("b")
    wire.arrive("b", LINK)
    wire.arrive("a", LINKREPLY)
    wire.call_unlink("a")
    assert wire.state("a") is State.CANCELLING_METADATA
    wire.arrive("a", LINK)
    assert wire.state("a") is State.ABSENT
    wire.drain()
    assert wire.states == NOTHING
    assert wire.events("b") == [("refused", Reply.CANCELED.advice)]


def test_reply_before_the_link_while_cancelling() -> None:
    wire = Wire()
    wire.call_link("a")
    wire.call_link("b")
    wire.arrive("b", LINK)
    wire.call_unlink("a")
    wire.arrive("a", LINKREPLY)
    assert wire.state("a") is State.CANCELLING_METADATA
    wire.drain()
    assert wire.states == NOTHING


def test_cancel_after_own_reply() -> None:
    wire = Wire()
    wire.call_link("a")
    wire.arrive("b", LINK)
    wire.call_unlink("b")
    assert wire.state("b") is State.CANCELLING_REPLY
    assert wire.types == [("a", LINKREPLY)]
    wire.arrive("a", LINKREPLY)
    assert wire.state("a") is State.ESTABLISHED
    wire.arrive("b", LINKREPLY)
    assert wire.state("b") is State.UNLINKING
    wire.drain()
    assert wire.states == NOTHING


def test_cancel_after_own_reply_and_refused() -> None:
    wire = Wire()
    wire.call_link("a")
    wire.arrive("b", LINK)
    wire.call_unlink("b")
    wire["a"].answer = Reply.TMP_NAVAIL
    wire.arrive("a", LINKREPLY)
    wire.arrive("b", LINKREPLY)
    assert wire.states == (State.WAIT_RETRY, State.ABSENT)


@pytest.mark.parametrize("first", [DATA, LINKREPLY, UNLINK])
def test_data_while_the_acceptor_is_cancelling_counts(first: int) -> None:
    wire = Wire()
    wire.call_link("a")
    wire.arrive("b", LINK)
    wire.call_unlink("b")
    wire.arrive("a", LINKREPLY)
    wire.send("a", b"1")
    wire.send("a", b"2")
    wire.call_unlink("a")
    wire.arrive("b", first)
    assert wire.state("b") is State.UNLINKING
    wire.drain()
    assert wire.states == NOTHING
    assert wire.receive("b") == [b"1", b"2"]


def test_link_again_while_cancelling() -> None:
    wire = Wire()
    wire.call_link("a")
    wire.call_unlink("a")
    wire.call_link("a", "second")
    assert wire.types == [("b", LINK)]
    wire.drain()
    if not wire.agree():
        wire.later("a")
        wire.drain()
    assert wire.agree()
    metadata = wire.link("b").metadata
    assert metadata is not None
    assert metadata.custom == "second"


def test_closing_ends_links_that_are_being_made() -> None:
    wire = Wire()
    wire.call_link("a")
    wire["a"].begin_close()
    wire.collect()
    wire.drain()
    assert wire["a"].try_closed() is None
    assert wire.places["a"].core.sockets == {}
    assert wire.state("b") is State.ABSENT


# -- force ----------------------------------------------------------------------------------------------------------


def test_forced_unlink_is_over_at_once_and_the_peer_knows() -> None:
    wire = established()
    wire.call_unlink("a", force=True)
    assert wire.state("a") is State.ABSENT
    wire.drain()
    assert wire.states == NOTHING
    kind, detail = wire.events("b")[-1]
    assert kind == "unlinked"
    assert detail.startswith("the peer ended it")


def test_forced_end_overtakes_the_reply() -> None:
    wire = Wire()
    wire.call_link("a")
    wire.arrive("b", LINK)
    wire.call_unlink("b", force=True)
    wire.arrive("a", UNLINK)
    assert wire.state("a") is State.WAIT_RETRY
    wire.arrive("a", LINKREPLY)
    assert wire.states == (State.WAIT_RETRY, State.ABSENT)
    wire.later("a")
    wire.drain()
    assert wire.agree()


def test_request_given_up_by_force_leaves_nobody_waiting() -> None:
    wire = Wire()
    wire.call_link("a")
    wire.call_unlink("a", force=True)
    assert wire.state("a") is State.ABSENT
    wire.drain()
    assert wire.states == NOTHING


# -- conversations that are over ------------------------------------------------------------------------------------

DEAD = (77, 88)  # incarnations that nobody has


@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize(
    ("type_", "body", "answered"),
    [
        (DATA, (0, [b"x"]), True),
        (UNLINK, (0, False), True),
        (LINKREPLY, (Reply.OK,), True),
        (LINKREPLY, (Reply.OK, "PLAIN", 1, 0, None), True),
        (LINKREPLY, (Reply.CANCELED, "PLAIN", 1, 0, None), False),
        (UNLINK, (0, True), False),
        (FLOW, (1, 0), False),
        (ERROR, (), False),
    ],
)
def test_stale_messages(type_: int, body: tuple[Any, ...], answered: bool, linked: bool) -> None:
    wire = established() if linked else Wire()
    before = wire.states
    wire.forge("b", type_, *DEAD, *body)
    assert wire.states == before
    if answered:
        ((_, _, data),) = wire.flight
        message = decode(data)
        assert (message.type, message.mine, message.yours, message.body[1]) == (UNLINK, 88, 77, True)
        wire.drain()
        assert wire.states == before
    assert wire.flight == []
    assert wire.receive("b") == []


@pytest.mark.parametrize(
    ("type_", "body", "answered"),
    [
        (LINK, ("PLAIN", 1, 0, None), True),
        (DATA, (0, [b"x"]), True),
        (UNLINK, (0, False), True),
        (LINKREPLY, (Reply.OK,), True),
        (LINKREPLY, (Reply.CLOSED, "PLAIN", 1, 0, None), False),
        (UNLINK, (0, True), False),
        (FLOW, (1, 0), False),
        (ERROR, (), False),
        (200, (0,), False),
    ],
)
def test_absent_socket_answers_only_those_who_wait(type_: int, body: tuple[Any, ...], answered: bool) -> None:
    """And never an error with an error."""
    wire = Wire(a=None, b=None)
    wire.forge("b", type_, *DEAD, *body)
    if answered:
        ((_, _, data),) = wire.flight
        message = decode(data)
        assert (message.type, message.yours) == (ERROR, 77)
        wire.drain()  # and there is no socket a either
    assert wire.flight == []


def test_error_about_another_conversation_changes_nothing() -> None:
    wire = established()
    wire.forge("a", ERROR, 0, 77)
    assert wire.agree()


def test_error_ends_a_link_and_asks_again() -> None:
    wire = established()
    wire.places["b"].core.remove(wire["b"])
    wire.send("a", b"lost")
    wire.drain()
    assert wire.state("a") is State.WAIT_RETRY
    wire.places["b"].make()
    wire.later("a")
    wire.drain()
    assert wire.agree()
    assert wire.receive("b") == []


def test_peer_restarted() -> None:
    """A LINK from another life of the peer's node: the old link is gone with its memory, as it says when asked."""
    wire = established()
    wire.places["b"] = Place("b", life=7)
    wire.places["b"].make()
    wire.call_link("b")
    wire.arrive("a", LINK)
    assert wire.state("a") is State.ESTABLISHED
    assert wire.on_the_way == [("b", FLOW, ()), ("b", LINKREPLY, (Reply.LINK_EXISTS, "PLAIN", 8, 0, None))]
    wire.drain()
    assert wire.states == (State.WAIT_RETRY, State.WAIT_RETRY)
    wire.later("b")
    wire.drain()
    assert wire.agree()
    assert [kind for kind, _ in wire.events("a")] == ["linked", "unlinked", "linked"]


def test_late_request_of_a_former_life_does_no_harm() -> None:
    wire = Wire()
    wire.places["b"] = Place("b", life=7)
    wire.places["b"].make()
    wire.call_link("a")
    wire.drain()
    wire.forge("a", LINK, 1, 0, "PLAIN", 8, 0, None)
    wire.drain()
    assert wire.agree()
    assert [kind for kind, _ in wire.events("a")] == ["linked"]


def test_request_that_was_lost_with_a_former_life_is_repeated() -> None:
    """The peer's new life takes a reply without metadata for one whose LINK is under way."""
    wire = Wire()
    wire.call_link("a")
    wire.flight.clear()
    wire.places["b"] = Place("b", life=7)
    wire.places["b"].make()
    wire.call_link("b")
    wire.drain()
    assert wire.states == (State.WAIT_REPLY, State.WAIT_METADATA)
    wire["a"].options.capacity = 3  # for the next link
    wire["a"].peer_restarted("b", 0)
    wire.collect()
    assert wire.on_the_way == [("b", LINK, ("PLAIN", 8, 0, None))]
    wire.drain()
    assert wire.agree()


def test_restart_ends_a_link_that_nobody_here_asked_for() -> None:
    wire = established()
    wire["b"].manager.lose(wire.peer("b"), "its node restarted")
    assert wire.state("b") is State.ABSENT
    wire["a"].manager.lose(wire.peer("a"), "its node restarted")
    assert wire.state("a") is State.WAIT_RETRY  # this side asked for it


def test_a_link_knows_whether_it_ended_with_the_memory_of_its_peer() -> None:
    wire = established()
    lost = wire["a"].manager.links[wire.peer("a")]
    wire["a"].manager.lose(wire.peer("a"), "its node restarted")
    assert lost.forgotten
    again = wire["a"].manager.links[wire.peer("a")]
    wire["a"].manager.lose(wire.peer("a"), "its node restarted")  # nothing was lost with a link that is being made
    assert not again.forgotten
    ended = established()
    forced = ended["a"].manager.links[ended.peer("a")]
    ended.call_unlink("b", force=True)
    ended.drain()
    assert forced.state is State.ABSENT
    assert not forced.forgotten


# -- in every state -------------------------------------------------------------------------------------------------

CONVERSING = [state for state in State if state not in (State.ABSENT, State.WAIT_RETRY)]
CANCELLED = {
    State.CANCELLING_BOTH: State.WAIT_BOTH,
    State.CANCELLING_METADATA: State.WAIT_METADATA,
    State.CANCELLING_REPLY: State.WAIT_REPLY,
    State.UNLINKING: State.ESTABLISHED,
}
WANTED = (State.WAIT_BOTH, State.WAIT_METADATA, State.WAIT_RETRY, State.ESTABLISHED)  # where ``a`` asked, below


def reach(state: State) -> Wire:
    """A wire on which ``a`` is in this state."""
    if state in CANCELLED:
        wire = reach(CANCELLED[state])
        wire.call_unlink("a")
    elif state is State.ESTABLISHED:
        wire = established()
    else:
        wire = Wire()
        if state is not State.WAIT_REPLY:
            wire.call_link("a")
        if state in (State.WAIT_METADATA, State.WAIT_REPLY):
            wire.call_link("b")
        if state is State.WAIT_METADATA:
            wire.arrive("b", LINK)
            wire.arrive("a", LINKREPLY)
        elif state is State.WAIT_REPLY:
            wire.arrive("a", LINK)
        elif state is State.WAIT_RETRY:
            wire["b"].answer = Reply.TMP_NAVAIL
            wire.drain()
            wire["b"].answer = Reply.OK
    assert wire.state("a") is state
    return wire


@pytest.mark.parametrize("state", [*CONVERSING, State.WAIT_RETRY])
def test_force_ends_it_in_every_state(state: State) -> None:
    wire = reach(state)
    wire.call_unlink("a", force=True)
    assert wire.state("a") is State.ABSENT
    wire.drain()
    assert wire.state("a") is State.ABSENT
    assert wire.state("b") in (State.ABSENT, State.WAIT_RETRY)
    wire.later("a", 100.0)
    assert wire.flight == []


@pytest.mark.parametrize("state", CONVERSING)
@pytest.mark.parametrize("how", ["restart", "error", "forced"])
def test_loss_of_the_peer_ends_it_in_every_state(state: State, how: str) -> None:
    wire = reach(state)
    link = wire.link("a")
    theirs = link.theirs
    if how == "restart":
        wire["a"].manager.lose(wire.peer("a"), "its node restarted")
    elif how == "error":
        wire.forge("a", ERROR, 0, link.mine)
    else:
        wire.forge("a", UNLINK, theirs, link.mine, 0, True)
    again = state in WANTED and not (how == "forced" and state is State.ESTABLISHED)
    assert wire.state("a") is (State.WAIT_RETRY if again else State.ABSENT)


@pytest.mark.parametrize("state", [state for state in CONVERSING if "BOTH" not in state.name])
def test_another_request_is_put_off_in_every_state(state: State) -> None:
    wire = reach(state)
    wire.flight.clear()
    wire.forge("a", LINK, 99, 0, "PLAIN", 8, 0, None)
    assert wire.state("a") is state
    ((_, _, data),) = wire.flight
    message = decode(data)
    assert (message.type, message.mine, message.yours, message.body[0]) == (LINKREPLY, 0, 99, Reply.LINK_EXISTS)


@pytest.mark.parametrize("answer", [Reply.TMP_NAVAIL, Reply.CLOSED])
@pytest.mark.parametrize("state", [State.WAIT_BOTH, State.WAIT_METADATA, State.WAIT_RETRY])
@pytest.mark.parametrize("comes", ["request", "reply"])
def test_our_own_refusal(state: State, answer: Reply, comes: str) -> None:
    """Said in every state in which there is something to judge; and it decides whether we ask again."""
    wire = reach(state)
    wire["a"].answer = answer
    mine = wire.link("a").mine
    if comes == "reply" and state is State.WAIT_BOTH:
        wire.arrive("b", LINK)
        wire.arrive("a", LINKREPLY)
    elif comes == "request" and state is not State.WAIT_METADATA:
        wire.flight.clear()
        wire.forge("a", LINK, 99, 0, "PLAIN", 8, 0, None)
    else:
        wire.call_link("b")
        wire.arrive("a", LINK)
    assert wire.state("a") is (State.ABSENT if answer.fatal else State.WAIT_RETRY)
    to, _, data = wire.flight[-1]
    message = decode(data)
    assert (to, message.type, message.mine, message.body[0]) == ("b", LINKREPLY, mine, answer)
    wire.flight.clear()
    wire.later("a")
    assert wire.types == ([] if answer.fatal else [("b", LINK)])


@pytest.mark.parametrize("answer", [Reply.OK, Reply.TMP_NAVAIL, Reply.CLOSED])
@pytest.mark.parametrize("state", [State.CANCELLING_BOTH, State.CANCELLING_METADATA])
@pytest.mark.parametrize("comes", ["request", "reply"])
def test_cancelled_whatever_we_think_of_the_peer(state: State, answer: Reply, comes: str) -> None:
    wire = reach(state)
    wire["a"].answer = answer
    if comes == "request" or state is State.CANCELLING_METADATA:
        wire.call_link("b")
        wire.arrive("a", LINK)
    else:
        wire.arrive("b", LINK)
        wire.arrive("a", LINKREPLY)
    assert wire.state("a") is State.ABSENT
    assert wire.on_the_way[-1][:2] == ("b", LINKREPLY)
    assert wire.on_the_way[-1][2][0] == Reply.CANCELED
    wire.drain()
    assert wire.states == NOTHING


@pytest.mark.parametrize("answer", [Reply.TMP_NAVAIL, Reply.CLOSED])
def test_cancelled_and_refused(answer: Reply) -> None:
    wire = reach(State.CANCELLING_BOTH)
    wire["b"].answer = answer
    wire.drain()
    assert wire.states == NOTHING
    assert wire.events("a") == []


# -- what is no message ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type_", "mine", "body"),
    [
        (LINK, 5, ()),
        (LINK, 5, ("PLAIN", -1, 0, None)),
        (LINK, 5, (b"PLAIN", 1, 0, None)),
        (LINK, 0, ("PLAIN", 1, 0, None)),
        (LINKREPLY, 5, ()),
        (LINKREPLY, 5, (99,)),
        (LINKREPLY, 5, ("OK",)),
        (LINKREPLY, 5, (Reply.OK, "PLAIN")),
        (LINKREPLY, 0, (Reply.OK,)),
        (LINKREPLY, 5, (Reply.CANCELED,)),
        (UNLINK, 5, ()),
        (UNLINK, 5, (1,)),
        (UNLINK, 5, ("1", False)),
        (UNLINK, 5, (1, 0)),
        (DATA, 5, (0,)),
        (DATA, 5, (0, "x")),
        (DATA, 5, (0, [5])),
        (FLOW, 5, ("1", 0)),
        (200, 5, ()),
        (200, 5, (-1,)),
    ],
)
def test_malformed_messages_are_counted_and_dropped(type_: int, mine: int, body: tuple[Any, ...]) -> None:
    wire = established()
    link = wire.link("b")
    wire.forge("b", type_, mine, link.mine, *body)
    assert wire.places["b"].core.dropped == {"malformed message": 1}
    assert wire.flight == []
    assert wire.agree()


# -- the table ------------------------------------------------------------------------------------------------------


def test_every_state_and_action_is_used() -> None:
    cells = [cell for row in TABLE.values() for cell in row.values()]
    cells += [cell.passive for cell in cells if cell.passive is not None]
    assert {cell.next for cell in cells} == set(State) == set(TABLE)
    assert {action for cell in cells for action in cell.actions} == set(Action)
    assert {event for row in TABLE.values() for event in row} == set(Input)


def test_every_state_can_be_left_by_unlinking_force_or_loss() -> None:
    for state in State:
        if state is not State.ABSENT:
            forced = step(state, Input.CALL_FORCE, wanted=False)
            assert forced is not None
            assert forced.next is State.ABSENT
        if state not in (State.ABSENT, State.WAIT_RETRY):
            for event in (Input.PEER_LOST, Input.FORCED):
                lost = step(state, event, wanted=False)
                assert lost is not None
                assert lost.next in (State.ABSENT, State.WAIT_RETRY)


def test_passive_side_does_not_ask_again() -> None:
    active = step(State.WAIT_REPLY, Input.REPLY_LATER, wanted=True)
    passive = step(State.WAIT_REPLY, Input.REPLY_LATER, wanted=False)
    assert active is not None
    assert passive is not None
    assert (active.next, passive.next) == (State.WAIT_RETRY, State.ABSENT)


def test_diagram_has_a_line_for_every_transition() -> None:
    lines = diagram().splitlines()
    cells = [cell for row in TABLE.values() for cell in row.values()]
    assert lines[0] == "stateDiagram-v2"
    assert len(lines) == 1 + len(cells) + sum(cell.passive is not None for cell in cells)
    assert "    WAIT_RETRY --> WAIT_BOTH: it is time to ask again / send LINK" in lines
    assert all(line.count(":") == 1 and ";" not in line for line in lines[1:])  # Mermaid would end the label there


def test_page_contains_the_diagram() -> None:
    page = (Path(__file__).parents[2] / "docs" / "links.md").read_text(encoding="utf-8")
    assert page.count("```mermaid\n") == 1
    assert f"```mermaid\n{diagram()}```\n" in page
