"""Proxies for threads: two sockets joined, so that what comes to one leaves by the other.

:mod:`a3m.joint` has what they do, and why so; here is the waiting.
"""

from __future__ import annotations

from threading import Event

from a3m.errors import NotSupported
from a3m.joint import Joint, ProxyReport
from a3m.socket import Socket

__all__ = ["ProxyReport", "proxy"]

_LOOK_AT_STOP = 0.1  # seconds; an Event cannot tell anybody that it was set


def proxy(front: Socket, back: Socket, *, capture: Socket | None = None, stop: Event | None = None) -> ProxyReport:
    """Forward messages between two sockets until one is closed or ``stop`` is set.

    Args:
        front: One of XSUB and XPUB, ROUTER and DEALER, or PULL and PUSH.
        back: The other one. Which is which makes no difference.
        capture: A PUSH, PAIR or PUB socket that gets a copy of every message, replies included, without its route. It
            never slows the proxy: copies it has no room for are not made, only counted. To PUSH and PAIR the topic of a
            publication is the first part of the copy; on PUB, messages without a topic have the topic ``""``.
        stop: Ends the proxy within a tenth of a second, at any message; none is lost by it.

    Returns:
        The proxy's work in numbers. When a socket was closed, everything that had come to it was forwarded before.

    Raises:
        NotSupported: The sockets do not go together, or ``capture`` is of a pattern that cannot be used for it.

    >>> import threading, a3m
    >>> with a3m.Node("relay", bind="127.0.0.1:0") as node:
    ...     source, pull, push, sink = node.push("source"), node.pull("in"), node.push("out"), node.pull("sink")
    ...     relay = threading.Thread(target=a3m.proxy, args=(pull, push))
    ...     relay.start()
    ...     source.link("relay/in")
    ...     push.link("relay/sink")
    ...     source.send(b"by way of the proxy", timeout=5)
    ...     print(sink.recv(timeout=5))
    ...     closed = pull.close()
    ...     relay.join()
    b'by way of the proxy'
    """
    joint = Joint(front, back, capture)
    if stop is not None and not isinstance(stop, Event):
        raise NotSupported(f"stop is a threading.Event, not {type(stop).__name__}")
    changed = Event()
    with joint.watched(changed.set):
        while stop is None or not stop.is_set():
            changed.clear()  # before looking: what happens from here on is not missed
            if joint.forward():
                continue
            if joint.over:
                break
            changed.wait(None if stop is None else _LOOK_AT_STOP)
    return joint.report()
