"""The arms that workers have: as many as there are places, who gives way, and what hangs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray.tune.callback import CallbackList
from ray.tune.execution import insufficient_resources_manager as waits
from ray.tune.experiment import Trial

from sweep.executors import ray_session
from sweep.executors.resources import Machine, ResourceClasses
from sweep.executors.stalls import Stalls
from sweep.executors.trials import LiveTrial, LiveTrials
from sweep.executors.tune import _AtNextReport, _PlanSearcher, _Scheduler
from sweep.run.budget import NO_LIMIT, Budget, Spending
from sweep.run.events import Event, Observer
from sweep.study.arms import Arm
from sweep.study.definition import Definition
from tests.support.records import finished
from tests.support.toy_sweeps import LOSSES, definition, started
from tests.support.training.stand_ins import Clock, looks
from trainables.config.trial import TrialOrder
from trainables.records.arm_record import Report
from trainables.records.objects import ObjectStore
from trainables.trial import GPU_LOST, NODE, PROBLEM, ArmResult


class Capacity:
    """As many places as the test says."""

    def __init__(self, count: int, machines: Sequence[Machine] = ({"CPU": 8.0},)) -> None:
        self.count, self.machines, self.others_wait = count, machines, False
        self.asked: dict[str, int] = {}
        self.waits_for = self.trouble = ""
        self.leaving: list[str] = []

    def places(self, **asked: int) -> int:
        self.asked = asked
        return self.count


class Work:
    """Live trials of a sweep called toy, and what it was told."""

    def __init__(
        self,
        objects: ObjectStore,
        capacity: Capacity,
        asked: Definition | None = None,
        budget: Budget = NO_LIMIT,
        most: int = 1,
        processes: int = 1,
    ) -> None:
        self.event: list[Event] = []
        asked = asked or definition()
        spending = Spending(objects, asked, budget)
        self.coordinator = started(
            objects, asked, observer=Observer(on_event=self.event.append), spending=spending
        )
        self.clock, self.capacity, self.trials = Clock(), capacity, 0
        classes = ResourceClasses(asked, self.coordinator.runs.record, processes=processes)
        stalls = Stalls(10, clock=self.clock)
        self.live = LiveTrials(self.coordinator, classes, capacity, stalls, most=most)

    def assign(self) -> list[str]:
        """Trials for all that is handed out now."""
        handed = []
        while self.live.assign(f"t{self.trials}") is not None:
            handed.append(f"t{self.trials}")
            self.trials += 1
        return handed

    def finish(self, trial: str) -> None:
        done = [self.end(arm) for arm in self.assigned(trial).arms]
        assert self.live.ended(trial, done) == []

    def end(self, arm: Arm) -> ArmResult:
        """What a worker says of an arm whose final record it has stored."""
        record = finished(arm.config, LOSSES)
        self.coordinator.runs.put_record(record)
        return ArmResult.from_record(record)

    def arms(self, trial: str) -> list[str]:
        return [arm.signature for arm in self.assigned(trial).arms]

    def reported(self, trial: str, step: int, host: str = "here") -> None:
        """All arms of a trial came to this report."""
        told = [ArmResult(arm, False, report(step)) for arm in self.arms(trial)]
        self.live.reported(trial, told, host)

    def hanging(self, until: float, *training: str) -> list[str]:
        """Who is found to hang up to that time."""
        return [trial for _ in looks(self.clock, until) for trial in self.live.hanging(training)]

    def assigned(self, trial: str) -> LiveTrial:
        return self.live.assigned[trial]


def report(step: int) -> Report:
    return Report(step=step, timestamp_ms=step)


def test_arms_are_handed_out_while_there_are_places(objects: ObjectStore) -> None:
    work = Work(objects, Capacity(3))
    assert work.assign() == ["t0", "t1", "t2"]
    work.hanging(0, "t0", "t1")
    work.assign()
    assert work.capacity.asked == {"wanted": 16, "live": 3, "training": 2}
    work.finish("t1")
    assert work.assign() == ["t3"]
    work.capacity.count = 1  # others came
    work.finish("t0")
    assert work.assign() == []
    work.finish("t2")
    work.finish("t3")
    assert work.assign() == ["t4"]


def test_a_sweep_that_stops_says_what_it_holds_and_asks_for_no_more(objects: ObjectStore) -> None:
    """Its arms go on to their next report, maybe for hours; no machine is to come for it."""
    work = Work(objects, Capacity(3))
    trials = work.assign()
    work.hanging(0, *trials)
    work.coordinator.stop("`sweep stop toy`")
    work.finish(trials[0])
    assert work.assign() == []
    assert work.capacity.asked == {"wanted": 2, "live": 2, "training": 2}


def test_no_more_machines_are_asked_for_than_the_budget_lets_arms_begin(
    objects: ObjectStore,
) -> None:
    work = Work(objects, Capacity(3), budget=Budget(max_arms=6))
    first, *_ = work.assign()
    assert work.capacity.asked["wanted"] == 6
    work.finish(first)
    work.assign()
    assert work.capacity.asked["wanted"] == 5
    work = Work(objects, Capacity(3), budget=Budget(max_arms=100))
    work.assign()
    assert work.capacity.asked["wanted"] == 15  # all that are left


def test_every_arm_is_trained_whatever_the_places(objects: ObjectStore) -> None:
    work = Work(objects, Capacity(2))
    for count in (2, 0, 5, 1, 1, 3, 8, 8, 8, 8, 8, 8):
        work.capacity.count = count
        work.assign()
        for trial in list(work.live.assigned):
            work.finish(trial)
    assert work.coordinator.is_over
    assert work.coordinator.summary().is_done


def test_arms_give_way_down_to_the_share_and_only_when_others_wait(objects: ObjectStore) -> None:
    work = Work(objects, Capacity(4))
    trials = work.assign()
    work.capacity.count = 2
    for trial in trials:
        work.reported(trial, 10)
    assert not any(map(work.live.gives_way, trials))  # nobody waits: a shrunken share stands
    work.capacity.others_wait = True
    assert [work.live.gives_way(trial) for trial in trials] == [True, True, False, False]
    assert not work.live.gives_way(trials[0])  # told once
    gone = [signature for trial in trials[:2] for signature in work.live.ended(trial)]
    for signature in gone:
        work.coordinator.requeue_arm(signature)
    assert work.assign() == []
    work.capacity.count = 4
    assert [arm for trial in work.assign() for arm in work.arms(trial)] == gone  # first in line


def test_arms_of_other_classes_take_places_by_what_they_hold(objects: ObjectStore) -> None:
    asked = definition()
    space = replace(asked.space.with_base({"device": "cuda"}), gpus_per_arm=0.25)
    asked = replace(asked, space=space)
    work = Work(objects, Capacity(8, [{"CPU": 16.0, "GPU": 2.0}]), asked)
    trials = work.assign()
    assert len(trials) == 8
    assert work.assigned("t0").kind.bundle == {"CPU": 1.0, "GPU": 0.25}
    (outgrown,) = work.live.ended("t0")
    work.live.needs_whole_gpu(outgrown)
    assert work.assign() == ["t8"]
    assert (work.arms("t8"), work.assigned("t8").kind.gpus) == ([outgrown], 1.0)
    for trial in ("t1", "t2", "t3"):
        work.finish(trial)
    assert work.assign() == []  # a whole GPU is four places
    work.finish("t4")
    assert work.assign() == ["t9"]


def test_an_arm_of_several_processes_holds_all_of_their_gpus(objects: ObjectStore) -> None:
    asked = definition()
    asked = replace(asked, space=asked.space.with_base({"device": "cuda"}))
    work = Work(objects, Capacity(2, [{"CPU": 16.0, "GPU": 6.0}]), asked, processes=3)
    trials = work.assign()
    assert len(trials) == 2
    assert {(live.gpus, live.processes) for live in work.coordinator.live.values()} == {(1.0, 3)}


def test_an_arm_that_met_a_lost_gpu_comes_again_and_the_machine_is_told_once(
    objects: ObjectStore, caplog: pytest.LogCaptureFixture
) -> None:
    work = Work(objects, Capacity(2))
    met = [signature for trial in work.assign() for signature in work.live.ended(trial)]
    for signature in met:
        work.live.lost_gpu(signature, "node-7", "CUDA does not start on host-7.")
    assert work.live.lost_gpus == {"node-7"}
    assert caplog.text.count("CUDA does not start on host-7.") == 1
    assert [arm for trial in work.assign() for arm in work.arms(trial)] == met
    assert work.coordinator.problems == []


def test_a_lost_gpu_is_held_while_others_train(objects: ObjectStore) -> None:
    """Else its worker would be the one that is free, and fail one arm after the other."""
    work = Work(objects, Capacity(3))
    lost, other, _ = work.assign()
    (arm,) = work.arms(lost)

    def may_hold(trial: str, *, elsewhere: bool = False) -> bool:
        return work.live.may_hold_lost_gpu(trial, "here", elsewhere=elsewhere)

    assert not may_hold(lost)  # the others wait for workers, maybe for this GPU
    work.hanging(0, lost, other)
    assert may_hold(lost)
    assert may_hold(lost, elsewhere=True)  # where the other one trains is not known yet
    work.reported(other, 20, "there")
    assert not may_hold(lost, elsewhere=True)  # other machines have GPUs, and none trains here
    work.reported(other, 30, "here")
    assert may_hold(lost, elsewhere=True)
    work.live.holds_lost_gpu(lost, "CUDA does not start on here.")
    assert work.hanging(5_000, lost) == []
    assert work.assign() == []  # it keeps its place ...
    work.finish(other)
    assert may_hold(lost)  # ... also between two arms of others
    assert not may_hold(lost)
    assert work.assign() == ["t3"]
    assert work.arms("t3") == [arm]
    assert work.live.is_taken_back(lost)  # where its worker dies
    assert work.live.ended(lost) == []


def test_a_hanging_arm_is_ended_told_and_at_the_second_time_failed(
    objects: ObjectStore, caplog: pytest.LogCaptureFixture
) -> None:
    work = Work(objects, Capacity(2))
    first, second = work.assign()
    (assigned,) = work.assigned(first).arms
    assert work.hanging(0, first, second) == []
    work.reported(first, 20, "node-7")
    work.clock.now = 5
    work.reported(second, 20, "node-8")
    assert work.hanging(11, first, second) == [first]
    assert "no report for 10 s, after step 20 on node-7; its worker is ended" in caplog.text
    assert work.coordinator.runs.record(assigned.signature) is None
    assert work.hanging(12, second) == []  # its worker is gone ...
    assert work.hanging(13, first, second) == []  # ... and another has it
    assert work.hanging(53, first, second) == [second, first]  # it has yet to report to its new one
    record = work.coordinator.runs.record(assigned.signature)
    assert record is not None
    assert (record.status, record.config) == ("failed", assigned.config)
    assert "no report for 40 s, after step 20 on node-7" in record.reason
    assert "within 10 s, the first, for which data may be decoded, within 40 s" in record.reason
    assert "--stall-after" in record.reason
    assert [told.kind for told in work.event] == ["stalled"]
    # what took it over reports that it is final
    work.live.ended(first)
    work.coordinator.finish_arm(assigned.signature)
    assert assigned.signature not in work.coordinator.live


def test_an_arm_that_ends_leaves_its_group_at_work(objects: ObjectStore) -> None:
    work = Work(objects, Capacity(1), most=4)
    (trial,) = work.assign()
    arms = list(work.assigned(trial).arms)
    assert len(arms) == 4
    ended, *others = (arm.signature for arm in arms)
    told = [work.end(arms[0]), *(ArmResult(arm, False, report(10)) for arm in others)]
    work.live.reported(trial, told, "here")
    assert work.arms(trial) == others
    assert list(work.coordinator.live) == others
    assert work.coordinator.plan.is_final(ended)
    assert [work.coordinator.live[arm].report for arm in others] == [report(10)] * 3
    assert work.live.ended(trial) == others  # its worker is gone
    for signature in others:
        work.coordinator.requeue_arm(signature)
    handed = []
    while assigned := work.assign():
        handed.append(work.arms(assigned[0]))
        work.finish(assigned[0])
    assert others in handed


def test_a_group_shares_the_gpu_that_its_worker_holds(objects: ObjectStore) -> None:
    asked = definition()
    space = replace(asked.space.with_base({"device": "cuda"}), gpus_per_arm=0.5)
    machines = [{"CPU": 16.0, "GPU": 1.0}]
    work = Work(objects, Capacity(1, machines), replace(asked, space=space), most=4)
    (trial,) = work.assign()
    assert work.assigned(trial).kind.gpus == 0.5
    assert {(arm.gpus, arm.together) for arm in work.coordinator.live.values()} == {(0.5, 4)}
    work.live.reported(trial, [work.end(work.assigned(trial).arms[0])], "here")
    assert {arm.together for arm in work.coordinator.live.values()} == {3}


def test_of_a_group_that_hangs_again_the_first_is_failed_and_the_others_go_on(
    objects: ObjectStore,
) -> None:
    """Its third worker trains one arm after the other (fused/group.py); the second need not."""
    work = Work(objects, Capacity(1), most=4)
    (trial,) = work.assign()
    first, *others = list(work.assigned(trial).arms)
    work.hanging(0, trial)
    assert work.hanging(159, trial) == []  # four arms, whose first reports may take 40 s each
    assert work.hanging(161, trial) == [trial]
    assert work.coordinator.runs.record(first.signature) is None
    work.hanging(162)
    assert work.hanging(323, trial) == [trial]
    assert work.coordinator.runs.record(first.signature) is None
    work.hanging(324)
    assert work.hanging(485, trial) == [trial]
    record = work.coordinator.runs.record(first.signature)
    assert record is not None
    assert record.status == "failed"
    assert 0 <= record.held_s < 3600  # it never reported: since its worker got it, not since 1970
    assert record.started_ms > 0
    work.live.reported(trial, [ArmResult.from_record(record)], "here")
    assert work.arms(trial) == [arm.signature for arm in others]
    assert not any(work.coordinator.runs.record(arm.signature) for arm in others)


def test_a_hanging_arm_keeps_the_reports_that_it_came_to(objects: ObjectStore) -> None:
    work = Work(objects, Capacity(1))
    (trial,) = work.assign()
    (assigned,) = work.assigned(trial).arms
    running = replace(finished(assigned.config, LOSSES), status="running", evaluation=None)
    work.coordinator.runs.put_record(running)
    work.hanging(0, trial)
    assert work.hanging(41, trial) == [trial]
    assert work.hanging(42) == []
    assert work.hanging(83, trial) == [trial]
    record = work.coordinator.runs.record(assigned.signature)
    assert record is not None
    assert record.status == "failed"
    assert record.reports == running.reports


def test_a_store_that_cannot_take_the_failure_stops_the_sweep(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = Work(objects, Capacity(1))
    (trial,) = work.assign()
    work.hanging(0, trial)
    work.hanging(41, trial)
    work.hanging(42, trial)

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ObjectStore, "_put_local", staticmethod(full))
    assert work.hanging(82, trial) == [trial]
    assert work.coordinator.stopping


def test_arms_are_kept_from_a_lost_gpu_while_another_machine_has_one(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = [{"NodeID": node, "Alive": True, "Resources": {"GPU": 1.0}} for node in "ab"]
    monkeypatch.setattr(ray, "nodes", lambda: nodes)
    tolerant = replace(definition(), space=replace(definition().space, tolerance=0.3))
    live = Work(objects, Capacity(1), tolerant).live
    searcher, controller = _PlanSearcher(live), Controller()
    scheduler = _Scheduler(live)
    suggested = searcher.suggest("t0")
    assert suggested is not None
    first = TrialOrder.from_tune(suggested)
    assert first.avoid == []
    code = live.coordinator.codes.current_code(live.coordinator.definition.space.base)
    assert first.codes == [code]  # a worker with another plug-in refuses
    assert first.tolerance == 0.3  # as the worker's early signs keep to it
    lost = {GPU_LOST: True, NODE: "a", PROBLEM: "CUDA does not start."}
    searcher.on_trial_complete("t0", lost)
    again = searcher.suggest("t1")
    assert again is not None
    assert TrialOrder.from_tune(again) == replace(first, avoid=["a"])
    controller.live = [waiting("t1", again)]
    assert scheduler.choose_trial_to_run(controller) is controller.live[0]
    nodes.pop()  # what it waits for will not come
    scheduler._watched_s = -math.inf
    scheduler.choose_trial_to_run(controller)
    assert controller.stopped == ["t1"]
    searcher.on_trial_complete("t1")
    last = searcher.suggest("t2")
    assert last is not None
    assert TrialOrder.from_tune(last) == first
    assert not live.coordinator.problems


def test_arms_are_kept_from_machines_that_are_about_to_go(objects: ObjectStore) -> None:
    work = Work(objects, Capacity(2))
    searcher, controller = _PlanSearcher(work.live), Controller()
    work.capacity.leaving = ["b"]
    suggested = searcher.suggest("t0")
    assert suggested is not None
    assert TrialOrder.from_tune(suggested).avoid == ["b"]
    controller.live = [waiting("t0", suggested)]
    assert _Scheduler(work.live).choose_trial_to_run(controller) is controller.live[0]
    assert controller.stopped == []  # it waits for another machine, which may come


def test_a_sweep_ends_where_no_machine_will_ever_come(objects: ObjectStore) -> None:
    work = Work(objects, Capacity(2))
    work.capacity.trouble = "3 worker jobs in a row ended before they joined"
    _PlanSearcher(work.live).suggest("t0")
    assert work.coordinator.stopping
    assert work.coordinator.problems == [work.capacity.trouble]


def test_a_trial_that_holds_a_lost_gpu_ends_where_arms_can_go_to_another_machine(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = [{"NodeID": node, "Alive": True, "Resources": {"GPU": 1.0}} for node in "ab"]
    monkeypatch.setattr(ray, "nodes", lambda: nodes)
    work = Work(objects, Capacity(2))
    searcher, ends = _PlanSearcher(work.live), _AtNextReport(work.live)
    assert searcher.suggest("t0") is not None
    assert searcher.suggest("t1") is not None
    (arm,) = work.arms("t0")
    work.reported("t1", 20, "host-b")
    lost = {GPU_LOST: True, NODE: "a", PROBLEM: "CUDA does not start.", "hostname": "host-a"}
    assert ends("t0", lost)
    work.reported("t1", 30, "host-b")
    nodes.pop()  # there is no other machine, only another GPU
    assert not ends("t0", lost)
    searcher.on_trial_result("t0", lost)
    assert (work.arms("t0"), work.live.lost_gpus) == ([], set())
    work.finish("t1")
    again = searcher.suggest("t2")
    assert again is not None
    assert (work.arms("t2"), TrialOrder.from_tune(again).avoid) == ([arm], [])
    work.coordinator.stop("`sweep stop toy`")
    assert ends("t0", lost)


def test_a_problem_of_a_group_is_told_once(objects: ObjectStore) -> None:
    """Of every arm it would end the sweep: three first arms that fail alike do."""
    live = Work(objects, Capacity(1), most=4).live
    searcher = _PlanSearcher(live)
    assert searcher.suggest("t0") is not None
    assert len(live.assigned["t0"].arms) == 4
    searcher.on_trial_complete("t0", {PROBLEM: "RuntimeError: of the worker"})
    assert len(live.coordinator.problems) == 1
    assert not live.coordinator.live
    assert not live.coordinator.stopping


def test_a_sweep_waits_for_its_first_machine_however_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tune's warning would name the first trial, and end the sweep because there is none yet."""
    clock = partial(next, itertools.count(step=3600.0))
    monkeypatch.setattr(waits, "time", SimpleNamespace(monotonic=clock))
    for name, value in ray_session.ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    waits._get_insufficient_resources_warning_threshold.cache_clear()
    try:
        manager = waits._InsufficientResourcesManager()
        for _ in range(24):
            manager.on_no_available_trials([])
    finally:
        waits._get_insufficient_resources_warning_threshold.cache_clear()


class Controller:
    """As much of Tune's as a scheduler asks."""

    def __init__(self) -> None:
        self.live: list[Any] = []
        self.stopped: list[str] = []
        self._tune_controller = self
        self._callbacks = CallbackList([])
        self._trials: list[Any] = []
        self._trial_to_actor: dict[Any, Any] = {}
        self._staged_trials: list[Any] = []

    def get_live_trials(self) -> list[Any]:
        return self.live

    def stop_trial(self, one: Any) -> None:
        one.status = Trial.TERMINATED
        self.stopped.append(one.trial_id)

    def _cleanup_cached_actors(self, *, force_all: bool) -> None:
        pass


def waiting(name: str, config: dict[str, Any]) -> Any:
    """A trial without a worker."""
    return SimpleNamespace(trial_id=name, status=Trial.PENDING, config=config, num_failures=0)


def test_what_the_room_waits_for_is_known_to_the_sweep(objects: ObjectStore) -> None:
    work = Work(objects, Capacity(0))
    work.capacity.waits_for = "a machine: none is there"
    assert work.assign() == []
    assert work.coordinator.waits_for == "a machine: none is there"
    work.capacity.waits_for, work.capacity.count = "", 1
    assert work.assign() == ["t0"]
    assert work.coordinator.waits_for == ""
