"""Service on one GPU: a sweep by whole GPUs and by shares, a kill and a resume, and what is read.

    bash .ci/gpu-service [FOLDER OF WHEELS]

The wheels (of Ray, Optuna, MLflow and what else this Python lacks) are laid into a temporary
folder, torch's left out, and found before what is installed: nothing is resolved or installed. That
folder says, too, that this package takes the torch that is there; records state its version. Home,
caches and Ray's folder are temporary, and whatever still runs at the end of what was started here
is ended: it is known by a variable that it was given.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import signal
import site
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.gpu.course import ROOT, Part, asked_device, course, refused_device

NEEDED = ("torch", "psutil", "ray", "optuna", "mlflow", "click", "rich", "yaml", "PIL")
SWEEP = (sys.executable, "-m", "sweep.cli")
LIMITS = {  # seconds, on a GPU
    "wheels": 90,
    "whole": 150,
    "shares": 120,
    "kill": 90,
    "resume": 100,
    "status": 30,
    "best": 30,
    "export": 40,
}
SLOWER = 4  # how much longer a CPU may take, beside other work
LEFT_OUT = ("torch-", "triton-", "nvidia_")
KILLED = "killed"  # the name of the sweep that is
MARK = "SWEEP_SERVICE_COURSE"  # the variable by which processes of this course are known
UNSET = (
    *("MLFLOW_TRACKING_URI", "RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_NAMESPACE"),
    *("SWEEP_ADDRESS", "SWEEP_STORAGE", "SWEEP_DATA"),
)


def run_of(name: str, device: str, folder: Path, **fields: object) -> list[str]:
    """`sweep run quickstart` with these fields; the sweep has a storage root of its own."""
    small = {"steps": 20, "report_every": 10, "data.frame_size": 32, "eval_windows": 2}
    given = {"device": device, **(small if device == "cpu" else {}), **fields}
    options = ["--name", name, "--storage", str(folder / name), "--proposals", "2"]
    sets = [word for field, value in given.items() for word in ("--set", f"{field}={value}")]
    return [*SWEEP, "run", "quickstart", *options, *sets]


def parts_of(device: str, wheels: str | None, folder: Path) -> list[Part]:
    """All of them, in order."""
    share: dict[str, object] = {"gpus_per_arm": 0.25}
    long = {"steps": 2000, "report_every": 50} if device == "cpu" else {"report_every": 25}
    killed = ["--storage", str(folder / KILLED)]
    reads = {
        verb: [*SWEEP, verb, "whole", "--storage", str(folder / "whole")]
        for verb in ("status", "best", "export")
    }
    commands = {
        "wheels": _step(folder, "lay", "packages", [str(wheels)]),
        "whole": _step(folder, "train", "whole", run_of("whole", device, folder)),
        "shares": _step(folder, "train", "shares", run_of("shares", device, folder, **share)),
        "kill": _step(folder, "kill", KILLED, run_of(KILLED, device, folder, **share, **long)),
        "resume": _step(folder, "train", KILLED, [*SWEEP, "resume", KILLED, *killed]),
        "status": [*reads["status"], "--json"],
        "best": [*reads["best"], "--json"],
        "export": [*reads["export"], "--out", str(folder / "results")],
    }
    return [
        Part(name, command, LIMITS[name] * (SLOWER if device == "cpu" else 1))
        for name, command in commands.items()
        if name != "wheels" or wheels is not None
    ]


def _step(folder: Path, step: str, name: str, command: list[str]) -> list[str]:
    place = ["--folder", str(folder), "--step", step, "--name", name]
    return [sys.executable, "-m", "benchmarks.gpu.service", *place, "--", *command]


def environment_of(device: str, folder: Path, mark: str) -> dict[str, str]:
    """Of all parts: nothing of the user's is read or written."""
    token = folder / "token"
    token.touch(mode=0o600)
    token.write_text(secrets.token_hex(32))
    for name in ("home", "packages"):
        (folder / name).mkdir()
    _write_metadata(folder / "packages")
    places = [str(folder / "packages"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    kept = {name: value for name, value in os.environ.items() if name not in UNSET}
    return kept | {
        MARK: mark,
        "HOME": str(folder / "home"),
        "PYTHONUSERBASE": site.getuserbase(),
        "PYTHONPATH": os.pathsep.join(filter(None, places)),
        "SWEEP_CACHE": str(folder / "cache"),
        "XDG_CACHE_HOME": str(folder / "home"),
        "RAY_TMPDIR": str(folder),
        "RAY_AUTH_TOKEN_PATH": str(token),  # or Ray makes one in the user's home
        "RAY_USAGE_STATS_ENABLED": "0",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "true",
        "MPLBACKEND": "Agg",
    }


def _write_metadata(packages: Path) -> None:
    """What says that this package is installed, and takes the torch that is there."""
    folder = packages / "descent_sweep-0.1.0.dist-info"
    folder.mkdir()
    needs = f"Requires-Dist: torch=={version('torch')}"
    text = f"Metadata-Version: 2.1\nName: descent-sweep\nVersion: 0.1.0\n{needs}\n"
    (folder / "METADATA").write_text(text)


# --- parts that are more than one command ---------------------------------------------------------


def lay(packages: Path, wheels: Path) -> dict[str, Any]:
    """Lay the wheels of a folder side by side."""
    every = sorted(wheels.glob("*.whl"))
    chosen = [str(wheel) for wheel in every if not wheel.name.startswith(LEFT_OUT)]
    if not chosen:
        raise SystemExit(f"{wheels} has no wheels.")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--target", str(packages), *chosen], check=True)
    return {"lines": [f"{len(chosen)} of {len(every)} wheels"]}


def refusal(wheels: str | None) -> str:
    """Why the course cannot be run; empty where it can."""
    if wheels is not None:
        return "" if any(Path(wheels).glob("*.whl")) else f"{wheels} has no wheels."
    missing = [package for package in NEEDED if find_spec(package) is None]
    if not missing:
        return ""
    return (
        f"{sys.executable} lacks {', '.join(missing)}: give a folder of wheels of what it lacks "
        "(.ci/gpu-service FOLDER), or set PYTHON to one that has all."
    )


def finals_of(storage: Path) -> dict[str, str]:
    """The final records below a storage root, by arm."""
    found = sorted((storage / "arms").glob("*/record.json"))
    return {file.parent.name: file.read_text() for file in found}


def kill(storage: Path, command: list[str]) -> dict[str, Any]:
    """Start a sweep; kill its driver once an arm is final and another has a checkpoint."""
    said = storage.with_suffix(".txt")
    started = time.monotonic()
    with said.open("wb") as stream:
        driver = subprocess.Popen(command, start_new_session=True, stdout=stream, stderr=stream)
        try:
            while not (finals_of(storage) and any((storage / "arms").glob("*/checkpoint-*"))):
                if driver.poll() is not None:
                    text = said.read_text(errors="replace")
                    raise SystemExit(f"the driver ended before it was killed:\n{text}")
                time.sleep(0.02)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
    seconds, kept = time.monotonic() - started, finals_of(storage)
    storage.with_suffix(".json").write_text(json.dumps(kept))
    return {"lines": [f"killed after {seconds:.1f} s, with {len(kept)} arms final"]}


def train(storage: Path, command: list[str]) -> dict[str, Any]:
    """Run or resume a sweep: no arm fails, and what was final at a kill is as it was."""
    subprocess.run(command, check=True, stdout=sys.stderr)
    kept, finals = storage.with_suffix(".json"), finals_of(storage)
    before = json.loads(kept.read_text()) if kept.exists() else {}
    if changed := [arm for arm, text in before.items() if finals.get(arm) != text]:
        raise SystemExit(f"final records changed: {', '.join(changed)}")
    if left := [arm.name for arm in (storage / "arms").iterdir() if arm.name not in finals]:
        raise SystemExit(f"arms without a final record: {', '.join(left)}")
    records = [json.loads(text.partition("\nsha256:")[0]) for text in finals.values()]
    if failed := [record["reason"] for record in records if record["status"] == "failed"]:
        raise SystemExit(f"{len(failed)} of {len(records)} arms failed: {failed[0]}")
    statuses = [record["status"] for record in records]
    said = ", ".join(f"{statuses.count(one)} {one}" for one in sorted(set(statuses)))
    was_there = f", {len(before)} of them before the kill" if before else ""
    return {"lines": [said + was_there], "environment": records[0]["environment"]}


# --- the course -----------------------------------------------------------------------------------


def end_all(mark: str) -> None:
    """End what still runs of this course, wherever it went."""
    import psutil

    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(MARK) == mark and process.pid != os.getpid():
                process.kill()


def main(arguments: list[str] | None = None) -> int:
    """Run the course, or one of its steps; 0 where every part ran to its end."""
    made = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    made.add_argument("given", nargs="*", metavar="WHEELS", help="the folder of wheels")
    made.add_argument("--step", choices=("lay", "train", "kill"), help=argparse.SUPPRESS)
    made.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    made.add_argument("--name", help=argparse.SUPPRESS)
    options = made.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    if options.step:
        place = options.folder / options.name
        if options.step == "lay":
            found = lay(place, Path(options.given[0]))
        else:
            found = (train if options.step == "train" else kill)(place, options.given)
        print(json.dumps(found))
        return 0
    device = asked_device()
    if why := refused_device(device):
        print(why, file=sys.stderr)
        return 2
    mark = secrets.token_hex(8)
    wheels = next(iter(options.given), os.environ.get("WHEELS") or None)
    wheels = None if wheels is None else str(Path(wheels).absolute())
    if why := refusal(wheels):
        print(why, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(  # short: paths of sockets end at 107 characters
        prefix="dsw-", dir="/tmp", ignore_cleanup_errors=True
    ) as made_here:
        folder = Path(made_here)
        try:
            environment = environment_of(device, folder, mark)
            return course(parts_of(device, wheels, folder), environment, folder, "gpu-service")
        finally:
            end_all(mark)


if __name__ == "__main__":
    sys.exit(main())
