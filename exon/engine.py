"""Who drives a protocol node over a UDP socket, and when.

Everything that can go wrong is decided in :mod:`exon.protocol`; here is only *when* it is called. One lock guards the
node. It is held for the work of one batch and never across a system call that can block: the socket is non-blocking,
name look-ups have threads of their own (:mod:`exon.discovery`), and waiting happens outside.

Whoever changes the node under the lock either lets the engine send at once (*caller runs*: on an idle path this saves a
hand-over to another thread) or wakes it. Nothing waits to be batched: batches form because messages queue while the
engine is busy.

A thread of the application that has to wait anyway does the engine's work meanwhile (*leader*: :meth:`Engine.begin`,
:meth:`Engine.turn`, :meth:`Engine.end`), which saves two hand-overs in every round trip. There is one leader at a time;
other threads sleep until it wakes them. The engine's own thread stays out of the way while the application drives: it
looks in every millisecond, sleeps for good while the same leader goes on waiting, and takes over as soon as nobody has
driven for a while. So a message that nobody waits for is delayed by a millisecond at the most, and a node that is idle
makes no system call before its next deadline.

Nothing ends the thread but :meth:`Engine.stop`. A datagram that makes the protocol raise is counted and dropped; an
exception anywhere else is logged and counted, and the loop goes on after a short pause, so that a fault that repeats
does not take the whole processor.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from math import ceil
from threading import Event as Flag
from threading import Lock, Thread, get_ident
from time import monotonic
from typing import Protocol

from exon import forks
from exon.addresses import Address
from exon.discovery import Discovery, Lookups
from exon.errors import Closed
from exon.events import DuplicateId, Event, LookupWanted
from exon.log import log
from exon.udp import UdpSocket, resolve

_TRAIN = 64  # datagrams handed to the kernel at a time
_READS = 32  # system calls in a row that only receive what had come to an address that is given up
_TAKEN = 256 * 1024  # bytes taken in a row: timers run under continuous traffic too, and answers keep it flowing
_FEWEST = 4096  # bytes that any system call counts
_ALONE = 4096  # bytes: a datagram that is smaller and no part of a train is often the only one
_LOOK_AGAIN = 8  # such datagrams until it is found out again whether they are
_PAUSE = 0.01  # seconds after an exception of our own
_LAST_LOOKS = 1000
_LOOK_IN = 0.001  # seconds between two looks at whether the application still drives
_LONGEST_SLEEP = 3600.0  # seconds; poll() refuses more than 24 days, and a deadline may be years away
_READABLE = select.POLLIN | select.POLLERR | select.POLLHUP


def _milliseconds(seconds: float) -> int:
    """How long to poll. Rounded up, or the last fraction of a millisecond would be spent in a loop."""
    if seconds <= 0.0:
        return 0
    return ceil(seconds * 1000) if seconds < _LONGEST_SLEEP else int(_LONGEST_SLEEP * 1000)


class Driven(Protocol):
    """What an engine drives: an Exon node, or anything that sits on one and has the same verbs."""

    @property
    def id(self) -> str:
        """The node's name."""

    def receive(self, datagram: bytes, source: Address, now: float) -> None:
        """A datagram came."""

    def receive_some(self, train: Sequence[tuple[bytes, Address]], at: int, now: float) -> int:
        """Several datagrams came: take the one ``at`` this place, and those that go with it; how many they were."""

    def datagrams(self, now: float) -> Iterator[tuple[Address, bytes]]:
        """Everything that wants to leave now."""

    @property
    def wants_to_send(self) -> bool:
        """Whether :meth:`datagrams` may have something."""

    def deadline(self) -> float | None:
        """When to call :meth:`expire` at the latest."""

    def expire(self, now: float) -> None:
        """Time has passed."""

    @property
    def eventful(self) -> bool:
        """Whether :meth:`events` may have something."""

    def events(self) -> Iterator[Event]:
        """What happened."""

    def located(self, peer_id: str, address: Address | None) -> None:
        """The answer to a look-up."""

    def moved(self) -> None:
        """The node has another address now."""

    @property
    def closing(self) -> bool:
        """Whether it was closed."""

    @property
    def closed(self) -> bool:
        """Whether it was closed, and everything that takes is done."""


class Engine:
    """One node, one socket, one thread. ``lock`` guards ``node``; hold it for every use of either."""

    def __init__(
        self,
        node: Driven,
        udp: UdpSocket,
        progress: Callable[[], None],
        tell: Callable[[Event], None],
        discovery: Discovery | None = None,
    ) -> None:
        """Start driving.

        ``progress()`` is called when messages may have come, or room to send; ``tell(event)`` when something happened
        to a peer. Both are called with the lock held, so they are short and never block.
        """
        self.node = node
        self.udp = udp
        self.lock = Lock()
        self.errors = 0
        self._progress = progress
        self._tell = tell
        self._lookups = Lookups(self._found, discovery)
        self._unsent: Sequence[tuple[Address, bytes]] = ()
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        # One for the thread, one for leaders: such an object serves one thread at a time.
        self._polls = select.poll(), select.poll()
        self._watch(udp)
        for poll in self._polls:
            poll.register(self._wake_read, select.POLLIN)
        self._leader: int | None = None  # the thread of the application that is
        self._stints = 0  # how often such a thread did the engine's work
        self._seen = 0  # how often, when the engine's thread last looked
        self._polling = False  # whether the engine's thread waits for datagrams
        self._parked = False  # whether it sleeps until the leader leaves
        self._park = Lock()
        self._park.acquire()
        self._asleep = False
        self._called = False  # by wake(), since the leader's turn began
        self._alone = 0  # datagrams in a row that were taken for the only one; -1 if the last one was not
        self._wakes_at: float | None = None
        self._stopping = False
        self._stopped = Flag()
        self._released = False
        self.on_fork: Callable[[], None] = lambda: None  # called in the child of a fork()
        self._thread = Thread(target=self._run, name=f"exon {node.id}", daemon=True)
        try:
            self._thread.start()
        except BaseException:
            self._release()
            raise
        forks.register(self)

    # -- for the layer above -----------------------------------------------------------------------------------------

    def run_now(self, read: bool = False, apart: bool = False) -> None:
        """Let the caller do the engine's work: send what can leave, and with ``read`` take in what has come before.

        With the lock held; with ``apart`` it is released meanwhile.
        """
        try:
            if read:
                self._stints += 1
                self._read(until_dry=True)
            self._flush(monotonic(), apart)
        except Exception:  # not the caller's fault, and what the caller did is done: the engine goes on with the rest
            self._count_error("engine-error")
            self.wake()
        else:
            if self._asleep:
                self._wake_for_deadline()

    def begin(self) -> bool:
        """Make the caller the leader, who calls :meth:`turn` until it has what it waits for, and then :meth:`end`.

        With the lock held. False if there is a leader already, or the engine has stopped.
        """
        me = get_ident()
        # An exception out of a signal handler may have kept this very thread from calling end().
        if self._stopping or self._leader not in (None, me):
            return False
        self._leader = me
        return True

    def turn(self, deadline: float | None) -> bool:
        """Send what can leave, sleep until something comes or the deadline is there, and take in what came.

        With the lock held, which is released meanwhile. Only for the leader. False when the engine has stopped.
        """
        self._stints += 1
        self._called = False
        node = self.node
        now = monotonic()
        due = node.deadline()
        if node.wants_to_send or self._unsent or (due is not None and due <= now):
            try:
                self._flush(now, apart=True)
            except Exception:
                self._count_error("engine-error")
            if self._called or self._stopping:  # while the lock was released, or by what was delivered here
                return not self._stopping
            due = node.deadline()
            now = monotonic()
        self._asleep = True
        self._wakes_at = due
        if deadline is not None and (due is None or deadline < due):
            due = deadline
        timeout = None if due is None else _milliseconds(due - now)
        datagrams: Sequence[tuple[bytes, Address]] = ()
        self.lock.release()
        try:
            ready = self._polls[1].poll(timeout)
            if ready == self._data_came:
                datagrams = self._receive_apart()
                now = monotonic()
        finally:
            self.lock.acquire()
            self._asleep = False
        if self._stopping:
            return False
        try:
            if datagrams:
                self._receive(datagrams, now)
                if not self._seems_alone(datagrams):
                    self._read(number=1)
                node.expire(now)
            else:
                self._take_in(ready)
        except Exception:
            self._count_error("engine-error")
        return True

    def _receive_apart(self) -> Sequence[tuple[bytes, Address]]:
        with suppress(Closed):  # rebind() was quicker
            return self.udp.receive()
        return ()

    def end(self) -> None:
        """Be the leader no longer. With the lock held."""
        self._leader = None
        if self._parked:
            self._parked = False
            self._park.release()
        elif self._polling:  # since before there was a leader, and it does not know what has become due
            self._asleep = True
            self.wake()

    def wake(self) -> None:
        """There is something to send; the engine will. With the lock held."""
        self._called = True
        if self._asleep:
            self._asleep = False
            with suppress(BlockingIOError):  # the pipe is full: it will wake up
                os.write(self._wake_write, b"\0")

    def interrupt(self) -> None:
        """Let whoever polls look up, from wherever this is called: it needs no lock."""
        with suppress(OSError):  # full, or closed
            os.write(self._wake_write, b"\0")

    def rebind(self, udp: UdpSocket) -> None:
        """Go on with another socket; the old one is closed."""
        with self.lock:
            if self._stopping:
                udp.close()
                raise Closed("the endpoint is closed")
            old, self.udp = self.udp, udp
            udp.dropped.update(old.dropped)
            udp.receive_errors.update(old.receive_errors)
            for poll in self._polls:
                poll.unregister(old.fileno())
            self._watch(udp)
            self._unsent = ()
            self.node.moved()
            # Whatever the kernel had accepted on the old address is still good.
            for _ in range(_READS):
                datagrams = old.receive()
                if not datagrams:
                    break
                self._receive(datagrams, monotonic())
            old.close()
            self._asleep = True  # a poll under way may still look at the old socket
            self.wake()

    def _watch(self, udp: UdpSocket) -> None:
        for poll in self._polls:
            poll.register(udp.fileno(), select.POLLIN)
        self._descriptor = udp.fileno()
        self._data_came = [(self._descriptor, select.POLLIN)]  # what poll() says nearly always

    def set_discovery(self, discovery: Discovery | None) -> None:
        """Ask another service from now on."""
        self._lookups.service = discovery

    def stop(self) -> None:
        """End the thread and close the socket."""
        with self.lock:
            self._stopping = True
            self._asleep = True
            self.wake()
            if self._parked:
                self._parked = False
                self._park.release()
        if get_ident() != self._thread.ident:
            self._stopped.wait()

    # -- the loop ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        timeout: float | None = 0.0
        try:
            while not self._stopping:
                try:
                    timeout = self._turn(timeout)
                except Exception:
                    self._count_error("engine-error")
                    self._stopped.wait(_PAUSE)
                    timeout = 0.0
                if self._leader is not None or self._stints != self._seen:
                    self._stay_out()
                    timeout = 0.0
        finally:
            for _ in range(_LAST_LOOKS):  # a leader that is on its way out must not poll what is closed
                if self._leader is None:
                    break
                self._park.acquire(timeout=_LOOK_IN)
            with self.lock:
                self._release()
            self._stopped.set()

    def _release(self) -> None:
        if self._released:
            return
        self._released = True
        self.udp.close()
        os.close(self._wake_read)
        os.close(self._wake_write)
        self._asleep = False

    def renew_locks(self) -> None:
        """In the child of a fork(), the thread that held the lock may not exist."""
        forks.renew(self.lock)

    def abandon(self) -> None:
        """In the child of a fork() there is no engine thread, and what it had is the parent's."""
        self._stopping = True
        self._leader = None
        self._release()
        self._stopped = Flag()
        self._stopped.set()
        self.on_fork()

    def _turn(self, timeout: float | None) -> float | None:
        """Wait, read, work, send; how long to wait next time."""
        ready = self._polls[0].poll(None if timeout is None else _milliseconds(timeout))
        with self.lock:
            self._polling = False
            if self._leader is not None or self._stopping:
                return 0.0  # the leader has been woken, too
            self._asleep = False
            more = self._take_in(ready)
            now = monotonic()
            self._flush(now)
            if more or self._stints != self._seen:
                return 0.0
            self._polling = True
            return self._sleep_time(now)

    def _stay_out(self) -> None:
        """Do nothing for as long as threads of the application drive."""
        stint = -1
        while not self._stopping:
            with self.lock:
                self._polling = False
                if self._leader is None and stint == self._stints:
                    break
                self._parked = self._leader is not None and stint == self._stints
                stint, parked = self._stints, self._parked
            self._park.acquire(timeout=-1 if parked else _LOOK_IN)
        self._seen = self._stints

    def _take_in(self, ready: Sequence[tuple[int, int]]) -> bool:
        """Take in what has come, as poll() says, up to the sockets; whether there may be more."""
        if ready == self._data_came:
            return self._take_in_data()
        more = False
        for descriptor, what in ready:
            if descriptor == self._wake_read:
                self._drain_wakes()
            elif descriptor == self._descriptor and what & _READABLE:
                more = self._take_in_data()
        return more

    def _take_in_data(self) -> bool:
        more = self._read()
        self.node.expire(monotonic())
        return more

    def _read(self, *, until_dry: bool = False, number: int = 0) -> bool:
        """Take in what has arrived, after so many that have been; whether there may be more."""
        taken = 0
        while taken < _TAKEN:
            datagrams = self.udp.receive()
            if not datagrams:
                self._alone = -1 if number > 1 else 0
                return False
            number += 1
            taken += _FEWEST + sum([len(datagram) for datagram, _ in datagrams])
            # Not the time before the first: what came while others were worked on would seem to have come earlier, and
            # the shortest round trip shorter than it is.
            self._receive(datagrams, monotonic())
            if number == 1 and not until_dry and self._seems_alone(datagrams):
                return True
        return True

    def _seems_alone(self, datagrams: Sequence[tuple[bytes, Address]]) -> bool:
        """Whether there will be no more than these, so that looking for more is not worth it.

        Where there is little traffic, to be told that there is no more costs as much as a poll; where there is much, a
        turn for each datagram costs more than the datagrams.
        """
        if self._alone < 0 or len(datagrams) > 1 or len(datagrams[0][0]) >= _ALONE:
            return False
        self._alone += 1
        return self._alone < _LOOK_AGAIN

    def _receive(self, datagrams: Sequence[tuple[bytes, Address]], now: float) -> None:
        at = 0
        while at < len(datagrams):
            datagram, source = datagrams[at]
            try:
                if len(datagrams) == 1:
                    self.node.receive(datagram, source, now)
                    return
                at += self.node.receive_some(datagrams, at, now)
            except Exception:
                self._count_error("datagram-error", source=source, datagram=datagram[:64].hex())
                at += 1

    def _flush(self, now: float, apart: bool = False) -> None:
        """Let time pass for the node, tell the layer above, send everything that may leave.

        System calls let other threads run. So as not to have them wait for the lock then, it is released ``apart`` from
        the work on the node.
        """
        node = self.node
        node.expire(now)
        self._progress()
        if not self._unsent or self._send(self._unsent):
            leaving = node.datagrams(now)
            while batch := list(islice(leaving, _TRAIN)):
                if apart and len(batch) < _TRAIN:  # these are all
                    self._send_apart(batch)
                    break
                if not self._send(batch) or len(batch) < _TRAIN:
                    break
        if node.closing and node.closed:
            self._progress()  # the last probe of a close left just now, and nothing else need come to pass
        if node.eventful:
            self._pass_events()

    def _pass_events(self) -> None:
        node = self.node
        for event in node.events():
            if isinstance(event, DuplicateId):
                log.warning("duplicate-id", node=node.id, peer=event.peer, addresses=event.addresses)
            if isinstance(event, LookupWanted):
                self._lookups.ask(event.peer)
            else:
                self._report(event)

    def _send(self, batch: Sequence[tuple[Address, bytes]]) -> bool:
        """Hand datagrams to the kernel; False when it is full and the rest has to wait."""
        unsent = batch[self.udp.send(batch) :]
        if unsent or self._unsent:
            self._keep(unsent)
        return not unsent

    def _send_apart(self, batch: Sequence[tuple[Address, bytes]]) -> None:
        udp, sent = self.udp, len(batch)
        self.lock.release()
        try:
            with suppress(Closed):  # by rebind(), and they are lost with it
                sent = udp.send(batch)
        finally:
            self.lock.acquire()
        if sent < len(batch):
            self._keep([*self._unsent, *batch[sent:]])

    def _keep(self, unsent: Sequence[tuple[Address, bytes]]) -> None:
        """Send these as soon as the kernel has room."""
        if bool(unsent) != bool(self._unsent):
            for poll in self._polls:
                poll.modify(self._descriptor, select.POLLIN | select.POLLOUT if unsent else select.POLLIN)
        self._unsent = unsent

    def _report(self, event: Event) -> None:
        try:
            self._tell(event)
        except Exception:
            self._count_error("event-handler-error", told=event)

    def _count_error(self, kind: str, **where: object) -> None:
        """A fault of ours: count each, log the 1st, 2nd, 4th, ... only, because one fault may show a million times."""
        self.errors += 1
        if not self.errors & (self.errors - 1):
            log.exception(kind, node=self.node.id, count=self.errors, **where)

    def _sleep_time(self, now: float) -> float | None:
        self._asleep = True
        deadline = self.node.deadline()
        self._wakes_at = deadline
        return None if deadline is None else deadline - now

    def _wake_for_deadline(self) -> None:
        """After the caller did the engine's work: does the thread sleep too long now?"""
        deadline = self.node.deadline()
        if self._unsent or (deadline is not None and (self._wakes_at is None or deadline < self._wakes_at)):
            self.wake()

    def _drain_wakes(self) -> None:
        with suppress(BlockingIOError):
            while os.read(self._wake_read, 4096):
                pass

    # -- discovery ---------------------------------------------------------------------------------------------------

    def _found(self, peer: str, answer: str | None) -> None:
        """A look-up is over; called in a thread of its own."""
        address = resolve(answer, family=self.udp.family) if answer is not None else None
        with self.lock:
            if not self._stopping:
                self.node.located(peer, address)
                self.wake()
