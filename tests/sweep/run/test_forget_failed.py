"""Failed arms that are trained once more: those and no others, wherever a retry is killed."""

from __future__ import annotations

from typing import Any

import pytest

from sweep.run.forget_failed import forget_failed
from tests.support.toy_sweeps import definition, ends_where, outcomes, started, train
from trainables.records.objects import ObjectStore

fails_at_one = ends_where(lambda arm: arm.proposal == 1, "failed", "out of memory")


def test_retry_failed_trains_failed_arms_and_no_others(objects: ObjectStore) -> None:
    asked = definition(seeds=(0,), n_settings=1)
    train(started(objects, asked), fails_at_one)
    assert [p.outcome.outcome for p in outcomes(objects, asked)["g1"]].count("failed") == 1
    assert train(started(objects, asked)) == []
    again = train(started(objects, asked, retry_failed=True))
    assert [arm.proposal for arm in again] == [1]
    assert "failed" not in [p.outcome.outcome for p in outcomes(objects, asked)["g1"]]


def test_proposals_beside_a_failed_unconstrained_arm_are_judged_again(objects: ObjectStore) -> None:
    asked = definition(seeds=(0,), n_settings=2)
    fails = ends_where(lambda a: a.proposal is None and a.setting == "g1", "failed", "disk")
    train(started(objects, asked), fails)
    forget_failed(objects, asked)
    judged = {
        name: {p.outcome is not None for p in of} for name, of in outcomes(objects, asked).items()
    }
    assert judged == {"g1": {False}, "g2": {True}}
    assert [arm.proposal for arm in train(started(objects, asked))] == [None]
    assert all(p.outcome is not None for p in outcomes(objects, asked)["g1"])


@pytest.mark.parametrize("before_number", range(4))
def test_a_retry_that_is_killed_at_any_delete_is_completed_by_the_next(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch, before_number: int
) -> None:
    asked = definition(seeds=(0, 1), n_settings=1)
    failed = {a.signature for a in train(started(objects, asked), fails_at_one) if a.proposal == 1}
    deletes: list[str] = []
    for name in ("delete", "delete_folder"):
        real = getattr(ObjectStore, name)

        def delete(self: ObjectStore, target: str, real: Any = real) -> None:
            if target.startswith(("arms/", "sweeps/")):
                deletes.append(target)
            if len(deletes) > before_number:
                raise KeyboardInterrupt
            real(self, target)

        monkeypatch.setattr(ObjectStore, name, delete)
    with pytest.raises(KeyboardInterrupt):
        started(objects, asked, retry_failed=True)
    monkeypatch.undo()
    resumed = {a.signature for a in train(started(objects, asked))}
    retried = {a.signature for a in train(started(objects, asked, retry_failed=True))}
    assert resumed | retried == failed
    assert started(objects, asked).summary().outcomes["failed"] == 0
