"""Status of a stored sweep: what is final, in training, interrupted, and still wanted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sweep.results.status import ArmCounts, FinalArms, status_of
from sweep.results.summary import ProposalCounts
from sweep.results.sweep_view import load_sweep
from sweep.study.definition import put_extension
from tests.support.sweeps import DIVERGED, FEASIBLE, FIRST, INFEASIBLE, SECOND, point, store_sweep
from trainables.records.arm_record import EVAL_SECONDS, TRAIN_SECONDS, Report
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore


def test_a_proposal_with_an_arm_in_training_does_not_count_yet(objects: ObjectStore) -> None:
    definition = store_sweep(objects, {FIRST: [FEASIBLE, FEASIBLE]})
    config = definition.space.run(definition.space.setting(FIRST), point(1), seed=1)
    store = ArmStore(objects)
    record = store.record(config.signature())
    assert record is not None
    record.status, record.evaluation = "running", None
    store.forget(config.signature())
    store.put_record(record)
    view = load_sweep(objects, "tiny")
    assert [r.number for r in view.settings[0].results] == [0]
    shown = status_of(view)
    assert (shown.arms.training, shown.arms.interrupted) == (0, 1)
    assert shown.interrupted[0].step == 40
    running = status_of(view, is_running=True)
    assert (running.arms.training, running.arms.interrupted) == (1, 0)
    assert running.in_training == shown.interrupted
    assert shown.settings[0].proposals == ProposalCounts(wanted=3, stored=2, finished=1)


def test_a_sweep_is_finished_when_all_that_was_asked_is_final(objects: ObjectStore) -> None:
    all_of_it = [FEASIBLE, INFEASIBLE, DIVERGED]
    definition = store_sweep(objects, {FIRST: all_of_it, SECOND: all_of_it})
    assert load_sweep(objects, "tiny").is_finished
    put_extension(objects, definition.extended(n_proposals=4))
    view = load_sweep(objects, "tiny")
    assert not view.is_finished
    assert status_of(view).arms == ArmCounts(wanted=20, final=16, training=0, interrupted=0)


def test_the_time_left_is_that_of_arms_like_those_in_training(objects: ObjectStore) -> None:
    """Two arms are half done after 30 s and 10 s, so an arm takes 40 s in the mean."""
    definition = store_sweep(objects, {FIRST: [FEASIBLE, FEASIBLE], SECOND: []})
    store = ArmStore(objects)
    for seed, spent in ((0, 30.0), (1, 10.0)):
        config = definition.space.run(definition.space.setting(FIRST), point(1), seed=seed)
        record = store.record(config.signature())
        assert record is not None
        scalars = {TRAIN_SECONDS: spent - 2, EVAL_SECONDS: 2.0}
        report = Report(step=config.steps // 2, timestamp_ms=1, scalars=scalars)
        store.forget(record.signature)
        store.put_record(replace(record, status="running", evaluation=None, reports=[report]))
    view = load_sweep(objects, "tiny")
    entry = status_of(view, is_running=True)
    assert entry.arms == ArmCounts(wanted=16, final=6, training=2, interrupted=0)
    assert entry.seconds_left == pytest.approx((10 * 40.0 - 40.0) / 2)
    assert [setting.arms for setting in entry.settings] == [
        FinalArms(wanted=8, final=4),
        FinalArms(wanted=8, final=2),
    ]
    assert status_of(view).seconds_left is None
