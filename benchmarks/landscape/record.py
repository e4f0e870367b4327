"""Recorder of a landscape: real arms at points spread over a searched box.

    python -m benchmarks.landscape.record OUT.json SPACE SETTING --dual-lr LOW HIGH \
        [--set FIELD=VALUE] [--points 128] [--workers 2]

Points of a scrambled Sobol sequence over the setting's ranges of alpha and resilience and that of
dual_lr are trained beside one unconstrained arm, all on one seed and each to its end: where an
early sign would have ended an arm is recorded, and does not. OUT.json is rewritten after every arm,
and arms that it holds are not trained again. benchmarks/search_replay.py replays searches on the
files here.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

import torch
from scipy.stats import qmc

from search_spaces.catalog import find
from search_spaces.ranges import LogDecay, LogUniform, Range, at_share, range_to_json, resilience_of
from sweep.cli.options import parse_values
from sweep.study.feasibility import judge
from trainables.arm_run import ArmRun
from trainables.build import build_task, parameter_dtype
from trainables.config.arm import ArmConfig
from trainables.early_signs import EarlySigns
from trainables.plain import Json
from trainables.primal_dual.constraints import demanded_descent
from trainables.primal_dual.schedule import effective_dual_steps
from trainables.records.arm_record import REPORTED_LOSS, REPORTED_MISSING_SHARE, ArmRecord, Report
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore

ALPHA, DUAL_LR, RESILIENCE = "constraint.alpha", "constraint.dual_lr", "constraint.resilience"


def steps_per_epoch(config: ArmConfig) -> int:
    """Of the run's task."""
    return build_task(config, torch.device("cpu"), parameter_dtype(config)).steps_per_epoch


def point_at(ranges: dict[str, Range], shares: list[float], dual_steps: float) -> dict[str, float]:
    """The point that lies at these shares of the box."""
    at = {name: at_share(ranges[name], share) for name, share in zip(ranges, shares, strict=True)}
    if isinstance(ranges[RESILIENCE], LogDecay):
        at[RESILIENCE] = resilience_of(at[RESILIENCE], dual_lr=at[DUAL_LR], dual_steps=dual_steps)
    return at


def trained(plain: Json) -> Json:
    """The final record of an arm, as JSON."""
    run = ArmRun(ArmConfig.from_json(plain), ArmStore(ObjectStore(Path(tempfile.mkdtemp()))))
    while not run.record.is_final:
        run.advance()
    return run.record.to_json()


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
        "useful": judgement is not None and judgement.useful,
        "vacuous": beside.feasible,
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


def write(path: Path, landscape: Json) -> None:
    """Put the whole file in place at once; numbers to seven digits."""
    short = json.loads(json.dumps(landscape), parse_float=lambda text: float(f"{float(text):.7g}"))
    arms = ",\n".join(json.dumps(arm) for arm in short.pop("arms"))
    half = path.with_suffix(".part")
    half.write_text(json.dumps(short, indent=1)[:-2] + f',\n "arms": [\n{arms}\n]}}\n')
    os.replace(half, path)


def main() -> None:
    """Train what the file does not hold yet."""
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
        **{n: of_setting[n] for n in (ALPHA, RESILIENCE)},
        DUAL_LR: LogUniform(*options.dual_lr),
    }
    ranges = {name: ranges[name] for name in (ALPHA, DUAL_LR, RESILIENCE)}
    epoch = steps_per_epoch(base)
    dual_steps = effective_dual_steps(base, steps_per_epoch=epoch, until=base.steps)
    baseline = ArmRecord.from_json(trained(base.unconstrained().to_json()))
    assert baseline.evaluation is not None
    landscape: Json = {
        "space": options.space,
        "setting": options.setting,
        "base": base.to_json(),
        "ranges": {name: range_to_json(values) for name, values in ranges.items()},
        "dual_steps": dual_steps,
        "tolerance": space.tolerance,
        "unconstrained": {
            "objective": baseline.evaluation.objective,
            "losses": baseline.evaluation.held_out_losses(),
            "reports": [_seen(report) for report in baseline.reports],
        },
        "arms": [],
    }
    if options.out.exists():
        landscape["arms"] = json.loads(options.out.read_text(encoding="utf-8"))["arms"]
    there = {arm["number"] for arm in landscape["arms"]}
    shares = qmc.Sobol(3, scramble=True, rng=0).random(options.points)
    with ProcessPoolExecutor(options.workers, mp_context=get_context("spawn")) as pool:
        waiting = {}
        for number, at in enumerate(shares.tolist()):
            point = point_at(ranges, at, dual_steps)
            if number not in there:
                config = base.with_fields(point)
                waiting[pool.submit(trained, config.to_json())] = (number, at, point)
        for done in as_completed(waiting):
            number, at, point = waiting[done]
            came_to = entry(ArmRecord.from_json(done.result()), baseline, epoch)
            arm = {"number": number, "shares": at, "point": point, **came_to}
            landscape["arms"] = sorted([*landscape["arms"], arm], key=lambda a: a["number"])
            write(options.out, landscape)


if __name__ == "__main__":
    main()
