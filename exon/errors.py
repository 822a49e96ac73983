"""What can go wrong, one class each.

An error says whose fault it is. Everything here is *local*: a caller used the library in a way that cannot work, or
ran out of time. What the network does wrong never raises; it is counted (see :mod:`exon.stats`) and dropped.
"""

from __future__ import annotations


class ExonError(Exception):
    """Root of every exception that Exon raises on purpose."""


class Timeout(ExonError, TimeoutError):
    """The time given to a call was over before it could do its work; nothing was sent or taken."""


class Closed(ExonError):
    """The endpoint is closed, or is closing and accepts nothing new."""


class BadIdentifier(ExonError, ValueError):
    """A node id is not 1 to 255 bytes of UTF-8 text."""


class BadAddress(ExonError, ValueError):
    """An address cannot be parsed or resolved."""


class AddressInUse(ExonError, OSError):
    """Another socket already has the address that was to be bound."""


class BadPayload(ExonError, TypeError):
    """A payload is not bytes-like."""


class MessageTooLarge(ExonError, ValueError):
    """A message is larger than the configured maximum."""


class StoreError(ExonError, OSError):
    """A clock file cannot be read, is damaged, or is in use by another process."""
