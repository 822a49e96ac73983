"""Looking peers up: slowly, wrongly, or not at all, without holding anything up."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from exon import Options, StaticDiscovery
from exon import discovery as module
from exon.discovery import Lookups
from tests.exon.endpoints import PATIENCE, Opener, at, eventually, in_background, take


@pytest.fixture
def opened() -> Iterator[Opener]:
    with Opener() as opener:
        yield opener


class Service:
    """Answers what a test says, and counts the questions."""

    def __init__(self, answer: Callable[[str, int], Any]) -> None:
        self.asked: list[str] = []
        self._answer = answer

    def lookup(self, node_id: str, /) -> str | None:
        self.asked.append(node_id)
        answer: str | None = self._answer(node_id, self.asked.count(node_id))
        return answer


def test_a_fixed_table_finds_peers(opened: Opener) -> None:
    b = opened("b")
    a = opened("a", discovery=StaticDiscovery({"b": at(b)}))
    a.send("b", b"hello")
    assert b.recv(timeout=PATIENCE) == ("a", b"hello")


def test_a_table_may_be_changed_later(opened: Opener) -> None:
    b = opened("b")
    table: dict[str, str] = {}
    discovery = StaticDiscovery(table)
    assert discovery.lookup("b") is None
    a = opened("a", discovery=discovery)
    a.send("b", b"hello")
    table["b"] = at(b)
    assert b.recv(timeout=PATIENCE) == ("a", b"hello")


def test_a_name_is_resolved(opened: Opener) -> None:
    b = opened("b")
    a = opened("a", discovery=StaticDiscovery({"b": f"localhost:{b.address[1]}"}))
    a.send("b", b"hello")
    assert b.recv(timeout=PATIENCE) == ("a", b"hello")


def test_whoever_is_registered_is_not_looked_up(opened: Opener) -> None:
    b, service = opened("b"), Service(lambda *_: None)
    a = opened("a", discovery=service)
    a.register("b", at(b))
    a.send("b", b"hello")
    take(b, 1)
    assert service.asked == []


def test_a_service_may_come_later(opened: Opener) -> None:
    a, b = opened("a"), opened("b")
    a.send("b", b"hello")
    a.set_discovery(StaticDiscovery({"b": at(b)}))
    assert b.recv(timeout=PATIENCE) == ("a", b"hello")


def test_a_service_may_be_taken_away(opened: Opener) -> None:
    service = Service(lambda *_: None)
    a = opened("a", discovery=service)
    a.set_discovery(None)
    a.send("b", b"hello")
    a.send("a", b"the engine has been through its work")
    take(a, 1)
    assert service.asked == []


def test_a_slow_answer_holds_nothing_up(opened: Opener) -> None:
    b, c = opened("b"), opened("c")
    answer_now = threading.Event()

    def answer(node_id: str, _: int) -> str:
        if node_id == "b":
            assert answer_now.wait(PATIENCE)
        return at(b if node_id == "b" else c)

    service = Service(answer)
    a = opened("a", discovery=service)
    a.send("b", b"to the slow one")
    eventually(lambda: "b" in service.asked)
    for number in range(100):  # the engine works, and so do other look-ups
        a.send("c", b"%d" % number, timeout=PATIENCE)
    assert len(set(take(c, 100))) == 100
    assert service.asked.count("b") == 1  # asked once, however long it takes
    answer_now.set()
    assert b.recv(timeout=PATIENCE) == ("a", b"to the slow one")


def test_an_answer_that_never_comes_does_not_keep_an_endpoint_from_closing(opened: Opener) -> None:
    for_ever = threading.Event()
    service = Service(lambda *_: for_ever.wait(PATIENCE) and None)
    a = opened("a", discovery=service)
    a.send("b", b"x")
    eventually(lambda: service.asked)
    assert a.close(timeout=0.01).peers == {"b": "1 not acknowledged, address unknown"}
    for_ever.set()


def test_an_answer_after_the_close_is_harmless(opened: Opener) -> None:
    b, answer_now = opened("b"), threading.Event()
    lookups: list[threading.Thread] = []

    def answer(*_: object) -> str:
        lookups.append(threading.current_thread())
        assert answer_now.wait(PATIENCE)
        return at(b)

    a = opened("a", discovery=Service(answer))
    a.send("b", b"x")
    eventually(lambda: lookups)
    a.close(timeout=0)
    answer_now.set()
    lookups[0].join(PATIENCE)
    assert not lookups[0].is_alive()
    assert a._engine._lookups.failures == 0


def raise_an_error() -> str:
    raise OSError("the service is down")


WRONG = {
    "raises": raise_an_error,
    "says no": lambda: None,
    "no port": lambda: "127.0.0.1",
    "not a port": lambda: "127.0.0.1:http",
    "no host": lambda: ":5555",
    "cannot be resolved": lambda: "x" * 64 + ":5555",
    "the other family": lambda: "[::1]:5555",
    "a pair": lambda: ("127.0.0.1", 5555),
    "bytes": lambda: b"127.0.0.1:5555",
    "a number": lambda: 5555,
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_a_wrong_answer_is_asked_again(opened: Opener, wrong: Callable[[], Any]) -> None:
    b = opened("b")
    service = Service(lambda _, times: at(b) if times > 2 else wrong())
    a = opened("a", discovery=service)
    a.send("b", b"hello")
    assert b.recv(timeout=PATIENCE) == ("a", b"hello")
    assert service.asked == ["b", "b", "b"]
    assert "internal error" not in a.stats().dropped


def test_somebody_elses_address_is_found_out(opened: Opener) -> None:
    b, somebody_else = opened("b"), opened("somebody else")
    service = Service(lambda _, times: at(b if times > 1 else somebody_else))
    a = opened("a", discovery=service, options=Options(unreachable_after=0.05))
    a.send("b", b"for b alone")
    assert b.recv(timeout=PATIENCE) == ("a", b"for b alone")
    assert somebody_else.stats().dropped["destination"] > 0
    assert somebody_else.stats().messages_delivered == 0


def test_a_peer_that_moved_in_silence_is_looked_up_again(opened: Opener) -> None:
    a, b = opened("a", options=Options(unreachable_after=0.05)), opened("b")
    a.set_discovery(Service(lambda *_: at(b)))
    a.send("b", b"1")
    assert take(b, 1) == [b"1"]
    b._node.moved = lambda: None  # type: ignore[method-assign]  # it tells nobody
    b.rebind("127.0.0.1:0")
    a.send("b", b"2")
    assert take(b, 1) == [b"2"]


# ── the threads ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_only_a_few_look_ups_run_at_once() -> None:
    answer_now, found = threading.Event(), []
    running = threading.Semaphore(0)

    def answer(node_id: str, _: int) -> str:
        running.release()
        assert answer_now.wait(PATIENCE)
        return node_id

    service = Service(answer)
    lookups = Lookups(lambda peer, address: found.append((peer, address)), service)
    for number in range(20):
        lookups.ask(str(number))
        lookups.ask(str(number))
    for _ in range(module._THREADS):
        assert running.acquire(timeout=PATIENCE)
    assert len(service.asked) == module._THREADS
    answer_now.set()
    eventually(lambda: len(found) == 20)
    assert sorted(found) == sorted((str(number), str(number)) for number in range(20))
    eventually(lambda: lookups._threads == 0)
    assert not lookups._asked


def test_no_more_than_so_many_wait() -> None:
    answer_now = threading.Event()
    service = Service(lambda *_: answer_now.wait(PATIENCE) and None)
    lookups = Lookups(lambda *_: None, service)
    for number in range(2 * module._WAITING):
        lookups.ask(str(number))
    assert len(lookups._waiting) <= module._WAITING
    assert len(lookups._asked) <= module._WAITING + module._THREADS
    answer_now.set()
    eventually(lambda: lookups._threads == 0)
    lookups.ask("dropped before, welcome now")
    eventually(lambda: service.asked[-1] == "dropped before, welcome now")


def test_a_lack_of_threads_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[str] = []
    lookups = Lookups(lambda peer, _: found.append(peer), Service(lambda *_: None))

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        for number in range(10):
            lookups.ask(str(number))
    assert lookups.failures == 10
    lookups.ask("b")
    eventually(lambda: found == ["b"])


def test_asking_never_blocks() -> None:
    answer_now = threading.Event()
    lookups = Lookups(lambda *_: None, Service(lambda *_: answer_now.wait(PATIENCE) and None))
    for number in range(100):
        in_background(lookups.ask, str(number)).result(PATIENCE / 2)
    answer_now.set()
