"""Arms as a driver offers them to be tracked, written by hand, and what MLflow then holds."""

from __future__ import annotations

import dataclasses
from typing import Any

from sweep.tracking.rows import TrackedArm
from tests.support.servers.mlflow_servers import content as content_of
from trainables.config.arm import ArmConfig, ConstraintConfig
from trainables.primal_dual.constraints import Scales
from trainables.records import arm_record as results
from trainables.records.arm_record import ArmRecord, Report
from trainables.records.evaluation import Evaluation

SWEEP = "lab-3"
LAYERS = 3
STARTED = 1_700_000_000_000
PAIR = {
    "pair/gain_mean_over_gammas": -0.25,
    results.WORST_MISSING_SHARE: 0.04,
    results.FEASIBLE: 1.0,
}


def report(step: int, shift: float = 0.0, constrained: bool = True) -> Report:
    scalars = {results.TRAIN_LOSS: 1.0 / step + shift, results.REPORTED_LOSS: 0.5}
    layers = {"losses": [1.0, 0.8, 0.7, 0.5 + shift]}
    if constrained:
        scalars[results.REPORTED_MISSING_SHARE] = 0.2
        layers |= {"violations": [0.1, 0.0, -0.1], "multipliers": [0.0, 0.5, 0.25]}
    return Report(step=step, timestamp_ms=STARTED + 10 * step, scalars=scalars, layers=layers)


def evaluation() -> Evaluation:
    losses = [[2.0, 1.6, 1.2, 0.8], [2.0, 1.2, 1.0, 0.6]]
    return Evaluation(
        scales=Scales(constant_loss=2.0, identity_loss=1.0),
        dev_units=["a", "b"],
        dev_losses=losses,
        train_units=["c", "d"],
        train_losses=losses,
        scores={"0.00": 0.1, "0.15": 0.2, "0.30": 0.4},
        layer_losses_by_gamma={"0.15": losses[0]},
        references={"identity": {"0.00": 0.0, "0.15": 0.5, "0.30": 0.9}},
        reference_losses={"identity": 1.0},
        ood_auc=0.07,
        objective=0.3,
        objective_gammas=[0.3],
        descent_ratio_quantiles=[[0.5] * 21] * LAYERS,
        descent_fraction=[0.9] * LAYERS,
        multipliers=[0.0, 0.5, 0.25],
    )


def config(seed: int = 0, alpha: float | None = 0.1) -> ArmConfig:
    constraint = None if alpha is None else ConstraintConfig(alpha=alpha)
    return ArmConfig(seed=seed, test_gammas=(0.0, 0.15, 0.3), constraint=constraint)


def record(run: ArmConfig, n_reports: int = 3, status: results.Status = "running") -> ArmRecord:
    constrained = run.constraint is not None
    made = ArmRecord(
        signature=run.signature(),
        config=run,
        status=status,
        reason="" if status in ("running", "finished") else f"it {status}",
        started_ms=STARTED,
        reports=[report(100 * (i + 1), constrained=constrained) for i in range(n_reports)],
        environment={"commit": "abc", "dirty": False, "packages": {"torch": "2.13.0"}, "gpu": None},
    )
    if made.is_final:
        made.ended_ms = STARTED + 60_000
        made.evaluation = evaluation() if status == "finished" else None
    return made


def tracked(made: ArmRecord, proposal: int | None = 0, **changes: Any) -> TrackedArm:
    constrained = made.config.constraint is not None
    return TrackedArm(
        record=made,
        sweep=SWEEP,
        setting="ut_l3_g015",
        proposal=proposal if constrained else None,
        unconstrained_signature=made.config.unconstrained().signature() if constrained else None,
        **({"outcome": made.status} | changes),
    )


def history(n_arms: int) -> list[list[TrackedArm]]:
    """For each arm the states that a driver offers: running, finished, joined into its pair."""
    runs = [
        config(seed=i % 2, alpha=None if i < 2 else round(0.1 + 0.01 * i, 2)) for i in range(n_arms)
    ]
    states = []
    for number, run in enumerate(runs):
        offered = [tracked(record(run, n), number) for n in (1, 2)]
        offered.append(tracked(record(run, 3, "finished"), number))
        if run.constraint is not None:
            offered.append(dataclasses.replace(offered[-1], pair=PAIR, outcome="feasible"))
        states.append(offered)
    return states


def content(uri: str) -> dict[str, Any]:
    return content_of(uri, SWEEP)


def without_artifacts(everything: dict[str, Any]) -> dict[str, Any]:
    """The same where artifacts are left out."""
    plain: dict[str, Any] = {"kind": everything["kind"]}
    for signature, run in everything.items():
        if signature != "kind":
            tags = {n: text for n, text in run["tags"].items() if not n.startswith("sha256.")}
            plain[signature] = {**run, "tags": tags, "artifacts": []}
    return plain


def assert_each_row_once(everything: dict[str, Any]) -> None:
    for signature, run in everything.items():
        if signature != "kind":
            points = [(key, step) for key, _, _, step in run["rows"]]
            assert len(points) == len(set(points)), signature
