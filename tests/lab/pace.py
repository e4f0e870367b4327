"""Loaded by every Python of the lab's workers: arms say where they train, and rest after reports.

So a sweep lasts as long as a test needs, and takes little of the cores; no number depends on it.
"""

import os
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

STORAGE = Path("/srv/storage")  # as tests/lab/hosts.py says
REST = STORAGE / "rest"  # seconds
PLACES = STORAGE / "places"  # by signature, the host that took the arm up last
_replace = os.replace


def replace_and_rest(source: Any, target: Any, **options: Any) -> None:
    """os.replace; a count of attempts that came to its place is a start, a record a report."""
    _replace(source, target, **options)
    path = Path(target)
    if path.name == "attempts.json":
        with suppress(OSError):  # the disk is full
            (PLACES / path.parent.name).write_text(socket.gethostname())
    if path.name == "progress.json":
        time.sleep(float(REST.read_text()) if REST.exists() else 0.0)


os.replace = replace_and_rest
