"""Recorder of a landscape: real arms at points spread over a searched box.

    python -m benchmarks.landscape.record OUT.json SPACE SETTING --dual-lr LOW HIGH \
        [--set FIELD=VALUE] [--points 128] [--workers 2]

Points of a scrambled Sobol sequence over the setting's ranges of alpha and resilience and that of
dual_lr are trained beside one unconstrained arm, all on one seed and each to its end: where an
early sign would have ended an arm is recorded, and does not. Records are kept in OUT.jsonl, beside
OUT.json: a recorder that is ended goes on. Read by benchmarks/landscape/landscape.py.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import torch
from scipy.stats import qmc

from benchmarks.trained import trained
from search_spaces.catalog import find
from search_spaces.ranges import (
    LogDecay,
    LogUniform,
    Range,
    at_fraction,
    resilience_of,
)
from sweep.cli.options import parse_values
from sweep.study.feasibility import judge
from trainables.build import build_task, parameter_dtype
from trainables.config.arm import ArmConfig
from trainables.plain import Json
from trainables.primal_dual.constraints import demanded_descent
from trainables.primal_dual.schedule import effective_dual_steps
from trainables.records.arm_record import REPORTED_LOSS, REPORTED_MISSING_SHARE, ArmRecord, Report
from trainables.signs.early_signs import EarlySigns

ALPHA, DUAL_LR, RESILIENCE = "constraint.alpha", "constraint.dual_lr", "constraint.resilience"
OF_A_MACHINE = ("data.folder", "model.checkpoint")  # recorded as the space has them


def steps_per_epoch(config: ArmConfig) -> int:
    """Of the run's task."""
    return build_task(config, torch.device("cpu"), parameter_dtype(config)).steps_per_epoch


def point_at(
    ranges: dict[str, Range], shares: Sequence[float], dual_steps: float
) -> dict[str, float]:
    """The point that lies at these shares of the box."""
    at = {
        name: at_fraction(ranges[name], share) for name, share in zip(ranges, shares, strict=True)
    }
    if isinstance(ranges[RESILIENCE], LogDecay):
        at[RESILIENCE] = resilience_of(at[RESILIENCE], dual_lr=at[DUAL_LR], dual_steps=dual_steps)
    return at


def entry(record: ArmRecord, baseline: ArmRecord, epoch: int) -> dict[str, Json]:
    """What one constrained arm came to; absent measurements are null."""
    constraint, evaluation = record.config.constraint, record.evaluation
    assert constraint is not None
    judgement, beside = judge([record], constraint), judge([baseline], constraint)
    assert beside is not None
    return {
        "status": record.status,
        "missing_shares": None if judgement is None else list(judgement.held_out),
        "worst_missing_share": None if judgement is None else judgement.worst,
        "feasible": judgement is not None and judgement.feasible,
        "beats_trivial": judgement is not None and judgement.beats_trivial,
        "not_binding": beside.feasible,
        "objective": None if evaluation is None else evaluation.objective,
        "losses": None if evaluation is None else evaluation.held_out_losses(),
        "demanded_descent": demanded_descent(constraint, record.config.model.layers),
        "would_end": would_end(record, epoch),
        "seconds": record.reports[-1].scalars["train/seconds"],
        "reports": [_seen(report) for report in record.reports],
    }


def _seen(report: Report) -> dict[str, Json]:
    """What halving could decide by."""
    layers = report.layers
    return {
        "step": report.step,
        "loss": report.scalars[REPORTED_LOSS],
        "worst_missing_share": report.scalars.get(REPORTED_MISSING_SHARE),
        "largest_multiplier": max(layers["multipliers"]) if layers.get("multipliers") else None,
    }


def would_end(record: ArmRecord, epoch: int) -> dict[str, Json] | None:
    """The first report after which an early sign ends such an arm, and the sign."""
    config = record.config.with_fields({"early_stop": True})
    if record.evaluation is None:
        return None
    signs = EarlySigns(config, record.evaluation.scales, epoch)
    for count in range(1, len(record.reports) + 1):
        if reason := signs.reason_to_stop(record.reports[:count]):
            return {"step": record.reports[count - 1].step, "reason": reason}
    return None


def text_of(landscape: Json) -> str:
    """The file's text: an arm a line, numbers to seven digits."""
    short = json.loads(json.dumps(landscape), parse_float=lambda text: float(f"{float(text):.7g}"))
    arms = ",\n".join(json.dumps(arm) for arm in short.pop("arms"))
    return json.dumps(short, indent=1)[:-2] + f',\n "arms": [\n{arms}\n]}}\n'


def main() -> None:
    """Train what is not kept yet, and write the landscape."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("space")
    parser.add_argument("setting")
    parser.add_argument("--dual-lr", type=float, nargs=2, required=True)
    parser.add_argument("--set", action="append", default=[], dest="values")
    parser.add_argument("--points", type=int, default=128)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    space = find(options.space).space
    setting = space.setting(options.setting)
    values = {**parse_values(options.values), "early_stop": False, "threads": 1}
    base = space.run(setting, {}, seed=space.search_seeds[0]).with_fields(values)
    of_setting = space.ranges_of(setting)
    ranges = {
        ALPHA: of_setting[ALPHA],
        DUAL_LR: LogUniform(*options.dual_lr),
        RESILIENCE: of_setting[RESILIENCE],
    }
    epoch = steps_per_epoch(base)
    dual_steps = effective_dual_steps(base, steps_per_epoch=epoch, until=base.steps)
    shares = qmc.Sobol(3, scramble=True, rng=0).random(options.points).tolist()
    points = [point_at(ranges, at, dual_steps) for at in shares]
    plain, *constrained = [base.unconstrained(), *map(base.with_fields, points)]
    found = trained(
        [plain, *constrained],
        options.out.with_suffix(".jsonl"),
        lambda record: {"record": record.to_json()},
        workers=options.workers,
    )

    def record_of(config: ArmConfig) -> ArmRecord:
        return ArmRecord.from_json(found[config.signature()]["record"])

    baseline = record_of(plain)
    assert baseline.evaluation is not None
    anywhere = base.with_fields({name: space.base.value_of(name) for name in OF_A_MACHINE})
    landscape: Json = {
        "space": options.space,
        "setting": options.setting,
        "base": anywhere.to_json(),
        "ranges": {name: values.to_json() for name, values in ranges.items()},
        "dual_steps": dual_steps,
        "tolerance": space.tolerance,
        "unconstrained": {
            "objective": baseline.evaluation.objective,
            "losses": baseline.evaluation.held_out_losses(),
            "reports": [_seen(report) for report in baseline.reports],
        },
        "arms": [
            {"number": number, "shares": at, "point": point}
            | entry(record_of(config), baseline, epoch)
            for number, (at, point, config) in enumerate(
                zip(shares, points, constrained, strict=True)
            )
        ],
    }
    options.out.write_text(text_of(landscape), encoding="utf-8")


if __name__ == "__main__":
    main()
