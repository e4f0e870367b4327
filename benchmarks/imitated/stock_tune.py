"""A search as a good researcher writes it with Ray Tune, Optuna and MLflow: the stock script.

    python -m benchmarks.imitated.stock_tune [--space quickstart] [--set NAME=VALUE ...]
        [--share-plain] [--reuse-actors] [--product-ut] [--no-mlflow]

The same settings, proposals, first point, seed (one), ranges, budget and training as `sweep run
SPACE`, on the cores that there are: one ``Tuner`` a setting with ``OptunaSearch`` (TPE),
``MLflowLoggerCallback`` on SQLite, one trial a pair. A trial trains the constrained arm and the
unconstrained one, reports as often, evaluates both alike, and what it misses of its constraint is
added to what is minimised. ``--share-plain`` trains each unconstrained arm once, beside the search;
``--reuse-actors`` keeps a worker's process for its next trial: two lines that not every script has.
A UT is the script's own, layer by layer and differentiated by torch, as its equations say; with
``--product-ut`` it is the product's single operation. All else of the training is the product's,
but for memory: what torch frees goes back to the system, as in any script.
Prints one JSON line: of each setting the best feasible objective (null without one), how many pairs
are feasible, and the seconds of workers that training and evaluation took.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import tempfile
import time
from typing import Any

import ray
from ray import tune
from ray.air.integrations.mlflow import MLflowLoggerCallback
from ray.tune.search import ConcurrencyLimiter
from ray.tune.search.optuna import OptunaSearch

from search_spaces.catalog import find, with_values
from search_spaces.space import Choice, SearchSpace, Uniform
from sweep.cli.options import parse_values
from trainables.config.arm import ArmConfig
from trainables.machine.cores import usable_cores

PENALTY = 10.0  # of a missing share above the tolerance
NOT_YET = 1e6  # Tune wants the metric in every report


def train(config: ArmConfig, *, reports: bool, product_ut: bool) -> dict[str, float]:
    """One arm, as a script would: its own task, model and loop; what it came to."""
    began = time.perf_counter()
    import torch

    from trainables.build import build_model, build_task, parameter_dtype, weighting_of
    from trainables.evaluation.evaluate import evaluate
    from trainables.evaluation.measuring import measure
    from trainables.models.ut import UT
    from trainables.primal_dual.constraints import descent_constraints, missing_shares
    from trainables.training import Training

    torch.set_num_threads(1)
    device, dtype = torch.device("cpu"), parameter_dtype(config)
    task = build_task(config, device, dtype)
    model = build_model(config, task).to(dtype=dtype)
    if isinstance(model, UT):
        model.folds = model.folds and product_ut
    weighting = weighting_of(
        config, task.scales, device, dtype, steps_per_epoch=task.steps_per_epoch
    )
    training = Training(config, task, model, weighting)
    while training.step < config.steps:
        training.run_to(training.step + config.report_every)
        scalars, layers = training.measured()
        held_out = measure(model, task, "dev", config.train_gamma, 1).units.mean(axis=0)
        if reports and training.step < config.steps:
            told = {f"loss_{i}": float(loss) for i, loss in enumerate(held_out)}
            told |= {f"lambda_{i}": v for i, v in enumerate(layers.get("multipliers", []))}
            tune.report({**told, **scalars, "search": NOT_YET})
    found, _ = evaluate(config, task, model, task.references(), [])
    ended = {"objective": found.objective, "ood_auc": found.ood_auc}
    ended["seconds"] = time.perf_counter() - began
    if config.constraint is not None:
        constraints = descent_constraints(config.constraint, config.model.layers, task.scales)
        losses_F = [loss / task.scales.constant_loss for loss in found.held_out_losses()]
        ended["missing"] = float(missing_shares(constraints, losses_F).max())
    return ended


def seed_of(space: SearchSpace) -> int:
    """The space's one search seed."""
    (seed,) = space.search_seeds
    return seed


def pair(params: dict[str, Any], space: SearchSpace, options: argparse.Namespace) -> None:
    """A trial: both arms at one point."""
    setting = space.setting(params["setting"])
    at = {name: value for name, value in params.items() if name != "setting"}
    config = space.run(setting, space.point_of(setting, at), seed=seed_of(space))
    ended = train(config, reports=True, product_ut=options.product_ut)
    if not options.share_plain:
        plain = train(config.unconstrained(), reports=False, product_ut=options.product_ut)
        ended |= {f"plain_{name}": value for name, value in plain.items()}
    missed = max(0.0, ended["missing"] - space.tolerance)
    tune.report({**ended, "search": ended["objective"] + PENALTY * missed})


def searched(
    name: str, space: SearchSpace, options: argparse.Namespace, folder: str
) -> dict[str, Any]:
    """One setting: its best feasible objective, or None."""
    setting = space.setting(name)
    ranges = {}
    for field, values in space.ranges_of(setting).items():
        assert not isinstance(values, Choice)
        drawn = tune.uniform if isinstance(values, Uniform) else tune.loguniform
        ranges[field] = drawn(values.low, values.high)
    first = space.coordinates_of(setting, space.default_point(setting))
    callback = MLflowLoggerCallback(
        tracking_uri=f"sqlite:///{folder}/mlflow.db", experiment_name=name
    )
    tuner = tune.Tuner(
        tune.with_parameters(pair, space=space, options=options),
        param_space={**ranges, "setting": name},
        tune_config=tune.TuneConfig(
            metric="search",
            mode="min",
            num_samples=space.n_proposals,
            search_alg=ConcurrencyLimiter(
                OptunaSearch(seed=seed_of(space), points_to_evaluate=[first]),
                max_concurrent=usable_cores(),
            ),
            reuse_actors=options.reuse_actors,
        ),
        run_config=tune.RunConfig(
            storage_path=folder, verbose=0, callbacks=[] if options.no_mlflow else [callback]
        ),
    )
    grid = tuner.fit()
    ends = [grid[at].metrics or {} for at in range(len(grid))]
    feasible = [e["objective"] for e in ends if e.get("missing", math.inf) <= space.tolerance]
    seconds = sum(e.get(name, 0.0) for e in ends for name in ("seconds", "plain_seconds"))
    return {
        "best": min(feasible, default=None),
        "feasible": len(feasible),
        "of": len(ends),
        "training_s": seconds,
    }


def main() -> None:
    """Search all settings, one after the other."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--space", default="quickstart")
    parser.add_argument("--set", action="append", default=[], dest="values", metavar="NAME=VALUE")
    parser.add_argument("--share-plain", action="store_true")
    parser.add_argument("--reuse-actors", action="store_true")
    parser.add_argument("--product-ut", action="store_true")
    parser.add_argument("--no-mlflow", action="store_true")
    options = parser.parse_args()
    space = with_values(find(options.space).space, parse_values(options.values))
    cpus = usable_cores()
    with tempfile.TemporaryDirectory() as folder:
        ray.init(
            address="local", num_cpus=cpus, include_dashboard=False, logging_level=logging.ERROR
        )
        plain = []
        if options.share_plain:
            configs = {
                space.run(
                    setting, space.default_point(setting), seed=seed_of(space)
                ).unconstrained()
                for setting in space.settings
            }
            remote: Any = ray.remote(num_cpus=1)(train)  # type: ignore[arg-type]
            plain = [
                remote.remote(config, reports=False, product_ut=options.product_ut)
                for config in configs
            ]
        found = {s.name: searched(s.name, space, options, folder) for s in space.settings}
        shared_s = sum(ended["seconds"] for ended in ray.get(plain))
        ray.shutdown()
    print(json.dumps({"settings": found, "shared_s": shared_s}))


if __name__ == "__main__":
    main()
