"""MLflow rows: at most 40 metrics an arm, curves over layer, gamma and severity, trajectories."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import replace
from typing import Any

import pytest

from sweep.study.pairs import join
from sweep.tracking.rows import (
    TrackedArm,
    final_rows,
    last_step,
    report_metrics,
    report_rows,
    trajectories_csv,
)
from sweep.tracking.sources import pair_curves, pair_metrics
from sweep.tracking.tags_and_notes import tags_of
from tests.support.records import finished, pair_config
from tests.support.training.text_records import TEXT
from tests.support.training.text_records import finished as finished_text
from trainables.config.arm import ArmConfig
from trainables.config.test_conditions import TEXT_FAMILIES, VIDEO_FAMILIES, gamma_key, severity_key
from trainables.records import arm_record as results
from trainables.records.arm_record import ArmRecord, Report

LOSSES = [0.5, 0.4, 0.3, 0.2]
MOST_METRICS = 40
GAMMAS = [round(0.05 * k, 2) for k in range(11)]
SCALARS = (
    results.TRAIN_LOSS, results.TRAIN_GRAD_NORM, results.REPORTED_LOSS,
    results.REPORTED_MISSING_SHARE, *results.SYSTEM_METRICS,
)  # fmt: skip


def alone(record: ArmRecord) -> TrackedArm:
    return TrackedArm(record=record, sweep="s", setting="x", proposal=0)


def joined(record: ArmRecord, plain: ArmRecord) -> TrackedArm:
    pair = join(record, plain)
    return replace(
        alone(record),
        pair=pair_metrics(pair),
        curves=pair_curves(pair),
        gains=pair.gains.at_gamma if pair.gains else {},
    )


def curve(arm: TrackedArm, name: str) -> dict[int, float]:
    return {row.step: row.value for row in final_rows(arm) if row.key == name}


def with_everything(record: ArmRecord) -> ArmRecord:
    """The arm with every scalar and series in its reports, and all that is measured at the end."""
    config, measured = record.config, record.evaluation
    assert measured is not None
    is_text = config.facts.reads_texts
    scores = {gamma_key(g): 1.0 + g for g in config.test_gammas}
    n_losses = config.model.layers + 1
    profile = [0.5] * n_losses
    families = TEXT_FAMILIES if is_text else VIDEO_FAMILIES
    shifts = {f: {severity_key(s): s for s in families[f].severities} for f in config.shifts}
    evaluation = replace(
        measured,
        scores=scores,
        multipliers=[] if config.constraint is None else profile[1:],
        references=dict.fromkeys(measured.references, scores),
        shift_scores=shifts,
        layer_scores_by_gamma=dict.fromkeys(scores, profile) if is_text else {},
        probe_losses=profile if is_text else [],
        probe_scores=profile if is_text else [],
    )
    constrained = dict.fromkeys(("missing_shares", "violations", "multipliers", "slacks"), profile)
    layers = {"losses": profile, "weights": profile, **constrained}
    if config.constraint is None:
        layers = {"losses": profile}
    reports = [
        Report(step=step, timestamp_ms=step, scalars=dict.fromkeys(SCALARS, 1.0), layers=layers)
        for step in (20, 40)
    ]
    return replace(record, evaluation=evaluation, reports=reports)


def deep(config: ArmConfig, layers: int, shifts: Any, finish: Any) -> TrackedArm:
    config = config.with_fields(
        {"model.layers": layers, "test_gammas": GAMMAS, "shifts": list(shifts)}
    )
    losses = [0.95**layer for layer in range(layers + 1)]
    both = [with_everything(finish(side, losses)) for side in (config, config.unconstrained())]
    return joined(*both)


@pytest.mark.parametrize("layers", [2, 5, 32])
def test_an_arm_has_at_most_40_metrics_at_any_depth(layers: int) -> None:
    video = deep(pair_config(), layers, VIDEO_FAMILIES, finished)
    text = deep(TEXT, layers, TEXT_FAMILIES, finished_text)
    for arm in (video, text):
        rows = report_rows(arm.record, -1) + final_rows(arm)
        keys = {row.key for row in rows}
        assert {results.MISSING_SHARE_CURVE, results.LARGEST_MULTIPLIER} <= keys
        assert len(keys) <= MOST_METRICS
        assert len({(row.key, row.step) for row in rows}) == len(rows)
    assert results.PROBE_CURVE in {row.key for row in final_rows(text)}


def test_scores_are_curves_over_gamma_and_means_over_what_was_seen_and_not() -> None:
    config = pair_config()  # trained at 0.15, so that selection looks at 0.20
    plain = finished(config.unconstrained(), LOSSES, scores={"0.00": 2.0, "0.20": 4.5, "0.40": 7.0})
    arm = joined(finished(config, LOSSES), plain)
    assert curve(arm, "ood/curve") == {0: 1.0, 20: 4.0, 40: 9.0}
    assert curve(arm, "ood/curve_gain") == {0: 1.0, 20: 0.5, 40: -2.0}
    numbers = {row.key: row.value for row in final_rows(arm)}
    assert numbers[results.SEEN_MEAN] == 2.5
    assert numbers[results.UNSEEN_MEAN] == 9.0
    assert numbers[f"{results.UNSEEN_MEAN}_gain"] == -2.0
    assert curve(alone(plain), "ood/curve_gain") == {}


def test_both_arms_missing_shares_are_curves_over_the_constrained_layers() -> None:
    """At alpha 0.2 and f0 = 1: layer 1 may come to 1, each later one to 0.8 of the one before."""
    config = pair_config()
    rising = [0.5, 0.75, 0.75, 0.2]
    arm = joined(finished(config, LOSSES), finished(config.unconstrained(), rising))
    shares = curve(arm, results.MISSING_SHARE_CURVE)
    assert list(shares) == [1, 2, 3]
    assert shares[3] == pytest.approx((0.2 - 0.8 * 0.3) / (0.2 * 0.3))
    assert curve(arm, results.PLAIN_MISSING_SHARE_CURVE)[2] == pytest.approx(1.0)  # no descent


def test_a_shift_family_is_a_curve_over_thousandths_of_its_severity() -> None:
    config = replace(pair_config(), shifts=("blur", "salt_and_pepper"))
    arm = alone(finished(config, LOSSES))
    assert curve(arm, "shift/blur") == pytest.approx({500: 2.0, 2000: 4.0, 5000: 6.0})
    assert curve(arm, "shift/salt_and_pepper") == pytest.approx({1: 2.0, 6: 4.0, 25: 6.0})
    without = final_rows(alone(finished(pair_config(), LOSSES)))
    assert not [row.key for row in without if row.key.startswith("shift/")]


@pytest.mark.parametrize(("constrained", "first"), [(3, 1), (4, 0)])
def test_trajectories_have_every_value_of_every_report_by_layer(
    constrained: int, first: int
) -> None:
    layers = {
        "losses": LOSSES,
        "weights": [0.0, 0.1, 0.2, 1.0],
        "missing_shares": [0.5 + k for k in range(constrained)],
        "multipliers": [0.1] * constrained,
    }
    for series in (layers, dict(reversed(layers.items()))):
        record = finished(pair_config(), LOSSES)
        record.reports = [Report(step=s, timestamp_ms=s, layers=series) for s in (10, 20)]
        lines = list(csv.DictReader(io.StringIO(trajectories_csv(record))))
        assert len(lines) == 2 * sum(map(len, layers.values()))
        found = {
            (int(line["step"]), line["series"], int(line["layer"])): float(line["value"])
            for line in lines
        }
        for name, values in layers.items():
            start = first if len(values) == constrained else 0
            expected = {(20, name, start + k): value for k, value in enumerate(values)}
            assert expected.items() <= found.items()


def test_a_report_tells_its_largest_multiplier_and_system_metrics_by_mlflows_names() -> None:
    layers = {"losses": LOSSES, "multipliers": [0.1, 0.7, 0.2]}
    scalars = {results.TRAIN_STEPS_PER_S: 9.0, results.TRAIN_LOSS: 0.5}
    metrics = report_metrics(Report(step=1, timestamp_ms=1, scalars=scalars, layers=layers))
    assert metrics == {
        "system/steps_per_s": 9.0, "train/loss": 0.5, "train/largest_multiplier": 0.7
    }  # fmt: skip
    broken = {"losses": LOSSES, "multipliers": [0.1, math.nan, 0.2]}
    told = report_metrics(Report(step=1, timestamp_ms=1, layers=broken))
    assert math.isnan(told["train/largest_multiplier"])


def test_the_step_of_final_numbers_is_the_last_reports() -> None:
    record = finished(pair_config(), LOSSES)
    numbers = [row for row in final_rows(alone(record)) if row.key == results.OBJECTIVE]
    assert [row.step for row in numbers] == [last_step(record)]


@pytest.mark.parametrize("variant", ["per_layer", "paper"])
def test_both_arms_of_unmatched_capacity_are_marked(variant: str) -> None:
    config = pair_config().with_fields({"model.name": "dust", "model.variant": variant})
    for side in (config, config.unconstrained()):
        arm = TrackedArm(record=finished(side, LOSSES), sweep="s", setting="x", proposal=None)
        tags = tags_of(arm)
        assert tags.get("matched_capacity") == (None if variant == "per_layer" else "no")
        note = tags["mlflow.note.content"]
        assert ("one dictionary, the constrained one has one" in note) == (variant == "paper")
