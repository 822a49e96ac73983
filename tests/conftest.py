"""What holds for all tests."""

from __future__ import annotations

from hypothesis import settings

# No test of ours says how long something may take: a busy machine is no bug. What does not end ends at the time-out.
settings.register_profile("a3m", deadline=None)
settings.load_profile("a3m")
