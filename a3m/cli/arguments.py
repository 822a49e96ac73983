"""What arguments of subcommands may be; each raises with a sentence that says what is wrong."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable

import a3m
from exon.addresses import parse_address


def whole(least: int, most: int) -> Callable[[str], int]:
    """A whole number.

    >>> whole(1, 2_000)("1,000")
    1000
    """

    def parse(text: str) -> int:
        try:
            number = int(text.replace(",", "").replace("_", ""))
        except ValueError:
            raise ArgumentTypeError(f"{text!r} is not a whole number") from None
        if not least <= number <= most:
            raise ArgumentTypeError(f"must be from {least:,} to {most:,}, not {number:,}")
        return number

    return parse


def several(parse_one: Callable[[str], int]) -> Callable[[str], list[int]]:
    """Numbers with commas between them.

    >>> several(whole(1, 100))("1,2,50")
    [1, 2, 50]
    """
    return lambda text: [parse_one(part) for part in text.split(",")]


def seconds(least: float, most: float) -> Callable[[str], float]:
    """A time.

    >>> seconds(0.1, 60)("0.5")
    0.5
    """

    def parse(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            raise ArgumentTypeError(f"{text!r} is not a number of seconds") from None
        if not least <= number <= most:
            raise ArgumentTypeError(f"must be from {least:g} to {most:g} seconds, not {text}")
        return number

    return parse


def local_address(text: str) -> str:
    """An address to bind to: ``host:port``, or ``:port`` for all interfaces."""
    try:
        parse_address(text)
    except a3m.BadAddress as error:
        raise ArgumentTypeError(str(error)) from None
    return text


def remote_address(default_port: int) -> Callable[[str], str]:
    """An address to reach: ``host:port``, or ``host`` alone for the default port.

    >>> remote_address(5757)("10.0.0.1")
    '10.0.0.1:5757'
    """

    def parse(text: str) -> str:
        whole_text = text if ":" in text else f"{text}:{default_port}"
        try:
            host, port = parse_address(whole_text)
        except a3m.BadAddress as error:
            raise ArgumentTypeError(str(error)) from None
        if not host or not port:
            raise ArgumentTypeError(f"{text!r} names no host and port; write 'host:port' as the server shows it")
        return whole_text

    return parse
