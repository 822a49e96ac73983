"""The UDP socket against the real kernel, on loopback.

Where loopback cannot misbehave (a full buffer, a device without GSO), a thin layer between the socket and the kernel
does, and passes everything else through. What needs an interface with a small MTU runs in a network namespace.
"""

from __future__ import annotations

import errno
import os
import select
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Protocol, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exon import udp
from exon.addresses import Address
from exon.errors import AddressInUse, BadAddress, Closed
from exon.udp import UdpSocket, resolve

Datagram = tuple[Address, bytes]

IP_RECVERR = 11
NOBODY = 65534


def _has_ipv6() -> bool:
    try:
        with closing(UdpSocket("[::1]:0")):
            return True
    except BadAddress:
        return False


needs_ipv6 = pytest.mark.skipif(not _has_ipv6(), reason="this machine has no IPv6 loopback")
both_families = pytest.mark.parametrize("host", ["127.0.0.1", pytest.param("::1", marks=needs_ipv6)])


class Opener(Protocol):
    def __call__(self, bind: str | Address = "127.0.0.1:0", **options: Any) -> UdpSocket: ...


@pytest.fixture
def opened() -> Iterator[Opener]:
    """Opens sockets and closes them after the test."""
    with ExitStack() as stack:

        def open_one(bind: str | Address = "127.0.0.1:0", **options: Any) -> UdpSocket:
            return stack.enter_context(closing(UdpSocket(bind, **options)))

        yield open_one


@pytest.fixture
def unprivileged() -> Iterator[None]:
    """Without root's capabilities, whoever runs the tests."""
    if os.geteuid():
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


class Kernel:
    """Stands between a :class:`UdpSocket` and its socket: counts the calls that send, and may refuse them.

    Args:
        target: The socket to stand behind.
        room: Calls until the buffer is full.
        full: The error that says so.
        refuse_trains: The error that answers a train, if any.
        largest: Bytes that the interface carries.
    """

    def __init__(
        self,
        target: UdpSocket,
        *,
        room: int = sys.maxsize,
        full: int = errno.EAGAIN,
        refuse_trains: int = 0,
        largest: int = sys.maxsize,
    ) -> None:
        self._real = target._socket
        self.room, self.full, self.refuse_trains, self.largest = room, full, refuse_trains, largest
        self.singles = self.trains = 0
        target._socket = cast(socket.socket, self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def sendto(self, data: bytes, address: Any) -> int:
        self._refuse_if(not self.room, self.full)
        self._refuse_if(len(data) > self.largest, errno.EMSGSIZE)
        self.room -= 1
        self.singles += 1
        return self._real.sendto(data, address)

    def sendmsg(self, *arguments: Any) -> int:
        self._refuse_if(not self.room, self.full)
        self.room -= 1
        self.trains += 1
        self._refuse_if(bool(self.refuse_trains), self.refuse_trains)
        return self._real.sendmsg(*arguments)

    @staticmethod
    def _refuse_if(refuse: bool, code: int) -> None:
        if refuse:
            raise OSError(code, os.strerror(code))


def collect(target: UdpSocket, count: int) -> list[tuple[bytes, Address]]:
    """Exactly ``count`` datagrams; fails when they do not come, or more do."""
    got: list[tuple[bytes, Address]] = []
    while len(got) < count:
        assert select.select([target], [], [], 10)[0], f"only {len(got)} of {count} datagrams arrived"
        got += target.receive()
    assert target.receive() == []
    assert len(got) == count
    return got


def payloads(target: UdpSocket, count: int) -> list[bytes]:
    """Sorted, because UDP promises no order between calls; tests therefore use distinct payloads."""
    return sorted(data for data, _ in collect(target, count))


def numbered(address: Address, sizes: Sequence[int]) -> list[Datagram]:
    """Distinct datagrams of these sizes (those of four bytes and more)."""
    return [(address, index.to_bytes(4, "big")[:size].ljust(size, b".")) for index, size in enumerate(sizes)]


def contents(datagrams: Sequence[Datagram]) -> list[bytes]:
    return sorted(data for _, data in datagrams)


# ── there and back ───────────────────────────────────────────────────────────────────────────────────────────────────


@both_families
def test_a_datagram_arrives_with_its_source_and_can_be_answered(opened: Opener, host: str) -> None:
    client, server = opened((host, 0)), opened((host, 0))
    assert client.send([(server.address, b"ping")]) == 1
    [(data, source)] = collect(server, 1)
    assert (data, source) == (b"ping", client.address)
    assert source[0] == host
    server.send([(source, b"pong")])
    assert collect(client, 1) == [(b"pong", server.address)]


@both_families
def test_every_size_up_to_the_interface_arrives(opened: Opener, host: str) -> None:
    client, server = opened((host, 0)), opened((host, 0))
    largest = 65507 if host == "127.0.0.1" else 65536 - 48
    for size in (0, 1, 1400, 9000, 32768, 65000, largest):
        payload = os.urandom(size)
        assert client.send([(server.address, payload)]) == 1
        assert collect(server, 1) == [(payload, client.address)]
    assert not client.dropped


def test_nothing_waiting_gives_nothing_at_once(opened: Opener) -> None:
    assert opened().receive() == []


def test_sending_nothing_is_done(opened: Opener) -> None:
    assert opened().send([]) == 0


# ── both families on one socket ──────────────────────────────────────────────────────────────────────────────────────


@needs_ipv6
@pytest.mark.parametrize("bind", [":0", "[::]:0"])
def test_all_interfaces_means_both_families_under_canonical_addresses(opened: Opener, bind: str) -> None:
    server, four, six = opened(bind), opened("127.0.0.1:0"), opened("[::1]:0")
    port = server.address[1]
    assert server.address == ("::", port)
    assert server.family == socket.AF_UNSPEC
    for client in (four, six):
        host = client.address[0]
        client.send([((host, port), b"hello")])
        [(_, source)] = collect(server, 1)
        assert source == client.address
        assert server.send([(source, b"first"), (source, b"again")]) == 2
        assert sorted(collect(client, 2)) == [(b"again", (host, port)), (b"first", (host, port))]
    assert not server.dropped


def test_all_interfaces_means_ipv4_where_there_is_no_ipv6(opened: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    real = udp._bind

    def without_ipv6(address: Address) -> socket.socket:
        if ":" in address[0]:
            raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
        return real(address)

    monkeypatch.setattr(udp, "_bind", without_ipv6)
    server, client = opened(":0"), opened()
    assert server.address == ("0.0.0.0", server.address[1])
    client.send([(("127.0.0.1", server.address[1]), b"hello")])
    assert collect(server, 1) == [(b"hello", client.address)]


def test_an_ipv4_wildcard_stays_ipv4(opened: Opener) -> None:
    server = opened("0.0.0.0:0")
    assert server.address[0] == "0.0.0.0"
    assert server.family == socket.AF_INET


def test_a_mapped_address_works_on_an_ipv4_socket(opened: Opener) -> None:
    client, server = opened(), opened()
    client.send([(("::ffff:127.0.0.1", server.address[1]), b"hello")])
    assert collect(server, 1) == [(b"hello", client.address)]


def test_a_link_local_source_keeps_its_scope() -> None:
    assert udp._canonical(("fe80::1", 5, 0, 7)) == ("fe80::1%7", 5)
    assert udp._sockaddr(("fe80::1%7", 5), socket.AF_INET6) == ("fe80::1", 5, 0, 7)
    loopback = socket.if_nametoindex("lo")
    assert udp._sockaddr(("fe80::1%lo", 5), socket.AF_UNSPEC) == ("fe80::1", 5, 0, loopback)


# ── trains ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def require_offload(target: UdpSocket) -> None:
    if not (target.sends_trains and target.receives_trains):
        pytest.skip("this kernel has no UDP GSO or GRO")


@both_families
@pytest.mark.parametrize(("size", "last"), [(1400, 1400), (1400, 17), (5, 4), (20000, 1)])
def test_a_train_leaves_and_arrives_in_one_call(opened: Opener, host: str, size: int, last: int) -> None:
    client, server = opened((host, 0)), opened((host, 0))
    require_offload(client)
    kernel = Kernel(client)
    train = [(server.address, os.urandom(size)), (server.address, os.urandom(size)), (server.address, os.urandom(last))]
    assert client.send(train) == 3
    assert (kernel.trains, kernel.singles) == (1, 0)
    assert select.select([server], [], [], 10)[0]
    assert server.receive() == [(data, client.address) for _, data in train]


@needs_ipv6
def test_trains_between_a_dual_stack_socket_and_an_ipv4_one(opened: Opener) -> None:
    server, client = opened(":0"), opened()
    require_offload(client)
    there = numbered(("127.0.0.1", server.address[1]), [1000] * 20)
    client.send(there)
    assert payloads(server, 20) == contents(there)
    kernel = Kernel(server)
    back = numbered(client.address, [900] * 20)
    server.send(back)
    assert payloads(client, 20) == contents(back)
    assert (kernel.trains, kernel.singles) == (1, 0)


@pytest.mark.parametrize(
    ("sizes", "trains", "singles"),
    [
        ([10] * 64, 1, 0),
        ([10] * 65, 1, 1),
        ([10] * 200, 4, 0),
        ([1400] * 46, 1, 0),
        ([1400] * 92, 2, 0),  # 65,507 bytes hold 46
        ([32753] * 2, 1, 0),
        ([32754] * 2, 0, 2),
        ([100, 100, 50, 50, 50, 100], 2, 1),  # a shorter one ends its train
        ([50, 100], 0, 2),
        ([100, 0, 100, 100], 1, 2),  # an empty one travels alone
        ([0, 0], 0, 2),
    ],
)
def test_trains_respect_the_limits_of_the_kernel(opened: Opener, sizes: list[int], trains: int, singles: int) -> None:
    client, server = opened(), opened()
    require_offload(client)
    kernel = Kernel(client)
    datagrams = numbered(server.address, sizes)
    assert client.send(datagrams) == len(sizes)
    assert payloads(server, len(sizes)) == contents(datagrams)
    assert (kernel.trains, kernel.singles) == (trains, singles)
    assert client.sends_trains
    assert not client.dropped


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 1), st.sampled_from([0, 1, 100, 101, 1200, 30000])), max_size=80))
def test_any_mix_of_sizes_and_destinations_arrives_where_it_should(mix: list[tuple[int, int]]) -> None:
    with closing(UdpSocket("127.0.0.1:0")) as client, ExitStack() as stack:
        servers = [stack.enter_context(closing(UdpSocket("127.0.0.1:0"))) for _ in range(2)]
        datagrams = [
            (servers[which].address, datagram[1])
            for (which, _), datagram in zip(mix, numbered(("", 0), [size for _, size in mix]), strict=True)
        ]
        assert client.send(datagrams) == len(mix)
        for server in servers:
            mine = [datagram for datagram in datagrams if datagram[0] == server.address]
            assert payloads(server, len(mine)) == contents(mine)
        assert not client.dropped


@pytest.mark.parametrize(("sender", "receiver"), [(False, False), (False, True), (True, False)])
def test_either_side_may_do_without_offload(opened: Opener, sender: bool, receiver: bool) -> None:
    client, server = opened(offload=sender), opened(offload=receiver)
    kernel = Kernel(client)
    datagrams = numbered(server.address, [1200] * 39 + [7])
    assert client.send(datagrams) == 40
    assert payloads(server, 40) == contents(datagrams)
    if not sender:
        assert not client.sends_trains
        assert (kernel.trains, kernel.singles) == (0, 40)
    if not receiver:
        assert not server.receives_trains


@pytest.mark.parametrize("refusal", [errno.EIO, errno.EINVAL, errno.ENOPROTOOPT])
def test_a_kernel_that_refuses_trains_gets_single_datagrams_from_then_on(opened: Opener, refusal: int) -> None:
    client, server = opened(), opened()
    require_offload(client)
    kernel = Kernel(client, refuse_trains=refusal)
    datagrams = numbered(server.address, [500] * 10)
    assert client.send(datagrams) == 10
    assert payloads(server, 10) == contents(datagrams)
    assert not client.sends_trains
    assert not client.dropped
    kernel.refuse_trains = 0
    assert client.send(datagrams) == 10
    assert payloads(server, 10) == contents(datagrams)
    assert (kernel.trains, kernel.singles) == (1, 20)


def test_an_interface_that_shrinks_does_not_switch_trains_off(opened: Opener) -> None:
    client, server = opened(), opened()
    require_offload(client)
    Kernel(client, refuse_trains=errno.EMSGSIZE)  # and by the time they are sent again, they fit
    datagrams = numbered(server.address, [500] * 3)
    assert client.send(datagrams) == 3
    assert payloads(server, 3) == contents(datagrams)
    assert client.sends_trains


def test_a_train_too_large_for_an_old_kernel_does_not_switch_trains_off(opened: Opener) -> None:
    client, server = opened(), opened()
    require_offload(client)
    Kernel(client, largest=1400, refuse_trains=errno.EINVAL)  # which answers EINVAL where newer ones say EMSGSIZE
    datagrams = numbered(server.address, [1401, 1401, 1400])
    assert client.send(datagrams) == 3
    assert collect(server, 1) == [(datagrams[2][1], client.address)]
    assert client.dropped == {"EMSGSIZE": 2}
    assert client.sends_trains


def test_a_bad_destination_does_not_switch_trains_off(opened: Opener) -> None:
    client, server = opened(), opened()
    require_offload(client)
    nowhere = ("127.0.0.1", 0)  # the kernel answers EINVAL, as it does for a train it cannot do
    datagrams = numbered(server.address, [300] * 4)
    assert client.send([(nowhere, b"x"), (nowhere, b"y"), *datagrams]) == 6
    assert client.dropped == {"EINVAL": 2}
    assert client.sends_trains
    assert payloads(server, 4) == contents(datagrams)


# ── what the kernel refuses ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("offload", [True, False])
@both_families
def test_a_datagram_too_large_is_dropped_and_its_neighbours_arrive(opened: Opener, host: str, offload: bool) -> None:
    client, server = opened((host, 0), offload=offload), opened((host, 0))
    datagrams = numbered(server.address, [1000, 1000, 65508, 1000, 999])
    assert client.send(datagrams) == 5
    assert client.dropped == {"EMSGSIZE": 1}
    assert payloads(server, 4) == contents([datagram for datagram in datagrams if len(datagram[1]) <= 1000])


@needs_ipv6
def test_ipv6_never_fragments(opened: Opener) -> None:
    client, server = opened("[::1]:0"), opened("[::1]:0")
    # One byte more than the interface carries, though UDP could: only fragments could bring it there.
    assert client.send([(server.address, bytes(65536 - 48 + 1)), (server.address, b"small")]) == 2
    assert collect(server, 1) == [(b"small", client.address)]
    assert client.dropped == {"EMSGSIZE": 1}


@pytest.mark.parametrize("bind", ["127.0.0.1:0", pytest.param(":0", marks=needs_ipv6)])
def test_ipv4_never_fragments(opened: Opener, bind: str) -> None:
    # Loopback carries every IPv4 datagram whole, so here the option itself; the namespace test below sees the effect.
    assert opened(bind)._socket.getsockopt(socket.IPPROTO_IP, 10) == 3


def test_a_closed_port_disturbs_nobody(opened: Opener) -> None:
    client, server, gone = opened(), opened(), opened()
    closed = gone.address
    gone.close()
    for _ in range(3):
        assert client.send([(closed, b"anyone?"), (server.address, b"hello")]) == 2
        assert collect(server, 1) == [(b"hello", client.address)]
        server.send([(client.address, b"yes")])
        assert collect(client, 1) == [(b"yes", server.address)]
    assert not client.dropped
    assert not client.receive_errors


def test_an_error_in_place_of_a_datagram_is_counted(opened: Opener) -> None:
    client, server, gone = opened(), opened(), opened()
    client._socket.setsockopt(socket.IPPROTO_IP, IP_RECVERR, 1)  # now the kernel does report ICMP errors
    gone.close()
    client.send([(gone.address, b"anyone?")])
    assert select.select([client], [], [], 10)[0]
    assert client.receive() == []
    assert client.receive_errors == {"ECONNREFUSED": 1}
    server.send([(client.address, b"still here?")])
    assert collect(client, 1) == [(b"still here?", server.address)]


@pytest.mark.parametrize("full", [errno.EAGAIN, errno.ENOBUFS])
def test_a_full_buffer_stops_sending_without_loss(opened: Opener, full: int) -> None:
    client, server = opened(), opened()
    require_offload(client)
    kernel = Kernel(client, room=2, full=full)
    datagrams = numbered(server.address, [100, 200, 200, 300, 300, 300])  # one alone, then two trains
    assert client.send(datagrams) == 3
    assert client.send(datagrams[3:]) == 0
    kernel.room = 1
    assert client.send(datagrams[3:]) == 3
    assert payloads(server, 6) == contents(datagrams)
    assert not client.dropped
    assert client.sends_trains


def test_a_buffer_that_fills_while_a_refused_train_is_resent(opened: Opener) -> None:
    client, server = opened(), opened()
    require_offload(client)
    kernel = Kernel(client, room=3, full=errno.EAGAIN, refuse_trains=errno.EIO)
    datagrams = numbered(server.address, [100] * 5)
    assert client.send(datagrams) == 2  # the first of the three calls was the train
    kernel.room = 3
    assert client.send(datagrams[2:]) == 3
    assert payloads(server, 5) == contents(datagrams)


@pytest.mark.parametrize(
    ("bind", "address", "name"),
    [
        ("127.0.0.1:0", ("::1", 9), "EAFNOSUPPORT"),
        pytest.param("[::1]:0", ("127.0.0.1", 9), "EAFNOSUPPORT", marks=needs_ipv6),
        ("127.0.0.1:0", ("localhost", 9), "EINVAL"),  # a name: asking the name service would block
        ("127.0.0.1:0", ("", 9), "EINVAL"),
        ("127.0.0.1:0", ("127.0.0.1", 65536), "EINVAL"),
        pytest.param("[::1]:0", ("fe80::1%nosuch0", 9), "ENODEV", marks=needs_ipv6),
    ],
)
def test_an_address_that_cannot_be_sent_to_is_counted(opened: Opener, bind: str, address: Address, name: str) -> None:
    client, server = opened(bind), opened(bind)
    assert not client.reachable(address)
    assert client.reachable(server.address)
    assert client.send([(address, b"x"), (address, b"y"), (server.address, b"z")]) == 3
    assert client.dropped == {name: 2}
    assert collect(server, 1) == [(b"z", client.address)]


def test_a_refused_address_is_converted_anew(opened: Opener) -> None:
    client, server = opened(), opened()
    client._sockaddrs[server.address] = ("127.0.0.1", 0)  # out of date, like the number of an interface that came back
    assert client.send([(server.address, b"lost")]) == 1
    assert client.dropped == {"EINVAL": 1}
    assert client.send([(server.address, b"found")]) == 1
    assert collect(server, 1) == [(b"found", client.address)]


def test_addresses_are_not_remembered_without_limit(opened: Opener) -> None:
    client, server = opened(), opened()
    for number in range(3 * udp._SOCKADDR_CACHE):
        client.send([((f"127.1.{number >> 8}.{number & 255}", 9), b"")])
        assert len(client._sockaddrs) <= udp._SOCKADDR_CACHE
    client.send([(server.address, b"hello")])
    assert collect(server, 1) == [(b"hello", client.address)]


IN_A_NAMESPACE = """
import select
from exon.udp import UdpSocket

def sizes(target, count):
    got = []
    while len(got) < count:
        assert select.select([target], [], [], 10)[0], got
        got += [len(data) for data, _ in target.receive()]
    return sorted(got)

for bind, host, headers in (
    ("127.0.0.1:0", "127.0.0.1", 28), ("[::1]:0", "::1", 48), (":0", "127.0.0.1", 28), ("[fe80::1%lo]:0", None, 48)
):
    client, server = UdpSocket(bind), UdpSocket(bind)
    to = (host or server.address[0], server.address[1])
    fits = 1500 - headers
    # Three trains: one that fits, one too large but for its last datagram, one that fits.
    lengths = [fits] * 5 + [fits + 1] * 3 + [fits] + [700] * 4
    assert client.send([(to, bytes(length)) for length in lengths]) == len(lengths)
    assert sizes(server, 10) == [700] * 4 + [fits] * 6, bind
    assert server.receive() == [], bind
    assert client.dropped == {"EMSGSIZE": 3}, (bind, client.dropped)
    assert client.sends_trains, bind
    client.close()
    server.close()
print("all as expected")
"""


@pytest.mark.root
@needs_ipv6
def test_a_small_interface_drops_only_what_does_not_fit(opened: Opener) -> None:
    require_offload(opened())
    if not (shutil.which("unshare") and shutil.which("ip")):
        pytest.skip("needs the commands unshare and ip")
    namespace = ["unshare", "--map-root-user", "--net", "sh", "-ec"]
    if subprocess.run([*namespace, "true"], capture_output=True, check=False).returncode:
        pytest.skip("not allowed to make network namespaces")
    set_up = "ip link set lo mtu 1500 up; ip address add fe80::1/64 dev lo nodad; "
    done = subprocess.run(
        [*namespace, set_up + 'exec "$0" -c "$1"', sys.executable, IN_A_NAMESPACE],
        cwd=Path(udp.__file__).parent.parent,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "all as expected\n", done.stderr


# ── binding ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("bind", ["127.0.0.1:0", ":0"])
def test_a_port_in_use_says_so_and_what_to_do(opened: Opener, bind: str) -> None:
    first = opened(bind)
    wanted = f"{bind.removesuffix('0')}{first.address[1]}"
    with pytest.raises(AddressInUse, match="already in use; choose another port, or 0") as caught:
        opened(wanted)
    assert wanted in str(caught.value)
    assert caught.value.errno == errno.EADDRINUSE
    first.close()
    assert opened(wanted).address == first.address


@needs_ipv6
def test_all_interfaces_is_never_silently_only_ipv4(opened: Opener) -> None:
    taken = opened("[::1]:0")  # free on every IPv4 interface
    with pytest.raises(AddressInUse):
        opened(f":{taken.address[1]}")


@pytest.mark.parametrize(
    ("bind", "message"),
    [
        ("198.51.100.1:0", r"198\.51\.100\.1:0 is not an address of this machine"),
        ("127.0.0.1", "has no port"),
        (("127.0.0.1", 65536), "65536 is not a port"),
        (("127.0.0.1", -1), "-1 is not a port"),
        (("x" * 64, 0), "cannot resolve host"),
        pytest.param("[fe80::1]:0", "cannot bind .*: Invalid argument", marks=needs_ipv6),  # no scope
    ],
)
def test_an_address_that_cannot_be_bound(opened: Opener, bind: str | Address, message: str) -> None:
    with pytest.raises(BadAddress, match=message):
        opened(bind)


@pytest.mark.usefixtures("unprivileged")
def test_a_low_port_needs_privileges(opened: Opener) -> None:
    first_free = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text()
    if int(first_free) <= 1:
        pytest.skip("this machine lets everyone bind every port")
    with pytest.raises(BadAddress, match=r"127\.0\.0\.1:1: ports below 1024 need privileges"):
        opened("127.0.0.1:1")


def test_the_receive_buffer_is_what_the_kernel_gave(opened: Opener) -> None:
    small, large = opened(receive_buffer=50_000), opened(receive_buffer=100_000)
    assert (small.receive_buffer, large.receive_buffer) == (100_000, 200_000)  # Linux doubles, for its own overhead


@pytest.mark.usefixtures("unprivileged")
def test_without_privileges_the_system_limits_the_receive_buffer(opened: Opener) -> None:
    limit = int(Path("/proc/sys/net/core/rmem_max").read_text())
    assert opened(receive_buffer=2 * limit).receive_buffer == 2 * limit  # doubled, of what was cut to the limit


def test_closed_is_closed(opened: Opener) -> None:
    client, server = opened(), opened()
    client.close()
    client.close()
    assert client.fileno() == -1
    with pytest.raises(Closed):
        client.receive()
    with pytest.raises(Closed):
        client.send([(server.address, b"x")])
    with pytest.raises(Closed):
        client.send([(server.address, b"x"), (server.address, b"y")])


# ── resolving ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:5555", ("127.0.0.1", 5555)),
        ("[::1]:5555", ("::1", 5555)),
        ("[0:0::1]:5555", ("::1", 5555)),
        ("[::ffff:127.0.0.1]:5555", ("127.0.0.1", 5555)),
    ],
)
def test_numeric_addresses_become_canonical(text: str, address: Address) -> None:
    assert resolve(text) == address


def test_a_name_becomes_an_address_the_socket_can_send_to(opened: Opener) -> None:
    server = opened()
    address = resolve(f"localhost:{server.address[1]}", family=server.family)
    assert address == server.address
    assert server.reachable(address)


def test_an_address_of_the_wrong_family_is_refused(opened: Opener) -> None:
    with pytest.raises(BadAddress, match="write a numeric IPv4 address"):
        resolve("[::1]:5555", family=opened().family)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (":5555", "names no host; write 'host:port'"),
        ("host", "has no port"),
        ("host:http", "is not a port"),
        ("x" * 64 + ":5555", "cannot resolve host .*check the spelling"),  # no name service is asked for this one
    ],
)
def test_text_that_is_no_address(text: str, message: str) -> None:
    with pytest.raises(BadAddress, match=message):
        resolve(text)


def test_an_unknown_name_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*arguments: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(BadAddress, match=r"'nosuch\.example' \(Name or service not known\); check the spelling"):
        resolve("nosuch.example:5555")
