"""How many messages make up a run: consecutive ones of a link that travel as one message of the transport.

A run that is larger than a datagram travels in fragments, and arrives when the last of them does. Where loss is cheap
to mend, and nothing but the cost of a run counts, runs are as long as the largest datagram. Elsewhere they are no
longer than what the path carries in one (:meth:`exon.protocol.Node.message_budget`): a lost datagram then delays what
is in it, and not dozens of messages that have arrived, and the receiver holds no half of anything.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

from a3m.flow import Item, Outgoing
from a3m.payload import size_of

RUN_BYTES = 60_000  # the most in a run, about one large datagram; a larger message is a run of its own
RUN_HEADER = 32  # bytes of a run besides its messages, on a link that both ends know to be established
_RUN_MESSAGES = 4096
_ITEM = 12  # bytes that a message takes in a run besides its own, at the most


def run_length(outgoing: Outgoing, most: int) -> int:
    """How many messages make up the next run: about a datagram's worth."""
    queue = outgoing.queue
    if len(queue) == 1:
        return 1
    if outgoing.mixed:
        return _mixed_run_length(queue, most)
    if len(queue[0]) + len(queue[1]) + 2 * _ITEM > most:
        return 1
    # Twice as many as would fit if all were like the first and the last of them: usually enough to find the end.
    some = queue[: min(_RUN_MESSAGES, 2 * most // (_ITEM + (len(queue[0]) + len(queue[-1])) // 2) + 2)]
    if sum(map(len, some)) + _ITEM * len(some) <= most:
        return len(some)
    sizes = list(accumulate(map(len, some)))
    return max(1, bisect_right(range(len(some)), most, key=lambda last: sizes[last] + _ITEM * (last + 1)))


def _mixed_run_length(queue: list[Item], most: int) -> int:
    size = 0
    for number, item in enumerate(queue[:_RUN_MESSAGES]):
        size += _ITEM + (len(item) if type(item) is bytes else size_of(item))
        if size > most:
            return max(1, number)
    return min(len(queue), _RUN_MESSAGES)
