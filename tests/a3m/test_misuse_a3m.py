"""Every error of the package, provoked as a user would, and its message read as one: it says what to do."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from tempfile import TemporaryDirectory

import pytest

import a3m
import a3m.asyncio
from a3m import errors
from tests.a3m.nodes import PATIENCE, Nodes, at, crash, linked, restarted, take

Provoke = Callable[[Nodes], object]


def timeout(nodes: Nodes) -> None:
    nodes("a").push("out").send(b"x", timeout=0)


def closed(nodes: Nodes) -> None:
    with nodes("a").push("out") as push:
        pass
    push.send(b"x")


def no_links(nodes: Nodes) -> None:
    nodes("a").push("out").send(b"x", require_link=True)


def link_refused(nodes: Nodes) -> None:
    a = nodes("a")
    push = a.push("out")
    a.push("other")
    push.link("a/other")
    push.wait_linked("a/other", timeout=PATIENCE)


def link_closed(nodes: Nodes) -> None:
    a, b = nodes.pair()
    req, rep = a.req("ask"), b.rep("answer")
    linked(req, rep)
    req.send(b"x")
    take(rep, 1)
    rep.close(timeout=PATIENCE)
    req.recv(timeout=PATIENCE)


def delivery_unknown(nodes: Nodes) -> None:
    a, b = nodes.pair()
    req, rep = a.req("ask"), b.rep("answer")
    linked(req, rep)
    crash(b)
    req.send(b"x")
    restarted(nodes, b)
    req.recv(timeout=PATIENCE)


def no_route(nodes: Nodes) -> None:
    nodes("a").router("route").send(b"x", to="b/nobody")


def not_supported(nodes: Nodes) -> None:
    nodes("a").pull("in").send(b"x")


def poll_error(nodes: Nodes) -> None:
    pull = nodes("a").pull("in")
    with a3m.Poller() as poller:
        poller.add(pull, a3m.POLLIN)
        poller.add(pull, a3m.POLLIN)


def message_too_large(nodes: Nodes) -> None:
    nodes("a", options=a3m.Options(max_message=5_000)).push("out").send(bytes(5_000))


def bad_identifier(nodes: Nodes) -> None:
    nodes("a").push("out").link("server")


def bad_payload(nodes: Nodes) -> None:
    nodes("a").push("out").send("text")  # type: ignore[arg-type]


def state_error(nodes: Nodes) -> None:
    nodes("a").req("ask").recv()


def journal_full(_nodes: Nodes) -> None:
    with (
        TemporaryDirectory() as folder,
        a3m.Journal(folder, durability="none", segment_bytes=4096, max_bytes=16_384) as journal,
    ):
        for _ in range(20):
            journal.append(bytes(1000))


PROVOKED: list[tuple[type[a3m.A3MError], Provoke, str]] = [
    (a3m.Timeout, timeout, "a/out could not send in 0 s, and the message was not sent: it has no link: call link()"),
    (a3m.Closed, closed, "socket a/out is closed"),
    (a3m.NoLinks, no_links, "a/out has no link, and none is being made; call link(), or let a peer link to it"),
    (a3m.LinkRefused, link_refused, "a/other refused the link: the patterns do not fit together; link for example"),
    (a3m.LinkClosed, link_closed, "the link with b/answer is closed: "),
    (a3m.DeliveryUnknown, delivery_unknown, "the link with b/answer is closed: its node restarted; "),
    (a3m.NoRoute, no_route, "a/route has no link with b/nobody; the message was not sent"),
    (a3m.NotSupported, not_supported, "a PULL socket does not send; link it with a socket that does"),
    (a3m.PollError, poll_error, "<a3m PULL a/in> is already registered; modify() changes its events"),
    (
        a3m.MessageTooLarge,
        message_too_large,
        "the message has 5000 bytes, at most 3976 are allowed; send it in several",
    ),
    (a3m.BadIdentifier, bad_identifier, "'server' names no socket; write it as 'node/tag'"),
    (a3m.BadPayload, bad_payload, "a payload is bytes or a sequence of bytes, not str; encode text with .encode()"),
    (a3m.JournalFull, journal_full, "the log in "),
    (a3m.StateError, state_error, "a/ask has asked nothing; send() a request first"),
]


@pytest.mark.parametrize(("error", "provoke", "text"), PROVOKED, ids=lambda value: getattr(value, "__name__", ""))
def test_each_error_says_what_to_do(nodes: Nodes, error: type[a3m.A3MError], provoke: Provoke, text: str) -> None:
    with pytest.raises(a3m.A3MError) as caught:
        provoke(nodes)
    assert type(caught.value) is error
    assert str(caught.value).startswith(text)


def test_no_error_is_forgotten() -> None:
    classes = {value for _, value in inspect.getmembers(errors, inspect.isclass) if issubclass(value, a3m.A3MError)}
    assert classes - {a3m.A3MError} == {error for error, _, _ in PROVOKED}
    assert all(getattr(a3m, error.__name__) is error for error in classes)


def test_errors_are_also_what_python_calls_them() -> None:
    assert issubclass(a3m.Timeout, TimeoutError)
    assert issubclass(a3m.NotSupported, TypeError)
    assert issubclass(a3m.BadPayload, TypeError)
    for error in (a3m.PollError, a3m.MessageTooLarge, a3m.BadIdentifier):
        assert issubclass(error, ValueError)


def test_whoever_expects_a_closed_link_is_told_of_a_restart() -> None:
    assert issubclass(a3m.DeliveryUnknown, a3m.LinkClosed)


@pytest.mark.parametrize("method", ["recv", "recv_parts", "recv_many", "__iter__"])
def test_a_socket_that_does_not_receive(nodes: Nodes, method: str) -> None:
    push = nodes("a").push("out")
    call = getattr(push, method)
    with pytest.raises(a3m.NotSupported, match="a PUSH socket does not receive; link it with a socket that does"):
        next(call()) if method == "__iter__" else call(*([1] if method == "recv_many" else []))


def test_why_a_call_ran_out_of_time(nodes: Nodes) -> None:
    a, b = nodes.pair()
    push, pull = a.push("out"), b.pull("in", capacity=1)
    with pytest.raises(a3m.Timeout, match=r"nothing for b/in in 0 s: it has no link: call link\(\)"):
        pull.recv(timeout=0)
    with pytest.raises(a3m.Timeout, match=r"a/out waited 0 s: it has no link"):
        push.wait_linked(timeout=0)
    linked(push, pull)
    push.send(b"x")
    with pytest.raises(a3m.Timeout, match="the message was not sent: its receivers have no room"):
        push.send(b"y", timeout=0)
    take(pull, 1)
    with pytest.raises(a3m.Timeout, match="nothing for b/in in 0 s: nothing came over its links"):
        pull.recv(timeout=0)


def ended(socket: a3m.PairSocket) -> a3m.PairSocket:
    """After its peer has gone, with nobody else who wants its place."""
    socket.options.accept_links = False
    while socket.links or socket.pending:
        socket.unlink((socket.links or socket.pending)[0][0])
        socket.wait_unlinked(timeout=PATIENCE)
    return socket


def test_what_is_no_pattern(nodes: Nodes) -> None:
    class Nameless(a3m.Socket):
        pass

    class Lonely(a3m.Socket):
        protocol = "LONELY"

    node = nodes("a")
    with pytest.raises(TypeError, match="Nameless has no protocol and no compatible; every pattern sets both"):
        node.socket(Nameless, "x")
    with pytest.raises(TypeError, match="Lonely has no compatible"):
        node.register_pattern(Lonely)
    for nonsense in (object, 7, "PUSH"):
        with pytest.raises(TypeError, match=r"a pattern is a class derived from a3m\.Socket"):
            node.register_pattern(nonsense)  # type: ignore[arg-type]


def test_topics_that_are_none(nodes: Nodes) -> None:
    node = nodes("a")
    with pytest.raises(a3m.BadIdentifier, match=r"topics are a tuple of texts; write \('word',\) for a single one"):
        node.xsub("xsub").send(a3m.Subscription("word", True))  # type: ignore[arg-type]
    with pytest.raises(a3m.BadIdentifier, match=r"name at least one topic; subscribe\(''\) wants them all"):
        node.sub("sub").subscribe()


def test_nodes_for_tasks_are_opened() -> None:
    with pytest.raises(TypeError, match=r"is opened, not made: async with open_node\('name', bind=...\) as node"):
        a3m.asyncio.Node("name")  # type: ignore[arg-type]


def test_why_there_is_no_link(nodes: Nodes) -> None:
    a, b = nodes.pair()
    lost = a.push("lost")
    lost.link("nowhere/in")
    with pytest.raises(a3m.Timeout, match=r"nobody knows where node 'nowhere' is: register\(\) it"):
        lost.send(b"x", timeout=0.01)
    slow = a.push("slow")
    a.register("absent", "127.0.0.1:9")
    slow.link("absent/in")
    with pytest.raises(a3m.Timeout, match=r"absent/in is asked for a link .*is it running, and the tag right"):
        slow.send(b"x", timeout=0.01)
    for number, misspelt in enumerate(("b/inn", "a/inn")):  # of another node, and of its own
        push = a.push(f"misspelt {number}")
        push.link(misspelt)
        with pytest.raises(
            a3m.Timeout, match=f"{misspelt} said so far: there is no such socket there; is the tag right"
        ):
            push.send(b"x", timeout=0.5)
    first, second, third = a.pair("first"), b.pair("second"), a.pair("third")
    linked(first, second)
    third.link(second.id)
    with pytest.raises(a3m.Timeout, match="b/second said so far: it has as many links as it allows"):
        third.send(b"x", timeout=0.5)
    first.close()
    with pytest.raises(a3m.Timeout, match=r"its links have ended: call link\(\) again"):
        ended(second).send(b"x", timeout=0.01)
    wrong, _ = a.push("wrong"), b.rep("answers")
    wrong.link("b/answers")
    with pytest.raises(a3m.LinkRefused):
        wrong.wait_linked("b/answers", timeout=10)
    with pytest.raises(a3m.Timeout, match="b/answers refused the link: the patterns do not fit"):
        wrong.send(b"x", timeout=0.01)


def test_out_of_turn(nodes: Nodes) -> None:
    a, b = nodes.pair()
    req, rep = a.req("asks"), b.rep("answers")
    req.link("b/answers")
    req.send(b"first", timeout=10)
    with pytest.raises(a3m.Timeout, match=r"the last request is not answered yet; recv\(\) the answer, or cancel\(\)"):
        req.send(b"second", timeout=0.01)
    rep.recv(timeout=10)
    with pytest.raises(a3m.Timeout, match=r"the request from a/asks is not answered yet; send\(\) the answer first"):
        rep.recv(timeout=0.01)
    sub = a.sub("wants")
    with pytest.raises(a3m.Timeout, match="it has no subscriptions"):
        sub.recv(timeout=0)


@pytest.mark.parametrize("timeout", ["5", float("nan"), True, [1]])
def test_what_is_no_timeout(nodes: Nodes, timeout: float) -> None:
    with pytest.raises(TypeError, match="timeout is a number of seconds"):
        nodes("a").pull("in").recv(timeout=timeout)


def test_addresses_are_not_names(nodes: Nodes) -> None:
    a = nodes("a")
    with pytest.raises(a3m.BadIdentifier, match=r"link to a name, 'node/tag', and say where with Node.register"):
        a.push("out").link("tcp://127.0.0.1:5555")
    with pytest.raises(a3m.BadAddress, match="names a protocol"):
        a.register("b", "tcp://127.0.0.1:5555")
    with pytest.raises(a3m.BadAddress, match="all interfaces are written ':5555'"):
        a3m.Node("c", bind="*:5555")


@pytest.mark.parametrize("peer", ["", "node", "/tag", "node/", "n" * 256 + "/tag", 7, b"node/tag"])
def test_names_of_peers(nodes: Nodes, peer: str) -> None:
    push = nodes("a").push("out")
    for call in (push.link, push.unlink, push.wait_linked, push.link_to):
        with pytest.raises(a3m.BadIdentifier):
            call(peer)
    assert push.pending == ()


def test_wrong_addresses(nodes: Nodes) -> None:
    a = nodes("a")
    for wrong in ("nonsense", "127.0.0.1:99999", "127.0.0.1"):
        with pytest.raises(a3m.BadAddress):
            a.register("b", wrong)
        with pytest.raises(a3m.BadAddress):
            a.rebind(wrong)
    with pytest.raises(a3m.AddressInUse):
        a.rebind(at(nodes("b")))
    with pytest.raises(a3m.BadIdentifier):
        a.register("b/tag", "127.0.0.1:5555")
    push, pull = a.push("out"), a.pull("in")
    linked(push, pull)  # and the node still works


def test_a_lost_reply_says_that_the_request_may_have_been_handled(nodes: Nodes) -> None:
    a, b = nodes.pair()
    req, rep = a.req("ask"), b.rep("answer")
    linked(req, rep)
    req.send(b"x")
    take(rep, 1)
    crash(b)
    req.unlink(rep.id, force=True)
    with pytest.raises(
        a3m.LinkClosed, match="whether the request was handled is not known, repeat it only if"
    ) as caught:
        req.recv(timeout=PATIENCE)
    assert type(caught.value) is a3m.LinkClosed
    assert caught.value.peer == rep.id
    assert caught.value.reason
