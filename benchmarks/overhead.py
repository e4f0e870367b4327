"""Overhead of a sweep around its training: start-up, and time between two arms.

    python benchmarks/overhead.py [--against CHECKOUT] [--out FILE]

*help*: seconds of `sweep --help`, median of the repeats; at most 0.3 are allowed. *start*: seconds
from `sweep run quickstart` to the first training step, with warm caches (one run before is not
counted), median of the repeats. --against alternates both with those of another checkout, which
share the noise of this machine. *arms*: 64 arms of about 5 s on a local
Ray cluster; from the first step of the first arm to the last step of the last, the share of worker
time in which a worker took no training step, held-out evaluation included; at most 15 % are
allowed. Evaluation is given apart too: its share is the config's choice (eval_windows, eval_draws
and test_gammas against steps), here 4 windows of 144 patches; the rest is the service's own.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from search_spaces.space import SearchSpace, Setting, Uniform
from sweep.executors.executor import Executor
from sweep.run.run_sweep import run_sweep
from sweep.study.definition import Definition, put_definition
from trainables.arm_run import ArmRun
from trainables.config.arm import ArmConfig, ConstraintConfig, DataConfig
from trainables.records.arm_record import EVAL_SECONDS, TRAIN_SECONDS, ArmRecord
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore

BASE = ArmConfig(
    data=DataConfig(frame_size=96, patch_size=8),
    eval_windows=4,
    constraint=ConstraintConfig(),
)


def records(objects: ObjectStore) -> list[ArmRecord]:
    """Every stored record."""
    store = ArmStore(objects)
    found = [store.record(name) for name in objects.names("arms")]
    return [record for record in found if record is not None and record.reports]


def first_step_s(record: ArmRecord) -> float:
    """When the arm took its first step, in seconds since 1970."""
    first = record.reports[0]
    measured = first.scalars[TRAIN_SECONDS] + first.scalars[EVAL_SECONDS]
    return first.timestamp_ms / 1e3 - measured


def command_line(checkout: Path, *words: str) -> dict[str, Any]:
    """Arguments of ``subprocess`` for `sweep WORDS` of a checkout; quiet: none is to be shown."""
    return {
        "args": [sys.executable, "-m", "sweep.cli", *words],
        "env": os.environ | {"PYTHONPATH": str(checkout)},
        "cwd": checkout,
        "stdout": subprocess.DEVNULL,
        "stderr": subprocess.DEVNULL,
    }


def help_s(checkout: Path) -> float:
    """Seconds of `sweep --help`."""
    began = time.perf_counter()
    subprocess.run(**command_line(checkout, "--help"), check=True)
    return time.perf_counter() - began


def start_s(checkout: Path) -> float:
    """Seconds from `sweep run quickstart` to the first training step of its first arm."""
    with tempfile.TemporaryDirectory() as folder:
        return _start_s(checkout, ObjectStore(folder))


def _start_s(checkout: Path, objects: ObjectStore) -> float:
    words = ("run", "quickstart", "--storage", objects.root, "--set", "report_every=5")
    began = time.time()
    process = subprocess.Popen(**command_line(checkout, *words))
    try:
        while not (there := records(objects)):
            if process.poll() is not None:
                raise SystemExit(f"`sweep run` ended with {process.returncode} before it trained.")
            time.sleep(0.05)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=120)
    return min(map(first_step_s, there)) - began


def alternated(
    measure: Callable[[Path], float], checkouts: Mapping[str, Path], repeats: int
) -> dict[str, Any]:
    """Seconds by checkout, in turns, the first turn not counted."""
    turns: list[dict[str, float]] = []
    for _ in range(repeats + 1):
        turns.append({name: measure(place) for name, place in checkouts.items()})
        print(measure.__name__, turns[-1], file=sys.stderr, flush=True)
    del turns[0]
    by_name = {name: [turn[name] for turn in turns] for name in checkouts}
    return {
        name: {"seconds": statistics.median(all_s), "all": all_s} for name, all_s in by_name.items()
    }


def steps_of_arm(seconds: float) -> int:
    """Steps that take about this long, measured on one arm in this process."""
    with tempfile.TemporaryDirectory() as folder:
        steps = 200
        config = BASE.with_fields({"steps": steps, "report_every": steps})
        record = ArmRun(config, ArmStore(ObjectStore(folder))).advance()
        return max(10, round(steps * seconds / record.reports[-1].scalars[TRAIN_SECONDS]))


def arms(n_arms: int, seconds: float, workers: int) -> dict[str, float]:
    """Shares of worker time between the first and the last step of ``n_arms`` arms."""
    steps = steps_of_arm(seconds)
    space = SearchSpace(
        name="overhead",
        summary="",
        base=BASE.with_fields({"steps": steps, "report_every": max(1, steps // 3)}),
        settings=(Setting("photographs", {}),),
        ranges={"constraint.alpha": Uniform(0.02, 0.3)},
        n_proposals=n_arms - 1,
        search_seeds=(0,),
        sampler="tpe",
    )
    with tempfile.TemporaryDirectory() as folder:
        objects = ObjectStore(folder)
        asked = put_definition(objects, Definition("overhead", space))
        summary = run_sweep(objects, asked, Executor(workers=workers), display=False)
        assert summary.exit_code == 0, summary
        trained = records(objects)
    window_s = max(r.ended_ms for r in trained) / 1e3 - min(map(first_step_s, trained))
    stepping_s = sum(r.reports[-1].scalars[TRAIN_SECONDS] for r in trained)
    evaluating_s = sum(r.reports[-1].scalars[EVAL_SECONDS] for r in trained)
    worker_s = workers * window_s
    return {
        "arms": len(trained),
        "workers": workers,
        "seconds_per_arm": (stepping_s + evaluating_s) / len(trained),
        "share_outside_training": 1 - stepping_s / worker_s,
        "share_of_evaluation": evaluating_s / worker_s,
        "share_of_the_service": 1 - (stepping_s + evaluating_s) / worker_s,
        "ms_between_arms": 1e3 * (worker_s - stepping_s - evaluating_s) / len(trained),
    }


def main() -> None:
    """Measure both, print JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--arms", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=5.0, help="of training per arm")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--repeats", type=int, default=3, help="of the start")
    parser.add_argument("--help-repeats", type=int, default=20)
    parser.add_argument("--against", type=Path, help="another checkout, for help and start")
    parser.add_argument("--out", type=Path, help="write the JSON here too")
    options = parser.parse_args()
    result: dict[str, Any] = {"benchmark": "overhead"}
    checkouts = {"this": Path(__file__).resolve().parents[1]}
    if options.against is not None:
        checkouts["other"] = options.against.resolve()
    if options.help_repeats:
        result["help"] = alternated(help_s, checkouts, options.help_repeats) | {"allowed": 0.3}
    if options.repeats:
        result["start"] = alternated(start_s, checkouts, options.repeats) | {"allowed": 6.0}
    if options.arms:
        result["arms"] = arms(options.arms, options.seconds, options.workers) | {"allowed": 0.15}
    text = json.dumps(result, indent=2)
    print(text)
    if options.out is not None:
        options.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
