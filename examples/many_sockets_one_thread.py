"""Many sockets, one thread: a poller says which of 300 sockets have something.

Sockets are cheap, they share their node's port and thread. So a server can have one for each of its customers, and one
thread that serves them all.

    python examples/many_sockets_one_thread.py
"""

from __future__ import annotations

from collections import Counter
from threading import Thread

import a3m

CUSTOMERS = 300
EACH = 5


def produce(node: a3m.Node) -> None:
    for number in range(CUSTOMERS):
        with node.push(f"customer-{number}") as push:
            push.link(f"server/customer-{number}")
            push.send_many([b"order"] * EACH)


def main() -> None:
    with (
        a3m.Node("server", bind="127.0.0.1:0") as server,
        a3m.Node("customers", bind="127.0.0.1:0") as customers,
        a3m.Poller() as poller,
    ):
        customers.register("server", f"127.0.0.1:{server.address[1]}")
        for number in range(CUSTOMERS):
            poller.add(server.pull(f"customer-{number}"), a3m.POLLIN)
        producer = Thread(target=produce, args=(customers,))
        producer.start()

        orders: Counter[str] = Counter()
        rounds = 0
        while sum(orders.values()) < CUSTOMERS * EACH:
            rounds += 1
            for socket, _ in poller.wait(timeout=10):
                orders[socket.id.tag] += len(socket.recv_many(100, timeout=0))
        producer.join()
        print(f"{sum(orders.values())} orders of {len(orders)} customers in one thread")
        print(f"every customer has {EACH}: {set(orders.values()) == {EACH}}")
        print("and several at a time" if rounds < CUSTOMERS * EACH else "one by one")


if __name__ == "__main__":
    main()
