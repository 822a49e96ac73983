"""A disk in memory that behaves like one: what was synced stays, and of the rest a crash keeps what it likes.

Content is kept by pages. A page that was written and not synced may be on the disk as it was, as it is, or as it was at
any time between. So may the size of a file; and each name that was made, moved or removed and not synced with its
folder. A failed sync does what Linux does: pages are called clean although not all of them were written.

Every operation has a number, so that a test can crash at each in turn. All choices come from a seed.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Sequence
from random import Random

PAGE = (
    64  # small, so that frames span several; the copies of the state stay within one, as on disks with sectors of 512
)


class Crash(BaseException):
    """The process is gone. No handler of errors must see it."""


class _Inode:
    """The content of one file."""

    def __init__(self) -> None:
        self.cache = bytearray()
        self.disk = bytearray()
        self.dirty: dict[int, list[bytes]] = {}  # by page: what it contained since the last sync
        self.sizes: list[int] = []

    def page(self, number: int) -> bytes:
        return bytes(self.cache[number * PAGE : (number + 1) * PAGE])

    def touch(self, start: int, stop: int) -> None:
        for number in range(start // PAGE, -(-stop // PAGE)):
            self.dirty.setdefault(number, []).append(self.page(number))
        self.sizes.append(len(self.cache))

    def put(self, number: int, content: bytes) -> None:
        start = number * PAGE
        if len(self.disk) < start + len(content):
            self.disk.extend(bytes(start + len(content) - len(self.disk)))
        self.disk[start : start + len(content)] = content

    def size_to(self, size: int) -> None:
        self.disk.extend(bytes(max(0, size - len(self.disk))))
        del self.disk[size:]

    def written_back(self, random: Random, *, tear: bool) -> None:
        """Write back what happens to be written back."""
        for number, versions in self.dirty.items():
            chosen = random.randrange(len(versions) + 1)
            if chosen:
                content = versions[chosen - 1]
                if tear and random.random() < 0.2:
                    content = content[: random.randrange(len(content) + 1)]
                self.put(number, content)
        size = random.choice([len(self.disk), *self.sizes])
        self.size_to(size)

    def sync(self) -> None:
        for number in self.dirty:
            self.put(number, self.page(number))
        self.size_to(len(self.cache))
        self.clean()

    def clean(self) -> None:
        self.dirty = {}
        self.sizes = []


class FaultyDisk:
    """See the module. ``fault`` is called before every operation with its number, its name and the path."""

    def __init__(self, seed: int = 0) -> None:
        self.random = Random(seed)
        self.operations = 0
        self.fault: Callable[[int, str, str], None] = lambda *_: None
        self._names: dict[str, _Inode] = {}
        self._synced_names: dict[str, _Inode] = {}
        self._locks: set[str] = set()

    # ── for tests ────────────────────────────────────────────────────────────────────────────────────────────────────

    def crash(self) -> None:
        """The machine stops, and starts again."""
        inodes = {id(inode): (path, inode) for path, inode in [*self._names.items(), *self._synced_names.items()]}
        for path, inode in inodes.values():
            inode.written_back(self.random, tear=not path.endswith(("state", "state.new")))
            inode.cache = bytearray(inode.disk)
            inode.clean()
        for path in sorted({*self._names, *self._synced_names}):
            kept = self.random.choice((self._names, self._synced_names)).get(path)
            if kept is None:
                self._synced_names.pop(path, None)
            else:
                self._synced_names[path] = kept
        self._names = dict(self._synced_names)
        self.kill()

    def kill(self) -> None:
        """The process stops, the machine does not."""
        self._locks.clear()
        self.fault = lambda *_: None

    def evict(self) -> None:
        """The system needs its memory: what it thinks it has written is read from the disk next time."""
        for inode in self._names.values():
            if not inode.dirty:
                inode.cache = bytearray(inode.disk)

    def content(self) -> dict[str, bytes]:
        """All files, as programs see them."""
        return {path: bytes(inode.cache) for path, inode in sorted(self._names.items())}

    def put(self, path: str, content: bytes) -> None:
        """Change a file behind everybody's back."""
        inode = self._names[path]
        inode.cache, inode.disk = bytearray(content), bytearray(content)

    def at(self, number: int, action: Callable[[str, str], None]) -> None:
        """Call ``action`` at operation ``number`` from now on, once."""
        target = self.operations + number

        def fault(operation: int, name: str, path: str) -> None:
            if operation == target:
                action(name, path)

        self.fault = fault

    def step(self, name: str, path: str) -> None:
        self.operations += 1
        self.fault(self.operations - 1, name, path)

    # ── for logs ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def make_folder(self, folder: str) -> None:
        pass

    def names(self, folder: str) -> list[str]:
        return [os.path.basename(path) for path in self._names if os.path.dirname(path) == folder]

    def create(self, path: str) -> FaultyFile:
        self.step("create", path)
        self._names[path] = _Inode()
        return FaultyFile(self, path, self._names[path])

    def open(self, path: str, *, write: bool = True) -> FaultyFile:
        if path not in self._names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return FaultyFile(self, path, self._names[path])

    def replace(self, old: str, new: str) -> None:
        self.step("replace", new)
        self._names[new] = self._names.pop(old)

    def remove(self, path: str) -> None:
        self.step("remove", path)
        del self._names[path]

    def sync_folder(self, folder: str) -> None:
        self.step("sync_folder", folder)
        kept = {path: inode for path, inode in self._synced_names.items() if os.path.dirname(path) != folder}
        self._synced_names = kept | {path: i for path, i in self._names.items() if os.path.dirname(path) == folder}

    def lock(self, path: str) -> FaultyLock | None:
        if path in self._locks:
            return None
        self._locks.add(path)
        self._names.setdefault(path, _Inode())
        return FaultyLock(self, path, self._names[path])

    def unlock(self, path: str) -> None:
        self._locks.discard(path)


class FaultyFile:
    """A file on it."""

    def __init__(self, disk: FaultyDisk, path: str, inode: _Inode) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode

    def read(self, size: int, position: int) -> bytes:
        return bytes(self._inode.cache[position : position + size])

    def write(self, parts: Sequence[bytes], position: int) -> None:
        data = b"".join(parts)
        try:
            self._disk.step("write", self._path)
        except (OSError, Crash):
            # As much as fitted, or as had been done: anything between nothing and all but the last byte.
            self._store(data[: self._disk.random.randrange(len(data))], position)
            raise
        self._store(data, position)

    def _store(self, data: bytes, position: int) -> None:
        inode = self._inode
        inode.cache.extend(bytes(max(0, position - len(inode.cache))))
        inode.cache[position : position + len(data)] = data
        inode.touch(position, position + len(data))

    def size(self) -> int:
        return len(self._inode.cache)

    def cut(self, size: int) -> None:
        self._disk.step("cut", self._path)
        inode = self._inode
        before = len(inode.cache)
        del inode.cache[size:]
        inode.cache.extend(bytes(size - len(inode.cache)))
        inode.touch(size, max(size, before))

    def sync(self) -> None:
        try:
            self._disk.step("sync", self._path)
        except (OSError, Crash) as error:
            self._inode.written_back(self._disk.random, tear=False)
            if isinstance(error, OSError):
                self._inode.clean()  # as Linux does; see exon.seglog
            raise
        self._inode.sync()

    def close(self) -> None:
        pass


class FaultyLock(FaultyFile):
    """A lock on it."""

    def close(self) -> None:
        self._disk.unlock(self._path)


def raising(error: BaseException, names: Iterable[str]) -> Callable[[str, str], None]:
    """An action that fails the operations of these names."""
    wanted = set(names)

    def action(name: str, path: str) -> None:
        if name in wanted:
            raise error

    return action


def full() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def broken() -> OSError:
    return OSError(errno.EIO, os.strerror(errno.EIO))
