"""Nodes for every test of the package that wants some."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.a3m.nodes import Nodes


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    """Open nodes with it; they know each other, and are closed afterwards."""
    with Nodes() as opened:
        yield opened
