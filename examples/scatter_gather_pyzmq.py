"""The topology of ``scatter_gather.py`` with ZeroMQ (pyzmq), for contrast.

A PULL socket of ZeroMQ cannot tell that nobody is left who might send. So the source has to tell the sink, over a
socket of its own, how many messages to expect; the sink has to tell the workers, over another one, that they can stop;
and a worker needs a poller to listen to both. If a message is lost, the sink waits for ever.

    python examples/scatter_gather_pyzmq.py
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import zmq

MESSAGES = 1000
WORKERS = 3
SINK, COUNT, STOP = "inproc://sink", "inproc://count", "inproc://stop"
FIRST, SECOND = ([f"inproc://{row}-{number}" for number in range(WORKERS)] for row in ("first", "second"))


def work(context: zmq.Context[zmq.Socket[bytes]], address: str, next_stage: list[str], add: int) -> str:
    with context.socket(zmq.PULL) as pull, context.socket(zmq.PUSH) as push, context.socket(zmq.SUB) as stop:
        stop.connect(STOP)
        stop.subscribe(b"")
        pull.bind(address)
        for peer in next_stage:
            push.connect(peer)
        poller = zmq.Poller()
        poller.register(pull, zmq.POLLIN)
        poller.register(stop, zmq.POLLIN)
        count = 0
        while True:
            ready = dict(poller.poll())
            if pull in ready:
                push.send(b"%d" % (int(pull.recv()) + add))
                count += 1
            elif stop in ready:
                break
        return f"{address.removeprefix('inproc://')} passed on {count} messages"


def collect(context: zmq.Context[zmq.Socket[bytes]]) -> str:
    with context.socket(zmq.PULL) as pull, context.socket(zmq.PULL) as count, context.socket(zmq.PUB) as stop:
        stop.bind(STOP)
        pull.bind(SINK)
        count.bind(COUNT)
        messages = int(count.recv())  # without it, nobody could say when it is over
        total = sum(int(pull.recv()) for _ in range(messages))
        stop.send(b"")  # whoever has not subscribed yet would never hear it
        return f"sink received {messages} messages, sum {total}, expected {sum(range(1001, 1001 + MESSAGES))}"


def main() -> None:
    with zmq.Context() as context, ThreadPoolExecutor(2 * WORKERS + 1) as threads:
        running = [threads.submit(work, context, address, SECOND, 1) for address in FIRST]
        running += [threads.submit(work, context, address, [SINK], 1000) for address in SECOND]
        running.append(threads.submit(collect, context))
        with context.socket(zmq.PUSH) as source, context.socket(zmq.PUSH) as count:
            for address in FIRST:
                source.connect(address)
            count.connect(COUNT)
            count.send(b"%d" % MESSAGES)
            for number in range(MESSAGES):
                source.send(b"%d" % number)
            print(f"source sent {MESSAGES} messages")
            for stage in running:
                print(stage.result())


if __name__ == "__main__":
    main()
