"""Alice or Bob: one of the two processes that exchange messages."""

from __future__ import annotations

import signal
import struct
from contextlib import suppress
from multiprocessing.connection import Connection
from threading import Event as Flag
from threading import Thread
from time import monotonic

from attrs import frozen

from exon.demo.account import Outcome, Plan
from exon.endpoint import Endpoint
from exon.errors import Closed, Timeout
from exon.options import Options
from exon.simulation.lossy import LossySocket, lossy

_MOVER = "bob"
_NUMBER = struct.Struct(">Q")
_DATAGRAM = 1452  # as on Ethernet: loopback's 64 KiB would put the whole run into a handful of datagrams
_TICK = 0.05  # seconds between reports

LEAST_SIZE = _NUMBER.size


def make_payload(number: int, size: int) -> bytes:
    """The message with this number: recognizable, and no byte of it arbitrary.

    >>> make_payload(3, 10).hex(" ")
    '00 00 00 00 00 00 00 03 00 00'
    """
    return (_NUMBER.pack(number) * (size // _NUMBER.size + 1))[:size]


@frozen
class Report:
    """How far a process is."""

    sent: int
    delivered: int
    done: bool


@frozen
class Moved:
    """A process has changed its port."""

    old: int
    new: int


class Party:
    """Alice or Bob: one endpoint, a thread that sends, and a loop that receives."""

    def __init__(self, name: str, peer: str, plan: Plan, watcher: Connection) -> None:
        """Bind, and exchange ports by way of the watcher."""
        self._peer = peer
        self._plan = plan
        self._watcher = watcher
        self._sockets: list[LossySocket] = []
        self._open = lossy(plan.loss, duplicate=plan.duplicate, reorder=plan.reorder, seed=plan.seed)
        options = Options(max_datagram=_DATAGRAM)
        self._endpoint = Endpoint(name, bind="127.0.0.1:0", options=options, socket=self._open_socket)
        self._sent = 0
        self._seen = bytearray(plan.messages)
        self._delivered = 0
        self._duplicates = 0
        self._damaged = 0
        moves = plan.moves if name == _MOVER else 0
        self._moves_at = {plan.messages * move // (moves + 1) for move in range(1, moves + 1)}
        self._moves = 0
        self._stop = Flag()
        watcher.send(self._endpoint.address[1])
        self._endpoint.register(peer, f"127.0.0.1:{watcher.recv()}")

    def _open_socket(self, bind: str) -> LossySocket:
        opened = self._open(bind)
        self._sockets.append(opened)
        return opened

    def run(self) -> None:
        """Send and receive until the watcher says that it is over."""
        sender = Thread(target=self._send_all, name="sender", daemon=True)
        sender.start()
        while not self._watcher.poll():
            self._receive(monotonic() + _TICK)
            self._watcher.send(Report(self._sent, self._delivered, self._done))
        finished = self._watcher.recv()
        self._stop.set()
        sender.join()
        self._endpoint.close(timeout=None if finished else 0)
        self._receive(monotonic())  # what had arrived before the close
        self._watcher.send(self._outcome())

    @property
    def _done(self) -> bool:
        messages = self._plan.messages
        if self._sent < messages or self._delivered < messages:
            return False
        peer = self._endpoint.stats().peers.get(self._peer)
        return peer is None or not peer.pending_messages

    def _send_all(self) -> None:
        size = self._plan.size
        while self._sent < self._plan.messages and not self._stop.is_set():
            with suppress(Timeout):  # the peer is slow or the path bad: look whether to go on
                self._endpoint.send(self._peer, make_payload(self._sent, size), timeout=_TICK)
                self._sent += 1

    def _receive(self, until: float) -> None:
        with suppress(Timeout, Closed):
            while True:
                self._note(*self._endpoint.recv(timeout=max(0.0, until - monotonic())))
                if monotonic() >= until and not self._stop.is_set():
                    return

    def _note(self, sender: str, payload: bytes) -> None:
        number = _NUMBER.unpack_from(payload)[0] if len(payload) >= _NUMBER.size else self._plan.messages
        genuine = sender == self._peer and number < self._plan.messages
        if not genuine or payload != make_payload(number, self._plan.size):
            self._damaged += 1
        elif self._seen[number]:
            self._duplicates += 1
        else:
            self._seen[number] = 1
            self._delivered += 1
            if self._delivered in self._moves_at:
                self._move()

    def _move(self) -> None:
        old = self._endpoint.address[1]
        self._endpoint.rebind("127.0.0.1:0")
        self._moves += 1
        self._watcher.send(Moved(old, self._endpoint.address[1]))

    def _outcome(self) -> Outcome:
        stats = self._endpoint.stats()
        return Outcome(
            sent=self._sent,
            seen=bytes(self._seen),
            duplicates=self._duplicates,
            damaged=self._damaged,
            unknown=stats.messages_unknown,
            retransmissions=stats.retransmissions,
            datagrams=stats.datagrams_sent,
            dropped=sum(udp.lost for udp in self._sockets),
            bytes=stats.bytes_sent,
            moves=self._moves,
        )


def be_party(name: str, peer: str, plan: Plan, watcher: Connection) -> None:
    """The main function of Alice and of Bob."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all three; the watcher decides what it means
    with suppress(EOFError, ConnectionError):  # without a watcher there is nobody to tell
        Party(name, peer, plan, watcher).run()
