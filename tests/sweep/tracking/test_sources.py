"""Sources of tracking: stored files give the same as a running driver."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sweep.results.sweep_view import load_sweep
from sweep.run.coordinator import Coordinator
from sweep.run.events import Observer
from sweep.study.arms import Arm, stored_arms
from sweep.study.definition import load_definition
from sweep.tracking import sources
from sweep.tracking.rows import TrackedArm
from sweep.tracking.tags_and_notes import run_note, tags_of
from tests.support.sweeps import DIVERGED, FEASIBLE, FIRST, INFEASIBLE, SECOND, store_sweep
from trainables.records.arm_record import FEASIBLE as FEASIBLE_METRIC
from trainables.records.arm_record import MEAN_OVER_GAMMAS, WORST_MISSING_SHARE
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore


@pytest.fixture
def objects(tmp_path: Path) -> ObjectStore:
    store = ObjectStore(tmp_path)
    store_sweep(store, {FIRST: [INFEASIBLE, FEASIBLE, DIVERGED], SECOND: []})
    return store


def by_signature(objects: ObjectStore) -> dict[str, TrackedArm]:
    definition = load_definition(objects, "tiny")
    return {arm.signature: arm for arm in sources.tracked_arms(objects, definition)}


def test_a_driver_that_starts_tells_of_every_stored_arm(objects: ObjectStore) -> None:
    told: dict[str, Arm] = {}
    on_record, on_proposal = sources.listeners(
        lambda arm, is_final: told.update({arm.signature: arm})
    )
    definition = load_definition(objects, "tiny")
    coordinator = Coordinator(objects, definition, observer=Observer(on_record, on_proposal))
    coordinator.start()
    read = sources.StoredArms(objects, definition)
    assert {signature: read(arm) for signature, arm in told.items()} == by_signature(objects)


def test_a_pair_is_told_again_when_it_is_whole(objects: ObjectStore) -> None:
    told: list[tuple[Arm, bool]] = []
    _, on_proposal = sources.listeners(lambda arm, is_final: told.append((arm, is_final)))
    chosen = load_sweep(objects, "tiny").settings[0].chosen.shown
    assert chosen is not None
    on_proposal(FIRST, chosen)
    expected = [
        a
        for a in stored_arms(objects, load_definition(objects, "tiny"))
        if (a.setting, a.proposal) == (FIRST, chosen.number)
    ]
    assert told == [(arm, True) for arm in expected]


def test_outcomes_are_those_of_the_pairs(objects: ObjectStore) -> None:
    arms = by_signature(objects).values()
    constrained = {a.proposal: a.outcome for a in arms if a.proposal is not None}
    assert constrained == {0: "infeasible", 1: "feasible", 2: "diverged"}
    assert {a.outcome for a in arms if a.proposal is None} == {"finished"}


def test_a_whole_pair_carries_its_gains_and_names_its_baseline(objects: ObjectStore) -> None:
    arms = by_signature(objects)
    arm = next(a for a in arms.values() if a.proposal == 1 and a.record.config.seed == 1)
    assert arm.pair[FEASIBLE_METRIC] == 1.0
    assert arm.pair[WORST_MISSING_SHARE] < 0
    assert arm.pair[f"{MEAN_OVER_GAMMAS}_gain"] == pytest.approx(-0.5)
    assert arm.unconstrained_signature is not None
    assert arms[arm.unconstrained_signature].record.config == arm.record.config.unconstrained()


def test_a_pair_of_two_codes_says_so_on_its_page(objects: ObjectStore) -> None:
    arms = by_signature(objects)
    arm = next(a for a in arms.values() if a.proposal == 1 and a.record.config.seed == 1)
    assert "codes" not in tags_of(arm)
    record = replace(arm.record, environment={"training_code": {"trainables": "1a"}})
    ArmStore(objects).forget(arm.signature)
    ArmStore(objects).put_record(record)
    tags = tags_of(by_signature(objects)[arm.signature])
    assert tags["codes"] == "trainables 1a and by unknown code"
    assert f"trained by {tags['codes']}, so that a difference" in tags["mlflow.note.content"]


def test_a_pair_without_its_baseline_carries_no_numbers_yet(objects: ObjectStore) -> None:
    store = ArmStore(objects)
    arm = next(a for a in by_signature(objects).values() if a.proposal == 1)
    assert arm.unconstrained_signature is not None
    store.forget(arm.unconstrained_signature)
    again = by_signature(objects)[arm.signature]
    assert again.pair == {}
    assert again.outcome == "feasible"


def test_an_arm_in_training_is_running_and_names_its_baseline(objects: ObjectStore) -> None:
    store = ArmStore(objects)
    signature = next(a.signature for a in by_signature(objects).values() if a.proposal == 0)
    record = store.record(signature)
    assert record is not None
    record.status, record.evaluation = "running", None
    store.forget(signature)
    store.put_record(record)
    arm = by_signature(objects)[signature]
    assert (arm.outcome, arm.pair) == ("running", {})
    assert arm.unconstrained_signature is not None


def test_tracking_is_told_how_sure_a_verdict_is_and_where_the_point_lies(
    objects: ObjectStore,
) -> None:
    arms = by_signature(objects).values()
    feasible = next(a for a in arms if a.outcome == "feasible")
    assert feasible.verdict.certificate == "undecided"
    assert feasible.verdict.certificate_counts == "2 windows of 1 clip"
    assert "by 95 % bounds over 2 windows of 1 clip: undecided" in run_note(feasible)
    assert "alpha 0.2 is at the low end" in feasible.verdict.edges
    tags, plain = tags_of(feasible), next(a for a in arms if a.proposal is None)
    assert (tags["certificate"], "not_binding" in tags) == ("undecided", False)
    assert "certificate" not in tags_of(plain)
    assert feasible.pair["feasibility/units_met"] == 1.0
    assert feasible.pair["feasibility/demanded_descent"] == pytest.approx(1 - 0.7999**2)
    assert "feasibility/worst_missing_share_upper" not in feasible.pair  # of one clip
