"""Recorder of a landscape: real arms at points spread over a searched box.

    python -m benchmarks.landscape.record OUT.json --part box --points 48 [--steps 240] [--layers 4]

UT on the built-in photographs at 32 x 32: points of a scrambled Sobol sequence over a part of the
box are trained beside one unconstrained arm. OUT.json is rewritten after every arm, and arms that
it holds are not trained again, so several parts and forms go into one file. Some 3 to 6 s an arm on
one idle core. ``benchmarks/search_replay.py`` replays searches on the files here.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import tempfile
from pathlib import Path

from scipy.stats import qmc

from sweep.study.feasibility import Judgement, judge
from trainables.arm_run import ArmRun
from trainables.config.arm import ArmConfig, ConstraintConfig, DataConfig, ModelConfig
from trainables.plain import Json
from trainables.primal_dual.schedule import lr_factor
from trainables.records.arm_record import REPORTED_MISSING_SHARE, ArmRecord
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore

BASE = ArmConfig(
    data=DataConfig(name="photographs", frame_size=32, patch_size=8),
    model=ModelConfig(name="ut", layers=5),
    steps=600,
    report_every=100,
    eval_windows=8,
    constraint=ConstraintConfig(),
)
FORMS = {"lagrangian": True, "detached": False}  # constraint.grad_through_previous
ALPHA = (0.05, 0.55)
# Parts of the box: ranges of dual_lr and of the decay over the run, of which resilience follows.
PARTS = {
    # the reach of video_denoising_ut: dual_lr x steps there is dual_lr x steps here
    "box": ((8e-5, 5e-3), (0.1, 10.0)),
    # beyond it, as guessed boxes are: dual steps so long that layers oscillate
    "fast": ((5e-3, 5e-2), (0.1, 10.0)),
    # and a resilience that does nothing within a run
    "idle": ((8e-5, 5e-3), (1e-3, 0.1)),
}


def effective_steps(config: ArmConfig) -> float:
    """Dual steps, each counted as the schedule scales it."""
    schedule = (
        lr_factor(step, config.steps, config.decay_share, config.warmup_share)
        for step in range(config.steps)
    )
    return math.fsum(schedule)


def point_at(base: ArmConfig, shares: list[float], part: str) -> dict[str, float]:
    """The point that lies at these shares of a part of the box."""

    def log(ends: tuple[float, float], share: float) -> float:
        return ends[0] * (ends[1] / ends[0]) ** share

    dual_lrs, decays = PARTS[part]
    dual_lr, decay = log(dual_lrs, shares[1]), log(decays, shares[2])
    return {
        "constraint.alpha": ALPHA[0] + shares[0] * (ALPHA[1] - ALPHA[0]),
        "constraint.dual_lr": dual_lr,
        "constraint.resilience": -math.expm1(-decay / effective_steps(base)) / dual_lr,
    }


def trained(config: ArmConfig, runs: ArmStore) -> ArmRecord:
    """The final record of an arm."""
    run = ArmRun(config, runs)
    while not run.record.is_final:
        run.advance()
    return run.record


def entry(record: ArmRecord, baseline: ArmRecord) -> dict[str, Json]:
    """What one constrained arm came to; absent measurements are null."""
    constraint = record.config.constraint
    assert constraint is not None
    last = record.reports[-1]
    judgement: Judgement | None = judge(record, constraint)
    beside = judge(baseline, constraint)
    assert beside is not None
    factors = record.config.model.layers - 1  # bound_first
    evaluation = record.evaluation
    return {
        "status": record.status,
        "reason": record.reason,
        "steps": last.step,
        "reported_missing_share": last.scalars[REPORTED_MISSING_SHARE],
        "multipliers": last.layers["multipliers"],
        "missing_shares": None if judgement is None else list(judgement.held_out),
        "worst_missing_share": None if judgement is None else judgement.worst,
        "feasible": judgement is not None and judgement.feasible,
        "useful": judgement is not None and judgement.useful,
        "vacuous": beside.feasible,
        "objective": None if evaluation is None else evaluation.objective,
        "losses": None if evaluation is None else evaluation.held_out_losses(),
        "demanded_descent": 1.0 - (1.0 - constraint.alpha) ** factors,
    }


def write(path: Path, landscape: Json) -> None:
    """Put the whole file in place at once."""
    text = json.dumps(landscape, indent=1) + "\n"
    half = path.with_suffix(".part")
    half.write_text(text, encoding="utf-8")
    os.replace(half, path)


def main() -> None:
    """Train what the file does not hold yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--form", choices=FORMS, default="lagrangian")
    parser.add_argument("--part", choices=PARTS, default="box")
    parser.add_argument("--points", type=int, default=32)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--layers", type=int, default=5)
    options = parser.parse_args()
    base = BASE.with_fields(
        {
            "steps": options.steps,
            "report_every": options.steps // 6,
            "model.layers": options.layers,
        }
    )
    runs = ArmStore(ObjectStore(Path(tempfile.mkdtemp())))
    plain = trained(base.unconstrained(), runs)
    assert plain.evaluation is not None
    landscape: Json = {
        "base": base.to_json(),
        "alpha": ALPHA,
        "parts": PARTS,
        "unconstrained": {
            "objective": plain.evaluation.objective,
            "losses": plain.evaluation.held_out_losses(),
        },
        "arms": [],
    }
    if options.out.exists():
        landscape["arms"] = json.loads(options.out.read_text(encoding="utf-8"))["arms"]
    there = {(arm["form"], json.dumps(arm["point"])) for arm in landscape["arms"]}
    form = {"constraint.grad_through_previous": FORMS[options.form]}
    sequence = qmc.Sobol(3, scramble=True, rng=list(PARTS).index(options.part))
    for _ in range(options.points):
        point = point_at(base, sequence.random(1)[0].tolist(), options.part)
        if (options.form, json.dumps(point)) in there:
            continue
        came_to = entry(trained(base.with_fields({**point, **form}), runs), plain)
        landscape["arms"].append({"form": options.form, "point": point, **came_to})
        write(options.out, landscape)


if __name__ == "__main__":
    main()
