"""Requests and replies of one byte on loopback.

With clients in threads, each asks, waits for its reply, and asks again; with tasks the same in an event loop; with
DEALER and ROUTER one thread keeps many requests under way. Pinned, both processes share one core: no core has to be
woken from idleness then, which costs more on some machines than all the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from time import monotonic
from typing import Any

from benchmarks.harness import Crew, Desk, Failed, Place, Window, latency_facts
from benchmarks.peers import find
from benchmarks.scenario import Case, Scenario, Settings
from benchmarks.scenarios.tasks import be_tasks

REQUEST = b"?"


def be_server(desk: Desk, library: str, address: str, method: str) -> None:
    """Replies until killed; ``method`` is reply or route."""
    where, serve = getattr(find(library, address), method)()
    desk.tell(where)
    serve()


def be_threads(desk: Desk, library: str, clients: int, warm_up: float, seconds: float) -> None:
    """Clients in threads of one process."""
    asks = find(library).ask(desk.hear(), clients)
    for ask in asks:
        ask(REQUEST)
    window = Window.after(warm_up, seconds)
    times: list[float] = []
    threads = [Thread(target=_ask_until_the_end, args=(ask, window, times)) for ask in asks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    desk.report(latency_facts(times, seconds))


def _ask_until_the_end(ask: Callable[[bytes], bytes], window: Window, times: list[float]) -> None:
    begin = monotonic()
    while True:
        ask(REQUEST)
        end = monotonic()
        if begin >= window.begin and (end <= window.end or not times):
            times.append(end - begin)
        if end > window.end and times:
            return
        begin = end


def be_dealer(
    desk: Desk, library: str, address: str, outstanding: int, size: int, warm_up: float, seconds: float
) -> None:
    """One thread with many requests under way; each is sent again when its reply has come."""
    peer = find(library, address)
    talker = peer.deal(desk.hear(), outstanding)
    send, recv = talker.send, talker.recv
    padding = bytes(max(0, size - 4))
    began = []
    for number in range(outstanding):
        began.append(monotonic())
        send(number.to_bytes(4, "big") + padding)
    times: list[float] = []
    window = Window.after(warm_up, seconds)
    now = monotonic()
    while now < window.end or not times:
        reply = recv()
        now = monotonic()
        number = int.from_bytes(reply[:4], "big")
        if now >= window.begin:
            times.append(now - began[number])
        began[number] = now
        send(reply)
    desk.report(latency_facts(times, seconds))


def _run(library: str, method: str, client: tuple[Any, ...], pinned: bool) -> dict[str, Any]:
    place = Place(core=0 if pinned else None)
    with Crew() as crew:
        server = crew.start(be_server, library, place.address, method, place=place)
        worker = crew.start(*client, place=place)
        worker.tell(server.hear())
        result: dict[str, Any] = worker.hear()
        return result


def _threads(case: Case, library: str, settings: Settings, _run_number: int) -> dict[str, Any]:
    client = (be_threads, library, case["clients"], settings.warm_up, settings.seconds)
    return _run(library, "reply", client, case["pinned"])


def _tasks(case: Case, library: str, settings: Settings, _run_number: int) -> dict[str, Any]:
    name, _, loop = library.partition("-")
    if loop not in ("asyncio", "trio"):
        raise Failed(f"name the event loop: {name}-asyncio or {name}-trio, not {library}")
    client = (be_tasks, name, loop, case["tasks"], settings.warm_up, settings.seconds)
    return _run(name, "reply", client, case["pinned"])


def _outstanding(case: Case, library: str, settings: Settings, _run_number: int) -> dict[str, Any]:
    client = (be_dealer, library, "127.0.0.1", case["outstanding"], 4, settings.warm_up, settings.seconds)
    return _run(library, "route", client, case["pinned"])


_BOTH = (False, True)
_ALSO = ("p50_ms", "p99_ms")

RPC = Scenario(
    name="rpc",
    title="REQ/REP of 1 byte, loopback, clients in threads of one process",
    cases=tuple({"clients": number, "pinned": pinned} for pinned in _BOTH for number in (1, 10, 20, 50)),
    short=tuple({"clients": number, "pinned": False} for number in (1, 10, 20)),
    libraries=("a3m", "pyzmq"),
    measure=_threads,
    unit="round trips/s",
    x="clients",
    also=_ALSO,
)

TASKS = Scenario(
    name="tasks",
    title="REQ/REP of 1 byte, loopback, clients in tasks of one event loop",
    cases=tuple({"tasks": number, "pinned": pinned} for pinned in _BOTH for number in (1, 10)),
    short=({"tasks": 10, "pinned": False},),
    libraries=("a3m-asyncio", "a3m-trio", "pyzmq-asyncio"),
    measure=_tasks,
    unit="round trips/s",
    also=_ALSO,
)

OUTSTANDING = Scenario(
    name="outstanding",
    title="DEALER/ROUTER, 4 bytes, loopback, many requests at the same time",
    cases=tuple({"outstanding": number, "pinned": pinned} for pinned in _BOTH for number in (1, 10, 100)),
    short=({"outstanding": 100, "pinned": False},),
    libraries=("a3m", "pyzmq"),
    measure=_outstanding,
    unit="round trips/s",
    x="outstanding",
    also=_ALSO,
)
