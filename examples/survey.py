"""A pattern of one's own: SURVEYOR asks everybody it is linked with, and gathers what each RESPONDENT answers.

Written with public names of A3M only; ``docs/patterns.md`` explains it. What it guarantees: a question goes to
everybody linked at that moment, or to nobody as long as one has no room for it. The survey is over when everybody has
answered or gone; answers to an earlier question are thrown away.

    python examples/survey.py
"""

from __future__ import annotations

from threading import Thread
from time import monotonic
from typing import Any

import a3m


class SurveyorSocket(a3m.Socket):
    """Asks everybody. ``recv()`` gives ``(who, answer)``, and raises StateError when there are no more to come."""

    protocol = "SURVEYOR"
    compatible = frozenset({"RESPONDENT"})

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._number = 0
        self._waiting_for: set[a3m.Link] = set()
        self._departed: set[a3m.Link] = set()  # what they answered before may still be in the queue

    def try_send(self, item: Any) -> Any:
        """Ask all, or none; a new question ends the old survey."""
        if not self.can_send_now():
            return a3m.WOULD_BLOCK
        self._number += 1
        self._waiting_for = set(self.established)
        for link in self._waiting_for:
            self.push(link, numbered(b"%d" % self._number, item))
        return None

    def can_send_now(self) -> bool:
        """Whether try_send() would succeed; pollers ask this, too."""
        links = list(self.established)
        return bool(links) and all(link.can_send for link in links)

    def try_receive(self) -> Any:
        """The next answer to the question asked last."""
        while (taken := self.take()) is not a3m.WOULD_BLOCK:
            link, item = taken
            number, answer = without_number(item)
            if number == b"%d" % self._number and link in self._waiting_for:
                self._waiting_for.discard(link)
                if not self._waiting_for:
                    self.wait_queue.wake_all(a3m.POLLIN)  # other threads wait in vain
                return link.peer, answer
        self._waiting_for -= self._departed
        self._departed.clear()
        if not self._waiting_for:
            raise a3m.StateError("everybody has answered or gone; send() another question")
        return a3m.WOULD_BLOCK

    def can_receive_now(self) -> bool:
        """Whether there is an answer, or the news that the last ones will not come."""
        return super().can_receive_now() or bool(self._waiting_for and self._waiting_for <= self._departed)

    def on_unlink(self, link: a3m.Link, reason: str) -> None:  # noqa: ARG002  # why does not matter
        """Nobody waits for somebody who has gone."""
        self._departed.add(link)
        self.wait_queue.wake_all(a3m.POLLIN)

    def survey(self, question: bytes, *, timeout: float) -> dict[a3m.SocketId, Any]:
        """Ask, and gather what is answered in time."""
        deadline = monotonic() + timeout
        self.send(question, timeout=timeout)
        answers = {}
        try:
            while True:
                peer, answer = self.recv(timeout=max(0.0, deadline - monotonic()))
                answers[peer] = answer
        except (a3m.StateError, a3m.Timeout):
            return answers


class RespondentSocket(a3m.Socket):
    """Receives questions; ``send()`` answers the one received last."""

    protocol = "RESPONDENT"
    compatible = frozenset({"SURVEYOR"})

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._asked: tuple[a3m.Link, bytes] | None = None

    def try_receive(self) -> Any:
        taken = self.take()
        if taken is a3m.WOULD_BLOCK:
            return a3m.WOULD_BLOCK
        link, item = taken
        number, question = without_number(item)
        self._asked = link, number
        return question

    def try_send(self, item: Any) -> Any:
        if self._asked is None:
            raise a3m.StateError("nobody has asked; recv() a question first")
        link, number = self._asked
        if link.established and not link.can_send:
            return a3m.WOULD_BLOCK
        self._asked = None
        if not link.established:
            raise a3m.LinkClosed(link.peer, "whoever asked has gone")
        self.push(link, numbered(number, item))
        return None


def numbered(number: bytes, item: Any) -> list[bytes]:
    """A payload travels as bytes or as a list of parts; the number becomes the first part."""
    return [number, item] if isinstance(item, bytes) else [number, *item]


def without_number(item: Any) -> tuple[bytes, Any]:
    if isinstance(item, bytes) or item[0] is None:  # whoever sends that does not use this file
        return b"", b""
    number, *parts = item
    return number, parts[0] if len(parts) == 1 else tuple(parts)


def respond(socket: RespondentSocket, answer: bytes | None) -> None:
    for question in socket:
        if answer is not None:
            socket.send(b"%s? %s" % (question, answer))


def main() -> None:
    with a3m.Node("desk", bind="127.0.0.1:0") as desk, a3m.Node("town", bind="127.0.0.1:0") as town:
        for node in (desk, town):
            node.register_pattern(SurveyorSocket)
            node.register_pattern(RespondentSocket)
        desk.register("town", f"127.0.0.1:{town.address[1]}")
        with desk.socket("SURVEYOR", "survey") as surveyor:
            threads = []
            for name, answer in (("ana", b"yes"), ("rui", b"no"), ("eva", b"yes"), ("silent", None)):
                thread = Thread(target=respond, args=(town.socket("RESPONDENT", name), answer))
                thread.start()
                threads.append(thread)
                surveyor.link(f"town/{name}")
                surveyor.wait_linked(f"town/{name}", timeout=5)
            for seconds, question in ((0.3, b"more trees"), (5, b"more benches")):
                answers = surveyor.survey(question, timeout=seconds)
                for peer, answer in sorted(answers.items()):
                    print(f"{peer.tag}: {answer.decode()}")
                print(f"{len(answers)} of {len(surveyor.links)} answered")
                surveyor.unlink("town/silent")
                surveyor.wait_unlinked("town/silent", timeout=5)
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    main()
