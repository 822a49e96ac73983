"""The blocking interface: one UDP socket, one engine thread, any number of application threads.

Waiting is one mechanism: a thread that cannot go on leaves a :class:`_Waiter` in a queue and parks on a lock of its
own. A sender's waiter carries its message, and the engine hands it to the node as soon as there is room: senders are
served in the order in which they came, a message that timed out was never sent, and nobody is woken in vain. Receivers
are woken one per batch and pass the wake-up on while there is more.

A delivered message stays in the node, where it occupies its sender's room, until a receiver takes the batch it came
with. That is what makes a slow application slow its peers down instead of filling memory.
"""

from __future__ import annotations

import os
import secrets
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import repeat
from threading import TIMEOUT_MAX, Lock
from time import monotonic
from types import TracebackType

import attrs
from attrs import define, field

from exon.addresses import Address, format_address
from exon.discovery import Discovery
from exon.engine import Engine
from exon.errors import Closed, ExonError, Timeout
from exon.events import Event, PeerRestarted
from exon.options import Options
from exon.peers import check_id
from exon.protocol import CloseReport, Node, check_payload
from exon.stats import NodeStats
from exon.store import ClockFile
from exon.udp import UdpSocket, resolve

_EVENTS = 1024  # kept for whoever asks; the oldest go first


def _parked() -> Lock:
    lock = Lock()
    lock.acquire()
    return lock


@define(eq=False)
class _Waiter:
    """A thread that waits, and for what."""

    peer: str = ""
    message: bytes = b""
    error: ExonError | None = None
    woken: bool = False
    _park: Lock = field(factory=_parked)

    def wait(self, deadline: float | None) -> None:
        """Sleep until woken or until the deadline."""
        if deadline is None:
            self._park.acquire()
        else:
            self._park.acquire(timeout=min(TIMEOUT_MAX, max(0.0, deadline - monotonic())))

    def wake(self, error: ExonError | None = None) -> None:
        """Go on, or fail."""
        self.woken = True
        self.error = error
        self._park.release()


class Endpoint:
    """A node of Exon on a real network.

    Args:
        id: The node's name, 1 to 255 bytes of UTF-8; peers know it by nothing else.
        bind: ``"host:port"``, or ``":port"`` for all interfaces; port 0 takes any free one.
        discovery: Asked for the addresses of peers nobody registered; see :class:`exon.Discovery`.
        clock: A file that keeps the node's clock across restarts. Without one every start begins a new life, in which
            nothing is mistaken for the old one either; the file only saves peers the trouble of finding that out.
        options: Limits and time-outs.
        socket: Opens the UDP socket, here and in :meth:`rebind`; for tests, see :func:`exon.simulation.lossy`.

    >>> with Endpoint("alice", bind="127.0.0.1:0") as alice, Endpoint("bob", bind="127.0.0.1:0") as bob:
    ...     alice.register("bob", f"127.0.0.1:{bob.address[1]}")
    ...     alice.send("bob", b"hello", timeout=5)
    ...     bob.recv(timeout=5)
    ('alice', b'hello')
    """

    def __init__(
        self,
        id: str,
        *,
        bind: str = ":0",
        discovery: Discovery | None = None,
        clock: str | os.PathLike[str] | None = None,
        options: Options | None = None,
        socket: Callable[[str], UdpSocket] = UdpSocket,
    ) -> None:
        """Running when constructed."""
        check_id(id)
        options = options if options is not None else Options()
        if not isinstance(options, Options):
            raise TypeError(f"options are exon.Options(name=value, ...), not {type(options).__name__}")
        self._clock_file = ClockFile(clock) if clock is not None else None
        with ExitStack() as undo:
            undo.callback(self._release_clock)
            udp = socket(bind)
            undo.callback(udp.close)
            self._start(id, udp, discovery, options)
            undo.pop_all()
        self._open_socket = socket

    def _start(self, node_id: str, udp: UdpSocket, discovery: Discovery | None, options: Options) -> None:
        # What the socket's buffer cannot hold is lost without any congestion, so no sender may have more on the way.
        room = min(options.receive_bytes, udp.receive_buffer // 2)
        node = Node(
            node_id,
            epoch=secrets.randbelow(2**63 - 1) + 1,
            secret=secrets.token_bytes(16),
            clock=self._clock_file.clock if self._clock_file is not None else None,
            options=attrs.evolve(options, receive_bytes=room),
        )
        self._node = node
        self._taken: deque[tuple[str, bytes]] = deque()
        self._receivers: deque[_Waiter] = deque()
        self._senders: dict[str, deque[_Waiter]] = {}
        self._events: deque[Event] = deque()
        self._watchers: list[_Waiter] = []
        self._closers: list[_Waiter] = []
        self._report: CloseReport | None = None
        self._final: NodeStats | None = None
        self._engine = Engine(node, udp, self._progress, self._keep_event, discovery)
        self._lock = self._engine.lock
        self._engine.on_fork = self._forked

    def _forked(self) -> None:
        """In the child of a fork(), the endpoint is its parent's: two processes must not use the same numbers."""
        self._node.abandon()
        if self._report is None:
            self._report = CloseReport(False, 0, 0, {})
        for waiting in (self._taken, self._receivers, self._senders, self._events, self._watchers, self._closers):
            waiting.clear()
        self._release_clock()  # the lock on the file stays with the parent

    @property
    def id(self) -> str:
        """The node's name."""
        return self._node.id

    @property
    def address(self) -> Address:
        """The local address; the host of a wildcard is ``"0.0.0.0"`` or ``"::"``."""
        return self._engine.udp.address

    # -- sending -----------------------------------------------------------------------------------------------------

    def send(self, node_id: str, payload: bytes, timeout: float | None = None) -> None:
        """Hand over a message, to be delivered exactly once.

        Returns as soon as the node has taken responsibility for it; waits while too much is on the way to this peer.

        Args:
            node_id: To whom; oneself is allowed.
            payload: ``bytes``, ``bytearray`` or ``memoryview``.
            timeout: Seconds to wait for room; None waits, 0 tries once.

        Raises:
            Timeout: There was no room in time. The message was not sent and never will be.
            Closed: The endpoint is closed.
            BadIdentifier, BadPayload, MessageTooLarge: The call can never work as it is.
        """
        message = check_payload(payload, self._node.options)
        if type(node_id) is not str:
            check_id(node_id)
        node, engine = self._node, self._engine
        with self._lock:
            if node_id not in self._senders and node.send(node_id, message, monotonic()):
                if node.pending(node_id) > 1:
                    engine.wake()  # something is on the way already: this joins what else is queued
                else:
                    engine.run_now()
                return
            if timeout is not None and timeout <= 0:
                raise Timeout(f"no room for another message to {node_id!r}; its receiver is slow or out of reach")
            waiter = _Waiter(node_id, message)
            self._senders.setdefault(node_id, deque()).append(waiter)
        self._await(waiter, None if timeout is None else monotonic() + timeout, self._cancel_send)
        if not waiter.woken:
            raise Timeout(f"no room for a message to {node_id!r} in {timeout} s; its receiver is slow or out of reach")
        if waiter.error is not None:
            raise waiter.error

    def _cancel_send(self, waiter: _Waiter) -> None:
        queue = self._senders[waiter.peer]
        queue.remove(waiter)
        if not queue:
            del self._senders[waiter.peer]
        else:
            self._engine.wake()  # what comes next may be smaller, and fit

    # -- receiving ---------------------------------------------------------------------------------------------------

    def recv(self, timeout: float | None = None) -> tuple[str, bytes]:
        """Take the next message.

        Args:
            timeout: Seconds to wait; None waits, 0 takes only what is here.

        Returns:
            The sender's id and the payload. What had arrived before a close can still be taken after it.

        Raises:
            Timeout: Nothing came in time; nothing was taken.
            Closed: The endpoint is closed and everything that had arrived is taken.
        """
        try:
            return self._taken.popleft()  # atomic, so no lock for all but one message of a batch
        except IndexError:
            pass
        deadline = None if timeout is None else monotonic() + timeout
        while True:
            with self._lock:
                taken = self._take()
                if taken is not None:
                    self._wake_receiver()
                    return taken
                if self._report is not None:
                    raise Closed(f"endpoint {self.id!r} is closed and every message that had arrived is taken")
                if deadline is not None and deadline <= monotonic():
                    raise Timeout(f"no message for {self.id!r} in {timeout} s")
                waiter = _Waiter()
                self._receivers.append(waiter)
            self._await(waiter, deadline, self._receivers.remove, self._wake_receiver)

    def _take(self) -> tuple[str, bytes] | None:
        while self._taken or self._take_batch():
            try:
                return self._taken.popleft()
            except IndexError:
                continue  # a thread that needed no lock was quicker
        return None

    def _take_batch(self) -> bool:
        """Move the next batch from the node to where receivers take single messages from."""
        node = self._node
        for peer, messages in node.deliveries():
            self._taken.extend(zip(repeat(peer), messages))
            if node.wants_to_send or peer in self._senders:
                self._engine.wake()  # to tell the sender that there is room again; it may be one of our own threads
            return True
        return False

    def _wake_receiver(self) -> None:
        if self._receivers and (self._taken or self._node.deliverable):
            self._receivers.popleft().wake()

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        """Messages as they come, until the endpoint is closed."""
        while True:
            try:
                yield self.recv()
            except Closed:
                return

    # -- waiting -----------------------------------------------------------------------------------------------------

    def _await(
        self,
        waiter: _Waiter,
        deadline: float | None,
        cancel: Callable[[_Waiter], None],
        pass_on: Callable[[], None] = lambda: None,
    ) -> None:
        """Park. Whoever leaves unwoken leaves no trace; whoever was woken and leaves all the same passes it on."""
        try:
            waiter.wait(deadline)
        except BaseException:  # KeyboardInterrupt arrives here
            with self._lock:
                if waiter.woken:
                    pass_on()
                else:
                    cancel(waiter)
            raise
        if not waiter.woken:
            with self._lock:
                if not waiter.woken:
                    cancel(waiter)

    # -- what the engine says, under its lock ------------------------------------------------------------------------

    def _progress(self) -> None:
        """Serve whoever waits."""
        node = self._node
        if self._senders:
            self._serve_senders()
        if self._receivers:
            self._wake_receiver()
        if self._closers and node.closed:
            for waiter in self._closers:
                waiter.wake()
            self._closers.clear()

    def _serve_senders(self) -> None:
        now = monotonic()
        for peer, queue in list(self._senders.items()):
            while queue:
                try:
                    if not self._node.send(peer, queue[0].message, now):
                        break
                    error = None
                except ExonError as refused:
                    error = refused
                queue.popleft().wake(error)
            if not queue:
                del self._senders[peer]

    def _keep_event(self, event: Event) -> None:
        """Keep it for whoever asks."""
        self._events.append(event)
        if len(self._events) > _EVENTS:
            # News of messages whose fate is unknown is the last thing to go: nobody else will tell.
            place = (at for at, old in enumerate(self._events) if not (isinstance(old, PeerRestarted) and old.unknown))
            del self._events[next(place, 0)]
        for waiter in self._watchers:
            waiter.wake()
        self._watchers.clear()

    # -- events ------------------------------------------------------------------------------------------------------

    def events(self, timeout: float | None = None) -> Iterator[Event]:
        """What happens to peers (moved, restarted, unreachable, ...), as it happens.

        Args:
            timeout: End when nothing happened for so many seconds; None goes on until the endpoint is closed, 0 gives
                what is here. The newest 1024 are kept for whoever asks late.
        """
        while True:
            deadline = None if timeout is None else monotonic() + timeout
            with self._lock:
                event = self._events.popleft() if self._events else None
                if event is None:
                    if self._report is not None or (deadline is not None and deadline <= monotonic()):
                        return
                    waiter = _Waiter()
                    self._watchers.append(waiter)
            if event is not None:
                yield event
                continue
            self._await(waiter, deadline, self._watchers.remove)
            if not waiter.woken:
                return

    # -- peers -------------------------------------------------------------------------------------------------------

    def register(self, node_id: str, address: str) -> None:
        """Say where a peer is, as ``"host:port"``. A host name is resolved now, which may take a moment.

        Raises:
            BadIdentifier, BadAddress: The id or the address can never work.
        """
        check_id(node_id)
        resolved = resolve(address, family=self._engine.udp.family)
        with self._lock:
            self._check_open()
            self._node.register(node_id, resolved)
            self._engine.wake()

    def unregister(self, node_id: str) -> None:
        """Take a registration back; no error if there was none."""
        with self._lock:
            self._node.unregister(node_id)

    def set_discovery(self, discovery: Discovery | None) -> None:
        """Ask another discovery service from now on; None asks nobody."""
        self._engine.set_discovery(discovery)

    def rebind(self, bind: str) -> None:
        """Move to another local address while everything goes on, as a change of network does.

        Raises:
            AddressInUse, BadAddress: It cannot be bound; the endpoint stays where it is.
            Closed: The endpoint is closed.
        """
        with self._lock:
            self._check_open()
        self._engine.rebind(self._open_socket(bind))

    # -- ending ------------------------------------------------------------------------------------------------------

    def close(self, timeout: float | None = None) -> CloseReport:
        """Deliver what was accepted, end every half-connection, and stop.

        Args:
            timeout: Seconds after which to give up; None takes the option ``close_timeout``, so that a dead peer
                cannot hold the process for ever.

        Returns:
            Whether everything went well, and what did not; closing again returns the same report.
        """
        deadline = monotonic() + (self._node.options.close_timeout if timeout is None else timeout)
        waiter = _Waiter()
        with self._lock:
            if self._report is not None:
                return self._report
            self._node.close()
            self._fail_senders()
            self._closers.append(waiter)
            self._engine.run_now()
        self._await(waiter, deadline, self._closers.remove)
        return self._finish()

    def _finish(self) -> CloseReport:
        with self._lock:
            first = self._report is None
            if self._report is None:
                self._final = self._statistics()
                self._report = self._node.report()
                for waiter in (*self._receivers, *self._watchers, *self._closers):
                    waiter.wake()
                self._receivers.clear()
                self._watchers.clear()
                self._closers.clear()
            report = self._report
        if first:
            self._engine.stop()
            self._release_clock()
        return report

    def _fail_senders(self) -> None:
        for queue in self._senders.values():
            for waiter in queue:
                waiter.wake(Closed(f"endpoint {self.id!r} was closed before there was room for the message"))
        self._senders.clear()

    def _release_clock(self) -> None:
        if self._clock_file is not None:
            self._clock_file.close()

    def _check_open(self) -> None:
        if self._node.closing:
            raise Closed(f"endpoint {self.id!r} is closed")

    def __enter__(self) -> Endpoint:
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close; at once if an exception is on its way, because what it left half done is better not waited for."""
        self.close(timeout=None if kind is None else 0)

    def __repr__(self) -> str:
        """Who and where."""
        return f"<exon.Endpoint {self.id!r} at {format_address(self.address)}>"

    # -- looking in --------------------------------------------------------------------------------------------------

    def stats(self) -> NodeStats:
        """Everything counted so far, and the present state in numbers; after a close, how it was then."""
        with self._lock:
            return self._final if self._final is not None else self._statistics()

    def _statistics(self) -> NodeStats:
        stats = self._node.stats()
        udp = self._engine.udp
        dropped = dict(stats.dropped)
        dropped |= {f"send {name}": count for name, count in udp.dropped.items()}
        dropped |= {f"receive {name}": count for name, count in udp.receive_errors.items()}
        if self._engine.errors:
            dropped["internal error"] = self._engine.errors
        return attrs.evolve(stats, dropped=dropped)
