"""What can go wrong, one class each, all of them :class:`A3MError`.

Each says what to do about it. What the network does wrong never raises; it is counted and dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from a3m.ids import SocketId
    from a3m.messages import Reply


class A3MError(Exception):
    """Root of the exceptions of A3M.

    What is wrong with an address is Exon's, BadAddress and AddressInUse; so is what is wrong with a file, StoreError.
    """


class Timeout(A3MError, TimeoutError):
    """The time given to a call was over. A message that was to be sent was not, and never arrives later."""


class Closed(A3MError):
    """The socket, node or poller is closed."""


class NoLinks(A3MError):
    """The call was told to wait only while there is a link, and there is none, nor one being made."""


class LinkRefused(A3MError):
    """The other side does not want the link; :attr:`code` says why."""

    def __init__(self, peer: SocketId, code: Reply) -> None:
        """Refused by ``peer``."""
        super().__init__(f"{peer} refused the link: {code.advice}")
        self.peer = peer
        self.code = code


class LinkClosed(A3MError):
    """A link ended that the call depended on; :attr:`reason` says why."""

    def __init__(self, peer: SocketId, reason: str) -> None:
        """Closed for ``reason``."""
        super().__init__(f"the link with {peer} is closed: {reason}")
        self.peer = peer
        self.reason = reason


class DeliveryUnknown(LinkClosed):
    """Nobody can say whether a request was handled, because the other side lost its memory.

    There is nobody left to ask: repeat the request if that does no harm, or look at what it should have changed.
    """


class NoRoute(A3MError):
    """A message was addressed to a socket that there is no link with; it was not sent."""


class NotSupported(A3MError, TypeError):
    """The pattern has no such operation: a PULL socket does not send."""


class PollError(A3MError, ValueError):
    """A poller was used wrongly."""


class MessageTooLarge(A3MError, ValueError):
    """A message is larger than the node may send; raise the option or send it in parts."""


class BadIdentifier(A3MError, ValueError):
    """A node id, tag or topic is not what one can be."""


class BadPayload(A3MError, TypeError):
    """A payload is neither bytes-like nor a sequence of bytes-like parts."""


class StateError(A3MError):
    """The call is out of turn: a REQ socket that asked nothing has nothing to receive."""


class JournalFull(A3MError):
    """The journal has reached its limit and nothing was appended; truncate what is not needed any more, and repeat."""
