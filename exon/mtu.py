"""Path MTU: how large a datagram may be (RFC 8899 in spirit).

Every path is taken to carry 1200 bytes. When there is enough to send to make it worth while, one padded probe of each
larger size leaves at once, and the largest that is answered is used: one round trip to the result, and what is larger
than the local interface never leaves the host. Repeated silence on a path that carried more means that it does not any
longer (a move, a tunnel): back to 1200 and probe again.
"""

from __future__ import annotations

from exon.wire import BASE_DATAGRAM

SIZES = (1372, 1452, 4312, 8952, 16332, 32768, 65487)  # tunnels, Ethernet, jumbo frames, loopback
_TRIES = 3
_AGAIN = 60.0  # seconds after which sizes that failed are tried again


class PathMtu:
    """The datagram size towards one peer."""

    def __init__(self, most: int) -> None:
        """Never go above ``most``."""
        self.size = BASE_DATAGRAM
        self._most = most
        self._tries = 0
        self.probe_at: float | None = None  # when probes are due while sending goes on

    def want(self, now: float) -> None:
        """There is much to send: start probing unless that was done."""
        if self.probe_at is None and self._sizes():
            self.probe_at = now
            self._tries = 0

    def probes(self, now: float, timeout: float) -> list[int]:
        """The sizes to probe now."""
        if self.probe_at is None or now < self.probe_at:
            return []
        if self._tries == _TRIES:
            self.probe_at, self._tries = None, 0
            return []
        self._tries += 1
        self.probe_at = now + (max(timeout, 0.05) if self._tries < _TRIES else _AGAIN)
        return self._sizes()

    def _sizes(self) -> list[int]:
        return [size for size in SIZES if self.size < size <= self._most]

    def probed(self, size: int) -> None:
        """A probe of this size got through."""
        if self.size < size <= self._most and size in SIZES:
            self.size = size

    def reset(self) -> None:
        """The path is another one, or has become one: trust nothing."""
        self.size = BASE_DATAGRAM
        self.probe_at, self._tries = None, 0

    @property
    def is_largest(self) -> bool:
        """Whether there is no larger size to try."""
        return not self._sizes()
