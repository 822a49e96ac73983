"""Links of one socket: turns calls and messages into inputs of the table, and carries out what it says.

No time, no threads, no sockets: everything outside is behind :class:`Port`. The explorer in ``tests/model_links`` runs
two or three of these through every interleaving.
"""

from __future__ import annotations

from typing import Any, Protocol

from a3m import messages
from a3m.ids import SocketId
from a3m.link import Link
from a3m.link_machine import Action, Input, State, step
from a3m.messages import Malformed, Message, Metadata, Reply, metadata_of

_BEFORE_METADATA = (State.WAIT_BOTH, State.CANCELLING_BOTH)
_OVERTAKEN = (State.WAIT_METADATA, State.CANCELLING_METADATA)
_BEFORE_REPLY = (State.WAIT_REPLY, State.CANCELLING_REPLY)
_IDLE = (State.ABSENT, State.WAIT_RETRY)
_ENDING = (
    State.CANCELLING_BOTH,
    State.CANCELLING_METADATA,
    State.CANCELLING_REPLY,
    State.UNLINKING,
)
LIVE = (State.ESTABLISHED, State.UNLINKING)

BY_US = "unlinked"  # the reason of a link's end that nobody need be told


class Port(Protocol):
    """What a link manager needs of the socket it serves."""

    def next_incarnation(self) -> int:
        """A number above 0 that was never used on this node."""

    def about_us(self, link: Link) -> Metadata:
        """What to tell the peer; the link will have the capacity that this names."""

    def judge(self, peer: SocketId, metadata: Metadata, wanted: bool) -> Reply:
        """Whether we want a link with such a peer."""

    def post(self, peer: SocketId, type_: int, mine: int, yours: int, body: tuple[Any, ...]) -> None:
        """Send a message."""

    def post_answer(self, peer: SocketId, type_: int, mine: int, yours: int, body: tuple[Any, ...]) -> None:
        """Send a message to somebody who is in no conversation with us; it may be dropped if the peer takes none."""

    def retract_link(self, link: Link) -> None:
        """Do not send LINK any more, if it has not left yet."""

    def schedule(self, link: Link) -> None:
        """Call :meth:`LinkManager.retry` some time later."""

    def link_up(self, link: Link) -> None:
        """A link is established."""

    def link_down(self, link: Link, reason: str) -> None:
        """A link that was established, or was being made, is gone."""

    def link_refused(self, link: Link, code: Reply) -> None:
        """A link that was wanted cannot be."""


class LinkManager:
    """The links of one socket, by peer."""

    def __init__(self, port: Port) -> None:
        """No links yet."""
        self._port = port
        self.links: dict[SocketId, Link] = {}

    # -- what the application wants ----------------------------------------------------------------------------------

    def link(self, peer: SocketId, custom: Any = None) -> None:
        """Have a link with ``peer``, as soon as that is possible."""
        link = self.links.get(peer)
        if link is None:
            link = self.links[peer] = Link(peer)
        if link.state in _ENDING:
            link.relink = True
            link.custom = custom
            return
        link.wanted = True
        if link.state is State.ABSENT:
            link.custom = custom
            self._step(link, Input.CALL_LINK)

    def unlink(self, peer: SocketId, force: bool = False) -> None:
        """Have no link with ``peer``; without ``force`` only after everything that was sent has arrived."""
        link = self.links.get(peer)
        if link is None:
            return
        link.relink = False
        link.wanted = False
        self._step(link, Input.CALL_FORCE if force else Input.CALL_UNLINK, BY_US)

    def retry(self, link: Link) -> None:
        """The time that :meth:`Port.schedule` was asked for has come."""
        if self.links.get(link.peer) is link:
            self._step(link, Input.RETRY_DUE)

    def lose(self, peer: SocketId, reason: str) -> None:
        """The peer's node has lost its memory."""
        link = self.links.get(peer)
        if link is not None:
            self._forgotten(link, reason)

    def restarted(self, link: Link, life: int) -> None:
        """The peer's node has lost its memory, and that life of it is over; this may be a link with its next one."""
        if link.metadata is None or link.metadata.life == life:
            self._forgotten(link, "its node restarted")
        elif link.asked and link.state in _BEFORE_REPLY:
            # Our LINK may have been lost with the old life. Saying it again does no harm if it was not.
            about = self._port.about_us(Link(link.peer, custom=link.custom))._replace(capacity=link.capacity)
            self._port.post(link.peer, messages.LINK, link.mine, 0, about)

    def _forgotten(self, link: Link, reason: str) -> None:
        # One that is not there yet is made all the same, and has lost nothing.
        link.forgotten = link.state in LIVE
        self._step(link, Input.PEER_LOST, reason)

    # -- what the peer says ------------------------------------------------------------------------------------------

    def on_link(self, sender: SocketId, message: Message) -> None:
        """LINK: the peer wants a link, and tells about itself."""
        metadata = metadata_of(message.body)
        if not message.mine:
            raise Malformed
        link = self.links.get(sender)
        if link is not None and link.mine and link.metadata is not None and link.metadata.life != metadata.life:
            # Either its node has lost its memory, and the old link with it; or this is a late word of a former life.
            # Lives have no order, so ask: if the peer does not know our conversation, it says so, and in which life.
            self._port.post_answer(sender, messages.FLOW, link.mine, 0, ())
        if link is None:
            link = Link(sender)
        if link.state in _IDLE or link.state in _BEFORE_METADATA:
            verdict = self._port.judge(sender, metadata, link.wanted)
            link.theirs, link.metadata = message.mine, metadata
            self._step(link, _request(verdict), verdict)
        elif message.mine != link.theirs:
            self._step(link, Input.REQUEST_OTHER, other=message.mine)
        elif link.state in _OVERTAKEN:
            link.metadata = metadata
            self._decide(link, Reply.OK)  # nothing else is said without metadata

    def on_reply(self, sender: SocketId, message: Message) -> None:
        """LINKREPLY: whether the peer wants the link that we asked for."""
        if not message.body or type(message.body[0]) is not int or message.body[0] not in set(Reply):
            raise Malformed
        code = Reply(message.body[0])
        metadata = metadata_of(message.body[1:]) if len(message.body) > 1 else None
        if (not message.mine) if code is Reply.OK else (metadata is None):
            raise Malformed
        link = self._addressee(sender, message)
        if link is None or (link.theirs and message.mine != link.theirs):
            if code is Reply.OK:
                self._end(sender, message)  # it waits for somebody who is not there any more
            if link is not None and link.state in _BEFORE_REPLY:
                self._disown(link)
                self._step(link, Input.FORCED if code is Reply.OK else _verdict(code), code)
            return
        link.replied = True
        if link.state in _BEFORE_METADATA and metadata is not None:
            link.theirs, link.metadata = message.mine, metadata
            self._decide(link, code)
            return
        link.theirs = message.mine
        self._step(link, _verdict(code), code)
        self.check_done(link)

    def on_unlink(self, sender: SocketId, message: Message) -> None:
        """UNLINK: the peer sends nothing more, and says how much it sent in all; or, forced, that all is over."""
        if len(message.body) != 2 or type(message.body[0]) is not int or type(message.body[1]) is not bool:
            raise Malformed
        sent, forced = message.body
        link = self._addressee(sender, message)
        if forced:
            self._on_forced(link, message)
        elif link is None or message.mine != link.theirs:
            self._end(sender, message)
        else:
            self._step(link, Input.UNLINK, "the peer unlinked")
            if link.state is State.UNLINKING and link.incoming is not None:
                link.incoming.goal = sent
                self.check_done(link)

    def _on_forced(self, link: Link | None, message: Message) -> None:
        if link is None:
            return
        if link.theirs and message.mine != link.theirs:
            if link.state not in _BEFORE_REPLY:
                return
            self._disown(link)
        self._step(link, Input.FORCED, "the peer ended it")

    def on_traffic(self, sender: SocketId, message: Message) -> Link | None:
        """DATA, FLOW or a control message: the link it belongs to, if it still counts."""
        link = self._addressee(sender, message)
        if link is None or message.mine != link.theirs:
            if message.type == messages.DATA:
                self._end(sender, message)
            return None
        self._step(link, Input.TRAFFIC)
        return link if link.state in LIVE else None

    def on_error(self, sender: SocketId, message: Message) -> None:
        """ERROR: there is no such socket."""
        link = self._addressee(sender, message)
        if link is not None:
            if link.state in _BEFORE_REPLY:
                self._disown(link)
            self._step(link, Input.PEER_LOST, "there is no such socket there; is the tag right?")

    def check_done(self, link: Link) -> None:
        """A message arrived while unlinking: was it the last?

        The reply counts, too: if it came when nobody remembers the conversation, its sender would be told so, and give
        up what is still under way to it.
        """
        if link.state is State.UNLINKING and link.incoming is not None and link.incoming.all_here and link.replied:
            self._step(link, Input.ALL_HERE, BY_US)

    # -- the table at work -------------------------------------------------------------------------------------------

    def _decide(self, link: Link, theirs: Reply) -> None:
        """Metadata and reply are both known now."""
        assert link.metadata is not None
        ours = self._port.judge(link.peer, link.metadata, link.wanted)
        self._step(link, _combine(theirs, ours), _worse(theirs, ours))

    def _addressee(self, sender: SocketId, message: Message) -> Link | None:
        """The link whose present conversation a message speaks to; it may still speak of another one."""
        link = self.links.get(sender)
        return link if link is not None and link.mine and message.yours == link.mine else None

    def _disown(self, link: Link) -> None:
        """End a conversation in which we wait for a reply, because our LINK was answered outside it.

        That happens when requests cross after a refusal or a forced end: the one of the peer began this conversation
        here, and ours began another one there, or none. The peer has no metadata of us and waits in vain for it.
        """
        self._port.post(link.peer, messages.UNLINK, link.mine, link.theirs, (0, True))

    def _step(self, link: Link, event: Input, why: Reply | str = "", other: int = 0) -> None:
        cell = step(link.state, event, link.wanted)
        if cell is None:
            return
        before = link.state
        link.state = cell.next
        if before is State.ABSENT and cell.next is not State.ABSENT:
            self.links[link.peer] = link
        for action in cell.actions:
            self._perform(link, action, before, why, other)
        if cell.next is State.ABSENT:
            self._remove(link)

    def _remove(self, link: Link) -> None:
        if self.links.get(link.peer) is link:
            del self.links[link.peer]
        if link.relink:
            self.link(link.peer, link.custom)

    def _perform(self, link: Link, action: Action, before: State, why: Reply | str, other: int) -> None:
        port = self._port
        match action:
            case Action.SEND_LINK:
                link.mine, link.theirs, link.metadata = port.next_incarnation(), 0, None
                link.asked, link.told, link.replied = True, True, False
                port.post(link.peer, messages.LINK, link.mine, 0, port.about_us(link))
            case Action.RETRACT_LINK:
                port.retract_link(link)
            case Action.SEND_YES:
                if before in _IDLE:
                    link.mine = port.next_incarnation()
                    link.asked = link.told = link.replied = False
                self._send_reply(link)
            case Action.SEND_NO:
                assert isinstance(why, Reply)
                self._decline(link, 0 if before in _IDLE else link.mine, link.theirs, why)
            case Action.SEND_CANCELED:
                self._decline(link, link.mine, link.theirs, Reply.CANCELED)
            case Action.SEND_EXISTS:
                self._decline(link, 0, other, Reply.LINK_EXISTS)
            case Action.SEND_UNLINK:
                assert link.outgoing is not None
                port.post(link.peer, messages.UNLINK, link.mine, link.theirs, (link.outgoing.sent, False))
            case Action.SEND_FORCED:
                port.post(link.peer, messages.UNLINK, link.mine, link.theirs, (0, True))
            case Action.ESTABLISH:
                link.tries = 0
                port.link_up(link)
            case Action.CLOSE:
                self._close(link, str(why))
            case Action.REFUSE:
                assert isinstance(why, Reply)
                port.link_refused(link, why)
            case Action.SCHEDULE:
                self._wait_to_retry(link, why.advice if isinstance(why, Reply) else why)

    def _wait_to_retry(self, link: Link, why: str) -> None:
        """No conversation now; another one later."""
        if link.incoming is not None:  # what came over the old one is still to be taken: leave it alone
            fresh = Link(link.peer, State.WAIT_RETRY, wanted=True, custom=link.custom)
            link.state = State.ABSENT
            self.links[link.peer] = link = fresh
        link.mine = link.theirs = 0
        link.metadata = None
        link.put_off = why
        self._port.schedule(link)

    def _close(self, link: Link, reason: str) -> None:
        # Off the books first: whoever is told may ask for a new link at once.
        if self.links.get(link.peer) is link:
            del self.links[link.peer]
        self._port.link_down(link, reason)

    def _send_reply(self, link: Link) -> None:
        about = () if link.told else self._port.about_us(link)
        link.told = True
        self._port.post(link.peer, messages.LINKREPLY, link.mine, link.theirs, (int(Reply.OK), *about))

    def _decline(self, link: Link, mine: int, theirs: int, code: Reply) -> None:
        """Say no, with ``mine`` 0 if there is no conversation. Always with metadata: we do not wait for questions."""
        about = self._port.about_us(Link(link.peer, custom=link.custom))  # what this link was promised stays as it is
        send = self._port.post if mine else self._port.post_answer
        send(link.peer, messages.LINKREPLY, mine, theirs, (int(code), *about))

    def _end(self, peer: SocketId, message: Message) -> None:
        """Tell somebody that the conversation it goes on with is over."""
        self._port.post_answer(peer, messages.UNLINK, message.yours, message.mine, (0, True))


def _request(ours: Reply) -> Input:
    if ours is Reply.OK:
        return Input.REQUEST_YES
    return Input.REQUEST_NEVER if ours.fatal else Input.REQUEST_LATER


def _verdict(theirs: Reply) -> Input:
    if theirs is Reply.OK:
        return Input.REPLY_YES
    return Input.REPLY_NEVER if theirs.fatal else Input.REPLY_LATER


def _worse(theirs: Reply, ours: Reply) -> Reply:
    """The reason that counts: the peer's, unless only ours is one that asking again does not help."""
    return ours if theirs is Reply.OK or (ours.fatal and not theirs.fatal) else theirs


def _combine(theirs: Reply, ours: Reply) -> Input:
    """What follows from both replies."""
    if theirs is Reply.OK:
        if ours is Reply.OK:
            return Input.AGREED
        return Input.DECLINED_NEVER if ours.fatal else Input.DECLINED_LATER
    return Input.REFUSED if theirs.fatal or ours.fatal else Input.PUT_OFF
