"""Publish and subscribe through a proxy: publishers and subscribers know the proxy only.

The proxy asks the publishers for what somebody behind it wants, and for nothing else.

    python examples/pubsub_proxy.py
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from threading import Event

import a3m

CITIES = ("lisbon", "porto", "braga")


def main() -> None:
    with ThreadPoolExecutor(4) as threads, ExitStack() as stack:
        relay = stack.enter_context(a3m.Node("relay", bind="127.0.0.1:0"))

        def node(name: str) -> a3m.Node:
            made = stack.enter_context(a3m.Node(name, bind="127.0.0.1:0"))
            made.register("relay", f"127.0.0.1:{relay.address[1]}")
            return made

        xsub, xpub = relay.xsub("in"), relay.xpub("out")
        proxy = threads.submit(a3m.proxy, xsub, xpub)

        publisher = node("station").pub("weather")
        publisher.link("relay/in")
        publisher.wait_linked(timeout=5)

        # A subscription counts from when it arrives. So that all see the same, each reader says when its own has.
        first = {"north": "weather.braga", "all": "weather.lisbon", "tv": "film.casablanca"}
        ready = {name: Event() for name in first}
        readers = []
        for name, topics in (("north", ("weather.porto", "weather.braga")), ("all", ("weather.",)), ("tv", ("film.",))):
            subscriber = node(name).sub("reader")
            subscriber.subscribe(*topics)
            subscriber.link("relay/out")
            readers.append(threads.submit(read, name, subscriber, ready[name], first[name]))
        while not all(event.wait(0.01) for event in ready.values()):
            for topic in first.values():
                publisher.send(topic, b"soon")

        for temperature in (18, 19, 20):
            for city in CITIES:
                publisher.send(f"weather.{city}", b"%d degrees" % temperature)
        print(f"station: {publisher.send('sport', b'no one cares')} subscribers for sport")
        publisher.close()  # everything has arrived at the proxy

        xsub.close()  # the proxy forwards what has come, then it ends
        report = proxy.result()
        xpub.close()  # and this is the end for the subscribers
        for reader in readers:
            print(reader.result())
        print(f"proxy: {report.forwarded} messages forwarded, {report.returned} changes of subscriptions")


def read(name: str, subscriber: a3m.SubSocket, ready: Event, first: str) -> str:
    messages = []
    for message in subscriber:
        if message.payload != b"soon":
            messages.append(message)
        elif message.topic == first:
            ready.set()
    topics = sorted({message.topic for message in messages})
    return f"{name}: {len(messages)} messages about {', '.join(topics) or 'nothing'}"


if __name__ == "__main__":
    main()
