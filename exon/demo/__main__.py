"""``python -m exon.demo``."""

from __future__ import annotations

import sys

from exon.demo.command import main

if __name__ == "__main__":  # the two processes import this too
    sys.exit(main())
