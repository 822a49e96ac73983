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


class Timer:  # of interrupts that may take effect after a call has returned: anywhere, so not in this program
    def __init__(self, *arguments):
        put_off.append(arguments)

    def start(self):
        pass


signals.Timer = Timer


def at_the_worst_moment(function):
    def interrupted(*arguments, **options):
        if left[0]:
            left[0] -= 1
            signal.raise_signal(signal.SIGINT)
        return function(*arguments, **options)

    return interrupted


with a3m.Node("a", bind="127.0.0.1:0") as a, a3m.Node("b", bind="127.0.0.1:0") as b:
    a.register("b", f"127.0.0.1:{{b.address[1]}}")
    push, pull = a.push("out"), b.pull("in", capacity=3)
    push.link(pull.id)
    push.wait_linked(timeout=30)
    {place} = at_the_worst_moment({place})
    taken, interrupts, sent = [], 0, 0
    while len(taken) < 60:
        try:
            while sent < 60 and sent - len(taken) < 3:
                push.send(b"%d" % sent, timeout=10)
                sent += 1
            while len(taken) < sent:
                taken.append(pull.recv(timeout=10))
        except KeyboardInterrupt:
            interrupts += 1
    left[0] = 0
print(interrupts + len(put_off), [int(message) for message in taken] == list(range(60)))
"""


@pytest.mark.parametrize(
    "place",
    [
        "core.Core._dispatch",
        "core.Core._hand_over",
        "lanes.Lanes.try_receive",
        "engine.Engine.begin",
        "engine.Engine.end",
        "engine.Engine.turn",
    ],
)
def test_an_interrupt_loses_nothing(place: str) -> None:
    script = textwrap.dedent(SCRIPT).format(place=place)
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    interrupts, whole = ran.stdout.split()
    assert int(interrupts) > 0, "no interrupt ever came"
    assert whole == "True", ran.stdout


def test_an_interrupt_ends_a_call_that_waits() -> None:
    script = """
    import os, signal, threading
    import a3m

    signal.signal(signal.SIGINT, signal.default_int_handler)
    with a3m.Node("a", bind="127.0.0.1:0") as node:
        pull = node.pull("in")

        def press():
            while not pull.stats().waiting:
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
