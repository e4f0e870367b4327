"""Arms of a sweep: each asked for once, judged or not, and records of baselines read once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sweep.study import arms
from sweep.study.arms import RecordReader, all_judged, baselines, stored_arms
from sweep.study.proposals import drop_outcomes
from tests.support.records import finished
from tests.support.sweeps import FEASIBLE, FIRST, SECOND, SPACE, store_sweep
from trainables.records.arm_record import ArmRecord
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore


class CountingRuns(ArmStore):
    def __init__(self, objects: ObjectStore) -> None:
        super().__init__(objects)
        self.reads = 0

    def record(self, signature: str) -> ArmRecord | None:
        self.reads += 1
        return super().record(signature)


def test_every_arm_is_asked_for_once_and_baselines_come_first(objects: ObjectStore) -> None:
    same = replace(SPACE, settings=(*SPACE.settings, replace(SPACE.settings[0], name="again")))
    definition = store_sweep(
        objects, {FIRST: [FEASIBLE] * 2, SECOND: [FEASIBLE], "again": [FEASIBLE]}, space=same
    )
    found = list(stored_arms(objects, definition))
    assert len({arm.signature for arm in found}) == len(found) == 4 + 6
    assert [arm.proposal for arm in found] == [None] * 4 + [0, 0, 1, 1, 0, 0]
    assert {arm.setting for arm in found} == {FIRST, SECOND}


def test_a_sweep_is_judged_where_every_proposal_has_an_outcome_of_its_arms(
    objects: ObjectStore,
) -> None:
    three = [FEASIBLE] * SPACE.n_proposals
    definition = store_sweep(objects, {FIRST: three, SECOND: three})
    assert all_judged(objects, definition)
    assert not all_judged(objects, definition.extended(search_seeds=(0, 1, 2)))
    assert not all_judged(objects, definition.extended(n_proposals=SPACE.n_proposals + 1))
    drop_outcomes(objects, definition.name, SECOND, {1})
    assert not all_judged(objects, definition)
    assert not all_judged(objects, definition, but={FIRST: "its search broke"})
    assert all_judged(objects, definition, but=[SECOND])


def test_records_of_final_baselines_are_read_once(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    definition = store_sweep(objects, {FIRST: [FEASIBLE]})
    runs = CountingRuns(objects)
    read = RecordReader(runs)
    known, other = (arm.signature for arm in baselines(definition, FIRST))
    assert read(known) == read(known) == ArmStore(objects).record(known)
    assert runs.reads == 1
    constrained = next(a for a in stored_arms(objects, definition) if a.proposal == 0)
    for _ in range(2):  # one proposal's alone: nothing is gained by keeping it
        read(constrained.signature)
    assert runs.reads == 3
    monkeypatch.setattr(arms, "KEPT_BASELINES", 1)
    read(other), read(known)
    assert runs.reads == 5


def test_a_baseline_that_is_not_final_yet_is_read_again(objects: ObjectStore) -> None:
    definition = store_sweep(objects, {})
    runs = CountingRuns(objects)
    read = RecordReader(runs)
    arm = baselines(definition, FIRST)[0]
    assert read(arm.signature) is None
    record = finished(arm.config, FEASIBLE)
    runs.put_record(record)
    assert read(arm.signature) == ArmStore(objects).record(arm.signature)
    assert runs.reads == 2
