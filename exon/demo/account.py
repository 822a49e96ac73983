"""What was planned, what each process saw, and whether the two agree: number by number, not by counting."""

from __future__ import annotations

from typing import Any

import attrs
from attrs import frozen

NAMES = ("alice", "bob")

OK, WRONG, INTERRUPTED = 0, 1, 130


@frozen
class Plan:
    """What is to happen."""

    messages: int
    size: int
    loss: float
    duplicate: float
    reorder: float
    moves: int
    seed: int


@frozen
class Outcome:
    """What a process has to say at its end."""

    sent: int  # numbers 0 .. sent - 1
    seen: bytes  # one byte for each of the peer's numbers: 1 if it came
    duplicates: int
    damaged: int  # came, but was never sent like that
    unknown: int
    retransmissions: int
    datagrams: int
    dropped: int  # of these, by the network
    bytes: int
    moves: int


@frozen
class Direction:
    """What became of the messages from one process to the other, and what it took."""

    sent: int
    delivered: int
    duplicates: int
    lost: int  # accepted and never delivered; after Ctrl-C most of them are only under way
    unknown: int
    damaged: int
    retransmissions: int
    datagrams: int
    dropped: int
    bytes: int
    moves: int

    @classmethod
    def between(cls, sender: Outcome, receiver: Outcome) -> Direction:
        """Compare number by number what one says it sent with what the other says it saw.

        >>> outcome = Outcome(2, b"", 0, 0, 0, 0, 0, 0, 0, 0)
        >>> account = Direction.between(outcome, attrs.evolve(outcome, seen=bytes([1, 0, 1])))
        >>> account.delivered, account.lost, account.damaged
        (1, 1, 1)
        """
        delivered = receiver.seen.count(1, 0, sender.sent)
        return cls(
            sent=sender.sent,
            delivered=delivered,
            duplicates=receiver.duplicates,
            lost=sender.sent - delivered,
            unknown=sender.unknown,
            damaged=receiver.damaged + receiver.seen.count(1, sender.sent),
            retransmissions=sender.retransmissions,
            datagrams=sender.datagrams,
            dropped=sender.dropped,
            bytes=sender.bytes,
            moves=sender.moves,
        )

    def __add__(self, other: Direction) -> Direction:
        """Both directions together."""
        mine, yours = attrs.astuple(self), attrs.astuple(other)
        return Direction(*(a + b for a, b in zip(mine, yours, strict=True)))


@frozen
class Account:
    """The whole run."""

    plan: Plan
    directions: tuple[Direction, Direction]
    seconds: float
    interrupted: bool

    @property
    def total(self) -> Direction:
        """Both directions together."""
        return self.directions[0] + self.directions[1]

    @property
    def exact(self) -> bool:
        """Whether each message of the plan was sent and delivered exactly once."""
        total = self.total
        wrong = total.duplicates + total.lost + total.unknown + total.damaged
        return not wrong and all(way.sent == way.delivered == self.plan.messages for way in self.directions)

    @property
    def rate(self) -> float:
        """Messages per second, both directions together."""
        return self.total.delivered / self.seconds if self.seconds else 0.0

    @property
    def status(self) -> int:
        """The exit status."""
        if self.interrupted:
            return INTERRUPTED
        return OK if self.exact else WRONG

    @property
    def verdict(self) -> str:
        """The result in one sentence."""
        if self.interrupted:
            return "Interrupted: the account so far."
        if self.exact:
            return f"Exactly once: {self.total.delivered:,} of {self.total.sent:,} messages, none lost, none twice."
        return "NOT exactly once: see the account."

    def rows(self) -> list[tuple[str, ...]]:
        """The account as a table: a heading, then a line for each figure."""
        names = {
            "sent": "messages sent",
            "delivered": "delivered",
            "duplicates": "delivered twice",
            "lost": "under way" if self.interrupted else "lost",
            "unknown": "unknown",
            "damaged": "not what was sent",
            "retransmissions": "tokens sent again",
            "datagrams": "datagrams sent",
            "dropped": "lost by the network",
            "bytes": "bytes sent",
            "moves": "changes of port",
        }
        a, b = NAMES
        ways = (*self.directions, self.total)
        rows: list[tuple[str, ...]] = [("", f"{a} → {b}", f"{b} → {a}", "both")]
        rows += [(label, *(f"{getattr(way, name):,}" for way in ways)) for name, label in names.items()]
        rows.append(("seconds", "", "", f"{self.seconds:.2f}"))
        rows.append(("messages per second", "", "", f"{self.rate:,.0f}"))
        return rows

    def as_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        a, b = NAMES
        return {
            "exact": self.exact,
            "interrupted": self.interrupted,
            "seconds": round(self.seconds, 3),
            "messages_per_second": round(self.rate),
            "plan": attrs.asdict(self.plan),
            f"{a}_to_{b}": attrs.asdict(self.directions[0]),
            f"{b}_to_{a}": attrs.asdict(self.directions[1]),
            "both": attrs.asdict(self.total),
        }
