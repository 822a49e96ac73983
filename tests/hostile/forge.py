"""Datagrams that no correct node sends, or not in that place: noise, damage, replays and forgeries.

The attacker is *blind*: it knows every name, may know epochs and may have seen the traffic of earlier lives, but it
receives nothing of what is sent to others, so it never learns the tag that would prove it to be somebody.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from zlib import crc32

import msgpack

from exon import packing
from exon.frames import Ack, ClosedFrame, Frame, Gone, Probe, Probed, Refused, ReqSlots, Slice, Slots, TokenFrame
from exon.wire import MAGIC, MAX_NUMBER, VERSION, Header, encode, encode_frame

FORGED = b"forged"  # in the payload of everything that must never be delivered
_PREFIX = 10
_EDGES = (0, 1, 2, 3, 15, 16, 255, 65536, 2**31 - 1, 2**32, 2**62, MAX_NUMBER - 1, MAX_NUMBER)


def repair(datagram: bytes) -> bytes:
    """Make length and checksum right again, so that damage gets past them."""
    body = datagram[_PREFIX:]
    start = datagram[:4] + min(len(body), 65535).to_bytes(2, "big")
    return start + crc32(body, crc32(start)).to_bytes(4, "big") + body


def damage(datagram: bytes, dice: Random) -> bytes:
    """Change, cut, lengthen or mix up some bytes."""
    data = bytearray(datagram)
    for _ in range(dice.randint(1, 4)):
        at = dice.randrange(len(data)) if data else 0
        match dice.randrange(5):
            case 0 | 1 if data:
                data[at] ^= dice.randint(1, 255)
            case 2:
                del data[at:]
            case 3:
                data[at:at] = dice.randbytes(dice.randint(1, 8))
            case _:
                end = at + dice.randint(1, 16)
                data += data[at:end]
    return bytes(data)


class Forger:
    """An endless supply of hostile datagrams for one node.

    Args:
        seed: Decides everything, together with what is recorded.
        target: The node's id.
        friend: The id of a real peer of it.
        epochs: Epochs that really are, or were, in use.
        recorded: Datagrams of earlier lives of both.
        live: Datagrams that the friend has just sent; may grow and change meanwhile.
    """

    def __init__(
        self,
        seed: int,
        target: str,
        friend: str,
        epochs: Sequence[int],
        recorded: Sequence[bytes],
        live: Sequence[bytes],
    ) -> None:
        self._dice = Random(seed)
        self._target = target
        self._friend = friend
        self._epochs = epochs
        self._recorded = recorded
        self._live = live
        self.kinds: dict[str, Callable[[], bytes]] = {
            "noise": self.noise,
            "damaged": self.damaged,
            "damaged, checksum repaired": self.repaired,
            "replayed": self.replayed,
            "replayed live": self.replayed_live,
            "damaged live": self.damaged_live,
            "forged": self.forged,
            "forged friend": self.forged_friend,
            "forged request": self.forged_request,
        }
        self._names = list(self.kinds)

    def next(self) -> tuple[str, bytes]:
        """Another one, and its kind."""
        kind = self._dice.choice(self._names)
        return kind, self.kinds[kind]()

    # -- without understanding ---------------------------------------------------------------------------------------

    def noise(self) -> bytes:
        dice = self._dice
        size = dice.choice((0, 1, 9, 10, 11, dice.randint(0, 200), dice.randint(0, 1500)))
        start = dice.choice((b"", MAGIC, MAGIC + bytes((VERSION,)), MAGIC + bytes((VERSION, 0))))
        data = start + dice.randbytes(size)
        return repair(data) if len(data) >= _PREFIX and dice.random() < 0.3 else data

    def damaged(self) -> bytes:
        return damage(self._dice.choice(self._recorded), self._dice)

    def repaired(self) -> bytes:
        return repair(damage(self._dice.choice(self._recorded), self._dice))

    def replayed(self) -> bytes:
        return self._dice.choice(self._recorded)

    def replayed_live(self) -> bytes:
        return self._pick_live() or self.replayed()

    def damaged_live(self) -> bytes:
        """Damage that is seen: with a repaired checksum it would be no accident but somebody on the path."""
        live = self._pick_live()
        if not live:
            return self.damaged()
        at = self._dice.randrange(len(live))
        return live[:at] + bytes((live[at] ^ self._dice.randint(1, 255),)) + live[at + 1 :]

    def _pick_live(self) -> bytes:
        try:
            return self._dice.choice(self._live)
        except IndexError:  # nothing yet, or it shrank at this moment
            return b""

    # -- with understanding ------------------------------------------------------------------------------------------

    def forged(self) -> bytes:
        """Anything well-formed, from anybody."""
        dice = self._dice
        stranger = f"stranger-{dice.randrange(2**32)}"
        source = dice.choice((self._friend, self._target, stranger, "x" * 255, "\N{SNOWMAN}"))
        destination = self._target if dice.random() < 0.9 else dice.choice((self._friend, "nobody"))
        return self._datagram(source, destination, self._epoch(), [self.frame() for _ in range(dice.randint(0, 6))])

    def forged_friend(self) -> bytes:
        """What the friend might have sent, were it not for the proof."""
        frames = [self.frame() for _ in range(self._dice.randint(1, 3))]
        return self._datagram(self._friend, self._target, self._dice.choice(self._epochs), frames)

    def forged_request(self) -> bytes:
        """The one thing that a stranger may ask for."""
        dice = self._dice
        source = self._friend if dice.random() < 0.2 else f"stranger-{dice.randrange(2**32)}"
        start = self._number()
        request = ReqSlots(start, dice.choice((1, 16, 8192, MAX_NUMBER, self._number())), min(start, self._number()))
        header = self._header(source, self._target, self._epoch() or 1, 0)
        return encode(header, [encode_frame(request)] * dice.choice((1, 1, 1, 20)))

    def _datagram(self, source: str, destination: str, epoch: int, frames: list[Frame]) -> bytes:
        dice = self._dice
        header = self._header(source, destination, epoch, dice.choice((0, self._epoch(), dice.choice(self._epochs))))
        encoded = [encode_frame(frame) for frame in frames]
        if dice.random() < 0.1:
            encoded.append(dice.choice((msgpack.packb([99, 1, 2]), msgpack.packb([]), msgpack.packb("frame"), b"\xc1")))
        return encode(header, encoded, dice.choice((0, 0, 1, 255)), dice.choice((0, 0, 0, 1200)))

    def _header(self, source: str, destination: str, epoch: int, destination_epoch: int) -> Header:
        dice = self._dice
        return Header(
            source=source,
            destination=destination,
            source_epoch=epoch,
            destination_epoch=destination_epoch,
            tag=self._number(),
            proof=self._number(),
            time=dice.choice((0, 1, MAX_NUMBER, self._number())),
            echo=dice.choice((0, 1, MAX_NUMBER, self._number())),
            delay=self._number(),
        )

    def _epoch(self) -> int:
        dice = self._dice
        return dice.choice((dice.choice(self._epochs), dice.randint(1, 100), dice.randrange(1, 2**63), MAX_NUMBER))

    def _number(self) -> int:
        dice = self._dice
        return dice.choice((dice.choice(_EDGES), dice.randrange(100), dice.getrandbits(dice.randint(1, 63))))

    def frame(self) -> Frame:
        """Any frame, with any numbers."""
        dice, number = self._dice, self._number
        match dice.randrange(12):
            case 0 | 1:
                return ReqSlots(number(), number(), number())
            case 2:
                return Slots(number(), number(), number(), number())
            case 3 | 4:
                return TokenFrame(number(), number(), self._payload())
            case 5:
                ranges = (sorted((number(), number())) for _ in range(dice.randint(0, 8)))
                return Ack(number(), number(), tuple((start, stop) for start, stop in ranges))
            case 6:
                return ClosedFrame(number())
            case 7:
                return Refused(dice.choice((number(), dice.choice(self._epochs))))
            case 8:
                return Gone(number())
            case 9:
                total = dice.randint(len(FORGED), 65507)
                return Slice(number(), number(), dice.randint(0, total - len(FORGED)), total, FORGED)
            case 10:
                return Probe(number())
            case _:
                return Probed(number())

    def _payload(self) -> bytes:
        dice = self._dice
        fragment = packing.Fragment(self._number(), self._number(), self._number(), FORGED)
        return dice.choice(
            (packing.pack([FORGED]), packing.pack_fragment(fragment), FORGED, bytes((dice.randrange(256),)))
        )
