"""Loaded by every Python of the lab's workers: arms rest after each report, as long as a file says.

So a sweep lasts as long as a test needs, and takes little of the cores; no number depends on it.
"""

import os
import time
from pathlib import Path
from typing import Any

REST = Path("/srv/storage/rest")  # seconds; tests/lab/hosts.py: STORAGE
_replace = os.replace


def replace_and_rest(source: Any, target: Any, **options: Any) -> None:
    """os.replace; a record that came to its place is a report."""
    _replace(source, target, **options)
    if os.path.basename(os.fspath(target)) == "record.json":
        time.sleep(float(REST.read_text()) if REST.exists() else 0.0)


os.replace = replace_and_rest
