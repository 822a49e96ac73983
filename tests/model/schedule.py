"""Schedules, played step by step on fresh real objects, and written down in the paper's vocabulary.

The search remembers what steps do and takes harmless ones silently. Nothing it reports is taken on trust: a schedule
is replayed here, one real step after the other, with the silent ones put back in where they are needed. The same
:class:`World` plays the schedules that are written out by hand in ``test_schedules.py``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from exon.frames import Frame
from tests.model.node import CORRECT, PEERS, Kind, Node, Property, Step, Variant, Violation, bit_of
from tests.model.scenarios import Scenario
from tests.model.search import MOST_FRAMES, MOST_ROUNDS, Found
from tests.model.vocabulary import action, changes, conflicting, describe

_Key = tuple[str, type, Frame]  # destination, type (frames of two types may be equal as tuples), frame


class World:
    """Two nodes and a network that forgets nothing."""

    def __init__(self, scenario: Scenario, variant: Variant = CORRECT) -> None:
        """Begin with two nodes that have never talked."""
        self.scenario = scenario
        self.variant = variant
        self.nodes = {name: Node(name, scenario, variant) for name in PEERS}
        self.network: dict[_Key, None] = {}
        self.lines: list[str] = []
        self.deliveries: list[str] = []  # every delivery, in order, a second one of the same message included
        self.violations: dict[Violation, int] = {}  # in order, with the line that shows it

    # -- one step ---------------------------------------------------------------------------------------------------

    def take(self, name: str, step: Step) -> list[Frame]:
        """Let a step happen; a frame that is delivered must have been sent before."""
        node = self.nodes[name]
        if step.frame is not None:
            assert _key(name, step.frame) in self.network, f"{describe(step.frame)} was never sent to {name}"
        before = node.save()
        frames, violation = node.take(step)
        conflict = self._conflict(node.peer, frames)
        self.network |= dict.fromkeys(_key(node.peer, frame) for frame in frames)
        sent = " ".join(f"{name} -> {node.peer} {describe(frame)}" for frame in frames)
        again = [payload.decode() for payload in node.handed_over if bit_of(payload) & before.delivered]
        note = "; ".join([changes(node.peer, name, before, node.save()), *(f"delivers {one} again" for one in again)])
        self.lines.append(f"{action(name, step, before):<34}  {note:<54}  {sent}".rstrip())
        self.deliveries += [payload.decode() for payload in node.handed_over]
        for broken in (violation, self._compare(), conflict):
            if broken is not None:
                self.violations.setdefault(broken, len(self.lines))
        return frames

    def shows(self, broken: Property) -> int | None:
        """The number of the line after which ``broken`` no longer held, if there is one."""
        return next((line for violation, line in self.violations.items() if violation.property is broken), None)

    def send(self, name: str) -> list[Frame]:
        """The application sends its next message."""
        return self.take(name, Step(Kind.SEND))

    def request(self, name: str, n: int) -> list[Frame]:
        """The sender asks for ``n`` slots."""
        return self.take(name, Step(Kind.REQUEST, n))

    def close(self, name: str) -> list[Frame]:
        """The sender asks to be forgotten."""
        return self.take(name, Step(Kind.CLOSE))

    def forget(self, name: str) -> list[Frame]:
        """The sender forgets without a confirmation."""
        return self.take(name, Step(Kind.FORGET))

    def retransmit(self, name: str, s: int) -> list[Frame]:
        """The sender repeats a token."""
        return self.take(name, Step(Kind.RETRANSMIT, s))

    def probe(self, name: str) -> list[Frame]:
        """The receiver asks whether it is still needed."""
        return self.take(name, Step(Kind.PROBE))

    def deliver(self, name: str, frame: Frame) -> list[Frame]:
        """A frame arrives; what is sent in answer."""
        return self.take(name, Step(Kind.DELIVER, frame=frame))

    # -- properties of the whole ------------------------------------------------------------------------------------

    def _compare(self) -> Violation | None:
        for name, node in self.nodes.items():
            if node.released & ~self.nodes[node.peer].delivered:
                return Violation(Property.SAFE_RELEASE, f"{name}: a message is acknowledged that was never delivered")
        return None

    def _conflict(self, name: str, frames: list[Frame]) -> Violation | None:
        if Property.ONE_TOKEN not in self.variant.tolerated:
            sent = [frame for to, _, frame in self.network if to == name]
            for at, frame in enumerate(frames):
                for other in (*sent, *frames[:at]):
                    if conflicting(frame, other):
                        detail = f"{describe(other)} and {describe(frame)} both exist"
                        return Violation(Property.ONE_TOKEN, detail)
        return None

    # -- a clean network --------------------------------------------------------------------------------------------

    def settle(self, *, send_rest: bool = False) -> bool:
        """Lose all that is in flight, then behave well on a good network; whether it ends as it should.

        This is the clean run of the search, without its tables. As there, with ``send_rest`` the applications send
        what they have not sent yet, the next message whenever nothing is left of the last.
        """
        self.network.clear()
        for _ in range(MOST_ROUNDS):
            quiet = all(node.save().oblivious for node in self.nodes.values())
            waiting = [name for name, node in self.nodes.items() if send_rest and node.sent < node.total]
            if quiet and not waiting:
                break
            due = {name: node.due() for name, node in self.nodes.items()}
            if quiet:
                due = {name: [Step(Kind.SEND)] for name in waiting}
            if not self._round(due):
                break
        return not self.violations and not waiting and self._settled()

    def _round(self, due: dict[str, list[Step]]) -> bool:
        """Every timer fires once, then all frames arrive; whether that comes to an end."""
        flying: deque[tuple[str, Frame]] = deque()
        for name, steps in due.items():
            for step in steps:
                flying.extend((PEERS[name], frame) for frame in self.take(name, step))
        for _ in range(MOST_FRAMES):
            if not flying:
                return True
            name, frame = flying.popleft()
            flying.extend((PEERS[name], answer) for answer in self.deliver(name, frame))
        return False

    def _settled(self) -> bool:
        return all(
            node.save().oblivious and self.nodes[node.peer].delivered | node.unknown == (1 << node.sent) - 1
            for node in self.nodes.values()
        )


def _key(name: str, frame: Frame) -> _Key:
    return name, type(frame), frame


# -- what the search found ------------------------------------------------------------------------------------------


class _Completion:
    """A path of the search, with the steps that change no node: the search takes all of them, silently, in each state.

    A frame may have to be sent long before it is delivered, by a node that could not send it any more when it is. So
    all of these steps are taken wherever they are possible, and then the ones that nothing depends on are left out.
    """

    def __init__(self, scenario: Scenario, variant: Variant) -> None:
        self._nodes = {name: Node(name, scenario, variant) for name in PEERS}
        self._played: list[tuple[str, Step]] = []
        self._origin: dict[_Key, int] = {}  # frame -> the step that sent it first

    def complete(self, path: Iterable[tuple[str, Step]]) -> list[tuple[str, Step]]:
        needed = set()
        for name, step in path:
            while self._take_silent_steps():
                pass
            needed.add(len(self._played))
            self._note(name, step, self._nodes[name].take(step)[0])
        for at in reversed(range(len(self._played))):
            name, step = self._played[at]
            if at in needed and step.frame is not None:
                needed.add(self._origin[_key(name, step.frame)])
        return [self._played[at] for at in sorted(needed)]

    def _note(self, name: str, step: Step, frames: list[Frame]) -> None:
        for frame in frames:
            self._origin.setdefault(_key(PEERS[name], frame), len(self._played))
        self._played.append((name, step))

    def _take_silent_steps(self) -> bool:
        """Whether any of them sent something new."""
        known = len(self._origin)
        for name, node in self._nodes.items():
            state = node.save()
            arrivals = [Step(Kind.DELIVER, frame=frame) for to, _, frame in self._origin if to == name]
            for step in node.steps() + arrivals:
                frames, violation = node.take(step)
                silent = violation is None and node.save() == state
                if silent and any(_key(node.peer, frame) not in self._origin for frame in frames):
                    self._note(name, step, frames)
                node.load(state)
        return len(self._origin) > known


def replay(scenario: Scenario, variant: Variant, path: Iterable[tuple[str, Step]]) -> World:
    """The world at the end of a path of the search, after playing it on fresh objects."""
    world = World(scenario, variant)
    for name, step in _Completion(scenario, variant).complete(path):
        world.take(name, step)
    return world


def explain(scenario: Scenario, variant: Variant, found: Found) -> list[str]:
    """The schedule of a violation, one step per line, after playing it on fresh objects."""
    world = replay(scenario, variant, found.path)
    lines, broken = world.lines[:], found.violation
    if world.shows(broken.property) is None:
        # The search saw it on the clean run from here.
        assert not world.settle(send_rest=True), "the search reported what does not happen"
        last = len(lines) if broken.property is Property.LIVENESS else world.shows(broken.property)
        assert last is not None, "the search reported another property than the one that is broken"
        lines += ["from here on, on a clean network:", *world.lines[len(lines) : last]]
    return [*lines, f"broken: {broken.property.value}", broken.detail]
