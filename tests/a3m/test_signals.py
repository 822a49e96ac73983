"""Ctrl-C while the main thread does the work of the library: nothing is lost, and it takes effect."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

SCRIPT = """
import signal
import a3m
from a3m import core, lanes, signals
from exon import engine

signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job may have it ignored
left = [20]
put_off = []


# An interrupt that may take effect after a call has returned may do so anywhere, so not in this program.
signals.interrupt_soon = lambda: put_off.append(True)


def at_the_worst_moment(function):
    def interrupted(*arguments, **options):
        if left[0]:
            left[0] -= 1
            signal.raise_signal(signal.SIGINT)
        return function(*arguments, **options)

    return interrupted


with a3m.Node("a", bind="127.0.0.1:0") as a, a3m.Node("b", bind="127.0.0.1:0") as b:
    a.register("b", f"127.0.0.1:{{b.address[1]}}")
    push, pull = a.push("out"), b.pull("in", capacity={capacity})
    push.link(pull.id)
    push.wait_linked(timeout=30)
    {place} = at_the_worst_moment({place})
    taken, interrupts, sent = [], 0, 0
    while len(taken) < 60:
        try:
            while sent < 60 and sent - len(taken) <= {capacity} * 3 // 4 - 1:
                push.send(b"%d" % sent, timeout=10)
                sent += 1
            while len(taken) < sent:
                taken.append(pull.recv(timeout=10))
        except KeyboardInterrupt:
            interrupts += 1
    left[0] = 0
print(interrupts + len(put_off), [int(message) for message in taken] == list(range(60)))
"""


@pytest.mark.parametrize("capacity", [3, 40])  # the second is enough for batches and lanes
@pytest.mark.parametrize(
    "place",
    [
        "core.Core._dispatch",
        "core.Core._hand_over",
        "lanes.Lanes.try_receive",
        "lanes.Lanes.repay",
        "engine.Engine.begin",
        "engine.Engine.end",
        "engine.Engine.turn",
        "engine.Engine.run_now",
    ],
)
def test_an_interrupt_loses_nothing(place: str, capacity: int) -> None:
    script = textwrap.dedent(SCRIPT).format(place=place, capacity=capacity)
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    interrupts, whole = ran.stdout.split()
    assert int(interrupts) > 0, "no interrupt ever came"
    assert whole == "True", ran.stdout


def test_an_interrupt_of_a_proxy_leaves_nothing_half_done() -> None:
    script = """
    import signal
    import a3m
    from a3m import joint, socket_core

    signal.signal(signal.SIGINT, signal.default_int_handler)
    left = [40]

    def at_the_worst_moment(function):
        def interrupted(*arguments, **options):
            try:
                return function(*arguments, **options)
            finally:
                if left[0]:
                    left[0] -= 1
                    signal.raise_signal(signal.SIGINT)

        return interrupted

    with a3m.Node("a", bind="127.0.0.1:0") as a, a3m.Node("b", bind="127.0.0.1:0") as b:
        a.register("b", f"127.0.0.1:{b.address[1]}")
        first, front, back, last = a.push("first"), b.pull("front"), b.push("back"), b.pull("last")
        first.link(front.id)
        back.link(last.id)
        back.wait_linked(timeout=30)
        first.send_many([b"%d" % number for number in range(50)], timeout=30)
        front.wait_linked(timeout=30)
        back.try_send = at_the_worst_moment(back.try_send)
        front.take = at_the_worst_moment(front.take)
        between, taken, interrupts = joint.Joint(front, back, None), [], 0
        while len(taken) < 50:
            try:
                between.forward()
            except KeyboardInterrupt:
                interrupts += 1
            assert not b._core.lock.locked() or b._engine._thread.is_alive()
            try:
                taken.append(last.recv(timeout=0.01))
            except a3m.Timeout:
                pass
        left[0] = 0
        try:
            taken.append(last.recv(timeout=0.1))
        except a3m.Timeout:
            pass
    print(interrupts > 0, [int(message) for message in taken] == list(range(50)))
    """
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ran.stdout, ran.returncode) == ("True True\n", 0), ran.stderr


def test_an_interrupt_that_was_put_off_does_not_wait_for_its_thread() -> None:
    """Or on a busy machine it comes before the call that put it off has returned."""
    script = """
    import signal, sys
    from a3m.signals import Uninterrupted

    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.setswitchinterval(10)  # so no other thread runs before this one waits for something

    def result():
        with Uninterrupted() as signals:
            signal.raise_signal(signal.SIGINT)
            signals.done = True
            return "a result"

    kept = result()
    try:
        signal.sigtimedwait([], 30)
    except (KeyboardInterrupt, InterruptedError):
        pass
    print(kept)
    """
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.stdout == "a result\n", ran.stderr


def test_an_interrupt_ends_a_call_that_waits() -> None:
    script = """
    import os, signal, threading
    import a3m
    from tests.children import main_thread_sleeps

    signal.signal(signal.SIGINT, signal.default_int_handler)
    with a3m.Node("a", bind="127.0.0.1:0") as node:
        pull = node.pull("in")

        def press():
            while not pull.stats().waiting or not main_thread_sleeps():
                pass
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=press).start()
        try:
            pull.recv()
        except KeyboardInterrupt:
            print("interrupted")
    """
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ran.stdout, ran.returncode) == ("interrupted\n", 0), ran.stderr
