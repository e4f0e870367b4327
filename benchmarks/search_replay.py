"""Replay of searches on recorded landscapes, against forgetting and random search.

    python -m benchmarks.search_replay [--repeats 50]

A proposal comes to what the nearest recorded arm came to, in the coordinates of the box. ``tpe`` is
the search as users have it; ``tpe, early ends forgotten`` is told stopped and diverged arms as
failures, which TPE drops (decision: what ends early is told as infeasible); ``random`` is the
space's random sampler. Each repeat has a sampler seed of its own. Of the first 8, 16 and 24
proposals, means over the repeats: how often there was a feasible and useful one, the regret of the
best of them (its objective less the best recorded feasible one's; only over repeats that have one),
the share of stopped or diverged proposals, in all and in the second half, and the least missing
share. JSON on standard output.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from search_spaces.space import LogDecay, LogUniform, SearchSpace, Setting, Uniform
from sweep.study.proposals import Observation, Point
from sweep.study.sampler import propose
from trainables.config.arm import ArmConfig
from trainables.plain import Json

FOLDER = Path(__file__).parent / "landscape"
BUDGETS = (8, 16, 24)
KINDS = ("tpe", "tpe, early ends forgotten", "random")
EARLY = ("stopped", "diverged")


class Landscape:
    """Recorded arms of one form, and the box that their points span."""

    def __init__(self, recorded: Mapping[str, Json], form: str) -> None:
        """The arms of ``form`` in one file."""
        self.arms = [arm for arm in recorded["arms"] if arm["form"] == form]
        base = ArmConfig.from_json(recorded["base"])
        points = [arm["point"] for arm in self.arms]
        lrs = [point["constraint.dual_lr"] for point in points]
        wide = LogDecay(1e-4, 100.0)
        ranges = {
            "constraint.alpha": Uniform(*recorded["alpha"]),
            "constraint.dual_lr": LogUniform(min(lrs), max(lrs)),
            "constraint.resilience": wide,
        }
        space = SearchSpace(
            name="landscape", summary="", base=base, settings=(Setting("only", {}),),
        )  # fmt: skip
        at = replace(space, ranges=ranges, base=base)
        decays = [at.coordinates_of(at.settings[0], p)["constraint.resilience"] for p in points]
        ranges["constraint.resilience"] = LogDecay(min(decays), max(decays))
        self.space = replace(space, ranges=ranges)
        self.cube = np.array([self.shares(point) for point in points])

    def shares(self, point: Point) -> list[float]:
        """Where a point lies in the box, every coordinate from 0 to 1."""
        (setting,) = self.space.settings
        shares = []
        for name, value in self.space.coordinates_of(setting, point).items():
            values = self.space.ranges[name]
            assert isinstance(values, Uniform | LogUniform | LogDecay)
            low, high = values.low, values.high
            if not isinstance(values, Uniform):
                value, low, high = math.log(value), math.log(low), math.log(high)
            shares.append((value - low) / (high - low))
        return shares

    def came_to(self, point: Point) -> Json:
        """The nearest recorded arm."""
        distance = np.square(self.cube - np.array(self.shares(point))).sum(axis=1)
        return self.arms[int(distance.argmin())]


def told_of(number: int, point: Point, arm: Mapping[str, Json], kind: str) -> Observation:
    """What a search is told of a proposal that came to ``arm``."""
    status = arm["status"]
    if status in EARLY:
        outcome = "failed" if kind == KINDS[1] else status
        return Observation(number, point, outcome, math.nan, arm["reported_missing_share"])
    outcome = "feasible" if arm["feasible"] else "infeasible"
    return Observation(number, point, outcome, arm["objective"], arm["worst_missing_share"])


def searched(landscape: Landscape, kind: str, seed: int) -> list[Json]:
    """What the proposals of one search came to, in their order."""
    sampler = "random" if kind == "random" else "tpe"
    space = replace(landscape.space, sampler=sampler, sampler_seed=seed)  # type: ignore[arg-type]
    told: list[Observation] = []
    arms = []
    for number in range(max(BUDGETS)):
        point = propose(space, "only", number, told)
        arms.append(landscape.came_to(point))
        told.append(told_of(number, point, arms[-1], kind))
    return arms


def wins(arm: Mapping[str, Json]) -> bool:
    """Whether a proposal that came to this arm could win."""
    return bool(arm["feasible"] and arm["useful"] and not arm["vacuous"])


def summary(runs: Sequence[Sequence[Json]], budget: int, best: float) -> dict[str, Json]:
    """Means over repeats of the first ``budget`` proposals."""
    first = [run[:budget] for run in runs]
    found = [min((a["objective"] for a in run if wins(a)), default=math.nan) for run in first]
    regrets = [objective - best for objective in found if not math.isnan(objective)]
    finished = [
        [a["worst_missing_share"] for a in run if a["status"] == "finished"] for run in first
    ]
    early = np.array([[a["status"] in EARLY for a in run] for run in first])
    rate = len(regrets) / len(runs)
    return {
        "with_a_winner": rate,
        "with_a_winner_se": math.sqrt(rate * (1 - rate) / len(runs)),
        "regret": float(np.mean(regrets)) if regrets else None,
        "regret_se": float(np.std(regrets) / math.sqrt(len(regrets))) if regrets else None,
        "early_ends": float(early.mean()),
        "early_ends_second_half": float(early[:, budget // 2 :].mean()),
        "least_missing_share": float(np.mean([min(shares) for shares in finished if shares])),
    }


def replayed(landscape: Landscape, repeats: int) -> dict[str, Json]:
    """Every kind of search at every budget."""
    best = min((a["objective"] for a in landscape.arms if wins(a)), default=math.nan)
    result: dict[str, Json] = {
        "arms": len(landscape.arms),
        "feasible": sum(wins(a) for a in landscape.arms),
        "early_ends": sum(a["status"] in EARLY for a in landscape.arms),
    }
    for kind in KINDS:
        runs = [searched(landscape, kind, seed) for seed in range(repeats)]
        result[kind] = {str(budget): summary(runs, budget, best) for budget in BUDGETS}
    return result


def main() -> None:
    """Replay on every landscape that is recorded here."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=50)
    options = parser.parse_args()
    landscapes: dict[str, Json] = {}
    for path in sorted(FOLDER.glob("*.json")):
        recorded = json.loads(path.read_text(encoding="utf-8"))
        for form in sorted({arm["form"] for arm in recorded["arms"]}):
            landscape = Landscape(recorded, form)
            landscapes[f"{path.stem} {form}"] = replayed(landscape, options.repeats)
    print(json.dumps({"benchmark": "search_replay", "landscapes": landscapes}, indent=1))


if __name__ == "__main__":
    main()
