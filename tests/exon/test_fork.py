"""An endpoint or node in the child of a fork(): it belongs to the parent, and says so."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

import a3m
from exon import Closed, Endpoint

# A fork while threads run is what is tested; newer Pythons warn of it.
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


def in_child(work: Callable[[], object]) -> int:
    """The exit status of a forked child that does some work: 0 if it returns something true."""
    child = os.fork()
    if not child:
        status = 1
        try:
            status = 0 if work() else 2
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def refused(call: Callable[[], object], error: type[Exception]) -> bool:
    try:
        call()
    except error:
        return True
    return False


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


def test_a_child_cannot_use_its_parents_node() -> None:
    with a3m.Node("a", bind="127.0.0.1:0") as a, a3m.Node("b", bind="127.0.0.1:0") as b:
        a.register("b", f"127.0.0.1:{b.address[1]}")
        push, pull = a.push("out"), b.pull("in")
        push.link("b/in")
        push.wait_linked(timeout=10)
        assert in_child(lambda: refused(lambda: push.send(b"from the child"), a3m.Closed)) == 0
        assert in_child(lambda: not a.close(timeout=60).clean) == 0
        push.send(b"from the parent")
        assert pull.recv(timeout=10) == b"from the parent"
