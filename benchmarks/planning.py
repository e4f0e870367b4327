"""Milliseconds that planning and storage cost per arm, in sweeps of 1,000 and of 10,000 arms.

    python benchmarks/planning.py [--out FILE]

An in-process executor stands in for training: every arm gets a stored record like a real one's, at
once. What is left is what a driver does per arm: plan, propose (random: order-free), store, read,
join, judge. Sizes alternate, medians of the repeats are compared; 1.5x is what is allowed. Memory
is the coordinator's, per finished pair; resuming is starting again over the finished sweep.
"""

from __future__ import annotations

import argparse
import gc
import json
import shutil
import statistics
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path
from typing import Any

from search_spaces.space import LogUniform, SearchSpace, Setting, Uniform
from sweep.coordinator import Coordinator
from sweep.definition import Definition
from trainables.config import ConstraintConfig, DataConfig, RunConfig
from trainables.object_store import ObjectStore
from trainables.primal_dual import Scales
from trainables.results import ArmRecord, Evaluation, Report

LAYERS = 3
REPORTS = 10
UNITS = 24  # held-out windows of a real arm


def definition(arms: int) -> Definition:
    """Five settings, one seed: proposals and baselines together are ``arms``."""
    space = SearchSpace(
        name="planning",
        summary="",
        base=RunConfig(data=DataConfig(frame_size=32, patch_size=8), constraint=ConstraintConfig()),
        settings=tuple(Setting(f"g{g}", {"train_gamma": 0.1 * g}) for g in range(1, 6)),
        ranges={
            "constraint.alpha": Uniform(0.02, 0.35),
            "constraint.dual_lr": LogUniform(1e-3, 1e-1),
        },
        n_proposals=arms // 5 - 1,
        search_seeds=(0,),
        sampler="random",
    )
    return Definition("planning", space)


def record_like_a_real_one(config: RunConfig, losses: list[float]) -> ArmRecord:
    """A finished arm of LAYERS layers with REPORTS reports and UNITS held-out windows."""
    by_gamma = {f"{gamma:.2f}": 0.5 + gamma for gamma in config.test_gammas}
    evaluation = Evaluation(
        scales=Scales(constant_loss=1.0, identity_loss=0.5),
        dev_units=[f"clip:{i}" for i in range(UNITS)],
        dev_losses=[losses] * UNITS,
        train_units=[f"clip:{i}" for i in range(UNITS)],
        train_losses=[losses] * UNITS,
        scores=by_gamma,
        layer_losses_by_gamma=dict.fromkeys(by_gamma, losses),
        references={name: by_gamma for name in ("identity", "constant", "wiener")},
        reference_losses={"identity": 0.5, "constant": 1.0, "wiener": 0.2},
        ood_auc=1.0,
        ood_mean=0.5,
        objective=0.3,
        objective_gammas=[0.2],
        descent_ratio_quantiles=[[0.5] * 21] * LAYERS,
        descent_share=[0.9] * LAYERS,
        multipliers=[] if config.constraint is None else [0.5] * LAYERS,
    )
    layers = {name: losses[1:] for name in ("violations", "multipliers", "slacks")}
    reports = [
        Report(
            step=100 * (i + 1),
            timestamp_ms=i,
            scalars={f"train/number_{n}": 0.1 for n in range(8)},
            layers={"losses": losses, "weights": losses, **layers},
        )
        for i in range(REPORTS)
    ]
    return ArmRecord(
        signature=config.signature(),
        config=config,
        status="finished",
        reports=reports,
        evaluation=evaluation,
        started_ms=1,
        ended_ms=2,
    )


def run(arms: int, folder: Path) -> dict[str, float]:
    """One sweep of this size: milliseconds per arm while it runs and when it is started again."""
    objects = ObjectStore(folder)
    asked = definition(arms)
    losses = [1.0, 0.7, 0.5, 0.3]
    start = time.perf_counter()
    coordinator = Coordinator(objects, asked)
    coordinator.start()
    training_s = 0.0
    trained = 0
    while (arm := coordinator.next_arm()) is not None:
        began = time.perf_counter()
        coordinator.runs.put_record(record_like_a_real_one(arm.config, losses))
        training_s += time.perf_counter() - began
        coordinator.finished(arm.signature)
        trained += 1
    total_s = time.perf_counter() - start
    assert coordinator.summary().is_done, coordinator.summary()
    assert trained == arms, trained
    start = time.perf_counter()
    again = Coordinator(objects, asked)
    again.start()
    assert again.summary().is_done
    resumed_s = time.perf_counter() - start
    return {
        "plan_and_store_ms": 1e3 * total_s / arms,
        "of_which_record_put_ms": 1e3 * training_s / arms,
        "resume_ms": 1e3 * resumed_s / arms,
    }


def memory_per_pair(arms: int) -> float:
    """Bytes that the coordinator keeps per finished pair."""
    with tempfile.TemporaryDirectory() as folder:
        gc.collect()
        tracemalloc.start()
        coordinator = Coordinator(ObjectStore(folder), definition(arms))
        coordinator.start()
        while (arm := coordinator.next_arm()) is not None:
            coordinator.runs.put_record(record_like_a_real_one(arm.config, [1.0, 0.7, 0.5, 0.3]))
            coordinator.finished(arm.signature)
        gc.collect()
        used, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return used / arms


def main() -> None:
    """Alternate the sizes, print the medians as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 10000])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, help="write the JSON here too")
    options = parser.parse_args()
    measured: dict[int, list[dict[str, float]]] = {size: [] for size in options.sizes}
    for repeat in range(options.repeats):
        for size in options.sizes:
            folder = Path(tempfile.mkdtemp(prefix="planning-"))
            try:
                measured[size].append(run(size, folder))
            finally:
                shutil.rmtree(folder)
            print(f"repeat {repeat}, {size} arms: {measured[size][-1]}", file=sys.stderr)
    medians: dict[int, dict[str, float]] = {
        size: {name: statistics.median(r[name] for r in runs) for name in runs[0]}
        for size, runs in measured.items()
    }
    small, large = min(medians), max(medians)
    name = "plan_and_store_ms"
    result: dict[str, Any] = {
        "benchmark": "planning",
        "medians": {str(size): values for size, values in medians.items()},
        "ratio": medians[large][name] / medians[small][name],
        "allowed": 1.5,
        "coordinator_bytes_per_pair": memory_per_pair(small),
        "repeats": options.repeats,
    }
    text = json.dumps(result, indent=2)
    print(text)
    if options.out is not None:
        options.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
