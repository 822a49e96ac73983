"""See it work: two processes exchange messages over a bad network, and every single message is accounted for.

::

    python -m exon.demo                          # 100,000 messages each way, 20 % loss, one change of port
    python -m exon.demo --loss 0.5 --moves 10    # worse
    python -m exon.demo --json                   # for scripts

The processes are ``alice`` and ``bob``. Both send at the same time, both through :func:`exon.simulation.lossy`, and
``bob`` moves to another port while messages are under way. A third process, the one that was started, only watches.

Messages are numbered. A receiver notes each *number* it was given, so a message that came twice cannot make up for one
that never came, and the account compares the numbers sent in one process with the numbers seen in the other. A process
is done when it has sent everything, has seen everything and nothing of its own waits for an acknowledgement: from then
on no message is under way any more, so a duplicate cannot hide behind the end of the run.

Exit status: 0 if every message was delivered exactly once, 1 if not, 2 for arguments that make no sense, 130 after
Ctrl-C.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import multiprocessing
import os
import secrets
import signal
import struct
import sys
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from threading import Event as Flag
from threading import Thread
from time import monotonic
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Protocol

import attrs
from attrs import Factory, define, frozen

from exon.endpoint import Endpoint
from exon.errors import Closed, Timeout
from exon.options import Options
from exon.simulation.lossy import LossySocket, lossy

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_NAMES = ("alice", "bob")
_MOVER = "bob"
_NUMBER = struct.Struct(">Q")
_DATAGRAM = 1452  # as on Ethernet: loopback's 64 KiB would put the whole run into a handful of datagrams
_TICK = 0.05  # seconds between reports
_STALLED = 60.0  # seconds without any progress after which to give up
_DEAD = 10.0  # seconds to wait for a process that was told to end

OK, WRONG, INTERRUPTED = 0, 1, 130


@frozen
class Plan:
    """What is to happen."""

    messages: int
    size: int
    loss: float
    duplicate: float
    reorder: float
    moves: int
    seed: int


def make_payload(number: int, size: int) -> bytes:
    """The message with this number: recognizable, and no byte of it arbitrary.

    >>> make_payload(3, 10).hex(" ")
    '00 00 00 00 00 00 00 03 00 00'
    """
    return (_NUMBER.pack(number) * (size // _NUMBER.size + 1))[:size]


# -- one of the two processes ----------------------------------------------------------------------------------------


@frozen
class Report:
    """How far a process is."""

    sent: int
    delivered: int
    done: bool


@frozen
class Moved:
    """A process has changed its port."""

    old: int
    new: int


@frozen
class Outcome:
    """What a process has to say at its end."""

    sent: int  # numbers 0 .. sent - 1
    seen: bytes  # one byte for each of the peer's numbers: 1 if it came
    duplicates: int
    damaged: int  # came, but was never sent like that
    unknown: int
    retransmissions: int
    datagrams: int
    dropped: int  # of these, by the network
    bytes: int
    moves: int


class Party:
    """Alice or Bob: one endpoint, a thread that sends, and a loop that receives."""

    def __init__(self, name: str, peer: str, plan: Plan, watcher: Connection) -> None:
        """Bind, and exchange ports by way of the watcher."""
        self._peer = peer
        self._plan = plan
        self._watcher = watcher
        self._sockets: list[LossySocket] = []
        self._open = lossy(plan.loss, duplicate=plan.duplicate, reorder=plan.reorder, seed=plan.seed)
        options = Options(max_datagram=_DATAGRAM)
        self._endpoint = Endpoint(name, bind="127.0.0.1:0", options=options, socket=self._open_socket)
        self._sent = 0
        self._seen = bytearray(plan.messages)
        self._delivered = 0
        self._duplicates = 0
        self._damaged = 0
        moves = plan.moves if name == _MOVER else 0
        self._moves_at = {plan.messages * move // (moves + 1) for move in range(1, moves + 1)}
        self._moves = 0
        self._stop = Flag()
        watcher.send(self._endpoint.address[1])
        self._endpoint.register(peer, f"127.0.0.1:{watcher.recv()}")

    def _open_socket(self, bind: str) -> LossySocket:
        opened = self._open(bind)
        self._sockets.append(opened)
        return opened

    def run(self) -> None:
        """Send and receive until the watcher says that it is over."""
        sender = Thread(target=self._send_all, name="sender", daemon=True)
        sender.start()
        while not self._watcher.poll():
            self._receive(monotonic() + _TICK)
            self._watcher.send(Report(self._sent, self._delivered, self._done))
        finished = self._watcher.recv()
        self._stop.set()
        sender.join()
        self._endpoint.close(timeout=None if finished else 0)
        self._receive(monotonic())  # what had arrived before the close
        self._watcher.send(self._outcome())

    @property
    def _done(self) -> bool:
        messages = self._plan.messages
        if self._sent < messages or self._delivered < messages:
            return False
        peer = self._endpoint.stats().peers.get(self._peer)
        return peer is None or not peer.pending_messages

    def _send_all(self) -> None:
        size = self._plan.size
        while self._sent < self._plan.messages and not self._stop.is_set():
            with suppress(Timeout):  # the peer is slow or the path bad: look whether to go on
                self._endpoint.send(self._peer, make_payload(self._sent, size), timeout=_TICK)
                self._sent += 1

    def _receive(self, until: float) -> None:
        with suppress(Timeout, Closed):
            while True:
                self._note(*self._endpoint.recv(timeout=max(0.0, until - monotonic())))
                if monotonic() >= until and not self._stop.is_set():
                    return

    def _note(self, sender: str, payload: bytes) -> None:
        number = _NUMBER.unpack_from(payload)[0] if len(payload) >= _NUMBER.size else self._plan.messages
        genuine = sender == self._peer and number < self._plan.messages
        if not genuine or payload != make_payload(number, self._plan.size):
            self._damaged += 1
        elif self._seen[number]:
            self._duplicates += 1
        else:
            self._seen[number] = 1
            self._delivered += 1
            if self._delivered in self._moves_at:
                self._move()

    def _move(self) -> None:
        old = self._endpoint.address[1]
        self._endpoint.rebind("127.0.0.1:0")
        self._moves += 1
        self._watcher.send(Moved(old, self._endpoint.address[1]))

    def _outcome(self) -> Outcome:
        stats = self._endpoint.stats()
        return Outcome(
            sent=self._sent,
            seen=bytes(self._seen),
            duplicates=self._duplicates,
            damaged=self._damaged,
            unknown=stats.messages_unknown,
            retransmissions=stats.retransmissions,
            datagrams=stats.datagrams_sent,
            dropped=sum(udp.lost for udp in self._sockets),
            bytes=stats.bytes_sent,
            moves=self._moves,
        )


def _be_party(name: str, peer: str, plan: Plan, watcher: Connection) -> None:
    """The main function of Alice and of Bob."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all three; the watcher decides what it means
    with suppress(EOFError, ConnectionError):  # without a watcher there is nobody to tell
        Party(name, peer, plan, watcher).run()


# -- the account -----------------------------------------------------------------------------------------------------


@frozen
class Direction:
    """What became of the messages from one process to the other, and what it took."""

    sent: int
    delivered: int
    duplicates: int
    lost: int  # accepted and never delivered; after Ctrl-C most of them are only under way
    unknown: int
    damaged: int
    retransmissions: int
    datagrams: int
    dropped: int
    bytes: int
    moves: int

    @classmethod
    def between(cls, sender: Outcome, receiver: Outcome) -> Direction:
        """Compare number by number what one says it sent with what the other says it saw.

        >>> outcome = Outcome(2, b"", 0, 0, 0, 0, 0, 0, 0, 0)
        >>> account = Direction.between(outcome, attrs.evolve(outcome, seen=bytes([1, 0, 1])))
        >>> account.delivered, account.lost, account.damaged
        (1, 1, 1)
        """
        delivered = receiver.seen.count(1, 0, sender.sent)
        return cls(
            sent=sender.sent,
            delivered=delivered,
            duplicates=receiver.duplicates,
            lost=sender.sent - delivered,
            unknown=sender.unknown,
            damaged=receiver.damaged + receiver.seen.count(1, sender.sent),
            retransmissions=sender.retransmissions,
            datagrams=sender.datagrams,
            dropped=sender.dropped,
            bytes=sender.bytes,
            moves=sender.moves,
        )

    def __add__(self, other: Direction) -> Direction:
        """Both directions together."""
        mine, yours = attrs.astuple(self), attrs.astuple(other)
        return Direction(*(a + b for a, b in zip(mine, yours, strict=True)))


@frozen
class Account:
    """The whole run."""

    plan: Plan
    directions: tuple[Direction, Direction]
    seconds: float
    interrupted: bool

    @property
    def total(self) -> Direction:
        """Both directions together."""
        return self.directions[0] + self.directions[1]

    @property
    def exact(self) -> bool:
        """Whether each message of the plan was sent and delivered exactly once."""
        total = self.total
        wrong = total.duplicates + total.lost + total.unknown + total.damaged
        return not wrong and all(way.sent == way.delivered == self.plan.messages for way in self.directions)

    @property
    def rate(self) -> float:
        """Messages per second, both directions together."""
        return self.total.delivered / self.seconds if self.seconds else 0.0

    @property
    def status(self) -> int:
        """The exit status."""
        if self.interrupted:
            return INTERRUPTED
        return OK if self.exact else WRONG

    @property
    def verdict(self) -> str:
        """The result in one sentence."""
        if self.interrupted:
            return "Interrupted: the account so far."
        if self.exact:
            return f"Exactly once: {self.total.delivered:,} of {self.total.sent:,} messages, none lost, none twice."
        return "NOT exactly once: see the account."

    def rows(self) -> list[tuple[str, ...]]:
        """The account as a table: a heading, then a line for each figure."""
        names = {
            "sent": "messages sent",
            "delivered": "delivered",
            "duplicates": "delivered twice",
            "lost": "under way" if self.interrupted else "lost",
            "unknown": "unknown",
            "damaged": "not what was sent",
            "retransmissions": "tokens sent again",
            "datagrams": "datagrams sent",
            "dropped": "lost by the network",
            "bytes": "bytes sent",
            "moves": "changes of port",
        }
        a, b = _NAMES
        ways = (*self.directions, self.total)
        rows: list[tuple[str, ...]] = [("", f"{a} → {b}", f"{b} → {a}", "both")]
        rows += [(label, *(f"{getattr(way, name):,}" for way in ways)) for name, label in names.items()]
        rows.append(("seconds", "", "", f"{self.seconds:.2f}"))
        rows.append(("messages per second", "", "", f"{self.rate:,.0f}"))
        return rows

    def as_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        a, b = _NAMES
        return {
            "exact": self.exact,
            "interrupted": self.interrupted,
            "seconds": round(self.seconds, 3),
            "messages_per_second": round(self.rate),
            "plan": attrs.asdict(self.plan),
            f"{a}_to_{b}": attrs.asdict(self.directions[0]),
            f"{b}_to_{a}": attrs.asdict(self.directions[1]),
            "both": attrs.asdict(self.total),
        }


# -- what the user sees ----------------------------------------------------------------------------------------------


class Display(Protocol):
    """Shows a run."""

    def __enter__(self) -> Display:
        """Begin."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """No more progress; the account may follow."""

    def say(self, text: str) -> None:
        """Something happened."""

    def progress(self, delivered: Sequence[int]) -> None:
        """How many messages have arrived in each direction."""

    def account(self, account: Account) -> None:
        """The end."""


class Plain:
    """Lines of text without any escape code, for files, pipes and simple terminals."""

    def __init__(self, plan: Plan) -> None:
        """Print a line of progress for each tenth."""
        self._goal = 2 * plan.messages
        self._tenths = 0

    def __enter__(self) -> Plain:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to tidy up."""

    def say(self, text: str) -> None:
        """A line."""
        print(text, flush=True)

    def progress(self, delivered: Sequence[int]) -> None:
        """A line whenever another tenth is done."""
        tenths = 10 * sum(delivered) // self._goal
        if tenths > self._tenths:
            self._tenths = tenths
            self.say(f"{10 * tenths:3} %  {sum(delivered):,} of {self._goal:,} messages delivered")

    def account(self, account: Account) -> None:
        """A table in columns."""
        for label, *figures in account.rows():
            print(f"{label:<20}" + "".join(f"{figure:>16}" for figure in figures))
        print(account.verdict, flush=True)


class Json:
    """One JSON object at the end and nothing else."""

    def __enter__(self) -> Json:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to tidy up."""

    def say(self, text: str) -> None:
        """Nothing."""

    def progress(self, delivered: Sequence[int]) -> None:
        """Nothing."""

    def account(self, account: Account) -> None:
        """The object."""
        print(json.dumps(account.as_dict(), indent=2), flush=True)


class Live:
    """Moving bars, with rich (the extra ``cli``)."""

    def __init__(self, plan: Plan) -> None:
        """One bar for each direction."""
        from rich.console import Console  # noqa: PLC0415 - an optional dependency
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

        columns = (TextColumn("{task.description}"), BarColumn(None), MofNCompleteColumn(), TimeElapsedColumn())
        self._console = Console()
        self._progress: Progress = Progress(*columns, console=self._console, expand=True)
        a, b = _NAMES
        self._bars: list[TaskID] = [
            self._progress.add_task(way, total=plan.messages) for way in (f"{a} → {b}", f"{b} → {a}")
        ]

    def __enter__(self) -> Live:
        """Begin to move."""
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stand still."""
        self._progress.stop()

    def say(self, text: str) -> None:
        """A line above the bars."""
        self._console.print(text, highlight=False)

    def progress(self, delivered: Sequence[int]) -> None:
        """Move the bars."""
        for bar, count in zip(self._bars, delivered, strict=True):
            self._progress.update(bar, completed=count)

    def account(self, account: Account) -> None:
        """A table."""
        from rich.table import Table  # noqa: PLC0415 - an optional dependency

        heading, *rows = account.rows()
        table = Table(heading[0], title="account", title_justify="left")
        for name in heading[1:]:
            table.add_column(name, justify="right")
        for row in rows:
            table.add_row(*row)
        self._console.print(table)
        colour = {OK: "green", WRONG: "red"}.get(account.status, "yellow")
        self._console.print(account.verdict, style=f"bold {colour}", highlight=False)


def _choose_display(plan: Plan, *, plain: bool, as_json: bool) -> Display:
    if as_json:
        return Json()
    simple = plain or not sys.stdout.isatty() or os.environ.get("TERM") == "dumb"
    return Plain(plan) if simple or importlib.util.find_spec("rich") is None else Live(plan)


# -- the watcher -----------------------------------------------------------------------------------------------------


class Failed(Exception):
    """The run cannot be completed; the message says why."""


@define(eq=False)
class _Child:
    """A process, as the watcher sees it."""

    name: str
    process: BaseProcess
    pipe: Connection
    report: Report = Factory(lambda: Report(0, 0, False))

    def take(self) -> Any:
        """The next thing it says."""
        try:
            return self.pipe.recv()
        except (EOFError, ConnectionError):
            self.process.join(_DEAD)
            raise Failed(f"{self.name} ended unexpectedly, with exit status {self.process.exitcode}") from None

    def tell(self, what: object) -> None:
        """Say something to it."""
        try:
            self.pipe.send(what)
        except ConnectionError:
            self.take()  # what it said before it ended, or why it did

    def outcome(self) -> Outcome:
        """Its last word; what it said before that was under way already."""
        while not isinstance(said := self.take(), Outcome):
            pass
        return said


class Watcher:
    """Starts the two, passes their ports on, shows what they report, and draws up the account."""

    def __init__(self, plan: Plan, display: Display) -> None:
        """Nothing is started yet."""
        self._plan = plan
        self._display = display
        self._children: list[_Child] = []
        self._interrupted = False

    def run(self) -> Account:
        """The whole run. The first Ctrl-C ends it in good order, the second at once."""
        before = signal.signal(signal.SIGINT, self._interrupt)
        try:
            self._start()
            began = monotonic()
            self._watch()
            seconds = monotonic() - began
            alice, bob = self._finish()
        finally:
            self._end()
            signal.signal(signal.SIGINT, before)
        ways = (Direction.between(alice, bob), Direction.between(bob, alice))
        return Account(self._plan, ways, seconds, self._interrupted)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        # An exception here could strike half-way through a report and make the rest of the pipe unreadable.
        if self._interrupted:
            signal.default_int_handler(number, frame)
        self._interrupted = True

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")  # a fresh interpreter each, as if started by hand
        for index, name in enumerate(_NAMES):
            ours, theirs = context.Pipe()
            plan = attrs.evolve(self._plan, seed=self._plan.seed + index)
            process = context.Process(target=_be_party, args=(name, _NAMES[1 - index], plan, theirs), daemon=True)
            process.start()
            theirs.close()  # or its end would go unnoticed
            self._children.append(_Child(name, process, ours))
        ports = [child.take() for child in self._children]
        for child, port in zip(self._children, reversed(ports), strict=True):
            child.tell(port)

    def _watch(self) -> None:
        """Until both are done, or nothing moves any more."""
        by_pipe = {child.pipe: child for child in self._children}
        moved_at, total = monotonic(), 0
        while not self._interrupted and not self._done:
            for ready in wait(list(by_pipe), timeout=1.0):
                self._hear(by_pipe[ready])  # type: ignore[index]  # only connections were given
            delivered = [child.report.delivered for child in reversed(self._children)]  # alice's arrive at bob's
            self._display.progress(delivered)
            progress = sum(child.report.sent + child.report.delivered for child in self._children)
            if progress > total:
                moved_at, total = monotonic(), progress
            elif monotonic() - moved_at > _STALLED:
                self._display.say(f"No progress for {_STALLED:.0f} seconds: giving up.")
                return

    def _hear(self, child: _Child) -> None:
        said = child.take()
        if isinstance(said, Report):
            child.report = said
        elif isinstance(said, Moved):
            self._display.say(f"{child.name} moves from port {said.old} to port {said.new}")

    @property
    def _done(self) -> bool:
        return all(child.report.done for child in self._children)

    def _finish(self) -> list[Outcome]:
        complete = self._done
        for child in self._children:
            child.tell(complete)
        return [child.outcome() for child in self._children]

    def _end(self) -> None:
        for child in self._children:
            child.pipe.close()
            child.process.join(_DEAD)
            if child.process.exitcode is None:
                child.process.kill()
                child.process.join()


# -- the command -----------------------------------------------------------------------------------------------------


def _whole(least: int) -> Any:
    def parse(text: str) -> int:
        try:
            number = int(text.replace(",", "").replace("_", ""))
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
        if number < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}, not {number}")
        return number

    return parse


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if not 0 <= share < 1:
        raise argparse.ArgumentTypeError(f"a share is from 0 to less than 1, as 0.2 for 20 %, not {text}")
    return share


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m exon.demo",
        description="Two processes exchange messages over a bad network; every message is accounted for.",
    )
    add = parser.add_argument
    add("--messages", type=_whole(1), default=100_000, metavar="N", help="in each direction (100,000)")
    add("--size", type=_whole(_NUMBER.size), default=100, metavar="BYTES", help="of each message, at least 8 (100)")
    add("--loss", type=_share, default=0.20, metavar="SHARE", help="of datagrams that are lost (0.20)")
    add("--duplicate", type=_share, default=0.05, metavar="SHARE", help="of datagrams that arrive twice (0.05)")
    add("--reorder", type=_share, default=0.10, metavar="SHARE", help="of datagrams that are overtaken (0.10)")
    add("--moves", type=_whole(0), default=1, metavar="N", help="how often bob changes his port (1)")
    add("--seed", type=_whole(0), metavar="N", help="of the bad network's dice (a new one each time)")
    add("--plain", action="store_true", help="lines of text instead of moving bars")
    add("--json", action="store_true", help="print the account as JSON and nothing else")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demonstration; the exit status."""
    parser = _parser()
    given = parser.parse_args(arguments)
    if given.moves >= given.messages:
        parser.error(f"argument --moves: {given.moves} moves need more than {given.messages} messages")
    if given.size > Options().max_message:
        parser.error(f"argument --size: the largest message is {Options().max_message} bytes")
    seed = given.seed if given.seed is not None else secrets.randbelow(1_000_000)
    plan = Plan(given.messages, given.size, given.loss, given.duplicate, given.reorder, given.moves, seed)
    display = _choose_display(plan, plain=given.plain, as_json=given.json)
    try:
        with display:
            display.say(
                f"alice and bob send each other {plan.messages:,} messages of {plan.size} bytes; the network loses "
                f"{plan.loss:.0%} of the datagrams,\ndoubles {plan.duplicate:.0%}, reorders {plan.reorder:.0%} "
                f"(seed {plan.seed}); bob changes his port {plan.moves} time{'s' * (plan.moves != 1)}"
            )
            account = Watcher(plan, display).run()
        display.account(account)
    except Failed as failure:
        print(f"exon.demo: {failure}", file=sys.stderr)
        return WRONG
    except KeyboardInterrupt:  # before there was anything to account for, or a second time
        return INTERRUPTED
    return account.status


if __name__ == "__main__":
    sys.exit(main())
