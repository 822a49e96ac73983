"""The clock on disk: the one number that must survive a crash (001, section III.C).

A file of one line: a format word, the limit up to which numbers are reserved, and a checksum. It is replaced as a whole
(written beside, synced, renamed), so a crash leaves either the old line or the new one. The file is locked while in
use, because two nodes that share a clock would hand out the same numbers.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from zlib import crc32

from exon.clock import Clock
from exon.errors import StoreError

_WORD = "exon-clock-1"
_LIMIT = 2**62  # a damaged number must not use up the rest


class ClockFile:
    """A clock whose future is reserved in a file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with ClockFile(Path(folder) / "clock") as first:
    ...         number = first.clock.tick()
    ...     with ClockFile(Path(folder) / "clock") as second:
    ...         second.clock.tick() > number
    True
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open or create the file.

        Raises:
            StoreError: It cannot be read or written, is damaged, or another node uses it.
        """
        self._path = Path(path)
        if not self._path.name:
            raise StoreError(None, f"{os.fspath(path)!r} names no file; give the path of one, such as 'node.clock'")
        self._lock_file = self._lock()
        try:
            self.clock = Clock(self._read(), reserve=self._save)
            self.clock.cover(self.clock.value + 1)  # now, so that whoever opens a file that cannot be saved hears of it
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let others use the file; closing twice is harmless."""
        if self._lock_file >= 0:
            os.close(self._lock_file)
            self._lock_file = -1

    def __enter__(self) -> ClockFile:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def _lock(self) -> int:
        # A file of its own: the clock file is replaced by every save, and a lock belongs to the file that was opened.
        path = self._path.with_name(self._path.name + ".lock")
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreError(
                error.errno, f"cannot open {path}: {error.strerror}; is its folder there and writable?"
            ) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            raise StoreError(
                error.errno, f"{self._path} is in use by another node; give every node a clock file of its own"
            ) from None
        return descriptor

    def _read(self) -> int:
        try:
            text = self._path.read_text("ascii")
        except FileNotFoundError:
            return 0
        except (OSError, UnicodeDecodeError) as error:
            raise StoreError(None, f"cannot read the clock file {self._path}: {error}") from None
        word, _, rest = text.strip().partition(" ")
        number, _, check = rest.partition(" ")
        if word != _WORD or not number.isdigit() or check != _check(number) or int(number) > _LIMIT:
            raise StoreError(
                None,
                f"the clock file {self._path} is damaged; numbers might be used twice. If no peer can remember "
                "this node any more (all were restarted, or a week has passed), delete the file to begin anew",
            )
        return int(number)

    def _save(self, limit: int) -> None:
        if self._lock_file < 0:
            raise StoreError(None, f"the clock file {self._path} was closed while its node still runs")
        fresh = self._path.with_name(self._path.name + ".new")
        try:
            with open(fresh, "w", encoding="ascii") as file:
                file.write(f"{_WORD} {limit} {_check(str(limit))}\n")
                file.flush()
                os.fsync(file.fileno())
            os.replace(fresh, self._path)
            folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise StoreError(error.errno, f"cannot save the clock to {self._path}: {error.strerror}") from None


def _check(number: str) -> str:
    return f"{crc32(f'{_WORD} {number}'.encode()):08x}"
