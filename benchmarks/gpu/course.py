"""Course of parts: each in processes of its own, with its limit; a table, and JSON files.

The standard library alone is imported here, so that nothing can hang the driver.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
MOST_S = 460  # of a whole course; its script ends it by force soon after
LEAST_S = 15  # no part begins with less
GRACE_S = 5  # in which a part that is told to end prints what it has
TAIL = 4000  # characters kept of what a failed part said
LINES = 3  # shown of a part that prints no object


@dataclass(frozen=True)
class Part:
    """A command, and how long it may take."""

    name: str
    command: Sequence[str]
    limit_s: float


@dataclass
class Outcome:
    """What a part came to."""

    part: str
    outcome: str  # "ok", or why not
    seconds: float
    lines: list[str] = field(default_factory=list)  # for the table
    said: str = ""  # the end of it, where it failed

    @property
    def ok(self) -> bool:
        """Whether it ran to its end."""
        return self.outcome == "ok"


def asked_device() -> str:
    """What SWEEP_GPU_DEVICE says."""
    return os.environ.get("SWEEP_GPU_DEVICE") or "cuda"


def refused_device(device: str) -> str:
    """Why nothing can be run there; empty where it can."""
    if device not in ("cuda", "cpu"):
        return f"SWEEP_GPU_DEVICE must be cuda or cpu, got {device!r}."
    if device == "cuda":
        look = "import sys, torch; sys.exit(not torch.cuda.is_available())"
        with contextlib.suppress(subprocess.TimeoutExpired):
            if subprocess.run([sys.executable, "-c", look], timeout=60).returncode == 0:
                return ""
        return "torch finds no CUDA device. SWEEP_GPU_DEVICE=cpu runs all of it on the CPU, small."
    return ""


def end(process: subprocess.Popen[bytes], sign: signal.Signals) -> None:
    """Send a signal to a part, and to whatever it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, sign)


def ran(part: Part, limit_s: float, environment: Mapping[str, str], folder: Path) -> Outcome:
    """Run one part until it ends or is ended; what it printed lies in ``folder``."""
    printed, said = folder / f"{part.name}.out", folder / f"{part.name}.err"
    started = time.monotonic()
    with printed.open("wb") as out, said.open("wb") as err:
        process = subprocess.Popen(
            part.command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        try:
            code = process.wait(limit_s)
            outcome = "ok" if code == 0 else f"failed (exit {code})"
        except subprocess.TimeoutExpired:
            outcome = f"ended at its limit of {limit_s:.0f} s"
            end(process, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(GRACE_S)
        finally:
            end(process, signal.SIGKILL)
            process.wait()
    text = printed.read_text(errors="replace")
    tail = "" if outcome == "ok" else (text + said.read_text(errors="replace"))[-TAIL:]
    seconds = round(time.monotonic() - started, 1)
    return Outcome(part.name, outcome, seconds, lines_of(text), tail)


def lines_of(text: str) -> list[str]:
    """Those of the object that a part printed; where it printed none, its last ones."""
    try:
        found = json.loads(text)
    except ValueError:
        return [line.strip("= ") for line in text.splitlines() if line.strip()][-LINES:]
    return list(found.get("lines", [])) if isinstance(found, dict) else []


def keep(outcomes: Sequence[Outcome], folder: Path, out: Path) -> None:
    """Write the object that the last part printed, and the summary of all so far."""
    with contextlib.suppress(OSError, ValueError):
        text = (folder / f"{outcomes[-1].part}.out").read_text(errors="replace")
        json.loads(text)
        (out / f"{outcomes[-1].part}.json").write_text(text)
    parts = [asdict(outcome) for outcome in outcomes]
    summary = {"date": time.strftime("%Y-%m-%d"), "parts": parts}
    (out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")


def shown(outcome: Outcome) -> str:
    """The rows of a part."""
    head = f"{outcome.part:<14}{outcome.seconds:>7.1f} s  {outcome.outcome}"
    rows = [head, *(f"    {line}" for line in outcome.lines)]
    if not outcome.ok:
        rows += [f"    | {line}" for line in outcome.said.splitlines()[-12:]]
    return "\n".join(rows)


def where(parts: Sequence[Part], out: Path) -> str:
    """The card, the date, the commit and torch's version, as a part found them."""
    for part in parts:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            found = json.loads((out / f"{part.name}.json").read_text())["environment"]
            code = (found["commit"] or found["code"])[:12] + " and changes" * bool(found["dirty"])
            card = found["gpu"] or f"CPU ({found['cpu_capability']})"
            torch = found["packages"]["torch"]
            return f"{card}, {time.strftime('%Y-%m-%d')}, {code}, torch {torch}"
    return "no part said where it ran"


def course(parts: Sequence[Part], environment: Mapping[str, str], folder: Path, name: str) -> int:
    """Run the parts, one after the other, until the time is over; 0 where each ran to its end.

    Args:
        parts: of different names.
        environment: of their processes.
        folder: for what they print, as long as the course runs.
        name: of the folder below build/ that JSON is written to, where OUT names none.
    """
    started = time.monotonic()
    out = Path(os.environ.get("OUT") or ROOT / "build" / name).absolute()
    out.mkdir(parents=True, exist_ok=True)
    for old in ("summary", *(part.name for part in parts)):
        (out / f"{old}.json").unlink(missing_ok=True)
    outcomes: list[Outcome] = []
    for part in parts:
        left_s = started + MOST_S - GRACE_S - time.monotonic()
        if left_s < LEAST_S:
            outcomes.append(Outcome(part.name, "left out, for want of time", 0.0))
        else:
            outcomes.append(ran(part, min(part.limit_s, left_s), environment, folder))
        keep(outcomes, folder, out)
        print(shown(outcomes[-1]), flush=True)
    print(where(parts, out))
    print(f"{time.monotonic() - started:.0f} s in all; JSON in {out}")
    failed = [outcome.part for outcome in outcomes if not outcome.ok]
    print(f"failed: {', '.join(failed)}" if failed else "every part ran to its end")
    return 1 if failed else 0
