"""Schedules, played step by step on fresh real objects, and written down in the paper's vocabulary.

The search remembers what steps do and takes harmless ones silently. Nothing it reports is taken on trust: a schedule
is replayed here, one real step after the other, with the silent ones put back in where they are needed. The same
:class:`World` plays the schedules that are written out by hand in ``test_schedules.py``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from exon.frames import Frame
from tests.model.node import CORRECT, PEERS, Kind, Node, Property, Step, Variant, Violation, payload_of
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
        self.violation: Violation | None = None  # the first one

    # -- one step ---------------------------------------------------------------------------------------------------

    def take(self, name: str, step: Step) -> list[Frame]:
        """Let a step happen; a frame that is delivered must have been sent before."""
        node = self.nodes[name]
        if step.frame is not None:
            assert _key(name, step.frame) in self.network, f"{describe(step.frame)} was never sent to {name}"
        before = node.save()
        frames, violation = node.take(step)
        for frame in frames:
            self.network[_key(node.peer, frame)] = None
        sent = " ".join(f"{name} -> {node.peer} {describe(frame)}" for frame in frames)
        note = changes(node.peer, name, before, node.save())
        self.lines.append(f"{action(name, step, before):<34}  {note:<54}  {sent}".rstrip())
        self.violation = self.violation or violation or self._compare() or self._conflict()
        return frames

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

    def delivered(self, name: str) -> set[str]:
        """The messages that reached the application of ``name``."""
        node = self.nodes[name]
        return {payload_of(node.peer, bit).decode() for bit in range(8) if node.delivered >> bit & 1}

    # -- properties of the whole ------------------------------------------------------------------------------------

    def _compare(self) -> Violation | None:
        for name, node in self.nodes.items():
            if node.released & ~self.nodes[node.peer].delivered:
                return Violation(Property.SAFE_RELEASE, f"{name}: a message is acknowledged that was never delivered")
        return None

    def _conflict(self) -> Violation | None:
        if Property.ONE_TOKEN not in self.variant.tolerated:
            sent = [(name, frame) for name, _, frame in self.network]
            for at, (name, frame) in enumerate(sent):
                for other_name, other in sent[:at]:
                    if name == other_name and conflicting(frame, other):
                        detail = f"{describe(other)} and {describe(frame)} both exist"
                        return Violation(Property.ONE_TOKEN, detail)
        return None

    # -- a clean network --------------------------------------------------------------------------------------------

    def settle(self) -> bool:
        """Lose all that is in flight, then behave well on a good network; whether it ends as it should.

        This is the clean run of the search, without its tables. The application sends nothing more.
        """
        self.network.clear()
        for _ in range(MOST_ROUNDS):
            if all(node.save().oblivious for node in self.nodes.values()):
                break
            flying: deque[tuple[str, Frame]] = deque()
            for node in self.nodes.values():
                flying.extend((node.peer, frame) for frame in node.tend()[0])
            for _ in range(MOST_FRAMES):
                if not flying:
                    break
                name, frame = flying.popleft()
                answers, violation = self.nodes[name].take(Step(Kind.DELIVER, frame=frame))
                self.violation = self.violation or violation
                flying.extend((PEERS[name], answer) for answer in answers)
        return self._settled()

    def _settled(self) -> bool:
        nodes = self.nodes.values()
        return all(
            node.save().oblivious and self.nodes[node.peer].delivered | node.unknown == (1 << node.sent) - 1
            for node in nodes
        )

    # -- steps that change no node ----------------------------------------------------------------------------------

    def summon(self, name: str, frame: Frame) -> None:
        """Have ``frame`` sent to ``name``, by steps that change no node: the ones that the search takes silently."""
        wanted = _key(name, frame)
        origin: dict[_Key, tuple[str, Step]] = {}
        while wanted not in origin and wanted not in self.network:
            known = len(origin)
            for at, step, emitted in self._silent_steps([*self.network, *origin]):
                for sent in emitted:
                    key = _key(PEERS[at], sent)
                    if key not in self.network:
                        origin.setdefault(key, (at, step))
            assert len(origin) > known, f"{describe(frame)} cannot be sent to {name}"
        self._produce(wanted, origin)

    def _silent_steps(self, available: list[_Key]) -> Iterator[tuple[str, Step, list[Frame]]]:
        for name, node in self.nodes.items():
            state = node.save()
            arrivals = [Step(Kind.DELIVER, frame=frame) for to, _, frame in available if to == name]
            for step in node.steps() + arrivals:
                frames, violation = node.take(step)
                if violation is None and node.save() == state:
                    yield name, step, frames
                node.load(state)

    def _produce(self, key: _Key, origin: dict[_Key, tuple[str, Step]]) -> None:
        if key not in self.network:
            name, step = origin[key]
            if step.frame is not None:
                self._produce(_key(name, step.frame), origin)
            self.take(name, step)


def _key(name: str, frame: Frame) -> _Key:
    return name, type(frame), frame


def explain(scenario: Scenario, variant: Variant, found: Found) -> list[str]:
    """The schedule of a violation, one step per line, after playing it on fresh objects."""
    world = World(scenario, variant)
    for name, step in found.path:
        if step.frame is not None:
            world.summon(name, step.frame)
        world.take(name, step)
    broken = found.violation
    if world.violation is None and broken.property is Property.LIVENESS:
        verdict = "from here on, however good the network:"
    else:
        assert world.violation is not None, "the search reported what does not happen"
        assert world.violation.property is broken.property
        verdict = "broken:"
    return [*world.lines, f"{verdict} {broken.property.value}", broken.detail]
