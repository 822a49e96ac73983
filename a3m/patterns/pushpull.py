"""PUSH and PULL: work handed out, each message to one receiver.

PUSH sends to its links in turn, skipping those without room; PULL receives from its links in turn. First in, first out
on each link. A PUSH without a link, or whose receivers are all full, waits.
"""

from __future__ import annotations

from a3m.socket import Socket


class PushSocket(Socket):
    """Sends, to one link after the other.

    >>> import a3m
    >>> with a3m.Node("home", bind="127.0.0.1:0") as node:
    ...     push, ana, rui = node.push("jobs"), node.pull("ana"), node.pull("rui")
    ...     for worker in (ana, rui):
    ...         push.link(worker.id)
    ...         linked = push.wait_linked(worker.id, timeout=5)
    ...     push.send_many([b"wash up", b"dry up"])
    ...     ana.recv(timeout=5), rui.recv(timeout=5)
    2
    (b'wash up', b'dry up')
    """

    protocol = "PUSH"
    compatible = frozenset({"PULL"})
    receives = False


class PullSocket(Socket):
    """Receives, from one link after the other.

    >>> import a3m
    >>> with a3m.Node("home", bind="127.0.0.1:0") as node:
    ...     push, pull = node.push("jobs"), node.pull("worker")
    ...     pull.link("home/jobs")  # either side may link
    ...     push.send(b"wash up", timeout=5)
    ...     push.close()
    ...     list(pull)  # ends with the last link
    True
    [b'wash up']
    """

    protocol = "PULL"
    compatible = frozenset({"PUSH"})
    sends = False
