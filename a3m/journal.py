"""Journals: received messages in a file, with numbers, so that they can be read again.

Exactly once ends where a message leaves the library. Whoever must be able to read messages a second time, after a crash
or because another program asks for the same range again, appends them to a journal first, and acknowledges them when
they are safe. A journal is a log of :mod:`exon.seglog`: that module says what is promised when, and how damage is told
from a crash; docs/journal-format.md has every byte.

The unit of work is the batch: messages of one link that arrived together are one frame of the log, with their source
and the time written once, packed by one call. So a message costs some tens of nanoseconds besides its bytes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from operator import countOf
from time import monotonic, time
from typing import Any

import msgpack
from attrs import frozen

from a3m.errors import BadPayload, Closed, JournalFull, MessageTooLarge, Timeout
from a3m.ids import SocketId
from a3m.payload import OVERHEAD, Payload, from_body, to_item
from exon import seglog
from exon.errors import Closed as LogClosed
from exon.errors import StoreError, StoreLimit
from exon.seglog import SEGMENT_BYTES, Durability, Log, LogReader
from exon.seglog.format import MOST_BODY, Frame

_KIND = 1  # of what is in a frame, and its version


@frozen
class Entry:
    """A message in a journal.

    >>> Entry(offset=7, source="shop/till", link=3, order=0, topic="", received=1763424000.0, payload=b"sold").payload
    b'sold'
    """

    offset: int  #: its number in the journal
    source: str  #: the socket that sent it, ``"node/tag"``
    link: int  #: which of the links with this source it came over
    order: int  #: its number on the link
    topic: str  #: as published, else empty
    received: float  #: seconds since 1970, by the clock of whoever received it
    payload: bytes | tuple[bytes, ...]  #: bytes, or parts


@frozen
class Batch:
    """Messages that were appended together, as they are stored: for programs that read very many."""

    first: int  #: the number of the first
    source: str
    link: int
    order: int  #: of the first; the others follow
    received: float
    topics: str | list[str]  #: one for all, or one for each
    payloads: list[Any]  #: each bytes, or a list of parts

    def entries(self, start: int = 0, end: int | None = None) -> Iterator[Entry]:
        """The messages with numbers from ``start`` up to ``end``."""
        skip = max(0, start - self.first)
        topics = self.topics
        stop = len(self.payloads) if end is None else min(len(self.payloads), end - self.first)
        for index in range(skip, stop):
            yield Entry(
                self.first + index,
                self.source,
                self.link,
                self.order + index,
                topics if isinstance(topics, str) else topics[index],
                self.received,
                from_body(self.payloads[index]),
            )


class _Readable:
    """What can be read, by the process that writes a journal and by others."""

    _log: Log | LogReader

    @property
    def first(self) -> int:
        """The number of the first message that is there."""
        return self._log.first

    @property
    def end(self) -> int:
        """The number after that of the last message that can be read."""
        return self._log.end

    def read(self, start: int | None = None, end: int | None = None, *, most: int | None = None) -> Iterator[Entry]:
        """The messages from ``start``, or the first, up to ``end``, or the last that can be read now.

        The same range gives the same messages, however often and wherever it is read, until it is truncated.

        Raises:
            StoreTruncated: The message ``start`` is not there any more.
            StoreDamaged: A message cannot be read.
        """
        start = self.first if start is None else start
        if most is not None:
            end = start + most if end is None else min(end, start + most)
        for batch in self.batches(start, end):
            yield from batch.entries(start, end)

    def batches(self, start: int | None = None, end: int | None = None) -> Iterator[Batch]:
        """Like :meth:`read`, by batches; the first may begin before ``start`` and the last end after ``end``."""
        return map(_decode, self._log.frames(self.first if start is None else start, end))

    def reader(self, start: int | None = None) -> Follower:
        """A reader that begins with message ``start``, or the first, and waits for more."""
        return Follower(self._log, self, self.first if start is None else start)


class Journal(_Readable):
    """An append-only file of messages. Any number of threads may use it, and one process may write it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with Journal(folder) as journal:
    ...         journal.append_many([b"one", b"two", [b"three", b"parts"]], source="shop/till")
    ...         journal.append(b"four", topic="news")
    ...         journal.truncate(1)
    ...     with Journal.open_reader(folder) as journal:
    ...         [(entry.offset, entry.payload) for entry in journal.read()]
    0
    3
    [(1, b'two'), (2, (b'three', b'parts')), (3, b'four')]
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        durability: Durability = "fsync",
        segment_bytes: int = SEGMENT_BYTES,
        max_bytes: int | None = None,
    ) -> None:
        """Open or create the journal in folder ``path``.

        Args:
            path: A folder that contains nothing else.
            durability: What has happened to a message when it counts as stored: ``"fsync"``, it is on the disk;
                ``"os"``, the operating system has it, and it survives the end of this process but perhaps not that of
                the machine; ``"none"``, nothing, it may be lost with the process.
            segment_bytes: How large a file may become; truncating makes room by whole files.
            max_bytes: How large the journal may become, at least four times ``segment_bytes``.

        Raises:
            StoreError: The folder cannot be written, or another process writes this journal.
            StoreDamaged: Messages that were on the disk cannot be read.
        """
        self._durability = durability
        self._log: Log = Log(path, durability=durability, segment_bytes=segment_bytes, max_bytes=max_bytes)

    @staticmethod
    def open_reader(path: str | os.PathLike[str]) -> JournalReader:
        """The journal in folder ``path`` for reading only, while another process writes it or nobody does."""
        return JournalReader(path)

    @staticmethod
    def check(path: str | os.PathLike[str]) -> seglog.Report:
        """Read the whole journal in folder ``path`` and say what is damaged; nothing is changed."""
        return seglog.check(path)

    @staticmethod
    def repair(path: str | os.PathLike[str]) -> seglog.Repair:
        """Give up what is damaged in the journal in folder ``path``, and say what that was."""
        return seglog.repair(path)

    @property
    def next(self) -> int:
        """The number that the next message gets."""
        return self._log.next

    @property
    def stored(self) -> int:
        """Messages with numbers below this are as safe as the durability promises, and can be read."""
        return self._log.end

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return self._log.size

    def append(
        self,
        payload: Payload,
        *,
        source: str | SocketId = "",
        link: int = 0,
        order: int = 0,
        topic: str = "",
        received: float | None = None,
        wait: bool = True,
    ) -> int:
        """Append one message and return its number; see :meth:`append_many`."""
        return self.append_many(
            [payload], source=source, link=link, order=order, topics=topic, received=received, wait=wait
        )

    def append_many(
        self,
        payloads: Sequence[Payload],
        *,
        source: str | SocketId = "",
        link: int = 0,
        order: int = 0,
        topics: str | Sequence[str] = "",
        received: float | None = None,
        wait: bool = True,
    ) -> int:
        """Append messages of one link, all or none of them, and return the number of the first.

        Args:
            payloads: What was received, in order.
            source: The socket that sent them.
            link: Which of the links with it they came over.
            order: The number of the first on the link.
            topics: One for all, or one for each.
            received: When, in seconds since 1970; now, if it is not given.
            wait: Return when they are stored as safely as the durability promises. Otherwise ``sync(number)``, with the
                number after that of the last, waits for it later; threads that wait do so together.

        Raises:
            JournalFull: The journal has reached its limit; truncate it, and repeat.
            StoreFull: The disk is full. Nothing was appended; repeat it when there is room.
            StoreFailed: The disk failed; nothing is known about messages that were not stored. See :meth:`recover`.
        """
        items: Sequence[Any] = payloads
        count = len(items)
        if not count:
            raise BadPayload("there is no message to append")
        if countOf(map(type, items), bytes) != count:
            items = [to_item(payload, MOST_BODY) for payload in payloads]
        if not isinstance(topics, str):
            topics = list(topics)
            if len(topics) != count:
                raise ValueError(
                    f"there are {count} messages and {len(topics)} topics; give one topic for each, or one"
                )
        microseconds = int((time() if received is None else received) * 1e6)
        body = msgpack.packb((_KIND, str(source), link, order, microseconds, topics, items))
        if len(body) > MOST_BODY - OVERHEAD:
            raise MessageTooLarge(f"the messages have {len(body)} bytes, at most {MOST_BODY} can be appended at once")
        try:
            first = self._log.append_packed(body, count)
            if wait and self._durability == "fsync":
                self._log.sync(first + count)
        except StoreLimit as error:
            raise JournalFull(str(error)) from None
        except LogClosed as error:
            raise Closed(str(error)) from None
        return first

    def sync(self, upto: int | None = None) -> int:
        """Return when all messages below ``upto``, or all there are, are on the disk, whatever the durability.

        Returns the number below which they are.

        Raises:
            StoreFailed: The disk failed. See :meth:`recover`.
        """
        try:
            return self._log.sync(upto)
        except LogClosed as error:
            raise Closed(str(error)) from None

    def truncate(self, before: int) -> None:
        """Give up the messages with numbers below ``before``; room is made by whole files, so it may come later."""
        try:
            self._log.truncate(before)
        except LogClosed as error:
            raise Closed(str(error)) from None

    def recover(self) -> None:
        """After :class:`StoreFailed`: see what is on the disk, and go on after it; :attr:`next` says where that is."""
        self._log.recover()

    def close(self) -> None:
        """Put everything on the disk and let others write; closing twice is harmless."""
        self._log.close()

    def __enter__(self) -> Journal:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()


class JournalReader(_Readable):
    """A journal for reading only, from :meth:`Journal.open_reader`. It locks nothing and disturbs nobody."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Raises :class:`StoreError` if there is no journal in folder ``path``."""
        self._log: LogReader = LogReader(path)

    def close(self) -> None:
        """Let go of the files; closing twice is harmless."""
        self._log.close()

    def __enter__(self) -> JournalReader:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()


class Follower:
    """Reads a journal from some message on, and waits for more. For one thread at a time.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, Journal(folder) as journal:
    ...     reader = journal.reader()
    ...     number = journal.append_many([b"one", b"two", b"three"])
    ...     [entry.payload for entry in reader.read(2, timeout=5)], reader.position
    ([b'one', b'two'], 2)
    """

    def __init__(self, log: Log | LogReader, journal: _Readable, start: int) -> None:
        """Begins with message ``start``."""
        self._log = log
        self._journal = journal
        self.position = start  #: the number of the message that comes next

    def read(self, most: int = 1000, *, timeout: float | None = None) -> list[Entry]:
        """The next messages, ``most`` of them at the most; waits for the first one only.

        Messages that another process writes are looked for every 50 ms at the latest.

        Raises:
            Timeout: There was none in time.
            Closed: There is none, and the journal was closed in this process.
        """
        deadline = None if timeout is None else monotonic() + timeout
        while True:
            end = self._log.end
            if end <= self.position:
                left = None if deadline is None else max(0.0, deadline - monotonic())
                end = self._log.wait(self.position, left)
            if end <= self.position:
                if deadline is None or monotonic() < deadline:
                    raise Closed("the journal is closed")
                raise Timeout(f"no message {self.position} within {timeout} seconds")
            end = min(end, self.position + most)
            entries = list(self._journal.read(self.position, end))
            self.position = end
            if entries:  # else they were lost, and whoever repaired the journal was told
                return entries


def _decode(frame: Frame) -> Batch:
    try:
        kind, source, link, order, microseconds, topics, payloads = msgpack.unpackb(frame.body, max_bin_len=MOST_BODY)
        if kind != _KIND or len(payloads) != frame.records:
            raise ValueError
    except (ValueError, TypeError, msgpack.UnpackException):
        raise StoreError(
            f"record {frame.first} is whole but no message: this log is no journal, or one of a later version"
        ) from None
    return Batch(frame.first, source, link, order, microseconds / 1e6, topics, payloads)
