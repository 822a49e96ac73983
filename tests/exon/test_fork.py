"""An endpoint in the child of a fork(): it belongs to the parent, and says so."""

from __future__ import annotations

from pathlib import Path
from threading import Event, Thread

import pytest

from exon import Closed, Endpoint
from exon.store import ClockFile
from tests.children import in_child, refused

# A fork while threads run is what is tested; newer Pythons warn of it.
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


def test_a_child_cannot_use_its_parents_endpoint() -> None:
    with Endpoint("a", bind="127.0.0.1:0") as a, Endpoint("b", bind="127.0.0.1:0") as b:
        a.register("b", f"127.0.0.1:{b.address[1]}")
        a.send("b", b"before")
        assert in_child(lambda: refused(lambda: a.send("b", b"from the child"), Closed)) == 0
        assert in_child(lambda: refused(lambda: a.recv(timeout=5), Closed)) == 0
        assert in_child(lambda: not a.close(timeout=60).clean) == 0
        for number in range(5):
            a.send("b", b"%d" % number)
        assert [b.recv(timeout=10)[1] for _ in range(6)] == [b"before", b"0", b"1", b"2", b"3", b"4"]


def test_a_child_may_have_an_endpoint_of_its_own() -> None:
    with Endpoint("a", bind="127.0.0.1:0") as a:
        address = f"127.0.0.1:{a.address[1]}"

        def talk() -> bool:
            with Endpoint("child", bind="127.0.0.1:0") as child:
                child.register("a", address)
                child.send("a", b"hello")
                return child.close(timeout=20).clean

        assert in_child(talk) == 0
        assert a.recv(timeout=10) == ("child", b"hello")


def test_what_has_arrived_is_the_parents() -> None:
    with Endpoint("a", bind="127.0.0.1:0") as a, Endpoint("b", bind="127.0.0.1:0") as b:
        a.register("b", f"127.0.0.1:{b.address[1]}")
        for number in range(3):
            a.send("b", b"%d" % number)
        a.close(timeout=20)
        assert b.recv(timeout=10)  # and perhaps the rest of a batch is at hand
        assert in_child(lambda: refused(lambda: b.recv(timeout=5), Closed)) == 0
        assert in_child(lambda: list(b) == [] and not list(b.events(timeout=0))) == 0
        assert len([b.recv(timeout=10) for _ in range(2)]) == 2


def test_what_a_closed_endpoint_has_is_the_parents() -> None:
    with Endpoint("a", bind="127.0.0.1:0") as a, Endpoint("b", bind="127.0.0.1:0") as b:
        a.register("b", f"127.0.0.1:{b.address[1]}")
        a.send("b", b"hello")
        assert a.close(timeout=20).clean
        report = b.close(timeout=20)
        assert in_child(lambda: refused(lambda: b.recv(timeout=5), Closed)) == 0
        assert in_child(lambda: b.close() == report) == 0
        assert b.recv(timeout=10) == ("a", b"hello")


def test_a_child_does_not_keep_its_parents_clock_file(tmp_path: Path) -> None:
    path = tmp_path / "node.clock"
    endpoint = Endpoint("a", bind="127.0.0.1:0", clock=path)

    def parent_is_done() -> bool:
        endpoint_of_parent = endpoint
        assert refused(lambda: endpoint_of_parent.send("b", b"x"), Closed)
        return endpoint_of_parent._clock_file is not None and endpoint_of_parent._clock_file._lock_file < 0

    assert in_child(parent_is_done) == 0
    assert refused(lambda: ClockFile(path), OSError)  # the parent has it still
    endpoint.close(timeout=20)
    ClockFile(path).close()


def test_a_fork_while_another_thread_closes() -> None:
    """Whatever the thread was about: the child has nothing to wait for."""
    for _ in range(20):
        endpoint = Endpoint("a", bind="127.0.0.1:0")
        started = Event()

        def close(endpoint: Endpoint = endpoint, started: Event = started) -> None:
            started.set()
            endpoint.close(timeout=20)

        thread = Thread(target=close)
        thread.start()
        started.wait()
        assert in_child(lambda endpoint=endpoint: endpoint.close(timeout=20) is not None) == 0  # type: ignore[misc]
        thread.join()
