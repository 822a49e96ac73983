"""What became of a message is unknown: a close says so, and the news outlives lesser ones."""

from __future__ import annotations

from exon import Endpoint
from exon.addresses import Address
from exon.events import PeerMoved, PeerRestarted
from exon.protocol import Node

A: Address = ("A", 1)
B: Address = ("B", 1)


def test_a_close_that_leaves_messages_unknown_is_not_clean() -> None:
    a, b = Node("a", epoch=1, secret=b"1" * 16), Node("b", epoch=2, secret=b"2" * 16)
    a.register("b", B)
    a.send("b", b"fate unknown", 0.0)
    now = 0.0
    while not b.deliverable:
        for _, datagram in list(a.datagrams(now)):
            b.receive(datagram, A, now)
        if not b.deliverable:  # the acknowledgement is lost with this life of b
            for _, datagram in list(b.datagrams(now)):
                a.receive(datagram, B, now)
    a.close()
    b = Node("b", epoch=3, secret=b"3" * 16)
    for _ in range(1000):
        now += 0.01
        a.expire(now)
        b.expire(now)
        for _, datagram in list(a.datagrams(now)):
            b.receive(datagram, A, now)
        for _, datagram in list(b.datagrams(now)):
            a.receive(datagram, B, now)
    assert a.closed
    report = a.report()
    assert (report.clean, report.undelivered, report.unknown) == (False, 0, 1)


def test_news_of_unknown_messages_is_not_pushed_out_by_lesser_news() -> None:
    news = PeerRestarted("b", (b"fate unknown",))
    with Endpoint("a", bind="127.0.0.1:0") as a:
        with a._lock:
            a._keep_event(news)
            for port in range(2000):
                a._keep_event(PeerMoved("c", ("C", port), ("C", port + 1)))
        kept = list(a.events(timeout=0))
    assert kept[0] == news
    assert len(kept) == 1024
    assert kept[-1] == PeerMoved("c", ("C", 1999), ("C", 2000))
