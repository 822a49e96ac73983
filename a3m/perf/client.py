"""The client of ``a3m perf``: does its half of a measurement, and has the figures of both."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic
from typing import Any, TypeVar

import a3m
from a3m.perf.libraries import CONTROL, SERVER, STALLED, Library, OfA3M, OfPyzmq
from a3m.perf.numbered import END
from a3m.perf.result import Latency, Result
from a3m.perf.server import VERSION
from a3m.perf.spec import A3M, LATENCY, Failed, Spec
from a3m.perf.transport import counters, of_both, path, since
from a3m.perf.work import Received, Watch, ask_all, receive_all, send_all

_TICK = 0.1  # seconds between two looks at the threads that work
_SERVER_ENDED = "the server has ended"
_ENDED = (a3m.LinkClosed, a3m.NoLinks)  # how a socket says so
_Value = TypeVar("_Value")


class Client:
    """Measures with one server, one measurement after the other.

    >>> from threading import Thread
    >>> from a3m.perf.server import Server
    >>> with Server("127.0.0.1:0") as server:
    ...     thread = Thread(target=server.serve, daemon=True)
    ...     thread.start()
    ...     with Client(f"127.0.0.1:{server.address[1]}", bind="127.0.0.1:0") as client:
    ...         result = client.measure(Spec(mode="throughput", size=8, seconds=0.01, warm_up=0))
    >>> result.is_exact
    True
    """

    def __init__(
        self,
        address: str,
        *,
        bind: str = ":0",
        timeout: float = 5.0,
        options: a3m.Options | None = None,
        tick: Callable[[], None] = lambda: None,
    ) -> None:
        """Greet the server; ``tick`` is called ten times a second while something is measured."""
        self._timeout = timeout
        self._tick = tick
        self._node = a3m.Node(f"perf-{secrets.token_hex(6)}", bind=bind, options=options)
        self._own = OfA3M(self._node)
        try:
            self._node.register(SERVER, address)
            self._control = self._node.req(CONTROL)
            self._control.link(f"{SERVER}/{CONTROL}")
            self.server = self._greet(address)
        except BaseException:
            self._node.close(timeout=0)
            raise

    def _greet(self, address: str) -> dict[str, Any]:
        try:
            self._control.wait_linked(timeout=self._timeout)
            return self._ask({"ask": "hello", "version": VERSION})
        except a3m.Timeout:
            port = address.rpartition(":")[2]
            raise Failed(
                f"no answer from {address} in {self._timeout:g} s. Check that 'a3m perf --serve' is running there, "
                f"that the address is right, and that nothing between here and there blocks UDP port {port}"
            ) from None

    def __enter__(self) -> Client:
        """Itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Say goodbye, or leave at once if something went wrong."""
        self._node.close(timeout=None if kind is None else 0)

    # -- talking to the server ---------------------------------------------------------------------------------------

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        try:
            self._control.send(json.dumps(question).encode(), timeout=STALLED, require_link=True)
            answer: dict[str, Any] = json.loads(self._patiently(lambda: self._control.recv(timeout=_TICK)))
        except _ENDED:
            raise Failed(_SERVER_ENDED) from None
        if "error" in answer:
            raise Failed(answer["error"])
        return answer

    def _patiently(self, attempt: Callable[[], _Value], watch: Watch | None = None) -> _Value:
        """Try again until it succeeds, as long as anything gets on: the work, or what comes from the network."""
        count = heard = -1
        moved = monotonic()
        while True:
            try:
                return attempt()
            except (a3m.Timeout, Empty):
                self._tick()
            if watch is not None and watch.count != count:
                count, moved = watch.count, monotonic()
                continue
            # The node is only asked when nothing else moves: a look at it disturbs what is measured.
            self._check_server()
            arrived = self._node.stats().transport.datagrams_received
            if arrived != heard:
                heard, moved = arrived, monotonic()
            elif monotonic() - moved > STALLED:
                raise Failed(
                    f"nothing came from the server for {STALLED:.0f} s; it has ended, or the network has failed"
                )

    def _check_server(self) -> None:
        if not self._control.links and not self._control.pending:
            raise Failed(_SERVER_ENDED)

    # -- measuring ---------------------------------------------------------------------------------------------------

    def measure(self, spec: Spec) -> Result:
        """One measurement."""
        library: Library = self._own if spec.library == A3M else OfPyzmq()
        before = counters(self._node)
        begun = self._ask({"ask": "begin", "spec": spec.as_dict()})
        pattern = "req" if spec.mode == LATENCY else "pull" if spec.reverse else "push"
        number = spec.clients if spec.mode == LATENCY else 1
        try:
            sockets = [library.reach(pattern, begun["where"], self._timeout) for _ in range(number)]
        except a3m.Timeout as error:
            self._check_server()
            raise Failed(f"the server answers, but not where it said: {error}") from None
        if spec.mode == LATENCY:
            return self._measure_latency(spec, library, sockets, begun["session"], before)
        return self._measure_throughput(spec, library, sockets[0], begun["session"], before)

    def _measure_throughput(
        self, spec: Spec, library: Library, socket: Any, session: int, before: dict[str, int]
    ) -> Result:
        ours: dict[str, Any] = {"path": {}}

        def look() -> None:
            ours["path"] = path(self._node, SERVER)

        def work(watch: Watch) -> int | Received:
            if spec.reverse:
                received = receive_all(socket, spec, watch, library.drain)
                library.finish(socket)
                return received
            sent = send_all(socket, spec, watch, look)
            if not library.finish(socket):
                raise Failed("not everything that was sent could be delivered; the server, or the network, is too slow")
            return sent

        done = self._in_threads([work])[0]
        theirs = self._ask({"ask": "end", "session": session})
        ours["counted"] = since(before, self._node)
        if isinstance(done, Received):
            received, sent, transport = done, theirs["count"], of_both(theirs, ours)
        else:
            received, sent, transport = Received.from_dict(theirs["received"]), done, of_both(ours, theirs)
        return Result(
            spec=spec,
            rate=received.rate,
            seconds=received.seconds,
            sent=sent,
            account=received.account,
            transport=transport if spec.library == A3M else None,
            alone=theirs["alone"],
        )

    def _measure_latency(
        self, spec: Spec, library: Library, sockets: list[Any], session: int, before: dict[str, int]
    ) -> Result:
        def make(socket: Any) -> Callable[[Watch], Any]:
            return lambda watch: ask_all(socket, spec, watch)

        asked = self._in_threads([make(socket) for socket in sockets])
        ours = {"path": path(self._node, SERVER)}
        sockets[0].send(END)
        theirs = self._ask({"ask": "end", "session": session})
        for socket in sockets:
            library.finish(socket)
        ours["counted"] = since(before, self._node)
        times = sorted(time for client in asked for time in client.samples.kept)
        return Result.of_round_trips(
            spec,
            asked,
            handled=theirs["count"],
            latency=Latency.of(times),
            transport=of_both(ours, theirs) if spec.library == A3M else None,
            alone=theirs["alone"],
        )

    def _in_threads(self, works: list[Callable[[Watch], Any]]) -> list[Any]:
        """What comes of each, in a thread of its own.

        Ctrl-C comes to the main thread, which only waits: so it strikes in the middle of nothing. Whoever handles it
        closes the node, which ends the threads.
        """
        outcomes: SimpleQueue[tuple[int, Any]] = SimpleQueue()
        watch = Watch()

        def run(number: int, work: Callable[[Watch], Any]) -> None:
            try:
                outcomes.put((number, work(watch)))
            except BaseException as error:  # raised where it is waited for
                outcomes.put((number, error))

        for number, work in enumerate(works):
            Thread(target=run, args=(number, work), name=f"client {number}", daemon=True).start()
        results: dict[int, Any] = {}
        while len(results) < len(works):
            number, outcome = self._patiently(lambda: outcomes.get(timeout=_TICK), watch)
            if isinstance(outcome, Failed):
                raise outcome
            if isinstance(outcome, BaseException):
                ended = isinstance(outcome, _ENDED)
                raise Failed(_SERVER_ENDED if ended else f"a measurement failed: {outcome}") from outcome
            results[number] = outcome
        return [results[number] for number in range(len(works))]
