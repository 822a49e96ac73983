"""The libraries that are compared, each with the same few methods, so that a scenario is written once.

A library is chosen by name, with variants after a dash: ``a3m-many`` uses ``send_many()`` and ``recv_many()``,
``a3m-1400`` has datagrams of at most 1400 bytes, ``tcp-cubic`` that congestion control. :mod:`benchmarks.peers.ours`,
:mod:`~benchmarks.peers.zeromq` and :mod:`~benchmarks.peers.others` have them all. What a method returns is bare
functions of the library wherever possible: a wrapper around each call would be measured too.
"""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

from benchmarks.peers.base import Peer, Receiver, Sender, Talker
from benchmarks.peers.others import Exon, Mqtt, Nng, Tcp
from benchmarks.peers.ours import A3m
from benchmarks.peers.zeromq import Zmq

__all__ = ["Peer", "Receiver", "Sender", "Talker", "default_congestion_control", "find", "why_missing"]

PEERS: dict[str, type[Peer]] = {"a3m": A3m, "exon": Exon, "pyzmq": Zmq, "pynng": Nng, "tcp": Tcp, "mqtt": Mqtt}
_MODULES = {"pyzmq": "zmq", "pynng": "pynng", "mqtt": "paho.mqtt"}
_CONTROLS = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")


def find(library: str, address: str = "127.0.0.1") -> Peer:
    """The library of that name, to be used from that address."""
    name, *variants = library.split("-")
    return PEERS[name](address, variants)


def default_congestion_control() -> str:
    """TCP's, where nothing else is said; pyzmq and pynng have it too."""
    return Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text(encoding="ascii").strip()


def why_missing(library: str) -> str | None:
    """Why a library cannot be measured here; None if it can."""
    name, *variants = library.split("-")
    if name not in PEERS:
        return f"no such library; there are {', '.join(PEERS)}"
    module = _MODULES.get(name)
    if module is not None:
        root = module.partition(".")[0]
        if importlib.util.find_spec(root) is None or importlib.util.find_spec(module) is None:
            return f"the module {module} is not installed (pip install -e '.[bench]')"
    if name == "mqtt" and shutil.which("mosquitto") is None:
        return "the broker is not installed (Debian package mosquitto)"
    if "trio" in variants and importlib.util.find_spec("trio") is None:
        return "the module trio is not installed (pip install -e '.[bench]')"
    if name == "tcp" and variants and variants[0] not in _CONTROLS.read_text(encoding="ascii").split():
        return f"this kernel has no congestion control {variants[0]} (modprobe tcp_{variants[0]})"
    return None
