"""What the explorer explores: who may do what, and how often. The bounds keep a space small; they decide nothing."""

from __future__ import annotations

from attrs import frozen

NAMES = ("a", "b", "c")


@frozen(kw_only=True)
class Acts:
    """What one side is like, and how often its application may do what."""

    link: int = 0
    unlink: int = 0
    force: int = 0
    close: int = 0
    kill: int = 0  # close and give everything up at once
    send: int = 0
    question: int = 0  # how often it asks whether the conversation still exists
    resize: tuple[int, ...] = ()  # capacities that an established link is set to, one after the other
    crash: int = 0  # how often its node restarts without memory
    absent: bool = False  # there is no socket at first
    reborn: int = 0  # how often a closed socket is made again
    busy: bool = False  # at first every request is put off: TMP_NAVAIL
    accept_links: bool = True
    max_links: int | None = None
    protocol: str = "MODEL"


@frozen(kw_only=True)
class Scenario:
    """Sides ``a``, ``b`` and perhaps ``c``. Only ``b`` has more than one peer."""

    name: str
    a: Acts = Acts()
    b: Acts = Acts()
    c: Acts | None = None
    capacity: int = 1
    ordered: bool = True
    batch: float = 1.0
    patient: bool = False  # the application takes messages out some time later, not at once
    lazy: bool = False  # the transport takes data some time later, not at once
    incarnations: int = 4  # of each side; a retry that needs more is left to the clean run

    @property
    def names(self) -> tuple[str, ...]:
        """Who takes part."""
        return NAMES if self.c is not None else NAMES[:2]

    def acts(self, name: str) -> Acts:
        """What a side does."""
        acts = {"a": self.a, "b": self.b, "c": self.c}[name]
        assert acts is not None
        return acts

    def peers(self, name: str) -> tuple[str, ...]:
        """Whom a side talks to."""
        return tuple(other for other in self.names if other != name) if name == "b" else ("b",)


ONE_SIDE = Scenario(name="one-side", a=Acts(link=1, unlink=1, send=2), b=Acts(unlink=1, send=2))
BOTH_SIDES = Scenario(name="both-sides", a=Acts(link=1, unlink=1, send=1), b=Acts(link=1, unlink=1, send=1))
CREDITS = Scenario(name="credits", a=Acts(link=1, unlink=1, send=3), b=Acts(send=2), patient=True)
ROOM_FOR_TWO = Scenario(
    name="room-for-two", a=Acts(link=1, unlink=1, send=3), b=Acts(link=1, send=1), capacity=2, patient=True, batch=0.5
)
UNORDERED = Scenario(
    name="unordered", a=Acts(link=1, unlink=1, send=2), b=Acts(link=1, send=2), capacity=2, ordered=False
)
LAZY = Scenario(name="lazy", a=Acts(link=2, unlink=1, send=2), b=Acts(unlink=1, send=1), capacity=2, lazy=True)
RELINK = Scenario(name="relink", a=Acts(link=2, unlink=2, send=1), b=Acts(link=1, unlink=1), incarnations=5)
CANCEL = Scenario(name="cancel", a=Acts(link=2, unlink=1), b=Acts(link=2, unlink=1))
FORCED = Scenario(name="forced", a=Acts(link=2, force=1, send=1), b=Acts(link=1, force=1, send=1))
FORCED_GRACEFUL = Scenario(name="forced-graceful", a=Acts(link=2, force=1, unlink=1, send=1), b=Acts(link=1, unlink=1))
ABSENT = Scenario(name="absent", a=Acts(link=1, unlink=1, send=1), b=Acts(absent=True, link=1, send=1), incarnations=5)
CLOSING = Scenario(name="closing", a=Acts(link=1, close=1, send=1), b=Acts(link=1, close=1, send=1))
REBORN = Scenario(name="reborn", a=Acts(link=1, send=1, unlink=1), b=Acts(link=1, close=1, reborn=1, send=1))
KILLED = Scenario(name="killed", a=Acts(link=1, send=1), b=Acts(link=1, kill=1, reborn=1, send=1))
BUSY = Scenario(
    name="busy", a=Acts(link=1, unlink=1, send=1), b=Acts(busy=True, link=1, unlink=1, send=1), incarnations=5
)
INCOMPATIBLE = Scenario(
    name="incompatible", a=Acts(link=2, unlink=1), b=Acts(link=2, unlink=1, protocol="OTHER"), incarnations=5
)
STRANGERS = Scenario(name="strangers", a=Acts(link=2, send=1), b=Acts(link=2, unlink=1, accept_links=False))
FULL = Scenario(
    name="full", a=Acts(link=1, unlink=1), b=Acts(max_links=1, link=1), c=Acts(link=1, unlink=1), incarnations=3
)
RESIZED = Scenario(
    name="resized", a=Acts(link=1, send=3), b=Acts(resize=(0, 3, 1)), capacity=2, patient=True, batch=0.5
)
SHRUNK = Scenario(name="shrunk", a=Acts(link=1, send=4), b=Acts(resize=(3, 1)), capacity=4, patient=True)
ASKED = Scenario(
    name="asked", a=Acts(link=1, unlink=1, send=1, question=1), b=Acts(link=1, unlink=1, send=1, question=1)
)
CRASHED = Scenario(name="crashed", a=Acts(link=1, unlink=1), b=Acts(link=1, crash=1))
CRASHED_SENDING = Scenario(
    name="crashed-sending", a=Acts(link=1, unlink=1, send=1, question=1), b=Acts(link=1, crash=1, send=1)
)

SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        ONE_SIDE,
        BOTH_SIDES,
        CREDITS,
        ROOM_FOR_TWO,
        UNORDERED,
        LAZY,
        RELINK,
        CANCEL,
        FORCED,
        FORCED_GRACEFUL,
        ABSENT,
        CLOSING,
        REBORN,
        KILLED,
        BUSY,
        INCOMPATIBLE,
        STRANGERS,
        FULL,
        RESIZED,
        SHRUNK,
        ASKED,
        CRASHED,
        CRASHED_SENDING,
    )
}
