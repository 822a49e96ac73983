"""Known bugs, to be switched in: an explorer that does not find them proves nothing.

Each is the smallest change to the real classes that makes the bug, and names a scenario in which it shows.
"""

from __future__ import annotations

from itertools import count
from typing import Any

from attrs import define, evolve

from a3m.accounts import Accounts
from a3m.flow import Incoming, Item
from a3m.ids import SocketId
from a3m.link import Link
from a3m.link_machine import Action, Input, State
from a3m.link_manager import _BEFORE_METADATA, _BEFORE_REPLY, _ENDING, BY_US, LinkManager
from a3m.messages import Message, Reply
from tests.model_links.scenarios import (
    BOTH_SIDES,
    BUSY,
    CRASHED,
    FORCED,
    FULL,
    KILLED,
    LAZY,
    ONE_SIDE,
    RELINK,
    RESIZED,
    SHRUNK,
    UNORDERED,
)
from tests.model_links.side import Property, Variant


class _DropsExists(LinkManager):
    def _perform(self, link: Link, action: Action, *rest: Any) -> None:
        if action is not Action.SEND_EXISTS:
            super()._perform(link, action, *rest)


class _DoesNotAwaitMetadata(LinkManager):
    def on_reply(self, sender: SocketId, message: Message) -> None:
        link = self._addressee(sender, message)
        if link is not None and link.state in _BEFORE_METADATA and message.body == (Reply.OK,):
            link.theirs, link.replied = message.mine, True
            self._step(link, Input.AGREED)
        else:
            super().on_reply(sender, message)


class _IgnoresEarlyUnlink(LinkManager):
    def on_unlink(self, sender: SocketId, message: Message) -> None:
        link = self._addressee(sender, message)
        if link is None or link.state not in _BEFORE_REPLY or message.body[1]:
            super().on_unlink(sender, message)


class _GoalTooLow(LinkManager):
    def on_unlink(self, sender: SocketId, message: Message) -> None:
        sent, forced = message.body
        super().on_unlink(sender, message if forced else message._replace(body=(max(0, sent - 1), forced)))


class _GoalTooHigh(LinkManager):
    def on_unlink(self, sender: SocketId, message: Message) -> None:
        sent, forced = message.body
        super().on_unlink(sender, message if forced else message._replace(body=(sent + 1, forced)))


class _LeavesTheDeadAlone(LinkManager):
    def _end(self, peer: SocketId, message: Message) -> None:
        pass


class _DoesNotAwaitReply(LinkManager):
    def check_done(self, link: Link) -> None:
        if link.state is State.UNLINKING and link.incoming is not None and link.incoming.all_here:
            self._step(link, Input.ALL_HERE, BY_US)


class _ForgetsItsName(LinkManager):
    def _remove(self, link: Link) -> None:
        link.mine = 0
        super()._remove(link)


class _DoesNotDisown(LinkManager):
    def _disown(self, link: Link) -> None:
        pass


class _ForgetsToLinkAgain(LinkManager):
    def link(self, peer: SocketId, custom: Any = None) -> None:
        link = self.links.get(peer)
        if link is None or link.state not in _ENDING:
            super().link(peer, custom)


class _ReusesIncarnations(LinkManager):
    def __init__(self, port: Any) -> None:
        super().__init__(port)
        numbers = count(1)
        port.next_incarnation = lambda: next(numbers)


class _HasAlwaysRoom(LinkManager):
    def __init__(self, port: Any) -> None:
        super().__init__(port)
        judge = port.judge
        port.judge = lambda *arguments: Reply.OK if (code := judge(*arguments)) is Reply.TMP_NAVAIL else code


class _DoesNotRepeatItself(LinkManager):
    def restarted(self, link: Link, life: int) -> None:
        if link.metadata is None or link.metadata.life == life:
            super().restarted(link, life)


class _TakesEveryLifeForANewOne(LinkManager):
    def on_link(self, sender: SocketId, message: Message) -> None:
        link = self.links.get(sender)
        if link is not None and link.metadata is not None and link.metadata.life != message.body[2]:
            self.lose(sender, "its node restarted")
        super().on_link(sender, message)


@define(eq=False)
class _Unsorted(Incoming):
    def accept(self, first: int, items: list[Item]) -> bool:
        self.received += len(items)
        self.queue.extend(items)
        return True


@define(eq=False)
class _TakesGrantsBack(Incoming):
    def resize(self, capacity: int) -> int:
        change = super().resize(capacity)
        self.granted += min(0, change)
        return change


@define(eq=False)
class _KeepsWhatItOwes(Incoming):
    def resize(self, capacity: int) -> int:
        change = capacity - self.capacity
        self.capacity = capacity
        self._set_batch_size()
        self.granted += max(0, change)
        return change


class _TrustsTheTransport(Accounts):
    def charge(self, link: Link) -> None:
        super().charge(link)
        self.unknown -= link.unknown
        link.unknown = 0


VARIANTS = {
    variant.name: variant
    for variant in (
        Variant(
            name="exists-dropped",
            story="a LINK of another conversation is not answered",
            manager=_DropsExists,
            scenario=RELINK,
            damage=Property.AGREED,
        ),
        Variant(
            name="metadata-not-awaited",
            story="a yes without metadata is taken for all there is",
            manager=_DoesNotAwaitMetadata,
            scenario=BOTH_SIDES,
            damage=Property.SOUND,
        ),
        Variant(
            name="early-unlink-ignored",
            story="UNLINK before the reply is ignored",
            manager=_IgnoresEarlyUnlink,
            scenario=ONE_SIDE,
            damage=Property.AGREED,
        ),
        Variant(
            name="goal-too-low",
            story="the conversation is over one message too early",
            manager=_GoalTooLow,
            scenario=ONE_SIDE,
            damage=Property.ARRIVED,
        ),
        Variant(
            name="goal-too-high",
            story="the conversation waits for a message that never was",
            manager=_GoalTooHigh,
            scenario=ONE_SIDE,
            damage=Property.AGREED,
        ),
        Variant(
            name="dead-not-ended",
            story="whoever speaks in a conversation that is over is not told",
            manager=_LeavesTheDeadAlone,
            scenario=FORCED,
            damage=Property.AGREED,
        ),
        Variant(
            name="reply-not-awaited",
            story="a conversation is over although the reply is still under way",
            manager=_DoesNotAwaitReply,
            scenario=ONE_SIDE,
            damage=Property.ARRIVED,
        ),
        Variant(
            name="name-forgotten",
            story="a link that is over forgets its name while its data waits for the transport",
            manager=_ForgetsItsName,
            scenario=LAZY,
            damage=Property.AGREED,
        ),
        Variant(
            name="not-disowned",
            story="our LINK was answered elsewhere, and the peer's end of this conversation is not told",
            manager=_DoesNotDisown,
            scenario=BUSY,
            damage=Property.AGREED,
        ),
        Variant(
            name="relink-forgotten",
            story="link() while the old link is closing does nothing",
            manager=_ForgetsToLinkAgain,
            scenario=RELINK,
            damage=Property.WISHED,
        ),
        Variant(
            name="incarnations-reused",
            story="each socket counts its conversations from 1, also when its tag had another one before",
            manager=_ReusesIncarnations,
            scenario=KILLED,
            damage=Property.AGREED,
        ),
        Variant(
            name="always-room",
            story="max_links is not looked at",
            manager=_HasAlwaysRoom,
            scenario=FULL,
            damage=Property.LIMIT,
        ),
        Variant(
            name="request-not-repeated",
            story="a LINK that may have been lost with a former life of the peer is not said again",
            manager=_DoesNotRepeatItself,
            scenario=CRASHED,
            damage=Property.AGREED,
        ),
        Variant(
            name="former-life-believed",
            story="a late LINK of a former life ends the link with the present one",
            manager=_TakesEveryLifeForANewOne,
            scenario=CRASHED,
            damage=Property.QUIET,
        ),
        Variant(
            name="unsorted",
            story="messages are received as they come",
            incoming=_Unsorted,
            scenario=evolve(UNORDERED, ordered=True),
            damage=Property.ONCE,
        ),
        Variant(
            name="grants-taken-back",
            story="credits that are taken away are no longer accepted, although they may be in use",
            incoming=_TakesGrantsBack,
            scenario=RESIZED,
            damage=Property.SOUND,
        ),
        Variant(
            name="debt-kept",
            story="what is owed is not returned when the capacity shrinks",
            incoming=_KeepsWhatItOwes,
            scenario=SHRUNK,
            damage=Property.FLOWING,
        ),
        Variant(
            name="acknowledged-believed",
            story="whoever ends a link by force takes what left for delivered",
            accounts=_TrustsTheTransport,
            scenario=FORCED,
            damage=Property.COUNTED,
        ),
    )
}
