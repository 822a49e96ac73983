"""What the explorer explores: each scenario is a list of options that can be read.

The bounds keep a space small enough to be walked deeply; they never decide what is right. A scenario without
``clocks`` is infinite (a stale request may re-create a record for ever) and is bounded by the number of states alone.
"""

from __future__ import annotations

from attrs import frozen


@frozen(kw_only=True)
class Scenario:
    """Two nodes ``a`` and ``b``, what they send each other, and what may happen to them."""

    name: str
    a: int  # messages from a to b
    b: int = 0  # messages from b to a
    window: int = 1  # N of Algorithm 1
    adaptive: bool = False  # a request may ask for any n up to N + |msg| - |env|, as if N had been changed meanwhile
    max_slots: int = 8192  # the receiver's limit on the slots of one peer
    max_request: int = 65536  # the sender's limit on the slots it asks for at a time
    close_between: bool = False  # the next message is sent only when the record of the last one was closed
    range_acks: bool = False  # acknowledge all that is done in the record, as the engine does, not one token
    evictions: int = 0  # how often a receiver may give up a record with slots unused
    ticks: int = 0  # how often a node may use up a number for a third one: the clock is all that peers share
    clocks: int | None = None  # steps that raise a clock, or a record's sck, beyond this are not explored

    def messages(self, name: str) -> int:
        """How many messages node ``name`` sends."""
        return self.a if name == "a" else self.b


TWO_MESSAGES = Scenario(name="two-messages", a=2)
THREE_MESSAGES = Scenario(name="three-messages", a=3)
WIDE_WINDOW = Scenario(name="wide-window", a=3, window=2, adaptive=True, max_request=5)  # N + |msg| at the most
BOTH_DIRECTIONS = Scenario(name="both-directions", a=2, b=1)
CLOSE_BETWEEN = Scenario(name="close-between", a=3, close_between=True)
CLAMPED = Scenario(name="clamped", a=3, window=2, adaptive=True, max_slots=1)
RANGE_ACKS = Scenario(name="range-acks", a=3, window=2, range_acks=True)
EVICTED = Scenario(name="evicted", a=2, window=2, adaptive=True, evictions=1)
THIRD_NODE = Scenario(name="third-node", a=2, b=1, ticks=1)
BOUNDED = Scenario(name="bounded", a=2, clocks=4)

SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        TWO_MESSAGES,
        THREE_MESSAGES,
        WIDE_WINDOW,
        BOTH_DIRECTIONS,
        CLOSE_BETWEEN,
        CLAMPED,
        RANGE_ACKS,
        EVICTED,
        THIRD_NODE,
        BOUNDED,
    )
}
