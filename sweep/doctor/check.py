"""Check: one line of `sweep doctor`, with its finding and what to do on failure."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4


@dataclass(frozen=True)
class Check:
    """One line of `sweep doctor`."""

    name: str
    passed: bool
    found: str
    advice: str = ""  # what to do when it failed


def writable(name: str, folder: Path, advice: str) -> Check:
    """Whether ``folder`` can be written, or made; nothing stays behind."""
    place = nearest(folder)
    probe = place / f".probe-{uuid4().hex}"
    try:
        probe.mkdir()
        probe.rmdir()
    except OSError as error:
        return Check(name, False, f"{folder} cannot be written: {error}", advice)
    state = "can be written" if place == folder else "can be created"
    return Check(name, True, f"{folder} {state}")


def nearest(folder: Path) -> Path:
    """The folder itself, or the closest one above it that exists."""
    return next(place for place in (folder, *folder.parents) if place.exists())
