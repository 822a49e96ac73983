"""Links of one socket: turns calls and messages into inputs of the table, and carries out what it says.

No time, no threads, no sockets: everything outside is behind :class:`Port`, so that the explorer in ``tests/model`` can
run two of these through every interleaving.
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

_REQUEST = {Reply.OK: Input.REQUEST_YES}
_REPLY = {Reply.OK: Input.REPLY_YES}


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
        self._step(link, Input.CALL_FORCE if force else Input.CALL_UNLINK, "unlinked")

    def retry(self, link: Link) -> None:
        """The time that :meth:`Port.schedule` was asked for has come."""
        if self.links.get(link.peer) is link:
            self._step(link, Input.RETRY_DUE)

    def lose(self, peer: SocketId, reason: str) -> None:
        """The peer has lost its memory, or is not there."""
        link = self.links.get(peer)
        if link is not None:
            self._step(link, Input.PEER_LOST, reason)

    # -- what the peer says ------------------------------------------------------------------------------------------

    def on_link(self, sender: SocketId, message: Message) -> None:
        """LINK: the peer wants a link, and tells about itself."""
        metadata = metadata_of(message.body)
        link = self.links.get(sender)
        if link is not None and link.metadata is not None and link.metadata.life != metadata.life:
            # Its node has lost its memory, and the old link with it. Nobody else will tell us.
            self._step(link, Input.PEER_LOST, "its node restarted")
            link = self.links.get(sender)
        if link is None:
            link = Link(sender)
        verdict = self._port.judge(sender, metadata, link.wanted)
        if link.state in _IDLE or link.state in _BEFORE_METADATA:
            self._begin(link, message.mine, metadata)
            self._step(
                link, _REQUEST.get(verdict) or _unless(verdict, Input.REQUEST_NEVER, Input.REQUEST_LATER), verdict
            )
        elif message.mine == link.theirs:
            if link.state in _OVERTAKEN:
                link.metadata = metadata
                assert link.reply is not None
                self._step(link, _combine(link.reply, verdict), verdict if link.reply is Reply.OK else link.reply)
        else:
            self._answer(sender, message.mine, Reply.LINK_EXISTS, link)

    def on_reply(self, sender: SocketId, message: Message) -> None:
        """LINKREPLY: whether the peer wants the link that we asked for."""
        if not message.body or message.body[0] not in set(Reply):
            raise Malformed
        code = Reply(message.body[0])
        metadata = metadata_of(message.body[1:]) if len(message.body) > 1 else None
        link = self.links.get(sender)
        if link is None or not link.mine or message.yours != link.mine:
            if code is Reply.OK:
                self._end(sender, message.mine)  # it waits for the reply of somebody who is not there any more
            return
        if link.state in _BEFORE_METADATA:
            link.theirs = message.mine
            if metadata is None:
                link.reply = code
                self._step(link, _REPLY.get(code) or _unless(code, Input.REPLY_NEVER, Input.REPLY_LATER))
                return
            link.metadata = metadata
            verdict = self._port.judge(sender, metadata, link.wanted)
            self._step(link, _combine(code, verdict), verdict if code is Reply.OK else code)
        elif link.state in _BEFORE_REPLY and message.mine in (0, link.theirs):
            self._step(link, _REPLY.get(code) or _unless(code, Input.REPLY_NEVER, Input.REPLY_LATER), code)

    def on_unlink(self, sender: SocketId, message: Message) -> None:
        """UNLINK: the peer sends nothing more, and says how much it sent in all."""
        if len(message.body) != 2 or type(message.body[0]) is not int or type(message.body[1]) is not bool:
            raise Malformed
        sent, forced = message.body
        link = self.links.get(sender)
        if link is None or not link.mine or message.yours != link.mine or message.mine not in (0, link.theirs):
            if not forced:
                self._end(sender, message.mine)
            return
        if forced:
            self._step(link, Input.FORCED, "the peer ended it")
            return
        self._step(link, Input.UNLINK, "the peer unlinked")
        if link.state is State.UNLINKING and link.incoming is not None:
            link.incoming.goal = sent
            self.check_done(link)

    def on_traffic(self, sender: SocketId, message: Message) -> Link | None:
        """DATA, FLOW or a control message: the link it belongs to, if it still counts."""
        link = self.links.get(sender)
        if link is None or not link.mine or message.yours != link.mine or message.mine != link.theirs:
            if message.type == messages.DATA:
                self._end(sender, message.mine)
            return None
        self._step(link, Input.TRAFFIC)
        return link if link.state in LIVE else None

    def on_error(self, sender: SocketId, message: Message) -> None:
        """ERROR: there is no such socket."""
        link = self.links.get(sender)
        if link is not None and link.mine and message.yours == link.mine:
            self._step(link, Input.PEER_LOST, "there is no such socket")

    def check_done(self, link: Link) -> None:
        """A message arrived while unlinking: was it the last?"""
        if link.state is State.UNLINKING and link.incoming is not None and link.incoming.all_here:
            self._step(link, Input.ALL_HERE, "unlinked")

    # -- the table at work -------------------------------------------------------------------------------------------

    def _begin(self, link: Link, theirs: int, metadata: Metadata) -> None:
        link.theirs = theirs
        link.metadata = metadata

    def _step(self, link: Link, event: Input, why: Reply | str = "") -> None:
        cell = step(link.state, event, link.wanted)
        if cell is None:
            return
        before = link.state
        link.state = cell.next
        if before is State.ABSENT and cell.next is not State.ABSENT:
            self.links[link.peer] = link
        for action in cell.actions:
            self._perform(link, action, before, why)
        if cell.next is State.ABSENT:
            self._remove(link)

    def _remove(self, link: Link) -> None:
        if self.links.get(link.peer) is link:
            del self.links[link.peer]
        link.mine = 0
        if link.relink:
            self.link(link.peer, link.custom)

    def _perform(self, link: Link, action: Action, before: State, why: Reply | str) -> None:
        port = self._port
        match action:
            case Action.SEND_LINK:
                link.mine, link.theirs, link.metadata, link.reply = port.next_incarnation(), 0, None, None
                link.told = True
                port.post(link.peer, messages.LINK, link.mine, 0, port.about_us(link))
            case Action.SEND_YES:
                if before in _IDLE:
                    link.mine, link.told = port.next_incarnation(), False
                self._send_reply(link, Reply.OK)
            case Action.SEND_NO:
                assert isinstance(why, Reply)
                if before in _IDLE:
                    self._answer(link.peer, link.theirs, why, link)
                else:
                    self._send_reply(link, why)
            case Action.SEND_CANCELED:
                self._send_reply(link, Reply.CANCELED)
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
                self._wait_to_retry(link)

    def _wait_to_retry(self, link: Link) -> None:
        """No conversation now; another one later."""
        if link.incoming is not None:  # what came over the old one is still to be taken: leave it alone
            fresh = Link(link.peer, State.WAIT_RETRY, wanted=True, custom=link.custom)
            self.links[link.peer] = link = fresh
        link.mine = link.theirs = 0
        link.metadata = link.reply = None
        self._port.schedule(link)

    def _close(self, link: Link, reason: str) -> None:
        # Off the books first: whoever is told may ask for a new link at once.
        if self.links.get(link.peer) is link:
            del self.links[link.peer]
        self._port.link_down(link, reason)

    def _send_reply(self, link: Link, code: Reply) -> None:
        about = () if link.told else self._port.about_us(link)
        link.told = True
        self._port.post(link.peer, messages.LINKREPLY, link.mine, link.theirs, (int(code), *about))

    def _answer(self, peer: SocketId, theirs: int, code: Reply, link: Link) -> None:
        """Answer a request for which there is no conversation."""
        self._port.post(peer, messages.LINKREPLY, 0, theirs, (int(code), *self._port.about_us(link)))

    def _end(self, peer: SocketId, theirs: int) -> None:
        """Tell somebody that the conversation it goes on with is over."""
        self._port.post(peer, messages.UNLINK, 0, theirs, (0, True))


def _unless(code: Reply, fatal: Input, later: Input) -> Input:
    return fatal if code.fatal else later


def _combine(theirs: Reply, ours: Reply) -> Input:
    """What follows from both replies."""
    if theirs is Reply.OK:
        if ours is Reply.OK:
            return Input.AGREED
        return Input.DECLINED_NEVER if ours.fatal else Input.DECLINED_LATER
    return Input.REFUSED if theirs.fatal or ours.fatal else Input.PUT_OFF
