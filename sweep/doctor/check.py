"""Check: one line of `sweep doctor`, with its finding and what to do on failure."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4


@dataclass(frozen=True)
class Check:
    """One line of `sweep doctor`."""

    name: str
    passed: bool
    found: str = ""
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


def run_python(
    code: str, *words: str, wait_s: float, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str] | None:
    """Run code in a process of its own; None where it has not ended in time."""
    command = [sys.executable, "-c", code, *words]
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=wait_s, env=environment
        )
    except subprocess.TimeoutExpired:
        return None


def last_line(text: str, otherwise: str = "no message") -> str:
    """The last line that says something: of a traceback, what went wrong."""
    return (text.strip().splitlines() or [otherwise])[-1].strip()
