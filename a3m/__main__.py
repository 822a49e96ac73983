"""``python -m a3m``: the command line program."""

from __future__ import annotations

import sys

from a3m.cli import main

if __name__ == "__main__":  # processes that the program starts import this too
    sys.exit(main())
