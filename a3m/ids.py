"""Names: of nodes, of sockets on them (tags), and both together (``"node/tag"``)."""

from __future__ import annotations

from typing import NamedTuple

from a3m.errors import BadIdentifier

MAX_BYTES = 255
RESERVED = "$"


def check_node(node: str) -> str:
    """The node's id itself, if it is one: text without a slash, which separates it from a tag."""
    _check("a node id", node)
    if "/" in node:
        raise BadIdentifier(f"node id {node!r} contains '/', which separates a node from a tag; use another character")
    return node


def check_tag(tag: str) -> str:
    """The tag itself, if it is one."""
    return _check("a tag", tag)


def _check(what: str, text: str) -> str:
    if not isinstance(text, str):
        raise BadIdentifier(f"{what} is text (str), not {type(text).__name__}")
    if not text:
        raise BadIdentifier(f"{what} must not be empty; use 1 to {MAX_BYTES} bytes of UTF-8 text")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise BadIdentifier(f"{what} must be writable as UTF-8, {text!r} is not") from None
    if size > MAX_BYTES:
        raise BadIdentifier(f"{what} has at most {MAX_BYTES} bytes of UTF-8, this one has {size}: {text[:40]!r}...")
    return text


class SocketId(NamedTuple):
    """A socket's full name.

    >>> print(SocketId.parse("server/echo"))
    server/echo
    >>> SocketId.parse("server")
    Traceback (most recent call last):
    a3m.errors.BadIdentifier: 'server' names no socket; write it as 'node/tag'
    """

    node: str
    tag: str

    @classmethod
    def parse(cls, text: str | SocketId) -> SocketId:
        """Read ``"node/tag"``; everything after the first slash is the tag."""
        if isinstance(text, SocketId):
            return text
        if not isinstance(text, str):
            raise BadIdentifier(f"a socket is named by text such as 'node/tag', not by {type(text).__name__}")
        if "://" in text:
            raise BadIdentifier(
                f"{text!r} is an address; link to a name, 'node/tag', and say where with Node.register()"
            )
        node, slash, tag = text.partition("/")
        if not slash:
            raise BadIdentifier(f"{text!r} names no socket; write it as 'node/tag'")
        return cls(check_node(node), check_tag(tag))

    def __str__(self) -> str:
        """As it is written."""
        return f"{self.node}/{self.tag}"
