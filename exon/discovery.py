"""Asking where a node is, without ever making the engine wait.

A discovery service is anything with ``lookup(id)``; it may take as long as it likes, fail, or be wrong. Look-ups run in
a few daemon threads that exist only while there is something to ask: one slow answer holds up neither the engine nor
the other look-ups, and a service that hangs for ever does not keep the process from ending.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from threading import Lock, Thread
from typing import Protocol

from exon.log import log

_THREADS = 4
_WAITING = 1024  # look-ups that may queue; one more is dropped, and the protocol asks again


class Discovery(Protocol):
    """Where nodes are. ``lookup`` may take its time, and is called from several threads."""

    def lookup(self, node_id: str, /) -> str | None:
        """The address of a node as ``"host:port"``, or None."""


class StaticDiscovery:
    """A fixed table.

    >>> StaticDiscovery({"server": "127.0.0.1:5555"}).lookup("server")
    '127.0.0.1:5555'
    """

    def __init__(self, addresses: Mapping[str, str]) -> None:
        """``addresses`` is consulted at every look-up, so the caller may go on changing it."""
        self._addresses = addresses

    def lookup(self, node_id: str, /) -> str | None:
        """What the table says."""
        return self._addresses.get(node_id)


class Lookups:
    """Look-ups under way."""

    def __init__(self, found: Callable[[str, str | None], None], service: Discovery | None) -> None:
        """``found(peer, answer)`` is called in one of the threads."""
        self.service = service
        self.failures = 0
        self._found = found
        self._lock = Lock()
        self._waiting: deque[str] = deque()
        self._asked: set[str] = set()
        self._threads = 0

    def ask(self, peer: str) -> None:
        """Look a peer up, unless that is being done already. Never blocks."""
        if self.service is None:
            return
        with self._lock:
            if peer in self._asked or len(self._waiting) >= _WAITING:
                return
            self._asked.add(peer)
            self._waiting.append(peer)
            if self._threads == _THREADS:
                return
            self._threads += 1
        try:
            Thread(target=self._work, name="exon lookup", daemon=True).start()
        except RuntimeError:  # the system has no thread to give; the protocol asks again
            with self._lock:
                self._threads -= 1
                if peer not in self._waiting:
                    return  # another one took it over
                self._waiting.remove(peer)
                self._asked.remove(peer)
            self.failures += 1
            log.warning("lookup-failed", peer=peer, exc_info=True)

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._threads -= 1
                    return
                peer = self._waiting.popleft()
            try:
                self._look_up(peer)
            finally:
                with self._lock:
                    self._asked.discard(peer)

    def _look_up(self, peer: str) -> None:
        service = self.service
        if service is None:
            return
        try:
            self._found(peer, service.lookup(peer))
        except Exception:
            self.failures += 1
            log.warning("lookup-failed", peer=peer, exc_info=True)
