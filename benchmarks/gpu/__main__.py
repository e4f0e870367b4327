"""Course of tests and measurements on one GPU: each part with its limit, a table, JSON files.

    bash .ci/gpu [PART ...]

runs the parts below in order, or those that are named, each in processes of its own, which are
ended at its limit. What fails stops no other part. ``SWEEP_GPU_DEVICE=cpu`` runs all of it on the
CPU at a small size. Needs torch, numpy, scipy, scikit-learn, pandas, pyarrow, transformers, peft,
pytest and psutil; the standard library alone is imported here, so that nothing can hang the driver.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[2]
MOST_S = 460  # of the whole course; .ci/gpu ends it by force soon after
LEAST_S = 15  # no part begins with less
GRACE_S = 5  # in which a part that is told to end prints what it has
TAIL = 4000  # characters kept of what a failed part said
NEEDED = (
    *("torch", "numpy", "scipy", "sklearn", "pandas", "pyarrow", "transformers", "peft"),
    *("pytest", "psutil"),
)
GPU_TESTS = (
    "tests/trainables/test_gpu.py",
    "tests/trainables/test_gpu_memory.py",
    "tests/trainables/test_cuda_contracts.py",
)
CPU_TESTS = (  # of the fast ones, where there is no GPU
    "tests/trainables/test_arm_run.py",
    "tests/trainables/fused/test_group.py",
    "tests/trainables/fused/test_update.py",
)
PYTEST = (  # none of pyproject's options: its plug-ins are not needed, others' warnings no errors
    *("-o", "addopts=", "-o", "filterwarnings=default", "-p", "no:cacheprovider"),
    *("--import-mode=importlib", "--strict-markers", "-q", "-rfE"),
)
LIMITS = {  # seconds of every part, the most telling first
    "tests": 120,
    "ut": 60,
    "companies": 110,
    "dust": 40,
    "distilbert": 60,
    "decoder_1b": 90,
    "step_profile": 40,
    "decoder_8b": 110,
}
PAIRS = ("ut", "dust", "distilbert", "decoder_1b")


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


def command_of(part: str, device: str) -> list[str]:
    """What a part runs."""
    if part == "tests":
        of_cpu = ("-m", "gpu or not (slow or cluster or network)", *CPU_TESTS)
        chosen = ("-m", "gpu") if device == "cuda" else of_cpu
        return [sys.executable, "-m", "pytest", *PYTEST, *chosen, *GPU_TESTS]
    options = ["--device", device, *(["--small"] if device == "cpu" else [])]
    module = f"benchmarks.gpu.{'pairs' if part in PAIRS else part}"
    return [sys.executable, "-m", module, *options, *([part] if part in PAIRS else [])]


def environment_of(device: str, folder: Path) -> dict[str, str]:
    """Nothing is fetched, and caches are this course's own."""
    own = {
        "SWEEP_CACHE": str(folder / "cache"),
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    return {**os.environ, **own, **({"OMP_NUM_THREADS": "1"} if device == "cpu" else {})}


def end(process: subprocess.Popen[bytes], sign: signal.Signals) -> None:
    """Send a signal to a part, and to whatever it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, sign)


def run(part: str, command: list[str], limit_s: float, folder: Path, device: str) -> Outcome:
    """Run one part until it ends or is ended; what it printed lies in ``folder``."""
    printed, said = folder / f"{part}.out", folder / f"{part}.err"
    started = time.monotonic()
    with printed.open("wb") as out, said.open("wb") as err:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment_of(device, folder),
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
    try:
        lines = json.loads(text)["lines"]
    except (ValueError, KeyError, TypeError):
        lines = [line.strip("= ") for line in text.splitlines() if line.strip()][-1:]
    tail = "" if outcome == "ok" else (text + said.read_text(errors="replace"))[-TAIL:]
    return Outcome(part, outcome, round(time.monotonic() - started, 1), lines, tail)


def keep(outcomes: list[Outcome], folder: Path, device: str, out: Path) -> None:
    """Write what a part printed, and the summary of all so far."""
    text = (folder / f"{outcomes[-1].part}.out").read_text(errors="replace")
    with contextlib.suppress(ValueError):
        json.loads(text)
        (out / f"{outcomes[-1].part}.json").write_text(text)
    parts = [asdict(outcome) for outcome in outcomes]
    summary = {"date": time.strftime("%Y-%m-%d"), "device": device, "parts": parts}
    (out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")


def where(parts: list[str], out: Path) -> str:
    """The card, the date, the commit and torch's version, as a part found them."""
    for part in parts:
        with contextlib.suppress(OSError, ValueError, KeyError):
            found = json.loads((out / f"{part}.json").read_text())["environment"]
            commit = (
                f"{(found['commit'] or found['code'])[:12]}{' and changes' * bool(found['dirty'])}"
            )
            card = found["gpu"] or f"CPU ({found['cpu_capability']})"
            date, torch = time.strftime("%Y-%m-%d"), found["packages"]["torch"]
            return f"{card}, {date}, {commit}, torch {torch}"
    return "no part said where it ran"


def shown(outcome: Outcome) -> str:
    """The rows of a part."""
    head = f"{outcome.part:<14}{outcome.seconds:>7.1f} s  {outcome.outcome}"
    rows = [head, *(f"    {line}" for line in outcome.lines)]
    if not outcome.ok:
        rows += [f"    | {line}" for line in outcome.said.splitlines()[-12:]]
    return "\n".join(rows)


def course(parts: list[str], device: str, out: Path) -> list[Outcome]:
    """Run the parts, one after the other, until the time is over."""
    deadline = time.monotonic() + MOST_S
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="sweep-gpu-") as made:
        folder = Path(made)
        for part in parts:
            left_s = deadline - time.monotonic() - GRACE_S
            if left_s < LEAST_S:
                outcomes.append(Outcome(part, "left out, for want of time", 0.0))
                print(shown(outcomes[-1]), flush=True)
                continue
            limit_s = min(LIMITS[part], left_s)
            outcomes.append(run(part, command_of(part, device), limit_s, folder, device))
            keep(outcomes, folder, device, out)
            print(shown(outcomes[-1]), flush=True)
    return outcomes


def refusal(parts: list[str], device: str) -> str:
    """Why the course cannot be run; empty where it can."""
    if device not in ("cuda", "cpu"):
        return f"SWEEP_GPU_DEVICE must be cuda or cpu, got {device!r}."
    if unknown := [part for part in parts if part not in LIMITS]:
        return f"no part {unknown[0]!r}; there are {', '.join(LIMITS)}."
    if missing := [package for package in NEEDED if find_spec(package) is None]:
        return f"{sys.executable} lacks {', '.join(missing)}: set PYTHON to one that has them."
    if device == "cuda":
        look = "import sys, torch; sys.exit(not torch.cuda.is_available())"
        with contextlib.suppress(subprocess.TimeoutExpired):
            if subprocess.run([sys.executable, "-c", look], timeout=60).returncode == 0:
                return ""
        return "torch finds no CUDA device. SWEEP_GPU_DEVICE=cpu runs all of it on the CPU, small."
    return ""


def main(arguments: list[str]) -> int:
    """Run the course; 0 where every part ran to its end."""
    device = os.environ.get("SWEEP_GPU_DEVICE") or "cuda"
    if why := refusal(arguments, device):
        print(why, file=sys.stderr)
        return 2
    out = Path(os.environ.get("OUT") or ROOT / "build/gpu").absolute()
    out.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    started = time.monotonic()
    parts = arguments or list(LIMITS)
    for old in ("summary", *parts):
        (out / f"{old}.json").unlink(missing_ok=True)
    outcomes = course(parts, device, out)
    failed = [outcome.part for outcome in outcomes if not outcome.ok]
    print(where(parts, out))
    print(f"{time.monotonic() - started:.0f} s in all; JSON in {out}")
    print(f"failed: {', '.join(failed)}" if failed else "every part ran to its end")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
