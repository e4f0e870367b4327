"""Sign that this machine is about to go, so that its arms end at a report."""

from __future__ import annotations

import os
from pathlib import Path

LEAVES = "SWEEP_LEAVES"  # names a file that is there once the machine is to be left


def is_left() -> bool:
    """True when whoever lent this machine wants it back soon."""
    file = os.environ.get(LEAVES)
    return file is not None and Path(file).exists()
