"""What became of the messages that a node accepted: for its statistics, and for the report of its close.

The invariant: **for every link, what was accepted for it and does not reach the application of the peer is counted**,
as given up (it never left) or as unknown (it left). What is counted may arrive all the same; what is not counted does.

That the transport has had an acknowledgement is not enough for that. It says that a message reached the peer's *node*,
which takes it only while the link exists there, and, where order was promised, only after everything before it. How a
link ends decides what is known:

* *By force, from either side, or because the peer lost its memory.* The peer drops what comes later, and what has come
  and waits for something before it. So everything counts of which the peer has not said that its application took it,
  at once, and whatever the transport may still hear of it changes nothing (:meth:`Accounts.charge`).
* *By agreement.* The peer keeps its end of the link until it has everything. The rest is up to the transport, and such
  a link is followed for as long as that may have something of it (:meth:`Accounts.follow`). If the transport has to
  give up, or the peer loses its memory, then what counts is not only what was not acknowledged but everything from the
  first such message on: the peer holds the others back, and waits in vain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from a3m import messages
from a3m.flow import Outgoing
from a3m.link import Link
from a3m.messages import DATA, LOW
from exon.protocol import Node as Transport

_FEW = 64  # links that are followed before it is worth while to look which of them are done

Conversation = tuple[int, int]  # our name for a link, as far as data always has it, and the peer's


class _Run(NamedTuple):
    """Consecutive messages that the transport was given."""

    conversation: Conversation
    first: int
    length: int


class _Ending(NamedTuple):
    """A link whose messages are the transport's business alone."""

    node: str
    outgoing: Outgoing


class Accounts:
    """The books of one node."""

    def __init__(self, transport: Transport) -> None:
        """Nothing is lost yet."""
        self.given_up = 0  # messages that never left
        self.unknown = 0  # messages that left, and nobody knows whether they arrived
        self._transport = transport
        self._endings: dict[Conversation, _Ending] = {}  # links that ended by agreement
        self._most = _FEW

    # -- when a link ends --------------------------------------------------------------------------------------------

    def charge(self, link: Link) -> None:
        """A link ended otherwise than by agreement: count what it leaves behind, also in the link itself."""
        outgoing = link.outgoing
        assert outgoing is not None
        link.unsent, link.unknown = len(outgoing.queue), outgoing.unsure
        self.given_up += link.unsent
        self.unknown += link.unknown
        outgoing.settled = outgoing.sent
        outgoing.queue.clear()

    def follow(self, link: Link) -> None:
        """A link ended by agreement: what it leaves behind still arrives, unless the transport has to give up."""
        outgoing = link.outgoing
        assert outgoing is not None
        pending = self._transport.pending(link.peer.node)
        if not outgoing.sent or not (outgoing.queue or pending):
            return
        self._endings[_conversation(link.mine, link.theirs)] = _Ending(link.peer.node, outgoing)
        if len(self._endings) > self._most:
            under_way = {run.conversation for run, _ in self._unfinished()}
            done = [name for name, end in self._endings.items() if name not in under_way and not end.outgoing.queue]
            for name in done:
                del self._endings[name]
            # A look costs as much as there is to look at; so many ends of links pay for the next one.
            self._most = len(self._endings) + max(_FEW, len(self._endings), pending)

    # -- when the transport gives up ---------------------------------------------------------------------------------

    def peer_restarted(self, node: str, unknown: Iterable[bytes]) -> int:
        """A peer lost its memory, and with it its ends of links that had ended here: how many messages that concerns.

        ``unknown`` is what had left. What had not is sent to the next life of the peer, which knows no such link.
        """
        ends = {name: end for name, end in self._endings.items() if end.node == node}
        if not ends:
            return 0
        first: dict[Conversation, int] = {}
        _note_first(first, _runs(unknown))
        _note_first(first, (run for run, _ in self._unfinished()))
        lost = 0
        for name, (_, outgoing) in ends.items():
            unsent = len(outgoing.queue)
            missing = outgoing.sent - min(first.get(name, outgoing.sent), outgoing.sent - unsent)
            self.given_up += unsent
            self.unknown += missing - unsent
            lost += missing
            outgoing.queue.clear()
            del self._endings[name]
        return lost

    def at_close(self, links: Iterable[Link]) -> tuple[int, int]:
        """If nothing more is sent: messages that never left, and messages whose fate is unknown.

        ``links`` are those that still exist.
        """
        ends = dict(self._endings)
        for link in links:
            if link.outgoing is not None:
                ends[_conversation(link.mine, link.theirs)] = _Ending(link.peer.node, link.outgoing)
        first: dict[Conversation, int] = {}
        unsent: Counter[Conversation] = Counter()
        for run, sent in self._unfinished():
            _note_first(first, (run,))
            if not sent:
                unsent[run.conversation] += run.length
        # What was counted as having left, because the transport had it, and never did.
        counted = sum(count for name, count in unsent.items() if name not in ends)
        undelivered = self.given_up + sum(unsent.values())
        unknown = max(0, self.unknown - counted)
        for name, (_, outgoing) in ends.items():
            queued = len(outgoing.queue)
            missing = outgoing.sent - min(first.get(name, outgoing.sent), outgoing.sent - queued)
            undelivered += queued
            unknown += missing - queued - unsent[name]
        return undelivered, unknown

    @property
    def unsettled(self) -> bool:
        """Whether the transport has messages that are neither acknowledged nor given up."""
        return any(True for _ in self._unfinished())

    def _unfinished(self) -> Iterator[tuple[_Run, bool]]:
        """What the transport has and no acknowledgement for, and whether it ever left."""
        for data, sent in self._transport.unfinished():
            for run in _runs((data,)):
                yield run, sent


def _conversation(mine: int, theirs: int) -> Conversation:
    return mine & LOW, theirs


def _runs(unfinished: Iterable[bytes]) -> Iterator[_Run]:
    """The runs among the messages that our node gave to its transport."""
    for data in unfinished:
        message = messages.decode(data)
        if message.type == DATA:
            first, items = message.body
            yield _Run(_conversation(message.mine, message.yours), first, len(items))


def _note_first(first: dict[Conversation, int], runs: Iterable[_Run]) -> None:
    """Note from which message on something is missing."""
    for run in runs:
        first[run.conversation] = min(run.first, first.get(run.conversation, run.first))
