"""Pair of whole arms on one device: speed, memory beside its estimate, bits, the CPU's losses.

    python -m benchmarks.gpu.pairs ut > build/gpu/ut.json

A whole arm is what a worker does of it: start, steps, reports, evaluation, through
``trainables.arm_run`` and a store in a temporary folder. Memory is that of torch's tensors at the
peak, of training and of the whole arm, beside what `sweep spaces` estimates less CUDA's own; losses
are compared over the first steps, on the very same batches.
"""

from __future__ import annotations

import dataclasses
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.gpu.printed import NO_MEANING, parser, printed, waited
from benchmarks.gpu.shapes import SHAPES, shape
from sweep.cost.estimate import GPU_GB, arm_memory_gb
from trainables.arm_run import ArmRun
from trainables.build import build_model, build_task, placed, weighting_of
from trainables.config.arm import ArmConfig
from trainables.fused.training import alone
from trainables.layer_losses import introduce
from trainables.memory import peak_memory_mb
from trainables.records import arm_record as results
from trainables.records.arm_record import Report
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore
from trainables.tasks.base import Batch, Task, Tokens
from trainables.training import Training

WITHIN = 0.15  # of an estimate of memory, either way
ANY_GPU = "h100"  # the estimate's bytes are the same for all
COMPARED = {"ut": 20, "dust": 10, "distilbert": 2}  # steps beside the CPU's; others are too large
CLOCKS = (
    results.TRAIN_STEPS_PER_S,
    results.TRAIN_SECONDS,
    results.EVAL_SECONDS,
    results.TRAIN_PEAK_MEMORY_MB,
)


def whole_arm(config: ArmConfig) -> dict[str, Any]:
    """Seconds and memory of one arm, from its start to its record."""
    device = torch.device(config.device)
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        run = ArmRun(config, ArmStore(ObjectStore(folder)))
        run.begin()
        waited(device)
        begun = time.perf_counter()
        trained_mb, reports_s, steps_s = 0.0, 0.0, []
        while not run.record.is_final:
            before = run.training.seconds
            run.run_to(run.next_report)
            steps_s.append(run.training.seconds - before)
            trained_mb = trained_mb or peak_memory_mb(device)
            settled = time.perf_counter()
            run.settle()
            reports_s += time.perf_counter() - settled
        ended = time.perf_counter()
    if run.record.status != "finished":
        raise RuntimeError(f"the {config.arm} arm {run.record.status}: {run.record.reason}")
    memory: Any = NO_MEANING
    if device.type == "cuda":
        memory = memory_of(config, device, trained_mb)
    return {
        "steps_per_s": round(config.report_every / steps_s[-1], 2),  # the first ones warm up
        "first_steps_per_s": round(config.report_every / steps_s[0], 2),
        "start_s": round(begun - started, 3),
        "reports_and_evaluation_s": round(reports_s, 3),
        "eval_s": round(run.record.reports[-1].scalars[results.EVAL_SECONDS], 3),
        "whole_s": round(ended - started, 3),
        "memory": memory,
    }


def memory_of(config: ArmConfig, device: torch.device, trained_mb: float) -> dict[str, float]:
    """MiB at the peak of the arm that was trained last, and over what is estimated."""
    free, total = torch.cuda.mem_get_info(device)
    whole_mb = peak_memory_mb(device)
    whole_estimate_mb = 1e9 * arm_memory_gb(config, ANY_GPU) / 2**20
    estimated_mb = whole_estimate_mb - 1e9 * GPU_GB / 2**20
    used_mb = (total - free) / 2**20
    return {
        "training_mb": round(trained_mb, 1),
        "whole_mb": round(whole_mb, 1),
        "reserved_mb": round(torch.cuda.max_memory_reserved(device) / 2**20, 1),
        "used_of_gpu_mb": round(used_mb, 1),  # with CUDA's own, and whatever else is on it
        "estimated_tensors_mb": round(estimated_mb, 1),
        "whole_over_estimate": round(whole_mb / estimated_mb, 3),
        "used_over_estimate": round(used_mb / whole_estimate_mb, 3),
    }


# --- bits, and the CPU ----------------------------------------------------------------------------


def to_first_report(config: ArmConfig) -> tuple[list[Tensor], dict[str, Any]]:
    """What an arm has come to at its first report: its weights, and the report but for clocks."""
    with tempfile.TemporaryDirectory() as folder:
        run = ArmRun(config, ArmStore(ObjectStore(folder)))
        if not run.begin():
            raise RuntimeError(f"the {config.arm} arm did not start: {run.record.reason}")
        run.run_to(run.next_report)
        weights = [p.detach().clone() for p in run.training.parameters]
        run.settle()
        report: Report = run.record.reports[0]
    scalars = {name: value for name, value in report.scalars.items() if name not in CLOCKS}
    return weights, {**scalars, **report.layers}


def bits_of_two_runs(config: ArmConfig) -> dict[str, bool]:
    """Whether two runs of an arm have the same weights at their first report, and report alike."""
    (weights, report), (again, reported) = to_first_report(config), to_first_report(config)
    same = all(torch.equal(a, b) for a, b in zip(weights, again, strict=True))
    return {"weights": same, "report": repr(report) == repr(reported)}


def started(config: ArmConfig) -> tuple[Task, Training]:
    """An arm before its first step."""
    device, dtype = torch.device(config.device), torch.float32
    task = build_task(config, device, dtype)
    model = placed(config, build_model(config, task), device)
    introduce(model, task)
    weighting = weighting_of(
        config, task.scales, device, dtype, steps_per_epoch=task.steps_per_epoch
    )
    return task, Training(config, task, model, weighting)


def moved(batch: Batch, device: torch.device) -> Batch:
    """The same numbers on another device."""
    inputs: Any = batch.inputs
    if isinstance(inputs, Tokens):
        tensors = {n: v.to(device) for n, v in vars(inputs).items() if isinstance(v, Tensor)}
        inputs = dataclasses.replace(inputs, **tensors)  # type: ignore[arg-type]
    else:
        inputs = inputs.to(device)
    return dataclasses.replace(batch, inputs=inputs, targets=batch.targets.to(device))


def from_the_cpu(config: ArmConfig, steps: int) -> dict[str, Any]:
    """Relative differences of losses and gradients' norms of the first steps, in float32.

    Batches are the CPU's: a device's generator draws another noise.
    """
    config = config.with_fields({"dtype": "float32"})
    threads = torch.get_num_threads()
    torch.set_num_threads(os.cpu_count() or 1)
    cpu_task, there = started(config.with_fields({"device": "cpu"}))
    task, here = started(config)
    device = torch.device(config.device)
    task.train_batch = lambda step: moved(cpu_task.train_batch(step), device)  # type: ignore[method-assign]
    steps_of = {training: alone(training) for training in (there, here)}
    worst: dict[str, list[float]] = {results.TRAIN_LOSS: [], results.TRAIN_GRAD_NORM: []}
    for step in range(1, steps + 1):
        found = []
        for training in (there, here):
            steps_of[training].run_to(step)
            found.append(training.measured()[0])
        for name, differences in worst.items():
            cpu, gpu = (scalars[name] for scalars in found)
            differences.append(abs(gpu - cpu) / abs(cpu))
    torch.set_num_threads(threads)
    return {"steps": steps, **{f"{name}, by step": values for name, values in worst.items()}}


def _beyond(memory: dict[str, float]) -> str:
    """Says where an estimate is to be mended."""
    ratio = memory["whole_over_estimate"]
    return "" if abs(ratio - 1) <= WITHIN else ": beyond 15 %"


def line_of(found: dict[str, Any]) -> list[str]:
    """What the table says of it."""
    lines = []
    for arm in ("constrained", "unconstrained"):
        one = found[arm]
        memory = one["memory"]
        if isinstance(memory, dict):
            memory = (
                f"peak {memory['whole_mb']:,.0f} MiB of {memory['estimated_tensors_mb']:,.0f} "
                f"estimated ({memory['whole_over_estimate']:.2f}{_beyond(memory)}), in training "
                f"{memory['training_mb']:,.0f}; with CUDA's own {memory['used_over_estimate']:.2f} "
                "of `sweep spaces`"
            )
        lines.append(
            f"{arm}: {one['steps_per_s']:g} steps/s, evaluation {one['eval_s']:g} s, whole arm "
            f"{one['whole_s']:g} s; memory: {memory}"
        )
    if "bits_of_two_runs" in found:
        same = found["bits_of_two_runs"]
        said = {True: "equal", False: "differ"}
        lines.append(f"two runs: weights {said[same['weights']]}, reports {said[same['report']]}")
    if isinstance(compared := found.get("from_the_cpu"), dict):
        losses = compared[f"{results.TRAIN_LOSS}, by step"]
        lines.append(
            f"loss from the CPU's: {losses[0]:.1e} at step 1, {losses[-1]:.1e} at {len(losses)}"
        )
    return lines


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    made = parser(__doc__)
    made.add_argument("shape", choices=tuple(SHAPES))
    options = made.parse_args(arguments)
    with printed(options.shape, options) as found, tempfile.TemporaryDirectory() as folder:
        config = shape(options.shape, Path(folder), device=options.device, small=options.small)
        for arm in (config, config.unconstrained()):
            found[arm.arm] = whole_arm(arm)
        found["lines"] = line_of(found)
        found["bits_of_two_runs"] = bits_of_two_runs(config)
        found["lines"] = line_of(found)
        steps = COMPARED.get(options.shape)
        found["from_the_cpu"] = "too large for a CPU"
        if steps is not None:
            found["from_the_cpu"] = from_the_cpu(config, 2 if options.small else steps)
        found["lines"] = line_of(found)


if __name__ == "__main__":
    main()
