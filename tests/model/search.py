"""Breadth-first search over every interleaving of two real nodes and a network that forgets nothing.

**The network** is a set of frames that only grows. Any frame in it may be delivered at any time, any number of times;
a lost frame is one that is never delivered. So the state of the world is two saved nodes and, for each of them, the
set of frames that were ever sent to it.

**Speed** comes from one observation: what a frame does to a node depends on that node alone. A *half* is a node
together with the frames sent to it; it knows its possible moves without looking at the other half. Real objects are
loaded and run once for each distinct (node, step), and a state of the world is two small integers. All tables hold
results of the real code; :mod:`tests.model.schedule` replays whatever is found on fresh objects, without tables.

**The one reduction.** A step that leaves its node as it was (a probe, a repeated token, an answer to a duplicate) can
only add frames to the network; the search takes all such steps at once, so every state is closed under them. This is
sound and complete for what is checked: delivering is always optional, so whatever can happen with a smaller network
can happen with a larger one, step by step, and the larger one is itself reachable by real steps. Hence exactly the
same pairs of nodes are reached, and every property is about a pair of nodes, or about frames that must never both
exist. ``test_reduction_reaches_the_same_nodes`` compares both searches where the space is small enough to exhaust.

**Liveness** is checked at every pair of nodes that is reached: all frames in flight are dropped, then both nodes
behave well over a lossless network in first-in-first-out order. That run does not depend on the old network, so it is
made once per pair, and its rounds are again pairs, so it stops at the first one that is already known to end well.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from attrs import define, frozen

from exon.frames import Frame
from tests.model.node import CORRECT, PEERS, START, Kind, Node, NodeState, Property, Step, Variant, Violation
from tests.model.scenarios import Scenario
from tests.model.vocabulary import conflicting, describe

MOST_ROUNDS = 60  # of a clean run; what is seen is a fraction of this
MOST_FRAMES = 1000  # of one round of a clean run

_HALF = 32  # a state is (half of a) << 32 | (half of b)
_LOW = (1 << _HALF) - 1


class _Fault(NamedTuple):
    """A broken property, and the last steps that lead to it."""

    steps: tuple[Step, ...]
    violation: Violation


class _Outcome(NamedTuple):
    """What a step does to a saved node."""

    node: int
    emitted: tuple[int, ...]  # numbers of frames, as the peer counts them
    violation: Violation | None


class _Effect(NamedTuple):
    """The same for the search: the set of frames that are sent, as bits."""

    node: int
    emits: int
    step: Step


@define
class _Reactions:
    """What a saved node does by itself and with the frames looked at so far (sets of frames, as bits)."""

    effects: list[_Effect]  # of its own steps that change it
    answers: int  # what its own steps send without changing it
    fault: _Fault | None
    seen: int = 0  # the frames looked at
    moving: int = 0  # of these, the ones that change it
    answered: int = 0  # the ones that it answers without changing
    faulty: int = 0  # the ones that break a property


def _bits(number: int) -> Iterator[int]:
    """The positions of the bits that are set."""
    while number:
        low = number & -number
        yield low.bit_length() - 1
        number ^= low


class _Side:
    """Everything known about one node: its saved states, the frames sent to it, its halves."""

    peer: _Side

    def __init__(self, name: str, scenario: Scenario, variant: Variant, reduce: bool) -> None:
        self.name = name
        self.scratch = Node(name, scenario, variant)
        self.clocks = scenario.clocks
        self.reduce = reduce
        self.check_tokens = Property.ONE_TOKEN not in variant.tolerated
        self.real_steps = 0
        # Nodes, by number.
        self.nodes: list[NodeState] = []
        self._node_numbers: dict[NodeState, int] = {}
        self._own_steps: dict[int, list[tuple[Step, _Outcome]]] = {}
        self._tended: dict[int, _Outcome] = {}
        # Frames sent to this node, by number. Frames of different types may be equal as tuples.
        self.frames: list[Frame] = []
        self._frame_numbers: dict[tuple[type, Frame], int] = {}
        self._conflicts: list[int] = []  # the frames that must not exist together with this one
        self._arrivals: dict[tuple[int, int], _Outcome] = {}
        self._reactions: dict[int, _Reactions] = {}
        self._effects: dict[tuple[int, int], _Effect] = {}  # (node, frame that arrives)
        # Halves, by number: parallel lists, because the inner loop of the search reads them.
        self.half_node: list[int] = []
        self.half_inbox: list[int] = []
        self.half_answers: list[int] = []  # what it sends without changing
        self.half_moves: list[list[tuple[int, int]] | None] = []  # (the half it becomes, what it sends)
        self.half_fault: list[_Fault | None] = []
        self.half_grown: list[dict[int, int]] = []  # set of frames that arrive -> the half with them
        self._half_numbers: dict[tuple[int, int], int] = {}

    # -- numbers ----------------------------------------------------------------------------------------------------

    def number(self, state: NodeState) -> int:
        """The number of a saved node."""
        number = self._node_numbers.setdefault(state, len(self.nodes))
        if number == len(self.nodes):
            self.nodes.append(state)
        return number

    def frame_number(self, frame: Frame) -> int:
        """The number of a frame sent to this node."""
        key = (type(frame), frame)
        number = self._frame_numbers.setdefault(key, len(self.frames))
        if number == len(self.frames):
            conflicts = 0
            for other, known in enumerate(self.frames):
                if conflicting(frame, known):
                    conflicts |= 1 << other
                    self._conflicts[other] |= 1 << number
            self.frames.append(frame)
            self._conflicts.append(conflicts)
        return number

    # -- what steps do, remembered ----------------------------------------------------------------------------------

    def _take(self, node: int, step: Step) -> _Outcome:
        self.real_steps += 1
        self.scratch.load(self.nodes[node])
        return self._outcome(*self.scratch.take(step))

    def _outcome(self, frames: list[Frame], violation: Violation | None) -> _Outcome:
        emitted = tuple(self.peer.frame_number(frame) for frame in frames)
        return _Outcome(self.number(self.scratch.save()), emitted, violation)

    def own_steps(self, node: int) -> list[tuple[Step, _Outcome]]:
        """The steps a node can take by itself."""
        known = self._own_steps.get(node)
        if known is None:
            self.scratch.load(self.nodes[node])
            known = self._own_steps[node] = [(step, self._take(node, step)) for step in self.scratch.steps()]
        return known

    def arrival(self, node: int, frame: int) -> _Outcome:
        """What happens when a frame arrives."""
        known = self._arrivals.get((node, frame))
        if known is None:
            known = self._take(node, Step(Kind.DELIVER, frame=self.frames[frame]))
            self._arrivals[node, frame] = known
        return known

    def tended(self, node: int) -> _Outcome:
        """What happens when every timer of the node fires once."""
        known = self._tended.get(node)
        if known is None:
            self.scratch.load(self.nodes[node])
            known = self._tended[node] = self._outcome(*self.scratch.tend())
        return known

    # -- halves -----------------------------------------------------------------------------------------------------

    def half(self, node: int, inbox: int) -> int:
        """The number of a half."""
        number = self._half_numbers.get((node, inbox))
        if number is None:
            number = self._half_numbers[node, inbox] = len(self.half_node)
            self.half_node.append(node)
            self.half_inbox.append(inbox)
            self.half_answers.append(0)
            self.half_moves.append(None)
            self.half_fault.append(None)
            self.half_grown.append({})
            self._fill(number, node, inbox)
        return number

    def grow(self, half: int, arriving: int) -> int:
        """The half that ``half`` becomes when frames are sent to it."""
        grown = self.half_grown[half].get(arriving)
        if grown is None:
            grown = self.half(self.half_node[half], self.half_inbox[half] | arriving)
            self.half_grown[half][arriving] = grown
        return grown

    def _fill(self, half: int, node: int, inbox: int) -> None:
        """Find out what a half does without changing, and what is wrong with it."""
        known = self._reactions.get(node) or self._react(node)
        if inbox & ~known.seen:
            self._look(node, known, inbox & ~known.seen)
        answers = known.answers
        for frame in _bits(inbox & known.answered):
            answers |= self._effects[node, frame].emits
        self.half_answers[half] = answers
        self.half_fault[half] = self._conflict(inbox) or known.fault
        for frame in _bits(inbox & known.faulty):
            violation = self._arrivals[node, frame].violation
            assert violation is not None
            self.half_fault[half] = _Fault((self._effects[node, frame].step,), violation)

    def _react(self, node: int) -> _Reactions:
        """What a node does by itself."""
        known = self._reactions[node] = _Reactions([], 0, None)
        for step, outcome in self.own_steps(node):
            effect = _effect(step, outcome)
            if outcome.violation is not None:
                known.fault = _Fault((step,), outcome.violation)
            elif outcome.node == node and self.reduce:
                known.answers |= effect.emits
            elif not self._beyond(outcome.node):
                known.effects.append(effect)
        return known

    def _look(self, node: int, known: _Reactions, frames: int) -> None:
        """What a node does with frames not seen before."""
        known.seen |= frames
        for frame in _bits(frames):
            outcome = self.arrival(node, frame)
            effect = self._effects[node, frame] = _effect(Step(Kind.DELIVER, frame=self.frames[frame]), outcome)
            if outcome.violation is not None:
                known.faulty |= 1 << frame
            elif outcome.node == node and self.reduce:
                known.answered |= 1 << frame if effect.emits else 0
            elif (outcome.node != node or effect.emits) and not self._beyond(outcome.node):
                known.moving |= 1 << frame

    def effects(self, half: int) -> Iterator[_Effect]:
        """The steps that a half can take, always in the same order: a step is remembered by its place."""
        node = self.half_node[half]
        known = self._reactions[node]
        yield from known.effects
        for frame in _bits(self.half_inbox[half] & known.moving):
            yield self._effects[node, frame]

    def moves(self, half: int) -> list[tuple[int, int]]:
        """The same as (half that it becomes, set of frames it sends)."""
        known = self.half_moves[half]
        if known is None:
            inbox = self.half_inbox[half]
            known = [(self.half(effect.node, inbox), effect.emits) for effect in self.effects(half)]
            self.half_moves[half] = known
        return known

    def step(self, half: int, place: int) -> Step:
        """The step at a place among the moves of a half."""
        return next(islice(self.effects(half), place, None)).step

    def _beyond(self, node: int) -> bool:
        """Whether a node is outside the bounds of the scenario."""
        if self.clocks is None:
            return False
        state = self.nodes[node]
        return state.clock > self.clocks or (state.send is not None and state.send.sck > self.clocks)

    def _conflict(self, inbox: int) -> _Fault | None:
        if self.check_tokens:
            for number in _bits(inbox):
                both = inbox & self._conflicts[number]
                if both:
                    one, other = self.frames[number], self.frames[next(_bits(both))]
                    violation = Violation(Property.ONE_TOKEN, f"{describe(one)} and {describe(other)} both exist")
                    return _Fault(tuple(Step(Kind.DELIVER, frame=frame) for frame in (one, other)), violation)
        return None


def _effect(step: Step, outcome: _Outcome) -> _Effect:
    emits = 0
    for frame in outcome.emitted:
        emits |= 1 << frame
    return _Effect(outcome.node, emits, step)


@frozen
class Found:
    """A violation, and the steps that lead there; free steps (see above) are left out of ``path``."""

    violation: Violation
    path: tuple[tuple[str, Step], ...]
    depth: int


@frozen
class Statistics:
    """Where a search stands."""

    states: int  # distinct states
    frontier: int  # of these, not expanded yet
    depth: int  # of the last state that was expanded
    pairs: int  # distinct pairs of nodes, each with a clean run of its own
    longest_run: int  # rounds of the longest clean run
    real_steps: int  # steps taken on real objects, the timers of clean runs not counted


class Search:
    """A search that can be continued: each call of :meth:`run` goes on where the last one stopped."""

    def __init__(self, scenario: Scenario, variant: Variant = CORRECT, *, reduce: bool = True) -> None:
        """Begin with two nodes that have never talked; ``reduce`` takes steps that change no node at once."""
        self.scenario = scenario
        self.variant = variant
        self.found: Found | None = None
        self._a = _Side("a", scenario, variant, reduce)
        self._b = _Side("b", scenario, variant, reduce)
        self._a.peer, self._b.peer = self._b, self._a
        self._all = {name: (1 << scenario.messages(name)) - 1 for name in PEERS}
        self._states = array("Q")
        self._parents = array("L")
        self._how = array("L")  # place of the step in its half << 1 | whether it is b's
        self._seen: set[int] = set()
        self._next = 0
        self._level_ends = 1
        self._depth = 0
        self._rounds: dict[int, int] = {}  # pair -> rounds until a clean run is over
        first_a, first_b = self._close(self._a.half(self._a.number(START), 0), self._b.half(self._b.number(START), 0))
        self._add(first_a << _HALF | first_b, 0, 0)

    @property
    def exhausted(self) -> bool:
        """Whether every reachable state was seen."""
        return self._next == len(self._states)

    @property
    def statistics(self) -> Statistics:
        """How far the search has come."""
        return Statistics(
            states=len(self._states),
            frontier=len(self._states) - self._next,
            depth=self._depth,
            pairs=len(self._rounds),
            longest_run=max(self._rounds.values(), default=0),
            real_steps=self._a.real_steps + self._b.real_steps,
        )

    def pair_at(self, index: int) -> tuple[NodeState, NodeState]:
        """The nodes of the state that was found as number ``index``."""
        a, b, state = self._a, self._b, self._states[index]
        return a.nodes[a.half_node[state >> _HALF]], b.nodes[b.half_node[state & _LOW]]

    def node_pairs(self) -> set[tuple[NodeState, NodeState]]:
        """The pairs of nodes reached, whatever was in the network."""
        return {self.pair_at(index) for index in range(len(self._states))}

    # -- the search -------------------------------------------------------------------------------------------------

    def run(self, states: int) -> Found | None:
        """Go on until there are ``states`` distinct states, or no more, or a property is broken."""
        while self.found is None and not self.exhausted and len(self._states) < states:
            self._expand()
        return self.found

    def _expand(self) -> None:
        """Take every step that is possible in the next state."""
        index = self._next
        if index == self._level_ends:
            self._level_ends = len(self._states)
            self._depth += 1
        self._next += 1
        state = self._states[index]
        a, b = self._a, self._b
        half_a, half_b = state >> _HALF, state & _LOW
        for side, half in ((a, half_a), (b, half_b)):
            fault = side.half_fault[half]
            if fault is not None:
                self._report(index, fault.violation, [(side.name, step) for step in fault.steps])
                return
        seen, close = self._seen, self._close
        for place, (moved, emits) in enumerate(a.moves(half_a)):
            after_a, after_b = close(moved, b.grow(half_b, emits))
            after = after_a << _HALF | after_b
            if after not in seen and not self._add(after, index, place << 1):
                return
        for place, (moved, emits) in enumerate(b.moves(half_b)):
            after_a, after_b = close(a.grow(half_a, emits), moved)
            after = after_a << _HALF | after_b
            if after not in seen and not self._add(after, index, place << 1 | 1):
                return

    def _close(self, half_a: int, half_b: int) -> tuple[int, int]:
        """Let both nodes send whatever they can send without changing."""
        a, b = self._a, self._b
        while True:
            grown_b = b.grow(half_b, a.half_answers[half_a])
            grown_a = a.grow(half_a, b.half_answers[grown_b])
            if grown_a == half_a and grown_b == half_b:
                return half_a, half_b
            half_a, half_b = grown_a, grown_b

    def _add(self, state: int, parent: int, how: int) -> bool:
        """Take in a new state; False when it breaks a property."""
        self._seen.add(state)
        self._states.append(state)
        self._parents.append(parent)
        self._how.append(how)
        node_a = self._a.half_node[state >> _HALF]
        node_b = self._b.half_node[state & _LOW]
        if node_a << _HALF | node_b in self._rounds:
            return True
        judge = self._compare if Property.LIVENESS in self.variant.tolerated else self._run_clean
        violation = judge(node_a, node_b)
        if violation is not None:
            self._report(len(self._states) - 1, violation, [])
        return violation is None

    def _compare(self, node_a: int, node_b: int) -> Violation | None:
        """The property that needs both nodes: what was acknowledged was delivered."""
        state_a, state_b = self._a.nodes[node_a], self._b.nodes[node_b]
        if state_a.released & ~state_b.delivered or state_b.released & ~state_a.delivered:
            return Violation(Property.SAFE_RELEASE, "a message is acknowledged that was never delivered")
        return None

    # -- the clean run ----------------------------------------------------------------------------------------------

    def _run_clean(self, node_a: int, node_b: int) -> Violation | None:
        """Whether good behaviour on a clean network leads to the end from here, by pairs that are right themselves."""
        passed = []
        pair = node_a << _HALF | node_b
        while pair not in self._rounds:
            passed.append(pair)
            node_a, node_b = pair >> _HALF, pair & _LOW
            violation = self._compare(node_a, node_b)
            if violation is not None:
                return violation
            if self._finished(node_a, node_b):
                self._rounds[pair] = 0
                break
            after = self._round(node_a, node_b)
            if isinstance(after, Violation):
                return after
            if len(passed) > MOST_ROUNDS:
                return self._stuck(node_a, node_b)
            pair = after
        rounds = self._rounds[pair]
        for earlier in reversed(passed):
            if earlier != pair:
                rounds += 1
                self._rounds[earlier] = rounds
        return None

    def _finished(self, node_a: int, node_b: int) -> bool:
        state_a, state_b = self._a.nodes[node_a], self._b.nodes[node_b]
        return (
            state_a.oblivious
            and state_b.oblivious
            and (state_b.delivered | state_a.unknown) == self._all["a"]
            and (state_a.delivered | state_b.unknown) == self._all["b"]
        )

    def _stuck(self, node_a: int, node_b: int) -> Violation:
        states = f"a: {self._a.nodes[node_a]}\nb: {self._b.nodes[node_b]}"
        return Violation(Property.LIVENESS, f"on a clean network the nodes end up like this:\n{states}")

    def _round(self, node_a: int, node_b: int) -> int | Violation:
        """Every timer fires once, then all frames arrive. The next message is sent when nothing is left of the last."""
        a, b = self._a, self._b
        nodes = [node_a, node_b]
        sides = (a, b)
        quiet = a.nodes[node_a].oblivious and b.nodes[node_b].oblivious
        flying: deque[tuple[int, int]] = deque()  # (to whom, which frame)
        for at, side in enumerate(sides):
            outcomes = [side.tended(nodes[at])]
            if quiet:
                outcomes = [outcome for step, outcome in side.own_steps(nodes[at]) if step.kind is Kind.SEND]
            for outcome in outcomes:
                if outcome.violation is not None:
                    return outcome.violation
                nodes[at] = outcome.node
                flying.extend((1 - at, frame) for frame in outcome.emitted)
        for _ in range(MOST_FRAMES):
            if not flying:
                return nodes[0] << _HALF | nodes[1]
            at, frame = flying.popleft()
            outcome = sides[at].arrival(nodes[at], frame)
            if outcome.violation is not None:
                return outcome.violation
            nodes[at] = outcome.node
            flying.extend((1 - at, answer) for answer in outcome.emitted)
        return self._stuck(*nodes)

    # -- the way back -----------------------------------------------------------------------------------------------

    def _report(self, index: int, violation: Violation, last: list[tuple[str, Step]]) -> None:
        path = (*self.path_to(index), *last)
        self.found = Found(violation, path, len(path))

    def path_to(self, index: int) -> tuple[tuple[str, Step], ...]:
        """The steps that lead to the state that was found as number ``index``; free steps are left out."""
        path = []
        while index:
            how = self._how[index]
            index = self._parents[index]
            state = self._states[index]
            if how & 1:
                path.append(("b", self._b.step(state & _LOW, how >> 1)))
            else:
                path.append(("a", self._a.step(state >> _HALF, how >> 1)))
        return tuple(reversed(path))
