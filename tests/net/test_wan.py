"""The emulated network path: first what it does to packets, with a clock of our own; then real ones, if we may."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from benchmarks.wan import Channel, Conditions, Host, Unavailable, Wan, why_unavailable

COUNT = 10_000
UDP_SEGMENT = 103


def packets(count: int, size: int = 100) -> list[bytes]:
    return [number.to_bytes(4, "big") + bytes(size - 4) for number in range(count)]


def numbers(received: Sequence[bytes]) -> list[int]:
    return [int.from_bytes(packet[:4], "big") for packet in received]


def pass_through(conditions: Conditions, seed: int = 1, every: float = 0.0) -> tuple[Channel, list[int]]:
    """Packets go in one after the other, and come out at the end."""
    channel = Channel(conditions, seed)
    for index, packet in enumerate(packets(COUNT)):
        channel.put(packet, index * every)
    return channel, numbers(channel.take(float("inf")))


# -- one direction, without a network --------------------------------------------------------------------------------


def test_a_perfect_path_delivers_at_once_and_in_order() -> None:
    channel = Channel(Conditions(), seed=1)
    for packet in packets(COUNT):
        channel.put(packet, now=5.0)
    assert numbers(channel.take(now=5.0)) == list(range(COUNT))
    assert channel.due == float("inf")


def test_delay() -> None:
    channel = Channel(Conditions(delay=0.25), seed=1)
    channel.put(b"packet", now=1.0)
    assert channel.due == 1.25
    assert channel.take(now=1.2) == []
    assert channel.take(now=1.25) == [b"packet"]


def test_the_bottleneck_serialises_one_packet_after_the_other() -> None:
    channel = Channel(Conditions(rate=8 * 1000, delay=0.5), seed=1)
    arrivals = []
    for packet in packets(3):
        channel.put(packet, now=0.0)
    channel.put(packets(1)[0], now=10.0)  # when it has long been idle
    while channel.due < float("inf"):
        arrivals.append(round(channel.due, 9))
        assert len(channel.take(channel.due)) == 1
    assert arrivals == [0.6, 0.7, 0.8, 10.6]


def test_a_late_look_does_not_slow_the_path_down() -> None:
    channel = Channel(Conditions(rate=8 * 1000), seed=1)
    for index, packet in enumerate(packets(100)):
        channel.put(packet, now=0.1 * index)
        if index % 10 == 9:
            channel.take(now=0.1 * index)
    assert round(channel.due, 9) == 10.0  # the last of 100 packets of 100 bytes, at 1000 bytes a second


@given(some.integers(100, 3000), some.lists(some.integers(20, 1500), min_size=1))
def test_the_queue_has_its_limit(limit: int, sizes: list[int]) -> None:
    channel = Channel(Conditions(rate=8 * 1000, queue=limit), seed=1)
    channel.put(bytes(20), now=0.0)  # this one is being sent, the queue comes behind it
    waiting, fitting = 20, 0
    for size in sizes:
        channel.put(bytes(size), now=0.0)
        if waiting + size <= limit:
            waiting += size
            fitting += 1
    assert channel.counts.overflowed == len(sizes) - fitting
    assert len(channel.take(float("inf"))) == 1 + fitting


def test_the_queue_empties_at_the_rate() -> None:
    channel = Channel(Conditions(rate=8 * 1000, queue=1000), seed=1)
    for packet in packets(20):
        channel.put(packet, now=0.0)
    assert channel.counts.overflowed == 10
    for packet in packets(20):
        channel.put(packet, now=0.5)  # 500 bytes have left
    assert channel.counts.overflowed == 10 + 15


def test_the_queue_holds_what_the_path_does_unless_told() -> None:
    assert Conditions(rate=100e6, delay=0.05).queue_limit == 1_250_000
    assert Conditions(rate=1e6, delay=0.003).queue_limit == 32 * 1024
    assert Conditions(rate=1e6, queue=5).queue_limit == 5
    assert Conditions().queue_limit is None


def test_loss() -> None:
    channel, received = pass_through(Conditions(loss=0.05))
    assert channel.counts.lost == COUNT - len(received)
    assert 0.04 * COUNT < channel.counts.lost < 0.06 * COUNT
    assert received == sorted(set(received))


def test_everything_is_lost_where_all_is() -> None:
    assert pass_through(Conditions(loss=1))[1] == []


def test_what_is_lost_has_used_the_bottleneck() -> None:
    lossy, clean = Channel(Conditions(rate=8000, loss=0.5), 1), Channel(Conditions(rate=8000), 1)
    for channel in (lossy, clean):
        for packet in packets(100):
            channel.put(packet, now=0.0)
        channel.change(Conditions(rate=8000))
        channel.put(b"last", now=0.0)
    last = []
    for channel in (lossy, clean):
        due = 0.0
        while channel.due < float("inf"):
            due = channel.due
            channel.take(due)
        last.append(due)
    assert lossy.counts.lost > 0
    assert last[0] == last[1]


def test_duplicates() -> None:
    channel, received = pass_through(Conditions(duplicate=0.1))
    assert len(received) == COUNT + channel.counts.duplicated
    assert 0.09 * COUNT < channel.counts.duplicated < 0.11 * COUNT
    assert set(received) == set(range(COUNT))
    assert received == sorted(received)


def test_reordering_loses_nothing() -> None:
    channel, received = pass_through(Conditions(reorder=0.1, reorder_by=0.01), every=0.001)
    assert sorted(received) == list(range(COUNT))
    overtaken = sum(later < earlier for earlier, later in pairwise(received))
    assert 0.08 * COUNT < overtaken <= channel.counts.held_up


def test_packets_out_of_order_are_late_never_early() -> None:
    channel = Channel(Conditions(delay=1, reorder=1, reorder_by=0.5), seed=1)
    for packet in packets(COUNT):
        channel.put(packet, now=0.0)
    assert channel.take(now=0.99999) == []
    assert COUNT / 3 < len(channel.take(now=1.25)) < COUNT * 2 / 3
    channel.take(now=1.5)
    assert channel.due == float("inf")


def test_a_seed_repeats_everything_and_another_one_does_not() -> None:
    bad = Conditions(loss=0.1, duplicate=0.1, reorder=0.1)
    first, again, other = (pass_through(bad, seed, every=0.001)[1] for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_the_fate_of_a_packet_does_not_depend_on_other_kinds_of_trouble() -> None:
    lost_alone = set(range(COUNT)) - set(pass_through(Conditions(loss=0.1))[1])
    lost_with_others = set(range(COUNT)) - set(pass_through(Conditions(loss=0.1, duplicate=0.5, reorder=0.5))[1])
    assert lost_alone == lost_with_others


def test_every_packet_is_accounted_for() -> None:
    channel = Channel(Conditions(rate=1e6, delay=0.01, queue=20_000, loss=0.1, duplicate=0.1, reorder=0.1), seed=3)
    for index, packet in enumerate(packets(COUNT)):
        channel.put(packet, now=index * 0.0007)  # more than the rate
        channel.take(now=index * 0.0007)
    counts = channel.as_dict()
    assert counts["held"] > 0
    assert min(counts["overflowed"], counts["lost"], counts["duplicated"]) > 0
    gone = counts["overflowed"] + counts["lost"] + counts["released"] + counts["held"]
    assert counts["arrived"] + counts["duplicated"] == gone


@pytest.mark.parametrize(
    "wrong",
    [{"loss": 5}, {"duplicate": -1}, {"reorder": 1.1}, {"rate": 0}, {"delay": -1}, {"delay": 1000}, {"queue": -1}],
)
def test_wrong_conditions(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Conditions(**wrong)  # type: ignore[arg-type]


# -- two hosts, a real process between them --------------------------------------------------------------------------


@pytest.fixture
def wan() -> Iterator[Wan]:
    if (missing := why_unavailable()) is not None:
        pytest.skip(missing)
    with Wan(Conditions()) as path:
        yield path


def connect(wan: Wan) -> tuple[socket.socket, socket.socket]:
    near, far = wan.near.socket(), wan.far.socket()
    near.connect(far.getsockname())
    far.connect(near.getsockname())
    near.settimeout(20)
    far.settimeout(20)
    return near, far


@pytest.mark.root
def test_packets_go_there_and_back(wan: Wan) -> None:
    near, far = connect(wan)
    with near, far:
        near.send(b"there" + bytes(1467))  # the largest that fits
        assert far.recv(2000) == b"there" + bytes(1467)
        far.send(b"back")
        assert near.recv(100) == b"back"
    counts = wan.statistics()
    assert (counts["there"]["released"], counts["back"]["released"], counts["dropped_by_device"]) == (1, 1, 0)


@pytest.mark.root
def test_a_train_of_segments_is_as_many_packets(wan: Wan) -> None:
    near, far = connect(wan)
    with near, far:
        near.sendmsg([bytes(10 * 1000)], [(socket.IPPROTO_UDP, UDP_SEGMENT, struct.pack("H", 1000))])
        for _ in range(10):
            assert len(far.recv(20_000)) == 1000
    assert wan.statistics()["there"]["arrived"] == 10


@pytest.mark.root
def test_a_path_can_be_cut_and_mended(wan: Wan) -> None:
    near, far = connect(wan)
    with near, far:
        wan.change(Conditions(loss=1))
        near.send(b"lost")
        assert wan.change(Conditions())["there"]["lost"] == 1
        near.send(b"found")
        assert far.recv(100) == b"found"
        wan.change(Conditions(), back=Conditions(loss=1))
        near.send(b"there")
        assert far.recv(100) == b"there"
        far.send(b"not back")
        assert wan.change(Conditions())["back"]["lost"] == 1


@pytest.mark.root
def test_commands_run_on_their_hosts(wan: Wan) -> None:
    for host in (wan.near, wan.far):
        shown = subprocess.run([*host.prefix, "ip", "address"], capture_output=True, text=True, timeout=30, check=True)
        assert f" {host.address}/24 " in shown.stdout


def _router(host: Host) -> int:
    return int(host.namespace.split("/")[2])


@pytest.mark.root
def test_nothing_is_left_afterwards() -> None:
    if (missing := why_unavailable()) is not None:
        pytest.skip(missing)
    with Wan(Conditions()) as path:
        router = _router(path.near)
        assert Path(path.far.namespace).exists()
    assert not Path(f"/proc/{router}").exists()
    with pytest.raises(Unavailable, match="with Wan"):
        path.statistics()


@pytest.mark.root
def test_a_router_that_was_killed_is_told_and_leaves_nothing(wan: Wan) -> None:
    with wan.near.socket() as near:
        os.kill(_router(wan.near), signal.SIGKILL)
        with pytest.raises(Unavailable, match="router"):
            wan.statistics()
        with pytest.raises(OSError, match="unreachable"):  # the device is gone, although the namespace is in use
            near.connect((wan.far.address, 9))


@pytest.mark.root
def test_the_router_ends_when_its_owner_crashes() -> None:
    if (missing := why_unavailable()) is not None:
        pytest.skip(missing)
    owner = """if True:
        import os
        from benchmarks.wan import Conditions, Wan
        wan = Wan(Conditions()).__enter__()
        print(wan.near.namespace, flush=True)
        os.kill(os.getpid(), 9)
    """
    # The router has its owner's standard error: that ends when both have ended.
    crashed = subprocess.run([sys.executable, "-c", owner], capture_output=True, text=True, timeout=60, check=False)
    assert (crashed.returncode, crashed.stderr) == (-signal.SIGKILL, "")
    assert not Path(crashed.stdout.strip()).exists()


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(Unavailable, match="needs root"):
        Wan(Conditions()).__enter__()
