"""The coordinator: arms in, outcomes out, nothing lost when it stops, nothing trained twice."""

from __future__ import annotations

import errno
import math
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from search_spaces.space import Sampler, SearchSpace, Setting, Uniform
from sweep import coordinator as coordinator_module
from sweep.coordinator import Coordinator
from sweep.definition import Definition, put_definition
from sweep.errors import AlreadyRunning
from sweep.execution import run_sweep
from sweep.lock import driver_lock, driver_of
from sweep.plan import Arm
from sweep.proposals import retired_settings, stored_proposals
from sweep.signals import request_stop, stop_on_request
from sweep.views import load_sweep
from tests.oracles import TINY
from tests.records import ended, finished
from trainables.errors import StoreError
from trainables.object_store import ObjectStore
from trainables.patient_store import PatientStore
from trainables.results import ArmRecord, Report
from trainables.run_store import RunStore

LOSSES = [1.0, 0.7, 0.5, 0.3]  # feasible under small alphas, useful


def definition(
    sampler: Sampler = "random",
    n_proposals: int = 3,
    seeds: tuple[int, ...] = (0, 1),
    n_settings: int = 2,
) -> Definition:
    space = SearchSpace(
        name="toy",
        summary="",
        base=TINY,
        settings=tuple(
            Setting(f"g{g}", {"train_gamma": 0.1 * g}) for g in range(1, 1 + n_settings)
        ),
        ranges={"constraint.alpha": Uniform(0.05, 0.6)},
        n_proposals=n_proposals,
        search_seeds=seeds,
        sampler=sampler,
    )
    return Definition("toy", space)


@pytest.fixture
def objects(tmp_path: Path) -> ObjectStore:
    return ObjectStore(tmp_path)


def started(objects: ObjectStore, asked: Definition, **options: Any) -> Coordinator:
    retry_failed = options.pop("retry_failed", False)
    coordinator = Coordinator(objects, asked, **options)
    coordinator.start(retry_failed=retry_failed)
    return coordinator


def train(
    coordinator: Coordinator,
    record_of: Callable[[Arm], ArmRecord] = lambda arm: finished(arm.config, LOSSES),
    limit: int = 1000,
) -> list[Arm]:
    """Stand in for an executor: every arm gets a record written by hand."""
    trained: list[Arm] = []
    while len(trained) < limit and (arm := coordinator.next_arm()) is not None:
        record = record_of(arm)
        coordinator.runs.put_record(record)
        if record.is_final:
            coordinator.finished(arm.signature)
        else:
            coordinator.unfinished(arm.signature)
        trained.append(arm)
    return trained


def outcomes(objects: ObjectStore, asked: Definition) -> dict[str, Any]:
    return {
        setting.name: stored_proposals(objects, asked.name, setting.name)
        for setting in asked.space.settings
    }


def test_a_sweep_is_trained_to_its_end_and_judged(objects: ObjectStore) -> None:
    asked = definition()
    coordinator = started(objects, asked)
    trained = train(coordinator)
    assert len(trained) == len({arm.signature for arm in trained}) == 2 * 2 + 2 * 3 * 2
    assert coordinator.is_over
    summary = coordinator.summary()
    assert summary.is_done
    assert summary.exit_code == 0
    assert sum(summary.outcomes.values()) == 6
    for proposals in outcomes(objects, asked).values():
        assert [p.number for p in proposals] == [0, 1, 2]
        for proposal in proposals:
            assert proposal.outcome is not None
            assert len(proposal.outcome.signatures) == 2
            assert proposal.outcome.objective == pytest.approx(-0.2)


def test_a_point_is_stored_before_its_arms_are_handed_out(objects: ObjectStore) -> None:
    asked = definition(n_settings=1, seeds=(0,))
    coordinator = started(objects, asked)
    train(coordinator, limit=1)
    assert outcomes(objects, asked)["g1"] == []
    arm = coordinator.next_arm()
    assert arm is not None
    (stored,) = outcomes(objects, asked)["g1"]
    assert stored.point == {"constraint.alpha": TINY.value_of("constraint.alpha")}
    assert arm.config.constraint is not None
    assert arm.config.constraint.alpha == stored.point["constraint.alpha"]


@pytest.mark.parametrize("sampler", ["random", "quasi_random", "tpe"])
@pytest.mark.parametrize("killed_after", [0, 1, 3, 6, 10])
def test_with_one_slot_a_killed_sweep_ends_like_an_undisturbed_one(
    sampler: Sampler, killed_after: int, tmp_path: Path
) -> None:
    asked = definition(sampler, n_proposals=5, seeds=(0,))

    def record_of(arm: Arm) -> ArmRecord:
        alpha = 0.0 if arm.config.constraint is None else arm.config.constraint.alpha
        return finished(arm.config, LOSSES, objective=1 - alpha)

    undisturbed, disturbed = ObjectStore(tmp_path / "u"), ObjectStore(tmp_path / "d")
    train(started(undisturbed, asked), record_of)
    first = train(started(disturbed, asked), record_of, limit=killed_after)
    abandoned = started(disturbed, asked)  # handed out, then nothing: died with its driver
    abandoned.next_arm()
    then = train(started(disturbed, asked), record_of)
    assert not {a.signature for a in first} & {a.signature for a in then}
    assert outcomes(disturbed, asked) == outcomes(undisturbed, asked)


def test_a_finished_arm_is_not_trained_again_by_another_sweep(objects: ObjectStore) -> None:
    train(started(objects, definition()))
    other = replace(definition(), name="other")
    assert train(started(objects, other)) == []
    assert started(objects, other).summary().is_done


def test_starting_a_done_sweep_reads_the_records_of_baselines_alone(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = definition()
    train(started(objects, asked))
    read: list[str] = []
    real = RunStore.record

    def record(self: RunStore, signature: str) -> ArmRecord | None:
        read.append(signature)
        return real(self, signature)

    monkeypatch.setattr(RunStore, "record", record)
    coordinator = started(objects, asked)
    assert coordinator.summary().is_done
    baselines = [arm.signature for arms in coordinator.plan.baselines.values() for arm in arms]
    assert sorted(read) == sorted(baselines)


def test_more_seeds_judge_a_proposal_again_from_all_of_them(objects: ObjectStore) -> None:
    asked = definition(seeds=(0,))
    train(started(objects, asked))
    before = outcomes(objects, asked)["g1"]
    grown = asked.extended(search_seeds=(0, 1), n_proposals=4)
    trained = train(started(objects, grown))
    # 2 settings x (1 baseline + 3 proposals of seed 1 + the fourth proposal on both seeds)
    assert len(trained) == 2 * (1 + 3 + 2)
    after = outcomes(objects, grown)["g1"]
    assert [p.point for p in after[:3]] == [p.point for p in before]
    assert [len(p.outcome.signatures) for p in after] == [2] * 4


def test_retry_failed_trains_failed_arms_and_no_others(objects: ObjectStore) -> None:
    asked = definition(seeds=(0,), n_settings=1)

    def fails_at_one(arm: Arm) -> ArmRecord:
        if arm.proposal == 1:
            return ended(arm.config, "failed", "out of memory")
        return finished(arm.config, LOSSES)

    train(started(objects, asked), fails_at_one)
    assert [p.outcome.outcome for p in outcomes(objects, asked)["g1"]].count("failed") == 1
    assert train(started(objects, asked)) == []
    again = train(started(objects, asked, retry_failed=True))
    assert [arm.proposal for arm in again] == [1]
    assert "failed" not in [p.outcome.outcome for p in outcomes(objects, asked)["g1"]]


def test_a_forgotten_arm_is_trained_again_although_its_proposal_has_an_outcome(
    objects: ObjectStore,
) -> None:
    asked = definition(seeds=(0,), n_settings=1)
    trained = train(started(objects, asked))
    RunStore(objects).forget(trained[-1].signature)
    assert [a.signature for a in train(started(objects, asked))] == [trained[-1].signature]


def test_arms_whose_records_are_damaged_are_trained_again(objects: ObjectStore) -> None:
    asked = put_definition(objects, definition(seeds=(0,), n_settings=1))
    trained = train(started(objects, asked))
    damaged = {trained[0].signature, trained[-1].signature}  # the baseline, and a judged one
    for signature in damaged:
        path = Path(objects.root, "arms", signature, "record.json")
        path.write_bytes(path.read_bytes()[:-1])
    assert not load_sweep(objects, asked.name).is_finished  # `sweep resume` looks first
    assert {a.signature for a in train(started(objects, asked))} == damaged
    assert load_sweep(objects, asked.name).is_finished


def test_a_final_arm_that_is_met_keeps_no_checkpoint(objects: ObjectStore) -> None:
    asked = definition(seeds=(0,), n_settings=1)
    first = started(objects, asked)
    arm = first.next_arm()
    assert arm is not None
    first.runs.put_record(finished(arm.config, LOSSES))
    first.runs.put_checkpoint(arm.signature, 20, b"left by a kill")
    train(started(objects, asked))
    assert first.runs.newest_checkpoint(arm.signature) is None


def test_an_arm_without_a_record_is_trained_again_although_its_folder_is_there(
    objects: ObjectStore,
) -> None:
    asked = definition(seeds=(0,), n_settings=1)
    trained = train(started(objects, asked))
    objects.put(f"arms/{trained[-1].signature}/weights.pt", b"weights")
    objects.delete(f"arms/{trained[-1].signature}/record.json")
    again = started(objects, asked)
    assert not again.summary().is_done
    assert [a.signature for a in train(again)] == [trained[-1].signature]


@pytest.mark.parametrize("before_number", range(4))
def test_a_retry_that_is_killed_at_any_delete_is_completed_by_the_next(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch, before_number: int
) -> None:
    asked = definition(seeds=(0, 1), n_settings=1)

    def fails_at_one(arm: Arm) -> ArmRecord:
        if arm.proposal == 1:
            return ended(arm.config, "failed", "out of memory")
        return finished(arm.config, LOSSES)

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


def test_diverged_arms_are_told_and_the_search_goes_on(objects: ObjectStore) -> None:
    asked = definition("tpe", n_proposals=6, seeds=(0,), n_settings=1)

    def diverges(arm: Arm) -> ArmRecord:
        if arm.proposal in (1, 4):
            return ended(arm.config, "diverged", "the loss is nan")
        return finished(arm.config, LOSSES)

    coordinator = started(objects, asked)
    train(coordinator, diverges)
    summary = coordinator.summary()
    assert summary.outcomes["diverged"] == 2
    assert summary.exit_code == 0  # an outcome, not an error
    assert math.isnan(coordinator.outcomes["g1"][1].objective)


@pytest.mark.parametrize("resumed", [False, True])
def test_a_setting_whose_every_proposal_failed_is_a_problem(
    objects: ObjectStore, resumed: bool
) -> None:
    asked = definition(seeds=(0, 1))

    def fails_in_g1(arm: Arm) -> ArmRecord:
        if arm.setting == "g1" and arm.proposal is not None and arm.config.seed == 1:
            return ended(arm.config, "failed", "out of memory.")
        return finished(arm.config, LOSSES)

    coordinator = started(objects, asked)
    train(coordinator, fails_in_g1)
    summary = (started(objects, asked) if resumed else coordinator).summary()
    assert (summary.is_done, summary.exit_code) == (True, 1)
    (problem,) = summary.problems
    assert problem.startswith("g1: all 3 proposals failed; the first: out of memory. ")
    assert "`sweep resume toy --retry-failed`" in problem


@pytest.mark.parametrize("resumed", [False, True])
def test_a_failed_unconstrained_arm_is_a_problem(objects: ObjectStore, resumed: bool) -> None:
    asked = definition(seeds=(0, 1))

    def fails(arm: Arm) -> ArmRecord:
        if arm.proposal is None and arm.config.seed == 1:
            return ended(arm.config, "failed", "no data.")
        return finished(arm.config, LOSSES)

    coordinator = started(objects, asked)
    train(coordinator, fails)
    summary = (started(objects, asked) if resumed else coordinator).summary()
    assert (summary.is_done, summary.exit_code) == (True, 1)
    (problem,) = summary.problems
    assert problem.startswith("2 unconstrained arms failed; the first: no data. ")
    train(started(objects, asked, retry_failed=True))
    assert started(objects, asked).summary().exit_code == 0


def test_an_error_of_a_search_retires_its_setting_and_no_other(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = coordinator_module.propose

    def breaks(space: SearchSpace, setting: str, number: int, *known: Any) -> dict[str, Any]:
        if (setting, number) == ("g1", 1):
            raise ZeroDivisionError("no more points")
        return real(space, setting, number, *known)

    monkeypatch.setattr(coordinator_module, "propose", breaks)
    asked = definition(seeds=(0,))
    coordinator = started(objects, asked)
    train(coordinator)
    summary = coordinator.summary()
    assert summary.exit_code == 1
    assert summary.is_done
    assert list(summary.retired) == ["g1"]
    assert "ZeroDivisionError: no more points" in summary.retired["g1"]
    assert retired_settings(objects, asked.name) == summary.retired
    assert [len(p) for p in outcomes(objects, asked).values()] == [1, 3]
    monkeypatch.undo()
    train(started(objects, asked))
    assert retired_settings(objects, asked.name) == {}
    assert [len(p) for p in outcomes(objects, asked).values()] == [3, 3]


def test_a_point_that_no_run_accepts_is_not_stored(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator_module, "propose", lambda *_: {"constraint.alpha": 7.0})
    asked = definition(n_settings=1)
    coordinator = started(objects, asked)
    train(coordinator)
    assert "alpha must be in (0, 1), got 7.0" in coordinator.retired["g1"]
    assert outcomes(objects, asked)["g1"] == []


def test_a_full_disk_stops_the_sweep_loudly_and_resuming_finishes_it(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = definition(seeds=(0,), n_settings=1)
    coordinator = started(objects, asked)
    finished_before = train(coordinator, limit=2)
    put = ObjectStore.put

    def full(self: ObjectStore, name: str, content: bytes) -> None:
        raise StoreError(f"could not write {name}: {OSError(errno.ENOSPC, 'No space left')}")

    monkeypatch.setattr(ObjectStore, "put", full)
    monkeypatch.setattr(ObjectStore, "put_once", full)
    assert coordinator.next_arm() is None
    summary = coordinator.summary()
    assert coordinator.is_over
    assert summary.exit_code == 1
    assert "No space left" in summary.problems[0]
    assert summary.advice == "Continue with `sweep resume toy`."
    monkeypatch.setattr(ObjectStore, "put", put)
    monkeypatch.undo()
    then = train(started(objects, asked))
    assert not {a.signature for a in then} & {a.signature for a in finished_before}
    assert started(objects, asked).summary().is_done


def test_a_writer_waits_for_a_disk_that_is_full_for_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr("trainables.patient_store.time.sleep", waits.append)
    failures = [OSError(errno.ENOSPC, "No space left")] * 3
    real = ObjectStore._put_local

    def put_local(path: Path, content: bytes, *, replace: bool = True) -> None:
        if failures:
            raise failures.pop()
        real(path, content, replace=replace)

    monkeypatch.setattr(ObjectStore, "_put_local", staticmethod(put_local))
    store = PatientStore(tmp_path, patience_s=60)
    store.put("a", b"content")
    assert store.get("a") == b"content"
    assert waits == [0.5, 1.0, 2.0]


def test_a_writer_gives_up_after_its_patience(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def put_local(path: Path, content: bytes, *, replace: bool = True) -> None:
        raise OSError(errno.ENOSPC, "No space left")

    monkeypatch.setattr(ObjectStore, "_put_local", staticmethod(put_local))
    with pytest.raises(StoreError, match=r"No space left.*nothing that is finished is lost"):
        PatientStore(tmp_path, patience_s=0).put("a", b"content")


def test_an_arm_whose_worker_is_lost_is_handed_out_again(objects: ObjectStore) -> None:
    coordinator = started(objects, definition(n_settings=1))
    arm = coordinator.next_arm()
    assert arm is not None
    coordinator.lost(arm.signature)
    assert coordinator.next_arm() == arm


def test_listeners_hear_of_every_arm_and_proposal(objects: ObjectStore) -> None:
    asked = definition(n_settings=1)
    arms: list[str] = []
    proposals: list[tuple[str, int]] = []
    coordinator = started(
        objects,
        asked,
        on_record=lambda arm, record: arms.append(record.signature),
        on_proposal=lambda setting, result: proposals.append((setting, result.number)),
    )
    trained = train(coordinator)
    assert arms == [arm.signature for arm in trained]
    assert proposals == [("g1", 0), ("g1", 1), ("g1", 2)]


def test_a_running_arm_is_told_with_its_stored_record(objects: ObjectStore) -> None:
    told: list[int] = []
    coordinator = started(
        objects, definition(), on_record=lambda arm, record: told.append(len(record.reports))
    )
    arm = coordinator.next_arm()
    assert arm is not None
    report = Report(step=10, timestamp_ms=1)
    running = ArmRecord(signature=arm.signature, config=arm.config, reports=[report])
    coordinator.runs.put_record(running)
    coordinator.report(arm.signature, report)
    coordinator.report(arm.signature, report)  # within the second: not read again
    assert told == [1]
    assert coordinator.live[arm.signature].report == report


def test_an_error_of_a_listener_is_told_and_ends_nothing(objects: ObjectStore) -> None:
    def broken(*_: Any) -> None:
        raise ValueError("no such metric")

    coordinator = started(objects, definition(), on_record=broken, on_proposal=broken)
    train(coordinator)
    summary = coordinator.summary()
    assert summary.is_done
    assert summary.exit_code == 1
    assert len(summary.problems) == 1  # once, not once per arm
    assert "no such metric" in summary.problems[0]


def test_stopping_hands_out_no_more_arms_and_resuming_goes_on(objects: ObjectStore) -> None:
    coordinator = started(objects, definition())
    train(coordinator, limit=2)
    coordinator.stop("Ctrl-C")
    assert coordinator.next_arm() is None
    summary = coordinator.summary()
    assert (summary.stopped, summary.exit_code, summary.is_done) == ("Ctrl-C", 1, False)
    assert len(train(started(objects, definition()))) == 16 - 2


def test_slow_proposals_are_prepared_while_arms_train(objects: ObjectStore) -> None:
    asked = definition("gp", n_proposals=5, seeds=(0,), n_settings=1)
    coordinator = started(objects, asked, ask_ahead=True)
    prepared = []

    def record_of(arm: Arm) -> ArmRecord:
        prepared.append(sorted(number for _, number in coordinator._ahead))
        return finished(arm.config, LOSSES)

    train(coordinator, record_of)
    coordinator.close()
    assert prepared == [[0], [1], [2], [3], [4], []]
    assert [p.number for p in outcomes(objects, asked)["g1"]] == [0, 1, 2, 3, 4]


def test_the_best_of_a_setting_is_known_while_it_runs(objects: ObjectStore) -> None:
    asked = definition(n_settings=1, seeds=(0,))
    objective = {0: 0.3, 1: 0.1, 2: 0.2, None: 0.0}
    # Losses that halve: feasible for every alpha below a half.
    losses = [1.0, 0.4, 0.16, 0.06]
    coordinator = started(objects, asked)
    train(
        coordinator,
        lambda arm: finished(
            arm.config,
            losses,
            objective=objective[arm.proposal],
        ),
    )
    best = coordinator.best("g1")
    winners = [o for o in coordinator.outcomes["g1"].values() if o.can_win]
    assert best == min(winners, key=lambda o: o.objective)


def test_a_finished_pair_takes_little_memory(tmp_path: Path) -> None:
    """At most 20 KB a pair: records, with reports and evaluations, are not kept."""
    import tracemalloc

    def grown(n_proposals: int) -> int:
        asked = definition(n_proposals=n_proposals, seeds=(0,), n_settings=1)
        coordinator = started(ObjectStore(tmp_path / str(n_proposals)), asked)
        tracemalloc.start()
        train(coordinator)
        used, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return used

    assert (grown(120) - grown(20)) / 100 < 20_000


# --- the frame around an executor -----------------------------------------------------------------


def test_a_second_driver_is_refused_and_the_first_is_named(objects: ObjectStore) -> None:
    assert driver_of(objects, "toy") is None
    with driver_lock(objects, "toy"):
        driver = driver_of(objects, "toy")
        assert driver is not None
        with pytest.raises(AlreadyRunning, match=rf"{driver.pid}.*sweep stop toy"):
            run_sweep(objects, definition(), where="inline")
    assert driver_of(objects, "toy") is None


@pytest.fixture
def stub_arms(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """ArmRun without training: two reports, then the final record. Lists what was trained."""
    trained: list[str] = []

    class StubArmRun:
        def __init__(self, config: Any, store: RunStore) -> None:
            self.store, self.config = store, config
            there = store.record(config.signature())
            self.record = there or ArmRecord(signature=config.signature(), config=config)

        def advance(self) -> ArmRecord:
            step = len(self.record.reports) * 20 + 20
            self.record.reports.append(Report(step=step, timestamp_ms=step))
            if step == 40:
                trained.append(self.config.signature())
                self.record = finished(self.config, LOSSES)
            self.record = self.store.put_record(self.record)
            return self.record

    from trainables import arm_run

    monkeypatch.setattr(arm_run, "ArmRun", StubArmRun)
    return trained


def test_a_sweep_runs_inline(objects: ObjectStore, stub_arms: list[str]) -> None:
    asked = put_definition(objects, definition())
    summary = run_sweep(objects, asked, where="inline", display=False)
    assert (summary.is_done, summary.exit_code) == (True, 0)
    assert len(stub_arms) == len(set(stub_arms)) == 16
    again = run_sweep(objects, asked, where="inline", display=False)
    assert again == summary
    assert len(stub_arms) == 16


def test_a_stop_request_ends_running_arms_at_their_next_report(
    objects: ObjectStore, stub_arms: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweep.signals.POLL_S", 0.01)
    asked = put_definition(objects, definition())
    stopped = threading.Event()

    def on_record(arm: Arm, record: ArmRecord) -> None:
        if arm.proposal is not None and not record.is_final and not stopped.is_set():
            request_stop(objects, "toy")
            stopped.wait(0.5)
            stopped.set()

    summary = run_sweep(objects, asked, where="inline", display=False, on_record=on_record)
    assert "sweep stop toy" in summary.stopped
    assert summary.exit_code == 1
    assert len(stub_arms) == 4  # the baselines; the first constrained arm stopped at its report
    assert run_sweep(objects, asked, where="inline", display=False).is_done
    assert len(stub_arms) == len(set(stub_arms)) == 16


def test_a_stop_request_during_the_start_is_not_lost(
    objects: ObjectStore, stub_arms: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweep.signals.POLL_S", 0.01)
    asked = put_definition(objects, definition())
    start = Coordinator.start

    def slow_start(self: Coordinator, **options: Any) -> None:
        start(self, **options)
        request_stop(objects, "toy")
        time.sleep(0.3)

    monkeypatch.setattr(Coordinator, "start", slow_start)
    summary = run_sweep(objects, asked, where="inline", display=False)
    assert "sweep stop toy" in summary.stopped
    assert stub_arms == []


def test_a_stop_request_just_after_the_lock_was_taken_is_not_lost(
    objects: ObjectStore, stub_arms: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweep.signals.POLL_S", 0.01)
    asked = put_definition(objects, definition())
    objects.put_json("sweeps/toy/stop", {"requested_ms": time.time_ns() // 1_000_000 + 5_000})
    coordinator = Coordinator(objects, asked)
    with stop_on_request(coordinator, since_ms=time.time_ns() // 1_000_000):
        time.sleep(0.3)
    assert coordinator.stopping


def test_an_old_stop_request_does_not_stop_a_new_run(
    objects: ObjectStore, stub_arms: list[str]
) -> None:
    asked = put_definition(objects, definition())
    request_stop(objects, "toy")
    assert run_sweep(objects, asked, where="inline", display=False).is_done


def test_without_a_terminal_one_line_per_arm_is_printed(
    objects: ObjectStore, stub_arms: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    asked = put_definition(objects, definition(n_settings=1, n_proposals=1, seeds=(0,)))
    run_sweep(objects, asked, where="inline")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert lines[0].endswith("0 of 2 arms are done")
    assert lines[1].startswith("[1/2] g1 unconstrained seed 0: finished in 49 s")
    assert lines[2].startswith("[2/2] g1 proposal 0 seed 0: finished")


def test_the_driver_imports_no_torch_and_reading_proposals_no_optuna() -> None:
    import subprocess

    for module, forbidden in (("sweep.driver", "torch"), ("sweep.proposals", "optuna")):
        code = f"import sys, {module}; sys.exit({forbidden!r} in sys.modules)"
        subprocess.run([sys.executable, "-c", code], check=True)
