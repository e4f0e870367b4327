"""Finished arms written by hand, for tests of what is read from records."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.support.oracles import TINY
from trainables.config.arm import ArmConfig
from trainables.config.test_conditions import FAMILIES, severity_key
from trainables.primal_dual.constraints import Scales
from trainables.records import arm_record as results
from trainables.records.arm_record import ArmRecord, Report
from trainables.records.evaluation import Evaluation

SCORES = {"0.00": 1.0, "0.20": 4.0, "0.40": 9.0}  # the metric by test gamma
SCALES = Scales(constant_loss=1.0, identity_loss=0.5)


def evaluation(losses: list[float], **fields: Any) -> Evaluation:
    """An evaluation whose every held-out unit has ``losses`` (layers 0..L, task unit)."""
    scores = fields.get("scores", SCORES)
    measured = Evaluation(
        scales=SCALES,
        dev_units=["a:0", "a:10"],
        dev_losses=[losses, losses],
        train_units=["b:0"],
        train_losses=[losses],
        scores=dict(scores),
        layer_losses_by_gamma={  # scores are as the root of the last
            gamma: [loss * (score / max(scores.values())) ** 2 for loss in losses]
            for gamma, score in scores.items()
        },
        references={
            "identity": {"0.00": 0.0, "0.20": 8.0, "0.40": 16.0},
            "constant": {"0.00": 50.0, "0.20": 50.0, "0.40": 50.0},
            "wiener": {"0.00": 0.0, "0.20": 5.0, "0.40": 8.0},
            "wiener_train": {"0.00": 3.0, "0.20": 5.0, "0.40": 13.0},
            "wiener_temporal": {"0.00": 0.0, "0.20": 3.0, "0.40": 5.0},
        },
        reference_losses={
            "identity": 0.5,
            "constant": 1.0,
            "wiener": 0.2,
            "wiener_train": 0.2,
            "wiener_temporal": 0.1,
        },
        ood_auc=1.8,
        objective=-0.2,
        objective_gammas=[0.2],
        descent_ratio_quantiles=[[0.5] * 21] * (len(losses) - 1),
        descent_fraction=[1.0] * (len(losses) - 1),
        multipliers=[],
    )
    return replace(measured, **fields)


def finished(config: ArmConfig, losses: list[float], **fields: Any) -> ArmRecord:
    """A finished arm of ``config`` with two reports."""
    reference = None if config.constraint is None else config.constraint.reference
    constrained = len(losses) - (reference != "bound_zero")  # layers with a multiplier
    multipliers = [] if reference is None else [0.5] * constrained
    fields = {"multipliers": multipliers, **shifted(config, losses[-1]), **fields}
    reports = [
        Report(
            step=step,
            timestamp_ms=1_000 * step,
            scalars={"train/loss": 0.1},
            layers={"losses": losses},
        )
        for step in (20, 40)
    ]
    return ArmRecord(
        signature=config.signature(),
        config=config,
        status="finished",
        started_ms=1_000,
        ended_ms=50_000,
        reports=reports,
        evaluation=evaluation(losses, **fields),
    )


def shifted(config: ArmConfig, last_loss: float) -> dict[str, Any]:
    """Scores under the shifts of ``config``: 10, 20, 30 times the last layer's loss."""

    def by_shift(unit: Any) -> dict[str, Any]:
        return {
            shift: {
                severity_key(s): 10.0 * k * unit for k, s in enumerate(family.severities, start=1)
            }
            for shift, family in FAMILIES.items()
            if shift in config.shifts
        }

    if not config.shifts:
        return {}
    return {
        "shift_scores": by_shift(last_loss),
        "shift_references": {"identity": by_shift(0.5), "constant": by_shift(1.0)},
    }


def ended(config: ArmConfig, status: str, reason: str) -> ArmRecord:
    """An arm that did not finish."""
    plain = ArmRecord(signature=config.signature(), config=config, reason=reason).to_json()
    return ArmRecord.from_json({**plain, "status": status})


def pair_config(seed: int = 0, **constraint: Any) -> ArmConfig:
    """The constrained arm of a pair: alpha 0.2, f0 = 1 x f_c, so the schedule is 1, 0.8, 0.64."""
    fields = {"alpha": 0.2, "reference_loss": 1.0, "reference_unit": "constant", **constraint}
    gammas = [0.0, 0.2, 0.4]  # those of ``evaluation``
    return TINY.with_fields(
        {"seed": seed, "test_gammas": gammas} | {f"constraint.{k}": v for k, v in fields.items()}
    )


TIMED = {
    results.TRAIN_STEPS_PER_S,
    results.TRAIN_SECONDS,
    results.EVAL_SECONDS,
    results.TRAIN_PEAK_MEMORY_MB,
}


def numbers(record: ArmRecord) -> dict[str, Any]:
    """Everything of a record that must not depend on when and in how many pieces it was trained."""
    plain = record.to_json()
    for name in ("started_ms", "ended_ms", "idle_ms", "shared_ms", "environment"):
        del plain[name]
    for report in plain["reports"]:
        del report["timestamp_ms"]
        for name in TIMED:
            del report["scalars"][name]
    return plain
