"""Fused arms on one device: steps a second, the part whose bits differ, whole arms a minute.

    python -m benchmarks.gpu.companies > build/gpu/companies.json

UT as in ``benchmarks.gpu.shapes``; a company is one plain arm and constrained ones. The product
fuses a company whose bits are those of its arms alone. Here each part of a step is tried by itself,
from the same numbers: losses forward, their gradients, the norms that clip them, Adam's update.
"""

from __future__ import annotations

import statistics
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.fused_arms import company, training_of
from benchmarks.gpu.printed import parser, printed, waited
from benchmarks.gpu.shapes import shape
from trainables.arm_run import ArmRun
from trainables.build import build_task, parameter_dtype
from trainables.config.arm import ArmConfig
from trainables.fused.group import ArmGroup
from trainables.fused.training import FusedTraining
from trainables.fused.update import JointUpdate, Parameters, stacked, twin_of
from trainables.primal_dual.clipping import clip, clip_rows
from trainables.records.arm_record import TRAIN_SECONDS, ArmRecord
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore
from trainables.tasks.base import Task
from trainables.training import StepLosses

SIZES = (1, 4, 16, 64)
BLOCKS = 3  # of steps, alone and fused by turns
QUICK_WINDOWS = 8  # that an arm of the quickstart is evaluated on
NO_CLIPPING = 1e30  # of a norm: factors are 1


def speeds(config: ArmConfig, task: Task, size: int, steps: int) -> dict[str, Any]:
    """Model-steps a second of one arm alone and of a company, by turns."""
    device = torch.device(config.device)
    alone = training_of(company(config, 2)[1], task)
    fused = FusedTraining([training_of(arm, task) for arm in company(config, size)])
    alone.run_to(2)
    fused.run_to(2)
    rates: dict[str, list[float]] = {"alone_per_s": [], "fused_per_s": []}
    for block in range(1, BLOCKS + 1):
        for name, trained, arms in (("alone_per_s", alone, 1), ("fused_per_s", fused, size)):
            waited(device)
            started = time.perf_counter()
            trained.run_to(2 + block * steps)
            waited(device)
            rates[name].append(arms * steps / (time.perf_counter() - started))
    medians = {name: round(statistics.median(found), 1) for name, found in rates.items()}
    return {**medians, "ratio": round(medians["fused_per_s"] / medians["alone_per_s"], 2)}


# --- bits -----------------------------------------------------------------------------------------


def differences(config: ArmConfig, task: Task, size: int) -> dict[str, Any]:
    """The verdict of the product, and the largest relative difference by part; 0.0: same bits."""
    trainings = [training_of(arm, task) for arm in company(config, size)]
    fused = FusedTraining(trainings)
    verdict = fused.same_bits()
    generator = torch.Generator().manual_seed(0)
    arms: list[Parameters] = [
        {
            f"model.{name}": (p.detach() + 0.02 * torch.randn(p.shape, generator=generator).to(p))
            for name, p in training.model.named_parameters()
            if p.requires_grad
        }
        for training in trainings
    ]
    part = task.train_batch(0)
    weights_F = 1.0 + torch.rand(config.model.layers + 1, generator=generator)
    weights_F = weights_F.to(trainings[0].parameters[0])
    stack = stacked(arms)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.vmap's, of what it loops over
        losses_KF = fused._fused_losses(stack, part)
        (weights_F * losses_KF).sum().backward()  # type: ignore[no-untyped-call]
    worst = dict.fromkeys(("losses", "gradients", "clipped norms", "updates"), 0.0)

    def compare(what: str, one: Tensor, other: Tensor) -> None:
        worst[what] = max(worst[what], relative(one, other))

    rows: list[Parameters] = []  # every arm's gradients as the stack has them
    for row, (arm, training) in enumerate(zip(arms, trainings, strict=True)):
        alone = {name: value.clone().requires_grad_() for name, value in arm.items()}
        own = StepLosses(training.model, task)
        losses_F = fused._mean_losses(own, alone, part, "all layers")
        (weights_F * losses_F).sum().backward()  # type: ignore[no-untyped-call]
        compare("losses", losses_F.detach(), losses_KF[row].detach())
        rows.append({name: _gradient(stack[name])[row].clone() for name in stack})
        for name, value in alone.items():
            compare("gradients", _gradient(value), rows[row][name])
    norms_K = clip_rows([_gradient(value).clone() for value in stack.values()], NO_CLIPPING)
    twins = [
        twin_of(t.optimizer, [(own, [arm[name]]) for name, own in _named(fused, at).items()])
        for at, (t, arm) in enumerate(zip(trainings, arms, strict=True))
    ]
    joint = JointUpdate(arms, twins)
    for name, value in joint.stack.items():
        value.grad = _gradient(stack[name]).clone()
    joint.step(NO_CLIPPING, [group["lr"] for group in twins[0].param_groups])
    for row, (arm, twin) in enumerate(zip(arms, twins, strict=True)):
        for name, value in arm.items():
            value.grad = rows[row][name]
        norm = clip(arm.values(), NO_CLIPPING)
        twin.step()
        compare("clipped norms", norm, norms_K[row])
        for name, value in arm.items():
            compare("updates", value, joint.stack[name][row])
    return {"same_bits": verdict, "differs_by": worst}


def _named(fused: FusedTraining, at: int) -> Parameters:
    return fused._parameters[at]


def _gradient(value: Tensor) -> Tensor:
    return torch.zeros_like(value) if value.grad is None else value.grad


def relative(one: Tensor, other: Tensor) -> float:
    """The largest difference over the largest number; 0.0 where all bits are the same."""
    if torch.equal(one, other):
        return 0.0
    return float(((one - other).detach().abs().max() / one.detach().abs().max()).item())


# --- whole arms -----------------------------------------------------------------------------------


def arms_a_minute(config: ArmConfig, size: int) -> dict[str, Any]:
    """Whole arms a minute of a company, with their reports and evaluation."""
    with tempfile.TemporaryDirectory() as folder:
        store = ArmStore(ObjectStore(folder))
        started = time.perf_counter()
        group = ArmGroup([ArmRun(arm, store) for arm in company(config, size)])
        records: dict[str, ArmRecord] = {}
        while not group.is_final:
            records |= {record.signature: record for record in group.advance()}
        seconds = time.perf_counter() - started
    unfinished = [r.reason for r in records.values() if r.status != "finished"]
    if unfinished:
        raise RuntimeError(f"{len(unfinished)} of {size} arms did not finish: {unfinished[0]}")
    trained = sum(r.reports[-1].scalars[TRAIN_SECONDS] for r in records.values())
    return {
        "whole_arms_per_minute": round(60 * size / seconds, 1),
        "steps": config.steps,
        "whole_s": round(seconds, 2),
        "training_s": round(trained, 2),
        "fused": group.fuses and size > 1,
    }


def line_of(size: int, found: dict[str, Any]) -> str:
    """What the table says of one company."""
    worst = {part: by for part, by in found["differs_by"].items() if by}
    said = ", ".join(f"{part} by {by:.0e}" for part, by in worst.items())
    text = (
        f"K = {size}: {found['fused_per_s']:g} model-steps/s fused, {found['alone_per_s']:g} alone "
        f"({found['ratio']:g}); the product {'fuses' if found['same_bits'] else 'does not fuse'}; "
        f"bits differ in: {said or 'nothing'}"
    )
    if "whole_arms_per_minute" in found:
        rate, steps = found["whole_arms_per_minute"], found["steps"]
        text += f"; {rate:g} whole arms of {steps} steps a minute"
    return text


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    made = parser(__doc__)
    made.add_argument("--arms", type=int, nargs="+", default=list(SIZES))
    made.add_argument("--most-s", type=float, default=80.0, help="after which no company begins")
    options = made.parse_args(arguments)
    with printed("companies", options) as found, tempfile.TemporaryDirectory() as folder:
        config = shape("ut", Path(folder), device=options.device, small=options.small)
        steps = 4 if options.small else 30
        began = time.perf_counter()
        task = build_task(config, torch.device(options.device), parameter_dtype(config))
        speed = config.with_fields({"steps": 10**6})
        whole = config.with_fields({"eval_windows": min(config.eval_windows, QUICK_WINDOWS)})
        companies: dict[int, dict[str, Any]] = {}
        found["companies"] = companies
        for size in options.arms:
            companies[size] = speeds(speed, task, size, steps) | differences(speed, task, size)
            found["lines"] = [line_of(*one) for one in companies.items()]
        an_arm_s = 0.0
        for size in options.arms:
            left_s = options.most_s - (time.perf_counter() - began)
            if size * an_arm_s > left_s:
                found["lines"].append(f"K = {size}: no whole arms, for want of time")
                continue
            companies[size] |= arms_a_minute(whole, size)
            an_arm_s = companies[size]["whole_s"] / size
            found["lines"] = [line_of(*one) for one in companies.items()]


if __name__ == "__main__":
    main()
