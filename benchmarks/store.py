"""The log of exon.seglog next to SQLite and LMDB: appending, opening after a crash, and deleting the oldest half.

    python -m benchmarks.store [--runs 5] [--seconds 0.4] [--records 1000000] [--only TEXT] [--folder FOLDER]

Engines take turns within every run, and begin in another place each time. Every single measurement is a line of JSON in
benchmarks/results/. LMDB is measured if the package is there (extra "bench").

What the three durabilities are made to mean:

            our log                      SQLite, WAL             LMDB
    none    in memory up to 256 KiB      synchronous=OFF         sync=False, writemap, map_async
    os      write() per batch            synchronous=NORMAL      sync=False
    fsync   fdatasync per batch          synchronous=FULL        sync=True

A batch is a transaction. SQLite and LMDB keep records by number, in a table with an integer key and in a tree with keys
of 8 bytes; both are given records in order, LMDB with its flag for that.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sqlite3
import statistics
import struct
import sys
import tempfile
from collections.abc import Callable, Iterable
from datetime import date
from importlib import import_module
from pathlib import Path
from threading import Thread
from time import perf_counter
from typing import Any, Protocol

import a3m
from exon.seglog import Durability, Log

try:
    lmdb: Any = import_module("lmdb")
except ImportError:
    lmdb = None

RESULTS = Path(__file__).parent / "results"
RECORD = 100
DURABILITIES: tuple[Durability, ...] = ("none", "os", "fsync")
BATCHES = (1, 32, 512)
THREADS = 8


class Engine(Protocol):
    """What is measured."""

    def append(self, records: list[bytes]) -> object: ...

    def count(self) -> int: ...

    def delete(self, before: int) -> None: ...

    def close(self) -> None: ...


class OurLog:
    background = True

    def __init__(self, folder: str, durability: Durability) -> None:
        options: dict[str, Any] = {} if self.background else {"background": lambda _: None}
        self._log = Log(folder, durability=durability, **options)
        self._fsync = durability == "fsync"

    def append(self, records: list[bytes]) -> None:
        self._log.append(records)
        if self._fsync:
            self._log.sync()

    def count(self) -> int:
        return sum(1 for _ in self._log.records(self._log.first))

    def delete(self, before: int) -> None:
        self._log.truncate(before)

    def close(self) -> None:
        self._log.close()


class UnsyncedLog(OurLog):
    """The same, of which nothing is ever synced: then everything has to be checked and written again after a crash."""

    background = False


class OurJournal(OurLog):
    """The same with a3m.Journal on top."""

    def __init__(self, folder: str, durability: Durability) -> None:
        self._journal = a3m.Journal(folder, durability=durability)

    def append(self, records: list[bytes]) -> None:
        self._journal.append_many(records, source="node/tag", link=1)

    def count(self) -> int:
        return sum(len(batch.payloads) for batch in self._journal.batches())

    def delete(self, before: int) -> None:
        self._journal.truncate(before)

    def close(self) -> None:
        self._journal.close()


class Sqlite:
    def __init__(self, folder: str, durability: Durability) -> None:
        self._db = sqlite3.connect(f"{folder}/log.db", isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute(f"PRAGMA synchronous={ {'none': 'OFF', 'os': 'NORMAL', 'fsync': 'FULL'}[durability] }")
        self._db.execute("CREATE TABLE IF NOT EXISTS records (number INTEGER PRIMARY KEY, content BLOB)")

    def append(self, records: list[bytes]) -> None:
        self._db.execute("BEGIN")
        self._db.executemany("INSERT INTO records (content) VALUES (?)", zip(records, strict=True))
        self._db.execute("COMMIT")

    def count(self) -> int:
        return sum(1 for _ in self._db.execute("SELECT content FROM records ORDER BY number"))

    def delete(self, before: int) -> None:
        self._db.execute("DELETE FROM records WHERE number <= ?", (before,))

    def close(self) -> None:
        self._db.close()


class Lmdb:
    def __init__(self, folder: str, durability: Durability) -> None:
        none = durability == "none"
        self._env = lmdb.open(
            folder, map_size=2**33, sync=durability == "fsync", writemap=none, map_async=none, metasync=True
        )
        with self._env.begin() as transaction:
            self._next = transaction.stat()["entries"]

    def append(self, records: list[bytes]) -> None:
        first, self._next = self._next, self._next + len(records)
        with self._env.begin(write=True) as transaction, transaction.cursor() as cursor:
            keys = map(struct.Struct(">Q").pack, range(first, self._next))
            cursor.putmulti(zip(keys, records, strict=True), append=True)

    def count(self) -> int:
        with self._env.begin() as transaction, transaction.cursor() as cursor:
            return sum(1 for _ in cursor.iternext(keys=False, values=True))

    def delete(self, before: int) -> None:
        with self._env.begin(write=True) as transaction, transaction.cursor() as cursor:
            last = struct.pack(">Q", before)
            present = cursor.first()
            while present and cursor.key() < last:
                present = cursor.delete()

    def close(self) -> None:
        self._env.close()


Opener = Callable[[str, Durability], Engine]
ENGINES: dict[str, Opener] = {
    "log": OurLog,
    "unsynced": UnsyncedLog,
    "journal": OurJournal,
    "sqlite": Sqlite,
    "lmdb": Lmdb,
}
COMPARED = ["log", "sqlite", "lmdb"]


# ── measurements ─────────────────────────────────────────────────────────────────────────────────────────────────────


def append_rate(folder: str, opener: Opener, durability: Durability, batch: int, seconds: float) -> dict[str, float]:
    engine = opener(folder, durability)
    records = [os.urandom(RECORD) for _ in range(batch)]
    done = 0
    begin = perf_counter()
    while (elapsed := perf_counter() - begin) < seconds:
        for _ in range(max(1, 64 // batch if durability != "fsync" else 1)):
            engine.append(records)
            done += batch
    engine.close()
    return {"records_per_second": done / elapsed}


def group_commit(folder: str, batch: int, seconds: float) -> dict[str, float]:
    """Threads that each wait until their batch is on the disk."""
    done = [0] * THREADS
    with a3m.Journal(folder) as journal:
        records = [os.urandom(RECORD) for _ in range(batch)]
        begin = perf_counter()

        def work(number: int) -> None:
            while perf_counter() - begin < seconds:
                journal.append_many(records)
                done[number] += batch

        threads = [Thread(target=work, args=(number,)) for number in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        elapsed = perf_counter() - begin
    return {"records_per_second": sum(done) / elapsed}


def crash_after_writing(folder: str, opener: Opener, batch: int, count: int) -> None:
    """Have another process write, and stop without closing anything."""
    child = os.fork()
    if child == 0:
        engine = opener(folder, "os")
        records = [os.urandom(RECORD) for _ in range(batch)]
        for _ in range(-(-count // batch)):
            engine.append(records)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def recovery(folder: str, opener: Opener, batch: int, count: int) -> dict[str, float]:
    crash_after_writing(folder, opener, batch, count)
    begin = perf_counter()
    engine = opener(folder, "os")
    opened = perf_counter()
    found = engine.count()
    read = perf_counter()
    assert found >= count, (found, count)
    engine.delete(count // 2)
    deleted = perf_counter()
    engine.close()
    return {
        "open_seconds": opened - begin,
        "read_seconds": read - opened,
        "delete_half_seconds": deleted - read,
        "megabytes_after": sum(file.stat().st_size for file in Path(folder).iterdir()) / 1e6,
    }


# ── runs ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="The log next to SQLite and LMDB.")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.4, help="of each measurement of a rate")
    parser.add_argument("--records", type=int, default=1_000_000, help="to open after a crash")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--folder", default=None, help="where to write; a temporary one if not given")
    options = parser.parse_args(arguments)
    compared = [name for name in COMPARED if name != "lmdb" or lmdb is not None]
    if lmdb is None:
        print("skipping lmdb: the package is not installed", file=sys.stderr)

    def rate(durability: Durability, batch: int) -> Callable[[str, str], dict[str, float]]:
        return lambda folder, name: append_rate(folder, ENGINES[name], durability, batch, options.seconds)

    def crash(batch: int) -> Callable[[str, str], dict[str, float]]:
        return lambda folder, name: recovery(folder, ENGINES[name], batch, options.records)

    cases: list[tuple[str, list[str], Callable[[str, str], dict[str, float]]]] = []
    for durability in DURABILITIES:
        for batch in BATCHES:
            cases.append((f"append {durability} {batch}", [*compared, "journal"], rate(durability, batch)))
    cases.append(("group commit 32", ["journal"], lambda folder, _: group_commit(folder, 32, options.seconds)))
    for batch, names in ((512, [*compared, "unsynced"]), (1, ["log", "unsynced"])):
        cases.append((f"crash {batch}", names, crash(batch)))
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"store-{date.today()}.jsonl"
    with path.open("a", encoding="utf-8") as file:
        chosen = [case for case in cases if options.only in case[0]]
        for line in measured(chosen, options.runs, options.folder):
            file.write(json.dumps(line) + "\n")
            file.flush()
    report([json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()])


def measured(cases: list[Any], runs: int, parent: str | None) -> Iterable[dict[str, Any]]:
    for case, names, measure in cases:
        for run in range(runs):
            turn = run % len(names)
            for name in names[turn:] + names[:turn]:
                folder = tempfile.mkdtemp(dir=parent, prefix="a3m-store-")
                try:
                    yield {"case": case, "engine": name, "run": run, **measure(folder, name)}
                finally:
                    shutil.rmtree(folder)
                    os.sync()  # whoever is next does not pay for it


def report(lines: list[dict[str, Any]]) -> None:
    values: dict[tuple[str, str, str], list[float]] = {}
    for line in lines:
        for key, value in line.items():
            if key not in ("case", "engine", "run"):
                values.setdefault((line["case"], line["engine"], key), []).append(value)
    for (case, engine, key), found in values.items():
        middle, least, most = statistics.median(found), min(found), max(found)
        digits = 0 if middle > 100 else 3
        print(f"{case:16} {engine:8} {key:20} {middle:14,.{digits}f} ({least:,.{digits}f} to {most:,.{digits}f})")


if __name__ == "__main__":
    main()
