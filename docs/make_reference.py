"""Write docs/reference.md: every public name with the first sentence of its docstring, and its methods.

python docs/make_reference.py
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from types import ModuleType, UnionType
from typing import Any, get_args

import a3m
import a3m.asyncio
import a3m.trio
import exon
import exon.protocol
import exon.simulation

PAGE = Path(__file__).parent / "reference.md"
HEAD = """\
# Reference

Every public name, one line each. `help(name)` in Python tells the rest, with examples. This page is written by
`docs/make_reference.py`; do not edit it.
"""
CONSTANTS = {  # what has no docstring of its own
    "DEALER": "The pattern DEALER, for `Node.socket()`.",
    "PAIR": "The pattern PAIR, for `Node.socket()`.",
    "POLLERR": "Event: something is wrong; always reported.",
    "POLLET": "Flag: edge-triggered, report what happens, not what is.",
    "POLLEXCLUSIVE": "Flag: of several pollers that wait for the same object, wake one.",
    "POLLHUP": "Event: closed; always reported.",
    "POLLIN": "Event: something can be received.",
    "POLLONESHOT": "Flag: report once, then nothing until `Poller.modify()`.",
    "POLLOUT": "Event: something can be sent.",
    "PUB": "The pattern PUB, for `Node.socket()`.",
    "PULL": "The pattern PULL, for `Node.socket()`.",
    "PUSH": "The pattern PUSH, for `Node.socket()`.",
    "REP": "The pattern REP, for `Node.socket()`.",
    "REQ": "The pattern REQ, for `Node.socket()`.",
    "ROUTER": "The pattern ROUTER, for `Node.socket()`.",
    "SCENARIOS": "The scenarios of the simulation, by name.",
    "SUB": "The pattern SUB, for `Node.socket()`.",
    "WOULD_BLOCK": "What a method of a pattern answers that cannot do it now.",
    "XPUB": "The pattern XPUB, for `Node.socket()`.",
    "XSUB": "The pattern XSUB, for `Node.socket()`.",
}
# Classes whose methods are listed; what Socket has is not repeated for the patterns.
DETAILED = [
    ("a3m.Node", a3m.Node),
    ("a3m.Socket", a3m.Socket),
    ("a3m.LinkHandle", a3m.LinkHandle),
    ("a3m.RouterSocket", a3m.RouterSocket),
    ("a3m.ReqSocket", a3m.ReqSocket),
    ("a3m.PubSocket", a3m.XPubSocket),
    ("a3m.SubSocket", a3m.SubSocket),
    ("a3m.XSubSocket", a3m.XSubSocket),
    ("a3m.Poller", a3m.Poller),
    ("a3m.Journal", a3m.Journal),
    ("a3m.Journal and a3m.JournalReader", a3m.Journal.__mro__[1]),
    ("a3m.Follower", a3m.Follower),
    ("exon.Endpoint", exon.Endpoint),
    ("exon.protocol.Node", exon.protocol.Node),
]
# Of sockets, what is for the application; the rest is for those who write patterns, in patterns.md.
APPLICATION = (
    *("send", "recv", "recv_parts", "send_many", "recv_many", "link", "unlink", "links", "pending", "link_to"),
    *("wait_linked", "wait_unlinked", "close", "stats", "subscribe", "unsubscribe", "subscriptions", "cancel"),
)


def text() -> str:
    """The whole page."""
    parts = [HEAD, names(a3m), names(exon)]
    for module in (a3m.trio, a3m.asyncio, exon.simulation):
        parts.append(f"## `{module.__name__}`\n\n{summary(module)}\n" + public_of(module))
    parts += [methods(name, cls) for name, cls in DETAILED]
    return "\n".join(parts)


def names(package: ModuleType) -> str:
    """A table of what a package exports."""
    lines = [f"## `{package.__name__}`\n", "| name | what it is |", "| --- | --- |"]
    for name in sorted(package.__all__, key=str.lower):
        lines.append(f"| `{package.__name__}.{name}` | {describe(package, name)} |")
    return "\n".join(lines) + "\n"


def describe(module: ModuleType, name: str) -> str:
    """One line about a name."""
    thing = getattr(module, name)
    if isinstance(thing, UnionType):
        return "One of " + ", ".join(f"`{kind.__name__}`" for kind in get_args(thing)) + "."
    return CONSTANTS.get(name) or summary(thing)


def public_of(module: ModuleType) -> str:
    """A table of what a module offers, if it says so."""
    exported = getattr(module, "__all__", [])
    if not exported:
        return ""
    rows = [f"| `{module.__name__}.{name}` | {describe(module, name)} |" for name in sorted(exported)]
    return "\n".join(["\n| name | what it is |", "| --- | --- |", *rows]) + "\n"


def methods(name: str, cls: type) -> str:
    """A table of what objects of a class can do."""
    lines = [f"## `{name}`\n", "| call | what it does |", "| --- | --- |"]
    if cls is a3m.Socket:
        lines += ["| `.id` | Its name, a `SocketId`. |", "| `.options` | Its `SocketOptions`, to read and to set. |"]
    for attribute in members(cls):
        lines.append(f"| `.{attribute}{signature(cls, attribute)}` | {summary(getattr(cls, attribute))} |")
    return "\n".join(lines) + "\n"


def members(cls: type) -> list[str]:
    """The public methods and properties that a class adds."""
    found = [name for name in vars(cls) if not name.startswith("_") and inspect.getdoc(getattr(cls, name))]
    callables = [name for name in found if callable(getattr(cls, name)) or isinstance(vars(cls)[name], property)]
    if not issubclass(cls, a3m.Socket):
        return callables
    # Patterns have methods for themselves, and some that are there to say that there is no such thing.
    return [name for name in callables if name in APPLICATION and "**__" not in signature(cls, name)]


def signature(cls: type, name: str) -> str:
    """The arguments by name, with their defaults."""
    if isinstance(vars(cls)[name], property):
        return ""
    parameters = list(inspect.signature(getattr(cls, name)).parameters.values())
    plain = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in parameters]
    if plain and plain[0].name in ("self", "cls"):
        plain = plain[1:]
    return str(inspect.Signature(plain)).replace("|", "\\|")


def summary(thing: Any) -> str:
    """The first sentence of a docstring."""
    first = " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())
    sentence = re.match(r".*?[.!?](?=\s|$)", first)
    plain = sentence[0] if sentence else first
    return re.sub(r":\w+:`~?(?:[\w.]+\.)?([\w]+)`", r"`\1`", plain).replace("``", "`").replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
