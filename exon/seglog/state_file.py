"""The state of a log on disk: a small file that is overwritten in place, one copy after the other."""

from __future__ import annotations

from exon.disk import Disk, File
from exon.errors import StoreDamaged
from exon.seglog.format import SLOT, STATE, STATE_SIZE, State, read_state, state_slot

_TRIES = 100  # to read it while it is being written


class StateFile:
    """The state, as last written. Writing does not wait for the disk, unless both copies are written."""

    def __init__(self, file: File, state: State) -> None:
        """``file`` holds ``state`` now."""
        self._file = file
        self.state = state

    @classmethod
    def create(cls, disk: Disk, folder: str, state: State) -> StateFile:
        """A new one; afterwards it is on the disk, as a whole or not at all."""
        path = f"{folder}/{STATE}"
        file = disk.create(path + ".new")
        slot = state_slot(state)
        file.write([slot.ljust(SLOT, b"\0"), slot], 0)  # both copies: the second is as good as the first
        file.sync()
        disk.replace(path + ".new", path)
        disk.sync_folder(folder)
        return cls(file, state)

    @classmethod
    def open(cls, disk: Disk, folder: str, *, write: bool = True) -> StateFile:
        """The one that is there.

        Raises:
            FileNotFoundError: There is none.
            StoreDamaged: Neither of its copies can be read.
        """
        file = disk.open(f"{folder}/{STATE}", write=write)
        try:
            return cls(file, _load(file, folder))
        except BaseException:
            file.close()
            raise

    def load(self, folder: str) -> State:
        """The state as another process has written it, never older than what was read before."""
        state = _load(self._file, folder)
        if state.sequence > self.state.sequence:
            self.state = state
        return self.state

    def save(self, *, first: int, synced: int, end: int) -> None:
        """Write it over the older copy."""
        state = State(self.state.sequence + 1, first, synced, end)
        self._file.write([state_slot(state)], state.sequence % 2 * SLOT)
        self.state = state

    def save_both(self, *, first: int, synced: int, end: int) -> None:
        """Write both copies and wait for the disk: then damage to one of them costs nothing."""
        self.save(first=first, synced=synced, end=end)
        self._file.sync()  # not both at once: a crash may tear what is being written
        self.save(first=first, synced=synced, end=end)
        self._file.sync()

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


def _load(file: File, folder: str) -> State:
    for _ in range(_TRIES):  # whoever reads while it is written may see a mixture; the other copy is then whole
        state = read_state(file.read(STATE_SIZE, 0))
        if state is not None:
            return state
    raise StoreDamaged(f"{folder}/{STATE}", 0, 0, "neither of the two copies of the log's state can be read")
