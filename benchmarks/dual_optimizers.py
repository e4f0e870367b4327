"""Dual optimisers compared: which one makes transformers feasible, how soon, at what score.

    python -m benchmarks.dual_optimizers --store FOLDER [--seeds 5] [--workers 2]

Six settings on UCSD Ped2 and IMDb (below the folder SWEEP_TEST_DATA), each constraint as its space
first asks for it, all with the relative dual signal. Every optimiser gets the same tries: its dual
rate is tuned on one seed over the same reaches (dual_lr x dual steps, as the schedule scales them),
by the missing share of the worst layer; then the rate is held and fresh seeds are trained. Fixed
beforehand are the numbers that one optimiser alone has. JSON on standard output: per optimiser the
share of arms that are feasible on held-out data, in how many settings most seeds are, the first
report from which a feasible arm stayed feasible, and the score beside SGD's over the settings and
seeds in which both are feasible.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

import torch

from benchmarks.trained import trained
from search_spaces.catalog import find
from search_spaces.ranges import resilience_of
from sweep.study.feasibility import judge
from trainables.build import build_task, parameter_dtype
from trainables.config.arm import ArmConfig
from trainables.config.constraint import TOLERANCE
from trainables.plain import Json
from trainables.primal_dual.schedule import effective_dual_steps
from trainables.records.arm_record import REPORTED_MISSING_SHARE, ArmRecord

REACHES = (0.01, 0.1, 1.0, 10.0)  # dual_lr x dual steps: how far a signal of 1 takes a multiplier
TUNING_SEED, FIRST_SEED = 100, 200
DECAY = 1.0  # where decay is what tells an optimiser apart: a multiplier left alone keeps exp(-1)
PROPORTIONAL = 0.02  # kappa_p and p per reach: what a signal of 1 adds at once
OPTIMIZERS: dict[str, dict[str, float]] = {
    "sgd": {},
    "adam": {},
    "adamw": {"decay": DECAY},
    "bare_decay": {"decay": DECAY},
    "nupi": {"dual_kp": PROPORTIONAL},
    "augmented": {"dual_penalty": PROPORTIONAL},
}
# Short, and evaluated where selection looks alone: with eleven test gammas and the spaces' draws an
# arm would spend more time in evaluation than in training.
SHORT: dict[str, Json] = {
    "steps": 240,
    "report_every": 30,
    "eval_draws": 2,
    "test_gammas": [0.0, 0.15, 0.2, 0.25],
}
# What so short a training can meet; the first alphas of the spaces, 0.2 and 0.08, are not met.
DETACHED: dict[str, Json] = {**SHORT, "constraint.alpha": 0.1}
DUST: dict[str, Json] = {**SHORT, "test_gammas": [0.0, 0.13, 0.18, 0.23]}
TEXT: dict[str, Json] = {
    **SHORT,
    "test_gammas": [0.0, 0.4, 0.6, 0.8],
    "dtype": "float32",  # a CPU that emulates the space's bfloat16 takes 20 times as long
    "data.max_length": 32,
    "eval_windows": 200,
    "constraint.alpha": 0.032,
}
SETTINGS: dict[str, tuple[str, str, dict[str, Json]]] = {
    "Ped2 UT L3": ("ped2_ut", "ucsd_ped2-ut-L3-g0.15", {**SHORT, "constraint.alpha": 0.45}),
    "Ped2 UT L5": ("ped2_ut", "ucsd_ped2-ut-L5-g0.15", {**SHORT, "constraint.alpha": 0.2}),
    "Ped2 UT L5 detached": ("ped2_ut", "ucsd_ped2-ut-L5-g0.15-detached", DETACHED),
    "Ped2 DUST L5": ("ped2_dust", "ucsd_ped2-dust-L5-g0.13", DUST),
    "IMDb UT L3": ("minilm_imdb", "imdb-ut-L3-g0.4", TEXT),
    "IMDb UT L3 detached": ("minilm_imdb", "imdb-ut-L3-g0.4-detached", TEXT),
}
FOLDERS = {"ucsd_ped2": "ped2", "imdb": "aclImdb"}


@cache
def base(setting: str, checkpoint: str | None) -> tuple[ArmConfig, float]:
    """A setting's first proposal on no seed in particular, and its dual steps."""
    of, name, fields = SETTINGS[setting]
    space = find(of).space
    config = space.run(space.setting(name), {}, seed=0)
    data = str(Path(os.environ["SWEEP_TEST_DATA"], FOLDERS[config.data.name]))
    places = {"data.folder": data, "threads": 1, "early_stop": False}
    if config.model.checkpoint is not None and checkpoint is not None:
        places["model.checkpoint"] = checkpoint
    asked = {"constraint.dual_signal": "relative", "constraint.signal_clip": 1.0}
    config = config.with_fields({**fields, **places, **asked})
    epoch = build_task(config, torch.device("cpu"), parameter_dtype(config)).steps_per_epoch
    return config, effective_dual_steps(config, steps_per_epoch=epoch, until=config.steps)


def arm(setting: str, optimizer: str, reach: float, seed: int, checkpoint: str | None) -> ArmConfig:
    """The constrained arm of an optimiser."""
    config, dual_steps = base(setting, checkpoint)
    dual_lr = reach / dual_steps
    fields: dict[str, Json] = {
        "constraint.dual_optimizer": optimizer,
        "constraint.dual_lr": dual_lr,
        "constraint.resilience": 0.0,
        "seed": seed,
    }
    for name, value in OPTIMIZERS[optimizer].items():
        if name != "decay":
            fields[f"constraint.{name}"] = reach * value
        elif optimizer == "bare_decay":  # of the multiplier itself, at every dual step
            fields["constraint.resilience"] = -math.expm1(-value / dual_steps)
        else:
            fields["constraint.resilience"] = resilience_of(
                value, dual_lr=dual_lr, dual_steps=dual_steps
            )
    return config.with_fields(fields)


def entry(record: ArmRecord) -> dict[str, Json]:
    """What is kept of an arm."""
    constraint, evaluation = record.config.constraint, record.evaluation
    judged = None if constraint is None else judge([record], constraint)
    shares = [(r.step, r.scalars.get(REPORTED_MISSING_SHARE, math.inf)) for r in record.reports]
    return {
        "status": record.status,
        "worst_missing_share": None if judged is None else judged.worst,
        "feasible": judged is not None and judged.feasible,
        "objective": None if evaluation is None else evaluation.objective,
        "feasible_from": None if constraint is None else feasible_from(shares),
        "multipliers": None if evaluation is None else evaluation.multipliers,
        "seconds": record.reports[-1].scalars["train/seconds"],
    }


def feasible_from(shares: Sequence[tuple[int, float]]) -> int | None:
    """The step of the first report from which on every report meets the tolerance.

    >>> feasible_from([(20, 0.0), (40, 0.5), (60, 0.1), (80, 0.0)]), feasible_from([(20, 0.5)])
    (60, None)
    """
    found = None
    for step, share in reversed(shares):
        if not share <= TOLERANCE:
            break
        found = step
    return found


def rank(one: dict[str, Json]) -> float:
    """By which the rate is tuned: the worst layer's missing share, least first."""
    share = one["worst_missing_share"]
    return math.inf if share is None or math.isnan(share) else share


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a benchmark over these settings, but for its store.

    Each benchmark names its store itself: ``make bench`` leaves out what has ``required=True``.
    """
    parser.add_argument("--checkpoint", help="folder of MiniLM's weights, whose words UT reads")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", nargs="+", choices=SETTINGS, default=list(SETTINGS))


def main() -> None:
    """Train what the store lacks, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--store", type=Path, required=True)
    add_options(parser)
    options = parser.parse_args()
    options.store.mkdir(parents=True, exist_ok=True)
    kept, at = options.store / "arms.jsonl", options.checkpoint
    seeds = range(FIRST_SEED, FIRST_SEED + options.seeds)
    tries = {
        (setting, name, reach): arm(setting, name, reach, TUNING_SEED, at)
        for setting in options.only
        for name in OPTIMIZERS
        for reach in REACHES
    }
    tuned = trained(tries.values(), kept, entry, workers=options.workers)
    chosen = {
        (setting, name): min(
            REACHES, key=lambda r: rank(tuned[tries[setting, name, r].signature()])
        )
        for setting in options.only
        for name in OPTIMIZERS
    }
    fresh = {
        (setting, name, seed): arm(setting, name, chosen[setting, name], seed, at)
        for setting in options.only
        for name in OPTIMIZERS
        for seed in seeds
    }
    judged = {"constraint.weights_by": "last_layer"}  # trained plainly, judged as the others are
    plain = {
        (setting, seed): base(setting, at)[0].with_fields({"seed": seed, **judged})
        for setting in options.only
        for seed in seeds
    }
    came_to = trained([*fresh.values(), *plain.values()], kept, entry, workers=options.workers)
    at_seed = {key: came_to[config.signature()] for key, config in fresh.items()}
    beside = {key: came_to[config.signature()] for key, config in plain.items()}
    print(json.dumps(table(at_seed, beside, chosen, tries, tuned), indent=1))


def table(
    arms: dict[tuple[str, str, int], dict[str, Json]],
    plain: dict[tuple[str, int], dict[str, Json]],
    chosen: dict[tuple[str, str], float],
    tries: dict[tuple[str, str, float], ArmConfig],
    tuned: dict[str, dict[str, Json]],
) -> dict[str, Json]:
    """The result: every number by optimiser, and the arms behind it."""
    settings = list(dict.fromkeys(setting for setting, _, _ in arms))
    rows = {}
    for name in OPTIMIZERS:
        own = {(s, seed): one for (s, n, seed), one in arms.items() if n == name}
        sgd = {(s, seed): one for (s, n, seed), one in arms.items() if n == "sgd"}
        both = [key for key, one in own.items() if one["feasible"] and sgd[key]["feasible"]]
        steps = [
            one["feasible_from"] / base_steps(s)
            for (s, _), one in own.items()
            if one["feasible"] and one["feasible_from"] is not None
        ]
        rows[name] = {
            **feasible_counts(own, settings),
            "feasible_from_share_of_steps": statistics.median(steps) if steps else None,
            "objective_less_sgd": [own[key]["objective"] - sgd[key]["objective"] for key in both],
            "objective_less_plain": {
                s: [
                    own[s, seed]["objective"] - plain[s, seed]["objective"]
                    for of, seed in own
                    if of == s and own[s, seed]["feasible"]
                ]
                for s in settings
            },
            "reach": {s: chosen[s, name] for s in settings},
            "tuning": {
                s: {str(r): tuned[tries[s, name, r].signature()] for r in REACHES} for s in settings
            },
        }
    return {
        "benchmark": "dual_optimizers",
        "reaches": REACHES,
        "optimizers": OPTIMIZERS,
        "settings": {s: SETTINGS[s][1] for s in settings},
        "rows": rows,
        "arms": [
            {"setting": s, "optimizer": n, "seed": seed, **one}
            for (s, n, seed), one in arms.items()
        ],
        "plain": [{"setting": s, "seed": seed, **one} for (s, seed), one in plain.items()],
    }


def feasible_counts(
    arms: Mapping[tuple[str, int], dict[str, Json]], settings: Iterable[str]
) -> dict[str, Json]:
    """How many arms, by setting and seed, are feasible: in all, in each setting, on most seeds."""
    within = {
        s: [bool(one["feasible"]) for (of, _), one in arms.items() if of == s] for s in settings
    }
    return {
        "arms": len(arms),
        "feasible": sum(map(sum, within.values())),
        "feasible_by_setting": {s: sum(found) for s, found in within.items()},
        "settings_most_seeds_feasible": sum(sum(f) > len(f) / 2 for f in within.values()),
    }


def base_steps(setting: str) -> int:
    """Steps of an arm of the setting."""
    return int(SETTINGS[setting][2]["steps"])


if __name__ == "__main__":
    main()
