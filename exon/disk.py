"""The file layer: the few operations on files that a store needs, and nothing else.

A store is given a :class:`Disk` instead of calling :mod:`os` itself, so that tests can put one in that forgets what was
not synced, tears writes, is full, or fails; :class:`RealDisk` is the one that users get. Positions are always explicit:
no file has a position of its own that two threads could fight about.

Errors are plain :class:`OSError`; what they mean is for the store to say.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from typing import Protocol


class File(Protocol):
    """An open file."""

    def read(self, size: int, position: int) -> bytes:
        """Up to ``size`` bytes; fewer only at the end of the file."""

    def write(self, parts: Sequence[bytes], position: int) -> None:
        """Write all of ``parts``, one after the other. If it raises, any part of it may have been written."""

    def size(self) -> int:
        """In bytes."""

    def cut(self, size: int) -> None:
        """Make the file ``size`` bytes long."""

    def sync(self) -> None:
        """Return when the content is on the disk. If it raises, what was written since the last time may never be."""

    def close(self) -> None:
        """Let go of it."""


class Disk(Protocol):
    """What holds folders of files."""

    def make_folder(self, folder: str) -> None:
        """Make it and those above it, unless it is there."""

    def names(self, folder: str) -> list[str]:
        """The names of the files in a folder, in no order."""

    def create(self, path: str) -> File:
        """A new, empty file, in place of one that may be there."""

    def open(self, path: str, *, write: bool = True) -> File:
        """A file that is there."""

    def replace(self, old: str, new: str) -> None:
        """Rename a file, in place of one that may be there."""

    def remove(self, path: str) -> None:
        """Remove a file."""

    def sync_folder(self, folder: str) -> None:
        """Return when the names in a folder are on the disk: syncing a new file does not keep its name."""

    def lock(self, path: str) -> File | None:
        """A file that is locked until it is closed, or None if somebody else has it locked."""


class RealFile:
    """A file of the operating system. It is closed when nobody has it any more, at the latest."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        """Takes charge of ``descriptor``."""
        self._descriptor = descriptor

    def read(self, size: int, position: int) -> bytes:
        """Up to ``size`` bytes; fewer only at the end of the file."""
        data = os.pread(self._descriptor, size, position)
        if len(data) == size or not data:
            return data
        chunks = [data]  # one call may return less than is there: Linux ends at 2 GiB, and other systems anywhere
        while data:
            size -= len(data)
            position += len(data)
            data = os.pread(self._descriptor, size, position) if size else b""
            chunks.append(data)
        return b"".join(chunks)

    def write(self, parts: Sequence[bytes], position: int) -> None:
        """Write all of ``parts``, one after the other."""
        size = sum(map(len, parts))
        written = os.pwritev(self._descriptor, parts, position) if len(parts) <= 512 else 0  # 1024 is Linux's limit
        if written == size:
            return
        rest = memoryview(b"".join(parts))[written:]  # seldom: the disk is nearly full, or there are very many parts
        while rest:
            position += written
            written = os.pwrite(self._descriptor, rest, position)
            rest = rest[written:]

    def size(self) -> int:
        """In bytes."""
        return os.fstat(self._descriptor).st_size

    def cut(self, size: int) -> None:
        """Make the file ``size`` bytes long."""
        os.ftruncate(self._descriptor, size)

    def sync(self) -> None:
        """Return when the content is on the disk."""
        os.fdatasync(self._descriptor)  # the size is written too, as far as it is needed to read the content

    def close(self) -> None:
        """Let go of it; closing twice is harmless."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)

    def __del__(self) -> None:
        """Readers share files and only forget them: who is the last to read one cannot be known before."""
        self.close()


class RealDisk:
    """The operating system's files.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = RealDisk().create(folder + "/greeting")
    ...     file.write([b"hello ", b"there"], 0)
    ...     file.read(5, 6), file.size()
    ...     file.close()
    (b'there', 11)
    """

    def make_folder(self, folder: str) -> None:
        """Make it and those above it, unless it is there."""
        os.makedirs(folder, exist_ok=True)

    def names(self, folder: str) -> list[str]:
        """The names of the files in a folder, in no order."""
        return os.listdir(folder)

    def create(self, path: str) -> RealFile:
        """A new, empty file, in place of one that may be there."""
        return RealFile(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644))

    def open(self, path: str, *, write: bool = True) -> RealFile:
        """A file that is there."""
        return RealFile(os.open(path, (os.O_RDWR if write else os.O_RDONLY) | os.O_CLOEXEC))

    def replace(self, old: str, new: str) -> None:
        """Rename a file, in place of one that may be there."""
        os.replace(old, new)

    def remove(self, path: str) -> None:
        """Remove a file."""
        os.unlink(path)

    def sync_folder(self, folder: str) -> None:
        """Return when the names in a folder are on the disk."""
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def lock(self, path: str) -> RealFile | None:
        """A file that is locked until it is closed, or None if somebody else has it locked."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except BaseException:
            os.close(descriptor)
            raise
        return RealFile(descriptor)
