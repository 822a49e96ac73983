"""A bottleneck: so many bytes leave it in a second, so many may wait, and what finds the queue full is lost."""

from __future__ import annotations


class Link:
    """One line out of one or several hosts; those that share it compete for it.

    >>> link = Link(1000.0, queue=1500)
    >>> link.depart(1000, now=0.0), link.depart(1000, now=0.0)
    (1.0, 2.0)
    >>> link.depart(1000, now=0.0) is None, link.dropped
    (True, 1)
    """

    def __init__(self, bandwidth: float, *, queue: float, framing: int = 0) -> None:
        """``bandwidth`` in bytes per second, ``queue`` in bytes; ``framing`` is what each datagram takes besides."""
        self.bandwidth = bandwidth
        self.queue = queue
        self.framing = framing
        self.carried = 0  # bytes, framing included
        self.dropped = 0  # datagrams
        self.longest = 0.0  # seconds that anything waited, to be set back at will
        self._free_at = 0.0

    def depart(self, size: int, now: float) -> float | None:
        """When the last byte of a datagram that comes now will have left; None if there is no room for it."""
        waits = max(0.0, self._free_at - now)
        if waits * self.bandwidth > self.queue:
            self.dropped += 1
            return None
        self.longest = max(self.longest, waits)
        size += self.framing
        self.carried += size
        self._free_at = now + waits + size / self.bandwidth
        return self._free_at
