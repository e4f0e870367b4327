"""Arms that other code trained: refused or accepted; its failures, which are trained anew."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sweep.errors import CodeDiffers
from sweep.run.forget_failed import refuse_other_code
from sweep.study.arms import Arm
from sweep.study.definition import put_definition
from tests.support.command_line import sweep
from tests.support.records import ended, finished
from tests.support.toy_sweeps import LOSSES, definition, ends_where, outcomes, started, train
from trainables.environment import changed_since
from trainables.records.arm_record import ArmRecord, code_text
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore
from trainables.registry.training_code import training_code

OTHER = {"trainables": "00000000"}
RecordOf = Callable[[Arm], ArmRecord]


def trained_by(code: dict[str, str] | None, record_of: RecordOf | None = None) -> RecordOf:
    """For ``train``: arms that this code trained; None: this one."""

    def made(arm: Arm) -> ArmRecord:
        record = record_of(arm) if record_of else finished(arm.config, LOSSES)
        of = (arm.config.task, arm.config.model.name, arm.config.data.name)
        here = training_code(*of) if code is None else code
        return replace(record, environment={"training_code": here, "sweep": "toy"})

    return made


def fails(why: str) -> RecordOf:
    return lambda arm: replace(ended(arm.config, "failed", why), ended_ms=90_000)


def test_a_sweep_that_grows_is_refused_beside_arms_of_other_code(objects: ObjectStore) -> None:
    asked = put_definition(objects, definition(seeds=(0,), n_settings=1))
    train(started(objects, asked, accept_code=True), trained_by(OTHER))
    assert started(objects, asked).summary().is_done  # nothing is left to be paired
    refuse_other_code(objects, asked)
    grown = asked.extended(n_proposals=5)
    for refused in (
        lambda: started(objects, grown),
        lambda: refuse_other_code(objects, grown),
    ):
        with pytest.raises(
            CodeDiffers, match=r"toy uses 4 arms of other code \(trainables 00000000; here"
        ) as told:
            refused()
        for way in ("--accept-code", "another --storage", "another --name"):
            assert way in str(told.value)
        assert len(str(told.value)) < 500


def test_the_files_that_changed_are_named_where_git_knows_them(objects: ObjectStore) -> None:
    here = Path(__file__).parent
    first = ["git", "-C", str(here), "rev-list", "--max-parents=0", "HEAD"]
    commit = subprocess.run(first, capture_output=True, text=True).stdout.split()[:1]
    if not commit or not (changed := changed_since(commit[0])):
        pytest.skip("this is no checkout with a history")

    def record_of(arm: Arm) -> ArmRecord:
        record = trained_by(OTHER)(arm)
        return replace(record, environment=record.environment | sources)

    for dirty in (False, True):
        sources = {"commit": commit[0], "dirty": dirty}
        store = ObjectStore(f"{objects.root}/{dirty}")
        asked = definition(seeds=(0,), n_settings=1)
        train(started(store, asked, accept_code=True), record_of)
        with pytest.raises(CodeDiffers) as told:
            refuse_other_code(store, asked.extended(n_proposals=4))
        named = f"since then changed in trainables/: {', '.join(sorted(changed)[:5])}"
        assert (named in str(told.value)) == (not dirty)


def test_another_sweep_takes_no_arm_of_other_code_by_its_signature(objects: ObjectStore) -> None:
    train(
        started(objects, definition(seeds=(0,), n_settings=1), accept_code=True), trained_by(OTHER)
    )
    other = replace(definition(seeds=(0,), n_settings=1, n_proposals=4), name="other")
    with pytest.raises(CodeDiffers, match="other uses 1 arm of other code"):
        refuse_other_code(objects, other)
    with pytest.raises(CodeDiffers):
        started(objects, other)


def test_an_arm_that_is_met_only_while_it_runs_ends_the_run(objects: ObjectStore) -> None:
    """Its unconstrained arms are of this code, and a proposal of the other sweep's is not."""
    asked = definition(seeds=(0,), n_settings=1)

    def record_of(arm: Arm) -> ArmRecord:
        return trained_by(None if arm.proposal is None else OTHER)(arm)

    train(started(objects, asked, accept_code=True), record_of)
    driver = started(objects, replace(asked, name="other"))
    assert train(driver, trained_by(None)) == []
    assert driver.stopping == "other code trained what is next"
    assert "--accept-code" in driver.summary().problems[0]


def test_accepted_arms_are_taken_as_they_are(objects: ObjectStore) -> None:
    asked = definition(seeds=(0,), n_settings=1)
    train(started(objects, asked, accept_code=True), trained_by(OTHER))
    grown = asked.extended(n_proposals=5)
    refuse_other_code(objects, grown, accept_code=True)
    driver = started(objects, grown, accept_code=True)
    assert [arm.proposal for arm in train(driver, trained_by(None))] == [3, 4]
    assert "taken as trained: 4 arms of other code (trainables" in driver.codes.describe_others()
    assert driver.codes.required_codes([grown.space.base]) == []  # others train, too


def test_a_driver_wants_of_workers_what_it_has_read_at_its_start(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = started(objects, definition(seeds=(0,), n_settings=1))
    base = driver.definition.space.base
    here = code_text(training_code(base.task, base.model.name, base.data.name))
    monkeypatch.setattr("trainables.registry.training_code._short", lambda _: "1")
    assert driver.codes.required_codes([base, base]) == [here, here]


def test_an_arm_that_another_sweep_put_first_makes_no_silent_pair(objects: ObjectStore) -> None:
    """Both train it at once, each with its own code; the first final record is everybody's."""
    asked = definition(seeds=(0,), n_settings=1)
    driver = started(objects, asked)
    arm = driver.next_arm()
    assert arm is not None
    ArmStore(objects, sweep="other").put_record(trained_by(OTHER)(arm))
    driver.runs.put_record(trained_by(None)(arm))  # too late
    driver.finish_arm(arm.signature)
    assert driver.stopping == "other code trained an arm of it meanwhile"
    (problem,) = driver.summary().problems
    assert "toy uses 1 arm of other code" in problem
    assert train(driver, trained_by(None)) == []
    assert not outcomes(objects, asked)["g1"]
    accepting = started(objects, asked, accept_code=True)
    assert len(train(accepting, trained_by(None))) == 3
    assert accepting.summary().is_done


def test_of_a_code_that_gained_a_part_all_parts_are_told(objects: ObjectStore) -> None:
    asked = definition(seeds=(0,), n_settings=1)
    of = (asked.space.base.task, asked.space.base.model.name, asked.space.base.data.name)
    code = training_code(*of) | {"data mine": "1a"}
    train(started(objects, asked, accept_code=True), trained_by(code))
    with pytest.raises(CodeDiffers, match=r"\(data mine 1a, trainables \w+; here trainables \w+\)"):
        refuse_other_code(objects, asked.extended(n_proposals=5))


def test_the_order_in_which_a_store_keeps_digests_makes_no_other_code(
    objects: ObjectStore,
) -> None:
    code = {"trainables": "1a", "model mine": "2b", "data mine": "3c"}
    asked = definition(seeds=(0,), n_settings=1)
    (arm,) = train(started(objects, asked, accept_code=True), trained_by(code), limit=1)
    record = ArmStore(objects).record(arm.signature)
    assert record is not None
    assert record.code == code_text(code)


@pytest.mark.parametrize("plain", [True, False])
def test_what_failed_with_other_code_is_trained_anew_unasked(
    objects: ObjectStore, plain: bool
) -> None:
    asked = definition(seeds=(0, 1), n_settings=1)
    fail = ends_where(lambda arm: (arm.proposal is None) == plain, "failed", "4 predictions")

    def record_of(arm: Arm) -> ArmRecord:
        record = fail(arm)
        return trained_by(OTHER if record.status == "failed" else None, lambda _: record)(arm)

    first = train(started(objects, asked), record_of)
    failed = {arm.signature for arm in first if (arm.proposal is None) == plain}
    driver = started(objects, asked)
    again = train(driver, trained_by(None))
    assert {arm.signature for arm in again} == failed
    found = outcomes(objects, asked)["g1"]
    assert "failed" not in {p.outcome.outcome for p in found}
    assert "no unconstrained arm" not in {p.outcome.hindrance for p in found}
    assert "that had failed with other code" in driver.codes.describe_others()


def test_a_new_sweep_trains_anew_what_failed_in_another_with_other_code(
    objects: ObjectStore,
) -> None:
    asked = definition(seeds=(0,), n_settings=1)
    train(started(objects, asked, accept_code=True), trained_by(OTHER, fails("4 predictions")))
    other = replace(asked, name="other")
    assert len(train(started(objects, other), trained_by(None))) == 4
    assert started(objects, other).summary().problems == ()


def test_a_failure_that_is_told_again_says_when_and_in_which_sweep(objects: ObjectStore) -> None:
    asked = definition(seeds=(0,), n_settings=1, n_proposals=2)
    first = started(objects, asked)
    train(first, trained_by(None, fails("4 predictions.")))
    again = started(objects, replace(asked, name="other"))
    assert train(again, trained_by(None)) == []
    told = again.summary().problems
    assert len(told) == 2
    for problem in told:
        assert "4 predictions. (failed at 19" in problem
        assert "in sweep toy, and not tried again here.)" in problem
        assert "--retry-failed" in problem


def test_what_fails_in_this_run_is_told_as_it_is(objects: ObjectStore) -> None:
    asked = definition(seeds=(0,), n_settings=1)
    driver = started(objects, asked)

    def fail_now(arm: Arm) -> ArmRecord:
        return replace(fails("4 predictions.")(arm), ended_ms=2**42)

    train(driver, trained_by(None, fail_now))
    assert not any("not tried again" in problem for problem in driver.summary().problems)


def test_arms_of_before_codes_were_recorded_are_taken_and_said(objects: ObjectStore) -> None:
    asked = definition(seeds=(0,), n_settings=1)
    train(started(objects, asked))
    driver = started(objects, asked.extended(n_proposals=4))
    assert len(train(driver, trained_by(None))) == 1
    assert "trained before records named their code: 4 arms" in driver.codes.describe_others()


def test_an_arm_that_other_code_began_is_of_other_code(objects: ObjectStore) -> None:
    asked = put_definition(objects, definition(seeds=(0,), n_settings=1))
    driver = started(objects, asked)
    arm: Any = driver.next_arm()
    begun = replace(trained_by(OTHER)(arm), status="running", evaluation=None)
    ArmStore(objects).put_record(begun)
    with pytest.raises(CodeDiffers):
        refuse_other_code(objects, asked)


def test_an_arm_that_unknown_code_began_and_this_one_went_on_with_is_taken(
    objects: ObjectStore,
) -> None:
    """Caught half-trained by the version that began to record codes."""
    asked = put_definition(objects, definition(seeds=(0,), n_settings=1))

    def record_of(arm: Arm) -> ArmRecord:
        record = trained_by(None)(arm)
        return replace(record, environment={**record.environment, "before": {"commit": "1"}})

    train(started(objects, asked), record_of, limit=2)
    refuse_other_code(objects, asked)
    driver = started(objects, asked)
    assert len(train(driver, trained_by(None))) == 2
    assert "trained before records named their code: 2 arms" in driver.codes.describe_others()
    assert driver.summary().is_done


def test_a_refusal_forgets_nothing(objects: ObjectStore) -> None:
    """Not even a failure of other code, which is trained anew: only as it is handed out."""
    asked = put_definition(objects, definition(seeds=(0,), n_settings=1))
    fail = ends_where(lambda arm: arm.proposal == 1, "failed", "4 predictions")
    arms = train(started(objects, asked, accept_code=True), trained_by(OTHER, fail))
    for refused in (lambda: refuse_other_code(objects, asked), lambda: started(objects, asked)):
        with pytest.raises(CodeDiffers, match="3 arms of other code"):
            refused()
    assert ArmStore(objects).finals({arm.signature for arm in arms}) == {a.signature for a in arms}
    driver = started(objects, asked, accept_code=True)
    assert ArmStore(objects).has_final(arms[2].signature)
    assert [arm.proposal for arm in train(driver, trained_by(None))] == [1]


def test_status_says_of_an_arm_of_another_sweep_when_it_failed_there(
    root: Path,
) -> None:
    objects = ObjectStore(root)
    asked = definition(seeds=(0,), n_settings=1, n_proposals=2)
    train(started(objects, asked), trained_by(None, fails("4 predictions.")))
    other = put_definition(objects, replace(asked, name="other"))
    started(objects, other).close()
    assert "4 predictions. (failed at 19" in " ".join(sweep("status", "other").stdout.split())
