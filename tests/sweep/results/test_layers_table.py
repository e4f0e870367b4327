"""The table of the layers against sums written out, with and without probes and layer 0."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sweep.render.csv import to_csv
from sweep.render.markdown import to_markdown
from sweep.results import aggregates
from sweep.results.best import best_summaries
from sweep.results.sweep_view import load_sweep
from sweep.results.tables.layers import layers_table
from sweep.study.feasibility import judge
from tests.support.summaries import setting_summary
from tests.support.sweeps import FEASIBLE, FIRST, SECOND, SPACE, store_sweep
from tests.support.training.text_records import LOSSES, TEXT, finished
from tests.support.training.text_records import SPACE as TEXTS
from trainables.records.objects import ObjectStore


def test_losses_and_missing_shares_are_those_of_the_records(objects: ObjectStore) -> None:
    store_sweep(objects, {FIRST: [FEASIBLE]})
    view = load_sweep(objects, "tiny")
    entries = best_summaries(view, {})
    rows = layers_table(SPACE, entries).rows
    shown = view.settings[0].chosen.shown
    assert shown is not None
    losses_SF = [
        np.mean(pair.constrained.evaluation.dev_losses, axis=0)
        for pair in shown.pairs
        if pair.constrained.evaluation is not None
    ]
    first = [row for row in rows if row["setting"] == FIRST]
    assert [row["layer"] for row in first] == list(range(len(losses_SF[0])))
    assert [row["constrained_loss"] for row in first] == pytest.approx(np.mean(losses_SF, axis=0))
    # bound_first: layer l >= 2 owes alpha f_{l-1}; what is missing of it, of the worst seed
    constraint = shown.pairs[0].constrained.config.constraint
    assert constraint is not None
    owed_SF = [constraint.alpha * f[1:-1] for f in losses_SF]
    missing = [1 - (f[1:-1] - f[2:]) / owed for f, owed in zip(losses_SF, owed_SF, strict=True)]
    assert [row["constrained_missing_share"] for row in first[2:]] == pytest.approx(
        np.max(missing, axis=0)
    )
    assert first[0]["constrained_missing_share"] is None
    assert [row for row in rows if row["setting"] == SECOND] == []


def test_probes_are_shown_where_they_are(objects: ObjectStore) -> None:
    ours, theirs = finished(TEXT, LOSSES), finished(TEXT.unconstrained(), LOSSES)
    constraint = TEXT.constraint
    assert constraint is not None
    judged = judge([ours], constraint), judge([theirs], constraint)
    entry = setting_summary(
        constrained=aggregates.arm_summary([ours], judged[0], {}).to_json(),
        unconstrained=aggregates.arm_summary([theirs], judged[1], {}).to_json(),
    )
    table = layers_table(TEXTS, [entry])
    assert "probe's loss: unconstrained" in to_markdown(table)
    assert [row["unconstrained_probe_loss"] for row in table.rows] == [0.9, 0.6, 0.4, 0.3]
    assert [row["constrained_probe_accuracy"] for row in table.rows] == [0.5, 0.7, 0.8, 0.9]
    assert "unconstrained_probe_accuracy" in to_csv(table)

    store_sweep(objects, {FIRST: [FEASIBLE]})
    of_video = layers_table(SPACE, best_summaries(load_sweep(objects, "tiny"), {}))
    assert "probe" not in " ".join(header for header, _ in of_video.shown)


def test_a_setting_without_a_finished_arm_has_no_rows(objects: ObjectStore) -> None:
    store_sweep(objects, {})
    table = layers_table(SPACE, best_summaries(load_sweep(objects, "tiny"), {}))
    assert table.rows == []
    assert to_markdown(table).startswith("| setting | model | layer |")


def test_costs_are_means_over_seeds_of_what_last_reports_say() -> None:
    records = [finished(replace(TEXT, seed=seed), LOSSES) for seed in (0, 1)]
    entry = aggregates.arm_summary(records, None, {}).to_json()
    assert entry is not None
    assert entry["train_seconds"] is None  # reports of an older version say nothing
    for record, seconds in zip(records, (10.0, 30.0), strict=True):
        record.reports[-1].scalars["train/seconds"] = seconds
    entry = aggregates.arm_summary(records, None, {}).to_json()
    assert entry is not None
    assert entry["train_seconds"] == 20.0
    assert entry["peak_memory_mb"] is None
