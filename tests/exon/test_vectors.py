"""The golden vectors and the worked example of ``docs/protocol.md``: the bytes are fixed, both ways."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from exon import packing
from exon.packing import BadPacking, Fragment
from exon.plain import is_plain, read_short
from exon.wire import (
    CLOSING,
    SHORT,
    Header,
    Malformed,
    decode,
    encode,
    encode_frame,
    is_short,
    seal_short,
)
from tests.vectors import generate
from tests.vectors.generate import frame_from_json, frame_to_json

VECTORS = Path(generate.__file__).parent
PROTOCOL = Path(__file__).parents[2] / "docs" / "protocol.md"


def load(name: str) -> list[dict[str, Any]]:
    loaded: list[dict[str, Any]] = json.loads((VECTORS / name).read_text(encoding="ascii"))
    return loaded


def named(vectors: list[dict[str, Any]]) -> list[Any]:
    return [pytest.param(vector, id=vector.get("name")) for vector in vectors]


VALID = [*load("frames.json"), *load("headers.json")]


@pytest.mark.parametrize("vector", named(VALID))
def test_encode(vector: dict[str, Any]) -> None:
    frames = [encode_frame(frame_from_json(form)) for form in vector["frames"]]
    data = encode(Header(**vector["header"]), frames, vector["flags"], vector["size"])
    assert data.hex() == vector["datagram"]


@pytest.mark.parametrize("vector", named(VALID + load("tolerated.json")))
def test_decode(vector: dict[str, Any]) -> None:
    decoded = decode(bytes.fromhex(vector["datagram"]))
    assert decoded.header._asdict() == vector["header"]
    assert json.loads(json.dumps([frame_to_json(frame) for frame in decoded.frames])) == vector["frames"]
    assert decoded.flags == vector.get("flags", 0)
    assert decoded.skipped == vector.get("skipped", 0)


@pytest.mark.parametrize("vector", named(load("short.json")))
def test_short(vector: dict[str, Any]) -> None:
    frames = [frame_from_json(form) for form in vector["frames"]]
    time, echo, delay = vector["times"]
    data = bytes.fromhex(vector["datagram"])
    assert seal_short(vector["proof"], (time, echo, delay), list(map(encode_frame, frames)), vector["flags"]) == data
    assert is_short(data)
    decoded = read_short(data)
    assert decoded[:4] == (vector["proof"], time % 2**32, echo % 2**32, min(delay, 2**32 - 1))
    assert decoded.flags == vector["flags"] | SHORT
    assert decoded.frames == frames


@pytest.mark.parametrize("vector", named(load("plain.json")))
def test_plain(vector: dict[str, Any]) -> None:
    frames = [frame_from_json(form) for form in vector["frames"]]
    time, echo, delay = vector["times"]
    data = bytes.fromhex(vector["datagram"])
    assert generate.plain(vector["proof"], (time, echo, delay), frames, vector["flags"] & CLOSING) == data
    assert is_plain(data)
    decoded = read_short(data)
    assert decoded[:4] == (vector["proof"], time % 2**32, echo % 2**32, min(delay, 2**32 - 1))
    assert decoded.flags == vector["flags"]
    assert decoded.frames == frames


@pytest.mark.parametrize("vector", load("malformed.json"), ids=lambda vector: vector["reason"])
def test_malformed(vector: dict[str, str]) -> None:
    with pytest.raises(Malformed) as caught:
        decode(bytes.fromhex(vector["datagram"]))
    assert caught.value.reason == vector["reason"]


@pytest.mark.parametrize("vector", load("payloads.json"))
def test_payloads(vector: dict[str, Any]) -> None:
    payload = bytes.fromhex(vector["payload"])
    if "messages" in vector:
        messages = list(map(bytes.fromhex, vector["messages"]))
        assert packing.unpack(payload) == messages
        assert packing.pack(messages) == payload
    elif "fragment" in vector:
        fragment = Fragment(**{**vector["fragment"], "chunk": bytes.fromhex(vector["fragment"]["chunk"])})
        assert packing.unpack_fragment(payload) == fragment
        assert packing.pack_fragment(fragment) == payload
    else:
        with pytest.raises(BadPacking):
            (packing.unpack if payload[0] == packing.DELIVER else packing.unpack_fragment)(payload)


def test_there_is_a_vector_for_every_frame_and_every_reason() -> None:
    assert {form["frame"] for vector in load("frames.json") for form in vector["frames"]} == set(generate.KINDS)
    reasons = {vector["reason"] for vector in load("malformed.json")}
    assert reasons == {"short", "magic", "version", "truncated", "checksum", "encoding", "header", "frame"}


@pytest.mark.parametrize("name", generate.FILES)
def test_the_files_are_what_the_generator_writes(name: str) -> None:
    assert load(name) == json.loads(json.dumps(generate.FILES[name]()))


# -- the example in the specification ---------------------------------------------------------------------------------


def example() -> bytes:
    """The hexadecimal column of the worked example."""
    text = PROTOCOL.read_text(encoding="utf-8")
    block = re.search(r"<!-- example -->\n```text\n(.*?)```", text, re.DOTALL)
    assert block is not None
    columns = (line[:36] for line in block.group(1).splitlines())
    return bytes.fromhex("".join(columns))


def test_the_worked_example_is_what_the_encoder_writes() -> None:
    by_name = {vector["name"]: vector for vector in load("frames.json")}
    assert example().hex() == by_name["worked example"]["datagram"]
    assert len(decode(example()).frames) == 2


def test_the_specification_names_every_reason_and_every_frame() -> None:
    text = PROTOCOL.read_text(encoding="utf-8")
    sources = [path.read_text(encoding="utf-8") for path in Path(packing.__file__).parent.glob("*.py")]
    counted = re.findall(r'dropped\["([a-z ]+)"\]', "".join(sources))
    reasons = {vector["reason"] for vector in load("malformed.json")} | set(counted)
    assert "impossible token" in reasons
    assert [reason for reason in sorted(reasons) if f"| `{reason}` |" not in text] == []
    assert all(f"### {name}\n" in text for name in generate.KINDS)
