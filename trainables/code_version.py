"""Version of the training code: a number, and a digest of the files that decide.

The number alone stays the same from commit to commit, and a machine may hold any checkout; where
there is no git the digest is what names the code.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
from functools import cache
from pathlib import Path

DISTRIBUTION = "descent-sweep"
TRAINS = ("trainables/**/*.py",)  # what a worker runs
# Search spaces are the laptop's business: they arrive resolved, so a new one is no new version.
RUNS_THERE = (*TRAINS, "sweep/**/*.py", "search_spaces/space.py")


@cache
def code_version() -> str:
    """The installed version, and a digest of what a cluster runs of this package."""
    return _version(RUNS_THERE)


@cache
def training_version() -> str:
    """The installed version, and a digest of what a worker runs of this package."""
    return _version(TRAINS)


def _version(patterns: tuple[str, ...]) -> str:
    try:
        number = importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        number = "0"
    root = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for file in sorted(file for pattern in patterns for file in root.glob(pattern)):
        digest.update(f"{file.relative_to(root)}\0".encode() + file.read_bytes())
    return f"{number}+{digest.hexdigest()[:8]}"
