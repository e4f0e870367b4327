"""Imitated sweep: many settings, and workers that store records and train nothing."""

from __future__ import annotations

import hashlib
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from search_spaces.space import LogUniform, SearchSpace, Setting, Uniform
from sweep.run.coordinator import Coordinator
from sweep.study.arms import Arm
from sweep.study.definition import Definition
from trainables.config.arm import ArmConfig, ConstraintConfig, DataConfig
from trainables.primal_dual.constraints import Scales
from trainables.records.arm_record import ArmRecord, Report
from trainables.records.arms import ArmStore
from trainables.records.evaluation import Evaluation

SETTINGS = 50
GAMMAS = 50  # scores are kept by gammas of two decimals: further settings differ in their batches
WORKERS = 200
LAYERS = 3
REPORTS = 10
UNITS = 24  # held-out windows of a real arm
CHECKPOINT = bytes(2000)

Tell = Callable[[Coordinator], None]


class Took(NamedTuple):
    """Seconds that the imitated workers took."""

    s: float
    cpu_s: float  # of this thread


def definition(pairs: int, settings: int = SETTINGS) -> Definition:
    """So many proposals over the settings, one seed; the unconstrained arms come on top."""
    space = SearchSpace(
        name="scale",
        summary="",
        base=ArmConfig(data=DataConfig(frame_size=32, patch_size=8), constraint=ConstraintConfig()),
        settings=tuple(
            Setting(
                f"g{g:03d}", {"train_gamma": (1 + g % GAMMAS) / 100, "batch_size": 32 + g // GAMMAS}
            )
            for g in range(settings)
        ),
        ranges={
            "constraint.alpha": Uniform(0.02, 0.35),
            "constraint.dual_lr": LogUniform(1e-3, 1e-1),
            "constraint.resilience": LogUniform(1e-3, 1e-1),
        },
        n_proposals=max(1, pairs // settings),
        search_seeds=(0,),
        sampler="tpe",
    )
    return Definition("scale", space)


def finished_record(config: ArmConfig) -> ArmRecord:
    """A finished arm of LAYERS layers with REPORTS reports; its numbers hang on its signature."""
    signature = config.signature()
    luck = int(hashlib.sha256(signature.encode()).hexdigest()[:6], 16) / 16**6
    losses = [1.0, 0.7, 0.5, 0.3 + 0.3 * luck]  # about half of the arms are feasible
    by_gamma = {f"{gamma:.2f}": 0.5 + gamma + luck for gamma in config.test_gammas}
    evaluation = Evaluation(
        scales=Scales(constant_loss=1.0, identity_loss=0.9),
        dev_units=[f"clip:{i}" for i in range(UNITS)],
        dev_losses=[losses] * UNITS,
        train_units=[f"clip:{i}" for i in range(UNITS)],
        train_losses=[losses] * UNITS,
        scores=by_gamma,
        layer_losses_by_gamma=dict.fromkeys(by_gamma, losses),
        references={name: by_gamma for name in ("identity", "constant", "wiener")},
        reference_losses={"identity": 0.9, "constant": 1.0, "wiener": 0.2},
        ood_auc=1.0 + luck,
        objective=0.3 + luck,
        objective_gammas=[0.2],
        descent_ratio_quantiles=[[0.5] * 21] * LAYERS,
        descent_fraction=[0.9] * LAYERS,
        multipliers=[] if config.constraint is None else [0.5] * LAYERS,
    )
    layers = {name: losses[1:] for name in ("violations", "multipliers", "slacks")}
    reports = [
        Report(
            step=100 * (i + 1),
            timestamp_ms=1_000 * (i + 1),
            scalars={f"train/number_{n}": luck for n in range(8)},
            layers={"losses": losses, "weights": losses, **layers},
        )
        for i in range(REPORTS)
    ]
    return ArmRecord(
        signature=signature,
        config=config,
        status="finished",
        reports=reports,
        evaluation=evaluation,
        started_ms=1,
        ended_ms=1_000 * REPORTS,
        environment={"commit": "abc", "dirty": False, "packages": {"torch": "2.13.0"}},
    )


def steps_of(arm: Arm, runs: ArmStore) -> Iterator[Tell]:
    """One arm as its worker goes through it: begun, half done, final.

    Yields what a worker tells its driver then.
    """
    done = finished_record(arm.config)
    runs.record(arm.signature)
    runs.drop_left_overs(arm.signature)
    runs.newest_checkpoint(arm.signature)
    runs.count_attempt(arm.signature, -1)
    yield lambda driver: None
    half = replace(done, status="running", reports=done.reports[: REPORTS // 2], evaluation=None)
    runs.put_checkpoint(arm.signature, half.reports[-1].step, CHECKPOINT)
    runs.put_record(half)
    yield lambda driver: driver.record_report(arm.signature, half.reports[-1])
    runs.put_weights(arm.signature, CHECKPOINT)
    runs.put_record(done)
    yield lambda driver: driver.finish_arm(arm.signature)


def train(coordinator: Coordinator, runs: ArmStore, tick: Callable[[int], None]) -> Took:
    """Train every arm on WORKERS workers that take turns; ``tick`` hears how many are final.

    Returns what the workers' own steps took.
    """
    working: deque[Iterator[Tell]] = deque()
    took, cpu_took = 0.0, 0.0
    while True:
        while len(working) < WORKERS and (arm := coordinator.next_arm()) is not None:
            working.append(steps_of(arm, runs))
        if not working:
            return Took(took, cpu_took)
        worker = working.popleft()
        began, cpu_began = time.perf_counter(), time.thread_time()
        tell = next(worker, None)
        took, cpu_took = (
            took + time.perf_counter() - began,
            cpu_took + time.thread_time() - cpu_began,
        )
        if tell is None:
            tick(coordinator.plan.arms_done)
        else:
            tell(coordinator)
            working.append(worker)
