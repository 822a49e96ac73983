"""Options of sockets: typed, validated, and changeable while the socket is in use."""

from __future__ import annotations

from typing import Any

from attrs import Attribute, define, field

MOST_CAPACITY = 1 << 20
DEFAULT_CAPACITY = 1024
GROWN_CAPACITY = 8192  # what a link grows to that nobody has set a capacity for


def _capacity(_: object, __: Attribute[Any], value: object) -> None:
    if type(value) is not int or not 0 <= value <= MOST_CAPACITY:
        raise ValueError(f"capacity is a whole number of messages from 0 to {MOST_CAPACITY}, not {value!r}")


def _batch(_: object, __: Attribute[Any], value: object) -> None:
    if type(value) not in (int, float) or not 0 < value <= 1:  # type: ignore[operator]
        raise ValueError(f"batch is a share of the capacity, above 0 and at most 1, not {value!r}")


def _max_links(_: object, __: Attribute[Any], value: object) -> None:
    if value is not None and (type(value) is not int or value < 1):
        raise ValueError(f"max_links is a whole number above 0, or None for no limit, not {value!r}")


def _flag(_: object, attribute: Attribute[Any], value: object) -> None:
    if type(value) is not bool:
        raise ValueError(f"{attribute.name} is True or False, not {value!r}")


def _retry(_: object, __: Attribute[Any], value: object) -> None:
    if (
        type(value) is not tuple
        or len(value) != 2
        or any(type(seconds) not in (int, float) for seconds in value)
        or not 0 < value[0] <= value[1]
    ):
        raise ValueError(f"retry is (first, longest) pause in seconds, for example (0.05, 2.0), not {value!r}")


@define(kw_only=True)
class SocketOptions:
    """What a socket allows. A wrong value raises ValueError and changes nothing.

    >>> options = SocketOptions(capacity=10)
    >>> options.capacity = -1
    Traceback (most recent call last):
    ValueError: capacity is a whole number of messages from 0 to 1048576, not -1
    >>> options.capacity
    10
    """

    capacity: int = field(default=DEFAULT_CAPACITY, validator=_capacity)
    """Messages that each new link may have waiting here; the sum over the links is what the socket can hold.

    A link that is left at 1024 grows while its messages are small and the application takes all that come: to 8192
    messages, as long as these are not more than 8 MiB if they are like the ones before. Any other capacity stays as it
    is: set one if messages become much larger after a while.
    """

    batch: float = field(default=0.25, validator=_batch)
    """The share of a link's capacity that is given back to the sender at once."""

    max_links: int | None = field(default=None, validator=_max_links)
    """Links at a time; further ones are put off until there is room."""

    accept_links: bool = field(default=True, validator=_flag)
    """Whether others may link to this socket; it can always link to others."""

    retry: tuple[float, float] = field(default=(0.05, 2.0), validator=_retry)
    """The first and the longest pause before asking again for a link that cannot be made yet, in seconds."""

    ordered: bool = field(default=True, validator=_flag)
    """Whether messages of one link are received in the order in which they were sent."""

    @property
    def most_capacity(self) -> int:
        """What the capacity of a link may grow to."""
        return GROWN_CAPACITY if self.capacity == DEFAULT_CAPACITY else self.capacity
