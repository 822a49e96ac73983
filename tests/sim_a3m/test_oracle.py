"""The oracle is not blind: each kind of broken promise is found when it is broken on purpose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from a3m.accounts import Accounts
from a3m.core import Core
from a3m.flow import Incoming
from a3m.link import Link
from a3m.link_manager import LinkManager
from a3m.patterns import RepSocket, XPubSocket, XSubSocket
from a3m.simulation import Topology, Violation
from a3m.socket_core import SocketCore
from a3m.trie import SubscriptionTrie
from tests.sim_a3m.oracle import Oracle
from tests.sim_a3m.scenarios import SCENARIOS, run


def broken(name: str, *, seeds: int = 12) -> str:
    """What the oracle says about the first run in which it finds something."""
    for seed in range(seeds):
        try:
            run(name, seed)
        except Violation as violation:
            return str(violation)
    return f"nothing found in {seeds} runs"


def replace(
    monkeypatch: pytest.MonkeyPatch, owner: type[Any], name: str, make: Callable[[Any], Callable[..., Any]]
) -> None:
    monkeypatch.setattr(owner, name, make(getattr(owner, name)))


def test_a_message_that_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    lost: list[Any] = []

    def tamper(on_message: Callable[..., None]) -> Callable[..., None]:
        def lossy(self: RepSocket, link: Link, items: list[Any]) -> None:
            assert link.incoming is not None
            if not lost:
                lost.append(link.incoming.queue.popleft())
            on_message(self, link, items)

        return lossy

    replace(monkeypatch, RepSocket, "on_message", tamper)
    assert "stalled" in broken("request-reply", seeds=1)


def test_a_message_that_comes_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    def tamper(accept: Callable[..., bool]) -> Callable[..., bool]:
        def twice(self: Incoming, first: int, items: list[Any]) -> bool:
            again = first == 3 and self._next == 3 and self.capacity > len(items)
            accepted = accept(self, first, items)
            if again:
                self.queue.extend(items)
            return accepted

        return twice

    replace(monkeypatch, Incoming, "accept", tamper)
    assert "twice from" in broken("pair")


def test_messages_out_of_order(monkeypatch: pytest.MonkeyPatch) -> None:
    def tamper(init: Callable[..., None]) -> Callable[..., None]:
        def unordered(self: Incoming, capacity: int, batch: float, ordered: bool, most: int) -> None:
            init(self, capacity, batch, False, most)

        return unordered

    replace(monkeypatch, Incoming, "__init__", tamper)
    assert "out of order from" in broken("pair")


def test_a_message_of_another_link(monkeypatch: pytest.MonkeyPatch) -> None:
    def tamper(push: Callable[..., None]) -> Callable[..., None]:
        def misdirect(self: SocketCore, link: Link, item: Any) -> None:
            push(self, link, item)
            assert link.outgoing is not None
            link.outgoing.queue[-1] = b"something else"

        return misdirect

    replace(monkeypatch, SocketCore, "push", tamper)
    assert "never sent over this link" in broken("churn")


@pytest.mark.parametrize("side", ["sending", "receiving"])
def test_somebody_who_gets_no_turn(monkeypatch: pytest.MonkeyPatch, side: str) -> None:
    def first(self: SocketCore, _: Any) -> Link | None:
        return next((link for link in self.established if link.can_send), None)

    def greedy(take: Callable[..., Any]) -> Callable[..., Any]:
        def same(self: SocketCore) -> Any:
            if len(self._readable) > 1:
                self._readable.rotate(1)
            return take(self)

        return same

    if side == "sending":
        monkeypatch.setattr(SocketCore, "route", first)
        name = "scatter-gather"
    else:
        replace(monkeypatch, SocketCore, "take", greedy)
        name = "churn"
    assert f"{side}, serves" in broken(name)


def test_a_link_with_room_that_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SocketCore, "route", lambda self, item: None)
    assert "finds no link although" in broken("pair")


def test_a_subscriber_that_misses_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    replace(monkeypatch, SubscriptionTrie, "match", lambda match: lambda self, topic: [*match(self, topic)][:2])
    assert "publishes" in broken("publish-subscribe")


def test_a_subscriber_that_gets_what_it_no_longer_wants(monkeypatch: pytest.MonkeyPatch) -> None:
    def tamper(on_control: Callable[..., None]) -> Callable[..., None]:
        def adds_only(self: XPubSocket, link: Link, type_: int, body: tuple[Any, ...]) -> None:
            if body[0]:
                on_control(self, link, type_, body)

        return adds_only

    replace(monkeypatch, XPubSocket, "on_control", tamper)
    assert "publishes" in broken("publish-subscribe")


def test_a_subscription_that_never_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(XSubSocket, "on_link", lambda self, link: None)
    assert "stalled" in broken("publish-subscribe", seeds=2)


def test_a_queue_that_grows_above_its_capacity(monkeypatch: pytest.MonkeyPatch) -> None:
    def generous(self: Incoming, first: int, items: list[Any]) -> bool:
        self.granted += 1000
        return accept(self, first, items)

    def tamper(taken: Callable[..., int]) -> Callable[..., int]:
        return lambda self, count=1: 2 * taken(self, count)

    accept = Incoming.accept
    monkeypatch.setattr(Incoming, "accept", generous)
    replace(monkeypatch, Incoming, "taken", tamper)
    assert "its capacity is" in broken("scatter-gather", seeds=20)


def test_a_loss_that_is_not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SocketCore, "_account_for", lambda self, link, reason: reason)
    assert "missing are" in broken("restarts")


def test_a_loss_by_force_that_is_taken_for_delivered(monkeypatch: pytest.MonkeyPatch) -> None:
    def tamper(charge: Callable[..., None]) -> Callable[..., None]:
        def optimist(self: Accounts, link: Link) -> None:
            charge(self, link)
            self.unknown -= link.unknown

        return optimist

    replace(monkeypatch, Accounts, "charge", tamper)
    assert "missing are" in broken("forced-churn", seeds=20)


def test_a_report_of_losses_that_did_not_happen(monkeypatch: pytest.MonkeyPatch) -> None:
    def tamper(init: Callable[..., None]) -> Callable[..., None]:
        def pessimist(self: Core, *arguments: Any, **options: Any) -> None:
            init(self, *arguments, **options)
            self.accounts.unknown = 1

        return pessimist

    replace(monkeypatch, Core, "__init__", tamper)
    assert "although nobody lost anything" in broken("pair")


def test_a_wish_that_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LinkManager, "retry", lambda self, link: None)
    assert "stalled" in broken("restarts", seeds=4)


def test_an_answer_to_another_question(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SCENARIOS["proxy-chain"], "questions", 3)
    monkeypatch.setattr("a3m.patterns.reqrep.from_body", lambda body: b"same")
    assert "is answered" in broken("proxy-chain")


def test_something_that_is_left_behind() -> None:
    net = Topology(seed=1)
    oracle = Oracle(net)
    net.start("a", lambda core: lambda: False)
    oracle.check()
    XSubSocket(net.cores["a"], "left")
    with pytest.raises(Violation, match="not quiet"):
        oracle.check()


def test_an_application_that_spins() -> None:
    net = Topology(seed=1)
    with pytest.raises(Violation, match="the application of a spins"):
        net.start("a", lambda core: lambda: True)
