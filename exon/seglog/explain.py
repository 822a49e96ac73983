"""Errors of the file layer, in words that say what to do."""

from __future__ import annotations

from errno import EDQUOT, ENOSPC

from exon.disk import Disk, File
from exon.errors import StoreError, StoreFull
from exon.seglog.format import LOCK


class Explained:
    """Makes errors of the file layer say what they mean for a log."""

    __slots__ = ("_folder", "_verb")

    def __init__(self, verb: str, folder: str) -> None:
        """While trying to ``verb`` the log in ``folder``."""
        self._verb = verb
        self._folder = folder

    def __enter__(self) -> None:
        """Nothing."""

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        """Raise one of ours instead."""
        if not isinstance(error, OSError) or isinstance(error, StoreError):
            return
        if error.errno in (ENOSPC, EDQUOT):
            raise StoreFull(
                error.errno,
                f"no room to {self._verb} the log in {self._folder}: {error.strerror}. Nothing was stored by this call "
                "and nothing was lost; make room, or truncate the log, and repeat it",
            ) from None
        raise StoreError(error.errno, f"cannot {self._verb} the log in {self._folder}: {error.strerror}") from None


def take_lock(disk: Disk, folder: str) -> File:
    """Be the only one who writes the log in ``folder``, until the file is closed."""
    with Explained("open", folder):
        disk.make_folder(folder)
        file = disk.lock(f"{folder}/{LOCK}")
    if file is None:
        raise StoreError(
            f"the log in {folder} is being written by another process, or was opened twice; close it there, give every "
            "writer a folder of its own, or open it for reading only"
        )
    return file
