"""The coordinator: arms in, outcomes out, nothing lost when it stops, nothing trained twice."""

from __future__ import annotations

import errno
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from search_spaces.space import Sampler, SearchSpace
from sweep.results.sweep_view import load_sweep
from sweep.run import searching
from sweep.run.events import Observer
from sweep.study.arms import Arm
from sweep.study.definition import Definition, put_definition
from sweep.study.proposals import retired_settings
from tests.support.oracles import TINY
from tests.support.records import finished
from tests.support.toy_sweeps import LOSSES, PLAIN, definition, ends_where, outcomes, started, train
from trainables.errors import StoreError
from trainables.records import late_records
from trainables.records.arm_record import ArmRecord, Report
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore


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
    before = started(objects, asked)
    train(before)
    before.close()  # what was spent is stored
    read: list[str] = []
    real = ArmStore.record

    def record(self: ArmStore, signature: str) -> ArmRecord | None:
        read.append(signature)
        return real(self, signature)

    monkeypatch.setattr(ArmStore, "record", record)
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


def test_a_forgotten_arm_is_trained_again_although_its_proposal_has_an_outcome(
    objects: ObjectStore,
) -> None:
    asked = definition(seeds=(0,), n_settings=1)
    trained = train(started(objects, asked))
    ArmStore(objects).forget(trained[-1].signature)
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


@pytest.mark.parametrize("is_seen", [True, False])
def test_a_final_record_that_cannot_be_seen_yet_is_looked_for_again(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch, is_seen: bool
) -> None:
    """NFS says for a while that a file is not there, where it was not there a moment ago."""
    monkeypatch.setattr(late_records, "RECORD_LOOK_S", 0.0)
    monkeypatch.setattr(late_records, "RECORD_SEEN_WITHIN_S", 60.0 if is_seen else 0.1)
    coordinator = started(objects, definition(n_settings=1, seeds=(0,)))
    arm = coordinator.next_arm()
    assert arm is not None
    coordinator.runs.put_record(finished(arm.config, LOSSES))
    read, looks = Path.read_bytes, [True] * 3

    def not_yet(path: Path) -> bytes:
        if path.name == "record.json" and (not is_seen or (looks and looks.pop())):
            raise FileNotFoundError
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", not_yet)
    coordinator.finish_arm(arm.signature)
    coordinator.stop("the test")
    assert not coordinator.is_over
    while not coordinator.is_over:
        assert coordinator.next_arm() is None
    summary = coordinator.summary()
    assert summary.arms_done == is_seen
    assert [arm.signature in problem for problem in summary.problems] == [True] * (not is_seen)


def test_an_outcome_does_not_stand_where_an_arm_is_not_final(objects: ObjectStore) -> None:
    """Whatever came to be where a final record was: fold, status and best say the same."""
    asked = put_definition(objects, definition(seeds=(0,), n_settings=1))
    last = train(started(objects, asked))[-1]
    running = replace(finished(last.config, LOSSES), status="running", evaluation=None)
    objects.delete(f"arms/{last.signature}/record.json")
    ArmStore(objects).put_record(running)
    assert not load_sweep(objects, asked.name).is_finished
    again = started(objects, asked)
    assert not again.summary().is_done
    assert [arm.signature for arm in train(again)] == [last.signature]
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


def test_diverged_arms_are_told_and_the_search_goes_on(objects: ObjectStore) -> None:
    asked = definition("tpe", n_proposals=6, seeds=(0,), n_settings=1)
    diverges = ends_where(lambda arm: arm.proposal in (1, 4), "diverged", "the loss is nan")
    coordinator = started(objects, asked)
    train(coordinator, diverges)
    summary = coordinator.summary()
    assert summary.outcomes["diverged"] == 2
    assert summary.exit_code == 0  # an outcome, not an error
    assert math.isnan(coordinator.outcomes["g1"][1].objective)


def only_problem(
    objects: ObjectStore,
    asked: Definition,
    fails: Callable[[Arm], ArmRecord],
    *,
    resumed: bool,
) -> str:
    """What is told of a done sweep in which some arms failed, by its driver or by the next one."""
    coordinator = started(objects, asked)
    train(coordinator, fails)
    summary = (started(objects, asked) if resumed else coordinator).summary()
    assert (summary.is_done, summary.exit_code) == (True, 1)
    (problem,) = summary.problems
    return problem


@pytest.mark.parametrize("resumed", [False, True])
def test_a_setting_whose_every_proposal_failed_is_a_problem(
    objects: ObjectStore, resumed: bool
) -> None:
    asked = definition(seeds=(0, 1))

    def in_g1(arm: Arm) -> bool:
        return arm.setting == "g1" and arm.proposal is not None and arm.config.seed == 1

    fails = ends_where(in_g1, "failed", "out of memory.")
    problem = only_problem(objects, asked, fails, resumed=resumed)
    assert problem.startswith("g1: all 3 proposals failed; the first: out of memory. ")
    assert f"`sweep resume toy --storage {objects.root} --retry-failed`" in problem


@pytest.mark.parametrize("resumed", [False, True])
def test_a_failed_unconstrained_arm_is_a_problem(objects: ObjectStore, resumed: bool) -> None:
    asked = definition(seeds=(0, 1))

    def of_seed_1(arm: Arm) -> bool:
        return arm.proposal is None and arm.config.seed == 1

    fails = ends_where(of_seed_1, "failed", "no data.")
    problem = only_problem(objects, asked, fails, resumed=resumed)
    assert problem.startswith("2 unconstrained arms failed; the first: no data. ")
    train(started(objects, asked, retry_failed=True))
    assert started(objects, asked).summary().exit_code == 0


def test_an_error_of_a_search_retires_its_setting_and_no_other(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = searching.propose

    def breaks(space: SearchSpace, setting: str, number: int, *known: Any) -> dict[str, Any]:
        if (setting, number) == ("g1", 1):
            raise ZeroDivisionError("no more points")
        return real(space, setting, number, *known)

    monkeypatch.setattr(searching, "propose", breaks)
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
    monkeypatch.setattr(searching, "propose", lambda *_: {"constraint.alpha": 7.0})
    asked = definition(n_settings=1)
    coordinator = started(objects, asked)
    train(coordinator)
    assert "alpha must be in (0, 1), got 7.0" in coordinator.search.retired["g1"]
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
    assert summary.advice == f"Continue with `sweep resume toy --storage {objects.root}`."
    monkeypatch.setattr(ObjectStore, "put", put)
    monkeypatch.undo()
    then = train(started(objects, asked))
    assert not {a.signature for a in then} & {a.signature for a in finished_before}
    assert started(objects, asked).summary().is_done


def test_an_arm_whose_worker_is_lost_is_handed_out_again(objects: ObjectStore) -> None:
    coordinator = started(objects, definition(n_settings=1))
    arm = coordinator.next_arm()
    assert arm is not None
    coordinator.requeue_arm(arm.signature)
    assert coordinator.next_arm() == arm


def test_listeners_hear_of_every_arm_and_proposal(objects: ObjectStore) -> None:
    asked = definition(n_settings=1)
    arms: list[str] = []
    proposals: list[tuple[str, int]] = []
    coordinator = started(
        objects,
        asked,
        observer=Observer(
            on_record=lambda arm, is_final: arms.append(arm.signature),
            on_proposal=lambda setting, result: proposals.append((setting, result.number)),
        ),
    )
    trained = train(coordinator)
    assert arms == [arm.signature for arm in trained]
    assert proposals == [("g1", 0), ("g1", 1), ("g1", 2)]


def test_a_running_arm_is_told_at_its_reports_and_not_read_for_it(objects: ObjectStore) -> None:
    """200 workers that report every second would hold up the driver with 200 reads."""
    told: list[tuple[str, bool]] = []
    coordinator = started(
        objects,
        definition(),
        observer=Observer(lambda arm, is_final: told.append((arm.signature, is_final))),
    )
    arm = coordinator.next_arm()
    assert arm is not None
    report = Report(step=10, timestamp_ms=1)
    coordinator.record_report(arm.signature, report)  # its record is not there: nobody looks
    assert told == [(arm.signature, False)]
    assert coordinator.live[arm.signature].report == report


def test_arms_that_were_final_before_are_told_at_the_start(objects: ObjectStore) -> None:
    trained = train(started(objects, definition()))
    told: list[tuple[str, bool]] = []
    started(
        objects,
        definition(),
        observer=Observer(lambda arm, is_final: told.append((arm.signature, is_final))),
    )
    assert sorted(told) == sorted((arm.signature, True) for arm in trained)


def test_an_error_of_a_listener_is_told_and_ends_nothing(objects: ObjectStore) -> None:
    def broken(*_: Any) -> None:
        raise ValueError("no such metric")

    coordinator = started(objects, definition(), observer=Observer(broken, broken))
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
        prepared.append(sorted(number for _, number in coordinator.search._ahead))
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
            losses if arm.config.constraint else PLAIN,
            objective=objective[arm.proposal],
        ),
    )
    best = coordinator.best_proposal("g1")
    winners = [o for o in coordinator.outcomes["g1"].values() if o.can_win]
    assert best == min(winners, key=lambda o: o.objective)


@pytest.mark.slow
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

    assert (grown(60) - grown(10)) / 50 < 20_000
