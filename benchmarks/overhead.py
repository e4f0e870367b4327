"""Overhead of a sweep around its training: start-up, and time between two arms.

    python benchmarks/overhead.py [--out FILE]

*start*: seconds from `sweep run` to the first training step, with warm caches (one run before is
not counted), median of the repeats; at most 25 are allowed. *arms*: 64 arms of about 5 s on a local
Ray cluster; from the first step of the first arm to the last step of the last, the share of worker
time in which a worker took no training step, held-out evaluation included; at most 15 % are
allowed. Evaluation is given apart too: its share is the config's choice (eval_windows, eval_draws
and test_gammas against steps), here 4 windows of 144 patches; the rest is the service's own.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from search_spaces.space import SearchSpace, Setting, Uniform
from sweep.executors.executor import Executor
from sweep.run.run_sweep import run_sweep
from sweep.study.definition import Definition, put_definition
from trainables.arm_run import ArmRun
from trainables.config.arm import ArmConfig, ConstraintConfig, DataConfig
from trainables.machine.cores import usable_cores
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


def start_s(storage: Path, number: int) -> float:
    """Seconds from `sweep run quickstart` to the first training step of its first arm."""
    objects = ObjectStore(storage / str(number))
    command = [sys.executable, "-m", "sweep.cli", "run", "quickstart", "--storage", objects.root]
    began = time.time()
    # Quiet: its display is not what is measured.
    process = subprocess.Popen(
        [*command, "--set", "report_every=5"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        while not (there := records(objects)):
            if process.poll() is not None:
                raise SystemExit(f"`sweep run` ended with {process.returncode} before it trained.")
            time.sleep(0.05)
    finally:
        process.send_signal(signal.SIGTERM)  # a shell has its background ignore SIGINT
        process.wait(timeout=120)
    return min(map(first_step_s, there)) - began


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
    parser.add_argument("--workers", type=int, default=usable_cores())
    parser.add_argument("--repeats", type=int, default=3, help="of the start")
    parser.add_argument("--out", type=Path, help="write the JSON here too")
    options = parser.parse_args()
    result: dict[str, Any] = {"benchmark": "overhead"}
    if options.repeats:
        with tempfile.TemporaryDirectory() as folder:
            starts = [start_s(Path(folder), n) for n in range(options.repeats + 1)][1:]
        result["start"] = {"seconds": statistics.median(starts), "all": starts, "allowed": 25}
    if options.arms:
        result["arms"] = arms(options.arms, options.seconds, options.workers) | {"allowed": 0.15}
    text = json.dumps(result, indent=2)
    print(text)
    if options.out is not None:
        options.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
