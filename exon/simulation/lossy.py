"""A real UDP socket with a bad network in front of it, for tests and demonstrations between real processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from exon.addresses import Address
from exon.udp import UdpSocket


class LossySocket(UdpSocket):
    """Loses, doubles and reorders what it is given to send; what arrives is left alone.

    Attributes:
        lost: How many datagrams it lost so far.
        passed: How many it let pass, second copies not counted.
    """

    def __init__(self, bind: str | Address, *, random: Random, loss: float, duplicate: float, reorder: float) -> None:
        """Draw from ``random`` for every datagram: lost, doubled, or held back until a later one has left."""
        super().__init__(bind)
        self.lost = 0
        self.passed = 0
        self._random = random
        self._loss = loss
        self._duplicate = duplicate
        self._reorder = reorder
        self._held: tuple[Address, bytes] | None = None

    def send(self, datagrams: Sequence[tuple[Address, bytes]]) -> int:
        """Take all of them; the kernel being full is one more way to lose some."""
        passing: list[tuple[Address, bytes]] = []
        draw = self._random.random
        for datagram in datagrams:
            if draw() < self._loss:
                self.lost += 1
                continue
            self.passed += 1
            if draw() < self._reorder and self._held is None:
                self._held = datagram
                continue
            passing.append(datagram)
            if draw() < self._duplicate:
                passing.append(datagram)
            if self._held is not None:
                passing.append(self._held)
                self._held = None
        self.lost += len(passing) - super().send(passing)
        return len(datagrams)


def lossy(
    loss: float, *, duplicate: float = 0.0, reorder: float = 0.0, seed: int | None = None
) -> Callable[[str], LossySocket]:
    """What to give an endpoint as ``socket=``, so that everything it sends travels over a bad network.

    >>> from exon import Endpoint
    >>> with Endpoint("a", bind="127.0.0.1:0", socket=lossy(0.3, seed=1)) as a, Endpoint("b", bind="127.0.0.1:0") as b:
    ...     a.register("b", f"127.0.0.1:{b.address[1]}")
    ...     for number in range(100):
    ...         a.send("b", b"%d" % number)
    ...     len({b.recv(timeout=10) for _ in range(100)})
    100
    """
    random = Random(seed)

    def open_socket(bind: str) -> LossySocket:
        return LossySocket(bind, random=random, loss=loss, duplicate=duplicate, reorder=reorder)

    return open_socket
