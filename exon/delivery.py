"""How fast the path delivers: a rate sample with every acknowledgement.

A sample is what was delivered between the moment a datagram left and the moment it was acknowledged, over the time that
this took (Cheng et al., *Delivery Rate Estimation*). To know it, each datagram keeps a *mark*: how much had been
delivered when it left, and since when. The mark only changes with acknowledgements, so all datagrams that leave between
two of them share one.

When something arrived is what the peer's clock says, in the header of its acknowledgement. That it was busy with other
things before it answered, that answers travel in bunches, and that we were late to read them, is then no part of the
sample: by our own clock, a process that catches up makes a path look faster than it is, and the highest of many samples
is the one that counts.

Where the application, or the receiver, did not let us send more, the sample says nothing about the path; such samples
are *limited*, and can only show that the path carries more than was thought.
"""

from __future__ import annotations

# What was known when a datagram left: bytes delivered; when the last of them arrived, by the peer's clock; when the
# datagram left that was acknowledged then; and whether less was sent than the path would have taken. A plain tuple,
# because there is one for each acknowledgement.
Mark = tuple[int, float, float, bool]


class Delivery:
    """The bytes delivered to one peer, and how fast."""

    __slots__ = ("_limited_until", "_round_ends", "delivered", "limited", "mark", "new_round", "rate")

    def __init__(self) -> None:
        """Nothing delivered yet."""
        self.delivered = 0
        self.mark: Mark = (0, 0.0, 0.0, False)
        self.rate = 0.0  # bytes per second: the last sample
        self.limited = False  # and whether it was limited
        self.new_round = False  # whether all that was on the way when the round trip began is accounted for
        self._limited_until = 0
        self._round_ends = 0

    def begin(self, now: float, at: float) -> None:
        """Something leaves, and nothing is on the way: the time before this, ``at`` for the peer, is not the path's."""
        self.mark = (self.delivered, at, now, self._limited_until > 0)

    def limit(self, in_flight: int) -> None:
        """More could leave, but there is nothing: what is on the way now shows what was asked of the path, no more."""
        self._limited_until = self.delivered + in_flight or 1
        delivered, at, sent, limited = self.mark
        if not limited:
            self.mark = (delivered, at, sent, True)

    def arrived(self, size: int, mark: Mark, sent: float, least: float, at: float) -> None:
        """So many bytes arrived; the newest datagram of them, which left at ``sent`` with ``mark``, did ``at``.

        A sample over less than ``least``, the shortest round trip, would be one of how acknowledgements bunch.
        """
        self.delivered = delivered = self.delivered + size
        before, since, first_sent, self.limited = mark
        if self._limited_until and delivered > self._limited_until:
            self._limited_until = 0
        taken = at - since
        if sent - first_sent > taken:
            taken = sent - first_sent
        self.rate = (delivered - before) / taken if taken >= 0.99 * least else 0.0  # but for rounding
        self.new_round = before >= self._round_ends
        if self.new_round:
            self._round_ends = delivered
        self.mark = (delivered, at, sent, self._limited_until > 0)
