"""Steps of fused arms against steps of arms alone: model-steps a second by number and width.

    python -m benchmarks.fused_arms > benchmarks/results/fused_arms.json

On a GPU: --device cuda. UT with constraints, and one plain arm among them, on the built-in
photographs; a width is the pixels of a patch. Each repeat takes the same steps alone and together,
in turns; seconds are the processor's on a CPU (one thread), the wall's on a GPU. Figures are
medians over repeats, ratios are of one repeat. ``same_bits`` says whether the product would fuse
that company; ``shared`` is what a batch costs of a step alone, which a company pays once.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import time
from dataclasses import replace

import torch

from search_spaces.quickstart import SPACE
from trainables.build import build_model, build_task, parameter_dtype, weighting_of
from trainables.config.arm import ArmConfig
from trainables.fused.agreement import may_fuse
from trainables.fused.training import FusedTraining
from trainables.tasks.base import Task
from trainables.training import Training

PATCHES = {64: 8, 256: 16, 529: 23}  # sides; no square has 512 pixels
FRAMES = {64: 96, 256: 96, 529: 92}  # side of a frame: a multiple of the patch's


def config_of(width: int, batch: int, options: argparse.Namespace) -> ArmConfig:
    """The quickstart's run at another size."""
    return SPACE.base.with_fields(
        {
            "data.patch_size": PATCHES[width],
            "data.frame_size": FRAMES[width],
            "model.layers": options.layers,
            "batch_size": batch,
            "device": options.device,
        }
    )


def company(config: ArmConfig, size: int) -> list[ArmConfig]:
    """Arms that differ in alpha and rate; the first is plain."""
    assert config.constraint is not None
    arms = [
        replace(config.constraint, alpha=0.05 + 0.3 * k / size, dual_lr=1e-4 * (k + 1))
        for k in range(1, size)
    ]
    return [config.unconstrained(), *(replace(config, constraint=arm) for arm in arms)]


def training_of(config: ArmConfig, task: Task) -> Training:
    """One arm before its first step."""
    device, dtype = torch.device(config.device), parameter_dtype(config)
    weighting = weighting_of(
        config, task.scales, device, dtype, steps_per_epoch=task.steps_per_epoch
    )
    model = build_model(config, task).to(device=device, dtype=dtype)
    return Training(config, task, model, weighting)


def seconds_of(trained: Training | FusedTraining, step: int, device: str) -> float:
    """Of the steps up to ``step``."""
    clock = time.process_time if device == "cpu" else time.perf_counter
    started = clock()
    trained.run_to(step)
    return clock() - started


def measured(
    config: ArmConfig, task: Task, size: int, repeats: int, at_least: int
) -> dict[str, object]:
    """One company against one arm alone, by turns."""
    alone = training_of(company(config, 2)[1], task)
    arms = [training_of(arm, task) for arm in company(config, size)]
    same_bits = may_fuse(arms)
    fused = FusedTraining(arms)
    steps, first = max(at_least, 48 // size), 2
    alone.run_to(first)
    fused.run_to(first)
    rates, ratios = [], []
    for repeat in range(repeats):
        to = first + (repeat + 1) * steps
        of_fused = size * steps / seconds_of(fused, to, config.device)
        of_alone = steps / seconds_of(alone, to, config.device)
        rates.append((of_alone, of_fused))
        ratios.append(of_fused / of_alone)
    of_alone, of_fused = map(statistics.median, zip(*rates, strict=True))
    return {
        "arms": size,
        "alone_per_s": round(of_alone, 1),
        "fused_per_s": round(of_fused, 1),
        "ratio": round(statistics.median(ratios), 2),
        "ratios": [round(ratio, 2) for ratio in ratios],
        "same_bits": same_bits,
    }


def shared(config: ArmConfig, task: Task) -> float:
    """The share of a batch in a step alone."""
    arm = training_of(config, task)
    arm.run_to(2)
    of_steps = seconds_of(arm, 22, config.device)
    clock = time.process_time if config.device == "cpu" else time.perf_counter
    started = clock()
    for step in range(20):
        task.train_batch(step)
    return round((clock() - started) / of_steps, 3)


def main() -> None:
    """Measure, and print one JSON object."""
    parser = argparse.ArgumentParser(description=str(__doc__))
    parser.add_argument("--widths", type=int, nargs="+", default=list(PATCHES))
    parser.add_argument("--arms", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32, 64])
    parser.add_argument("--layers", type=int, default=5)
    parser.add_argument("--batches", type=int, nargs="+", default=[8, 32])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=24, help="between two reports, at least")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    torch.set_num_threads(1)
    load: list[float] = []
    found = []
    for width, batch in itertools.product(options.widths, options.batches):
        config = config_of(width, batch, options)
        task = build_task(config, torch.device(options.device), parameter_dtype(config))
        rows = []
        for size in options.arms:
            load.append(round(os.getloadavg()[0], 1))
            rows.append(measured(config, task, size, options.repeats, options.steps))
        case = {"width": width, "batch": batch, "shared": shared(config, task)}
        found.append({**case, "companies": rows})
    on_gpu = options.device == "cuda"
    gpu = torch.cuda.get_device_name() if on_gpu else None
    print(
        json.dumps({"options": vars(options), "gpu": gpu, "load": load, "cases": found}, indent=1)
    )


if __name__ == "__main__":
    main()
