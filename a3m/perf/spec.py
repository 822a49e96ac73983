"""One measurement, as both sides agree on it."""

from __future__ import annotations

from typing import Any

import attrs
from attrs import Attribute, field, frozen

THROUGHPUT, LATENCY = "throughput", "latency"
A3M, PYZMQ = "a3m", "pyzmq"

SIZE_LIMIT = 16 << 20  # bytes; a server makes a few messages of what a client asks for, and keeps them
SECONDS_LIMIT = 3600.0
CLIENTS_LIMIT = 100


class Failed(Exception):
    """A measurement cannot be done, or did not come to its end; the message says why, and what to check."""


def _one_of(*allowed: object) -> Any:
    def check(_: object, attribute: Attribute[Any], value: object) -> None:
        if value not in allowed:
            raise ValueError(f"{attribute.name} is {' or '.join(map(str, allowed))}, not {value!r}")

    return check


def _between(least: float, most: float, *kinds: type) -> Any:
    def check(_: object, attribute: Attribute[Any], value: Any) -> None:
        if type(value) not in kinds or not least <= value <= most:
            raise ValueError(f"{attribute.name} is a number from {least:,} to {most:,}, not {value!r}")

    return check


@frozen(kw_only=True)
class Spec:
    """What to measure. A server gets it from strangers, so everything is checked.

    >>> Spec(mode="throughput", size=100, seconds=1.0).pattern
    'PUSH/PULL'
    >>> Spec(mode="latency", size=0, seconds=1.0)
    Traceback (most recent call last):
    ValueError: size is a number from 1 to 16,777,216, not 0
    """

    mode: str = field(validator=_one_of(THROUGHPUT, LATENCY))
    size: int = field(validator=_between(1, SIZE_LIMIT, int))
    """Bytes of a message."""
    seconds: float = field(validator=_between(0.01, SECONDS_LIMIT, int, float))
    """What is measured, after the warm-up."""
    warm_up: float = field(default=0.2, validator=_between(0, 60, int, float))
    library: str = field(default=A3M, validator=_one_of(A3M, PYZMQ))
    many: bool = field(default=False, validator=_one_of(False, True))
    """``send_many()`` and ``recv_many()`` instead of one call for each message."""
    reverse: bool = field(default=False, validator=_one_of(False, True))
    """From the server to the client."""
    clients: int = field(default=1, validator=_between(1, CLIENTS_LIMIT, int))
    """Threads that ask at the same time."""

    @property
    def pattern(self) -> str:
        """Of the sockets."""
        return "PUSH/PULL" if self.mode == THROUGHPUT else "REQ/REP"

    def __str__(self) -> str:
        """In words."""
        words = f"{self.pattern}{', reverse' * self.reverse}, {self.size:,} byte{'s' * (self.size != 1)}"
        return words if self.library == A3M else f"{words}, {self.library}"

    def as_dict(self) -> dict[str, Any]:
        """As plain data, to be sent."""
        return attrs.asdict(self)

    @classmethod
    def from_dict(cls, data: Any) -> Spec:
        """What was sent; raises ValueError if it is nothing of the kind."""
        try:
            return cls(**data)
        except TypeError as error:
            raise ValueError(f"not a measurement: {error}") from None
