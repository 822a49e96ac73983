"""The life of a link as a table: states, what can happen in them, what is done and what comes next (003, section 4.6).

Two sockets agree on a link in two phases: each tells the other about itself (*metadata*, in LINK or with the first
LINKREPLY), and each says whether it wants (*reply*). Only who knows both replies knows the outcome, and one of the two
always knows first. The network delivers each message once, in any order. Everything difficult follows from that:

* A yes without metadata says that the sender's own LINK is under way and was overtaken: wait for it (WAIT_METADATA),
  for without it there is nothing to judge. A no always comes with metadata: it is the end, whatever else comes.
* Data, or UNLINK, before the reply says that the reply is yes. It is under way, and the conversation is not over before
  it has come, too.
* A LINK of another conversation says that the other side has finished with this one; whatever ends it here is under
  way, so the other side is told to ask again later (LINK_EXISTS).

A conversation is named by the incarnations of both ends, which every message carries; a message of another conversation
never gets as far as this table. Whoever speaks in a conversation that is over is told so (a forced UNLINK), and that is
never answered. Where the seed has one state CANCELLING, here are three, because what is still to come differs.

The table is data: :mod:`a3m.link_manager` executes it, the explorer in ``tests/model_links`` walks through all of it,
and the diagram in ``docs/links.md`` is drawn from it by :func:`diagram`.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class State(Enum):
    """Where a link is."""

    ABSENT = "absent"
    WAIT_BOTH = "linking: waiting for metadata and reply"
    WAIT_METADATA = "linking: waiting for metadata"
    WAIT_REPLY = "linking: waiting for the reply"
    WAIT_RETRY = "linking: waiting to ask again"
    CANCELLING_BOTH = "cancelling: waiting for metadata and reply"
    CANCELLING_METADATA = "cancelling: waiting for metadata"
    CANCELLING_REPLY = "cancelling: waiting for the reply"
    ESTABLISHED = "established"
    UNLINKING = "unlinking"


class Input(Enum):
    """What can happen to a link."""

    CALL_LINK = "link() is called"
    CALL_UNLINK = "unlink() is called"
    CALL_FORCE = "unlink(force=True) is called"
    RETRY_DUE = "it is time to ask again"
    ALL_HERE = "everything that the peer sent has arrived"
    PEER_LOST = "the peer's node restarted, or has no such socket"
    # A LINK that begins the conversation here, with our own answer to it.
    REQUEST_YES = "LINK comes, we want"
    REQUEST_LATER = "LINK comes, we cannot now"
    REQUEST_NEVER = "LINK comes, we refuse"
    REQUEST_OTHER = "LINK of another conversation comes"
    # A LINKREPLY that comes alone: the metadata is known already, or under way in a LINK.
    REPLY_YES = "LINKREPLY: yes"
    REPLY_LATER = "LINKREPLY: later"
    REPLY_NEVER = "LINKREPLY: never"
    # Metadata and reply are both known now, and so is what we make of them.
    AGREED = "peer: yes, we: yes"
    DECLINED_LATER = "peer: yes, we: later"
    DECLINED_NEVER = "peer: yes, we: never"
    PUT_OFF = "peer: later"
    REFUSED = "peer: never, or peer: later and we: never"
    TRAFFIC = "DATA, FLOW or a control message comes"
    UNLINK = "UNLINK comes"
    FORCED = "the peer says that the conversation is over"


class Action(Enum):
    """What is done about it."""

    SEND_LINK = "send LINK"
    RETRACT_LINK = "take LINK back if it has not left"
    SEND_YES = "send LINKREPLY: yes"
    SEND_NO = "send LINKREPLY: no"
    SEND_CANCELED = "send LINKREPLY: CANCELED"
    SEND_EXISTS = "send LINKREPLY: LINK_EXISTS"
    SEND_UNLINK = "send UNLINK"
    SEND_FORCED = "send UNLINK, forced"
    ESTABLISH = "the link is there"
    CLOSE = "the link is gone"
    REFUSE = "the link is refused"
    SCHEDULE = "ask again later"


class Step(NamedTuple):
    """What a cell of the table says. ``passive`` replaces it where only the other side wanted the link."""

    next: State
    actions: tuple[Action, ...] = ()
    passive: Step | None = None


def _build() -> dict[State, dict[Input, Step]]:
    s, i, a = State, Input, Action
    again = Step(s.WAIT_RETRY, (a.SCHEDULE,))
    gone = Step(s.ABSENT, (a.CLOSE,))
    again_or_gone = Step(s.WAIT_RETRY, (a.SCHEDULE,), passive=gone)
    unasked = Step(s.ABSENT, (a.RETRACT_LINK, a.CLOSE))
    refused = Step(s.ABSENT, (a.REFUSE,))
    canceled = Step(s.ABSENT, (a.SEND_CANCELED, a.CLOSE))
    forced = Step(s.ABSENT, (a.SEND_FORCED, a.CLOSE))
    established = Step(s.ESTABLISHED, (a.SEND_YES, a.ESTABLISH))

    def stay(state: State, *actions: Action) -> Step:
        return Step(state, actions)

    decided = {  # the peer said yes and we know its metadata, and the link is wanted here
        i.AGREED: established,
        i.DECLINED_LATER: Step(s.WAIT_RETRY, (a.SEND_NO, a.SCHEDULE)),
        i.DECLINED_NEVER: Step(s.ABSENT, (a.SEND_NO, a.REFUSE)),
    }
    decided_against = {  # the same, and it is no longer wanted here
        i.AGREED: canceled,
        i.DECLINED_LATER: canceled,
        i.DECLINED_NEVER: canceled,
    }
    return {
        s.ABSENT: {
            i.CALL_LINK: Step(s.WAIT_BOTH, (a.SEND_LINK,)),
            i.REQUEST_YES: Step(s.WAIT_REPLY, (a.SEND_YES,)),
            i.REQUEST_LATER: stay(s.ABSENT, a.SEND_NO),
            i.REQUEST_NEVER: stay(s.ABSENT, a.SEND_NO),
        },
        s.WAIT_BOTH: {
            **decided,
            i.CALL_UNLINK: Step(s.CANCELLING_BOTH),
            i.CALL_FORCE: unasked,
            i.REQUEST_YES: Step(s.WAIT_REPLY, (a.SEND_YES,)),
            i.REQUEST_LATER: Step(s.WAIT_RETRY, (a.SEND_NO, a.SCHEDULE)),
            i.REQUEST_NEVER: Step(s.ABSENT, (a.SEND_NO, a.REFUSE)),
            i.PUT_OFF: again,
            i.REFUSED: refused,
            i.REPLY_YES: Step(s.WAIT_METADATA),
            i.PEER_LOST: again,
            i.FORCED: again,
        },
        s.WAIT_METADATA: {
            **decided,
            i.CALL_UNLINK: Step(s.CANCELLING_METADATA),
            i.CALL_FORCE: forced,
            i.REQUEST_OTHER: stay(s.WAIT_METADATA, a.SEND_EXISTS),
            i.PEER_LOST: again,
            i.FORCED: again,
        },
        s.WAIT_REPLY: {
            i.CALL_UNLINK: Step(s.CANCELLING_REPLY),
            i.CALL_FORCE: forced,
            i.REPLY_YES: Step(s.ESTABLISHED, (a.ESTABLISH,)),
            i.TRAFFIC: Step(s.ESTABLISHED, (a.ESTABLISH,)),
            i.UNLINK: Step(s.UNLINKING, (a.ESTABLISH, a.SEND_UNLINK)),
            i.REPLY_LATER: again_or_gone,
            i.REPLY_NEVER: refused,
            i.REQUEST_OTHER: stay(s.WAIT_REPLY, a.SEND_EXISTS),
            i.PEER_LOST: again_or_gone,
            i.FORCED: again_or_gone,
        },
        s.WAIT_RETRY: {
            i.RETRY_DUE: Step(s.WAIT_BOTH, (a.SEND_LINK,)),
            i.CALL_UNLINK: gone,
            i.CALL_FORCE: gone,
            i.REQUEST_YES: Step(s.WAIT_REPLY, (a.SEND_YES,)),
            i.REQUEST_LATER: stay(s.WAIT_RETRY, a.SEND_NO),
            i.REQUEST_NEVER: Step(s.ABSENT, (a.SEND_NO, a.REFUSE)),
        },
        s.CANCELLING_BOTH: {
            **decided_against,
            i.CALL_FORCE: unasked,
            i.REQUEST_YES: canceled,
            i.REQUEST_LATER: canceled,
            i.REQUEST_NEVER: canceled,
            i.PUT_OFF: gone,
            i.REFUSED: gone,
            i.REPLY_YES: Step(s.CANCELLING_METADATA),
            i.PEER_LOST: gone,
            i.FORCED: gone,
        },
        s.CANCELLING_METADATA: {
            **decided_against,
            i.CALL_FORCE: forced,
            i.REQUEST_OTHER: stay(s.CANCELLING_METADATA, a.SEND_EXISTS),
            i.PEER_LOST: gone,
            i.FORCED: gone,
        },
        s.CANCELLING_REPLY: {
            i.CALL_FORCE: forced,
            i.REPLY_YES: Step(s.UNLINKING, (a.ESTABLISH, a.SEND_UNLINK)),
            i.TRAFFIC: Step(s.UNLINKING, (a.ESTABLISH, a.SEND_UNLINK)),
            i.UNLINK: Step(s.UNLINKING, (a.ESTABLISH, a.SEND_UNLINK)),
            i.REPLY_LATER: gone,
            i.REPLY_NEVER: gone,
            i.REQUEST_OTHER: stay(s.CANCELLING_REPLY, a.SEND_EXISTS),
            i.PEER_LOST: gone,
            i.FORCED: gone,
        },
        s.ESTABLISHED: {
            i.CALL_UNLINK: Step(s.UNLINKING, (a.SEND_UNLINK,)),
            i.CALL_FORCE: forced,
            i.UNLINK: Step(s.UNLINKING, (a.SEND_UNLINK,)),
            i.REQUEST_OTHER: stay(s.ESTABLISHED, a.SEND_EXISTS),
            i.PEER_LOST: Step(s.WAIT_RETRY, (a.CLOSE, a.SCHEDULE), passive=gone),
            i.FORCED: gone,
        },
        s.UNLINKING: {
            i.ALL_HERE: gone,
            i.CALL_FORCE: forced,
            i.REQUEST_OTHER: stay(s.UNLINKING, a.SEND_EXISTS),
            i.PEER_LOST: gone,
            i.FORCED: gone,
        },
    }


TABLE = _build()
"""``TABLE[state][input]``; what is not in it changes nothing (a late reply, a call for what is so already)."""


def step(state: State, event: Input, wanted: bool) -> Step | None:
    """What happens to a link in ``state``; ``wanted`` is whether the local application asked for it."""
    cell = TABLE[state].get(event)
    if cell is not None and cell.passive is not None and not wanted:
        return cell.passive
    return cell


def diagram() -> str:
    """The table as a Mermaid state diagram; a line for each transition says what happens / what is done."""
    lines = ["stateDiagram-v2"]
    for state, row in TABLE.items():
        for event, cell in row.items():
            for which, suffix in ((cell, ""), (cell.passive, " (not wanted here)")):
                if which is not None:
                    label = " / ".join([event.value + suffix, *(action.value for action in which.actions)])
                    # A colon or semicolon would end the label.
                    lines.append(f"    {state.name} --> {which.next.name}: {label.replace(':', ' =')}")
    return "\n".join(lines) + "\n"
