"""Who is who and where: node ids and the address book (003, section 6.1).

State is keyed by id alone. An address is only where the next datagram goes, and comes from three sources: registered
by hand, answered by a discovery service, or learnt from datagrams that arrive. What traffic teaches counts most,
because it is the newest; but a claim moves nobody: only a datagram that is newer than all before it and that proves,
by naming our epoch, that its sender has heard from us, changes the address of a peer.
"""

from __future__ import annotations

from exon.addresses import Address
from exon.errors import BadIdentifier
from exon.wire import MAX_ID


def check_id(node_id: str) -> str:
    """The id itself, if it is one.

    >>> check_id("sensor-7")
    'sensor-7'
    >>> check_id("")
    Traceback (most recent call last):
    exon.errors.BadIdentifier: a node id must not be empty; use 1 to 255 bytes of UTF-8 text
    """
    if not isinstance(node_id, str):
        raise BadIdentifier(f"a node id is text (str), not {type(node_id).__name__}")
    if not node_id:
        raise BadIdentifier("a node id must not be empty; use 1 to 255 bytes of UTF-8 text")
    try:
        size = len(node_id.encode())
    except UnicodeEncodeError:
        raise BadIdentifier(f"node id {node_id!r} cannot be written as UTF-8; leave out lone surrogates") from None
    if size > MAX_ID:
        raise BadIdentifier(f"a node id has at most 255 bytes of UTF-8, this one has {size}: {node_id[:40]!r}...")
    return node_id


class AddressBook:
    """Addresses that were given, as opposed to learnt; they stay until they are taken back."""

    def __init__(self) -> None:
        """Know nobody."""
        self._registered: dict[str, Address] = {}
        self._moved: dict[str, Address] = {}  # where those of them were heard last who were heard elsewhere

    def register(self, node_id: str, address: Address) -> None:
        """Remember where a node is, replacing what was remembered."""
        self._registered[check_id(node_id)] = address
        self._moved.pop(node_id, None)

    def unregister(self, node_id: str) -> None:
        """Forget what was registered; no error if nothing was."""
        self._registered.pop(node_id, None)
        self._moved.pop(node_id, None)

    def learn(self, node_id: str, address: Address) -> None:
        """A node was heard elsewhere. Only of registered ones this is remembered, so that strangers fill no memory."""
        if node_id in self._registered:
            self._moved[node_id] = address

    def find(self, node_id: str) -> Address | None:
        """Where a node is, as far as anyone knows."""
        return self._moved.get(node_id) or self._registered.get(node_id)

    def registered(self, node_id: str) -> Address | None:
        """Where a node is according to whoever registered it."""
        return self._registered.get(node_id)

    def __len__(self) -> int:
        """How many nodes are registered."""
        return len(self._registered)
