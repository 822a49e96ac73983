"""Messages that pass a socket's threads without its lock.

Taking a lock costs more than everything else that a message needs on its way, so most messages do without:

* ``send()`` puts a message into the *lane*, a list, and returns. That is allowed while something is on the way already,
  so that whoever hears of its arrival empties the lane, and as long as the credits of the links last. The message that
  finds the lane full, or the path idle, takes the lock and all others with it.
* ``recv()`` takes a message out of a *batch* that some thread has borrowed from the links, with the lock. Whoever takes
  the last one gives their credits back. So no more than the capacity is ever here, in links and batch together.

What makes it safe is that lists and deques of CPython change in one step. Two threads may find the same room at the
same time, and the lane may be closed (``limit`` is 0) between a look and the next step. So a sender looks again *after*
it has put its message in, and if there is more in the lane than it may hold, takes the lock, and its message out again.
The lane is closed *before* it is emptied: either whoever empties it sees the message, or the sender sees that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from itertools import islice
from operator import countOf
from typing import Any

from a3m.flow import Item
from a3m.link import Link
from a3m.payload import OVERHEAD, Payload
from a3m.socket_core import MESSAGE_COST, WOULD_BLOCK, SocketCore
from a3m.stats import SocketStats

BATCH = 60_000  # bytes that are worth a large datagram
LANE = 4 * BATCH  # bytes that are worth taking the lock, as far as the last message tells how large they are
SMALL = 12 * 1024  # bytes; larger messages take the lock, so a lane is never large


class Lanes(SocketCore):
    """What a socket that threads share adds to its pattern."""

    def __init__(self, *args: Any, **options: Any) -> None:
        """Nothing is on the way."""
        super().__init__(*args, **options)
        kind = type(self)
        self._lane: list[Any] = []
        self._limit = 0  # how many messages the lane may hold; 0 while it is closed
        self._small = min(SMALL, self.core.transport.options.max_message - OVERHEAD)
        self._typical = MESSAGE_COST  # what a message counts
        self._batch: deque[Any] = deque()
        self._lenders: list[Link] = []  # whose turn it was, is next, and so on
        self._borrowed: list[Item] = []  # what the batch was made of, as far as it is not repaid
        # Where there are no threads there is nothing to gain. A pattern that does something of its own with every
        # message sees every message; and one that we do not know may push() to links, past what is in the lane.
        threads = self.core.driver is not None
        self._lane_serves = (
            threads
            and kind.__module__.startswith("a3m.")
            and kind.sends
            and kind.prepare is SocketCore.prepare
            and kind.try_send is Lanes.try_send
            and kind.route is SocketCore.route
            and kind.can_send_now is Lanes.can_send_now
        )
        self._batch_serves = (
            threads
            and kind.receives
            and kind.try_receive is Lanes.try_receive
            and kind.on_message is SocketCore.on_message
            and kind.present.__module__.startswith("a3m.")  # which never raises
        )

    # -- sending -----------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Close the lane, and give what is in it to the links."""
        self._limit = 0
        lane = self._lane
        if lane:
            self._typical = len(lane[-1]) + MESSAGE_COST
            del lane[: self.push_many(lane[:])]

    def open_lane(self) -> bool:
        """Let messages into the lane while something is on the way and there is room; whether it is of use now."""
        room, full = 0, LANE // self._typical
        if not self._lane and not self.closed:
            flowing = self.core.transport.flowing
            for link in self._sendable:
                if link.outgoing is not None and link.can_send:
                    if not flowing(link.peer.node):  # it could have a message now, and nobody will ask for one
                        room = 0
                        break
                    room += link.outgoing.credits
                    if room >= full:
                        break
        self._limit = min(room, full)
        return self._limit > 0 or bool(self._lane)

    def try_send(self, item: Any) -> Any:
        """Send now, after what is in the lane, or answer :data:`WOULD_BLOCK`."""
        self.settle()
        if self._lane or super().try_send(item) is WOULD_BLOCK:
            return WOULD_BLOCK
        if self._lane_serves and self.open_lane():
            self.core.lanes[self] = None
        return None

    def prepare_many(self, payloads: Iterable[Payload]) -> tuple[list[Item], bool]:
        """Payloads as they travel, and whether they can be sent many at a time: if they are small and plain."""
        items = list(payloads)
        plain = self._lane_serves and countOf(map(type, items), bytes) == len(items)
        if plain and max(map(len, items), default=0) <= self._small:
            return items, True
        return [self.prepare(payload) for payload in items], False

    def try_send_many(self, items: list[bytes]) -> int:
        """Send plain messages, from the first one on, as many as there is room for; how many."""
        self.settle()
        return 0 if self._lane else self.push_many(items)

    def withdraw(self, message: Any) -> bool:
        """A message got into a lane that was full, or being closed; whether it had to be taken out again."""
        self.settle()
        if message not in self._lane:
            return False  # it found a link after all; or another one that is the same was taken out in its place
        self._lane.remove(message)
        return True

    def discard_held(self) -> int:
        """Messages that came just when the last link went, of a socket that is closed now."""
        held = len(self._lane)
        del self._lane[:held]
        return held

    def can_send_now(self) -> bool:
        """Whether there is credit that no message in the lane needs."""
        self.settle()
        return not self._lane and super().can_send_now()

    # -- receiving ---------------------------------------------------------------------------------------------------

    def try_receive(self) -> Any:
        """Receive now, or answer :data:`WOULD_BLOCK`."""
        if not self._batch_serves:
            return super().try_receive()
        batch = self._batch
        while batch or self._borrow():
            try:
                message = batch.popleft()
            except IndexError:
                continue  # a thread that needed no lock was quicker
            if not batch:
                self.repay()
            return message
        return super().try_receive()

    def try_receive_many(self, most: int) -> list[Any]:
        """What can be taken at a time of a single link with messages, perhaps nothing. Others are taken one by one."""
        self.unborrow()
        if not self._batch_serves or len(self._readable) != 1:
            return []
        link = self._readable[0]
        assert link.incoming is not None
        queue = link.incoming.queue
        items = list(islice(queue, most))
        if len(items) == len(queue):
            queue.clear()
            self._readable.popleft()
            self._unread.discard(link)
        else:
            rest = list(islice(queue, most, None))
            queue.clear()
            queue.extend(rest)
        self.give_back(link, len(items))
        return [*self.present_many([link], items)]

    def try_receive_some(self, most: int) -> Any:
        """What is here, ``most`` messages at the most, or :data:`WOULD_BLOCK`.

        If a pattern raises, then with the first message or not at all: what was taken before it is not to be lost. The
        next call finds out again what is wrong.
        """
        taken = self.try_receive_many(most)
        try:
            while len(taken) < most and (not taken or self.can_receive_now()):
                message = self.try_receive()
                if message is WOULD_BLOCK:
                    break
                taken.append(message)
        except Exception:
            if not taken:
                raise
        return taken or WOULD_BLOCK

    def take(self) -> Any:
        """The next message as ``(link, item)``, each link in turn."""
        if self._borrowed:
            self.unborrow()
        return SocketCore.take(self)

    def _borrow(self) -> bool:
        self.repay()
        links, items = self.borrow()
        if not items:
            return False
        self._lenders, self._borrowed = links, items
        self._batch.extend(self.present_many(links, items))
        return True

    def present_many(self, links: list[Link], items: list[Item]) -> Iterable[Any]:
        """What the application gets of messages, the first one of the first link, and around and around."""
        plain = not any(link.incoming is None or link.incoming.mixed for link in links)
        if plain and type(self).present is SocketCore.present:
            return items
        number = len(links)
        return [self.present(links[at % number], item) for at, item in enumerate(items)]

    def repay(self) -> None:
        """Give back the credits of what was taken out of the batch."""
        self._repay(len(self._borrowed) - len(self._batch))

    def _repay(self, taken: int) -> None:
        if not taken:
            return
        number = len(self._lenders)
        for at, link in enumerate(self._lenders):
            share = (taken - at + number - 1) // number
            if share > 0:
                self.give_back(link, share)
        turn = taken % number
        self._lenders = self._lenders[turn:] + self._lenders[:turn]
        del self._borrowed[:taken]

    def unborrow(self) -> None:
        """Put what nobody has taken out of the batch back where it was."""
        batch, left = self._batch, 0
        with suppress(IndexError):
            while True:
                batch.pop()  # the last one, because others take the first
                left += 1
        self._repay(len(self._borrowed) - left)
        if left:
            number = len(self._lenders)
            for at, link in reversed([*enumerate(self._lenders)]):
                self.return_unused(link, self._borrowed[at::number])
            self._borrowed = []

    def abandon(self) -> None:
        """Be closed, and have nothing: what is here belongs to another process."""
        super().abandon()
        self._limit = 0
        self._lane.clear()
        self._batch.clear()
        self._borrowed, self._lenders = [], []

    def statistics(self) -> SocketStats:
        """The socket in numbers."""
        self.settle()
        self.unborrow()
        return super().statistics()

    def can_receive_now(self) -> bool:
        """Whether a message is here."""
        return bool(self._batch) or super().can_receive_now()
