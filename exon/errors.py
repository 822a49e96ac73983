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
    """A file of ours cannot be read or written, is damaged, or is in use by another process."""


class StoreDamaged(StoreError):
    """What was safely on the disk is not there any more, or is not what was written.

    :attr:`file`, :attr:`position` (in bytes) and :attr:`offset` (the first record that cannot be read) say where.
    """

    def __init__(self, file: str, position: int, offset: int, what: str) -> None:
        """``what`` is wrong with ``file`` at byte ``position``, where record ``offset`` should be."""
        super().__init__(
            f"{file} is damaged at byte {position}, record {offset}: {what}. Nothing was changed. Restore the file "
            "from a copy; or see what is left with 'a3m store check' and give up the rest with 'a3m store repair'",
        )
        self.file = file
        self.position = position
        self.offset = offset
        self.what = what


class StoreFull(StoreError):
    """The disk, or the quota, has no room; nothing of the call was stored. Make room and repeat it."""


class StoreLimit(StoreError):
    """The log holds as many bytes as it may; nothing of the call was stored. Truncate it and repeat."""


class StoreFailed(StoreError):
    """The disk could not promise to keep what was written. Nothing more is stored until the log has been recovered."""


class StoreTruncated(StoreError):
    """The records that were asked for have been truncated; :attr:`first` is the first that is still there."""

    def __init__(self, start: int, first: int) -> None:
        """Record ``start`` was asked for."""
        super().__init__(f"record {start} has been truncated; read from {first} on, or keep records for longer")
        self.first = first
