"""The four loops that are measured: send, receive, ask, reply. The same for every library.

Nothing is done for a message that can be done for many, and no call has a time-out: whoever started a loop in a thread
looks whether its :class:`Watch` moves, and closes the socket under it if not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from math import ceil
from time import monotonic
from typing import Any

import attrs
from attrs import Factory, define, frozen

from a3m.perf.numbered import END, MOST_AT_ONCE, Account, Tally, cycle_of, in_batches
from a3m.perf.spec import Spec

_FEW = 100  # messages between two looks at the clock, which would be seen for the fastest
_FEW_BYTES = 20_000
_MANY_BYTES = 1_000_000
_SAMPLES = 1_000_000  # round trips that are kept; of more, every second, fourth and so on


@define
class Watch:
    """How a loop is doing."""

    count: int = 0
    """Grows while it gets on."""


def messages_at_once(spec: Spec) -> int:
    """Messages between two looks at the clock, or in one call."""
    if spec.many:
        return max(1, min(MOST_AT_ONCE, _MANY_BYTES // spec.size))
    return max(1, min(_FEW, _FEW_BYTES // spec.size))


# -- one way ---------------------------------------------------------------------------------------------------------


def send_all(socket: Any, spec: Spec, watch: Watch, before_the_end: Callable[[], None]) -> int:
    """Send as fast as is possible for as long as the spec says, then :data:`END`; how many messages."""
    sent = 0
    send = socket.send
    batches = in_batches(cycle_of(spec.size), messages_at_once(spec))
    until = monotonic() + spec.warm_up + spec.seconds
    for batch in batches:
        if spec.many:
            unsent = batch
            while unsent:  # what goes wrong after some were sent is said by the next call
                unsent = unsent[socket.send_many(unsent) :]
        else:
            for message in batch:
                send(message)
        watch.count = sent = sent + len(batch)
        if monotonic() >= until:
            break
    before_the_end()
    send(END)
    return sent


@frozen
class Received:
    """What came, and how fast."""

    account: Account
    rate: float
    """Messages per second in the window after the warm-up."""
    seconds: float
    """Of the window."""

    def as_dict(self) -> dict[str, Any]:
        """As plain data, to be sent."""
        return attrs.asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Received:
        """What was sent."""
        return cls(Account(**data["account"]), data["rate"], data["seconds"])


def receive_all(socket: Any, spec: Spec, watch: Watch, drain: Callable[[Any], list[bytes]]) -> Received:
    """Receive until :data:`END`, and what ``drain`` finds after it."""
    tally = Tally(cycle_of(spec.size))
    take = _taker(socket, spec)
    start = monotonic()
    tally.take(take(1))
    begin = now = monotonic()
    watch.count = before = tally.received
    in_window = 0
    warm, over = spec.warm_up == 0, False
    while messages := take(messages_at_once(spec)):
        tally.take(messages)
        watch.count = tally.received
        if over:
            continue  # it was under way when the window closed
        now = monotonic()
        in_window = tally.received - before
        if warm:
            over = now >= begin + spec.seconds
        elif now >= begin + spec.warm_up:
            begin, before, in_window, warm = now, tally.received, 0, True
    if not warm or not in_window:  # it was over before the warm-up, or with it: better a low figure than none
        begin, in_window = start, tally.received
    tally.take_late(drain(socket))
    seconds = now - begin
    return Received(tally.account(), in_window / seconds if seconds else 0.0, seconds)


def _taker(socket: Any, spec: Spec) -> Callable[[int], list[bytes]]:
    """A function that takes so many messages, fewer if END is among them, and none after it."""
    if not spec.many:
        stream = iter(socket.recv, END)
        return lambda count: list(islice(stream, count))
    ended = False

    def take(count: int) -> list[bytes]:
        nonlocal ended
        if ended:
            return []
        messages: list[bytes] = socket.recv_many(count)
        if messages[-1] == END:
            ended = True
            messages.pop()
        return messages

    return take


# -- there and back --------------------------------------------------------------------------------------------------


@define
class Samples:
    """How long round trips took, up to a number of them.

    >>> samples = Samples(most=4)
    >>> for number in range(1, 10):
    ...     samples.add(number)
    >>> samples.count, samples.kept
    (9, [2, 4, 6, 8])
    """

    most: int = _SAMPLES
    count: int = 0
    kept: list[float] = Factory(list)
    _stride: int = 1

    def add(self, seconds: float) -> None:
        """One more; when there are too many, every second one goes."""
        self.count += 1
        if self.count % self._stride == 0:
            self.kept.append(seconds)
            if len(self.kept) > self.most:
                del self.kept[::2]
                self._stride *= 2


@frozen
class Asked:
    """What one client has to say."""

    requests: int
    replies: int
    """Those that were what was asked for."""
    rate: float
    samples: Samples


def ask_all(socket: Any, spec: Spec, watch: Watch) -> Asked:
    """Ask, wait for the reply, and ask again, for as long as the spec says."""
    send, recv = socket.send, socket.recv
    samples = Samples(_SAMPLES // spec.clients)
    requests = replies = 0
    begin = first = monotonic()
    warm = begin + spec.warm_up
    until = warm + spec.seconds
    cycle = cycle_of(spec.size)
    while True:
        message = cycle[requests % len(cycle)]
        requests += 1
        send(message)
        reply = recv()
        end = monotonic()
        if reply == message:
            replies += 1
        watch.count += 1
        if begin >= warm:
            if not samples.count:
                first = begin
            samples.add(end - begin)
            if end >= until:
                return Asked(requests, replies, samples.count / (end - first), samples)
        begin = end


def reply_all(socket: Any, watch: Watch) -> int:
    """Send every request back until :data:`END` comes; how many came before."""
    send = socket.send
    for request in iter(socket.recv, END):
        watch.count += 1
        send(request)
    return watch.count


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest figure that is at least as large as that share of them.

    >>> percentile([1, 2, 3, 4], 0.5), percentile([1, 2, 3, 4], 0.99)
    (2, 4)
    """
    return ordered[max(0, ceil(share * len(ordered)) - 1)]
