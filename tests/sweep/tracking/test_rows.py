"""MLflow rows of shifts, constrained layers and capacity: names, values, numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sweep.tracking.rows import TrackedArm, final_rows, tags_of
from tests.support.records import finished, pair_config
from trainables.records.arm_record import Report

LOSSES = [0.5, 0.4, 0.3, 0.2]


def test_every_severity_is_a_metric_of_its_own() -> None:
    config = replace(pair_config(), shifts=("blur", "frame_drop"))
    record = finished(config, LOSSES)
    rows = final_rows(TrackedArm(record=record, sweep="s", setting="x", proposal=0))
    found = {row.key: row.value for row in rows if row.key.startswith("shift/")}
    assert found == pytest.approx(
        {
            "shift/blur_0.5": 2.0,
            "shift/blur_2.0": 4.0,
            "shift/blur_5.0": 6.0,
            "shift/frame_drop_0.2": 2.0,
            "shift/frame_drop_0.5": 4.0,
            "shift/frame_drop_0.8": 6.0,
        }
    )


def test_without_shifts_there_is_no_such_section() -> None:
    record = finished(pair_config(), LOSSES)
    rows = final_rows(TrackedArm(record=record, sweep="s", setting="x", proposal=0))
    assert not [row.key for row in rows if row.key.startswith("shift/")]


@pytest.mark.parametrize(("constrained", "first"), [(3, 1), (4, 0)])
def test_series_of_constrained_layers_keep_their_numbers(constrained: int, first: int) -> None:
    layers = {
        "losses": LOSSES,
        "weights": [0.0, 0.1, 0.2, 1.0],
        "missing_shares": [0.5] * constrained,
        "multipliers": [0.1] * constrained,
    }
    for series in (layers, dict(reversed(layers.items()))):
        names = set(Report(step=1, timestamp_ms=1, layers=series).metrics())
        for pattern in ("feasibility/{:02d}_missing_share", "train/{:02d}_multiplier"):
            wanted = {pattern.format(layer) for layer in range(first, 4)}
            assert {n for n in names if n.endswith(pattern.partition("}")[2])} == wanted
        assert {f"descent/{layer:02d}_loss" for layer in range(4)} <= names
        assert {f"train/{layer:02d}_weight" for layer in range(4)} <= names


@pytest.mark.parametrize("variant", ["per_layer", "paper"])
def test_both_arms_of_unmatched_capacity_are_marked(variant: str) -> None:
    config = pair_config().with_fields({"model.name": "dust", "model.variant": variant})
    for side in (config, config.unconstrained()):
        arm = TrackedArm(record=finished(side, LOSSES), sweep="s", setting="x", proposal=None)
        tags = tags_of(arm)
        assert tags.get("matched_capacity") == (None if variant == "per_layer" else "no")
        note = tags["mlflow.note.content"]
        assert ("one dictionary, the constrained one per layer" in note) == (variant == "paper")
