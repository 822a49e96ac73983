"""What holds for all tests."""

from __future__ import annotations

import signal

from hypothesis import settings

# No test of ours says how long something may take: a busy machine is no bug. What does not end ends at the time-out.
settings.register_profile("a3m", deadline=None)
settings.load_profile("a3m")

# A shell without job control has whatever it starts with & ignore SIGINT, and so has everything that is started there.
# Python then has no handler, and Ctrl-C, which some tests press, does nothing.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
