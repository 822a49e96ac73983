"""The few calls to the kernel that Python 3.11 has no names for."""

from __future__ import annotations

import ctypes
import fcntl
import os
import struct
from typing import Any

_CLONE_NEWNET = 0x40000000
_TUNSETIFF = 0x400454CA
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000
_PR_SET_PDEATHSIG, _PR_SET_TIMERSLACK = 1, 29

_libc = ctypes.CDLL(None, use_errno=True)


def _call(function: Any, *arguments: int) -> None:
    if function(*arguments) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{function.__name__}: {os.strerror(error)}")


def new_namespace() -> int:
    """Move this process to a network namespace of its own, and return that as an open file."""
    _call(_libc.unshare, _CLONE_NEWNET)
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def enter_namespace(namespace: int) -> None:
    """Move the calling thread, and what it starts from now on, to a network namespace given as an open file."""
    _call(_libc.setns, namespace, _CLONE_NEWNET)


def open_tun(name: str) -> int:
    """A new TUN device in this namespace, as a file of IP packets. It takes no offloads.

    So the kernel cuts a train of segments into packets before we read them, and one loss loses one packet.
    """
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TUN | _IFF_NO_PI))
    return device


def wait_precisely() -> None:
    """Have time-outs of this process end on time, not up to 50 µs later to save wake-ups."""
    _call(_libc.prctl, _PR_SET_TIMERSLACK, 1, 0, 0, 0)


def die_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it ends, however that ends."""
    _call(_libc.prctl, _PR_SET_PDEATHSIG, 9, 0, 0, 0)
