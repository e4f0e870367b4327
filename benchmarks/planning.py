"""Milliseconds that planning and storage cost per arm, in sweeps of 1,000 and of 10,000 arms.

    python benchmarks/planning.py [--out FILE]

An in-process executor stands in for training: every arm gets a stored record like a real one's, at
once. What is left is what a driver does per arm: plan, propose (random: order-free), store, read,
join, judge. Machines are shared and noisy, so the large sweep is run in slices of the small one's
size, and a whole small sweep is run after each slice; medians over the slices are compared, 1.5x is
what is allowed. Memory is the coordinator's, per finished pair; resuming is starting again over the
finished sweep.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Iterator
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


def run(arms: int, slice_of: int) -> Iterator[float]:
    """One sweep of this size; yields milliseconds per arm by slice, then those of resuming."""
    losses = [1.0, 0.7, 0.5, 0.3]
    with tempfile.TemporaryDirectory(prefix="planning-") as folder:
        objects = ObjectStore(folder)
        asked = definition(arms)
        coordinator = Coordinator(objects, asked)
        coordinator.start()
        for _ in range(arms // slice_of):
            began = time.perf_counter()
            for _ in range(slice_of):
                arm = coordinator.next_arm()
                assert arm is not None
                coordinator.runs.put_record(record_like_a_real_one(arm.config, losses))
                coordinator.finished(arm.signature)
            yield 1e3 * (time.perf_counter() - began) / slice_of
        assert coordinator.next_arm() is None
        assert coordinator.summary().is_done
        began = time.perf_counter()
        again = Coordinator(objects, asked)
        again.start()
        assert again.summary().is_done
        yield 1e3 * (time.perf_counter() - began) / arms


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
    """Alternate, print the medians as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--small", type=int, default=1000)
    parser.add_argument("--large", type=int, default=10000)
    parser.add_argument("--out", type=Path, help="write the JSON here too")
    options = parser.parse_args()
    small: list[list[float]] = []
    large: list[float] = []
    for ms_per_arm in run(options.large, options.small):
        large.append(ms_per_arm)
        small.append(list(run(options.small, options.small)))
        print(f"slice {len(large)}: {ms_per_arm:.1f} and {small[-1][0]:.1f} ms", file=sys.stderr)
    *slices, large_resume_ms = large
    large_ms = statistics.median(slices)
    small_ms = statistics.median(ms for ms, _ in small)
    last = len(slices) // 2
    result: dict[str, Any] = {
        "benchmark": "planning",
        "ms_per_arm": {str(options.small): small_ms, str(options.large): large_ms},
        "ratio": large_ms / small_ms,
        "ratio_in_the_second_half": statistics.median(slices[last:])
        / statistics.median(ms for ms, _ in small[last:-1]),
        "allowed": 1.5,
        "resume_ms_per_arm": {
            str(options.small): statistics.median(ms for _, ms in small),
            str(options.large): large_resume_ms,
        },
        "coordinator_bytes_per_pair": memory_per_pair(min(options.small, 300)),
    }
    text = json.dumps(result, indent=2)
    print(text)
    if options.out is not None:
        options.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
