"""See it work: two processes exchange messages over a bad network, and every single message is accounted for.

::

    python -m exon.demo                          # 100,000 messages each way, 20 % loss, one change of port
    python -m exon.demo --loss 0.5 --moves 10    # worse
    python -m exon.demo --json                   # for scripts

The processes are ``alice`` and ``bob``. Both send at the same time, both through :func:`exon.simulation.lossy`, and
``bob`` moves to another port while messages are under way. A third process, the one that was started, only watches.

Messages are numbered. A receiver notes each *number* it was given, so a message that came twice cannot make up for one
that never came, and the account compares the numbers sent in one process with the numbers seen in the other. A process
is done when it has sent everything, has seen everything and nothing of its own waits for an acknowledgement: from then
on no message is under way any more, so a duplicate cannot hide behind the end of the run.

Exit status: 0 if every message was delivered exactly once, 1 if not, 2 for arguments that make no sense, 130 after
Ctrl-C.
"""

from exon.demo.account import Account, Direction, Outcome, Plan
from exon.demo.command import main
from exon.demo.party import Party, Report, make_payload

__all__ = ["Account", "Direction", "Outcome", "Party", "Plan", "Report", "main", "make_payload"]
