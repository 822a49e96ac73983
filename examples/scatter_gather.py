"""Scatter and gather: a source, two rows of workers, a sink, and nobody counts messages to know when it is over.

Every stage is a ``for`` loop over its socket. The loop ends when the last link of the socket has gone, and a link goes
only after everything sent over it has arrived. So when the source closes its socket, the end runs through the rows to
the sink by itself. ``scatter_gather_pyzmq.py`` does the same with ZeroMQ, for contrast.

    python examples/scatter_gather.py
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import a3m

MESSAGES = 1000
WORKERS = 3


def work(name: str, pull: a3m.PullSocket, push: a3m.PushSocket, add: int) -> str:
    count = 0
    for message in pull:
        push.send(b"%d" % (int(message) + add))
        count += 1
    push.close()  # everything is delivered; to those who come next this is the end
    return f"{name} passed on {count} messages"


def collect(sink: a3m.PullSocket) -> str:
    results = [int(message) for message in sink]
    expected = sum(range(1001, 1001 + MESSAGES))
    return f"sink received {len(results)} messages, sum {sum(results)}, expected {expected}"


def link_all(push: a3m.PushSocket, peers: list[str]) -> None:
    for peer in peers:
        push.link(peer)
    for peer in peers:
        push.wait_linked(peer, timeout=10)


def main() -> None:
    with ThreadPoolExecutor(2 * WORKERS + 1) as threads, ExitStack() as stack:
        addresses: dict[str, str] = {}

        def node(name: str) -> a3m.Node:
            made = stack.enter_context(a3m.Node(name, bind="127.0.0.1:0", discovery=a3m.StaticDiscovery(addresses)))
            addresses[name] = f"127.0.0.1:{made.address[1]}"
            return made

        # Everything is linked before the first message, from the end to the beginning: who has no link *yet* must not
        # be taken for somebody who has none any more.
        sink = node("sink").pull("in")
        running = [threads.submit(collect, sink)]
        next_stage = [str(sink.id)]
        for row, add in (("second", 1000), ("first", 1)):
            stage = []
            for number in range(WORKERS):
                worker = node(f"{row}-{number}")
                pull, push = worker.pull("in"), worker.push("out")
                link_all(push, next_stage)
                running.append(threads.submit(work, worker.id, pull, push, add))
                stage.append(str(pull.id))
            next_stage = stage
        source = node("source").push("out")
        link_all(source, next_stage)

        for number in range(MESSAGES):
            source.send(b"%d" % number)
        source.close()
        print(f"source sent {MESSAGES} messages and closed")
        for job in reversed(running):
            print(job.result())


if __name__ == "__main__":
    main()
