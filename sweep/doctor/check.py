"""Check: one line of `sweep doctor`, with its finding and what to do on failure."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from trainables.plain import Json, Plain, with_names

TOKEN_ADVICE = (
    "Every node needs RAY_AUTH_MODE=token and the same token before `ray start` (docs/cluster.md)."
)
OPEN_CLUSTER_ADVICE = f"Take it down and start it again with a token. {TOKEN_ADVICE}"
SILENT_HEAD_ADVICE = (
    "Check that the head is up and has memory and CPU left (`ray status`, `top`). dashboard.log "
    "and gcs_server.out in its /tmp/ray/session_latest/logs have details; `ray up` starts Ray anew."
)


@dataclass(frozen=True)
class Check(Plain):
    """One line of `sweep doctor`."""

    name: str
    passed: bool
    finding: str = ""
    advice: str = ""  # what to do when it failed

    def to_json(self) -> dict[str, Json]:
        """Plain values, as docs/schemas/doctor.json describes them."""
        return dict(with_names(super().to_json(), {"finding": "found"}))

    @classmethod
    def from_json(cls, plain: Mapping[str, Json]) -> Check:
        """The check that ``to_json`` describes."""
        return super().from_json(with_names(plain, {"found": "finding"}))


def check_writable(name: str, folder: Path, advice: str) -> Check:
    """Check that ``folder`` can be written, or created; nothing stays behind."""
    place = nearest_folder(folder)
    probe = place / f".probe-{uuid4().hex}"
    try:
        probe.mkdir()
        probe.rmdir()
    except OSError as error:
        return Check(name, False, f"{folder} cannot be written: {error}", advice)
    state = "can be written" if place == folder else "can be created"
    return Check(name, True, f"{folder} {state}")


def nearest_folder(folder: Path) -> Path:
    """The folder itself, or the closest one above it that exists."""
    return next(place for place in (folder, *folder.parents) if place.exists())


def run_python(
    code: str, *words: str, timeout_s: float, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str] | None:
    """Run code in a process of its own; None where it has not ended in time."""
    command = [sys.executable, "-c", code, *words]
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=timeout_s, env=environment
        )
    except subprocess.TimeoutExpired:
        return None


def last_line(text: str, otherwise: str = "no message") -> str:
    """The last line with content, which in a traceback is the error."""
    return (text.strip().splitlines() or [otherwise])[-1].strip()
