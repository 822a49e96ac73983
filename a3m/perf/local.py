"""A server in a process of its own, for measurements on one machine."""

from __future__ import annotations

import multiprocessing
import os
import signal
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from threading import Thread

import a3m
from a3m.perf.server import Server
from a3m.perf.spec import Failed

_START = 60.0  # seconds for the process to come up on a busy machine
_END = 5.0  # seconds for it to go


class LocalServer:
    """Ends with the block, or with the process that started it, however that ends."""

    def __init__(self, max_datagram: int | None = None) -> None:
        """Start it."""
        context = multiprocessing.get_context("spawn")  # a fresh interpreter, as if started by hand
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_be_server, args=(theirs, max_datagram), daemon=True)
        # Ctrl-C reaches every process of a terminal, and a new one inherits what is blocked: it never sees it. The
        # tracker is started first because starting it lets Ctrl-C through again.
        resource_tracker.ensure_running()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._process.start()
        finally:
            theirs.close()  # or its end would go unnoticed
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def __enter__(self) -> LocalServer:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        self._pipe.close()
        self._process.join(_END)
        if self._process.exitcode is None:
            self._process.kill()
            self._process.join()

    @property
    def process_id(self) -> int | None:
        """Of the process."""
        return self._process.pid

    def address(self) -> str:
        """Where it is, as soon as it is there."""
        try:
            if self._pipe.poll(_START):
                return f"127.0.0.1:{self._pipe.recv()}"
        except (EOFError, ConnectionError):
            pass
        raise Failed("the second process did not start; its error message, if there is one, is above")


def _be_server(pipe: Connection, max_datagram: int | None) -> None:
    def end_with_parent() -> None:
        try:
            pipe.recv()
        finally:  # the other side is closed, or gone; nothing here is worth keeping
            os._exit(0)

    Thread(target=end_with_parent, daemon=True).start()
    options = None if max_datagram is None else a3m.Options(max_datagram=max_datagram)
    server = Server("127.0.0.1:0", options=options, local=True)
    pipe.send(server.address[1])
    server.serve()
