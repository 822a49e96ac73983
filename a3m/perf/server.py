"""The server of ``a3m perf``: does its half of what clients ask for, for several of them at a time.

A client asks over a REQ socket, in JSON:

==========================================  ===================================================================
``{"ask": "hello", "version": 1}``          who is there
``{"ask": "begin", "spec": {...}}``         open a socket for one measurement; the answer says where it is
``{"ask": "end", "session": 7}``            the figures, as soon as the measurement is over
==========================================  ===================================================================

Each measurement has a socket and a thread of its own. The thread that answers these questions waits with a poller, and
so never drives the node: that is left to the threads that are measured.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable
from contextlib import suppress
from threading import Lock, Thread
from time import monotonic
from typing import Any

from attrs import define, field

import a3m
from a3m.perf.libraries import CONTROL, SERVER, STALLED, Library, OfA3M, OfPyzmq
from a3m.perf.spec import A3M, LATENCY, Failed, Spec
from a3m.perf.transport import counters, path, since
from a3m.perf.work import Received, Watch, receive_all, reply_all, send_all
from exon.addresses import format_address

VERSION = 1
DEFAULT_PORT = 5757
MOST_SESSIONS = 64
_LOOK = 1.0  # seconds between two looks at the sessions


@define(eq=False)
class Session:
    """One measurement, from the server's side."""

    number: int
    client: str
    spec: Spec
    library: Library
    socket: Any
    before: dict[str, int]
    alone: bool
    """Whether there was never another session; if there was, what the node counts is not only ours."""
    watch: Watch = field(factory=Watch)
    seen: int = -1
    moved: float = field(factory=monotonic)
    result: dict[str, Any] | None = None
    route: tuple[str, ...] | None = None
    """Who waits for the result."""


class Server:
    """Answers clients on one port.

    >>> with Server("127.0.0.1:0") as server:
    ...     server.address[0]
    '127.0.0.1'
    """

    def __init__(
        self,
        bind: str,
        *,
        options: a3m.Options | None = None,
        local: bool = False,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Bound when constructed. ``local`` servers also measure pyzmq; ``tell`` hears what happens."""
        self._node = a3m.Node(SERVER, bind=bind, options=options)
        self._control = self._node.router(CONTROL)
        self._local = local
        self._tell = tell
        self._own = OfA3M(self._node)
        self._sessions: dict[int, Session] = {}
        self._number = 0
        self._lock = Lock()  # of results and routes: the thread that has a result and the one that is asked for it

    @property
    def address(self) -> tuple[str, int]:
        """Where it is."""
        return self._node.address

    def __enter__(self) -> Server:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Nobody is waited for."""
        self.close()

    def close(self) -> None:
        """End everything at once."""
        self._node.close(timeout=0)

    def serve(self) -> None:
        """Until the node is closed, or Ctrl-C."""
        with a3m.Poller() as poller:
            poller.add(self._control, a3m.POLLIN)
            while True:
                poller.wait(timeout=_LOOK if self._sessions else None)
                try:
                    while True:
                        route, payload = self._control.recv(timeout=0)
                        self._answer(route, payload)
                except a3m.Timeout:
                    self._look_after_sessions()
                except a3m.Closed:
                    return

    # -- questions ---------------------------------------------------------------------------------------------------

    def _answer(self, route: tuple[str, ...], payload: Any) -> None:
        try:
            asked = json.loads(payload)
            answer = self._handle(asked, route)
        except (Failed, ValueError, TypeError, LookupError) as error:  # whatever strangers send
            answer = {"error": str(error) or type(error).__name__}
        if answer is not None:
            self._send(route, answer)

    def _send(self, route: tuple[str, ...], answer: dict[str, Any]) -> None:
        with suppress(a3m.NoRoute, a3m.Timeout, a3m.Closed):  # whoever asked has gone
            self._control.send(json.dumps(answer).encode(), to=route, timeout=_LOOK)

    def _handle(self, asked: dict[str, Any], route: tuple[str, ...]) -> dict[str, Any] | None:
        client = a3m.SocketId.parse(route[-1]).node
        if asked["ask"] == "hello":
            return self._hello(asked.get("version"), client)
        if asked["ask"] == "begin":
            return self._begin(Spec.from_dict(asked["spec"]), client)
        session = self._sessions.get(asked["session"])
        if asked["ask"] != "end" or session is None or session.client != client:
            raise Failed("the server knows nothing of this measurement; it may have been restarted meanwhile")
        with self._lock:
            session.route = route
            if session.result is None:
                return None  # its thread will answer
        del self._sessions[session.number]
        return session.result

    def _hello(self, version: Any, client: str) -> dict[str, Any]:
        if version != VERSION:
            raise Failed(
                f"the server speaks version {VERSION} of a3m perf, not {version}; install the same on both sides"
            )
        self._tell(f"{self._where(client)} is here")
        return {
            "a3m": a3m.__version__,
            "python": platform.python_version(),
            "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        }

    def _where(self, client: str) -> str:
        peer = self._node.stats().transport.peers.get(client)
        return format_address(peer.address) if peer is not None and peer.address is not None else client

    # -- sessions ----------------------------------------------------------------------------------------------------

    def _begin(self, spec: Spec, client: str) -> dict[str, Any]:
        if spec.library != A3M and not self._local:
            raise Failed(f"{spec.library} is measured on one machine only")
        running = [session for session in self._sessions.values() if session.result is None]
        if len(self._sessions) >= MOST_SESSIONS:
            raise Failed("the server is busy; try again later")
        for session in running:
            session.alone = False
        library: Library = self._own if spec.library == A3M else OfPyzmq()
        pattern = "rep" if spec.mode == LATENCY else "push" if spec.reverse else "pull"
        socket, where = library.serve(pattern)
        self._number += 1
        session = Session(self._number, client, spec, library, socket, counters(self._node), alone=not running)
        self._sessions[session.number] = session
        Thread(target=self._run, args=(session,), name=f"session {session.number}", daemon=True).start()
        return {"session": session.number, "where": where}

    def _run(self, session: Session) -> None:
        try:
            result = self._work(session)
        except Exception as error:  # the client is told
            result = {"error": f"on the server's side: {error}"}
        result["alone"] = session.alone
        with self._lock:
            session.result, session.moved = result, monotonic()
            route = session.route
        if route is not None:
            self._send(route, result)
            self._sessions.pop(session.number, None)

    def _work(self, session: Session) -> dict[str, Any]:
        spec, socket, watch, library = session.spec, session.socket, session.watch, session.library
        result: dict[str, Any] = {"path": {}}
        done: Received | None = None

        def look() -> None:
            result["path"] = path(self._node, session.client)

        try:
            if spec.mode == LATENCY:
                result["count"] = reply_all(socket, watch)
            elif spec.reverse:
                result["count"] = send_all(socket, spec, watch, look)
            else:
                done = receive_all(socket, spec, watch, library.drain)
                result["received"] = done.as_dict()
        finally:
            result["clean"] = library.finish(socket)
            result["counted"] = since(session.before, self._node)
        rate = f": {done.rate:,.0f} messages/s" if done is not None else ""
        self._tell(f"{self._where(session.client)} {spec}{rate}")
        return result

    def _look_after_sessions(self) -> None:
        """Give up on what has not moved for too long, and forget results that nobody wants."""
        now = monotonic()
        for session in list(self._sessions.values()):
            if session.result is None and session.watch.count != session.seen:
                session.seen, session.moved = session.watch.count, now
            elif now - session.moved > STALLED or (session.result is None and self._is_deserted(session)):
                session.library.abandon(session.socket)
                if session.result is not None:
                    self._sessions.pop(session.number, None)

    def _is_deserted(self, session: Session) -> bool:
        """Whether whoever it was begun for has come and gone."""
        if session.spec.library != A3M or session.watch.count == 0:
            return False
        stats = self._node.stats().sockets.get(session.socket.id.tag)
        return stats is not None and not stats.by_peer and not stats.queued
