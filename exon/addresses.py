"""Transport addresses: ``(host, port)`` pairs, and the text people write for them.

The protocol treats an address as an opaque value that it can compare, hash and hand back to its driver. Only drivers
look inside one, so the simulator is free to use the same pairs for hosts that do not exist.
"""

from __future__ import annotations

from exon.errors import BadAddress

Address = tuple[str, int]


def parse_address(text: str) -> Address:
    """Split ``"host:port"``, ``"[v6]:port"`` or ``":port"`` (all interfaces) into its two parts.

    >>> parse_address("127.0.0.1:5555")
    ('127.0.0.1', 5555)
    >>> parse_address("[::1]:5555")
    ('::1', 5555)
    >>> parse_address(":0")
    ('', 0)
    """
    if not isinstance(text, str):
        raise BadAddress(f"an address is text such as 'host:port', not {type(text).__name__}")
    if "://" in text:
        raise BadAddress(f"{text!r} names a protocol; write only 'host:port', '[ipv6]:port' or ':port'")
    host, colon, port_text = text.rpartition(":")
    if host == "*":
        raise BadAddress(f"{text!r}: all interfaces are written ':{port_text}'")
    if not colon:
        raise BadAddress(f"{text!r} has no port; write 'host:port', '[ipv6]:port' or ':port'")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise BadAddress(f"{text!r} is ambiguous; put the IPv6 address in brackets: '[{host}]:{port_text}'")
    if not (port_text.isascii() and port_text.isdigit() and len(port_text) <= 5 and int(port_text) <= 65535):
        raise BadAddress(f"{port_text!r} in {text!r} is not a port; use a number from 0 to 65535")
    return host, int(port_text)


def format_address(address: Address) -> str:
    """Write an address the way :func:`parse_address` reads it.

    >>> format_address(("::1", 5555))
    '[::1]:5555'
    """
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
