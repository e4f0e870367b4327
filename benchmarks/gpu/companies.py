"""Companies of arms on one device: steps a second, bits, whole arms a minute.

    python -m benchmarks.gpu.companies > build/gpu/companies.json

UT as in ``benchmarks.gpu.shapes``; a company is one plain arm and constrained ones. ``network`` is
an arm's network by itself, as before there were stacks; ``alone`` is what the product does of one
arm, ``fused`` of the company. Bits are those of an arm's weights after a few steps: in the company
against alone, and with captured passes against passes that the host starts kernel by kernel.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.fused_arms import company, training_of
from benchmarks.gpu.printed import parser, printed, waited
from benchmarks.gpu.shapes import shape
from trainables.arm_run import ArmRun
from trainables.build import build_task, parameter_dtype
from trainables.config.arm import ArmConfig
from trainables.fused import graph
from trainables.fused.agreement import may_fuse
from trainables.fused.group import ArmGroup
from trainables.fused.training import FusedTraining, alone
from trainables.records.arm_record import EVAL_SECONDS, TRAIN_SECONDS, ArmRecord
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore
from trainables.tasks.base import Task
from trainables.training import Training

SIZES = (1, 4, 16, 64)
BLOCKS = 3  # of steps, by turns
FIRST = 4  # steps before a measurement: what is captured is captured then
COMPARED = 20  # steps after which weights are compared
NEVER = 10**9  # steps: no run is worth capturing


def speeds(config: ArmConfig, task: Task, size: int, steps: int) -> dict[str, Any]:
    """Model-steps a second of a network by itself, of the product's arm alone, of a company."""
    device = torch.device(config.device)
    arms = company(config, max(size, 2))
    fused = FusedTraining([training_of(arm, task) for arm in arms[:size]])
    own = training_of(arms[1], task)
    trained: dict[str, tuple[Training | FusedTraining, int]] = {
        "network_per_s": (own, 1),
        "alone_per_s": (alone(training_of(arms[1], task)), 1),
        "fused_per_s": (fused, size),
    }
    rates: dict[str, list[float]] = {name: [] for name in trained}
    for one, _ in trained.values():
        one.run_to(FIRST)
    for block in range(1, BLOCKS + 1):
        for name, (one, arms_of_it) in trained.items():
            waited(device)
            started = time.perf_counter()
            one.run_to(FIRST + block * steps)
            waited(device)
            rates[name].append(arms_of_it * steps / (time.perf_counter() - started))
    medians = {name: round(statistics.median(found), 1) for name, found in rates.items()}
    return {**medians, "ratio": round(medians["fused_per_s"] / medians["network_per_s"], 2)}


# --- bits -----------------------------------------------------------------------------------------


def weights_after(trainings: list[Training], at: int) -> list[torch.Tensor]:
    """Weights of one arm of a company after COMPARED steps."""
    FusedTraining(trainings).run_to(COMPARED)
    return [p.detach().clone() for p in trainings[at].parameters]


def bits(config: ArmConfig, task: Task, size: int) -> dict[str, Any]:
    """Whether the last arm of a company has the bits of that arm alone, and of eager passes."""
    arms = company(config, size)
    last = size - 1
    found: dict[str, Any] = {"fuses": may_fuse([training_of(arm, task) for arm in arms])}
    if not found["fuses"]:
        return found
    together = weights_after([training_of(arm, task) for arm in arms], last)
    by_itself = weights_after([training_of(arms[last], task)], 0)
    usual, graph.FEWEST_STEPS = graph.FEWEST_STEPS, NEVER
    try:
        eager = weights_after([training_of(arms[last], task)], 0)
    finally:
        graph.FEWEST_STEPS = usual
    network = training_of(arms[last], task)
    network.run_to(COMPARED)
    plain = [p.detach() for p in network.parameters]
    return found | {
        "bits_as_alone": farthest(together, by_itself),
        "bits_as_eager": farthest(eager, by_itself),
        "from_the_network": farthest(plain, by_itself),
    }


def farthest(one: list[torch.Tensor], other: list[torch.Tensor]) -> float:
    """The largest difference over the largest number; 0.0 where all bits are the same."""
    if all(torch.equal(a, b) for a, b in zip(one, other, strict=True)):
        return 0.0
    apart = max(float((a - b).abs().max()) for a, b in zip(one, other, strict=True))
    return apart / max(float(a.abs().max()) for a in one)


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
    last = [record.reports[-1].scalars for record in records.values()]
    return {
        "whole_arms_per_minute": round(60 * size / seconds, 1),
        "steps": config.steps,
        "whole_s": round(seconds, 2),
        "training_s": round(sum(scalars[TRAIN_SECONDS] for scalars in last), 2),
        "evaluation_s": round(sum(scalars[EVAL_SECONDS] for scalars in last), 2),
        "fused": group.fuses and size > 1,
    }


def line_of(size: int, found: dict[str, Any]) -> str:
    """What the table says of one company."""
    text = (
        f"K = {size}: {found['fused_per_s']:g} model-steps/s, {found['alone_per_s']:g} alone, "
        f"{found['network_per_s']:g} of the network by itself ({found['ratio']:g})"
    )
    if found["fuses"]:
        text += "; weights differ from alone by {:.0e}, from eager passes by {:.0e}".format(
            found["bits_as_alone"], found["bits_as_eager"]
        )
        text += f", from the network's by {found['from_the_network']:.0e}"
    else:
        text += "; the product does not fuse"
    if "whole_arms_per_minute" in found:
        text += (
            f"; {found['whole_arms_per_minute']:g} whole arms of {found['steps']} steps a minute "
            f"({found['training_s']:g} s of steps and {found['evaluation_s']:g} of evaluation "
            f"in {found['whole_s']:g})"
        )
    return text


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    made = parser(__doc__)
    made.add_argument("--arms", type=int, nargs="+", default=list(SIZES))
    made.add_argument("--most-s", type=float, default=80.0, help="after which no company begins")
    options = made.parse_args(arguments)
    with printed("companies", options) as found, tempfile.TemporaryDirectory() as folder:
        config = shape("ut", Path(folder), device=options.device, small=options.small)
        steps = 4 if options.small else 50
        began = time.perf_counter()
        task = build_task(config, torch.device(options.device), parameter_dtype(config))
        speed = config.with_fields({"steps": 10**6})
        companies: dict[int, dict[str, Any]] = {}
        found["companies"] = companies
        for size in options.arms:
            companies[size] = speeds(speed, task, size, steps) | bits(speed, task, size)
            found["lines"] = [line_of(*one) for one in companies.items()]
        for size in options.arms:
            if time.perf_counter() - began > options.most_s:
                found["lines"].append(f"K = {size}: no whole arms, for want of time")
                continue
            companies[size] |= arms_a_minute(config, size)
            found["lines"] = [line_of(*one) for one in companies.items()]


if __name__ == "__main__":
    main()
