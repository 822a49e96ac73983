"""PAIR: exactly two sockets that talk to each other. First in, first out in each direction.

A third one that wants to link is put off until the place is free.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from a3m.socket import Socket


class PairSocket(Socket):
    """Has one link at a time."""

    protocol = "PAIR"
    compatible = frozenset({"PAIR"})
    defaults: ClassVar[Mapping[str, Any]] = {"max_links": 1}
