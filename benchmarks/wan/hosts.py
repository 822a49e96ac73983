"""Two hosts with a path between them, as a context manager."""

from __future__ import annotations

import json
import os
import select
import shutil
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from attrs import asdict, frozen

from benchmarks.wan.channel import Conditions
from benchmarks.wan.kernel import enter_namespace

ROOT = Path(__file__).parents[2]
ADDRESSES = ("10.77.0.1", "10.77.0.2")
_PATIENCE = 20.0


class Unavailable(Exception):
    """This machine, or this user, cannot emulate a path; the message says what is missing."""


def why_unavailable() -> str | None:
    """What is missing to emulate a path; None if nothing is."""
    if not sys.platform.startswith("linux"):
        return "needs Linux: network namespaces and TUN devices"
    if os.geteuid():
        return "needs root, to make network namespaces and TUN devices"
    if not os.path.exists("/dev/net/tun"):
        return "needs /dev/net/tun (modprobe tun; in a container: --device /dev/net/tun --cap-add NET_ADMIN,SYS_ADMIN)"
    for command, package in (("ip", "iproute2"), ("nsenter", "util-linux")):
        if shutil.which(command) is None:
            return f"needs the command {command} (package {package})"
    return None


@frozen
class Host:
    """One end of the path."""

    address: str
    namespace: str
    """The path of its network namespace, for ``nsenter`` or ``setns``."""

    @property
    def prefix(self) -> tuple[str, ...]:
        """What to put in front of a command to run it there."""
        return ("nsenter", f"--net={self.namespace}", "--")

    def socket(self, kind: socket.SocketKind = socket.SOCK_DGRAM) -> socket.socket:
        """A socket of this process that is on that host, bound to its address and any port.

        A socket stays in the namespace in which it was made, whoever uses it; so a thread goes there to make it.
        """

        def make() -> socket.socket:
            with open(self.namespace, "rb") as file:
                enter_namespace(file.fileno())
            made = socket.socket(socket.AF_INET, kind)
            made.bind((self.address, 0))
            return made

        with ThreadPoolExecutor(1) as elsewhere:
            return elsewhere.submit(make).result()


class Wan:
    """Two hosts, :attr:`near` and :attr:`far`, and the path between them.

    Args:
        there: What the path is like from near to far.
        back: The same from far to near; like ``there`` if left out.
        seed: Repeats the same losses, duplicates and delays for the same packets.
    """

    near: Host
    far: Host

    def __init__(self, there: Conditions, back: Conditions | None = None, *, seed: int = 0) -> None:
        both = {"there": asdict(there), "back": asdict(back or there)}
        self._order = json.dumps({"addresses": ADDRESSES, "seed": seed, **both})
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        if (missing := why_unavailable()) is not None:
            raise Unavailable(f"cannot emulate a network: {missing}")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.wan.router", self._order],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for us; the router ends when we let go of it
        )
        try:
            facts = self._answer()
        except BaseException:
            self._end()
            raise
        namespaces = [f"/proc/{facts['pid']}/fd/{number}" for number in facts["namespaces"]]
        self.near, self.far = (Host(*pair) for pair in zip(ADDRESSES, namespaces, strict=True))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        if self._process is None:
            return
        process, self._process = self._process, None
        _pipe(process.stdin).close()
        try:
            process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        _pipe(process.stdout).close()

    def statistics(self) -> dict[str, Any]:
        """What happened to packets in each direction so far, and how punctual the router was."""
        return self._ask({})

    def change(self, there: Conditions, back: Conditions | None = None) -> dict[str, Any]:
        """Make the path another one, from now on; a loss of 1 cuts it. Returns the statistics until now."""
        return self._ask({"there": asdict(there), "back": asdict(back or there)})

    def _ask(self, order: dict[str, Any]) -> dict[str, Any]:
        if self._process is None:
            raise Unavailable("the path is there between 'with Wan(...) as wan:' and the end of that block only")
        _pipe(self._process.stdin).write(json.dumps(order).encode() + b"\n")
        _pipe(self._process.stdin).flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process is not None
        output = _pipe(self._process.stdout)
        if not select.select([output], [], [], _PATIENCE)[0]:
            raise Unavailable(f"the router (process {self._process.pid}) says nothing for {_PATIENCE:.0f} s")
        line = output.readline()
        if not line:
            raise Unavailable("the router has ended; its error message is above")
        facts: dict[str, Any] = json.loads(line)
        if "error" in facts:
            raise Unavailable(f"cannot emulate a network: {facts['error']}")
        return facts


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream
