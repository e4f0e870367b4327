"""MLflow tags, parameters and metric rows of one stored arm record. Pure.

Every row is a function of the record alone, its timestamp too: MLflow keeps rows unique on (run,
key, timestamp, step, value), so rows that are sent again add nothing.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from sweep.study.selection import outcome_text
from trainables.config.test_conditions import gamma_key
from trainables.plain import Json
from trainables.records.arm_record import (
    ACCURACY_CURVE,
    DESCENT_CURVE,
    OBJECTIVE,
    OOD_AUC,
    OOD_MEAN,
    PROBE_ACCURACY_CURVE,
    PROBE_CURVE,
    ArmRecord,
    Outcome,
    Status,
    metric_at_gamma,
    metric_at_shift,
)

# Characters; MLflow cuts at 8000 in silence, and a cut tag would be sent again and again.
LONGEST_TAG = 5000
LONGEST_PARAM = 6000
# Points of the descent curve lie this far apart, for the view over relative time.
CURVE_LAYER_MS = 1000
NAMED_NON_FINITE = 5  # how many values the tag `non_finite` spells out


# Of a pair, constrained minus unconstrained; there when both arms finished.
OBJECTIVE_DIFFERENCE = f"{OBJECTIVE}_difference"

# Tags that an arm may have at one time and not at another, beside those of its environment.
_MAY_GO = (
    "proposal",
    "reason",
    "unconstrained_signature",
    "non_finite",
    "certificate",
    "edges",
    "vacuous",
    "unconstrained_ended",
)

RUN_STATUS: Mapping[Status, str] = {
    "running": "RUNNING",
    "finished": "FINISHED",
    "diverged": "FAILED",
    "failed": "FAILED",
    "stopped": "KILLED",
}


class Row(NamedTuple):
    """One metric value, with the stored time at which it was measured."""

    key: str
    value: float  # finite or NaN: MLflow would turn an infinity into 1.8e308
    timestamp_ms: int
    step: int


@dataclass(frozen=True, kw_only=True)
class TrackedArm:
    """One arm as its sweep sees it: the stored record, and what only the sweep knows."""

    record: ArmRecord
    sweep: str
    setting: str
    proposal: int | None  # None: an unconstrained arm that several proposals share
    # The pair's outcome; of an unconstrained arm its status; "running" until final.
    outcome: str = "running"
    # By metric name, known once the pair is joined.
    pair: Mapping[str, float] = field(default_factory=dict)
    # Tags of a judged pair: certificate, edges, vacuous, unconstrained_ended.
    verdict: Mapping[str, str] = field(default_factory=dict)
    unconstrained_signature: str | None = None  # the baseline of a constrained arm
    phase: str = "search"  # or confirmation: what its sweep is

    @property
    def signature(self) -> str:
        """The record's signature."""
        return self.record.signature


def run_name(arm: TrackedArm) -> str:
    """Name of the arm's run; what differs comes first, because lists cut after 25 characters or so.

    A proposal's constrained arm on seed 0 of setting ut_l3_g015 is 'p03 s0 ut_l3_g015 constrained',
    its baseline 'base s0 ut_l3_g015 unconstrained'.
    """
    proposal = "base" if arm.proposal is None else f"p{arm.proposal:02d}"
    config = arm.record.config
    return f"{proposal} s{config.seed} {arm.setting} {config.arm}"


def tags_of(arm: TrackedArm) -> dict[str, str]:
    """The arm's tags; only strings, nothing empty."""
    record = arm.record
    tags = {
        "kind": "arm",
        "sweep": arm.sweep,
        "setting": arm.setting,
        "proposal": "" if arm.proposal is None else str(arm.proposal),
        "seed": str(record.config.seed),
        "arm": record.config.arm,
        "phase": arm.phase,
        "signature": arm.signature,
        "outcome": arm.outcome,
        "status": record.status,
        "reason": record.reason,
        "unconstrained_signature": arm.unconstrained_signature or "",
        "matched_capacity": "" if record.config.matched_capacity else "no",
        **arm.verdict,
        "non_finite": _non_finite(arm),
        "mlflow.note.content": _note(record),
    }
    where = flattened(record.environment, "environment.")
    tags |= {name: value for name, value in where.items() if value != "null"}
    return {name: _cut(value, LONGEST_TAG) for name, value in tags.items() if value}


def stale_tags(there: Mapping[str, str], tags: Mapping[str, str]) -> list[str]:
    """Names of a run's tags that ``tags_of`` once gave it and gives it no longer.

    >>> stale_tags({"reason": "nan", "synced_step": "3", "kind": "arm"}, {"kind": "arm"})
    ['reason']
    """
    ours = (name for name in there if name in _MAY_GO or name.startswith("environment."))
    return [name for name in ours if name not in tags]


def params_of(record: ArmRecord) -> dict[str, str]:
    """The config by dotted name. The data's folder is a place, not a parameter.

    An unconstrained arm has no ``constraint.*`` at all: parallel coordinates would draw an empty
    value at the top of the axis, as if it were the largest.
    """
    plain = record.config.to_json()
    del plain["data"]["folder"]
    if record.config.constraint is None:
        del plain["constraint"]
    return flattened(plain)


def flattened(plain: Mapping[str, Json], prefix: str = "") -> dict[str, str]:
    """Nested plain values by dotted name, as text.

    >>> flattened({"steps": 10, "model": {"layers": 3, "variant": None}})
    {'steps': '10', 'model.layers': '3', 'model.variant': 'null'}
    """
    flat: dict[str, str] = {}
    for name, value in plain.items():
        if isinstance(value, Mapping):
            flat |= flattened(value, f"{prefix}{name}.")
        else:
            text = value if isinstance(value, str) else json.dumps(value)
            flat[f"{prefix}{name}"] = _cut(text, LONGEST_PARAM)
    return flat


def report_rows(record: ArmRecord, after_step: int) -> list[Row]:
    """Every metric of the reports later than ``after_step``, in order of step, then of name."""
    return [
        Row(name, _kept(value), report.timestamp_ms, report.step)
        for report in record.reports
        if report.step > after_step
        for name, value in sorted(report.metrics().items())
    ]


def final_rows(arm: TrackedArm) -> list[Row]:
    """What is measured once: the final evaluation, the descent curve, and the pair's numbers.

    Their step is the last report's. A name that the last report carries too (the worst missing
    share, on fewer draws) goes one step later: every (metric, step) has one value, and the run's
    latest value is the one that is judged. Empty until the record is final.
    """
    record = arm.record
    if not record.is_final:
        return []
    last_step = record.reports[-1].step if record.reports else record.config.steps
    reported = record.reports[-1].metrics() if record.reports else {}
    rows = [
        Row(name, _kept(value), record.ended_ms, last_step + (name in reported))
        for name, value in _final_values(arm).items()
    ]
    return rows + list(_descent_curve(record))


def last_step(record: ArmRecord) -> int:
    """Step of the newest report; -1 before the first."""
    return record.reports[-1].step if record.reports else -1


def summary_tags(sweep: str, outcomes: Mapping[str, Mapping[Outcome, int]]) -> dict[str, str]:
    """Tags of a sweep's own run: how many arms ended how, by setting and in all."""
    total: Counter[Outcome] = Counter()
    for counts in outcomes.values():
        total.update(counts)
    lines = {setting: outcome_text(counts) for setting, counts in outcomes.items()}
    note = "\n".join(f"* {setting}: {line}" for setting, line in lines.items())
    tags = {"kind": "sweep", "sweep": sweep, "outcomes": outcome_text(total)}
    tags |= {f"outcomes.{setting}": line for setting, line in lines.items()}
    return tags | {"mlflow.note.content": _cut(f"Outcomes by setting\n\n{note}", LONGEST_TAG)}


def config_json(record: ArmRecord) -> str:
    """The artifact that trains this arm again."""
    return json.dumps(record.config.to_json(), indent=2) + "\n"


def _final_values(arm: TrackedArm) -> dict[str, float]:
    """What is measured once, of the arm and of its pair."""
    measured = arm.record.evaluation
    if measured is None:
        return dict(arm.pair)
    values = {metric_at_gamma(float(gamma)): score for gamma, score in measured.scores.items()}
    for shift, scores in measured.shift_scores.items():
        values |= {metric_at_shift(shift, float(at)): score for at, score in scores.items()}
    return values | {
        OOD_AUC: measured.ood_auc,
        OOD_MEAN: measured.ood_mean,
        OBJECTIVE: measured.objective,
        **arm.pair,
    }


def _descent_curve(record: ArmRecord) -> Iterator[Row]:
    """Held-out loss over f_c with step = layer, so that the UI draws it over depth.

    Of texts also the accuracy, and both of a probe per layer.
    """
    measured = record.evaluation
    if measured is None:
        return
    unit = measured.scales.constant_loss
    at_training = gamma_key(record.config.train_gamma)
    curves = {
        DESCENT_CURVE: [loss / unit for loss in measured.held_out_losses()],
        ACCURACY_CURVE: measured.layer_scores_by_gamma.get(at_training, []),
        PROBE_CURVE: [loss / unit for loss in measured.probe_losses],
        PROBE_ACCURACY_CURVE: measured.probe_scores,
    }
    for name, values in curves.items():
        for layer, value in enumerate(values):
            yield Row(name, _kept(value), record.ended_ms + CURVE_LAYER_MS * layer, layer)


def _kept(value: float) -> float:
    return float(value) if math.isfinite(value) else math.nan


def _non_finite(arm: TrackedArm) -> str:
    """The first values that are no numbers, by metric and step: '' when all are."""
    record = arm.record
    values = [(n, v, r.step) for r in record.reports for n, v in r.metrics().items()]
    if record.is_final:
        final = _final_values(arm).items()
        values += [(name, value, last_step(record)) for name, value in final]
    found = [f"{n} is {v} at step {s}" for n, v, s in values if not math.isfinite(v)]
    more = len(found) - NAMED_NON_FINITE
    return "; ".join(found[:NAMED_NON_FINITE] + ([f"and {more} more"] if more > 0 else []))


def _note(record: ArmRecord) -> str:
    """The description on the run's page: how it ended, early signs, how to train it again."""
    paragraphs = [f"**{record.status}**: {record.reason}"] if record.reason else []
    paragraphs += [f"* {warning}" for warning in record.warnings]
    if not record.config.matched_capacity:
        paragraphs.append(
            "Unmatched capacity: the unconstrained arm has one dictionary, the constrained one per "
            "layer, so their difference is not that of constraining alone."
        )
    paragraphs.append(
        "To train it again and compare, download the artifact `config.json` and run\n\n"
        "    sweep run config.json --reproduce"
    )
    return "\n\n".join(paragraphs)


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"
