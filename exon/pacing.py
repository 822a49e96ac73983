"""Spreads datagrams over time, a quantum at a time.

Timers wake a process to the millisecond at best. So what leaves is not one datagram at a time but what a millisecond is
worth, and what was missed because the process woke late may be made up for, up to a limit.
"""

from __future__ import annotations

from exon.wire import BASE_DATAGRAM

QUANTUM = 0.001  # seconds worth of sending that leave together
_SAVED = 0.008  # seconds worth of sending that may be made up for
_START = 10 * BASE_DATAGRAM  # what may always (RFC 9002, section 7.7, allows an initial window)
_DEBT = 0.25  # seconds worth of sending that may be owed
_UNPACED = float("inf")


class Pacer:
    """A bucket of bytes that fills at the rate; the last datagram may overdraw it."""

    __slots__ = ("_at", "_skipped", "credit", "late", "ready_at")

    def __init__(self) -> None:
        """Let the first datagrams go at once."""
        self.credit = float(_START)  # bytes that may leave at once; whoever sends takes off what left
        self.ready_at = 0.0  # when to ask again, after a no
        self.late = False  # the last answer came too late to make up for all that could have left
        self._at = 0.0
        self._skipped = False

    def ready(self, rate: float, now: float) -> bool:
        """Whether something may leave at this rate (bytes per second; infinite where a wait would cost too much)."""
        if self.credit > 0:
            return True
        if rate == _UNPACED:
            self.credit, self._at, self.late = 1.0, now, False
            return True
        # A large datagram must not silence a path for long that only seemed to be slow.
        credit = max(self.credit, -_DEBT * rate) + (now - self._at) * rate
        most = max(_SAVED * rate, _START)
        self.late = credit > most and not self._skipped
        self._skipped = False
        credit = min(credit, most)
        self.credit, self._at = credit, now
        quantum = QUANTUM * rate
        if credit >= 0.99 * quantum:  # not all of it: at the announced moment rounding must not make it wait again
            return True
        self.ready_at = now + (quantum - credit) / rate
        self.credit = min(credit, 0.0)
        self._at = now - (credit - self.credit) / rate
        return False

    def skip(self, now: float) -> None:
        """Nothing may leave for another reason: the time before now is not to be made up for, nor is what follows late.

        Acknowledgements are seldom, so that reason may have been there long before anybody asked again.
        """
        self._at = now
        self._skipped = True
