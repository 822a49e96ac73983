"""Sixteen threads use the same sockets at the same time, over a network that loses, doubles and reorders.

They send, receive, poll, link, unlink and close. Nothing may hang, nothing may raise what is not documented, and in the
end every message that was accepted was received exactly once.

``python -m tests.a3m.test_hammer --seconds 3600`` does it for an hour.
"""

from __future__ import annotations

import argparse
import faulthandler
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from random import Random
from threading import Lock, Thread
from time import monotonic
from typing import Any

import a3m
from exon.simulation.lossy import lossy
from tests.a3m.nodes import at

WORKERS = 16
PULLS = 3
DRAIN = 60.0  # seconds until what was accepted must have arrived
IMPATIENCE = 0.01  # seconds that a call waits: short, so that calls time out while they are woken


class Ledger:
    """What was accepted and what was received, by identity."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._numbers = count()
        self.accepted: set[bytes] = set()
        self.received: Counter[bytes] = Counter()
        self.errors: list[BaseException] = []
        self.calls: Counter[str] = Counter()

    def fresh(self) -> bytes:
        with self._lock:
            return b"%d" % next(self._numbers)

    def accept(self, messages: list[bytes]) -> None:
        with self._lock:
            self.accepted.update(messages)

    def receive(self, messages: list[bytes]) -> None:
        with self._lock:
            self.received.update(messages)

    def fail(self, error: BaseException) -> None:
        with self._lock:
            self.errors.append(error)

    def called(self, what: str) -> None:
        with self._lock:
            self.calls[what] += 1


class Hammer:
    """Two nodes, sockets that all workers share, and the workers."""

    def __init__(self, seed: int, seconds: float) -> None:
        self.ledger = Ledger()
        self._random = Random(seed)
        self._until = monotonic() + seconds
        bad = {"duplicate": 0.05, "reorder": 0.05}
        self.left = a3m.Node("left", bind="127.0.0.1:0", socket=lossy(0.05, seed=seed, **bad))
        self.right = a3m.Node("right", bind="127.0.0.1:0", socket=lossy(0.05, seed=seed + 1, **bad))
        self.left.register("right", at(self.right))
        self.right.register("left", at(self.left))
        self.push = self.left.push("push", retry=(0.001, 0.05))
        self.pulls = [self.right.pull(f"pull {number}", capacity=32, retry=(0.001, 0.05)) for number in range(PULLS)]
        self.req = self.left.req("req", retry=(0.001, 0.05))
        self.rep = self.right.rep("rep", retry=(0.001, 0.05))
        self.pub = self.left.pub("pub", retry=(0.001, 0.05))
        self.sub = self.right.sub("sub", capacity=16, retry=(0.001, 0.05))
        self.sub.subscribe("t")
        self.req.link(self.rep.id)
        self.sub.link(self.pub.id)
        for pull in self.pulls:
            self.push.link(pull.id)

    def run(self) -> None:
        """Everything, until the time is over; raises if something was lost, doubled or raised."""
        jobs = [self.send, self.send, self.send, self.send_many, self.receive, self.receive, self.receive]
        jobs += [self.receive_many, self.poll, self.poll_one, self.relink, self.relink, self.ask, self.answer]
        jobs += [self.publish, self.come_and_go]
        assert len(jobs) == WORKERS
        workers = [
            Thread(target=self._work, args=[job, Random(self._random.random())], daemon=True, name=job.__name__)
            for job in jobs
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(max(0.0, self._until - monotonic()) + DRAIN)
            assert not worker.is_alive(), f"{worker.name} hangs"
        if self.ledger.errors:
            raise self.ledger.errors[0]
        self._finish()

    def _work(self, job: Callable[[Random], None], random: Random) -> None:
        try:
            while monotonic() < self._until and not self.ledger.errors:
                try:
                    job(random)
                except a3m.Timeout:
                    self.ledger.called(f"{job.__name__} timed out")
                else:
                    self.ledger.called(job.__name__)
        except BaseException as error:
            self.ledger.fail(error)

    def _finish(self) -> None:
        """Close the sender, take what is left, and settle the account."""
        for pull in self.pulls:
            self.push.link(pull.id)
            # Or a PULL may ask for the link after the PUSH is gone, and ask again for ever, as it should.
            self._wait_linked(pull)
        takers = [Thread(target=self._take_rest, args=[pull], daemon=True) for pull in self.pulls]
        for taker in takers:
            taker.start()
        assert self.push.close(timeout=DRAIN)
        for taker, pull in zip(takers, self.pulls, strict=True):
            taker.join(DRAIN)
            assert not taker.is_alive(), f"what was accepted never arrives at {pull}: {pull.links}, {pull.pending}"
        ledger = self.ledger
        assert not ledger.errors, ledger.errors
        doubled = {message: number for message, number in ledger.received.items() if number != 1}
        assert not doubled, f"received more than once: {doubled}"
        lost = ledger.accepted - set(ledger.received)
        assert not lost, f"{len(lost)} of {len(ledger.accepted)} were lost: {sorted(lost, key=int)[:20]}"
        invented = set(ledger.received) - ledger.accepted
        assert not invented, f"never accepted, and yet received: {invented}"

    def _wait_linked(self, pull: a3m.PullSocket) -> None:
        """A PULL with many messages of links that are gone takes no new link before somebody takes some of them."""
        deadline = monotonic() + DRAIN
        while True:
            try:
                self.push.wait_linked(pull.id, timeout=IMPATIENCE)
            except a3m.Timeout:
                assert monotonic() < deadline, f"no link: {self.push.pending}, {pull.pending}, {pull.stats()}"
                with suppress(a3m.Timeout):
                    self.ledger.receive(pull.recv_many(1000, timeout=0))
            else:
                return

    def _take_rest(self, pull: a3m.PullSocket) -> None:
        try:
            for message in pull:
                self.ledger.receive([message])
        except BaseException as error:
            self.ledger.fail(error)

    def close(self) -> None:
        """Both nodes, at once."""
        self.left.close(timeout=0)
        self.right.close(timeout=0)

    # ---- what workers do -------------------------------------------------------------------------------------------

    def send(self, random: Random) -> None:
        message = self.ledger.fresh()
        self.push.send(message, timeout=random.choice([0, IMPATIENCE, IMPATIENCE, 5]))
        self.ledger.accept([message])

    def send_many(self, random: Random) -> None:
        messages = [self.ledger.fresh() for _ in range(random.randrange(1, 50))]
        sent = self.push.send_many(messages, timeout=random.choice([0, IMPATIENCE, 5]))
        self.ledger.accept(messages[:sent])

    def receive(self, random: Random) -> None:
        self.ledger.receive([random.choice(self.pulls).recv(timeout=random.choice([0, IMPATIENCE, IMPATIENCE]))])

    def receive_many(self, random: Random) -> None:
        self.ledger.receive(random.choice(self.pulls).recv_many(random.randrange(1, 40), timeout=IMPATIENCE))

    def poll(self, random: Random) -> None:
        with a3m.Poller() as poller:
            mode = random.choice([0, a3m.POLLET, a3m.POLLONESHOT, a3m.POLLET | a3m.POLLEXCLUSIVE])
            for pull in self.pulls:
                poller.add(pull, a3m.POLLIN | mode)
            for _ in range(random.randrange(20)):
                for pull, events in poller.wait(timeout=IMPATIENCE, max_events=random.choice([None, 1])):
                    if events & a3m.POLLIN:
                        self._drain(pull)

    def poll_one(self, random: Random) -> None:
        interests: list[tuple[Any, int]] = [(pull, a3m.POLLIN) for pull in self.pulls]
        for found, events in a3m.poll([*interests, (self.push, a3m.POLLOUT)], timeout=IMPATIENCE):
            if events & a3m.POLLOUT:
                self.send(random)
            elif events & a3m.POLLIN:
                self._drain(found)

    def _drain(self, pull: a3m.PullSocket) -> None:
        while True:
            try:
                self.ledger.receive([pull.recv(timeout=0)])
            except a3m.Timeout:
                return

    def relink(self, random: Random) -> None:
        pull = random.choice(self.pulls)
        one, two = random.sample([self.push, pull], 2)
        one.unlink(two.id)
        if random.random() < 0.5:
            two.wait_unlinked(one.id, timeout=IMPATIENCE)
        one, two = random.sample([self.push, pull], 2)
        one.link(two.id)
        try:
            one.wait_linked(two.id, timeout=IMPATIENCE)
        except (a3m.LinkClosed, a3m.LinkRefused):
            one.link(two.id)  # somebody else unlinked it

    def ask(self, random: Random) -> None:
        question = b"%d" % random.randrange(10**9)
        self.req.send(question, timeout=IMPATIENCE)
        try:
            assert self.req.recv(timeout=random.choice([IMPATIENCE, 1])) == question
        except (a3m.Timeout, a3m.LinkClosed):
            self.req.cancel()
        if random.random() < 0.05:
            self.req.unlink(self.rep.id)
        self.req.link(self.rep.id)

    def answer(self, random: Random) -> None:
        question = self.rep.recv(timeout=IMPATIENCE)
        try:
            self.rep.send(question, timeout=1)
        except a3m.LinkClosed:
            self.ledger.called("whoever asked is gone")

    def publish(self, random: Random) -> None:
        number = b"%d" % random.randrange(10**9)
        if self.pub.send("topic", number, timeout=IMPATIENCE):
            self.sub.recv(timeout=1)
        if random.random() < 0.1:
            self.sub.unsubscribe()
            self.sub.subscribe("t" * random.randrange(1, 3))

    def come_and_go(self, random: Random) -> None:
        """A socket of its own that sends something, and is closed while that is on the way; or closed under a call."""
        pull = random.choice(self.pulls)
        with self.left.push(f"guest {random.randrange(3)}", retry=(0.001, 0.05)) as guest:
            guest.link(pull.id)
            messages = [self.ledger.fresh() for _ in range(random.randrange(20))]
            closer = Thread(target=guest.close, kwargs={"timeout": DRAIN}, daemon=True)
            try:
                for number, message in enumerate(messages):
                    if number == 10:
                        closer.start()
                    guest.send(message, timeout=1)
                    self.ledger.accept([message])
            except (a3m.Closed, a3m.Timeout) as error:  # and not further: it would close at once, and give up
                self.ledger.called(f"guest {type(error).__name__}")
            if closer.ident is not None:
                closer.join(DRAIN)


def hammer(seed: int, seconds: float) -> Counter[str]:
    """Run it; how often what was called."""
    faulthandler.dump_traceback_later(seconds + 3 * DRAIN, exit=False)
    try:
        tool = Hammer(seed, seconds)
        try:
            tool.run()
        finally:
            tool.close()
    finally:
        faulthandler.cancel_dump_traceback_later()
    tool.ledger.calls["messages"] = len(tool.ledger.accepted)
    return tool.ledger.calls


def test_sixteen_threads() -> None:
    calls = hammer(seed=1, seconds=8)
    for job in ("send", "send_many", "receive", "receive_many", "poll", "poll_one", "relink", "ask", "answer"):
        assert calls[job] > 0, f"{job} never came to pass"
    assert calls["publish"] > 0
    assert calls["come_and_go"] > 0
    assert calls["messages"] > 100


def main() -> None:
    parser = argparse.ArgumentParser(description="Use sockets from sixteen threads over a bad network.")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=None)
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else Random().randrange(2**32)
    until = monotonic() + arguments.seconds
    while (left := until - monotonic()) > 0:
        sys.stdout.write(f"seed {seed}: ")
        sys.stdout.flush()
        calls = hammer(seed, min(60.0, left))
        sys.stdout.write(f"{dict(sorted(calls.items()))}\n")
        seed += 1


if __name__ == "__main__":
    main()
