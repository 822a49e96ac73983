"""REQ and REP: ask, and be answered.

A REQ has one question out at a time: it sends to its links in turn, and then receives from the one it asked. A second
thread that wants to ask waits until the answer to the first is taken. If the link ends before the answer is here,
:meth:`ReqSocket.recv` raises :class:`~a3m.LinkClosed`, and if it ended because the other node lost its memory,
:class:`~a3m.DeliveryUnknown`, which is one; :meth:`ReqSocket.cancel` gives up. Questions are numbered, and the number
travels as the first hop of the route, so an answer to a question that was given up is known and discarded.

A REP answers the question it received last; a second thread that wants to receive waits until it is answered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from a3m.errors import DeliveryUnknown, LinkClosed, StateError
from a3m.flow import Item
from a3m.link import Link
from a3m.payload import from_body
from a3m.signals import Held
from a3m.socket import Socket
from a3m.socket_core import WOULD_BLOCK
from a3m.waitqueue import POLLERR, POLLIN, POLLOUT


class ReqSocket(Socket):
    """Asks, one question at a time.

    >>> import a3m
    >>> with a3m.Node("home", bind="127.0.0.1:0") as node:
    ...     req, rep = node.req("client"), node.rep("server")
    ...     req.link("home/server")
    ...     req.send(b"still there?", timeout=5)
    ...     req.cancel()  # never mind
    ...     req.send(b"what time is it?", timeout=5)
    ...     for _ in range(2):
    ...         rep.send(b"about " + rep.recv(timeout=5))
    ...     req.recv(timeout=5)
    b'about what time is it?'
    """

    protocol = "REQ"
    compatible = frozenset({"REP", "ROUTER"})
    defaults: ClassVar[Mapping[str, Any]] = {"ordered": False}

    def __init__(self, *args: Any, **options: Any) -> None:
        """Nothing is asked yet."""
        super().__init__(*args, **options)
        self._asked: Link | None = None
        self._number = 0
        self._way: list[str] = []  # the way back of the answer to the last question
        self._answer: Any = WOULD_BLOCK
        self._lost: LinkClosed | None = None  # why there will be no answer

    def try_send(self, item: Item) -> Any:
        """Ask, unless an answer is outstanding."""
        if self._asked is not None:
            return WOULD_BLOCK
        link = self.route(item)
        if link is None:
            return WOULD_BLOCK
        self._asked = link
        self._number += 1
        self._way = [f"#{self._number}"]
        self.push(link, [None, self._way, item])
        return None

    def try_receive(self) -> Any:
        """The answer."""
        if self._asked is None:
            raise StateError(f"{self.id} has asked nothing; send() a request first")
        if self._answer is WOULD_BLOCK and self._lost is None:
            return WOULD_BLOCK
        answer, lost = self._answer, self._lost
        self._finish()
        if lost is not None:
            raise lost
        return from_body(answer)

    def cancel(self) -> None:
        """Give up on the answer, if one is outstanding; the socket can ask again at once."""
        with Held(self.core.lock):
            if self._asked is not None:
                self._finish()
                # Whoever waits for the answer finds out that there is no question any more.
                self.wait_queue.wake_all(POLLIN)

    def _finish(self) -> None:
        self._asked, self._answer, self._lost = None, WOULD_BLOCK, None
        queue = self.wait_queue
        if (queue.shared or queue.exclusive) and super().can_send_now():
            self.wake(POLLOUT)

    def on_message(self, link: Link, items: list[Item]) -> None:
        """Keep the answer to the question that is out; drop answers to questions that were given up."""
        assert link.incoming is not None
        link.incoming.queue.clear()
        for item in items:
            self.give_back(link)
            if (
                link is self._asked
                and self._answer is WOULD_BLOCK
                and type(item) is list
                and item[:2] == [None, self._way]
            ):
                self._answer = item[2]
                self.wake(POLLIN)

    def on_unlink(self, link: Link, reason: str) -> None:
        """The question goes with the link."""
        if link is self._asked and self._answer is WOULD_BLOCK:
            self._lost = _lost(link, reason)
            self.wake(POLLIN | POLLERR)

    def can_receive_now(self) -> bool:
        """Whether the answer, or the news that there is none, is here."""
        return self._asked is not None and (self._answer is not WOULD_BLOCK or self._lost is not None)

    def why_not(self, events: int) -> str | None:
        """It waits for its own answer."""
        if events & POLLOUT and self._asked is not None:
            return "the last request is not answered yet; recv() the answer, or cancel()"
        return None

    def can_send_now(self) -> bool:
        """Whether nothing is asked and somebody could be."""
        return self._asked is None and super().can_send_now()


def _lost(link: Link, reason: str) -> LinkClosed:
    """What becomes of the question that was asked last over a link that has ended."""
    if link.unsent:  # the question is the last of them
        return LinkClosed(link.peer, f"{reason}; the request was not sent, ask again")
    error = DeliveryUnknown if link.forgotten else LinkClosed
    return error(
        link.peer, f"{reason}; whether the request was handled is not known, repeat it only if that does no harm"
    )


class RepSocket(Socket):
    """Answers, one question at a time.

    >>> import a3m
    >>> with a3m.Node("home", bind="127.0.0.1:0") as node:
    ...     req, rep = node.req("client"), node.rep("server")
    ...     req.link("home/server")
    ...     req.send(b"what time is it?", timeout=5)
    ...     rep.recv(timeout=5)
    ...     rep.send(b"noon")
    ...     req.recv(timeout=5)
    b'what time is it?'
    b'noon'
    """

    protocol = "REP"
    compatible = frozenset({"REQ", "DEALER"})
    defaults: ClassVar[Mapping[str, Any]] = {"ordered": False}

    def __init__(self, *args: Any, **options: Any) -> None:
        """Nobody has asked yet."""
        super().__init__(*args, **options)
        self._asking: tuple[Link, Sequence[str]] | None = None

    def try_receive(self) -> Any:
        """The next question, unless one is unanswered."""
        if self._asking is not None:
            return WOULD_BLOCK
        taken = self.take()
        if taken is WOULD_BLOCK:
            return WOULD_BLOCK
        link, item = taken
        route: Sequence[str] = ()
        if type(item) is list and item[0] is None:
            _, route, item = item
        self._asking = link, route
        self.wake(POLLOUT)
        return from_body(item)

    def try_send(self, item: Item) -> Any:
        """Answer whoever asked last."""
        if self._asking is None:
            raise StateError(f"{self.id} has no question to answer; recv() one first")
        link, route = self._asking
        if not link.established:
            self._finish()
            raise LinkClosed(link.peer, "whoever asked is gone; the answer was not sent")
        if not link.can_send:
            return WOULD_BLOCK
        self._finish()
        self.push(link, [None, route, item] if route else item)
        return None

    def _finish(self) -> None:
        self._asking = None
        queue = self.wait_queue
        if (queue.shared or queue.exclusive) and super().can_receive_now():
            self.wake(POLLIN)

    def on_unlink(self, link: Link, reason: str) -> None:  # noqa: ARG002
        """Whoever wants to answer finds out that nobody is there."""
        if self._asking is not None and self._asking[0] is link:
            self.wake(POLLOUT | POLLERR)

    def can_receive_now(self) -> bool:
        """Whether a question is here and none is unanswered."""
        return self._asking is None and super().can_receive_now()

    def why_not(self, events: int) -> str | None:
        """It owes an answer."""
        if events & POLLIN and self._asking is not None:
            return f"the request from {self._asking[0].peer} is not answered yet; send() the answer first"
        return None

    def can_send_now(self) -> bool:
        """Whether there is a question that can be answered now, or whose asker is gone."""
        return self._asking is not None and (self._asking[0].can_send or not self._asking[0].established)
