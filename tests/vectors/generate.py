"""Write the golden vectors: ``python -m tests.vectors.generate``.

The vectors are part of the protocol. Running this must change nothing; a difference is another version of the protocol
and needs another version number in the prefix. ``docs/protocol.md`` says what the fields are.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any
from zlib import crc32

import msgpack

from exon import packing
from exon.frames import (
    Ack,
    ClosedFrame,
    Frame,
    Gone,
    Probe,
    Probed,
    Refused,
    ReqSlots,
    Slice,
    Slots,
    TokenFrame,
)
from exon.packing import Fragment
from exon.plain import ACK, TOKEN, WIDE, seal
from exon.wire import (
    CLOSING,
    MAX_NUMBER,
    SHORT,
    VERSION,
    Header,
    encode,
    encode_frame,
    seal_short,
)

HERE = Path(__file__).parent
HEADER = Header("a", "b", 11, 22, 33, 44, 55, 66, 77)
EXAMPLE = Header("alice", "bob", 1000, 70000, 90, 2**40, 2_000_000, 1_999_000, 250)
NAMES: dict[type, str] = {
    ReqSlots: "REQSLOTS",
    Slots: "SLOTS",
    TokenFrame: "TOKEN",
    Ack: "ACK",
    ClosedFrame: "CLOSED",
    Refused: "REFUSED",
    Gone: "GONE",
    Slice: "SLICE",
    Probe: "PROBE",
    Probed: "PROBED",
}
KINDS = {name: kind for kind, name in NAMES.items()}


# -- the JSON form ----------------------------------------------------------------------------------------------------


def frame_to_json(frame: Frame) -> dict[str, Any]:
    """A frame by name; bytes as hex, ranges as half-open pairs."""
    fields = {name: value.hex() if type(value) is bytes else value for name, value in frame._asdict().items()}
    return {"frame": NAMES[type(frame)], **fields}


def frame_from_json(form: dict[str, Any]) -> Frame:
    """The reverse of :func:`frame_to_json`."""
    fields = {name: value for name, value in form.items() if name != "frame"}
    for name in fields.keys() & {"payload", "chunk"}:
        fields[name] = bytes.fromhex(fields[name])
    if "ranges" in fields:
        fields["ranges"] = tuple((start, stop) for start, stop in fields["ranges"])
    made: Frame = KINDS[form["frame"]](**fields)
    return made


def valid(name: str, header: Header, *frames: Frame, flags: int = 0, size: int = 0) -> dict[str, Any]:
    """A datagram that every implementation must write and read like this."""
    return {
        "name": name,
        "datagram": encode(header, map(encode_frame, frames), flags, size).hex(),
        "flags": flags,
        "size": size,
        "header": header._asdict(),
        "frames": [frame_to_json(frame) for frame in frames],
    }


# -- what there is ----------------------------------------------------------------------------------------------------


def frames() -> list[dict[str, Any]]:
    """Every kind of frame, with small and with large numbers."""
    top = MAX_NUMBER
    return [
        valid("REQSLOTS", HEADER, ReqSlots(5, 16, 3)),
        valid("REQSLOTS that closes", HEADER, ReqSlots(300, 0, 300)),
        valid("REQSLOTS with the largest numbers", HEADER, ReqSlots(top, top, top)),
        valid("SLOTS", HEADER, Slots(5, 40, 16, 4194304)),
        valid("SLOTS that asks whether the record is needed", HEADER, Slots(21, 40, 0, 0)),
        valid("SLOTS with the largest numbers", HEADER, Slots(top, top, top, top)),
        valid("TOKEN with one message", HEADER, TokenFrame(5, 40, packing.pack([b"hello"]))),
        valid("TOKEN with three messages, one empty", HEADER, TokenFrame(6, 40, packing.pack([b"a", b"", b"c" * 300]))),
        valid(
            "TOKEN with a fragment", HEADER, TokenFrame(8, 40, packing.pack_fragment(Fragment(7, 2, 513, b"z" * 257)))
        ),
        valid("TOKEN with the largest numbers", HEADER, TokenFrame(top, top, packing.pack([b"x"]))),
        valid("ACK", HEADER, Ack(40, 4194304, ((5, 8), (9, 10)))),
        valid("ACK of nothing, about the window", HEADER, Ack(40, 0, ())),
        valid("ACK with the largest numbers", HEADER, Ack(top, top, ((top, 2 * top),))),
        valid("ACK with the most ranges", HEADER, Ack(40, 0, tuple((2 * s, 2 * s + 1) for s in range(128)))),
        valid("CLOSED", HEADER, ClosedFrame(300)),
        valid("REFUSED", HEADER, Refused(22)),
        valid("GONE", HEADER, Gone(40)),
        valid("SLICE, the first", HEADER, Slice(5, 40, 0, 9, b"\x00\x91\xc4\x05he")),
        valid("SLICE, the last", HEADER, Slice(5, 40, 6, 9, b"llo")),
        valid("PROBE", HEADER, Probe(200), size=200),
        valid("PROBED", HEADER, Probed(1452)),
        valid("worked example", EXAMPLE, Ack(40, 4194304, ((5, 8), (9, 10))), TokenFrame(5, 1, packing.pack([b"hi"]))),
        valid(
            "several frames", HEADER, Ack(40, 9, ((5, 8),)), ReqSlots(5, 16, 3), TokenFrame(5, 1, packing.pack([b"m"]))
        ),
        valid("sixteen elements in the array", HEADER, *[Gone(r) for r in range(9)]),
    ]


def headers() -> list[dict[str, Any]]:
    """Headers at their limits."""
    top = MAX_NUMBER
    return [
        valid("no frames", HEADER),
        valid(
            "destination epoch not known",
            HEADER._replace(destination_epoch=0, proof=0, echo=0, delay=0),
            ReqSlots(0, 17, 0),
        ),
        valid("closing", HEADER, Slots(21, 40, 0, 0), flags=CLOSING),
        valid("flags of the future", HEADER, Gone(1), flags=0xFC),
        valid("the largest numbers", Header("a", "b", top, top, top, top, top, top, top)),
        valid("widths of numbers", Header("a", "b", 127, 128, 255, 256, 65535, 65536, 2**32 - 1)),
        valid("more widths of numbers", Header("a", "b", 2**32, 2**53, 2**53 + 1, 2**62, 0, 1, 2)),
        valid("ids that are not ASCII", HEADER._replace(source="sensor-\u00b5", destination="\u4e2d\u5fc3")),
        valid("ids of 31 and 32 bytes", HEADER._replace(source="s" * 31, destination="d" * 32)),
        valid("ids of 255 bytes", HEADER._replace(source="s" * 255, destination="\u20ac" * 85)),
        valid("an id that looks like a number", HEADER._replace(source="7", destination="\x00")),
    ]


def _raw(*values: object, version: int = VERSION, after: bytes = b"") -> bytes:
    body: bytes = msgpack.packb(list(values))
    start = struct.pack(">2sBBH", b"EX", version, 0, len(body))
    return start + crc32(start + body + after).to_bytes(4, "big") + body + after


def shorts() -> list[dict[str, Any]]:
    """Datagrams with short headers; of times only the lowest 32 bits are written, and a long delay is the longest."""
    token, ack = TokenFrame(5, 40, packing.pack([b"hello"])), Ack(40, 4194304, ((5, 8), (9, 10)))
    cases: list[tuple[str, int, tuple[int, int, int], list[Frame], int]] = [
        ("a token", 44, (55, 66, 77), [token], 0),
        ("an acknowledgement and a token", 2**40, (2_000_000, 1_999_000, 250), [ack, token], 0),
        ("nothing, closing", 44, (55, 66, 77), [], CLOSING),
        ("the largest proof, and times that are cut", MAX_NUMBER, (2**40 + 7, 2**33 + 9, 2**40), [ack], 0),
        ("sixteen frames", 44, (55, 66, 77), [Gone(r) for r in range(16)], 0),
    ]
    return [
        {
            "name": name,
            "datagram": seal_short(proof, times, list(map(encode_frame, frames)), flags).hex(),
            "flags": flags,
            "proof": proof,
            "times": list(times),
            "frames": [frame_to_json(frame) for frame in frames],
        }
        for name, proof, times, frames, flags in cases
    ]


def plains() -> list[dict[str, Any]]:
    """Plain datagrams: one acknowledgement, one token, or both, with narrow and with wide numbers."""
    token, large = TokenFrame(5, 40, packing.pack([b"hello"])), TokenFrame(2**32, 2**40, packing.pack([b""]))
    fragment = TokenFrame(8, 40, packing.pack_fragment(Fragment(7, 2, 513, b"z" * 257)))
    top = TokenFrame(MAX_NUMBER, MAX_NUMBER, packing.pack([b"x", b"y"]))
    ack, far = Ack(40, 4194304, ((5, 8), (9, 10))), Ack(MAX_NUMBER - 1, 0, ((2**40, 2**40 + 2**32 - 1),))
    cases: list[tuple[str, int, tuple[int, int, int], list[Frame], int]] = [
        ("a token", 44, (55, 66, 77), [token], 0),
        ("an acknowledgement", 44, (55, 66, 77), [ack], 0),
        ("an acknowledgement and a token", 2**40, (2_000_000, 1_999_000, 250), [ack, token], 0),
        ("an acknowledgement of nothing", 44, (55, 66, 77), [Ack(40, 9, ())], 0),
        (
            "an acknowledgement with the most ranges",
            44,
            (1, 2, 3),
            [Ack(40, 9, tuple((4 * i, 4 * i + 2) for i in range(32)))],
            0,
        ),
        ("a fragment", 44, (55, 66, 77), [fragment], 0),
        ("closing", 44, (55, 66, 77), [ack, token], CLOSING),
        ("a token with wide numbers", 44, (55, 66, 77), [large], 0),
        ("an acknowledgement with wide numbers", 44, (55, 66, 77), [far], 0),
        (
            "both, with the largest numbers, and times that are cut",
            MAX_NUMBER,
            (2**40 + 7, 2**33 + 9, 2**40),
            [far, top],
            0,
        ),
    ]
    return [
        {
            "name": name,
            "datagram": plain(proof, times, frames, flags).hex(),
            "flags": plain(proof, times, frames, flags)[3],
            "proof": proof,
            "times": list(times),
            "frames": [frame_to_json(frame) for frame in frames],
        }
        for name, proof, times, frames, flags in cases
    ]


def plain(proof: int, times: tuple[int, int, int], frames: list[Frame], flags: int = 0) -> bytes:
    """A plain datagram with these frames."""
    time, echo, delay = times
    numbers = [proof, time % 2**32, echo % 2**32, min(delay, 2**32 - 1)]
    flags |= SHORT
    ranges, payload, wide = 0, b"\0", False
    for frame in frames:
        if isinstance(frame, Ack):
            flags |= ACK
            ranges = len(frame.ranges)
            numbers += frame.r, frame.window, ranges
            for start, stop in frame.ranges:
                numbers += start, stop - start
            wide = wide or max(frame.r, *[start for start, _ in frame.ranges], 0) >= 2**32
        else:
            assert isinstance(frame, TokenFrame)
            flags |= TOKEN
            payload = frame.payload
            numbers += frame.s, frame.r, payload[0]
            wide = wide or max(frame.s, frame.r) >= 2**32
    return seal(flags | WIDE if wide else flags, ranges, numbers, b"", payload[1:])


def tolerated() -> list[dict[str, Any]]:
    """What this version does not write but must read."""
    cases: list[tuple[str, bytes, int]] = [
        ("a frame of an unknown kind", _raw(*HEADER, [99, "anything", {"x": 1.5}], [7, 1]), 1),
        ("negative and large kinds", _raw(*HEADER, [-1], [2**64 - 1], [0], [7, 1]), 3),
        ("bytes after the body that are not zero", _raw(*HEADER, [7, 1], after=b"\xff\xee"), 0),
        ("numbers in more bytes than needed", _wide(), 0),
    ]
    header = HEADER._asdict()
    gone = [{"frame": "GONE", "r": 1}]
    return [
        {"name": name, "datagram": data.hex(), "skipped": skipped, "header": header, "frames": gone}
        for name, data, skipped in cases
    ]


def _wide() -> bytes:
    """The body of ``HEADER`` and ``Gone(1)`` with every number as a 64-bit one and the array as a 32-bit one."""
    body = b"\xdd\x00\x00\x00\x0a\xd9\x01a\xd9\x01b"
    body += b"".join(b"\xcf" + number.to_bytes(8, "big") for number in HEADER[2:])
    body += b"\xdc\x00\x02\xd3" + (7).to_bytes(8, "big") + b"\xcf" + (1).to_bytes(8, "big")
    start = struct.pack(">2sBBH", b"EX", VERSION, 0, len(body))
    return start + crc32(start + body).to_bytes(4, "big") + body


def malformed() -> list[dict[str, str]]:
    """What must be refused, and under which name."""
    good = encode(HEADER, [encode_frame(Gone(1))])
    flipped = good[:-1] + bytes([good[-1] ^ 1])
    limit = 2**63
    cases: list[tuple[str, bytes]] = [
        ("short", b""),
        ("short", good[:9]),
        ("magic", b"XE" + good[2:]),
        ("version", _raw(*HEADER, version=1)),
        ("truncated", good[:10]),
        ("truncated", good[:-1]),
        ("checksum", flipped),
        ("checksum", good[:6] + bytes(4) + good[10:]),
        ("checksum", good + b"\x00"),
        ("encoding", _body(b"")),
        ("encoding", _body(b"\xc1")),
        ("encoding", _body(b"\xdd\xff\xff\xff\xff")),
        ("encoding", _body(good[10:-1])),
        ("encoding", _body(good[10:] + b"\x00")),
        ("encoding", _body(b"\x99\xa1\xff\xa1b\x01" + bytes(6))),
        ("header", _raw(*HEADER[:8])),
        ("header", _body(b"\x05")),
        ("header", _raw("", *HEADER[1:])),
        ("header", _raw("s" * 256, *HEADER[1:])),
        ("header", _raw(b"a", *HEADER[1:])),
        ("header", _raw("a", "b", 0, *HEADER[3:])),
        ("header", _raw("a", "b", 1, limit, *HEADER[4:])),
        ("header", _raw("a", "b", 1, -1, *HEADER[4:])),
        ("header", _raw("a", "b", 1, 1.0, *HEADER[4:])),
        ("header", _raw("a", "b", 1, True, *HEADER[4:])),
        ("frame", _raw(*HEADER, 7)),
        ("frame", _raw(*HEADER, [])),
        ("frame", _raw(*HEADER, ["7", 1])),
        ("frame", _raw(*HEADER, [1, 1, 1])),
        ("frame", _raw(*HEADER, [1, 1, limit, 1])),
        ("frame", _raw(*HEADER, [2, 1, 1, 1])),
        ("frame", _raw(*HEADER, [3, 1, 1, b""])),
        ("frame", _raw(*HEADER, [3, 1, 1, "text"])),
        ("frame", _raw(*HEADER, [4, 1, 1, [1]])),
        ("frame", _raw(*HEADER, [4, 1, 1, [1, -1]])),
        ("frame", _raw(*HEADER, [4, 1, 1, 1, 1])),
        ("frame", _raw(*HEADER, [4, 1, 1, [0] * 258])),
        ("frame", _raw(*HEADER, [5, -1])),
        ("frame", _raw(*HEADER, [6])),
        ("frame", _raw(*HEADER, [7, 1, 1])),
        ("frame", _raw(*HEADER, [8, 1, 1, 0, 3, b""])),
        ("frame", _raw(*HEADER, [8, 1, 1, 1, 3, b"abc"])),
        ("frame", _raw(*HEADER, [8, 1, 1, 0, 65508, b"abc"])),
        ("frame", _raw(*HEADER, [9, None])),
        ("frame", _raw(*HEADER, [10, 1.5])),
        ("frame", _raw(*HEADER, [7, 1], [7])),
    ]
    return [{"reason": reason, "datagram": data.hex()} for reason, data in cases]


def _body(body: bytes) -> bytes:
    start = struct.pack(">2sBBH", b"EX", VERSION, 0, len(body))
    return start + crc32(start + body).to_bytes(4, "big") + body


def payloads() -> list[dict[str, Any]]:
    """What is inside tokens."""
    chunk = b"z" * 256
    good: list[dict[str, Any]] = [
        {"payload": packing.pack(messages).hex(), "messages": [message.hex() for message in messages]}
        for messages in ([b"hello"], [b""], [b"a", b"b" * 255, b"c" * 256], [b"x"] * 16)
    ]
    good += [
        {
            "payload": packing.pack_fragment(fragment).hex(),
            "fragment": {**fragment._asdict(), "chunk": chunk.hex()},
        }
        for fragment in (Fragment(7, 2, 512, chunk), Fragment(MAX_NUMBER, 3, 70000, chunk))
    ]
    bad = [
        b"\x00",
        b"\x00\x90",
        b"\x00\x91\xa1x",
        b"\x00\x05",
        b"\x01",
        b"\x01" + struct.pack(">QQQ", 0, 2, 512),
    ]
    fields = [(0, 1, 512), (0, 4, 512), (0, 2, 256), (2**63, 2, 512), (0, 2, 2**63)]
    bad += [b"\x01" + struct.pack(">QQQ", *numbers) + chunk for numbers in fields]
    return good + [{"payload": payload.hex(), "bad": True} for payload in bad]


FILES = {
    "frames.json": frames,
    "headers.json": headers,
    "short.json": shorts,
    "plain.json": plains,
    "tolerated.json": tolerated,
    "malformed.json": malformed,
    "payloads.json": payloads,
}


def main() -> None:
    """Write every file."""
    for name, make in FILES.items():
        (HERE / name).write_text(json.dumps(make(), indent=1) + "\n", encoding="ascii")


if __name__ == "__main__":
    main()
