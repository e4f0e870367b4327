"""Executor on Ray Tune: a trial trains an arm, the coordinator names the next one.

Tune starts workers, moves reports and replaces dead workers; its own experiment state is scratch in
a temporary folder. Nothing here may raise into Tune: an error in ``suggest`` ends the whole
experiment, one in ``on_trial_complete`` trains the finished arm again.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import ray
from ray import tune
from ray.exceptions import RayError
from ray.tune import CheckpointConfig, FailureConfig, TuneConfig, Tuner
from ray.tune.experiment import Trial
from ray.tune.progress_reporter import TrialProgressCallback
from ray.tune.schedulers import FIFOScheduler
from ray.tune.search import Searcher
from ray.tune.stopper import Stopper

from sweep.executors.autoscaling import unused_gpus
from sweep.executors.capacity import Capacity, ClusterCapacity, FixedCapacity
from sweep.executors.fair_share import Shares
from sweep.executors.ray_cluster import RayCluster
from sweep.executors.ray_session import attached_ray, local_ray
from sweep.executors.resources import ResourceClasses
from sweep.executors.slurm_cluster import own_cluster
from sweep.executors.stalls import Stalls
from sweep.executors.trials import LiveTrials
from sweep.run.coordinator import Coordinator
from sweep.study import advice
from sweep.study.definition import definition_name
from trainables import retries, trial
from trainables.config.trial import TrialOrder
from trainables.errors import InvalidValue
from trainables.machine.cores import usable_cores
from trainables.plain import Json
from trainables.trial import ArmTrial, arms_of, resources_of

log = logging.getLogger(__name__)

WATCH_EVERY_S = 1.0  # for arms that hang
# Sets of Tune's that trials stay in when they are over: those that failed count as live. For each
# private attribute of Ray that is used here, a test fails by name (test_ray_private.py).
KEPT_IN = ("_live_trials", "_stopped_trials", "_failed_trials", "_trials_to_cache")


def train_on_local_ray(
    coordinator: Coordinator, *, workers: int | None, most: int, processes: int
) -> None:
    """Start a Ray cluster of this machine alone, train every arm on it, and end it."""
    classes = ResourceClasses(coordinator.definition, coordinator.runs.record, processes=processes)
    cpus = usable_cores()
    needed = (workers or 1) * classes.standard.cpus * processes
    with local_ray(cpus=max(cpus, needed), gpus=None if classes.on_gpu else 0) as scratch:
        machines = RayCluster().machines()
        gpus = int(sum(machine.get("GPU", 0.0) for machine in machines))
        if classes.on_gpu and not gpus:
            raise InvalidValue("device is 'cuda', and Ray finds no GPU here. Set device=cpu.")
        if classes.on_gpu and gpus < processes:
            raise InvalidValue(
                f"processes must be at most {gpus}, the GPUs of this machine, got {processes}."
            )
        if classes.on_gpu and workers is not None:
            classes.pack(workers, gpus)
        capacity = FixedCapacity(workers or max(1, classes.standard.slots(machines)), machines)
        _fit(coordinator, classes, capacity, most, scratch)


def train_on_cluster(
    coordinator: Coordinator, *, workers: int | None, most: int, processes: int
) -> None:
    """Train every arm on the Ray cluster that this machine belongs to, within this sweep's share.

    Raises Failure without a cluster, Misuse where no machine that it may have can hold an arm.
    """
    classes = ResourceClasses(coordinator.definition, coordinator.runs.record, processes=processes)
    with attached_ray() as scratch:
        cluster = own_cluster()
        driver, sweep = coordinator.runs.driver, coordinator.definition.name
        shares = Shares(cluster, driver, sweep, classes.standard, since_s=time.time())
        capacity = ClusterCapacity(cluster, shares, classes.standard, most=workers)
        there = cluster.largest(classes.standard) or capacity.machines
        stop = advice.command("stop", sweep, storage=coordinator.objects.root)
        if warning := unused_gpus(classes.standard, there, sweep, stop=stop):
            log.warning(warning)
        try:
            _fit(coordinator, classes, capacity, most, scratch)
        finally:
            with suppress(Exception):  # the head may be gone; the others see silence, too
                shares.leave()


def _fit(
    coordinator: Coordinator,
    classes: ResourceClasses,
    capacity: Capacity,
    most: int,
    scratch: Path,
) -> None:
    stalls = Stalls(coordinator.definition.space.stall_after_s)
    live = LiveTrials(coordinator, classes, capacity, stalls, most=most)
    tuner = Tuner(
        tune.with_resources(ArmTrial, resources_of),
        tune_config=TuneConfig(
            search_alg=_PlanSearcher(live),
            scheduler=_Scheduler(live),
            num_samples=-1,
            # A worker imports torch and Ray once, and not for every arm.
            reuse_actors=True,
            trial_dirname_creator=lambda t: t.trial_id,
        ),
        run_config=tune.RunConfig(
            name="tune",
            storage_path=str(scratch),
            stop=_AtNextReport(live),
            failure_config=FailureConfig(max_failures=-1),  # only dead workers fail a trial
            checkpoint_config=CheckpointConfig(checkpoint_at_end=False),
            verbose=0,
        ),
    )
    tune_log = logging.getLogger("ray.tune")
    level = tune_log.level
    tune_log.setLevel(logging.CRITICAL)  # a worker's death is told in one line of ours
    try:
        tuner.fit()
    except Exception as error:
        log.exception("Ray Tune ended with an error")
        coordinator.problems.append(f"Ray Tune ended with {type(error).__name__}: {error}")
        coordinator.stop("Ray Tune ended with an error")
    finally:
        tune_log.setLevel(level)


def _without(lost: Collection[str]) -> list[str]:
    """Nodes to exclude from scheduling; none where every GPU node failed: all are retried."""
    if not lost:
        return []
    there: list[dict[str, Json]] = []
    with suppress(RayError):  # its head is away for the moment
        there = ray.nodes()  # type: ignore[no-untyped-call]
    with_gpu = {n["NodeID"] for n in there if n["Alive"] and n["Resources"].get("GPU")}
    return sorted(with_gpu.intersection(lost)) if with_gpu.difference(lost) else []


def _let_go_of_ended(tune_controller: Json) -> list[str]:
    """Make Tune forget trials that are over, and their workers gone or given on; returns their ids.

    It keeps every trial for its results and its restore (here the store is both), about 50 KB each,
    and asks all of them at every step whether they are over. The newest one stays: Tune means to
    have run something.
    """
    inner = tune_controller._tune_controller
    callbacks: list[Json] = inner._callbacks._callbacks
    callbacks[:] = [one for one in callbacks if not isinstance(one, TrialProgressCallback)]
    kept: list[Trial] = inner._trials
    # A trial that still has an actor stays: Tune finds the actor by its trial.
    over, busy = (Trial.TERMINATED, Trial.ERROR), inner._trial_to_actor
    ended = [one for one in kept[:-1] if one.status in over and one not in busy]
    for one in ended:
        kept.remove(one)
        for others in KEPT_IN:
            getattr(inner, others).discard(one)
        inner._trial_metadata.pop(one.trial_id, None)
    return [one.trial_id for one in ended]


def _withdraw(tune_controller: Json, waiting: Trial) -> None:
    """End a trial that has no worker yet. Tune goes on expecting the worker if it is not told."""
    inner = tune_controller._tune_controller
    tune_controller.stop_trial(waiting)
    if waiting in inner._staged_trials:
        inner._unstage_trial_with_resources(waiting)


class _WithoutState:
    """Tune pickles what it is given, for a restore that never happens: leave everything out."""

    def __getstate__(self) -> dict[str, Json]:
        return {}


class _PlanSearcher(_WithoutState, Searcher):
    def __init__(self, live: LiveTrials) -> None:
        super().__init__()
        self._live = live
        self._coordinator = live.coordinator

    def suggest(self, trial_id: str) -> dict[str, Json] | None:
        """The next arm; None while live arms may still come back; FINISHED when none can."""
        assigned = None
        with self._errors_end_it():
            assigned = self._live.assign(trial_id)
        if assigned is None:
            over: Json = Searcher.FINISHED
            return over if self._coordinator.is_over else None
        return TrialOrder(
            configs=[arm.config for arm in assigned.arms],
            root=self._coordinator.objects.root,
            patience_s=retries.STORE_PATIENCE_S,
            driver=self._coordinator.runs.driver,
            sweep=self._coordinator.definition.name,
            landmark=definition_name(self._coordinator.definition.name),
            bundle=assigned.kind.bundle,
            processes=assigned.kind.processes,
            tolerance=self._coordinator.definition.space.tolerance,
            avoid=[*_without(self._live.lost_gpus), *self._live.leaving],
            codes=self._coordinator.codes.required_codes([arm.config for arm in assigned.arms]),
        ).to_tune()

    def on_trial_result(self, trial_id: str, result: dict[str, Json]) -> None:
        """A report, but for the last one of a trial."""
        with self._errors_end_it():
            if result.get(trial.GPU_LOST):
                self._live.holds_lost_gpu(trial_id, str(result[trial.PROBLEM]))
            elif how_far := result.get(trial.FETCHING):
                self._live.fetches(trial_id, how_far, result.get("hostname", ""))
            else:
                self._live.reported(trial_id, arms_of(result), result.get("hostname", ""))

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Json] | None = None, error: bool = False
    ) -> None:
        """A trial ended: finished, stopped at a report, with a problem, or its worker is gone."""
        with self._errors_end_it():
            result = result or {}
            host = result.get("hostname", "")
            left = self._live.ended(trial_id, [] if error else arms_of(result), host)
            for signature in left:
                self._left(signature, result, error=error, is_first=signature == left[0])

    def _left(
        self, signature: str, result: dict[str, Json], *, error: bool, is_first: bool
    ) -> None:
        """Tell the coordinator what became of an unfinished arm, whose trial is over.

        A problem of a trial is one, of however many arms: it is told of the first.
        """
        coordinator, problem = self._coordinator, result.get(trial.PROBLEM)
        if error:
            coordinator.requeue_arm(signature)
        elif result.get(trial.NEEDS_WHOLE_GPU):
            self._live.needs_whole_gpu(signature)
        elif result.get(trial.GPU_LOST):
            self._live.lost_gpu(signature, result[trial.NODE], str(problem))
        elif result.get(trial.STORE_PROBLEM):
            coordinator.give_up_arm(signature)
            coordinator.stop_on_trouble(str(problem), "a worker cannot train")
        elif problem:
            coordinator.give_up_arm(signature, str(problem) if is_first else "")
        elif coordinator.stopping:
            coordinator.give_up_arm(signature)
        else:  # it gave way: it goes on from its checkpoint when there is room
            coordinator.requeue_arm(signature)

    @contextmanager
    def _errors_end_it(self) -> Iterator[None]:
        """No error of the block reaches Tune: it is recorded, and the sweep stops."""
        try:
            yield
        except Exception as error:
            log.exception("the driver failed")
            self._coordinator.problems.append(f"the driver failed: {type(error).__name__}: {error}")
            self._coordinator.stop("the driver failed")

    def save(self, checkpoint_path: str) -> None:
        """Save nothing: the store is the state."""

    def restore(self, checkpoint_path: str) -> None:
        """Restore nothing: the store is the state."""


class _AtNextReport(_WithoutState, Stopper):
    """Ends a trial at its report, which is checkpointed: the sweep stops, or others wait for it."""

    def __init__(self, live: LiveTrials) -> None:
        self._live = live

    def __call__(self, trial_id: str, result: dict[str, Json]) -> bool:
        live = self._live
        if live.coordinator.stopping or live.gives_way(trial_id):
            return True
        if not result.get(trial.GPU_LOST):
            return False
        elsewhere = bool(_without({*live.lost_gpus, result[trial.NODE]}))
        return not live.may_hold_lost_gpu(trial_id, result.get("hostname", ""), elsewhere=elsewhere)

    def stop_all(self) -> bool:
        """False: arms end one by one, at their reports."""
        return False


class _Scheduler(_WithoutState, FIFOScheduler):
    """First come, first served. Being asked several times a second, it watches the workers, too.

    It ends the experiment when workers die before they can report: ``ArmRun`` gives an arm up after
    ARM_STARTS starts, but only where it gets as far as starting. (A callback could watch as well,
    and would make Tune import MLflow: 2 s.)
    """

    def __init__(self, live: LiveTrials) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._live = live
        self._failures_before: dict[str, int] = {}  # by trial id, at its last report
        self._failures_told: dict[str, int] = {}  # by trial id
        self._ended_by_us: set[str] = set()  # trials whose worker hung
        self._watched_s = -math.inf

    def on_trial_result(self, tune_controller: Json, trial: Trial, result: dict[str, Json]) -> str:
        """A worker that reports is alive."""
        self._failures_before[trial.trial_id] = trial.num_failures
        return FIFOScheduler.CONTINUE

    def choose_trial_to_run(self, tune_controller: Json) -> Trial | None:
        """The trial that waits longest for a worker, unless its workers only die."""
        live: list[Trial] = list(tune_controller.get_live_trials())
        if time.monotonic() >= self._watched_s + WATCH_EVERY_S:
            self._watched_s = time.monotonic()
            self._end_hanging_workers(live)
            for ended in _let_go_of_ended(tune_controller):
                self._failures_before.pop(ended, None)
                self._failures_told.pop(ended, None)
            lost = self._live.lost_gpus
            if lost and not _without(lost):
                for one in live:  # it would wait for a machine that is no more: handed out again
                    avoid = TrialOrder.from_tune(one.config).avoid
                    if one.status == Trial.PENDING and lost.intersection(avoid):
                        _withdraw(tune_controller, one)
        waiting = {t.trial_id: t for t in live if t.status == Trial.PENDING}
        for trial_id, one in list(waiting.items()):
            if self._live.is_taken_back(trial_id):  # no worker may ever come
                _withdraw(tune_controller, one)
                del waiting[trial_id]
        if not waiting:
            # Tune would keep a worker for the next arm, and its place: others may wait for it.
            tune_controller._tune_controller._cleanup_cached_actors(force_all=True)
            return None
        first_of_all = next(t for t in [*self._live.assigned, *waiting] if t in waiting)
        chosen = waiting[first_of_all]
        if chosen.num_failures > self._failures_told.get(chosen.trial_id, 0):
            self._failures_told[chosen.trial_id] = chosen.num_failures
            self._tell(chosen)
        return chosen

    def _end_hanging_workers(self, live: list[Trial]) -> None:
        running = {t.trial_id: t for t in live if t.status == Trial.RUNNING}
        for trial_id in self._live.hanging(running):
            self._ended_by_us.add(trial_id)
            # Killed and not asked to end: what hangs in CUDA or in a file system takes no request.
            actor = running[trial_id].temporary_state.ray_actor
            if actor is not None:
                ray.kill(actor)

    def _tell(self, trial: Trial) -> None:
        deaths = trial.num_failures - self._failures_before.get(trial.trial_id, 0)
        # The one error that is meant for Tune: it ends the experiment, and ``_fit`` reports it.
        if deaths > retries.WORKER_DEATHS:
            raise RuntimeError(f"workers die before they can train: {trial.get_error()}")
        if trial.trial_id in self._ended_by_us:
            self._ended_by_us.discard(trial.trial_id)
            return
        arms = self._live.assigned[trial.trial_id].arms
        goes_on = f"arm {arms[0].signature} goes on from its last checkpoint"
        if len(arms) > 1:
            goes_on = f"its {len(arms)} arms go on from their last checkpoints"
        log.warning("a worker died (out of memory?); %s", goes_on)
