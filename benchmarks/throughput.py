"""One-way throughput between two processes on loopback, next to pyzmq in the same run.

::

    python -m benchmarks.throughput                        # the table, about a minute
    python -m benchmarks.throughput --runs 11 --sizes 1    # fewer sizes, more runs
    python -m benchmarks.throughput --datagram 1452        # Exon alone, with datagrams as on Ethernet
    python -m benchmarks.throughput --profile              # where the time goes

Both libraries do the same work: one ``send()`` call for each message in one process, one ``recv()`` call for each in
the other. Exon has its default options; pyzmq is PUSH to PULL over TCP with its high-water marks lifted, so that it may
queue as much as it likes.

A run takes two fresh processes. A warm-up of a tenth comes first, so that neither connecting nor finding out the size
of datagrams is measured, and the sender waits until the warm-up has arrived. Time runs from before the first ``send()``
until after the last ``recv()``: what only sits in a queue does not count as sent. Both ends read the same clock
(``CLOCK_MONOTONIC`` is one for the whole machine).

Machines are noisy, so the libraries take turns, the figure is the median, and the spread (smallest and largest) stands
next to it. Compare figures of one run only.
"""

from __future__ import annotations

import argparse
import cProfile
import importlib
import importlib.util
import json
import multiprocessing
import os
import platform
import pstats
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from threading import enumerate as all_threads
from time import clock_gettime, monotonic, pthread_getcpuclockid, thread_time
from typing import Any

import attrs
from attrs import Factory, define, frozen

from exon import Endpoint, Options
from exon.engine import Engine

SIZES = (1, 10, 100, 500, 1000)
RESULTS = Path(__file__).parent / "results"
_LINGER = 120.0  # seconds a process may take altogether before the run counts as failed


@frozen
class Task:
    """One run."""

    library: str
    size: int
    messages: int
    datagram: int = Options().max_datagram
    profile: bool = False

    @property
    def warm_up(self) -> int:
        return max(1, self.messages // 10)


@define
class Measured:
    """What one process has to say after a run."""

    moment: float = 0.0  # when it began to send, or had received everything
    application_cpu: float = 0.0  # seconds of processor time of the thread that calls send() or recv()
    engine_cpu: float = 0.0  # and of the thread behind it
    profiles: dict[str, dict[Any, Any]] = Factory(dict)


@frozen
class Result:
    """One run, measured."""

    library: str
    size: int
    messages: int
    datagram: int
    seconds: float
    sender: Measured
    receiver: Measured

    @property
    def rate(self) -> float:
        return self.messages / self.seconds

    def as_dict(self) -> dict[str, Any]:
        return {
            "library": self.library,
            "size": self.size,
            "messages": self.messages,
            "datagram": self.datagram,
            "seconds": round(self.seconds, 6),
            "messages_per_second": round(self.rate),
        }


# -- the libraries ---------------------------------------------------------------------------------------------------


class Exon:
    """exon.Endpoint."""

    def __init__(self, stack: ExitStack, name: str, task: Task) -> None:
        options = Options(max_datagram=task.datagram)
        self._endpoint = stack.enter_context(Endpoint(name, bind="127.0.0.1:0", options=options))
        self.port: int = self._endpoint.address[1]

    def connect(self, port: int) -> Callable[[bytes], None]:
        self._endpoint.register("receiver", f"127.0.0.1:{port}")
        return partial(self._endpoint.send, "receiver")

    def receiver(self) -> Callable[[], object]:
        return self._endpoint.recv


class Zmq:
    """pyzmq, PUSH to PULL over TCP."""

    def __init__(self, stack: ExitStack, name: str, _task: Task) -> None:
        zmq: Any = importlib.import_module("zmq")  # from the extra "bench", which type checking does without
        context = stack.enter_context(zmq.Context())
        self._socket = stack.enter_context(context.socket(zmq.PULL if name == "receiver" else zmq.PUSH))
        self._socket.set_hwm(0)
        self.port: int = self._socket.bind_to_random_port("tcp://127.0.0.1") if name == "receiver" else 0

    def connect(self, port: int) -> Callable[[bytes], None]:
        self._socket.connect(f"tcp://127.0.0.1:{port}")
        send: Callable[[bytes], None] = self._socket.send
        return send

    def receiver(self) -> Callable[[], object]:
        recv: Callable[[], object] = self._socket.recv
        return recv


LIBRARIES: dict[str, type[Exon] | type[Zmq]] = {"exon": Exon, "pyzmq": Zmq}


# -- the two processes -----------------------------------------------------------------------------------------------


class Stopwatch:
    """Processor time of the calling thread and of the engine's, and their profiles if wanted."""

    def __init__(self, profile: bool) -> None:
        self.measured = Measured()
        self._profile = cProfile.Profile() if profile else None
        self._engine = next((thread for thread in all_threads() if thread.name.startswith("exon ")), None)

    def _engine_cpu(self) -> float:
        if self._engine is None or self._engine.ident is None:
            return 0.0
        return clock_gettime(pthread_getcpuclockid(self._engine.ident))

    def __enter__(self) -> Measured:
        self.measured.engine_cpu = -self._engine_cpu()
        self.measured.application_cpu = -thread_time()
        if self._profile is not None:
            self._profile.enable()
        return self.measured

    def __exit__(self, *_: object) -> None:
        if self._profile is not None:
            self._profile.disable()
            self.measured.profiles["application"] = _figures(self._profile)
        self.measured.application_cpu += thread_time()
        self.measured.engine_cpu += self._engine_cpu()


def _figures(profile: cProfile.Profile) -> dict[Any, Any]:
    figures: dict[Any, Any] = pstats.Stats(profile).stats  # type: ignore[attr-defined]  # not in the stubs
    return figures


def _profile_engine(profiles: dict[str, dict[Any, Any]]) -> None:
    """Have every engine thread that starts from now on profile itself until it ends."""
    run = Engine._run

    def profiled(self: Engine) -> None:
        profile = cProfile.Profile()
        profile.runcall(run, self)
        profiles["engine"] = _figures(profile)

    Engine._run = profiled  # type: ignore[method-assign]


def _be_sender(task: Task, pipe: Connection) -> None:
    profiles: dict[str, dict[Any, Any]] = {}
    if task.profile:
        _profile_engine(profiles)
    with ExitStack() as stack:
        send = LIBRARIES[task.library](stack, "sender", task).connect(pipe.recv())
        message = bytes(task.size)
        for _ in range(task.warm_up):
            send(message)
        pipe.recv()  # all of that has arrived
        with Stopwatch(task.profile) as measured:
            measured.moment = monotonic()
            for _ in range(task.messages):
                send(message)
        pipe.recv()  # and of this
    measured.profiles |= profiles
    pipe.send(measured)


def _be_receiver(task: Task, pipe: Connection) -> None:
    profiles: dict[str, dict[Any, Any]] = {}
    if task.profile:
        _profile_engine(profiles)
    with ExitStack() as stack:
        library = LIBRARIES[task.library](stack, "receiver", task)
        recv = library.receiver()
        pipe.send(library.port)
        for _ in range(task.warm_up):
            recv()
        pipe.send("warm")
        with Stopwatch(task.profile) as measured:
            for _ in range(task.messages):
                recv()
            measured.moment = monotonic()
        pipe.send("done")
    measured.profiles |= profiles
    pipe.send(measured)


class Failed(Exception):
    """A run did not come to its end."""


def _take(pipe: Connection) -> Any:
    if not pipe.poll(_LINGER):
        raise Failed(f"no answer for {_LINGER:.0f} seconds")
    try:
        return pipe.recv()
    except EOFError:
        raise Failed("a process ended early; its error message is above") from None


def run(task: Task) -> Result:
    """One run in two fresh processes."""
    context = multiprocessing.get_context("spawn")
    to_sender, sender_end = context.Pipe()
    to_receiver, receiver_end = context.Pipe()
    processes = [
        context.Process(target=_be_receiver, args=(task, receiver_end), daemon=True),
        context.Process(target=_be_sender, args=(task, sender_end), daemon=True),
    ]
    for process in processes:
        process.start()
    sender_end.close()
    receiver_end.close()
    try:
        for _ in ("port", "warm", "done"):
            to_sender.send(_take(to_receiver))
        sender, receiver = _take(to_sender), _take(to_receiver)
    finally:
        for process in processes:
            process.join(5)
            process.kill()
            process.join()
    seconds = receiver.moment - sender.moment
    return Result(task.library, task.size, task.messages, task.datagram, seconds, sender, receiver)


# -- figures ---------------------------------------------------------------------------------------------------------


@frozen
class Row:
    """All runs of one size."""

    size: int
    rates: dict[str, list[float]]

    def ratios(self) -> list[float]:
        """Exon to pyzmq, pair by pair as they were run."""
        return [ours / theirs for ours, theirs in zip(self.rates["exon"], self.rates.get("pyzmq", []), strict=False)]


def spread(figures: Sequence[float], form: str) -> str:
    """The median, and the smallest and largest: ``2 (1 to 3)``."""
    if not figures:
        return "-"
    return f"{format(median(figures), form)} ({format(min(figures), form)} to {format(max(figures), form)})"


def machine() -> dict[str, Any]:
    """Where and when."""
    figures: dict[str, Any] = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load": [round(load, 2) for load in os.getloadavg()],
    }
    if importlib.util.find_spec("zmq") is not None:
        zmq: Any = importlib.import_module("zmq")
        figures["pyzmq"] = f"{zmq.pyzmq_version()} (libzmq {zmq.zmq_version()})"
    return figures


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def measure(tasks: Sequence[Task], runs: int, libraries: Sequence[str], path: Path) -> list[Row]:
    """Run everything by turns, and append each result to a file as it comes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = []
    with path.open("a", encoding="utf-8") as file:
        print(json.dumps({"machine": machine()}), file=file)
        for task in tasks:
            rates: dict[str, list[float]] = {name: [] for name in libraries}
            for number in range(runs):
                # Whoever comes second finds a warmer machine: change places.
                for name in libraries if number % 2 == 0 else reversed(libraries):
                    result = run(attrs.evolve(task, library=name))
                    rates[name].append(result.rate)
                    print(json.dumps(result.as_dict()), file=file, flush=True)
                    print(f"  {task.size:>5} bytes  {name:<6} {result.rate:>12,.0f} messages/s", file=sys.stderr)
            rows.append(Row(task.size, rates))
    return rows


def show(rows: Sequence[Row], runs: int) -> None:
    """The table, with rich if it is there."""
    heading = ["bytes", "exon, messages/s", "pyzmq, messages/s", "exon / pyzmq"]
    cells = [
        [
            f"{row.size:,}",
            spread(row.rates["exon"], ",.0f"),
            spread(row.rates.get("pyzmq", []), ",.0f"),
            spread(row.ratios(), ".2f"),
        ]
        for row in rows
    ]
    where = machine()
    title = f"one way, loopback, two processes; median (smallest to largest) of {runs} runs"
    foot = f"{where['date'][:10]}, {where['processor']}, {where['cores']} cores, {where['python']}, {where['system']}"
    if importlib.util.find_spec("rich") is None:
        print(title)
        for line in [heading, *cells]:
            print("".join(f"{cell:>36}" for cell in line))
        print(foot)
        return
    from rich.console import Console  # noqa: PLC0415 - an optional dependency
    from rich.table import Table  # noqa: PLC0415

    table = Table(title=title, caption=foot)
    for name in heading:
        table.add_column(name, justify="right", no_wrap=True)
    for line in cells:
        table.add_row(*line)
    console = Console()
    Console(width=None if console.is_terminal else 120).print(table)


# -- where the time goes ---------------------------------------------------------------------------------------------


def _place(function: tuple[str, int, str]) -> str:
    file, line, name = function
    if file == "~":
        return name.strip("<>").replace("built-in method ", "").replace("method ", "")
    path = Path(file)
    module = f"{path.parent.name}/{path.name}" if path.parent.name in ("exon", "benchmarks") else path.name
    return f"{module}:{line} {name}"


def _print_profile(title: str, figures: dict[Any, Any], messages: int, lines: int) -> None:
    total = sum(entry[2] for entry in figures.values())
    print(f"\n{title}: {total:.3f} s with the profiler on")
    print(f"{'share':>7} {'own s':>8} {'calls':>9} {'calls/message':>14}  function")
    ranked = sorted(figures.items(), key=lambda item: item[1][2], reverse=True)
    for function, (_, calls, own, _, _) in ranked[:lines]:
        print(f"{own / total:>7.1%} {own:>8.3f} {calls:>9,} {calls / messages:>14.3f}  {_place(function)}")


def profile(tasks: Sequence[Task], runs: int, lines: int) -> None:
    """Processor time of each thread, without a profiler; then what a profiler says each of them does."""
    for task in tasks:
        size, messages = task.size, task.messages
        results = [run(task) for _ in range(runs)]
        print(f"\nexon, {size} bytes, {messages:,} messages, {runs} runs: processor time in µs per message")
        print(f"  {'wall clock':<24} {spread([1e6 / result.rate for result in results], '.2f')}")
        for side in ("sender", "receiver"):
            for thread in ("application", "engine"):
                used = [getattr(getattr(result, side), f"{thread}_cpu") * 1e6 / messages for result in results]
                print(f"  {side + ', ' + thread:<24} {spread(used, '.2f')}")
        result = run(attrs.evolve(task, profile=True))
        print(f"\nwith the profiler on: {result.rate:,.0f} messages/s; waiting counts as time of poll and acquire")
        for side in ("sender", "receiver"):
            for thread, figures in sorted(getattr(result, side).profiles.items()):
                _print_profile(f"{side}, {thread} thread, {size} bytes", figures, messages, lines)


# -- the command -----------------------------------------------------------------------------------------------------


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def _datagram(text: str) -> int:
    return Options(max_datagram=int(text)).max_datagram


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure or profile; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.throughput", description="One-way throughput.")
    parser.add_argument("--sizes", type=_positive, nargs="+", default=list(SIZES), metavar="BYTES")
    parser.add_argument("--messages", type=_positive, default=200_000, metavar="N", help="in each run (200,000)")
    parser.add_argument("--runs", type=_positive, default=5, metavar="N", help="of each library and size (5)")
    most = Options().max_datagram
    parser.add_argument("--datagram", type=_datagram, default=most, metavar="BYTES", help=f"at most ({most})")
    parser.add_argument("--output", type=Path, metavar="FILE", help="JSON lines (benchmarks/results/...)")
    parser.add_argument("--profile", action="store_true", help="show where Exon's time goes instead")
    parser.add_argument("--lines", type=_positive, default=14, metavar="N", help="of each profile (14)")
    given = parser.parse_args(arguments)
    tasks = [Task("exon", size, given.messages, given.datagram) for size in given.sizes]
    try:
        if given.profile:
            if sys.version_info >= (3, 12):
                parser.error("argument --profile: needs Python 3.11; later ones profile one thread at a time")
            profile(tasks, given.runs, given.lines)
            return 0
        libraries = ["exon"]
        if given.datagram != most:
            print("pyzmq has no datagrams to limit: measuring Exon alone", file=sys.stderr)
        elif importlib.util.find_spec("zmq") is not None:
            libraries.append("pyzmq")
        else:
            print("pyzmq is not installed (extra 'bench'): measuring Exon alone", file=sys.stderr)
        path = given.output or RESULTS / f"throughput-{datetime.now(UTC):%Y-%m-%d-%H%M%S}.jsonl"
        show(measure(tasks, given.runs, libraries, path), given.runs)
    except Failed as failure:
        print(f"benchmarks.throughput: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
