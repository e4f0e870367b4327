"""MLflow parameters and metric rows of one stored arm record. Pure.

Every row is a function of the record alone, its timestamp too: MLflow keeps rows unique on (run,
key, timestamp, step, value), so rows that are sent again add nothing.

An arm has at most 40 metrics, however deep its network: MLflow draws a card for each. What hangs on
the layer, the test gamma or a severity is one metric with that as its step, at the end. How layers
moved during training is in the artifact trajectories.csv.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from trainables.config.test_conditions import gamma_key, seen_and_unseen
from trainables.plain import Json, Plain
from trainables.records.arm_record import (
    ACCURACY_CURVE,
    DESCENT_CURVE,
    GAMMA_AXIS,
    LARGEST_MULTIPLIER,
    LAYER_AXIS,
    MEAN_OVER_GAMMAS,
    MULTIPLIER_CURVE,
    OBJECTIVE,
    OOD_AUC,
    OOD_CURVE,
    OOD_CURVE_GAIN,
    PROBE_ACCURACY_CURVE,
    PROBE_CURVE,
    SEEN_MEAN,
    SHIFT_CURVE,
    SYSTEM_METRICS,
    UNSEEN_MEAN,
    WEIGHT_CURVE,
    ArmRecord,
    Report,
    first_layer,
)

LONGEST_PARAM = 6000  # characters; MLflow cuts longer ones in silence
# Points of a curve lie this far apart, for the view over relative time.
CURVE_POINT_MS = 1000
STEPS_PER_GAMMA, STEPS_PER_SEVERITY = 100, 1000
_NO_PARAMS = ("data.folder", "constraint")  # the second: null, of an unconstrained arm

# How much better than the baseline; there when both arms finished.
OBJECTIVE_GAIN = f"{OBJECTIVE}_gain"

Curve = Mapping[int, float]  # by step


class Row(NamedTuple):
    """One metric value, with the stored time at which it was measured."""

    key: str
    value: float  # finite or NaN: MLflow would turn an infinity into 1.8e308
    timestamp_ms: int
    step: int


@dataclass(frozen=True, kw_only=True)
class PairTags(Plain):
    """Tags of a judged pair, by their names in MLflow; an empty one is not sent."""

    certificate: str = ""
    certificate_counts: str = ""
    codes: str = ""
    edges: str = ""
    not_binding: str = ""
    unconstrained_ended: str = ""


@dataclass(frozen=True, kw_only=True)
class TrackedArm:
    """One arm as its sweep sees it: the stored record, and what only the sweep knows."""

    record: ArmRecord
    sweep: str
    setting: str
    proposal: int | None  # None: an unconstrained arm that several proposals share
    label: str = ""  # of its setting, in names of runs
    place: int = 0  # of its setting in the sweep
    searched: Mapping[str, Json] = field(default_factory=dict)  # of a constrained arm, by field
    # The pair's outcome; of an unconstrained arm its status; "running" until final.
    outcome: str = "running"
    # Known once the pair is joined: metrics by name, curves by name and layer, and the gain by
    # test gamma.
    pair: Mapping[str, float] = field(default_factory=dict)
    curves: Mapping[str, Curve] = field(default_factory=dict)
    gains: Mapping[str, float] = field(default_factory=dict)
    verdict: PairTags = PairTags()
    unconstrained_signature: str | None = None  # the baseline of a constrained arm
    phase: str = "search"  # or confirmation: what its sweep is

    @property
    def signature(self) -> str:
        """The record's signature."""
        return self.record.signature


def params_of(record: ArmRecord) -> dict[str, str]:
    """The config by dotted name. The data's folder is a place, not a parameter.

    An unconstrained arm has no ``constraint.*`` at all: parallel coordinates would draw an empty
    value at the top of the axis, as if it were the largest.
    """
    params = flattened(record.config.to_json())
    return {name: text for name, text in params.items() if name not in _NO_PARAMS}


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
            flat[f"{prefix}{name}"] = cut(text, LONGEST_PARAM)
    return flat


def report_metrics(report: Report) -> dict[str, float]:
    """Metrics of a report: its scalars, and of the layers the largest multiplier."""
    named = {SYSTEM_METRICS.get(name, name): value for name, value in report.scalars.items()}
    multipliers = report.layers.get("multipliers")
    return named | ({LARGEST_MULTIPLIER: _largest(multipliers)} if multipliers else {})


def _largest(values: Iterable[float]) -> float:
    values = list(values)
    return math.nan if any(map(math.isnan, values)) else max(values)


def report_rows(record: ArmRecord, after_step: int) -> list[Row]:
    """Every metric of the reports later than ``after_step``, in order of step, then of name."""
    return [
        Row(name, _kept(value), report.timestamp_ms, report.step)
        for report in record.reports
        if report.step > after_step
        for name, value in sorted(report_metrics(report).items())
    ]


def final_rows(arm: TrackedArm) -> list[Row]:
    """Rows that are measured once: the final evaluation, its curves, and the pair's numbers.

    The step of numbers is the last report's. A name that the last report carries too goes one step
    later: every (metric, step) has one value, and the run's latest value is the one that is judged.
    Empty until the record is final.
    """
    record = arm.record
    if not record.is_final:
        return []
    last = last_step(record) if record.reports else record.config.steps
    reported = report_metrics(record.reports[-1]) if record.reports else {}
    rows = [
        Row(name, _kept(value), record.ended_ms, last + (name in reported))
        for name, value in final_values(arm).items()
    ]
    return rows + [
        Row(name, _kept(value), record.ended_ms + CURVE_POINT_MS * point, step)
        for name, curve in _curves(arm).items()
        for point, (step, value) in enumerate(curve.items())
    ]


def last_step(record: ArmRecord) -> int:
    """Step of the newest report; -1 before the first."""
    return record.reports[-1].step if record.reports else -1


def config_json(record: ArmRecord) -> str:
    """The artifact that trains this arm again."""
    return json.dumps(record.config.to_json(), indent=2) + "\n"


def trajectories_csv(record: ArmRecord) -> str:
    """The artifact that tells how layers moved: a line for each report, series and layer."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(("step", "series", "layer", "value"))
    for report in record.reports:
        for series in report.layers:
            for layer, value in report.by_layer(series).items():
                lines.writerow((report.step, series, layer, value))
    return text.getvalue()


def final_values(arm: TrackedArm) -> dict[str, float]:
    """The numbers that are measured once, of the arm and of its pair."""
    measured = arm.record.evaluation
    if measured is None:
        return dict(arm.pair)
    seen, unseen = seen_and_unseen(arm.record.config, measured.scores)
    means = {SEEN_MEAN: seen, UNSEEN_MEAN: unseen}
    return {
        OOD_AUC: measured.ood_auc,
        MEAN_OVER_GAMMAS: measured.mean_over_gammas,
        OBJECTIVE: measured.objective,
        **{name: mean for name, mean in means.items() if mean is not None},
        **arm.pair,
    }


def _curves(arm: TrackedArm) -> dict[str, Curve]:
    """Curves over layers, test gammas or severities, by metric; empty ones are left out."""
    measured = arm.record.evaluation
    if measured is None:
        return {}
    unit = measured.scales.constant_loss
    at_training = gamma_key(arm.record.config.train_gamma)
    losses = measured.held_out_losses()
    multipliers = measured.multipliers
    curves: dict[str, Curve] = {
        DESCENT_CURVE: dict(enumerate(loss / unit for loss in losses)),
        ACCURACY_CURVE: dict(enumerate(measured.layer_scores_by_gamma.get(at_training, []))),
        PROBE_CURVE: dict(enumerate(loss / unit for loss in measured.probe_losses)),
        PROBE_ACCURACY_CURVE: dict(enumerate(measured.probe_scores)),
        MULTIPLIER_CURVE: dict(enumerate(multipliers, first_layer(len(losses), len(multipliers)))),
        WEIGHT_CURVE: arm.record.reports[-1].by_layer("weights") if arm.record.reports else {},
        OOD_CURVE: _by_step(measured.scores, STEPS_PER_GAMMA),
        OOD_CURVE_GAIN: _by_step(arm.gains, STEPS_PER_GAMMA),
        LAYER_AXIS: {layer: float(layer) for layer in range(len(losses))},
        GAMMA_AXIS: _by_step({g: float(g) for g in measured.scores}, STEPS_PER_GAMMA),
        **arm.curves,
    }
    for shift, scores in measured.shift_scores.items():
        curves[SHIFT_CURVE.format(shift)] = _by_step(scores, STEPS_PER_SEVERITY)
    return {name: curve for name, curve in curves.items() if curve}


def _by_step(values: Mapping[str, float], steps_per_unit: int) -> Curve:
    return {round(steps_per_unit * float(key)): value for key, value in values.items()}


def _kept(value: float) -> float:
    return float(value) if math.isfinite(value) else math.nan


def cut(text: str, longest: int) -> str:
    """The text, or its start with a mark that there is more."""
    return text if len(text) <= longest else text[: longest - 1] + "…"
