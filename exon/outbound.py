"""The sending side towards one peer: a queue of messages becomes tokens, tokens become datagrams.

All decisions about *safety* are the record's (:mod:`exon.records`); here is only *when*: when to ask for slots, when
to pack, when to send again, when to close. So a mistake here costs time, never a message.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from attrs import define

from exon import packing
from exon.frames import ReqSlots, Slice
from exon.mtu import PathMtu
from exon.options import Options
from exon.records import Records, SendRecord, Token
from exon.recovery import Recovery
from exon.stats import Counters
from exon.wire import encode_frame, encode_token

_RIDE = 96  # bytes of a datagram kept free of payload, so that a request and an acknowledgement can ride along
_TOKEN_HEADER = 1 + 1 + 9 + 9 + 5
_SLICE_HEADER = _TOKEN_HEADER + 9 + 9
_QUICK_TRIES = 2  # that do not make the next one wait longer, because what waits for slots waits for them
_CLOSE_TRIES = 8  # at one loss in five each way, one close in three thousand stays unconfirmed
_SMALL = 1000  # bytes of payload that go into one token, however little room the peer has
_MOST_FRAGMENTS = 48  # made at a time: no more than leave in one train
_ANY_TOKEN = 65536  # bytes: more than any token has
_PROBE_BACKLOG = 1  # datagrams' worth of backlog that make a larger path MTU worth looking for


@define(eq=False)
class Cut:
    """A large message, cut into fragments of which each becomes a token."""

    message: bytes
    chunk: int
    count: int
    view: memoryview  # of the message, to take parts of it without copying
    head: bytes = b""  # what stands in front of each of them
    first: int = -1
    done: int = 0  # fragments made
    acked: int = 0  # fragments done with


class Outbound:
    """Everything that is to reach one peer."""

    def __init__(self, peer: str, overhead: int, options: Options, records: Records, counters: Counters) -> None:
        """``overhead`` is what a datagram's header takes at the most."""
        self.peer = peer
        self.pending_messages = 0  # accepted, not yet acknowledged
        self.pending_bytes = 0
        self.mtu = PathMtu(options.max_datagram)
        self.recovery = Recovery(options.max_backoff)
        self.window = 1 << 30  # what the peer has room for, once it has said so
        self._largest_window = 0
        self.hurry = False  # close as soon as nothing is pending
        self.peer_closes = False  # it said so, and grants no slots any more
        self.unconfirmed = False  # the last close was given up without an answer
        self._overhead = overhead
        self._options = options
        self._records = records
        self._counters = counters
        self._queue: deque[bytes] = deque()
        self._queued_bytes = 0
        self._cut: Cut | None = None
        self._typical = float(_SMALL)  # bytes of payload in a token, lately
        self._has_cut = False  # since the path was asked for more
        self._again: deque[Token] = deque()
        self._slices: deque[bytes] = deque()
        self._sliced: Token | None = None
        self._asked_at: float | None = None  # when slots were asked for, while no answer came
        self._tries = 0
        self._touched = 0.0  # when something last went well
        self._stuck_tries = 0  # in a row
        self._challenged = -float("inf")  # when last
        self._announce = False  # ask for a slot whether it is needed or not, to be heard from where we are now
        self._least_ample, self._most_ample = options.min_standby // 2, options.max_slots // 2
        self._ample = options.max_slots  # envelopes that are enough in any case, unless much is queued
        self._force = False  # one token may go in spite of the windows, to see whether they still hold

    @property
    def record(self) -> SendRecord | None:
        """The half-connection's record, while there is one."""
        return self._records.send.get(self.peer)

    # -- what the application wants ----------------------------------------------------------------------------------

    def has_room(self, size: int) -> bool:
        """Whether a message of ``size`` bytes may be accepted now."""
        options = self._options
        return not self.pending_messages or (
            self.pending_messages < options.send_messages and self.pending_bytes + size <= options.send_bytes
        )

    def accept(self, message: bytes) -> None:
        """Take responsibility for a message."""
        record = self._records.send.get(self.peer)
        if record is None or record.closing:
            self._records.open(self.peer)
            self._ask_anew()
        self._queue.append(message)
        self._queued_bytes += len(message)
        self.pending_messages += 1
        self.pending_bytes += len(message)

    @property
    def unsent_messages(self) -> int:
        """How many of the pending messages were never, not even in part, put into a token."""
        return len(self._queue) + (self._cut is not None and not self._cut.done)

    def unfinished(self) -> Iterator[tuple[bytes, bool]]:
        """The pending messages, and whether any of each was ever put into a token."""
        record = self.record
        tokens = record.tokens.values() if record is not None else ()
        whole = {id(token.whole): token.whole for token in tokens if isinstance(token.whole, Cut)}
        if self._cut is not None:
            whole[id(self._cut)] = self._cut
        for token in tokens:
            if token.whole is None:
                yield from ((message, True) for message in packing.messages_of(token.kind, token.payload))
        yield from ((cut.message, cut.done > 0) for cut in whole.values())
        yield from ((message, False) for message in self._queue)

    @property
    def idle(self) -> bool:
        """Whether nothing waits to be sent or acknowledged."""
        return not self.pending_messages

    # -- what the peer says ------------------------------------------------------------------------------------------

    def on_granted(self, slots: int, window: int, now: float) -> None:
        """An answer to a request came, with so many slots; a receiver's probe looks like one without any."""
        record = self.record
        self.set_window(window)
        self._announce = False
        if record is not None and not record.closing and not record.requested:
            self._ask_anew()
            if slots:  # a probe is no use of the half-connection, or two idle nodes would keep each other awake
                self._touched = now

    def on_acked(self, tokens: list[Token], now: float) -> None:
        """Tokens are done."""
        self.recovery.acked(tokens, now)
        for token in tokens:
            self.pending_messages -= token.messages
            self.pending_bytes -= token.cost
            cut = token.whole
            if isinstance(cut, Cut):
                # A large message is pending until its last fragment is acknowledged, whichever that is.
                cut.acked += 1
                self.pending_messages -= cut.acked == cut.count
        # Half of _standby, without the price of asking for it.
        wanted = int(2 * self.recovery.congestion.window / (self._typical + self._overhead))
        if wanted < self._least_ample:
            wanted = self._least_ample
        self._ample = wanted if wanted < self._most_ample else self._most_ample
        self._touched = now

    def set_window(self, window: int) -> None:
        """The peer has room for so many bytes; what it had to turn away goes again when there is some."""
        if window == self.window and _ANY_TOKEN < window <= self._largest_window and not self._stuck_tries:
            return  # as nearly always
        if min(self.window, window) < self.budget:
            self.repeat(self.recovery.refused())
        self.window = window
        self._largest_window = max(self._largest_window, window)
        if self._stuck_tries and self._fits_window:
            self._stuck_tries = 0

    @property
    def severed(self) -> bool:
        """Whether a large message cannot go on because its numbers would not be consecutive any more."""
        cut, record = self._cut, self.record
        return cut is not None and cut.done > 0 and record is not None and record.env != cut.first + cut.done

    def on_unknown(self, tokens: list[Token], severed: bool, now: float) -> list[bytes]:
        """These tokens were lost with the peer's state; the messages whose fate is unknown."""
        whole = {id(token.whole): token.whole for token in tokens if isinstance(token.whole, Cut)}
        cut = self._cut
        if cut is not None and cut.done and (severed or self.severed or id(cut) in whole):
            # Some of it was sent, the rest need not be.
            whole[id(cut)] = cut
            self._cut = None
            self.pending_bytes -= len(cut.message) - cut.done * cut.chunk
        record = self.record
        if record is not None:
            rest = [token for token in record.tokens.values() if id(token.whole) in whole]
            for token in rest:
                del record.tokens[token.s]
            tokens = tokens + rest
        self.recovery.dropped(tokens)
        unknown: list[bytes] = []
        for token in tokens:
            self.pending_messages -= token.messages
            self.pending_bytes -= token.cost
            if token.whole is None:
                unknown += packing.messages_of(token.kind, token.payload)
        self.pending_messages -= len(whole)
        unknown += [cut.message for cut in whole.values()]
        self._ask_anew()
        self._sliced = None
        self._slices.clear()
        self._touched = now
        return unknown

    def moved(self) -> None:
        """The path is a new one."""
        self._distrust_path()
        self._ask_anew()
        self.recovery.moved()

    def announce(self) -> None:
        """We are somewhere else now: let the peer know, even if there is nothing to send."""
        self._announce = True

    @property
    def hopeless(self) -> bool:
        """Whether what is pending cannot be delivered, because both nodes are closing."""
        record = self.record
        if record is None or record.tokens or record.envelopes or self.idle:
            return False
        return self.peer_closes and self.hurry

    def challenged(self, now: float) -> None:
        """The peer wants to see that we hear it before it listens: ask again, but not over and over."""
        if now >= self._challenged + self.recovery.patience(1):
            self._challenged = now
            self._ask_anew()

    def _ask_anew(self) -> None:
        self._asked_at = None
        self._tries = 0

    # -- what leaves -------------------------------------------------------------------------------------------------

    @property
    def budget(self) -> int:
        """Bytes of payload that a token made now may have: what the path carries and the peer may have room for."""
        path = self.mtu.size - self._overhead - _RIDE - _TOKEN_HEADER
        half = self._largest_window // 2
        if path <= half:
            return path
        return min(path, max(_SMALL, half))

    @property
    def message_budget(self) -> int | None:
        """The largest message that fits one token on this path; None where a lost one is back before it is missed."""
        if not self.recovery.paced:
            return None
        return self.budget - packing.HEADER - packing.BIN_HEADER

    @property
    def _standby(self) -> int:
        """N: envelopes to keep in reserve (000, section 3.5.1).

        Four windows' worth of tokens as large as lately: half of them are left when more are asked for, and last while
        the request, or its answer, is lost twice.
        """
        options = self._options
        wanted = 4 * self.recovery.congestion.window / (self._typical + self._overhead)
        return min(options.max_slots, max(options.min_standby, int(wanted)))

    @property
    def has_more(self) -> bool:
        """Whether anything waits to leave."""
        return bool(self._queue or self._again or self._slices or self._cut)

    @property
    def cutting(self) -> bool:
        """Whether a message is being sent in parts, and there are more."""
        return self._cut is not None

    @property
    def repeats(self) -> bool:
        """Whether tokens wait to be sent again."""
        return bool(self._again)

    def probes_path(self, now: float) -> bool:
        """Whether to look for a larger path MTU: there is a backlog, or messages have to be cut for want of one."""
        if self._has_cut or self._queued_bytes > _PROBE_BACKLOG * self.mtu.size:
            self._has_cut = False
            self.mtu.want(now)
        return self.mtu.probe_at is not None

    def request(self, now: float) -> ReqSlots | None:
        """The request for slots, or for an end, that is due now."""
        record = self._records.send.get(self.peer)
        if record is None:
            return None
        if self.has_ample(record) and not record.closing:
            return None
        if self._asked_at is not None and now < self._ask_deadline():
            return None
        if record.closing:
            return self._ask(record.close(), now)
        n = self._shortage(record)
        return self._ask(record.request(n), now) if n else None

    def has_ample(self, record: SendRecord) -> bool:
        """Whether there are envelopes enough in any case, which is cheaper to find out than how many are missing."""
        envelopes = record.sck - record.env
        if envelopes < self._ample or self._announce:
            return False
        # Two messages that follow each other fill half a token at the least, or they would share one.
        return (self._queued_bytes if self._cut is None else self._backlog) < envelopes * self.budget // 2

    def _needs_slots(self, record: SendRecord) -> bool:
        return not self.has_ample(record) and self._shortage(record) > 0

    def _shortage(self, record: SendRecord) -> int:
        """How many slots to ask for: none until the reserve falls below half, then enough to fill it up."""
        standby = self._standby
        if self._announce:
            return 1 + standby
        queued = -(-self._backlog // self.budget) + bool(self._queue)
        if record.envelopes >= queued and (record.envelopes >= standby // 2 or self.idle):
            return 0
        return min(self._records.max_request, max(1, standby + queued - record.envelopes))

    @property
    def _backlog(self) -> int:
        """Bytes that are not in tokens yet."""
        cut = self._cut
        return self._queued_bytes + (len(cut.message) - cut.done * cut.chunk if cut else 0)

    def _ask(self, frame: ReqSlots, now: float) -> ReqSlots:
        if self._asked_at is not None:
            self._tries += 1
        self._asked_at = now
        return frame

    def clear_to_send(self, now: float) -> bool:
        """Whether windows and pacing let a token leave."""
        if self._force:
            return True
        recovery = self.recovery
        if self._slices:
            return recovery.pacer.ready(recovery.congestion.rate, now)
        if not recovery.may_send(now):
            return False
        fits = self._fits_window
        if not fits:
            recovery.limited()
        return fits

    @property
    def _fits_window(self) -> bool:
        """Whether the peer has room for the next token, besides what is on the way; when empty it takes any one."""
        in_flight = self.recovery.in_flight
        return in_flight + self._next_size <= self.window or (not in_flight and self.window >= self._largest_window)

    @property
    def _next_size(self) -> int:
        """Bytes of payload that the next token will have, at the most."""
        return self._again[0].size if self._again else min(self.budget, self._backlog + packing.HEADER)

    def tokens(self, room: int, now: float) -> Iterator[tuple[bytes, list[Token]]]:
        """Encoded frames that fit ``room`` bytes together, each with the token that is on its way with it."""
        record = self.record
        if record is None or not self.clear_to_send(now):
            return
        self._force = False
        first = True
        while not self._slices and (token := self._next_token(record, room, first)) is not None:
            if token.size + _TOKEN_HEADER > self.mtu.size - self._overhead:
                self._slice(token)
                break
            frame = encode_token(token.s, token.r, packing.join(token.kind, token.head, token.payload))
            self._counters.tokens_sent += 1
            room -= len(frame)
            first = False
            yield frame, [token]
        if self._slices:
            if len(self._slices[0]) <= room:
                yield self._next_slice()
        elif first:
            self.recovery.limited()

    def is_plain(self, record: SendRecord, now: float) -> bool:
        """Whether nothing but tokens is to be sent, each in a datagram of its own: no request, no probe, no slices."""
        if self._announce or self._force or self._slices or record.closing:
            return False
        if self._needs_slots(record) and (self._asked_at is None or now >= self._ask_deadline()):
            return False
        again, cut, room = self._again, self._cut, self.mtu.size - self._overhead - _TOKEN_HEADER
        if again and again[0].size > room:
            return False
        if cut is not None and len(cut.head) + cut.chunk > room:
            return False  # made for a path with larger datagrams
        probe_at = self.mtu.probe_at
        if probe_at is None:
            return not (self._has_cut or self._queued_bytes > _PROBE_BACKLOG * self.mtu.size) or self.mtu.is_largest
        return probe_at > now

    def next_token(self, record: SendRecord, now: float) -> Token | None:
        """The token that leaves next, for a sender that :meth:`is_plain`; None if windows or pacing let none leave."""
        queue = self._queue
        if len(queue) != 1 or self._again or self._cut is not None:
            return self._next_token(record, self.mtu.size, True) if self.clear_to_send(now) else None
        message = queue[0]
        size = len(message)
        recovery = self.recovery
        if recovery.in_flight + size + packing.HEADER > self.window or not packing.fits(message, self.budget):
            return self._next_token(record, self.mtu.size, True) if self.clear_to_send(now) else None
        if record.env >= record.sck or not recovery.may_send(now):
            return None
        del queue[0]
        self._queued_bytes = 0
        self._typical += (size - self._typical) / 8
        return record.seal(message, 1, size, None, packing.WHOLE)

    def next_fragments(self, record: SendRecord, now: float) -> list[Token]:
        """The fragments that follow one that has just left, as many as may leave now in datagrams of their own."""
        cut = self._cut
        recovery = self.recovery
        if cut is None or self._again or record.env != cut.first + cut.done or not recovery.may_send(now):
            return []
        each = cut.chunk + self._overhead
        room = min(self.window, recovery.congestion.window) - recovery.in_flight
        number = min(_MOST_FRAGMENTS, cut.count - cut.done, record.envelopes, room // each, recovery.at_once(each))
        return [self._fragment(record, cut) for _ in range(number)]

    def _next_token(self, record: SendRecord, room: int, first: bool) -> Token | None:
        again = self._again
        while again:
            token = again[0]
            if record.tokens.get(token.s) is not token or not token.queued:
                again.popleft()  # acknowledged meanwhile
                token.queued = False
                continue
            if token.size + _TOKEN_HEADER > room and not first:
                return None
            again.popleft()
            token.queued = False
            self._counters.retransmissions += 1
            return token
        if not record.envelopes or record.closing or not (self._cut or self._queue):
            return None
        budget = self.budget
        return self._pack(record, budget) if budget + _TOKEN_HEADER <= room else None

    def _pack(self, record: SendRecord, budget: int) -> Token:
        queue = self._queue
        if self._cut is None and not packing.fits(queue[0], budget):
            message = queue.popleft()
            self._queued_bytes -= len(message)
            chunk = packing.chunk_size(budget)
            self._cut = Cut(message, chunk, -(-len(message) // chunk), memoryview(message))
            self._has_cut = True
        if self._cut is not None:
            return self._fragment(record, self._cut)
        room = budget - packing.HEADER
        messages: list[bytes] = []
        while queue:
            room -= len(queue[0]) + packing.BIN_HEADER
            if room < 0:
                break
            messages.append(queue.popleft())
        cost = sum(map(len, messages))
        self._queued_bytes -= cost
        self._typical += (cost - self._typical) / 8
        kind, payload = packing.parts(messages)
        return record.seal(payload, len(messages), cost, None, kind)

    def _fragment(self, record: SendRecord, cut: Cut) -> Token:
        if cut.first < 0:
            cut.first = record.env
            cut.head = packing.fragment_head(cut.first, cut.count, len(cut.message))
        assert record.env == cut.first + cut.done, "fragments have consecutive numbers"
        start = cut.done * cut.chunk
        chunk = cut.view[start : start + cut.chunk]
        size = len(chunk)
        self._typical += (size - self._typical) / 8
        cut.done += 1
        if cut.done == cut.count:
            self._cut = None
        return record.seal(chunk, 0, size, cut, packing.FRAGMENT, cut.head)

    def _slice(self, token: Token) -> None:
        """Cut a token that was made for a path with larger datagrams."""
        size = self.mtu.size - self._overhead - _RIDE - _SLICE_HEADER
        payload = packing.join(token.kind, token.head, token.payload)
        total = len(payload)
        offsets = list(range(0, total, size))
        # Each try begins elsewhere: on a path that always loses the end of a burst, the tries together get all across.
        count = len(offsets)
        stride = count // 2 + 1 + (count % 4 == 2)  # has no factor in common with the count, so every place is one
        start = token.tries * stride % count
        token.tries += 1
        self._sliced = token
        for offset in offsets[start:] + offsets[:start]:
            chunk = payload[offset : offset + size]
            self._slices.append(encode_frame(Slice(token.s, token.r, offset, total, chunk)))

    def _next_slice(self) -> tuple[bytes, list[Token]]:
        """The next slice; the last one carries the token, as far as recovery is concerned."""
        frame = self._slices.popleft()
        token = self._sliced
        if self._slices or token is None:
            self.recovery.passed(len(frame))
            return frame, []
        self._sliced = None
        record = self.record
        # It may have been acknowledged while its slices were leaving.
        known = record is not None and record.tokens.get(token.s) is token
        return frame, [token] if known else []

    def repeat(self, tokens: list[Token]) -> None:
        """These tokens did not leave after all, or have to leave again."""
        for token in tokens:
            if not token.queued:
                token.queued = True
                self._again.append(token)

    # -- time --------------------------------------------------------------------------------------------------------

    def check_losses(self, now: float) -> None:
        """After an acknowledgement: what was overtaken goes again."""
        if self.recovery.in_flight:
            self.repeat(self.recovery.lost(now))
        if self.recovery.swallows_large(now):
            self._distrust_path()

    def _distrust_path(self) -> None:
        self.mtu.reset()
        self.recovery.congestion.datagram = self.mtu.size
        if self._sliced is not None:  # its slices may be too large now: cut it again
            self._slices.clear()
            self.repeat([self._sliced])
            self._sliced = None

    def expire(self, now: float) -> None:
        """Do what time asks for."""
        record = self.record
        if record is None:
            return
        overdue = self.recovery.expired(now)
        self.check_losses(now)
        if overdue:
            self._force = True
            self.repeat(overdue)
        stuck = self._stuck_at(record)
        if stuck is not None and now >= stuck:
            self._force = True
            self._touched = now
            self._stuck_tries += 1
        if self.idle and not record.closing:
            if self.hurry or now >= self._touched + self._options.idle_timeout:
                record.close()
                self._ask_anew()
        elif record.closing and self._tries >= _CLOSE_TRIES and now >= self._ask_deadline():
            # The receiver's own probes will find out that nobody is here any more (000, section 3.5.3).
            self.unconfirmed = True
            self._records.forget(self.peer)

    def _stuck_at(self, record: SendRecord) -> float | None:
        """When to try a token although the peer said it has no room: its word to the contrary may be lost."""
        if self.recovery.in_flight or self._fits_window:
            return None
        if not (self._again or (record.envelopes and (self._queue or self._cut))):
            return None
        return self._touched + self.recovery.patience(2 + self._stuck_tries)

    def _ask_deadline(self) -> float:
        assert self._asked_at is not None
        return self._asked_at + self.recovery.patience(max(0, self._tries - _QUICK_TRIES))

    def deadlines(self, now: float) -> Iterator[float]:
        """When :meth:`expire` or another look at what could leave is due."""
        record = self.record
        if record is None:
            return
        recovery = self.recovery.deadline()
        if recovery is not None:
            yield recovery
        if self._asked_at is not None and (record.closing or self._needs_slots(record)):
            yield self._ask_deadline()
        if self.idle and not record.closing:
            yield now if self.hurry else self._touched + self._options.idle_timeout
        stuck = self._stuck_at(record)
        if stuck is not None:
            yield stuck
        if self._slices:
            yield self.recovery.pacer.ready_at
        elif (record.envelopes and (self._queue or self._cut)) or self._again:
            if self.recovery.in_flight < self.recovery.congestion.window and self._fits_window:
                yield self.recovery.pacer.ready_at
            probing = self.mtu.probe_at
            if probing is not None:
                yield probing
