"""Verdicts: which of them reach the store, and which a driver believes."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import pytest

from sweep.results.sweep_view import load_sweep
from sweep.run.forget_failed import refuse_other_code
from sweep.study import proposals
from sweep.study.arms import all_judged, baselines
from sweep.study.definition import put_definition
from tests.support.records import finished
from tests.support.toy_sweeps import (
    LOSSES,
    PLAIN,
    STEEP,
    definition,
    ends_where,
    outcomes,
    started,
    train,
)
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore


def test_verdicts_on_arms_that_another_sweep_trained_are_stored_at_the_end(
    objects: ObjectStore,
) -> None:
    asked = put_definition(objects, definition())
    train(started(objects, asked))
    other = put_definition(objects, replace(asked, name="other"))
    coordinator = started(objects, other)
    assert train(coordinator) == []
    coordinator.close()
    assert all_judged(objects, other)


def test_a_driver_that_lost_its_sweep_stores_no_verdicts(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = put_definition(objects, definition())
    coordinator = started(objects, asked)
    monkeypatch.setattr(proposals, "_JUDGED_PACE", math.inf)  # it has one to put at its end
    train(coordinator, limit=8)
    before = outcomes(objects, asked)
    coordinator.lose_sweep("another driver has it")
    coordinator.close()
    assert outcomes(objects, asked) == before
    stored = [p for of in before.values() for p in of if p.outcome]
    assert len(stored) < sum(map(len, coordinator.outcomes.values()))


def test_a_failed_verdict_is_not_believed_where_the_arm_was_trained_again(
    objects: ObjectStore,
) -> None:
    """Another sweep retried it, or a driver that had lost its sweep wrote what it knew."""
    asked = put_definition(objects, definition(seeds=(0,), n_settings=1))
    fails = ends_where(lambda arm: arm.proposal == 1, "failed", "a plug-in broke")
    first = train(started(objects, asked), fails)
    again = next(arm for arm in first if arm.proposal == 1)
    ArmStore(objects).forget(again.signature)
    ArmStore(objects).put_record(finished(again.config, LOSSES))
    assert outcomes(objects, asked)["g1"][1].outcome.outcome == "failed"
    assert train(started(objects, asked)) == []
    assert outcomes(objects, asked)["g1"][1].outcome.outcome != "failed"


def test_a_proposal_that_shares_an_arm_with_a_judged_one_is_judged_too(
    objects: ObjectStore,
) -> None:
    """Killed between two settings' files, of which the second was put."""
    asked = definition(seeds=(0,), n_settings=1)
    first = asked.space.settings[0]
    space = replace(asked.space, settings=(first, replace(first, name="same")), sampler="random")
    asked = put_definition(objects, replace(asked, space=space))
    point = {name: r.low for name, r in space.ranges.items()}
    for setting in space.settings:
        proposals.put_proposal(objects, asked.name, setting.name, 0, point)
    train(started(objects, asked))
    assert all_judged(objects, asked)
    objects.delete(f"sweeps/{asked.name}/proposals/{first.name}/judged.json")
    assert train(started(objects, asked)) == []
    assert all_judged(objects, asked)


def retrained(objects: ObjectStore, signature: str, losses: list[float]) -> None:
    """Another sweep had it trained again, and it came to something else."""
    runs = ArmStore(objects)
    before = runs.record(signature)
    assert before is not None
    runs.forget(signature)
    runs.put_record(replace(finished(before.config, losses), started_ms=before.started_ms + 1))


def test_a_verdict_does_not_outlive_the_unconstrained_arm_it_was_judged_beside(
    objects: ObjectStore,
) -> None:
    asked = put_definition(objects, definition(seeds=(0,), n_settings=1))
    train(started(objects, asked), lambda arm: finished(arm.config, STEEP))
    assert {p.outcome.hindrance for p in outcomes(objects, asked)["g1"]} == {"not binding"}
    (plain,) = (arm.signature for arm in baselines(asked, "g1"))
    retrained(objects, plain, PLAIN)
    for read in ("outcomes", "pairs"):  # before any driver comes
        (setting,) = load_sweep(objects, asked.name, read).settings
        assert {outcome.hindrance for outcome in setting.results} == {""}
    assert train(started(objects, asked)) == []
    assert {p.outcome.hindrance for p in outcomes(objects, asked)["g1"]} == {""}


def test_what_failed_and_was_trained_again_for_another_sweep_is_read_as_it_is(
    objects: ObjectStore,
) -> None:
    asked = put_definition(objects, definition(seeds=(0,), n_settings=1))
    fails = ends_where(lambda arm: arm.proposal == 1, "failed", "a plug-in broke")
    retrained(objects, train(started(objects, asked), fails)[2].signature, LOSSES)
    (setting,) = load_sweep(objects, asked.name, "outcomes").settings
    assert "failed" not in {outcome.outcome for outcome in setting.results}


def test_a_resume_with_nothing_to_do_reads_each_verdict_and_record_once(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = put_definition(objects, definition(seeds=(0,), n_settings=1))
    train(started(objects, asked))
    read, names = ObjectStore.get, Counter[str]()

    def counting(self: ObjectStore, name: str) -> bytes | None:
        names[name] += 1
        return read(self, name)

    monkeypatch.setattr(ObjectStore, "get", counting)
    refuse_other_code(objects, asked)
    assert set(names) == {"sweeps/toy/proposals/g1/judged.json"}  # all is there: no record
    names.clear()
    assert started(objects, asked).summary().is_done
    assert {names[n] for n in names if "judged" in n or "record" in n} == {1}
