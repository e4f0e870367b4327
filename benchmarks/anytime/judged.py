"""Verdicts on anytime networks: families as frontiers, seed by seed. Pure.

A network has the metric after every layer. Its *end* is that of the last one, its *area* the mean
over layers 1 to L. A family is what its networks reach together: at each allowance, the largest
reduction of the area, as a fraction of plain training's on the same seed, among those whose end is
worse than plain's by the allowance at most. Its *reach* is the mean of that over allowances from 0
to LARGEST, which is the hypervolume that its frontier dominates, over the box's width. The unit is
the seed, and the tests are paired. ``unseen`` puts the last layer's mean error on unseen noise in
the place of the area.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from benchmarks.anytime.declared import PLAIN, Setting
from benchmarks.leads.judged import interval
from trainables.config.arm import ArmConfig
from trainables.config.test_conditions import gamma_key, unseen_gammas
from trainables.plain import Json

LARGEST = 0.05  # of the end's error: what a user would give up at most
ALLOWANCES = np.linspace(0.0, LARGEST, 101)
SHOWN = (0.0, 0.005, 0.01, 0.02, 0.05)
CONSTRAINED = ("Lagrangian", "detached")
SUPERVISED = ("deep supervision", "deep supervision, scheduled")
ERROR = 0.05
EQUIVALENT = 0.01  # of plain training's error under a condition: no effect of interest
BUDGETS = (1.5, 2.0, 3.0, 4.0)  # mean layers per sample


@dataclass(frozen=True)
class Point:
    """Two errors of a network over plain training's on the same seed."""

    end: float
    other: float


def reductions(points: Iterable[Point], allowances: Sequence[float]) -> list[float]:
    """The largest reduction of the other error at each allowance of the end's; plain's is 0.

    >>> reductions([Point(1.01, 0.5), Point(1.03, 0.2)], (0.0, 0.02, 0.04))
    [0.0, 0.5, 0.8]
    """
    points = [Point(1.0, 1.0), *points]
    return [
        round(1.0 - min(p.other for p in points if p.end <= 1.0 + allowance + 1e-12), 12)
        for allowance in allowances
    ]


def reach(points: Iterable[Point]) -> float:
    """The mean reduction over allowances from 0 to LARGEST."""
    return fmean(reductions(points, list(ALLOWANCES)))


def judged(setting: Setting, by_seed: Mapping[int, Json]) -> Json:
    """What a setting came to: every network's scores, families' frontiers, and their tests."""
    config = setting.base
    family_of = {network.name: network.family for network in setting.networks}
    families: dict[str, list[str]] = {}
    for name, family in family_of.items():
        families.setdefault(family, []).append(name)
    families["constrained"] = [n for f in CONSTRAINED for n in families.get(f, [])]
    families["supervised"] = [n for f in SUPERVISED for n in families.get(f, [])]
    errors = {
        name: {
            of: [_errors(config, arms[name])[of] for arms in by_seed.values()]
            for of in ("end", "area", "unseen")
        }
        for name in family_of
    }
    return {
        "says": setting.says,
        "base": config.changed(),
        "seeds": list(by_seed),
        "networks": {
            name: {
                "family": family_of[name],
                **errors[name],
                "layers": _mean_layers(config, [arms[name] for arms in by_seed.values()]),
            }
            for name in family_of
        },
        "frontiers": {of: _frontiers(families, errors, of) for of in ("area", "unseen")},
        "adaptive": _adaptive(families, by_seed, config.model.layers),
        "shifts": _shifts(config, families, by_seed),
    }


def _errors(config: ArmConfig, scores: Json) -> dict[str, float]:
    by_gamma = scores["by_gamma"]
    layers = [_error(config, value) for value in by_gamma[gamma_key(config.train_gamma)][1:]]
    unseen = [_error(config, by_gamma[gamma_key(g)][-1]) for g in unseen_gammas(config)]
    return {"end": layers[-1], "area": fmean(layers), "unseen": fmean(unseen)}


def _error(config: ArmConfig, score: float) -> float:
    return 1.0 - score if config.facts.metric.higher_is_better else score


def _mean_layers(config: ArmConfig, scores: Sequence[Json]) -> list[float]:
    key = gamma_key(config.train_gamma)
    return [fmean(column) for column in zip(*(one["by_gamma"][key] for one in scores), strict=True)]


def _frontiers(
    families: Mapping[str, Sequence[str]], errors: Mapping[str, Mapping[str, list[float]]], of: str
) -> Json:
    """Of every family: reductions at the SHOWN allowances and the reach; and differences."""
    plain = errors[PLAIN]
    seeds = range(len(plain["end"]))
    reaches: dict[str, list[float]] = {}
    shown: dict[str, list[list[float]]] = {}
    for family, names in families.items():
        points = [
            [
                Point(errors[name]["end"][k] / plain["end"][k], errors[name][of][k] / plain[of][k])
                for name in names
            ]
            for k in seeds
        ]
        reaches[family] = [reach(one) for one in points]
        shown[family] = [reductions(one, SHOWN) for one in points]
    rivals = [f for f in families if f not in (PLAIN, "constrained", *CONSTRAINED)]
    return {
        "reach": {family: interval(values) for family, values in reaches.items()},
        "at": {family: np.mean(rows, axis=0).tolist() for family, rows in shown.items()},
        "against": {
            side: {
                rival: _decided(np.subtract(reaches[side], reaches[rival]).tolist())
                for rival in rivals
            }
            for side in ("constrained", *CONSTRAINED)
            if families.get(side)
        },
    }


def _shifts(
    config: ArmConfig, families: Mapping[str, Sequence[str]], by_seed: Mapping[int, Json]
) -> Json:
    """Under every other condition: the constraint's reach less each rival's, and the outcome."""
    conditions = list(next(iter(by_seed.values()))[PLAIN]["shifts"])
    found: dict[str, Json] = {}
    for condition in conditions:
        reaches: dict[str, list[float]] = {}
        for arms in by_seed.values():
            plain = (
                _errors(config, arms[PLAIN])["end"],
                _error(config, arms[PLAIN]["shifts"][condition]),
            )
            for family, names in families.items():
                points = [
                    Point(
                        _errors(config, arms[name])["end"] / plain[0],
                        _error(config, arms[name]["shifts"][condition]) / plain[1],
                    )
                    for name in names
                ]
                reaches.setdefault(family, []).append(reach(points))
        found[condition] = {
            rival: _decided(np.subtract(reaches["constrained"], reaches[rival]).tolist())
            for rival in (PLAIN, "plain, more noise", "supervised")
            if rival in reaches
        }
    return found


def _decided(differences_K: Sequence[float]) -> Json:
    """An interval with its outcome: better, worse, equivalent (within EQUIVALENT) or undecided."""
    found = interval(differences_K)
    if "interval" not in found:
        return {**found, "mean": fmean(differences_K), "outcome": "undecided"}
    low, high = found["interval"]
    agrees = found["sign_flip_p"] <= ERROR
    if agrees and low > 0:
        return {**found, "outcome": "better"}
    if agrees and high < 0:
        return {**found, "outcome": "worse"}
    is_equivalent = low > -EQUIVALENT and high < EQUIVALENT
    return {**found, "outcome": "equivalent" if is_equivalent else "undecided"}


def _adaptive(
    families: Mapping[str, Sequence[str]], by_seed: Mapping[int, Json], layers: int
) -> Json:
    """Of every family and budget: depth and score where the threshold was chosen on dev."""
    found: dict[str, Json] = {}
    for family, names in families.items():
        with_curves = [n for n in names if "adaptive" in next(iter(by_seed.values()))[n]]
        if not with_curves:
            continue
        budgets = [budget for budget in BUDGETS if budget < layers]
        rows = [
            [_chosen({n: arms[n]["adaptive"] for n in with_curves}, budget) for budget in budgets]
            for arms in by_seed.values()
        ]
        found[family] = [
            {
                "budget": budget,
                "depth": [row[i][0] for row in rows],
                "score": [row[i][1] for row in rows],
                "at_one_depth": [row[i][2] for row in rows],
            }
            for i, budget in enumerate(budgets)
        ]
    return found


def _chosen(curves: Mapping[str, Json], budget: float) -> tuple[float, float, float]:
    """Mean layers and score on test of the best on dev within a budget; and of all at one depth.

    RMSE: the least score is the best.
    """
    tries = [
        (curve["dev"]["score"][i], name, i)
        for name, curve in curves.items()
        for i, depth in enumerate(curve["dev"]["depth"])
        if depth <= budget
    ]
    layer = int(budget) - 1
    best_fixed = min(curves.values(), key=lambda curve: curve["dev"]["fixed"][layer])
    fixed = best_fixed["test"]["fixed"][layer]
    if not tries:  # no threshold stops early enough: all stop at one depth
        return float(layer + 1), fixed, fixed
    _, name, i = min(tries)
    test = curves[name]["test"]
    return test["depth"][i], test["score"][i], fixed
