"""A client that changes networks in the middle of a transfer: the server goes on counting, nothing is lost or doubled.

On one machine a change of network is a change of address: ``node.rebind()`` does to the client what leaving the Wi-Fi
does. Links have names at their ends, not addresses, so they stay.

    python examples/mobile_client.py
"""

from __future__ import annotations

from threading import Thread

import a3m

MESSAGES = 20_000
MOVES = 4


def receive(pull: a3m.PullSocket, received: list[int]) -> None:
    received.extend(int(message) for message in pull)


def main() -> None:
    with a3m.Node("server", bind="127.0.0.1:0") as server, a3m.Node("phone", bind="127.0.0.1:0") as phone:
        phone.register("server", f"127.0.0.1:{server.address[1]}")
        received: list[int] = []
        thread = Thread(target=receive, args=(server.pull("upload"), received))
        thread.start()
        with phone.push("camera") as push:
            push.link("server/upload")
            for number in range(MESSAGES):
                push.send(b"%d" % number)
                if number % (MESSAGES // MOVES) == MESSAGES // MOVES // 2:
                    before = phone.address[1]
                    phone.rebind("127.0.0.1:0")
                    print(f"phone: port {before} is gone, now at {phone.address[1]}; {number + 1} messages sent so far")
        thread.join()
        for event in server.events(timeout=0):
            print(f"server: {event.peer} {event.kind} {event.detail}")
        exact = received == list(range(MESSAGES))
        print(f"server: {len(received)} of {MESSAGES} messages, {'each once and in order' if exact else 'NOT EXACT'}")


if __name__ == "__main__":
    main()
