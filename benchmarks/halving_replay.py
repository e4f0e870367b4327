"""Replay of early stopping on recorded landscapes: what it saves, and which winners it loses.

    python -m benchmarks.halving_replay [OUT.json [LANDSCAPE.json ...]] [--sweeps 400]

Two questions, both answered from the reports of arms that were all trained to their end.

**Stopping.** A sweep of a setting is 8 or 16 recorded arms, drawn at random. ``early_signs`` ends
what a sweep ends today; ``halving`` keeps the better half at a quarter of the steps, and of these
the better half at one half; ``three_quarters`` keeps three of four each time; ``median`` ends an
arm at these steps if it is worse than the median of the arms before it, at least three. Better is
what misses less in its worst layer, where it misses more than the tolerance; among equals, the
lower held-out loss. The share of training steps saved, how often the winner (of the sweep trained
to its end) is lost, how often no winner is left, and by how much the best one left is worse, each
with a 95 % interval over sweeps (exact binomial, or normal). The sweeps are drawn from the same
arms, so that the intervals are for these landscapes.

**Telling.** TPE searches that stop arms by early signs and the median, and tell the sampler of a
stopped arm: nothing; as a sweep does, infeasible by its last missing share and a whole demanded
reduction at least; its last missing share; or that which it would have ended with. Each search
may spend the training steps of 8 or 16 whole arms, so that what is saved buys more proposals; none
of them stopped is the search to beat. Means over searches with standard errors.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.stats import binomtest

from benchmarks.landscape.landscape import (
    FOLDER,
    Arm,
    Landscape,
    missing_share,
    report_at,
    told_of,
)
from benchmarks.search_replay import mean_and_error
from sweep.study.proposals import Observation
from sweep.study.sampler import propose
from trainables.plain import Json

SIZES = (8, 16)  # proposals of a setting
RUNGS = (0.25, 0.5)  # shares of the steps
FEWEST = 3  # arms that a median is taken of
Rank = tuple[float, float]
Rule = Callable[[Landscape, Sequence[Arm]], list[int]]  # steps that each arm is trained, in order


def rank_at(landscape: Landscape, arm: Arm, step: int) -> Rank:
    """What arms are compared by at a step; lower is better."""
    report = report_at(arm, step)
    share, loss = missing_share(report), report["loss"]
    missed = math.inf if math.isnan(share) else max(share, landscape.space.tolerance)
    return missed, math.inf if loss is None else float(loss)


def early_signs(landscape: Landscape, arms: Sequence[Arm]) -> list[int]:
    """Trained until an early sign ends it, or it diverges."""
    return [_end(landscape, arm) for arm in arms]


def _end(landscape: Landscape, arm: Arm) -> int:
    if arm["would_end"] is not None:
        return int(arm["would_end"]["step"])
    return landscape.steps if arm["status"] == "finished" else int(arm["reports"][-1]["step"])


def kept(share: float) -> Rule:
    """Of those that reach a rung, this share goes on; rounded up."""

    def rule(landscape: Landscape, arms: Sequence[Arm]) -> list[int]:
        steps = [landscape.steps] * len(arms)
        going = list(range(len(arms)))
        for rung in RUNGS:
            at = round(rung * landscape.steps)
            ranked = sorted(going, key=lambda i: rank_at(landscape, arms[i], at))
            going = ranked[: math.ceil(share * len(going))]
            for index in ranked[len(going) :]:
                steps[index] = at
        return steps

    return rule


def median(landscape: Landscape, arms: Sequence[Arm]) -> list[int]:
    """Ended at a rung by the median of the arms before it that were trained so far."""
    steps: list[int] = []
    for arm in arms:
        before = list(zip(arms, steps, strict=False))
        steps.append(median_end(landscape, arm, before))
    return steps


def median_end(landscape: Landscape, arm: Arm, before: Sequence[tuple[Arm, int]]) -> int:
    """The step at which an arm ends beside those before it, given with their own steps."""
    for rung in RUNGS:
        at = round(rung * landscape.steps)
        ranks = sorted(rank_at(landscape, other, at) for other, steps in before if steps >= at)
        if len(ranks) >= FEWEST and rank_at(landscape, arm, at) > ranks[len(ranks) // 2]:
            return at
    return landscape.steps


RULES: dict[str, Rule] = {
    "early_signs": early_signs,
    "halving": kept(0.5),
    "three_quarters": kept(0.75),
    "median": median,
}


def stopped(landscape: Landscape, rule: Rule, size: int, sweeps: int) -> dict[str, Json]:
    """What one rule saves and loses over resampled sweeps."""
    rng = np.random.default_rng(0)
    saved, lost, none_left, worse = [], [], [], []
    for _ in range(sweeps):
        drawn = rng.choice(len(landscape.arms), size, replace=False)
        arms = [landscape.arms[index] for index in drawn]
        steps = rule(landscape, arms)
        saved.append(1 - sum(steps) / (size * landscape.steps))
        best = landscape.best(arms)
        left = landscape.best(
            [arm for arm, s in zip(arms, steps, strict=True) if s == landscape.steps]
        )
        if math.isfinite(best):
            lost.append(left > best)
            none_left.append(math.isinf(left))
        if math.isfinite(left):
            worse.append(left - best)
    return {
        "saved": _interval(saved),
        "with_a_winner": len(lost) / sweeps,
        "winner_lost": _share(lost),
        "no_winner_left": _share(none_left),
        "worse_by": _interval(worse),
    }


def _interval(values: Sequence[float]) -> list[float | None]:
    """Mean, and the ends of its 95 % interval."""
    mean, error = mean_and_error(values)
    if mean is None or error is None:
        return [mean, None, None]
    return [mean, mean - 1.96 * error, mean + 1.96 * error]


def _share(truths: Sequence[bool]) -> list[float | None]:
    """A share, and the ends of its exact 95 % interval."""
    if not truths:
        return [None, None, None]
    ends = binomtest(sum(truths), len(truths)).proportion_ci()
    return [sum(truths) / len(truths), float(ends.low), float(ends.high)]


def _nothing(arm: Arm, told: Observation) -> Observation:
    return replace(told, outcome="failed")


def _as_a_sweep_does(arm: Arm, told: Observation) -> Observation:
    return told


def _last_share(arm: Arm, told: Observation) -> Observation:
    return replace(told, outcome="infeasible")


def _heading_to(arm: Arm, told: Observation) -> Observation:
    share = arm["worst_missing_share"]
    end = math.nan if share is None else float(share)
    return replace(told, outcome="infeasible", worst_missing_share=end)


# Of a stopped arm: what the sampler is told instead of what a sweep tells it.
TELLING: dict[str, Callable[[Arm, Observation], Observation] | None] = {
    "none stopped": None,
    "nothing": _nothing,
    "as a sweep does": _as_a_sweep_does,
    "its last missing share": _last_share,
    "what it was heading to": _heading_to,
}


def searched(landscape: Landscape, telling: str, seed: int, size: int) -> tuple[float, int]:
    """Objective of the winner of one search (infinite without one), and how many proposals."""
    space = replace(landscape.space, sampler="tpe", sampler_seed=seed)
    tell = TELLING[telling]
    told: list[Observation] = []
    taken: list[int] = []
    ends: list[tuple[Arm, int]] = []
    while sum(steps for _, steps in ends) < size * landscape.steps and len(taken) < len(
        landscape.arms
    ):
        number = len(taken)
        taken.append(landscape.nearest(propose(space, "only", number, told), taken))
        arm = landscape.arms[taken[-1]]
        end = landscape.steps
        if tell is not None:
            end = min(_end(landscape, arm), median_end(landscape, arm, ends))
        ends.append((arm, end))
        whole = {**arm, "would_end": None}
        if tell is None or end == landscape.steps or arm["status"] != "finished":
            told.append(told_of(number, whole))
        else:
            seen = {**arm, "would_end": {"step": end}}
            told.append(tell(arm, told_of(number, seen)))
    return landscape.best([arm for arm, end in ends if end == landscape.steps]), len(taken)


def telling_compared(landscape: Landscape, size: int, searches: int) -> dict[str, Json]:
    """Every way to tell, on the same sampler seeds."""
    best = landscape.best(landscape.arms)
    worst = max((arm["objective"] for arm in landscape.arms if landscape.wins(arm)), default=None)
    result: dict[str, Json] = {}
    for telling in TELLING:
        runs = [searched(landscape, telling, seed, size) for seed in range(searches)]
        regrets = [] if worst is None else [min(found, worst) - best for found, _ in runs]
        result[telling] = {
            "with_a_winner": mean_and_error(float(math.isfinite(found)) for found, _ in runs),
            "regret_or_worst": mean_and_error(regrets),
            "proposals": mean_and_error(float(count) for _, count in runs),
        }
    return result


def main() -> None:
    """Replay on every landscape, by default those that are recorded here."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, nargs="?", help="write the JSON here; default: print it")
    parser.add_argument("landscapes", type=Path, nargs="*", default=sorted(FOLDER.glob("*.json")))
    parser.add_argument("--sweeps", type=int, default=400)
    parser.add_argument("--searches", type=int, default=200)
    options = parser.parse_args()
    result: dict[str, Json] = {}
    for path in options.landscapes:
        landscape = Landscape.of_file(path)
        result[path.stem] = {
            str(size): {
                "stopping": {
                    name: stopped(landscape, rule, size, options.sweeps)
                    for name, rule in RULES.items()
                },
                "telling": telling_compared(landscape, size, options.searches),
            }
            for size in SIZES
        }
    written = {"sweeps": options.sweeps, "searches": options.searches, "landscapes": result}
    if options.out is None:
        print(json.dumps(written, indent=1))
    else:
        options.out.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
