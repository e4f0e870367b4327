"""Cost of constraining: step time and peak memory of the constrained arm over the unconstrained.

    python benchmarks/training_step.py            JSON on standard output, about two minutes

UT, d = 256, L = 7. Step times alternate in blocks inside one process; the figure is the median of
the blocks' ratios. ``by_hand`` is a third arm: a plain loop that computes the last layer's loss
alone, which the unconstrained arm is not allowed to be (both arms go through the same reduction).
Peak memory is measured in a fresh process per arm, above what was resident before the model was
built. Targets: time at most 1.15, memory at most 1.10.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import nn

from trainables.build import build_model, build_task
from trainables.config import ConstraintConfig, DataConfig, ModelConfig, RunConfig
from trainables.memory import peak_memory_mb, reset_peak_memory
from trainables.tasks.base import Task
from trainables.training import Training
from trainables.weighting import weighting_of

CONFIG = RunConfig(
    data=DataConfig(name="photographs"),
    model=ModelConfig(name="ut", layers=7),
    steps=100_000,
    batch_size=32,
    constraint=ConstraintConfig(),
)
CPU = torch.device("cpu")
ARMS = {"constrained": CONFIG, "unconstrained": CONFIG.unconstrained()}


def training_of(config: RunConfig, task: Task) -> Training:
    """One arm at its start."""
    model = build_model(config, task).float()
    weighting = weighting_of(
        config, task.scales, CPU, torch.float32, steps_per_epoch=task.steps_per_epoch
    )
    return Training(config, task, model, weighting)


def by_hand(task: Task) -> Callable[[int], None]:
    """A loop without layer losses: last prediction, its loss, Adam; takes a number of steps."""
    model = build_model(CONFIG, task).float()
    optimizer = torch.optim.Adam(model.parameters(), lr=CONFIG.primal_lr, fused=True)
    done = 0

    def run(steps: int) -> None:
        nonlocal done
        for step in range(done, done + steps):
            batch = task.train_batch(step)
            loss = (
                task.loss(model(batch.inputs)[-1], batch.targets).mean() / task.scales.constant_loss
            )
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(model.parameters(), CONFIG.grad_clip)
            optimizer.step()
        done += steps

    return run


def step_times(blocks: int, steps: int) -> dict[str, list[float]]:
    """Seconds per step of every block, by arm; the arms take turns and the order is rotated."""
    task = build_task(CONFIG, CPU, torch.float32)
    trainings = {name: training_of(config, task) for name, config in ARMS.items()}
    runs: dict[str, Callable[[int], None]] = {
        name: (lambda n, t=t: t.run_to(t.step + n)) for name, t in trainings.items()
    }
    runs["by_hand"] = by_hand(task)
    names = list(runs)
    for run in runs.values():
        run(3)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for block in range(blocks):
        for name in names[block % 3 :] + names[: block % 3]:
            started = time.perf_counter()
            runs[name](steps)
            seconds[name].append((time.perf_counter() - started) / steps)
    return seconds


def peak_above_start(arm: str) -> float:
    """MiB that training of one arm needs above what is resident before, in this process."""
    task = build_task(CONFIG, CPU, torch.float32)
    task.train_batch(0)
    reset_peak_memory(CPU)
    before = peak_memory_mb(CPU)
    training_of(ARMS[arm], task).run_to(20)
    return peak_memory_mb(CPU) - before


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=15)
    parser.add_argument("--steps", type=int, default=6, help="steps in a block")
    parser.add_argument("--peak-of", choices=list(ARMS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.peak_of:
        print(peak_above_start(options.peak_of))
        return
    seconds = step_times(options.blocks, options.steps)
    peaks: dict[str, list[float]] = {name: [] for name in ARMS}
    for _ in range(3):
        for name in ARMS:
            command = [sys.executable, __file__, "--peak-of", name]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            peaks[name].append(float(done.stdout))

    def ratio(ours: list[float], theirs: list[float]) -> float:
        return round(statistics.median(a / b for a, b in zip(ours, theirs, strict=True)), 3)

    print(
        json.dumps(
            {
                "benchmark": "training_step",
                "config": replace(CONFIG, steps=options.steps).to_json(),
                "ms_per_step": {
                    n: round(1e3 * statistics.median(s), 2) for n, s in seconds.items()
                },
                "time_ratio": ratio(seconds["constrained"], seconds["unconstrained"]),
                "time_ratio_to_by_hand": ratio(seconds["constrained"], seconds["by_hand"]),
                "time_ratio_target": 1.15,
                "peak_mib": {n: round(statistics.median(p), 1) for n, p in peaks.items()},
                "memory_ratio": ratio(peaks["constrained"], peaks["unconstrained"]),
                "memory_ratio_target": 1.10,
                "blocks": options.blocks,
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
