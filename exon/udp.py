"""One UDP socket: the only module of Exon that talks to the network.

The unit of work is the batch, because a system call costs far more than the bytes it carries. Consecutive datagrams of
equal size to one address are a *train*: they leave in one ``sendmsg`` with ``UDP_SEGMENT`` (GSO) and, with ``UDP_GRO``,
arrive in one ``recvmsg``. The kernel segments, so what travels is ordinary UDP and the other side needs no support.

Measured on loopback (CPython 3.11, Linux 6.18, one core; medians):

====================================  ==========================================================
one datagram, 100 B / 1200 B          ``sendto`` 3.1 / 3.2 us, ``sendmsg`` 3.4 / 3.5 us
train of 40, 100 B / 1200 B           4.4 / 6.4 us, that is 0.11 / 0.16 us per datagram
one datagram in, 1200 B / 60 kB       ``recvmsg`` 1.7 / 3.7 us, ``recvmsg_into`` 2.0 / 5.1 us
train of 40 in and split, 1200 B      ``recvmsg`` 9.5 us, ``recvmsg_into`` 12.5 us
====================================  ==========================================================

So single datagrams use ``sendto``, and receiving uses plain ``recvmsg``: a reusable buffer saves an allocation that is
cheap and pays with a copy that is not. It would also make two threads in :meth:`UdpSocket.receive` corrupt each other.

Rejected:

- *Many buffers in one sendmsg*: joining them first is faster (design page 01), and the kernel copies anyway.
- *Connected sockets*, one per peer: they report ICMP errors, but cost a descriptor per peer, and a node that has
  talked to a million peers must hold nothing.
- *IP_RECVERR*: one peer's ICMP error would fail the next call, which is about another peer. Silence is a signal the
  protocol has to understand anyway.
- *IP fragmentation*: losing one fragment loses all, and probing for the path MTU would learn nothing.
  ``IP_PMTUDISC_PROBE`` sets "don't fragment" and ignores the kernel's own idea of the path MTU, which strangers can
  forge; a datagram larger than the interface is refused with ``EMSGSIZE`` and counted.
- *SO_REUSEADDR*: on UDP it would let a second socket take over a port in use instead of failing.
- *Interface names in scope ids*: names change and need a system call per datagram; the number is what the kernel uses.

What the network does wrong never raises here; it is counted in :attr:`UdpSocket.dropped` and
:attr:`UdpSocket.receive_errors`.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
import struct
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from exon.addresses import Address, format_address, parse_address
from exon.errors import AddressInUse, BadAddress, Closed, ExonError

_SockAddr = tuple[str, int] | tuple[str, int, int, int]

# Linux option numbers that the socket module does not name. Elsewhere the same numbers mean other things (10 is the
# multicast TTL on BSD), so they are only used on Linux.
_LINUX = sys.platform == "linux"
_SOL_UDP = 17
_UDP_SEGMENT = 103
_UDP_GRO = 104
_SO_SNDBUFFORCE = 32
_SO_RCVBUFFORCE = 33
_IP_MTU_DISCOVER = 10
_IPV6_MTU_DISCOVER = 23
_PMTUDISC_PROBE = 3

_MAX_SEGMENTS = 64  # what every kernel with GSO takes; recent ones allow 128
_MAX_TRAIN_BYTES = 65507  # 65,535 less the IPv4 and UDP headers; the limit is for the whole train
_RECEIVE_BYTES = 65536  # a GRO train is one IP packet to the kernel, so nothing larger can arrive
_ANCILLARY_BYTES = socket.CMSG_SPACE(struct.calcsize("i"))
_SOCKADDR_CACHE = 1024

_FAMILY_NAMES = {int(socket.AF_UNSPEC): "IPv4 or IPv6", int(socket.AF_INET): "IPv4", int(socket.AF_INET6): "IPv6"}

_pack_segment = struct.Struct("=H").pack

_FULL = frozenset({errno.EAGAIN, errno.EWOULDBLOCK, errno.ENOBUFS})
# What a kernel or device without GSO answers. EINVAL also means "no such route", hence the test in _send_singly.
_TRAIN_REFUSED = frozenset({errno.EIO, errno.EINVAL, errno.ENOPROTOOPT, errno.EOPNOTSUPP})
_NO_IPV6 = frozenset({errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL})


class UdpSocket:
    """One non-blocking UDP socket, IPv4 or IPv6 (both when bound to ``":port"`` or ``"[::]:port"``).

    Sending and receiving may happen in different threads at once; the counters are then only nearly exact.

    Attributes:
        address: What it is bound to; the host of a wildcard is ``"0.0.0.0"`` or, for both families, ``"::"``.
        family: What to pass to :func:`resolve` for an address this socket can send to; ``AF_UNSPEC`` if it has both.
        receive_buffer: Bytes the kernel granted. It charges its own overhead to them: payload fills 98 % as trains
            or 60 kB datagrams, half as single datagrams of 1200 bytes, an eighth as single datagrams of 100 bytes.
        sends_trains: Whether trains leave in one call; becomes false when the kernel turns out to refuse them.
        receives_trains: Whether trains arrive in one call.
        dropped: Datagrams the kernel refused for good, by the name of the error.
        receive_errors: Errors the kernel reported instead of a datagram, by name.
    """

    def __init__(
        self,
        bind: str | Address,
        *,
        receive_buffer: int = 4 << 20,
        send_buffer: int = 4 << 20,
        offload: bool = True,
    ) -> None:
        """Bind the socket.

        Args:
            bind: ``"host:port"``, ``":port"`` for all interfaces, or the pair; port 0 takes any free one.
            receive_buffer: Bytes to ask the kernel for; it may give less (see the attribute) or more.
            send_buffer: The same for sending.
            offload: Use GSO and GRO where the kernel has them.

        Raises:
            AddressInUse: Another socket has the port.
            BadAddress: The address cannot be parsed, resolved or bound.
        """
        self._socket = _bound_socket(bind if isinstance(bind, tuple) else parse_address(bind))
        self.address: Address = _canonical(self._socket.getsockname())
        self.family: int = socket.AF_UNSPEC if self.address[0] == "::" else self._socket.family
        self.receive_buffer: int = _grow(self._socket, _SO_RCVBUFFORCE, socket.SO_RCVBUF, receive_buffer)
        _grow(self._socket, _SO_SNDBUFFORCE, socket.SO_SNDBUF, send_buffer)
        _never_fragment(self._socket)
        self.sends_trains: bool = offload and _accepts(self._socket, _SOL_UDP, _UDP_SEGMENT, 0)
        self.receives_trains: bool = offload and _accepts(self._socket, _SOL_UDP, _UDP_GRO, 1)
        self.dropped: Counter[str] = Counter()
        self.receive_errors: Counter[str] = Counter()
        self._sockaddrs: dict[Address, _SockAddr] = {}

    def fileno(self) -> int:
        """The descriptor to wait on; -1 once closed."""
        return self._socket.fileno()

    def close(self) -> None:
        """Release the port; closing twice is harmless."""
        self._socket.close()

    def receive(self) -> list[tuple[bytes, Address]]:
        """Take what one system call gives: one datagram, one train split into datagrams, or nothing.

        Returns:
            Datagrams with their canonical source. Empty when nothing waits, or when an error waited in its place.

        Raises:
            Closed: The socket was closed.
        """
        try:
            data, ancillary, _, sockaddr = self._socket.recvmsg(_RECEIVE_BYTES, _ANCILLARY_BYTES)
        except BlockingIOError:
            return []
        except OSError as error:
            self.receive_errors[_name(_code(error))] += 1
            return []
        source = sockaddr if len(sockaddr) == 2 else _canonical(sockaddr)
        size = _segment_size(ancillary) if ancillary else 0
        if not size:
            return [(data, source)]
        return [(data[start : start + size], source) for start in range(0, len(data), size)]

    def send(self, datagrams: Sequence[tuple[Address, bytes]]) -> int:
        """Hand datagrams to the kernel, in order, until its buffer is full.

        Hosts are numeric (see :func:`resolve`). A datagram that can never leave (no route, too large, refused by a
        firewall, of a family this socket lacks) is counted in :attr:`dropped` and passed over.

        Returns:
            How many the caller may forget. If fewer than given, wait until the socket is writable.

        Raises:
            Closed: The socket was closed.
        """
        done, total = 0, len(datagrams)
        if total == 1:
            address, data = datagrams[0]
            code = self._submit(address, data)
            return 1 if not code else self._settle(code, address, 1)
        while done < total:
            end = self._train_end(datagrams, done)
            if end - done == 1:
                address, data = datagrams[done]
                done += self._settle(self._submit(address, data), address, 1)
            else:
                done += self._send_train(datagrams[done:end])
            if done < end:
                break
        return done

    def reachable(self, address: Address) -> bool:
        """Whether :meth:`send` can express the address: numeric, and of a family this socket has.

        Lets a caller refuse a useless address at once. It says nothing about routes or about who listens there.
        """
        try:
            _sockaddr(address, self.family)
        except OSError:
            return False
        return True

    def _train_end(self, datagrams: Sequence[tuple[Address, bytes]], start: int) -> int:
        """Index after the longest train from ``start``: one address, one size, the last may be shorter."""
        address, first = datagrams[start]
        size = len(first)
        end = start + 1
        if not self.sends_trains or not size:
            return end
        limit = min(len(datagrams), start + _MAX_SEGMENTS, start + _MAX_TRAIN_BYTES // size)
        while end < limit:
            other, data = datagrams[end]
            # An empty datagram would vanish in a train: it has no byte to be cut at.
            if not 0 < len(data) <= size or other != address:
                break
            end += 1
            if len(data) < size:
                break
        return end

    def _send_train(self, train: Sequence[tuple[Address, bytes]]) -> int:
        """Send a train in one call, or singly if that is refused; how many the caller may forget."""
        address, first = train[0]
        code = self._submit(address, b"".join([data for _, data in train]), segment=len(first))
        if code == errno.EMSGSIZE or code in _TRAIN_REFUSED:
            return self._send_singly(train, code)
        return self._settle(code, address, len(train))

    def _send_singly(self, train: Sequence[tuple[Address, bytes]], refusal: int) -> int:
        """Send a refused train datagram by datagram, so that only those at fault are dropped."""
        for index, (address, data) in enumerate(train):
            code = self._submit(address, data)
            # The same bytes to the same address passed alone, so it was the train that the kernel cannot do. If they
            # fail too, the address or the size is at fault and trains to other peers still work.
            if index == 0 and code == 0 and refusal in _TRAIN_REFUSED:
                self.sends_trains = False
            if not self._settle(code, address, 1):
                return index
        return len(train)

    def _submit(self, address: Address, data: bytes, segment: int = 0) -> int:
        """One system call; 0 if the kernel took the bytes, otherwise the error number."""
        try:
            sockaddr = self._sockaddrs.get(address) or self._remember(address)
            if segment:
                self._socket.sendmsg((data,), ((_SOL_UDP, _UDP_SEGMENT, _pack_segment(segment)),), 0, sockaddr)
            else:
                self._socket.sendto(data, sockaddr)
        except OSError as error:
            return _code(error)
        return 0

    def _settle(self, code: int, address: Address, count: int) -> int:
        """How many of ``count`` datagrams the caller may forget after :meth:`_submit` answered ``code``."""
        if code in _FULL:
            return 0
        if code:
            self.dropped[_name(code)] += count
            # An interface that came back may have another number: convert a scoped address anew next time.
            self._sockaddrs.pop(address, None)
        return count

    def _remember(self, address: Address) -> _SockAddr:
        """Convert an address and keep the result; all are forgotten when there are too many."""
        sockaddr = _sockaddr(address, self.family)
        if len(self._sockaddrs) >= _SOCKADDR_CACHE:
            self._sockaddrs.clear()
        self._sockaddrs[address] = sockaddr
        return sockaddr


def resolve(text: str, *, family: int = socket.AF_UNSPEC) -> Address:
    """Turn ``"host:port"`` into a numeric address; may block while the name service answers.

    Args:
        text: What :func:`exon.addresses.parse_address` reads, with a host.
        family: Usually :attr:`UdpSocket.family`, so that a host with addresses of both kinds gives a usable one.

    Raises:
        BadAddress: The text is no address, or the host has no address (of this family).
    """
    host, port = parse_address(text)
    if not host:
        raise BadAddress(f"{text!r} names no host; write 'host:port' or '[ipv6]:port'")
    return _look_up(host, port, family)


def _look_up(host: str, port: int, family: int) -> Address:
    try:
        found = socket.getaddrinfo(host, port, family, socket.SOCK_DGRAM)
    except (OSError, ValueError) as error:  # ValueError: not encodable as a host name
        reason = error.strerror if isinstance(error, OSError) else error
        raise BadAddress(
            f"cannot resolve host {host!r} ({reason}); check the spelling and the name service, "
            f"or write a numeric {_FAMILY_NAMES[family]} address"
        ) from error
    return _canonical(found[0][4])


def _bound_socket(wanted: Address) -> socket.socket:
    """Bind to what the caller wants, or say why that is impossible and what to do."""
    host, port = wanted
    if not 0 <= port <= 65535:
        raise BadAddress(f"{port} is not a port; use a number from 0 to 65535")
    try:
        return _bind(_look_up(host, port, socket.AF_UNSPEC)) if host else _bind_everywhere(port)
    except OSError as error:
        raise _bind_failure(error, wanted) from error


def _bind_everywhere(port: int) -> socket.socket:
    try:
        return _bind(("::", port))
    except OSError as error:
        if error.errno not in _NO_IPV6:
            raise
        return _bind(("0.0.0.0", port))


def _bind(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_DGRAM)
    try:
        bound.setblocking(False)
        if family == socket.AF_INET6:
            # Said explicitly: the default is a system setting.
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(address[0] != "::"))
        bound.bind(_sockaddr(address, family))
    except BaseException:
        bound.close()
        raise
    return bound


def _bind_failure(error: OSError, wanted: Address) -> ExonError:
    where = format_address(wanted)
    if error.errno == errno.EADDRINUSE:
        return AddressInUse(error.errno, f"{where} is already in use; choose another port, or 0 for any free one")
    if error.errno == errno.EADDRNOTAVAIL:
        return BadAddress(f"{where} is not an address of this machine; bind to one it has, or to ':port' for all")
    if error.errno == errno.EACCES:
        return BadAddress(f"not allowed to bind {where}: ports below 1024 need privileges; choose a higher one, or 0")
    return BadAddress(f"cannot bind {where}: {error.strerror or error}")


def _accepts(target: socket.socket, level: int, option: int, value: int) -> bool:
    """Set a Linux option if there is one; whether it was accepted."""
    if not _LINUX:
        return False
    try:
        target.setsockopt(level, option, value)
    except OSError:
        return False
    return True


def _grow(target: socket.socket, force: int, plain: int, size: int) -> int:
    """Set a buffer size, beyond the system's limit if we are privileged; what the kernel really gave."""
    if not _accepts(target, socket.SOL_SOCKET, force, size):
        with suppress(OSError):  # Linux caps a size above the limit, others refuse it and keep their default
            target.setsockopt(socket.SOL_SOCKET, plain, size)
    return target.getsockopt(socket.SOL_SOCKET, plain)


def _never_fragment(target: socket.socket) -> None:
    # A dual-stack socket needs both: the IPv4 option governs what it sends to mapped addresses.
    _accepts(target, socket.IPPROTO_IP, _IP_MTU_DISCOVER, _PMTUDISC_PROBE)
    if target.family == socket.AF_INET6:
        _accepts(target, socket.IPPROTO_IPV6, _IPV6_MTU_DISCOVER, _PMTUDISC_PROBE)


def _sockaddr(address: Address, family: int) -> _SockAddr:
    """What the kernel of a socket of this family calls the address (``AF_UNSPEC``: a dual-stack socket).

    Raises:
        OSError: With the number the kernel would use, so that callers treat both alike. Above all a host that is no
            number must not reach the socket module, which would block asking the name service.
    """
    host, port = address
    try:
        number = ipaddress.ip_address(host)
    except ValueError as error:
        raise OSError(errno.EINVAL, f"{host!r} is not numeric") from error
    if not 0 <= port <= 65535:
        raise OSError(errno.EINVAL, f"{port} is not a port")
    if isinstance(number, ipaddress.IPv6Address):
        if number.ipv4_mapped is None:
            return _sockaddr6(number, port, family)
        number = number.ipv4_mapped
    if family == socket.AF_INET6:
        raise OSError(errno.EAFNOSUPPORT, "an IPv4 address, and the socket is bound to an IPv6 one")
    return (str(number), port) if family == socket.AF_INET else (f"::ffff:{number}", port, 0, 0)


def _sockaddr6(number: ipaddress.IPv6Address, port: int, family: int) -> _SockAddr:
    if family == socket.AF_INET:
        raise OSError(errno.EAFNOSUPPORT, "an IPv6 address, and the socket is bound to an IPv4 one")
    host, _, scope = str(number).partition("%")
    return host, port, 0, _scope_number(scope) if scope else 0


def _scope_number(scope: str) -> int:
    if scope.isascii() and scope.isdigit():
        return int(scope)
    try:
        return socket.if_nametoindex(scope)
    except OSError as error:
        raise OSError(errno.ENODEV, f"no interface {scope!r}") from error  # Python's own error has no number


def _canonical(sockaddr: Any) -> Address:
    """The one address by which a peer is known, whichever family of socket it was met on."""
    if len(sockaddr) == 2:
        host, port = sockaddr
        return host, port
    host, port, _, scope = sockaddr
    if scope:
        return f"{host}%{scope}", port
    if host.startswith("::ffff:") and "." in host:
        return host[7:], port
    return host, port


def _segment_size(ancillary: list[tuple[int, int, bytes]]) -> int:
    """The size of a train's datagrams, or 0 when one datagram came alone."""
    for level, kind, value in ancillary:
        if level == _SOL_UDP and kind == _UDP_GRO:
            return int.from_bytes(value, sys.byteorder)
    return 0


def _code(error: OSError) -> int:
    """The number of an error the network may cause; being closed is not one."""
    if error.errno == errno.EBADF:
        raise Closed("the UDP socket is closed") from error
    return error.errno or errno.EINVAL


def _name(code: int) -> str:
    return errno.errorcode.get(code, str(code))
