"""One link, as one of its two ends sees it."""

from __future__ import annotations

from typing import Any, NamedTuple

from attrs import Factory, define, field

from a3m.flow import Incoming, Outgoing
from a3m.ids import SocketId
from a3m.link_machine import State
from a3m.messages import Message, Metadata
from a3m.stats import LinkStats


class LinkInfo(NamedTuple):
    """An established link at one moment. ``since`` is a monotonic time.

    >>> import a3m
    >>> with a3m.Node("home", bind="127.0.0.1:0") as node:
    ...     push, pull = node.push("jobs"), node.pull("worker", capacity=10)
    ...     push.link("home/worker")
    ...     push.send(b"wash up", timeout=5)
    ...     info = push.links[0]
    ...     str(info.peer), info.credits, info.sent
    ('home/worker', 9, 1)
    """

    peer: SocketId
    capacity: int
    credits: int
    queued: int
    sent: int
    received: int
    since: float


@define(eq=False)
class Link:
    """A conversation with one peer, and the wish for one."""

    peer: SocketId
    state: State = State.ABSENT
    wanted: bool = False  # the application asked for it
    relink: bool = False  # the application wants another one as soon as this one is over
    mine: int = 0  # our incarnation, 0 while there is no conversation
    theirs: int = 0  # the peer's, 0 while it is not known
    asked: bool = False  # we sent LINK in this conversation
    told: bool = False  # the peer was told about us in this conversation
    metadata: Metadata | None = None  # the peer's
    replied: bool = False  # the peer's reply has come; otherwise it is under way, however much else has come
    confirmed: bool = False  # the peer has spoken over it, so it is established there, too
    custom: Any = None  # what link() was told to say about us
    capacity: int = 0  # what the peer was told it may send
    tries: int = 0
    put_off: str = ""  # why it is not there yet, in the peer's words
    silent: int = 0  # rounds in which nothing came from the peer
    retry_at: float | None = None
    since: float = 0.0
    forgotten: bool = False  # it ended because the peer's node lost its memory
    unsent: int = 0  # once it has ended: messages accepted for it that never left
    unknown: int = 0  # once it has ended: messages that left, and nobody knows whether they arrived
    outgoing: Outgoing | None = None  # while established or unlinking
    incoming: Incoming | None = None
    credits_due: int | None = None  # to give to the peer, or take from it, once there is room to say so
    control_queue: list[tuple[int, tuple[Any, ...]]] = Factory(list)  # control messages that wait for room
    wants_control: bool = False  # its pattern wants to be told of room
    control_sent: int = 0
    control_next: int = 0
    control_early: dict[int, Message] = Factory(dict)  # control messages that overtook others
    name: str = field(init=False)  # the peer's, as it is written

    def __attrs_post_init__(self) -> None:
        """Write it once."""
        self.name = str(self.peer)

    @property
    def established(self) -> bool:
        """Whether messages may be sent."""
        return self.state is State.ESTABLISHED

    @property
    def can_send(self) -> bool:
        """Whether a message may be sent now."""
        return self.state is State.ESTABLISHED and self.outgoing is not None and self.outgoing.credits > 0

    @property
    def unsaid(self) -> int:
        """Messages besides data that wait for room."""
        return len(self.control_queue) + (self.credits_due is not None)

    def abandon(self) -> None:
        """Be over, and have nothing: what is here belongs to another process."""
        self.state = State.ABSENT
        self.control_queue = []
        if self.outgoing is not None:
            self.outgoing.queue.clear()
        if self.incoming is not None:
            self.incoming.clear()

    def info(self) -> LinkInfo:
        """What the application sees."""
        assert self.incoming is not None
        assert self.outgoing is not None
        return LinkInfo(
            self.peer,
            self.incoming.capacity,
            self.outgoing.credits,
            len(self.incoming.queue),
            self.outgoing.sent,
            self.incoming.received,
            self.since,
        )

    def stats(self) -> LinkStats:
        """The link in numbers, also while it is being made and after its end."""
        outgoing, incoming = self.outgoing or Outgoing(), self.incoming
        return LinkStats(
            peer=str(self.peer),
            state=self.state.value,
            since=None if incoming is None else self.since,
            capacity=self.capacity if incoming is None else incoming.capacity,
            credits=outgoing.credits,
            queued=0 if incoming is None else len(incoming.queue),
            unsent=self.unsent + len(outgoing.queue),
            sent=outgoing.sent,
            received=0 if incoming is None else incoming.received,
            unsettled=outgoing.unsure,
            unknown=self.unknown,
        )
