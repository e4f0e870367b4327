"""What tracking is fed: the same from the stored files as from a running driver."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweep import feed
from sweep.plan import Arm
from sweep.tracking_rows import TrackedArm
from sweep.views import load_sweep
from tests.sweeps import DIVERGED, FEASIBLE, FIRST, INFEASIBLE, SECOND, store_sweep
from trainables.object_store import ObjectStore
from trainables.results import FEASIBLE as FEASIBLE_METRIC
from trainables.results import OOD_MEAN, WORST_MISSING_SHARE
from trainables.run_store import RunStore


@pytest.fixture
def objects(tmp_path: Path) -> ObjectStore:
    store = ObjectStore(tmp_path)
    store_sweep(store, {FIRST: [INFEASIBLE, FEASIBLE, DIVERGED], SECOND: []})
    return store


def by_signature(objects: ObjectStore) -> dict[str, TrackedArm]:
    return {a.signature: a for a in feed.tracked_arms(objects, load_sweep(objects, "tiny"))}


def test_a_finished_sweep_is_fed_as_its_driver_fed_it(objects: ObjectStore) -> None:
    view = load_sweep(objects, "tiny")
    told: dict[str, TrackedArm] = {}
    on_record, on_proposal = feed.listeners(
        objects, view.definition, lambda arm: told.update({arm.signature: arm})
    )
    for place in view.arms.values():
        if place.record is not None:
            config = place.record.config
            on_record(Arm(config, place.signature, place.setting, place.proposal), place.record)
    for setting in view.settings:
        for result in setting.results:
            on_proposal(setting.setting.name, result)
    assert told == by_signature(objects)


def test_outcomes_are_those_of_the_pairs(objects: ObjectStore) -> None:
    arms = by_signature(objects).values()
    constrained = {a.proposal: a.outcome for a in arms if a.proposal is not None}
    assert constrained == {0: "infeasible", 1: "feasible", 2: "diverged"}
    assert {a.outcome for a in arms if a.proposal is None} == {"finished"}


def test_a_whole_pair_carries_its_differences_and_names_its_twin(objects: ObjectStore) -> None:
    arms = by_signature(objects)
    arm = next(a for a in arms.values() if a.proposal == 1 and a.record.config.seed == 1)
    assert arm.pair[FEASIBLE_METRIC] == 1.0
    assert arm.pair[WORST_MISSING_SHARE] < 0
    assert arm.pair[f"{OOD_MEAN}_difference"] == pytest.approx(0.5)
    assert arm.unconstrained_signature is not None
    assert arms[arm.unconstrained_signature].record.config == arm.record.config.unconstrained()


def test_a_pair_without_its_twin_carries_no_numbers_yet(objects: ObjectStore) -> None:
    store = RunStore(objects)
    arm = next(a for a in by_signature(objects).values() if a.proposal == 1)
    assert arm.unconstrained_signature is not None
    store.forget(arm.unconstrained_signature)
    again = by_signature(objects)[arm.signature]
    assert again.pair == {}
    assert again.outcome == "feasible"


def test_an_arm_in_training_is_running_and_names_its_twin(objects: ObjectStore) -> None:
    store = RunStore(objects)
    signature = next(a.signature for a in by_signature(objects).values() if a.proposal == 0)
    record = store.record(signature)
    assert record is not None
    record.status, record.evaluation = "running", None
    store.forget(signature)
    store.put_record(record)
    arm = by_signature(objects)[signature]
    assert (arm.outcome, arm.pair) == ("running", {})
    assert arm.unconstrained_signature is not None
