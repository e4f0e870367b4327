"""The executor on Ray Tune: trials are arms, and the coordinator decides which one is next.

Tune starts workers, moves reports and replaces dead workers; its own experiment state is scratch in
a temporary folder. Nothing here may raise into Tune: an error in ``suggest`` ends the whole
experiment, one in ``on_trial_complete`` trains the finished arm again.
"""

from __future__ import annotations

import fcntl
import json
import logging
import math
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.tune import CheckpointConfig, FailureConfig, TuneConfig, Tuner
from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler
from ray.tune.search import Searcher
from ray.tune.stopper import Stopper

from sweep.coordinator import Coordinator
from sweep.definition import Definition
from sweep.signals import stop_on_signals
from trainables import trial
from trainables.config import RunConfig
from trainables.errors import Failure, InvalidValue
from trainables.run_store import MAX_DEATHS
from trainables.trial import ArmTrial, report_of, trial_config

Json = Any
log = logging.getLogger(__name__)

OBJECT_STORE_BYTES = 128 * 2**20  # nothing travels through it; Ray's default takes 30 % of memory
PREFIX, OWNER = "sweep-", "owner.lock"  # of the temporary folders
# What Ray and Tune read from the environment. Those of the user, if set, are kept.
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_prestart_worker_first_driver": "0",  # workers start with their actors: saves 2.5 s
    "RAY_CHDIR_TO_TRIAL_DIR": "0",  # a relative data folder means the same in every process
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # no CSV, JSON and TensorBoard files per trial
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # Ctrl-C is ours: arms end at their next report
    "TUNE_GLOBAL_CHECKPOINT_S": "1e9",  # Tune's state is never read
    "TUNE_WARN_THRESHOLD_S": "30",
    "RAY_AIR_NEW_OUTPUT": "0",  # no second display beside ours
}


def train_on_local_ray(coordinator: Coordinator, *, workers: int | None, patience_s: float) -> None:
    """Start a Ray cluster of this machine alone, train every arm on it, and end it."""
    definition = coordinator.definition
    threads = max(config.threads for config in _configs(definition))
    on_gpu = any(config.device == "cuda" for config in _configs(definition))
    cpus = len(os.sched_getaffinity(0))
    with _local_ray(
        cpus=max(cpus, (workers or 1) * threads), gpus=None if on_gpu else 0
    ) as scratch:
        resources_there: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        gpus = int(resources_there.get("GPU", 0))
        if on_gpu and not gpus:
            raise InvalidValue("device is 'cuda', and Ray finds no GPU here. Set device=cpu.")
        if workers is None:
            workers = max(1, min(cpus // threads, gpus if on_gpu else cpus))
        # One resource class for all arms: cached actors are keyed by it.
        resources = {"CPU": float(threads)}
        if on_gpu:
            resources["GPU"] = 1 / math.ceil(workers / gpus)
        with stop_on_signals(coordinator):  # after ray.init, which takes SIGTERM for itself
            _fit(coordinator, resources, workers, patience_s, scratch)


def _configs(definition: Definition) -> list[RunConfig]:
    space = definition.space
    return [space.run(s, {}, seed=space.search_seeds[0]) for s in space.settings]


def _fit(
    coordinator: Coordinator,
    resources: dict[str, float],
    workers: int,
    patience_s: float,
    scratch: Path,
) -> None:
    tuner = Tuner(
        tune.with_resources(ArmTrial, resources),
        tune_config=TuneConfig(
            search_alg=_PlanSearcher(coordinator, patience_s),
            scheduler=_Scheduler(),
            num_samples=-1,
            max_concurrent_trials=workers,  # without it one trial is pending at a time
            reuse_actors=True,
            trial_dirname_creator=lambda t: t.trial_id,
        ),
        run_config=tune.RunConfig(
            name="tune",
            storage_path=str(scratch),
            stop=_AtNextReport(coordinator),
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


class _WithoutState:
    """Tune pickles what it is given, for a restore that never happens: leave everything out."""

    def __getstate__(self) -> dict[str, Json]:
        return {}


class _PlanSearcher(_WithoutState, Searcher):
    """Tune's view of the coordinator."""

    def __init__(self, coordinator: Coordinator, patience_s: float) -> None:
        super().__init__()
        self._coordinator = coordinator
        self._patience_s = patience_s
        self._signatures: dict[str, str] = {}  # of live trials, by trial id

    def suggest(self, trial_id: str) -> dict[str, Json] | None:
        """The next arm; None while live arms may still come back; FINISHED when none can."""
        try:
            arm = self._coordinator.next_arm()
        except Exception as error:
            self._broken(error)
            arm = None
        if arm is None:
            over: Json = Searcher.FINISHED
            return over if self._coordinator.is_over else None
        self._signatures[trial_id] = arm.signature
        return trial_config(
            arm.config,
            self._coordinator.objects.root,
            self._patience_s,
            driver=self._coordinator.runs.driver,
        )

    def on_trial_result(self, trial_id: str, result: dict[str, Json]) -> None:
        """A report, but for the last one of a trial."""
        try:
            report = report_of(result)
            if report is not None:
                self._coordinator.report(self._signatures[trial_id], report)
        except Exception as error:
            self._broken(error)

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Json] | None = None, error: bool = False
    ) -> None:
        """A trial ended: finished, stopped at a report, with a problem, or its worker is gone."""
        try:
            self._complete(self._signatures.pop(trial_id), result or {}, error)
        except Exception as broken:
            self._broken(broken)

    def _complete(self, signature: str, result: dict[str, Json], error: bool) -> None:
        if error:
            self._coordinator.lost(signature)
        elif result.get(trial.FINISHED):
            self._coordinator.finished(signature)
        elif not result.get(trial.PROBLEM):
            self._coordinator.unfinished(signature)
        elif result.get(trial.STORE_PROBLEM):
            self._coordinator.unfinished(signature)
            self._coordinator.store_trouble(result[trial.PROBLEM])
        else:
            self._coordinator.unfinished(signature, result[trial.PROBLEM])

    def _broken(self, error: Exception) -> None:
        log.exception("the driver failed", exc_info=error)
        self._coordinator.problems.append(f"the driver failed: {type(error).__name__}: {error}")
        self._coordinator.stop("the driver failed")

    def save(self, checkpoint_path: str) -> None:
        """Nothing: the store is the state."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing: the store is the state."""


class _AtNextReport(_WithoutState, Stopper):
    """Ends a trial at its report, which is checkpointed, once the sweep is to stop."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator

    def __call__(self, trial_id: str, result: dict[str, Json]) -> bool:
        """Whether this trial ends here."""
        return bool(self._coordinator.stopping)

    def stop_all(self) -> bool:
        """Never: arms end one by one, at their reports."""
        return False


class _Scheduler(_WithoutState, FIFOScheduler):
    """First come, first served; ends the experiment when workers die before they can report.

    ``ArmRun`` gives an arm up after MAX_DEATHS starts, but only where it gets as far as starting.
    (A callback could count too, and would make Tune import MLflow: 2 s.)
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._failures_before: dict[str, int] = {}  # by trial id, at its last report
        self._failures_told: dict[str, int] = {}  # by trial id

    def on_trial_result(self, tune_controller: Json, trial: Trial, result: dict[str, Json]) -> str:
        """A worker that reports is alive."""
        self._failures_before[trial.trial_id] = trial.num_failures
        return FIFOScheduler.CONTINUE

    def choose_trial_to_run(self, tune_controller: Json) -> Trial | None:
        """The next pending trial, unless its workers only die."""
        chosen: Trial | None = super().choose_trial_to_run(tune_controller)
        if chosen is not None and chosen.num_failures > self._failures_told.get(chosen.trial_id, 0):
            self._failures_told[chosen.trial_id] = chosen.num_failures
            self._tell(chosen)
        return chosen

    def _tell(self, trial: Trial) -> None:
        deaths = trial.num_failures - self._failures_before.get(trial.trial_id, 0)
        if deaths > 2 * MAX_DEATHS:
            raise RuntimeError(f"workers die before they can train: {trial.get_error()}")
        config = RunConfig.from_json(json.loads(trial.config["run"]))
        log.warning(
            "a worker died (out of memory?); arm %s goes on from its last checkpoint",
            config.signature(),
        )


@contextmanager
def _local_ray(*, cpus: int, gpus: int | None) -> Iterator[Path]:
    """A Ray cluster of this machine with a token of its own; yields its temporary folder.

    Ray listens on every interface whatever address it is given: the token is what protects it.
    """
    _own_token()
    with _scratch_folder() as folder, _environment():
        try:
            ray.init(
                address="local",
                num_cpus=cpus,
                num_gpus=gpus,
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
                object_store_memory=OBJECT_STORE_BYTES,
                _temp_dir=str(folder),
            )
        except Exception as error:
            ray.shutdown()
            raise Failure(
                f"Ray could not be started on this machine: {error} See `sweep doctor`, or train "
                "without Ray with --where inline."
            ) from error
        try:
            yield folder
        finally:
            ray.shutdown()


@contextmanager
def _scratch_folder() -> Iterator[Path]:
    """A folder that goes with this process, or, when it is killed, with a later one."""
    _remove_left_overs()
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=_short_folder()))
    try:
        unnamed = folder / f".{OWNER}"
        with open(unnamed, "w") as owner:
            fcntl.flock(owner, fcntl.LOCK_EX)
            unnamed.rename(folder / OWNER)  # held before another driver can find it
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_left_overs() -> None:
    """Remove the folders of drivers that were killed: nobody holds their lock any more."""
    for owner in Path(_short_folder()).glob(f"{PREFIX}*/{OWNER}"):
        try:
            with open(owner) as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # in use, or another user's
            continue
        shutil.rmtree(owner.parent, ignore_errors=True)


def _short_folder() -> str:
    """Where Ray's sockets go: their paths may have 107 characters, of which Ray takes about 70."""
    folder = os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()
    return folder if len(folder) <= 24 else "/tmp"


def _own_token() -> None:
    """Give this process's clusters a secret of their own; Ray would write one to ~/.ray.

    Token mode itself is Ray's default for local clusters; its variable is read at import.
    """
    if not {"RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & set(os.environ):
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)


@contextmanager
def _environment() -> Iterator[None]:
    added = {name: value for name, value in ENVIRONMENT.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)
