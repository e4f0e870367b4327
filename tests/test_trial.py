"""The Tune trainable, in this process: an arm at a time, told in results, no exceptions."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest

from tests.drivers import tiny
from trainables.config import RunConfig
from trainables.object_store import ObjectStore
from trainables.run_store import RunStore
from trainables.trial import (
    FINISHED,
    PROBLEM,
    REPORT,
    SIGNATURE,
    STORE_PROBLEM,
    ArmTrial,
    report_of,
    trial_config,
)


def arm(seed: int = 0) -> RunConfig:
    space = tiny(steps=20, report_every=10).space
    return space.run(space.settings[0], {}, seed=seed)


def trial_of(objects: ObjectStore, config: RunConfig) -> ArmTrial:
    return ArmTrial(config=trial_config(config, objects.root, patience_s=0))


def test_a_worker_counts_its_starts_for_the_driver_that_sent_it(objects: ObjectStore) -> None:
    for driver, starts in (("one", 1), ("one", 2), ("two", 1)):
        trial = ArmTrial(config=trial_config(arm(), objects.root, patience_s=0, driver=driver))
        trial.train()
        attempt = objects.get_json(f"arms/{arm().signature()}/attempts.json")
        assert (attempt["driver"], attempt["starts"]) == (driver, starts)
        objects.delete(f"arms/{arm().signature()}/checkpoint-00000010.pt")


def test_a_step_is_a_report_interval_and_the_last_one_says_finished(objects: ObjectStore) -> None:
    trial = trial_of(objects, arm())
    first, last = trial.train(), trial.train()
    assert [first["step"], last["step"]] == [10, 20]
    assert [first[FINISHED], last[FINISHED]] == [False, True]
    assert [first["done"], last["done"]] == [False, True]
    assert last[SIGNATURE] == arm().signature()
    record = RunStore(objects).record(arm().signature())
    assert record is not None
    assert [report_of(first), report_of(last)] == record.reports


def test_at_most_eight_numbers_of_ours_go_to_tune(objects: ObjectStore) -> None:
    ours = trial_of(objects, arm()).step()
    numbers = [k for k, v in ours.items() if isinstance(v, int | float)]
    assert len(numbers) <= 8
    assert isinstance(ours[REPORT], str)


def test_a_reused_actor_trains_the_next_arm(objects: ObjectStore) -> None:
    trial = trial_of(objects, arm(seed=0))
    trial.train()
    assert trial.reset_config(trial_config(arm(seed=1), objects.root, patience_s=0)) is True
    assert trial.train()[SIGNATURE] == arm(seed=1).signature()
    assert sorted(objects.names("arms")) == sorted(arm(seed=s).signature() for s in (0, 1))


def test_a_trial_that_starts_again_resumes_from_the_store(objects: ObjectStore) -> None:
    trial_of(objects, arm()).train()
    assert trial_of(objects, arm()).train()["step"] == 20
    assert trial_of(objects, arm()).train()[FINISHED] is True  # and then there is nothing to do


def test_a_store_that_cannot_be_written_is_told_not_raised(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(ObjectStore, "_put_local", staticmethod(full))
    result = trial_of(objects, arm()).train()
    assert (result[FINISHED], result[STORE_PROBLEM], result["done"]) == (False, True, True)
    assert "No space left on device" in result[PROBLEM]


def test_an_unexpected_error_is_told_not_raised(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise ZeroDivisionError("a defect of ours")

    monkeypatch.setattr(RunStore, "record", broken)
    result = trial_of(objects, arm()).train()
    assert (result[FINISHED], result[STORE_PROBLEM], result["done"]) == (False, False, True)
    assert "ZeroDivisionError: a defect of ours" in result[PROBLEM]


def test_tune_carries_plain_strings_and_no_state(objects: ObjectStore, tmp_path: Path) -> None:
    config = trial_config(arm(), objects.root, patience_s=1)
    assert RunConfig.from_json(json.loads(config["run"])) == arm()
    trial = trial_of(objects, arm())
    assert trial.save_checkpoint(str(tmp_path)) == {}
    trial.load_checkpoint({})
    trial.cleanup()
