"""What ``a3m perf`` is made of: that it notices what is wrong, and that a server survives its clients."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import count
from threading import Thread
from typing import Any

import attrs
import pytest

import a3m
import a3m.perf.client
import a3m.perf.server
import a3m.perf.work
from a3m.perf.client import Client
from a3m.perf.libraries import CONTROL, SERVER, OfA3M
from a3m.perf.numbered import Account, Tally, cycle_of, in_batches
from a3m.perf.result import Result
from a3m.perf.screen import Plain
from a3m.perf.server import Server
from a3m.perf.spec import Failed, Spec
from a3m.perf.suite import Case, Plan, Report, measure
from a3m.perf.work import Received, Watch, receive_all
from tests.a3m.nodes import PATIENCE, eventually

SHORT = Spec(mode="throughput", size=100, seconds=0.01, warm_up=0)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server in a thread."""
    monkeypatch.setattr(a3m.perf.server, "_LOOK", 0.01)
    with Server("127.0.0.1:0") as running:
        thread = Thread(target=running.serve)
        thread.start()
        yield running
    thread.join(PATIENCE)
    assert not thread.is_alive()


def where(server: Server) -> str:
    return f"127.0.0.1:{server.address[1]}"


# -- the account -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 100, 3_000_000])
def test_what_is_sent_in_batches_is_what_a_tally_expects(size: int) -> None:
    cycle = cycle_of(size)
    assert {len(message) for message in cycle} == {size}
    assert len(set(cycle)) == len(cycle) >= 3
    tally = Tally(cycle)
    batches = in_batches(cycle, 1000 if size < 1000 else 7)
    count = 0
    for _ in range(5):
        batch = next(batches)
        count += len(batch)
        tally.take(batch[:3])
        tally.take(batch[3:])
    assert tally.account() == Account(received=count)
    assert tally.account().is_exact(count)
    assert not tally.account().is_exact(count + 1)


@pytest.mark.parametrize(
    ("came", "account"),
    [
        pytest.param([0, 1, 3, 4], Account(received=4, lost=1), id="lost"),
        pytest.param([0, 1, 1, 2], Account(received=4, doubled=1), id="twice"),
        pytest.param([0, 1, 1, 3], Account(received=4, doubled=1, lost=1), id="the count is right"),
        pytest.param([0, 2, 1, 3], Account(received=4, lost=1, doubled=1), id="out of order"),
        pytest.param([0, None, 2, 3], Account(received=4, damaged=1), id="damaged"),
    ],
)
def test_what_is_wrong_is_seen(came: list[int | None], account: Account) -> None:
    cycle = cycle_of(100)
    tally = Tally(cycle)
    tally.take([b"what?" * 20 if number is None else cycle[number] for number in came])
    assert tally.account() == account
    assert not account.is_exact(4)


def test_what_comes_after_the_end_came_twice() -> None:
    tally = Tally(cycle_of(8))
    tally.take(cycle_of(8)[:2])
    tally.take_late(cycle_of(8)[1:2])
    assert tally.account() == Account(received=3, doubled=1)


@pytest.mark.parametrize(
    ("result", "exact"),
    [
        pytest.param({"account": Account(received=9)}, False, id="one is missing"),
        pytest.param({"account": Account(received=10, doubled=1, lost=1)}, False, id="one for another"),
        pytest.param({"account": Account(received=10), "handled": 11}, False, id="a request was handled twice"),
        pytest.param({"account": Account(received=10), "handled": 10}, True, id="as it should be"),
    ],
)
def test_the_exit_status_says_whether_everything_came_once(result: dict[str, Any], exact: bool) -> None:
    measured = Result(spec=SHORT, rate=1.0, seconds=1.0, sent=10, alone=True, **result)
    report = Report(Plan(), "here", cases=[Case(SHORT, {"a3m": [measured]})])
    assert report.status == (0 if exact else 1)
    assert report.verdict.startswith("Exactly once: 10 of 10" if exact else "NOT exactly once: 10 messages sent")
    report.interrupted = True
    assert report.status == (130 if exact else 1)


class Faulty:
    """A socket that does something wrong with one message."""

    def __init__(self, socket: a3m.Socket, fault: Callable[[Any, bytes], None]) -> None:
        self._socket = socket
        self._fault = fault
        self._count = 0

    def send(self, message: bytes) -> None:
        self._count += 1
        if self._count == 5:
            self._fault(self._socket, message)
        else:
            self._socket.send(message)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        pytest.param(lambda socket, message: None, "1 lost, 0 twice, 0 damaged", id="lost"),
        pytest.param(lambda socket, message: socket.send_many([message] * 2), "0 lost, 1 twice, 0 damaged", id="twice"),
        pytest.param(lambda socket, message: socket.send(message[::-1]), "0 lost, 0 twice, 1 damaged", id="damaged"),
    ],
)
def test_a_message_that_goes_wrong_is_a_failure(
    server: Server,
    fault: Callable[[Any, bytes], None],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reach = OfA3M.reach
    monkeypatch.setattr(OfA3M, "reach", lambda self, *arguments: Faulty(reach(self, *arguments), fault))
    plan = Plan(sizes=(100,), modes=("throughput",), seconds=0.01)
    report = Report(plan, where(server))
    with Client(where(server), bind="127.0.0.1:0") as client:
        measure(client, report, Plain(plan))
    assert (report.status, report.verdict.split(":")[0]) == (1, "NOT exactly once")
    assert report.verdict.endswith(f"{said}.")


@pytest.mark.parametrize(
    ("warm_up", "seconds", "rate", "window"),
    [
        pytest.param(0, 60, 100, 3, id="no warm-up"),
        pytest.param(1, 1, 100, 1, id="a window"),
        pytest.param(3, 60, 301 / 4, 4, id="over with the warm-up"),
        pytest.param(60, 60, 301 / 4, 4, id="over before"),
    ],
)
def test_a_rate_is_that_of_the_window_or_of_everything(
    warm_up: float, seconds: float, rate: float, window: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Source:
        messages = iter([*next(in_batches(cycle_of(100), 301)), b""])

        def recv(self) -> bytes:
            return next(self.messages)

    monkeypatch.setattr(a3m.perf.work, "monotonic", count(1.0).__next__)  # a hundred messages a second
    spec = attrs.evolve(SHORT, warm_up=warm_up, seconds=seconds)
    received = receive_all(Source(), spec, Watch(), lambda _: [])
    assert received == Received(Account(received=301), rate, window)


# -- the server ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("question", "complaint"),
    [
        (b"\xff what?", "decode"),
        (b"{}", "ask"),
        (b"[]", "list"),
        (b'{"ask": "hello", "version": 99}', "install the same on both sides"),
        (b'{"ask": "begin", "spec": {}}', "not a measurement"),
        (json.dumps({"ask": "begin", "spec": {**SHORT.as_dict(), "size": 10**12}}).encode(), "size is a number from"),
        (json.dumps({"ask": "begin", "spec": {**SHORT.as_dict(), "many": []}}).encode(), "many is False or True"),
        (json.dumps({"ask": "begin", "spec": {**SHORT.as_dict(), "library": "pyzmq"}}).encode(), "on one machine only"),
        (b'{"ask": "end", "session": 77}', "knows nothing of this measurement"),
        (b'{"ask": "end", "session": []}', "unhashable"),
    ],
)
def test_a_server_answers_nonsense_with_an_error_and_goes_on(server: Server, question: bytes, complaint: str) -> None:
    with a3m.Node("stranger", bind="127.0.0.1:0") as node:
        node.register(SERVER, where(server))
        with node.req("asker") as req:
            req.link(f"{SERVER}/{CONTROL}")
            req.send(question, timeout=PATIENCE)
            assert complaint in json.loads(req.recv(timeout=PATIENCE))["error"]
    with Client(where(server), bind="127.0.0.1:0") as client:
        assert client.measure(SHORT).is_exact


def test_a_session_is_not_for_others(server: Server) -> None:
    with Client(where(server), bind="127.0.0.1:0") as one, Client(where(server), bind="127.0.0.1:0") as other:
        begun = one._ask({"ask": "begin", "spec": SHORT.as_dict()})
        with pytest.raises(Failed, match="knows nothing"):
            other._ask({"ask": "end", "session": begun["session"]})


@pytest.mark.parametrize(
    "spec",
    [SHORT, attrs.evolve(SHORT, reverse=True, seconds=3600), attrs.evolve(SHORT, mode="latency")],
    ids=["receives", "sends", "replies"],
)
def test_a_server_gives_up_on_clients_that_are_gone(server: Server, spec: Spec) -> None:
    client = Client(where(server), bind="127.0.0.1:0")
    begun = client._ask({"ask": "begin", "spec": spec.as_dict()})
    pattern = {"rep": "req", "pul": "push", "pus": "pull"}[begun["where"][:3]]
    socket = client._own.reach(pattern, begun["where"], PATIENCE)
    if spec.reverse:
        socket.recv(timeout=PATIENCE)
    else:
        socket.send(cycle_of(100)[0], timeout=PATIENCE)
    (session,) = server._sessions.values()
    eventually(lambda: session.watch.count or spec.reverse)
    client._node.close(timeout=0)
    eventually(lambda: session.result is not None)
    assert session.result is not None
    assert "on the server's side" in session.result["error"]


def test_what_nobody_asks_for_is_forgotten(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(a3m.perf.server, "STALLED", 0.05)
    with Client(where(server), bind="127.0.0.1:0") as client:
        client._ask({"ask": "begin", "spec": SHORT.as_dict()})  # and never links
        eventually(lambda: not server._sessions)


def test_a_server_that_falls_silent_is_given_up(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(a3m.perf.client, "STALLED", 0.3)
    with Client(where(server), bind="127.0.0.1:0") as client:
        begun = client._ask({"ask": "begin", "spec": SHORT.as_dict()})
        with pytest.raises(Failed, match="nothing came from the server"):
            client._ask({"ask": "end", "session": begun["session"]})  # it waits for messages that never come
