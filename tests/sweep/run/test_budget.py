"""Budgets: when a run begins no more arms, what then ends, and how it goes on."""

from __future__ import annotations

import io
import json
import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from sweep.cost.spent import Held, Spent, put_estimate, stored_estimate
from sweep.results.sweep_view import load_sweep
from sweep.run.budget import (
    BEGUN,
    Budget,
    Spending,
    stored_budget,
    summarize_spending,
    took_text,
)
from sweep.run.coordinator import Coordinator
from sweep.run.events import Event, Observer, ended_event
from sweep.run.progress import view
from sweep.run.run_sweep import run_sweep
from sweep.study.arms import Arm, LiveArm
from sweep.study.definition import Definition, put_definition
from tests.support.command_line import SPACE_FILE, refused, sweep
from tests.support.records import finished
from tests.support.toy_sweeps import LOSSES, definition, outcomes, started, train
from trainables import retries
from trainables.errors import InvalidValue, Misuse
from trainables.records.arm_record import ArmRecord, Report
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore

HELD_S = 49.0  # of an arm of tests/support/records.py
ARMS = 16  # of the toy sweep: 2 settings x 2 seeds x (1 unconstrained + 3 proposals)


def under(objects: ObjectStore, asked: Definition, **limits: Any) -> Coordinator:
    return started(objects, asked, spending=Spending(objects, asked, Budget(**limits)))


def report(step: int, seconds: float = 0.0) -> Report:
    return Report(step=step, timestamp_ms=step, scalars={"train/seconds": seconds})


def on_gpu(gpus_per_arm: float = 1.0) -> Definition:
    asked = definition()
    space = replace(asked.space.with_base({"device": "cuda"}), gpus_per_arm=gpus_per_arm)
    return replace(asked, space=space)


@pytest.mark.parametrize("most", [1, 3, 4, 9, ARMS - 1])
def test_a_budget_of_arms_trains_the_first_ones_and_a_resume_the_others(
    tmp_path: Path, most: int
) -> None:
    asked, whole, objects = definition(), ObjectStore(tmp_path / "a"), ObjectStore(tmp_path / "b")
    every = [arm.signature for arm in train(started(whole, asked))]
    coordinator = under(objects, asked, max_arms=most)
    first = [arm.signature for arm in train(coordinator)]
    assert first == every[:most]
    assert (coordinator.is_over, coordinator.plan.arms_done) == (True, most)
    rest = [arm.signature for arm in train(started(objects, asked))]
    assert [*first, *rest] == every
    assert outcomes(objects, asked) == outcomes(whole, asked)


def test_a_crash_begins_no_new_budget_and_a_higher_one_trains_the_difference(
    objects: ObjectStore,
) -> None:
    asked = definition()
    train(under(objects, asked, max_arms=5), limit=3)  # and is gone
    assert len(train(under(objects, asked, max_arms=5))) == 2
    assert train(under(objects, asked, max_arms=5)) == []
    assert len(train(under(objects, asked, max_arms=8))) == 3


def test_the_live_view_says_that_no_more_arms_begin(objects: ObjectStore) -> None:
    coordinator = under(objects, definition(), max_arms=1)
    console = Console(record=True, width=80, file=io.StringIO())
    assert coordinator.next_arm() is not None
    console.print(view(coordinator, elapsed_s=60))
    assert "budget reached (--max-arms 1): no new arm begins" in console.export_text()


def test_nothing_is_searched_for_once_the_budget_is_reached(objects: ObjectStore) -> None:
    asked = definition()
    train(under(objects, asked, max_arms=4))  # the unconstrained ones
    assert outcomes(objects, asked) == {"g1": [], "g2": []}


def test_running_arms_finish_and_a_lost_one_is_handed_out_again(objects: ObjectStore) -> None:
    coordinator = under(objects, definition(), max_arms=2)
    first, second = coordinator.next_arm(), coordinator.next_arm()
    assert first is not None
    assert second is not None
    assert coordinator.next_arm() is None
    assert coordinator.budget_reached == "--max-arms 2"
    assert not coordinator.is_over
    coordinator.requeue_arm(first.signature)
    assert coordinator.next_arm() == first
    for arm in (first, second):
        coordinator.runs.put_record(finished(arm.config, LOSSES))
        coordinator.finish_arm(arm.signature)
    assert coordinator.next_arm() is None
    assert coordinator.is_over


def test_a_lost_arm_that_is_final_all_the_same_leaves_the_budget_as_it_is(
    objects: ObjectStore,
) -> None:
    coordinator = under(objects, definition(), max_arms=2)
    first, second = coordinator.next_arm(), coordinator.next_arm()
    assert first is not None
    assert second is not None
    coordinator.record_report(first.signature, report(20))
    coordinator.runs.put_record(finished(first.config, LOSSES))  # and its worker dies
    coordinator.requeue_arm(first.signature)
    assert coordinator.next_arm() is None
    assert (coordinator.begins_no_more, coordinator.plan.arms_done) == (True, 1)


def test_under_a_budget_that_is_reached_only_arms_that_were_begun_come_again(
    objects: ObjectStore,
) -> None:
    asked, budget = definition(), Budget(max_hours=1.0)
    coordinator = started(objects, asked, spending=Spending(objects, asked, budget))
    waiting, begun = coordinator.next_arm(), coordinator.next_arm()
    assert waiting is not None
    assert begun is not None
    coordinator.record_report(begun.signature, report(20))
    coordinator.requeue_arm(waiting.signature)  # comes first, and was not begun
    coordinator.requeue_arm(begun.signature)
    object.__setattr__(budget, "begun_s", budget.begun_s - 3600)
    assert coordinator.next_arm() == begun
    assert coordinator.next_arm() is None
    object.__setattr__(budget, "begun_s", budget.begun_s + 3600)
    assert coordinator.next_arm() == waiting  # at its place, and the other one not twice
    assert begun not in train(coordinator)


def test_arms_that_will_not_end_in_this_run_are_begun_all_the_same(objects: ObjectStore) -> None:
    coordinator = under(objects, definition(), max_arms=2)
    first = coordinator.next_arm()
    assert first is not None
    coordinator.give_up_arm(first.signature, "a worker cannot.")
    assert coordinator.next_arm() is not None
    assert coordinator.next_arm() is None


def test_hours_are_those_of_one_call_and_arms_that_were_begun_are_not_kept_waiting(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = definition()
    budget = Budget(max_hours=1.0)
    spending = Spending(objects, asked, budget)
    coordinator = started(objects, asked, spending=spending)
    begun, waiting = coordinator.next_arm(), coordinator.next_arm()
    assert begun is not None
    assert waiting is not None
    coordinator.record_report(begun.signature, report(20))
    object.__setattr__(budget, "begun_s", budget.begun_s - 3599)
    assert coordinator.budget_reached == ""
    object.__setattr__(budget, "begun_s", budget.begun_s - 1)
    assert coordinator.budget_reached == "--max-hours 1"
    # what no worker has begun is not begun after all; what a worker had is taken up again
    assert [coordinator.is_withdrawn(a.signature) for a in (begun, waiting)] == [False, True]
    coordinator.requeue_arm(waiting.signature)
    assert coordinator.next_arm() is None
    coordinator.requeue_arm(begun.signature)
    assert coordinator.next_arm() == begun
    assert coordinator.next_arm() is None
    # another call has its own hours; a driver that a job starts again has those of the job
    assert len(train(under(objects, asked, max_hours=1.0), limit=2)) == 2
    monkeypatch.setenv(BEGUN, str(Budget().begun_s - 3600))
    assert train(under(objects, asked, max_hours=1.0)) == []


@pytest.mark.parametrize("share", [0.5, 1.0])
@pytest.mark.parametrize("gpu_s", [1.0, 100.0, 250.0])
def test_gpu_hours_are_seconds_of_all_arms_times_what_each_holds_of_a_gpu(
    objects: ObjectStore, share: float, gpu_s: float
) -> None:
    asked = on_gpu(share)
    wanted = math.ceil(gpu_s / (share * HELD_S))  # one after another, none once it is reached
    trained = train(under(objects, asked, max_gpu_hours=gpu_s / 3600))
    assert len(trained) == wanted
    objects.delete("sweeps/toy/spent.json")  # it follows from the records
    again = under(objects, asked, max_gpu_hours=gpu_s / 3600)
    assert train(again) == []
    assert again.summary().spent == Held(
        wanted, wanted * HELD_S, pytest.approx(share * wanted * HELD_S)
    )


def test_gpu_hours_of_running_arms_count_from_their_last_report(objects: ObjectStore) -> None:
    coordinator = under(objects, on_gpu(), max_gpu_hours=1.0)
    first = coordinator.next_arm()
    assert first is not None
    coordinator.live[first.signature].gpus = 0.5  # as its executor says
    coordinator.record_report(first.signature, report(20, seconds=7199.0))
    assert coordinator.budget_reached == ""
    coordinator.record_report(first.signature, report(40, seconds=7200.0))
    assert coordinator.budget_reached == "--max-gpu-hours 1"


@pytest.mark.parametrize(
    ("processes", "together", "held_s"),
    # 100 s of training in a report, which are a group's share, and 8 s since
    [(1, 1, 108.0), (2, 1, 216.0), (1, 4, 102.0)],
)
def test_a_running_arm_holds_all_places_of_its_processes_and_its_share_of_a_groups(
    processes: int, together: int, held_s: float
) -> None:
    config = definition().space.base
    arm = Arm(config, config.signature(), "toy", None)
    live = LiveArm(arm, 0.0, processes=processes, together=together)
    assert live.held_s == 0
    live.report, live.reported = report(20, seconds=100.0), time.monotonic() - 8
    assert live.held_s == pytest.approx(held_s, abs=0.5)


def test_a_reached_budget_is_no_failure_and_says_what_is_left_and_how_to_go_on(
    objects: ObjectStore,
) -> None:
    asked = put_definition(objects, definition())
    coordinator = under(objects, asked, max_arms=4)
    train(coordinator)
    summary = coordinator.summary()
    assert (summary.exit_code, summary.is_done) == (0, False)
    line = summary.budget_line()
    assert "toy reached its budget (--max-arms 4): 4 of 16 arms are final" in line
    assert "12 still to train; its arms took 3 min 16 s. " in line  # 4 x 49 s
    assert f"`sweep resume toy --storage {objects.root}` trains the rest" in line
    event = ended_event(summary)
    assert event is not None
    assert (event.kind, event.text) == ("finished", line)
    coordinator.stop("Ctrl-C")
    assert (coordinator.summary().exit_code, coordinator.summary().budget_line()) == (1, "")


def test_a_sweep_that_ends_with_its_budget_is_done(objects: ObjectStore) -> None:
    coordinator = under(objects, definition(), max_arms=ARMS)
    assert len(train(coordinator)) == ARMS
    assert (coordinator.summary().is_done, coordinator.summary().budget_line()) == (True, "")


def test_what_continues_an_interrupted_run_has_its_budget(objects: ObjectStore) -> None:
    asked = put_definition(objects, definition())
    budget = Budget(max_arms=3, max_hours=2.5)
    summary = run_sweep(objects, asked, _Interrupted(), display=False, budget=budget)
    assert "--max-arms 3 --max-hours 2.5" in summary.resume_command
    assert stored_budget(objects, "toy") == (budget, "")


def test_an_interrupted_run_has_not_reached_its_budget_whatever_it_has_spent(
    objects: ObjectStore,
) -> None:
    asked, budget = put_definition(objects, definition()), Budget(max_arms=3)
    summary = run_sweep(objects, asked, _Interrupted(train), display=False, budget=budget)
    assert (summary.arms_done, summary.exit_code, summary.stopped) == (3, 1, "Ctrl-C")
    assert "--max-arms 3" in summary.resume_command
    assert stored_budget(objects, "toy") == (budget, "")


def test_a_store_that_is_away_as_the_budget_is_reached_is_told_in_the_summary(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, budget = put_definition(objects, definition()), Budget(max_arms=3)
    there, told = Path(objects.root, "sweeps", "toy", "budget.json"), list[Event]()

    class Blocked:
        where, options = "inline", ()

        def train(self, coordinator: Coordinator) -> None:
            train(coordinator)
            there.unlink()
            (there / "in the way").mkdir(parents=True)

    monkeypatch.setattr(retries, "STORE_PATIENCE_S", 0.0)
    follows = Observer(on_event=told.append)
    summary = run_sweep(objects, asked, Blocked(), display=False, budget=budget, observer=follows)
    assert (summary.arms_done, summary.exit_code) == (3, 1)
    assert "budget.json" in summary.problems[0]
    assert "--max-arms 3" in summary.resume_command
    assert [event.kind for event in told][-1:] == ["failed"]


class _Interrupted:
    """An executor that is interrupted, after something or at once."""

    where, options = "inline", ()

    def __init__(self, after: Callable[[Coordinator], object] = lambda coordinator: None) -> None:
        self.after = after

    def train(self, coordinator: Coordinator) -> None:
        self.after(coordinator)
        raise KeyboardInterrupt


def test_what_was_spent_before_it_was_counted_is_counted_once(objects: ObjectStore) -> None:
    asked = put_definition(objects, definition())
    before = under(objects, asked, max_arms=8)
    train(before)
    before.close()
    objects.delete("sweeps/toy/spent.json")  # as of an older version
    coordinator = under(objects, asked, max_arms=8)
    assert coordinator.summary().spent == Held(8, 8 * HELD_S)
    assert Spent.stored(objects, "toy").all == Held(8, 8 * HELD_S)  # for whoever reads


@pytest.mark.parametrize(
    ("limits", "options"),
    [
        ({"max_arms": 1_234_567}, ("--max-arms", "1234567")),
        ({"max_hours": 0.1234567}, ("--max-hours", "0.1234567")),
        ({"max_gpu_hours": 40.0}, ("--max-gpu-hours", "40")),
    ],
)
def test_a_command_line_asks_for_exactly_the_limit(limits: Any, options: tuple[str, str]) -> None:
    assert Budget(**limits).options == options


def test_seconds_are_those_of_the_records_without_what_lay_between_two_drivers(
    objects: ObjectStore,
) -> None:
    config = definition().space.base
    record = replace(finished(config, LOSSES), idle_ms=9_000)
    assert record.held_s == HELD_S - 9
    assert replace(record, shared_ms=20_000).held_s == HELD_S - 29  # of its group
    assert replace(record, shared_ms=-(49_000 - 9_000)).held_s == 2 * (HELD_S - 9)  # two processes
    begun = replace(record, status="running", ended_ms=0)
    assert begun.held_s == (40_000 - 1_000 - 9_000) / 1000  # until its last report
    assert ArmRecord.from_json(record.to_json()) == record
    spent = Spent()
    spent.add(record, 0.25)
    assert spent.all == spent.total([record.signature] * 2) == Held(1, 40.0, 10.0)
    spent.add(replace(record, ended_ms=20_000), 0.25)  # forgotten, and trained again
    assert spent.all == Held(1, 10.0, 2.5)
    spent.put(objects, "toy", now=True)
    assert Spent.stored(objects, "toy").held == spent.held


@pytest.mark.parametrize("limits", [{"max_arms": 0}, {"max_hours": -1.0}, {"max_hours": math.nan}])
def test_a_budget_is_above_zero(limits: Any) -> None:
    with pytest.raises(InvalidValue, match="must be above 0, got"):
        Budget(**limits)


def test_gpu_hours_are_refused_where_no_gpu_is_held() -> None:
    Budget(max_gpu_hours=1.0).refuse_without_gpu(on_gpu().space)
    Budget(max_hours=1.0).refuse_without_gpu(definition().space)
    with pytest.raises(Misuse, match=r"--max-gpu-hours 1 is for arms on a GPU.*--max-hours"):
        Budget(max_gpu_hours=1.0).refuse_without_gpu(definition().space)


def test_status_shows_budget_and_spent(objects: ObjectStore) -> None:
    asked = put_definition(objects, definition())
    train(under(objects, asked, max_arms=5))
    at = ("toy", "--storage", objects.root)
    entry = json.loads(sweep("status", *at, "--json").stdout)
    assert entry["budget"] == {
        "max_arms": 5, "max_hours": None, "max_gpu_hours": None, "reached": None,
    }  # fmt: skip
    assert entry["spent"] == {
        "arms": 5, "arm_hours": pytest.approx(5 * HELD_S / 3600), "gpu_hours": 0,
        "estimated_arm_hours": None, "times_the_estimate": None,
    }  # fmt: skip
    shown = sweep("status", *at).stdout
    assert "its arms took 4 min 5 s\n" in shown  # 5 x 49 s
    assert "budget of its last run: --max-arms 5\n" in shown
    train(started(objects, asked))
    assert json.loads(sweep("status", *at, "--json").stdout)["budget"] is None


def test_final_arms_stand_beside_the_estimate_of_their_settings_and_kinds(
    objects: ObjectStore,
) -> None:
    asked = put_definition(objects, definition())
    train(under(objects, asked, max_arms=6))  # 4 unconstrained ones, proposal 0 of g1 on both seeds
    seconds = {
        "g1": {"unconstrained": 30.0, "constrained": 40.0},
        "g2": {"unconstrained": 50.0, "constrained": 1e9},
    }
    put_estimate(objects, "toy", {"seconds_per_arm": seconds})
    view = load_sweep(objects, "toy", "outcomes")
    spent = summarize_spending(objects, view).spent
    estimated_s = 2 * 30 + 2 * 50 + 2 * 40
    assert spent.estimated_arm_hours == pytest.approx(estimated_s / 3600)
    assert spent.times_the_estimate == pytest.approx(6 * HELD_S / estimated_s)
    text = (
        "its arms took 4 min 54 s; those that are final took 1.2 times their estimate of 4 min 0 s"
    )
    assert took_text(spent) == text
    put_estimate(objects, "toy", {"not_counted": "no data"})
    assert summarize_spending(objects, view).spent.times_the_estimate is None


# --- as a user ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_sweep_that_reaches_its_budget_ends_well_and_resumes_to_its_end(tmp_path: Path) -> None:
    space = tmp_path / "mine.py"
    space.write_text(SPACE_FILE.replace("n_proposals=1", "n_proposals=3"), encoding="utf-8")
    root = ("--storage", str(tmp_path / "root"))
    result = sweep("run", str(space), *root, "--where", "inline", "--max-arms", "2")
    assert "mine reached its budget (--max-arms 2): 2 of 4 arms are final" in " ".join(
        result.stdout.split()
    )
    assert "no proposal is feasible" in result.stdout or "winner" in result.stdout
    runs = ArmStore(ObjectStore(str(tmp_path / "root")))
    ended = {s: runs.record(s) for s in runs.objects.names("arms")}
    assert len(ended) == 2
    assert "budget of its last run: --max-arms 2, reached" in sweep("status", "mine", *root).stdout
    sweep("resume", "mine", *root, "--where", "inline", "--max-arms", "3")
    assert len(runs.objects.names("arms")) == 3
    sweep("resume", "mine", *root, "--where", "inline", "--max-hours", "1")
    entry = json.loads(sweep("status", "mine", *root, "--json").stdout)
    assert (entry["state"], entry["spent"]["arms"]) == ("finished", 4)
    assert {s: runs.record(s) for s in ended} == ended
    recounted = sum(
        (r.ended_ms - r.started_ms) / 3.6e6
        for r in map(runs.record, runs.objects.names("arms"))
        if r is not None
    )
    assert entry["spent"]["arm_hours"] == pytest.approx(recounted)
    estimate = stored_estimate(ObjectStore(str(tmp_path / "root")), "mine")
    assert estimate is not None
    of_an_arm = estimate["seconds_per_arm"]["only"]
    estimated = (of_an_arm["unconstrained"] + 3 * of_an_arm["constrained"]) / 3600
    assert entry["spent"]["estimated_arm_hours"] == pytest.approx(estimated)
    assert entry["spent"]["times_the_estimate"] == pytest.approx(recounted / estimated)
    refusal = refused("resume", "mine", *root, "--max-gpu-hours", "1")
    assert "--max-gpu-hours 1 is for arms on a GPU" in refusal
