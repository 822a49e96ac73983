"""A log of records on disk: append-only, in segments, checksummed, and never in doubt about what it promised.

**Shape.** A folder with segments, a ``state`` and a ``lock``; docs/journal-format.md has every byte. Records have
numbers from 0 on, one after the other; a number whose record was on the disk is never given again. They are appended in
batches: a batch is one *frame*, with one header and one checksum, and is there as a whole or not at all. What a record
costs is therefore decided by whoever puts the batch together; the log adds some microseconds to a batch of any size.

**Durability** is what :meth:`Log.append` has achieved when it returns:

- ``"fsync"``: nothing yet; :meth:`Log.sync` puts everything on the disk, for all threads that wait for it at once. What
  is not synced is not shown to readers either, so nobody acts on what a power failure could take back.
- ``"os"``: the operating system has it. It survives the end of the process, however sudden. If the machine stops, a
  recent part may be lost; then the log ends earlier, and numbers that readers have seen are given to other records.
- ``"none"``: it may still be in memory; up to 256 KiB are lost with the process.

:meth:`Log.sync` and :meth:`Log.close` put everything on the disk in each case.

**When a sync fails.** On Linux, and not only there, a failed fsync leaves the written pages in memory marked as clean.
Trying again then succeeds without writing anything, reading gives what was written, and after a power failure it is
gone. So a failure is never retried and never papered over: it is treated as a crash. The log stores nothing more
(:class:`~exon.errors.StoreFailed`), what had been promised before stays promised, and the way on is that of any crash:
:meth:`Log.recover`, or closing and opening. Recovery does not trust pages just because they can be read: it checks
every frame that is not known to have been synced and **writes it again**, which makes the pages dirty, before it syncs
them. If that fails too, the log stays closed. The alternative, keeping all unsynced data in memory to write it again at
once, costs that memory all the time for a case that mostly means a broken disk.

**When a write fails**, because the disk is full, the file is cut back to its last whole frame before anything else is
written, the call raises :class:`~exon.errors.StoreFull`, and may be repeated when there is room.

**What was there and is not what was there is damage**, and is refused; what was never synced may be missing after a
crash, and is cut. :mod:`exon.seglog.recovery` says how they are told apart.

Rejected: *one file per batch, or rename for atomicity*: a sync of a folder for each. *A footer with an index in each
segment*: a second truth that can be wrong; headers are found at a gigabyte per second. *Preallocated segments*: syncs
would be a little faster, and a tail of zeros would have to be told from damage. *A thread that commits groups*: callers
that wait do it for each other.

Limits: a frame has at most 1 GiB; numbers end at 2**62; a segment holds at least one frame, however large. Opening
after a crash reads everything that is not known to be synced: with ``"os"`` the last two or three segments. Finding a
record for the first time reads the headers of the frames before it in its segment.
"""

from exon.seglog.check import Damage, Report, check
from exon.seglog.format import Frame
from exon.seglog.log import SEGMENT_BYTES, Durability, Log
from exon.seglog.reader import LogReader
from exon.seglog.recovery import Recovery
from exon.seglog.repair import Repair, repair

__all__ = [
    "SEGMENT_BYTES",
    "Damage",
    "Durability",
    "Frame",
    "Log",
    "LogReader",
    "Recovery",
    "Repair",
    "Report",
    "check",
    "repair",
]
