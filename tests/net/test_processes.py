"""Two real processes over loopback with a bad network in front of each socket."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.net.processes import Processes

EXACTLY_ONCE = {"missing": 0, "twice": 0, "strange": 0, "damaged": 0}


def transfer(folder: Path, *, count: int, size: int, loss: float, moves: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Send messages from one process to another; what each of them saw."""
    common: list[object] = ["--folder", folder, "--count", count, "--size", size, "--loss", loss]
    common += ["--bind", *["127.0.0.1:0"] * (1 + moves)]
    with Processes() as processes:
        receiver = processes.start("receive", "--id", "bob", "--seed", 1, *common)
        sender = processes.start("send", "--id", "alice", "--peer", "bob", "--seed", 2, *common)
        return sender.finish(), receiver.finish()


def test_exactly_once_through_heavy_loss_and_moves(tmp_path: Path) -> None:
    sent, received = transfer(tmp_path, count=100_000, size=200, loss=0.2, moves=3)
    assert (sent["undelivered"], sent["unknown"]) == (0, 0), sent["why"]
    assert received["distinct"] == 100_000
    assert {name: received[name] for name in EXACTLY_ONCE} == EXACTLY_ONCE
    assert sent["moved"] == received["moved"] == 3
    assert sent["stats"]["retransmissions"] > 0


def test_a_large_message_through_loss_is_not_sent_again_as_a_whole(tmp_path: Path) -> None:
    size = 50 << 20
    sent, received = transfer(tmp_path, count=1, size=size, loss=0.05, moves=0)
    assert (sent["undelivered"], sent["unknown"]) == (0, 0), sent["why"]
    assert received["distinct"] == 1
    assert {name: received[name] for name in EXACTLY_ONCE} == EXACTLY_ONCE
    assert size < sent["stats"]["bytes_sent"] < 1.25 * size
