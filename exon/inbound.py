"""The receiving side from one life (epoch) of one peer: what is owed to it, and what is only half here.

Like :mod:`exon.outbound` it decides *when*, never *whether*: slots and verdicts are the record's.
"""

from __future__ import annotations

from collections import deque

from attrs import Factory, define

from exon.addresses import Address
from exon.frames import Ack, Frame, Slice
from exon.intervals import IntervalSet
from exon.options import Options
from exon.packing import FRAGMENT_HEAD, Assembly, BadPacking, Fragment
from exon.records import ReceiveRecord
from exon.wire import LOW, encode_frame

_MOST_RANGES = 24  # in one acknowledgement, and said again; the newest, because older ones were said before
_MOST_FRAMES = 32  # of acknowledgements at a time
_MOST_OWED = 64  # incarnations to be acknowledged at a time
_MOST_NUMBERS = 65536  # tokens of each; the others come again
_EVERY = 2  # datagrams: as often as that where round trips are short
_SELDOM = 64  # datagrams: as seldom as that where they are paced, unless time or a gap asks for it
_OVERTAKEN = 3  # datagrams after which what they overtook is lost (see recovery), so the sender should know
_MOST_REPLIES = 16  # waiting to leave; more would only be repetitions
_MOST_PROBE = 60.0
_UNANSWERED = 4  # probes in a row after which the address is no longer believed: an idle sender closes before that
_UNPROVEN_PROBES = 5
_MOST_TAGS = 8  # moves of a peer while something that we sent to an earlier address may still reach it
_MAX_SLICED = 16  # tokens being put together from slices at a time
CLOSE_PROBES = 5  # unanswered ones after which a closing node lets a record be


@define(eq=False)
class Sliced:
    """A token that comes in slices."""

    total: int
    here: IntervalSet = Factory(IntervalSet)
    data: bytearray = Factory(bytearray)


class Inbound:
    """One life of one peer, as a source."""

    def __init__(self, epoch: int, address: Address, options: Options, now: float) -> None:
        """Heard for the first time, from ``address``."""
        self.epoch = epoch
        self.address = address
        self.newest = 0  # the highest timestamp seen, to be echoed
        self.arrived = now
        self.heard = now  # when any datagram last came
        self.proven = False  # whether it has shown to receive what we send
        self.doubtful = 0  # when its record was made for a request that proved nothing, while nothing came since
        self.proof = 0  # the tag it gave us last
        self.tagged: Address | None = None  # the address that our tag is for
        self.tag = 0
        self.shown = 0  # the tag it showed last: until it hears from us again, it has no other
        self._old_tags: deque[int] = deque(maxlen=_MOST_TAGS)  # for the addresses it was at before
        self.written: tuple[int, int] | None = None  # the tag and the proof in our headers to it
        self.written_at = 0  # since which of our times
        self.constant = b""  # the part of those headers that is always the same
        self.echoed = 0  # the highest of our times that it has heard
        self.replies: list[Frame] = []
        self.probes = 0  # asked in a row without being answered
        self.close_probes = 0
        self.last_window = 0  # what the peer was last told there is room for
        self._options = options
        self._acks: dict[int, list[int]] = {}  # by incarnation: tokens to be acknowledged
        self.ack_due: float | None = None  # when an acknowledgement must leave at the latest
        self.told_at = -float("inf")  # when one last did
        self._unanswered = 0
        self._gap = 0  # datagrams until one that is missing is to be told as lost; 0 if none is
        self._highest = -1
        self._probed = now
        self._ask_now = False
        self._assemblies: dict[int, Assembly] = {}
        self._sliced: dict[tuple[int, int], Sliced] = {}

    def hear(self, time: int, source: Address, now: float) -> bool:
        """A datagram came; whether it is the newest so far."""
        self.heard = now
        self.probes = 0
        if time <= self.newest:
            return False
        self.newest = time
        self.arrived = now
        self.address = source
        return True

    def retag(self, address: Address, tag: int) -> None:
        """What it has to show from now on; what it had to show before is good for what is still on the way."""
        self.tagged = address
        self._old_tags.append(self.tag)
        self.tag = tag

    def gave(self, tag: int) -> bool:
        """Whether it may show this tag: the present one, one that was on the way, or the only one it ever got."""
        return tag in (self.tag, self.shown) or tag in self._old_tags

    def reply(self, frame: Frame) -> None:
        """Answer something, with the next datagram."""
        if frame not in self.replies and len(self.replies) < _MOST_REPLIES:
            self.replies.append(frame)

    # -- acknowledgements --------------------------------------------------------------------------------------------

    def owe(self, s: int, r: int, delay: float, now: float) -> None:
        """Token ``(s, r)`` is to be acknowledged, with others, soon."""
        acks = self._acks.get(r)
        if acks is None:
            if len(self._acks) >= _MOST_OWED:
                return  # the token will come again
            acks = self._acks[r] = []
        if len(acks) < _MOST_NUMBERS:
            acks.append(s)
        if self._sliced:
            self._sliced.pop((s, r), None)
        if s > self._highest:
            if s > self._highest + 1 and not self._gap:
                self._gap = _OVERTAKEN
            self._highest = s
        due = now + delay
        if self.ack_due is None or due < self.ack_due:
            self.ack_due = due

    def owe_many(self, start: int, stop: int, r: int, delay: float, now: float) -> None:
        """The same for tokens that came one after the other, in datagrams of their own."""
        self.owe(start, r, delay, now)
        if start + 1 < stop:
            if r in self._acks:  # or too many incarnations are owed, and the tokens will come again
                self._acks[r] += range(start + 1, stop)
            self._highest = max(self._highest, stop - 1)
            for s in range(start + 1, stop) if self._sliced else ():
                self._sliced.pop((s, r), None)

    def owe_answer(self, delay: float, now: float) -> None:
        """Something is to be said about the window or about what arrived, after ``delay`` at the latest."""
        due = now + delay
        if self.ack_due is None or due < self.ack_due:
            self.ack_due = due

    def count_datagrams(self, number: int, paced: bool, now: float) -> None:
        """Datagrams with tokens came: some are answered at once, the others in time (:meth:`owe`).

        Where round trips are long in relation to what an acknowledgement costs, one for a quarter of a round trip is
        enough, and one when something is missing.
        """
        self._unanswered += number
        if self._gap:
            self._gap = max(0, self._gap - number)
            if not self._gap:
                self.ack_due = now
        if self._unanswered >= (_SELDOM if paced else _EVERY):
            self.ack_due = now

    def take_acks(self, record: ReceiveRecord | None, window: int) -> list[bytes]:
        """Everything that is owed, as frames; newest ranges first in importance."""
        self.ack_due = None
        self._unanswered = 0
        self.last_window = window
        taken: list[Ack] = []
        acks, self._acks = self._acks, {}
        if record is not None:
            # What was consumed lately is said again: a lost acknowledgement then costs no retransmission.
            lately = record.slots.gaps(record.base, min(record.sck, self._highest + 1), _MOST_RANGES)
            owed = acks.pop(record.rck, None)
            if owed is None or len(lately) < _MOST_RANGES:  # everything that is owed is among them
                taken = [Ack(record.rck, window, tuple(lately))]
            else:
                taken = _acknowledge(record.rck, window, [*lately, *_ranges(owed)])
        for r, owed in acks.items():
            taken += _acknowledge(r, window, _ranges(owed))
        return list(map(encode_frame, taken))

    def plain_ack(self, record: ReceiveRecord | None, window: int) -> list[int] | None:
        """Everything that is owed as the numbers of a plain datagram: ``r``, ``window``, and ranges; None if it cannot
        be said like that. It is owed until :meth:`said`.
        """
        acks = self._acks
        if record is None or len(acks) > 1 or (acks and record.rck not in acks):
            return None
        start, stop = record.base, self._highest + 1
        stop = min(stop, record.sck)
        lowest = record.slots.lowest
        if lowest is None or lowest >= stop:  # there are no holes
            length = stop - start
            if 0 <= length <= LOW:
                return [record.rck, window, 1, start, length]
        lately = record.slots.gaps(start, stop, _MOST_RANGES)
        if len(lately) == _MOST_RANGES:
            return None
        numbers = [record.rck, window, len(lately)]
        for start, stop in lately:
            numbers += (max(start, stop - LOW), min(stop - start, LOW))
        return numbers

    def said(self, window: int, now: float) -> None:
        """What :meth:`plain_ack` returned has left."""
        self.ack_due = None
        self.told_at = now
        self._unanswered = 0
        self.last_window = window
        self._acks = {}

    # -- large messages ----------------------------------------------------------------------------------------------

    @property
    def reserved(self) -> int:
        """Bytes that messages under reassembly will need."""
        return sum(assembly.total for assembly in self._assemblies.values())

    def begun(self, first: int) -> bool:
        """Whether parts of the message whose first fragment has this number are here."""
        return first in self._assemblies

    def assemble(self, s: int, fragment: Fragment) -> bytes | None:
        """Put a fragment in its place; the message, when that was the last one."""
        index = s - fragment.first
        if not 0 <= index < fragment.parts:
            raise BadPacking
        assembly = self._assemblies.get(fragment.first)
        if assembly is None:
            assembly = self._assemblies[fragment.first] = Assembly(fragment.parts, fragment.total)
        if not assembly.add(index, fragment):
            raise BadPacking
        if not assembly.complete:
            return None
        del self._assemblies[fragment.first]
        return assembly.message()

    def further_part(self, s: int, data: bytes | memoryview) -> int | None:
        """The first number of the message that this fragment, token ``s``, is a part of.

        None if it is the first of them to come, or is not in order, or has no place.
        """
        if len(data) <= FRAGMENT_HEAD.size:
            return None
        numbers: tuple[int, int, int] = FRAGMENT_HEAD.unpack_from(data)
        first, parts, total = numbers
        assembly = self._assemblies.get(first)
        if assembly is None or assembly.parts != parts or assembly.total != total:
            return None
        size = assembly.size + len(data) - FRAGMENT_HEAD.size
        here = assembly.chunks
        if not 0 <= s - first < parts or s - first in here or size > total or (len(here) + 1 == parts and size < total):
            return None
        return first

    def add_part(self, s: int, first: int, data: bytes | memoryview) -> bytes | None:
        """Put in a fragment that :meth:`further_part` found to be one; the message, when that was the last one."""
        assembly = self._assemblies[first]
        assembly.chunks[s - first] = data[FRAGMENT_HEAD.size :]
        assembly.size += len(data) - FRAGMENT_HEAD.size
        if not assembly.complete:
            return None
        del self._assemblies[first]
        return assembly.message()

    def assembly(self, first: int, parts: int, total: int) -> Assembly | None:
        """A message of which parts are here, if there is such a one."""
        assembly = self._assemblies.get(first)
        return assembly if assembly is not None and (assembly.parts, assembly.total) == (parts, total) else None

    def add_parts(self, index: int, first: int, chunks: list[bytes], size: int) -> bytes | None:
        """Put in consecutive parts that the message takes; the message, when those were the last ones."""
        assembly = self._assemblies[first]
        assembly.chunks.update(zip(range(index, index + len(chunks)), chunks, strict=True))
        assembly.size += size
        if not assembly.complete:
            return None
        del self._assemblies[first]
        return assembly.message()

    def closed(self, s: int) -> None:
        """The sender has nothing under way below ``s``: what is incomplete stays so (it was given up there)."""
        for first in [first for first in self._assemblies if first < s]:
            del self._assemblies[first]
        self._sliced.clear()

    def join(self, frame: Slice) -> bytes | None:
        """Put a slice in its place; the token's payload, when that was the last one."""
        key = (frame.s, frame.r)
        sliced = self._sliced.get(key)
        if sliced is None or sliced.total != frame.total:
            if len(self._sliced) >= _MAX_SLICED:
                return None  # it will come again; making room for it would let none of them be completed
            sliced = self._sliced[key] = Sliced(frame.total, data=bytearray(frame.total))
        sliced.data[frame.offset : frame.offset + len(frame.chunk)] = frame.chunk
        sliced.here.add(frame.offset, frame.offset + len(frame.chunk))
        if sliced.here.count < frame.total:
            return None
        del self._sliced[key]
        return bytes(sliced.data)

    # -- time --------------------------------------------------------------------------------------------------------

    def may_ask(self, now: float) -> bool:
        """Whether :meth:`probe_at` may have come; false nearly always, and cheap to find out."""
        return self._ask_now or now >= self.heard + self._options.probe_after

    def probe_at(self, closing: bool) -> float | None:
        """When to ask whether the record is still needed (Algorithm 1, lines 92-93)."""
        if self._ask_now:
            return 0.0
        if not self.proven and self.probes >= _UNPROVEN_PROBES:
            return None  # perhaps somebody forged its address: do not bother whoever is there
        if closing:
            return self._probed + self._options.max_ack_delay * 4 * 2.0 ** min(self.close_probes, CLOSE_PROBES)
        since = max(self.heard, self._probed)
        return since + min(_MOST_PROBE, self._options.probe_after * 2.0 ** min(self.probes, 16))

    def probe(self, closing: bool, now: float) -> None:
        """One is sent."""
        self._ask_now = False
        self._probed = now
        self.probes += 1
        self.close_probes += closing

    @property
    def unanswered(self) -> bool:
        """Whether probes go unanswered: this life may be over, or be somewhere else."""
        return self.probes >= _UNANSWERED

    def ask_now(self) -> None:
        """Probe at once: the path changed, or the node wants to close."""
        self._ask_now = True

    @property
    def settled(self) -> bool:
        """Whether nothing is owed or half here."""
        return not (self._acks or self.replies or self._assemblies or self._sliced) and self.ack_due is None


def _ranges(numbers: list[int]) -> list[tuple[int, int]]:
    return [(number, number + 1) for number in numbers]


def _acknowledge(r: int, window: int, owed: list[tuple[int, int]]) -> list[Ack]:
    """In as many frames as it takes: what is left out now is taken for lost, because later ones are not."""
    ranges = tuple(IntervalSet(owed))[-_MOST_RANGES * _MOST_FRAMES :]
    starts = range(0, len(ranges), _MOST_RANGES)
    return [Ack(r, window, ranges[first : first + _MOST_RANGES]) for first in starts]
