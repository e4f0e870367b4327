"""Replay of searches on recorded landscapes: six samplers at small budgets.

    python -m benchmarks.search_replay [OUT.json [LANDSCAPE.json ...]] [--workers 1] [--again]
                                      [--repeats 100] [--most 50]

A proposal comes to what the nearest recorded arm came to, in the coordinates of the box. Each arm
comes once, and is told where it lies itself: a search that stays near its best point would be given
that point again and again otherwise, where training would give it a new one. The price: by 50 of
some hundred arms random search gains what it would not in the whole box. ``--again`` gives the
nearest arm whether or not it came before. Proposal 0 is the setting's own first point and early
signs end arms, as in a sweep; every repeat has a sampler seed.

``random``, ``quasi_random``, ``tpe`` and ``gp`` are the searches that a sweep offers; ``ctpe`` is
benchmarks/constrained_tpe.py; ``cma`` is Optuna's CMA-ES (`pip install cmaes`), which knows no
constraint: to it every infeasible proposal is worse than all feasible ones, by as much as it
misses. It is told its own points, which it must know again. A GP takes up to seconds an ask: of its
50 repeats 10 go to 50 proposals, the others to 20. Searches are kept in OUT.jsonl, beside OUT.json:
a replay that is ended goes on, and the summary says how many repeats it has.

With two landscapes and more, TPE is also started from the best ``STARTS`` winners of each other
one, at the same shares of the box, before its own proposals.

Of the first 5, 10, 20 and 50 proposals, means over repeats with standard errors: how often there
was a winner (feasible, binding, better than trivial predictors, asking for what its setting
demands); its regret, the
objective less that of the best recorded winner; the same with the worst recorded winner's regret
where there was none; CPU seconds an ask.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import optuna
import torch
from optuna.samplers import CmaEsSampler

from benchmarks.constrained_tpe import ConstrainedTPE
from benchmarks.landscape.landscape import EARLY, FOLDER, Arm, Landscape, told_of
from benchmarks.trained import lines_of
from benchmarks.workers import spawned
from search_spaces.space import SAMPLERS, STARTUP, SearchSpace
from sweep.study.proposals import Observation, Point
from sweep.study.sampler import ask, constraint_of, distributions_of, propose
from trainables.plain import Json

BUDGETS = (5, 10, 20, 50)
REPEATS = 100
LONG = {"gp": (50, 10)}  # repeats in all, and to the last budget
STARTS = 3
WORSE = 1e3  # than any objective: CMA-ES knows ranks alone
Ask = Callable[[int, Sequence[Observation]], Point]  # number of the proposal, outcomes so far


def of_a_sweep(sampler: str, space: SearchSpace, seed: int) -> Ask:
    """The search of a sweep with this sampler."""
    mine = replace(space, sampler=sampler, sampler_seed=seed)  # type: ignore[arg-type]
    return lambda number, told: propose(mine, "only", number, told)


def ctpe(space: SearchSpace, seed: int) -> Ask:
    """c-TPE, started as our TPE is."""
    (setting,) = space.settings

    def asked(number: int, told: Sequence[Observation]) -> Point:
        if number == 0:
            return space.default_point(setting)
        sampler = ConstrainedTPE(
            n_startup_trials=STARTUP, multivariate=True, seed=1000 * seed + number
        )
        return ask(space, setting, sampler, told)

    return asked


def cma(space: SearchSpace, seed: int) -> Ask:
    """CMA-ES from the setting's first point."""
    (setting,) = space.settings
    first = space.coordinates_of(setting, space.default_point(setting))
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", FutureWarning
        )  # `x0` is to go, and nothing is to replace it
        study = optuna.create_study(sampler=CmaEsSampler(x0=first, seed=seed))
    study.enqueue_trial(first)
    distributions = distributions_of(space, setting)

    def asked(number: int, told: Sequence[Observation]) -> Point:
        if number:
            missed = constraint_of(told[-1], space.tolerance)
            study.tell(number - 1, WORSE + missed if missed > 0 else told[-1].objective)
        return space.point_of(setting, study.ask(distributions).params)

    return asked


SEARCHES: dict[str, Callable[[SearchSpace, int], Ask]] = {
    **{sampler: partial(of_a_sweep, sampler) for sampler in SAMPLERS},
    "ctpe": ctpe,
    "cma": cma,
}


@dataclass(frozen=True)
class Searched:
    """One search: the indices of the arms that it proposed, and what asking for them took."""

    arms: list[int]
    seconds: list[float]


def searched(
    landscape: Landscape,
    kind: str,
    seed: int,
    *,
    budget: int = BUDGETS[-1],
    again: bool = False,
    starts: Sequence[int] = (),
) -> Searched:
    """The first proposals of one search, in their order; ``starts`` are arms that come first."""
    asked = SEARCHES[kind](landscape.space, seed)
    taken: list[int] = []
    told: list[Observation] = []
    seconds = []
    for number in range(budget):
        before = time.process_time()
        if number < len(starts):
            index = starts[number]
        else:
            index = landscape.nearest(asked(number, told), () if again else taken)
        seconds.append(time.process_time() - before)
        taken.append(index)
        told.append(told_of(number, landscape.arms[index]))
    return Searched(taken, seconds)


def starts_from(other: Landscape, landscape: Landscape) -> list[int]:
    """The arms nearest to where the other landscape's best winners lie in their box."""
    winners = [arm for arm in other.arms if other.wins(arm)]
    starts: list[int] = []
    for arm in sorted(winners, key=lambda arm: float(arm["objective"]))[:STARTS]:
        starts.append(landscape.nearest_to(arm["shares"], starts))
    return starts


def mean_and_error(values: Iterable[float]) -> list[float | None]:
    """Mean and its standard error; None where there are too few."""
    numbers = list(values)
    mean = float(np.mean(numbers)) if numbers else None
    error = float(np.std(numbers, ddof=1)) / math.sqrt(len(numbers)) if len(numbers) > 1 else None
    return [mean, error]


def finished_best(landscape: Landscape, arms: Sequence[Arm]) -> float:
    """The least objective of a winner among arms that no early sign ends."""
    return landscape.best([arm for arm in arms if arm["would_end"] is None])


def summary(landscape: Landscape, runs: Sequence[Searched], budget: int) -> dict[str, Json]:
    """Means over repeats of the first ``budget`` proposals."""
    best = finished_best(landscape, landscape.arms)
    worst = max(arm["objective"] for arm in landscape.arms if landscape.wins(arm))
    runs = [run for run in runs if len(run.arms) >= budget]
    found = [
        finished_best(landscape, [landscape.arms[index] for index in run.arms[:budget]])
        for run in runs
    ]
    return {
        "repeats": len(runs),
        "with_a_winner": mean_and_error(float(math.isfinite(one)) for one in found),
        "regret": mean_and_error(one - best for one in found if math.isfinite(one)),
        "regret_or_worst": mean_and_error(min(one, worst) - best for one in found),
        "seconds_an_ask": mean_and_error(float(np.mean(run.seconds[:budget])) for run in runs),
    }


def described(landscape: Landscape) -> dict[str, Json]:
    """What a landscape holds."""
    wins = [arm for arm in landscape.arms if landscape.wins(arm)]
    return {
        "arms": len(landscape.arms),
        "feasible": sum(bool(arm["feasible"]) for arm in landscape.arms),
        "not_binding": sum(bool(arm["feasible"] and arm["not_binding"]) for arm in landscape.arms),
        "could_win": len(wins),
        "ended_early": sum(told_of(0, arm).outcome in EARLY for arm in landscape.arms),
        "best": min(arm["objective"] for arm in wins),
        "worst": max(arm["objective"] for arm in wins),
        "unconstrained": landscape.plain_objective,
    }


@dataclass(frozen=True)
class Task:
    """One search of one landscape."""

    path: Path
    name: str  # what its results are listed under
    kind: str
    seed: int
    budget: int
    again: bool
    starts: tuple[int, ...] = ()

    @property
    def key(self) -> tuple[str, str, int]:
        """What it is kept under."""
        return self.path.stem, self.name, self.seed


def of_task(task: Task) -> Searched:
    """What a worker does."""
    torch.set_num_threads(1)
    return searched(
        Landscape.of_file(task.path),
        task.kind,
        task.seed,
        budget=task.budget,
        again=task.again,
        starts=task.starts,
    )


def installed() -> list[str]:
    """Every search but CMA-ES where its package is missing."""
    return [kind for kind in SEARCHES if kind != "cma" or find_spec("cmaes") is not None]


def main() -> None:
    """Replay on every landscape, by default those that are recorded here."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "out", type=Path, nargs="?", help="go on with this file; default: print alone"
    )
    parser.add_argument("landscapes", type=Path, nargs="*", default=sorted(FOLDER.glob("*.json")))
    parser.add_argument("--samplers", nargs="*", default=installed(), choices=list(SEARCHES))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--most", type=int, default=BUDGETS[-1], choices=BUDGETS[1:])
    parser.add_argument("--again", action="store_true")
    options = parser.parse_args()
    if options.out is not None:
        options.out.write_text(replayed(options, options.out), encoding="utf-8")
        return
    with tempfile.TemporaryDirectory(prefix="replay-") as folder:
        print(replayed(options, Path(folder, "out.json")), end="")


def replayed(options: argparse.Namespace, out: Path) -> str:
    """The JSON; every search is kept beside ``out``."""
    budgets_there = [budget for budget in BUDGETS if budget <= options.most]
    landscapes = {path: Landscape.of_file(path) for path in options.landscapes}
    tasks: list[Task] = []
    for path, landscape in landscapes.items():
        for kind in options.samplers:
            repeats, long = LONG.get(kind, (REPEATS, REPEATS))
            repeats = min(repeats, options.repeats)
            budgets = [budgets_there[-1 if seed < long else -2] for seed in range(repeats)]
            tasks += [
                Task(path, kind, kind, seed, budget, options.again)
                for seed, budget in sorted(enumerate(budgets), key=lambda one: one[1])
            ]
        for other in landscapes:
            if other != path and "tpe" in options.samplers:
                starts = tuple(starts_from(landscapes[other], landscape))
                name = f"tpe from {other.stem}"
                tasks += [
                    Task(path, name, "tpe", seed, options.most, options.again, starts)
                    for seed in range(options.repeats)
                ]
    kept = out.with_suffix(".again.jsonl" if options.again else ".jsonl")
    found: dict[tuple[str, str, int], Searched] = {}
    for *of, arms, seconds in lines_of(kept):
        found[tuple(of)] = Searched(arms, seconds)
    missing = [task for task in tasks if task.key not in found]
    with spawned(options.workers) as pool:
        for task, run in zip(missing, pool.map(of_task, missing), strict=True):
            found[task.key] = run
            with kept.open("a", encoding="utf-8") as file:
                file.write(json.dumps([*task.key, run.arms, run.seconds]) + "\n")
    result: dict[str, Json] = {}
    for path, landscape in landscapes.items():
        names = dict.fromkeys(name for stem, name, _ in found if stem == path.stem)
        result[path.stem] = described(landscape)
        for name in names:
            runs = [one for key, one in found.items() if key[:2] == (path.stem, name)]
            result[path.stem][name] = {str(b): summary(landscape, runs, b) for b in budgets_there}
    return json.dumps(result, indent=1) + "\n"


if __name__ == "__main__":
    main()
