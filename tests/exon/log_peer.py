"""What processes do with a log in the tests: ``python -m tests.exon.log_peer write|follow|open FOLDER ...``."""

from __future__ import annotations

import sys
from hashlib import sha256
from typing import cast

from exon import StoreError
from exon.seglog import Durability, Log, LogReader

BATCH = 32


def record(offset: int) -> bytes:
    """The record with this number, whoever writes it."""
    return b"%d:" % offset + bytes([offset % 251]) * (offset * 7 % 300)


def write(folder: str, durability: str) -> None:
    """Append for ever, and say what is safe."""
    with Log(folder, durability=cast(Durability, durability), segment_bytes=64 * 1024) as log:
        while True:
            first = log.next
            log.append([record(offset) for offset in range(first, first + BATCH)])
            if durability == "fsync":
                log.sync()
            print(first + BATCH, flush=True)


def follow(folder: str, count: int) -> None:
    """Read ``count`` records as they come, and say what they were."""
    digest, start = sha256(), 0
    with LogReader(folder) as reader:
        print("ready", flush=True)
        while start < count:
            end = reader.wait(start, timeout=60)
            assert end > start
            for offset, content in reader.records(start, end):
                assert offset == start
                digest.update(content)
                start += 1
    print(digest.hexdigest(), flush=True)


def try_to_open(folder: str) -> None:
    """Say what happens."""
    try:
        Log(folder).close()
    except StoreError as error:
        print(error)
    else:
        print("opened")


if __name__ == "__main__":
    name, folder, *rest = sys.argv[1:]
    if name == "write":
        write(folder, rest[0])
    elif name == "follow":
        follow(folder, int(rest[0]))
    else:
        try_to_open(folder)
