"""Obliviousness, measured: an endpoint that has met ten thousand peers is as small as one that has met a few."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from tests.net.swarm import Hub, Swarm

WARM_UP, PEERS = 500, 10_000
GROWTH = 5 << 20  # bytes of memory that may be anything: 10,000 peers would need at least ten times as much


def visits() -> Iterator[range]:
    """One message from the first, two from the second, three from the third, one from the fourth, and so on."""
    first = 0
    for number in range(WARM_UP + PEERS):
        count = 1 + number % 3
        yield range(first, first + count)
        first += count


def test_ten_thousand_peers_leave_nothing_behind() -> None:
    messages = sum(map(len, visits()))
    coming = visits()
    with Hub(messages) as hub, Swarm(hub.address) as swarm:
        swarm.run(islice(coming, WARM_UP))
        before = hub.forgotten()
        assert before.oblivious, before
        swarm.run(coming)
        after = hub.forgotten()
    assert after.oblivious, after
    assert swarm.guests == WARM_UP + PEERS
    assert (after.delivered, after.missing, after.twice, after.unknown) == (messages, 0, 0, 0)
    assert swarm.answers == dict.fromkeys((b"%d" % number for number in range(messages)), 1)
    assert after.resident - before.resident < GROWTH
