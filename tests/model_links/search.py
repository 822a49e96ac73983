"""Breadth-first search over all interleavings of real sides and a network of messages in flight.

**The network** is a multiset: any message in it may arrive next, each arrives once.

**Speed** comes from one observation: what happens to a side depends on that side alone. So real objects run once for
each distinct (side, step), and a state of the world is a few small integers. A side is not copied: it is brought back
by doing on fresh objects what was done before, which needs no knowledge of what is inside them.

**Liveness** is checked at every state: whatever is in flight arrives, applications take what is there, those who wait
to ask again do so, and nobody does anything new. That must come to rest, and the rest must be as it should.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from attrs import frozen

from a3m import messages
from a3m.link_machine import State
from tests.model_links.scenarios import Scenario
from tests.model_links.side import CORRECT, Broken, Envelope, Kind, Property, Side, Step, Variant, Violation, live

MOST_CALM = 100  # steps until the world is at rest; what is seen is a fraction of this
_BITS = 21
_MASK = (1 << _BITS) - 1


class Move(NamedTuple):
    """One step of one side."""

    name: str
    step: Step


class Found(NamedTuple):
    """A broken property, and how to get there."""

    moves: tuple[Move, ...]
    violation: Violation


class _Outcome(NamedTuple):
    """What a step does to a side: which one it is then, and the messages it sent, by number."""

    side: int
    sent: tuple[int, ...]
    violation: Violation | None


@frozen
class _LinkView:
    """What the world has to know about one end of a link."""

    state: State
    mine: int
    theirs: int
    credits: int  # and messages that were accepted and have not left
    capacity: int
    held: int  # messages that have arrived and whose credits were not returned


@frozen
class _View:
    """What the world has to know about a side."""

    links: dict[str, _LinkView]
    wants: frozenset[str]
    told: frozenset[str]
    unwilling: frozenset[str]
    willing: bool  # links with anybody who asks
    free: frozenset[str] | None  # with these only; None is no limit
    retrying: frozenset[str]
    accepted: dict[tuple[str, int], int]
    received: dict[tuple[str, int], frozenset[int]]
    ended: dict[tuple[str, int], bool]
    counted: dict[tuple[str, int], int]
    forced: dict[tuple[str, int], bool]
    gave_up: frozenset[tuple[str, int]]
    crashed: bool  # it or a peer of it
    chores: tuple[Step, ...]


def _view(side: Side) -> _View:
    links = {}
    for link in side.links:
        outgoing, incoming = link.outgoing, link.incoming
        links[link.peer.node] = _LinkView(
            link.state,
            link.mine,
            link.theirs,
            0 if outgoing is None else outgoing.credits + len(outgoing.queue),
            0 if incoming is None else incoming.capacity,
            0 if incoming is None else len(incoming.queue) + sum(map(len, incoming._early.values())) + incoming.owed,
        )
    most = side.acts.max_links
    taken = {link.peer.node for link in side.links if live(link)}
    return _View(
        links,
        frozenset(side.wants),
        frozenset(side.told),
        frozenset(side.unwilling),
        side.socket is not None and not side.socket.closed and not side.busy,
        frozenset(taken) if most is not None and len(taken) >= most else None,
        frozenset(link.peer.node for link in side.links if link.state is State.WAIT_RETRY),
        dict(side.accepted),
        dict(side.received),
        dict(side.ended),
        dict(side.counted),
        dict(side.forced),
        frozenset(side.gave_up),
        bool(side.life or side.crashed),
        tuple(side.chores()),
    )


class _Known:
    """Everything known about one side."""

    def __init__(self, name: str, search: Search) -> None:
        self.name = name
        self.search = search
        self.views: list[_View] = []
        self.histories: list[tuple[int, Step] | None] = []
        self.real_steps = 0
        self._numbers: dict[object, int] = {}
        self._steps: list[list[Step]] = []
        self._own: dict[int, list[tuple[Step, _Outcome]]] = {}
        self._known: dict[tuple[int, Step], _Outcome] = {}
        self._arrivals: dict[tuple[int, int], _Outcome] = {}
        fresh = self._fresh()
        self._number(fresh, None)

    def _fresh(self) -> Side:
        return Side(self.name, self.search.scenario, self.search.variant)

    def _number(self, side: Side, history: tuple[int, Step] | None) -> int:
        key = side.key()
        number = self._numbers.setdefault(key, len(self.views))
        if number == len(self.views):
            self.views.append(_view(side))
            self.histories.append(history)
            self._steps.append(side.steps())
        return number

    def again(self, number: int) -> Side:
        """The real objects, made anew."""
        steps = []
        history = self.histories[number]
        while history is not None:
            number, step = history
            steps.append(step)
            history = self.histories[number]
        side = self._fresh()
        for step in reversed(steps):
            side.take(step)
            side.key()
        self.real_steps += len(steps)
        return side

    def take(self, number: int, step: Step) -> _Outcome:
        """What a step does."""
        known = self._known.get((number, step))
        if known is None:
            side = self.again(number)
            self.real_steps += 1
            try:
                sent = tuple(self.search.message_number(message) for message in side.take(step))
            except Broken as broken:
                known = _Outcome(number, (), broken.violation)
            else:
                known = _Outcome(self._number(side, (number, step)), sent, None)
            self._known[number, step] = known
        return known

    def own(self, number: int) -> list[tuple[Step, _Outcome]]:
        """The steps that a side can take by itself."""
        known = self._own.get(number)
        if known is None:
            known = self._own[number] = [(step, self.take(number, step)) for step in self._steps[number]]
        return known

    def arrival(self, number: int, message: int) -> _Outcome:
        """What a message does."""
        known = self._arrivals.get((number, message))
        if known is None:
            step = Step(Kind.ARRIVAL, message=self.search.messages[message])
            known = self._arrivals[number, message] = self.take(number, step)
        return known


class Search:
    """A search through one scenario, which can be continued."""

    def __init__(self, scenario: Scenario, variant: Variant = CORRECT) -> None:
        self.scenario = scenario
        self.variant = variant
        self.found: Found | None = None
        self.longest_calm = 0
        self.messages: list[Envelope] = []
        self._message_numbers: dict[Envelope, int] = {}
        self._contents: list[tuple[int, int, int, int]] = []  # type, mine, yours, credits or messages
        self._destinations: list[int] = []
        self._flights: list[tuple[int, ...]] = [()]
        self._flight_numbers: dict[tuple[int, ...], int] = {(): 0}
        self._sides = tuple(_Known(name, self) for name in scenario.names)
        self._at = {name: at for at, name in enumerate(scenario.names)}
        start = self._pack((0,) * len(self._sides), ())
        self._parents: dict[int, int] = {start: -1}
        self._frontier = deque([start])
        self._calm_known: set[int] = set()
        self.depth = 0
        self._layer_end = start

    # -- numbers ----------------------------------------------------------------------------------------------------

    def message_number(self, message: Envelope) -> int:
        """The number of a message."""
        number = self._message_numbers.setdefault(message, len(self.messages))
        if number == len(self.messages):
            self.messages.append(message)
            self._destinations.append(self.scenario.names.index(message.to))
            if message.news is not None:
                self._contents.append((0, 0, 0, 0))
                return number
            opened = message.open()
            amount = 0
            if opened.type == messages.DATA:
                amount = len(opened.body[1])
            elif opened.type == messages.FLOW and opened.body:  # without one it is a question
                amount = opened.body[0]
            self._contents.append((opened.type, opened.mine, opened.yours, amount))
        return number

    def _pack(self, sides: tuple[int, ...], flight: tuple[int, ...]) -> int:
        number = self._flight_numbers.setdefault(flight, len(self._flights))
        if number == len(self._flights):
            self._flights.append(flight)
        packed = number
        for side in sides:
            packed = packed << _BITS | side
        return packed

    def _unpack(self, state: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        sides = []
        for _ in self._sides:
            sides.append(state & _MASK)
            state >>= _BITS
        return tuple(reversed(sides)), self._flights[state]

    # -- the search -------------------------------------------------------------------------------------------------

    @property
    def states(self) -> int:
        """How many distinct states were found."""
        return len(self._parents)

    @property
    def exhausted(self) -> bool:
        """Whether there are no more."""
        return not self._frontier and self.found is None

    @property
    def frontier(self) -> int:
        """How many states wait to be looked at."""
        return len(self._frontier)

    @property
    def sides(self) -> int:
        """How many distinct sides were found."""
        return sum(len(known.views) for known in self._sides)

    @property
    def real_steps(self) -> int:
        """How often real objects were run."""
        return sum(known.real_steps for known in self._sides)

    def run(self, states: int) -> Found | None:
        """Go on until there are so many states, or something is broken, or there are no more."""
        while self._frontier and self.states < states and self.found is None:
            state = self._frontier.popleft()
            self._look_at(state)
            if state == self._layer_end and self._frontier:
                self.depth += 1
                self._layer_end = self._frontier[-1]
        return self.found

    def _look_at(self, state: int) -> None:
        try:
            self._check(state)
            self._settle(state)
        except _Fault as fault:
            self.found = Found((*self._path_to(state), *fault.moves), fault.violation)
            return
        for move, after, violation in self._successors(state):
            if violation is not None:
                self.found = Found((*self._path_to(state), move), violation)
                return
            if after not in self._parents:
                self._parents[after] = state
                self._frontier.append(after)

    def _successors(self, state: int) -> Iterator[tuple[Move, int, Violation | None]]:
        sides, flight = self._unpack(state)
        for at, known in enumerate(self._sides):
            for step, outcome in known.own(sides[at]):
                if step.kind is Kind.QUESTION and any(self.messages[each].sender == known.name for each in flight):
                    continue  # nothing is asked for as long as the transport is busy
                left = self._doom(flight, known.name) if step.kind is Kind.CRASH else flight
                yield Move(known.name, step), self._after(sides, left, at, outcome), outcome.violation
        for message in dict.fromkeys(flight):
            yield self._arrive(sides, flight, message)
            if self.messages[message].doomed:
                at = flight.index(message)
                loss = Move(self.messages[message].sender, Step(Kind.LOSS, message=self.messages[message]))
                yield loss, self._pack(sides, flight[:at] + flight[at + 1 :]), None

    def _doom(self, flight: tuple[int, ...], name: str) -> tuple[int, ...]:
        """The same messages, after one end has restarted: nobody repeats them, or nobody there knows of them."""
        doomed = []
        for number in flight:
            message = self.messages[number]
            hit = message.news is None and name in (message.to, message.sender)
            doomed.append(self.message_number(message._replace(doomed=True)) if hit else number)
        return tuple(sorted(doomed))

    def _arrive(
        self, sides: tuple[int, ...], flight: tuple[int, ...], message: int
    ) -> tuple[Move, int, Violation | None]:
        at = self._destinations[message]
        outcome = self._sides[at].arrival(sides[at], message)
        index = flight.index(message)
        rest = flight[:index] + flight[index + 1 :]
        move = Move(self._sides[at].name, Step(Kind.ARRIVAL, message=self.messages[message]))
        return move, self._after(sides, rest, at, outcome), outcome.violation

    def _after(self, sides: tuple[int, ...], flight: tuple[int, ...], at: int, outcome: _Outcome) -> int:
        if outcome.sent:
            flight = tuple(sorted(flight + outcome.sent))
        return self._pack((*sides[:at], outcome.side, *sides[at + 1 :]), flight)

    def _path_to(self, state: int) -> list[Move]:
        moves: list[Move] = []
        while (parent := self._parents[state]) != -1:
            moves.append(next(move for move, after, _ in self._successors(parent) if after == state))
            state = parent
        return moves[::-1]

    def sample(self, every: int) -> Iterator[tuple[list[Move], tuple[int, ...]]]:
        """Some of the states: how they are reached, and the numbers of their sides."""
        for index, state in enumerate(self._parents):
            if index % every == 0:
                yield self._path_to(state), self._unpack(state)[0]

    def key_of(self, name: str, number: int) -> object:
        """The key of a side."""
        known = self._sides[self._at[name]]
        return next(key for key, each in known._numbers.items() if each == number)

    # -- every state ------------------------------------------------------------------------------------------------

    def _views(self, sides: tuple[int, ...]) -> dict[str, _View]:
        return {known.name: known.views[number] for known, number in zip(self._sides, sides, strict=True)}

    def _check(self, state: int) -> None:
        """Credits are conserved."""
        sides, flight = self._unpack(state)
        views = self._views(sides)
        for name, view in views.items():
            for peer, link in view.links.items():
                other = views[peer].links.get(name)
                if other is None or not link.state is other.state is State.ESTABLISHED or link.theirs != other.mine:
                    continue
                total = link.credits + other.held + self._under_way(flight, name, link)
                if total != other.capacity:
                    detail = f"{name} to {peer}: {total} in all, capacity {other.capacity}"
                    raise _Fault((), Violation(Property.CREDITS, detail))

    def _under_way(self, flight: tuple[int, ...], name: str, link: _LinkView) -> int:
        """Messages of one direction that are on the way, and credits on their way back."""
        total = 0
        for number in flight:
            type_, mine, yours, amount = self._contents[number]
            sender = self.messages[number].sender
            forth = type_ == messages.DATA and sender == name and (mine, yours) == (link.mine, link.theirs)
            back = type_ == messages.FLOW and sender != name and (yours, mine) == (link.mine, link.theirs)
            if forth or back:
                total += amount
        return total

    # -- the calm run -----------------------------------------------------------------------------------------------

    def _settle(self, state: int) -> None:
        walked: list[int] = []
        moves: list[Move] = []
        while state not in self._calm_known:
            walked.append(state)
            calm = self._calm(state)
            if calm is None:
                violation = self._at_rest(state)
                if violation is not None:
                    raise _Fault(tuple(moves), violation)
                break
            move, state, violation = calm
            moves.append(move)
            if violation is None and len(moves) > MOST_CALM:
                violation = Violation(Property.QUIET, f"not after {MOST_CALM} steps")
            if violation is not None:
                raise _Fault(tuple(moves), violation)
        self._calm_known.update(walked)
        self.longest_calm = max(self.longest_calm, len(moves))

    def _calm(self, state: int) -> tuple[Move, int, Violation | None] | None:
        """The next step of a world in which nobody does anything new; None when it is at rest."""
        sides, flight = self._unpack(state)
        if flight:
            return self._arrive(sides, flight, flight[0])
        views = self._views(sides)
        step: Step | None
        for at, known in enumerate(self._sides):
            step = next(iter(views[known.name].chores), None)
            if step is not None:
                return self._do(sides, flight, at, step)
        for at, known in enumerate(self._sides):
            if self._asks_in_vain(views, known.name) is False:
                return self._do(sides, flight, at, Step(Kind.RETRY))
        return None

    def _do(
        self, sides: tuple[int, ...], flight: tuple[int, ...], at: int, step: Step
    ) -> tuple[Move, int, Violation | None]:
        outcome = self._sides[at].take(sides[at], step)
        return Move(self._sides[at].name, step), self._after(sides, flight, at, outcome), outcome.violation

    def _asks_in_vain(self, views: dict[str, _View], name: str) -> bool | None:
        """Whether nobody that a side waits to ask again is willing; None if there are none."""
        willing = [_willing(views[peer], name) and _willing(views[name], peer) for peer in views[name].retrying]
        return not any(willing) if willing else None

    def _at_rest(self, state: int) -> Violation | None:
        views = self._views(self._unpack(state)[0])
        for name, view in views.items():
            for peer in self.scenario.peers(name):
                violation = (
                    _disagreement(views, name, peer)
                    or _starving(views, name, peer)
                    or _unfulfilled(self.scenario, views, name, peer)
                    or _lost(view, views[peer], name, peer)
                )
                if violation is not None:
                    return violation
        return None


class _Fault(Exception):
    def __init__(self, moves: tuple[Move, ...], violation: Violation) -> None:
        super().__init__(violation)
        self.moves = moves
        self.violation = violation


def _willing(view: _View, asker: str) -> bool:
    return view.willing and (view.free is None or asker in view.free)


def _disagreement(views: dict[str, _View], name: str, peer: str) -> Violation | None:
    link, other = views[name].links.get(peer), views[peer].links.get(name)
    if link is None:
        agreed = other is None or other.state is State.WAIT_RETRY
    elif link.state is State.ESTABLISHED:
        agreed = other is not None and other.state is State.ESTABLISHED
        agreed = agreed and other is not None and (link.mine, link.theirs) == (other.theirs, other.mine)
    else:
        agreed = link.state is State.WAIT_RETRY
    if agreed:
        return None
    detail = " and ".join(
        f"{here} with {there}: {'absent' if each is None else f'{each.state.name} {each.mine}/{each.theirs}'}"
        for here, there, each in ((name, peer, link), (peer, name, other))
    )
    return Violation(Property.AGREED, detail)


def _starving(views: dict[str, _View], name: str, peer: str) -> Violation | None:
    link, other = views[name].links.get(peer), views[peer].links.get(name)
    if link is None or other is None or link.state is not State.ESTABLISHED or not other.capacity or link.credits > 0:
        return None
    return Violation(Property.FLOWING, f"{name} has no credit at {peer}, which has room for {other.capacity}")


def _unfulfilled(scenario: Scenario, views: dict[str, _View], name: str, peer: str) -> Violation | None:
    view, other = views[name], views[peer]
    link = view.links.get(peer)
    if peer not in view.wants or (link is not None and link.state is State.ESTABLISHED):
        return None
    if link is None and peer not in view.told:
        return Violation(Property.WISHED, f"{name} wants a link with {peer}, has none and was not told")
    mine, yours = scenario.acts(name), scenario.acts(peer)
    fits = mine.protocol == yours.protocol and (yours.accept_links or name in other.wants)
    if fits and _willing(other, name) and _willing(view, peer) and name not in other.unwilling:
        return Violation(Property.WISHED, f"{name} wants a link with {peer}, who is willing: {link}")
    return None


def _lost(view: _View, other: _View, name: str, peer: str) -> Violation | None:
    for (to, mine), accepted in view.accepted.items():
        arrived = len(other.received.get((name, mine), ()))
        if to != peer or arrived == accepted:
            continue
        by_us = (peer, mine) in view.gave_up
        by_them = other.forced.get((name, mine))
        knows = not view.ended.get((peer, mine), True)
        lost = view.crashed or other.crashed  # with the memory of one of them
        if not lost and not by_us and not (by_them is not None and (knows or by_them)):
            return Violation(Property.ARRIVED, f"{peer} received {arrived} of {accepted} messages of {name} ({mine})")
        counted = view.counted.get((peer, mine), 0)
        if not lost and (by_us or knows) and counted < accepted - arrived:
            return Violation(Property.COUNTED, f"{arrived} of {accepted} arrived at {peer}, {name} counts {counted}")
    return None
