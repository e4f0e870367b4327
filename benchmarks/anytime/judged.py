"""Verdicts on anytime networks: methods as frontiers, seed by seed. Pure.

A network has the metric after every layer. Its *end* is that of the last one, its *area* the mean
over layers 1 to L. At each allowance a method is the network of it that has the least area on the
dev split, among those whose end there is worse than plain training's by the allowance at most; it
is scored on the test split, as the reduction of plain training's area on the same seed. A method's
mean reduction is over allowances from 0 to LARGEST. The unit is the seed, and differences are
paired. One contrast a setting is primary, PRIMARY; Holm's correction is over all others of areas,
over those of the last layer, of samples that stop, and of each rival's test conditions. Plain
training on more noise is a rival under test conditions alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

import numpy as np

from benchmarks.anytime.declared import NOISE, NOISIER, PLAIN, Network, Setting
from benchmarks.leads.judged import interval
from sweep.statistics.multiplicity import holm
from sweep.statistics.paired import mean_and_error, t_p
from trainables.config.arm import ArmConfig
from trainables.config.test_conditions import gamma_key, unseen_gammas
from trainables.plain import Json

LARGEST = 0.05  # of the end's error: what a user would give up at most
ALLOWANCES = np.linspace(0.0, LARGEST, 51)
SHOWN = (0.0, 0.005, 0.01, 0.02, 0.05)
CHOSEN_AT = 0.01  # the allowance at which one network a method stands for it
CONDITIONED_AT = {"conditions": CHOSEN_AT, "conditions_at_most": LARGEST}
ERROR = 0.05
EQUIVALENT = 0.01  # of plain training's error: no effect of interest
CONSTRAINED = ("Lagrangian", "detached")
SUPERVISED = ("deep supervision", "deep supervision, scheduled")
PRIMARY = ("constrained", "supervised")
JOINT = {"constrained": "constrained, both forms", "supervised": "deep supervision, both kinds"}
# Constrained networks that other methods are made from: those are compared with them alone.
SOURCES = "detached, replayed elsewhere"
REPLAYS = ("replayed weights", "mean of replayed weights")
SAME_END = ("exits on frozen plain", "a network for each depth")  # plain training's last layer
FROZEN = "exits on frozen detached"  # a constrained network's last layer
CUT = "a plain network for each depth"
ONE_DEPTH = "all samples at one depth"
BUDGETS = (1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5)  # mean layers per sample
TESTED_BUDGETS = (2.0, 3.0, 4.0)
Errors = Mapping[str, Mapping[str, float]]  # end and area, by network


def chosen(names: Sequence[str], dev: Errors, allowance: float) -> str:
    """The network of the least area within the allowance on dev; plain training, where none is.

    >>> dev = {"plain": {"end": 1, "area": 2}, "a": {"end": 1.1, "area": 1}}
    >>> chosen(["a"], dev, 0.05), chosen(["a"], dev, 0.2)
    ('plain', 'a')
    """
    most = dev[PLAIN]["end"] * (1.0 + allowance)
    within = [name for name in (PLAIN, *names) if dev[name]["end"] <= most or name == PLAIN]
    return min(within, key=lambda name: dev[name]["area"])


def reduction(errors: Errors, name: str, of: str = "area") -> float:
    """What a network takes off plain training's error, as a fraction of it; below 0 it is worse."""
    return 1.0 - errors[name][of] / errors[PLAIN][of]


def mean_reduction(names: Sequence[str], dev: Errors, test: Errors) -> float:
    """The mean reduction of the area on test, over allowances from 0 to LARGEST."""
    return fmean(reduction(test, chosen(names, dev, allowance)) for allowance in ALLOWANCES)


def judged(setting: Setting, config: ArmConfig, by_seed: Mapping[int, Json]) -> Json:
    """What a setting came to: every network's scores, methods' frontiers, and their tests."""
    method_of = {network.name: network.method for network in setting.networks}
    methods = methods_of(setting.networks)
    methods.pop(NOISE, None)
    dev, test = (
        [
            {name: errors_of(config, scores, split) for name, scores in arms.items()}
            for arms in by_seed.values()
        ]
        for split in ("dev", "test")
    )
    adaptive = _adaptive(methods, by_seed, config.model.layers)
    shown_at = _shown_at(methods[PRIMARY[0]], dev)
    return {
        "says": setting.says,
        "base": setting.base.changed(),
        "seeds": list(by_seed),
        "networks": {
            name: {
                "method": method_of[name],
                **{
                    f"{split} {of}": [one[name][of] for one in errors]
                    for split, errors in (("dev", dev), ("test", test))
                    for of in ("end", "area")
                },
            }
            for name in method_of
        },
        "frontiers": _frontiers(methods, dev, test),
        "ends": _ends(methods, dev, test),
        "shown_at": shown_at,
        "layers": _layers(methods, dev, by_seed, shown_at),
        "adaptive": adaptive,
        "stopping": _stopping(adaptive, by_seed),
        **{
            key: _conditions(config, setting.networks, dev, by_seed, allowance)
            for key, allowance in CONDITIONED_AT.items()
        },
    }


def methods_of(networks: Sequence[Network]) -> dict[str, list[str]]:
    """Names of networks by method, of both sides of the primary contrast, and of SOURCES."""
    methods: dict[str, list[str]] = {}
    for network in networks:
        methods.setdefault(network.method, []).append(network.name)
    for side, parts in zip(PRIMARY, (CONSTRAINED, SUPERVISED), strict=True):
        methods[side] = [name for part in parts for name in methods.get(part, [])]
    replayed = " ".join(name for replay in REPLAYS for name in methods.get(replay, []))
    if sources := [name for name in methods[PRIMARY[0]] if f"weights of {name}" in replayed]:
        methods[SOURCES] = sources
    return methods


def under_conditions(networks: Sequence[Network], dev: Errors, allowance: float) -> dict[str, str]:
    """The networks of a seed that are scored under other conditions, by what they stand for."""
    methods = methods_of(networks)
    return {
        **{method: chosen(methods[method], dev, allowance) for method in PRIMARY},
        **{name: name for name in (PLAIN, NOISIER) if name in dev},
    }


def errors_of(config: ArmConfig, scores: Json, split: str) -> dict[str, float]:
    """End and area of one network."""
    layers = [_error(config, value) for value in scores[split][1:]]
    return {"end": layers[-1], "area": fmean(layers)}


def _error(config: ArmConfig, score: float) -> float:
    return 1.0 - score if config.facts.metric.higher_is_better else score


def _frontiers(
    methods: Mapping[str, Sequence[str]], dev: Sequence[Errors], test: Sequence[Errors]
) -> Json:
    """Reductions of every method and the cost at its end, their mean, and differences of means.

    The cost is on test: an allowance is kept on dev.
    """
    both = list(zip(dev, test, strict=True))
    reductions = {f: [mean_reduction(names, *one) for one in both] for f, names in methods.items()}
    shown = {
        method: [
            {
                "allowance": allowance,
                "reduction": fmean(reduction(t, chosen(names, d, allowance)) for d, t in both),
                "cost": -fmean(reduction(t, chosen(names, d, allowance), "end") for d, t in both),
                "plain_on": sum(chosen(names, d, allowance) == PLAIN for d in dev),
            }
            for allowance in SHOWN
        ]
        for method, names in methods.items()
    }
    plain_instead = {
        method: fmean(chosen(names, d, a) == PLAIN for d in dev for a in ALLOWANCES)
        for method, names in methods.items()
    }
    own = (PRIMARY[0], *CONSTRAINED, SOURCES, FROZEN)
    pairs = [(PRIMARY[0], f) for f in methods if f not in (PLAIN, *own, *SUPERVISED, *REPLAYS)]
    pairs += [(form, PRIMARY[1]) for form in CONSTRAINED]
    pairs += [(FROZEN, SAME_END[0]), *((SOURCES, replay) for replay in REPLAYS)]
    differences = {
        (side, rival): np.subtract(reductions[side], reductions[rival]).tolist()
        for side, rival in pairs
        if side in reductions and rival in reductions
    }
    primary = decided({PRIMARY: differences.pop(PRIMARY)})
    return {
        "mean reduction": {method: interval(values) for method, values in reductions.items()},
        "shown": shown,
        "plain_instead": plain_instead,
        "against": [
            {"side": side, "rival": rival, **of}
            for (side, rival), of in {**primary, **decided(differences)}.items()
        ],
    }


def _ends(
    methods: Mapping[str, Sequence[str]], dev: Sequence[Errors], test: Sequence[Errors]
) -> Json:
    """What every method takes off plain training's error at the last layer; differences.

    Each stands with the network of the least end on dev, whatever its inner layers are. Methods
    that end as another one does are left out.
    """
    reductions = {
        method: [
            reduction(scores, min(names, key=lambda name: of[name]["end"]), "end")
            for of, scores in zip(dev, test, strict=True)
        ]
        for method, names in methods.items()
        if names and method not in (*SAME_END, FROZEN)
    }
    own = (PRIMARY[0], *CONSTRAINED, SOURCES)
    side = PRIMARY[0]
    differences = {
        (side, rival): np.subtract(reductions[side], reductions[rival]).tolist()
        for rival in reductions
        if rival not in (*own, *SUPERVISED, *REPLAYS)
    }
    return {
        "reduction": {method: interval(values) for method, values in reductions.items()},
        "against": [
            {"side": side, "rival": rival, **of}
            for (side, rival), of in decided(differences).items()
        ],
    }


def decided(differences: Mapping[tuple[str, str], Sequence[float]]) -> dict[tuple[str, str], Json]:
    """Intervals with p and outcomes, by Holm over all that are given.

    p is the larger one of the paired t test's and of sign flips'. Equivalent where the 95 %
    interval, which is not corrected, lies within EQUIVALENT of 0; else better or worse at ERROR;
    else undecided.
    """
    found = {of: interval(values) for of, values in differences.items()}
    if any("interval" not in one for one in found.values()):
        return {of: {**one, "outcome": "too few seeds"} for of, one in found.items()}
    raw = []
    for one, values in zip(found.values(), differences.values(), strict=True):
        by_t = float(t_p(*mean_and_error(np.array(values)), len(values)))
        raw.append(max(one["sign_flip_p"], by_t))
        if not any(values):  # the very same networks, where t has no interval
            one["interval"] = [0.0, 0.0]
    adjusted = holm(np.array(raw))
    for one, p in zip(found.values(), adjusted.tolist(), strict=True):
        low, high = one["interval"]
        one["p"] = p
        if low > -EQUIVALENT and high < EQUIVALENT:
            one["outcome"] = "equivalent"
        elif p <= ERROR:
            one["outcome"] = "better" if one["mean"] > 0 else "worse"
        else:
            one["outcome"] = "undecided"
    return found


def _shown_at(constrained: Sequence[str], dev: Sequence[Errors]) -> float:
    """CHOSEN_AT; or LARGEST, where plain training stands in for constraints on most seeds there."""
    on_plain = sum(chosen(constrained, of, CHOSEN_AT) == PLAIN for of in dev)
    return LARGEST if 2 * on_plain > len(dev) else CHOSEN_AT


def _layers(
    methods: Mapping[str, Sequence[str]],
    dev: Sequence[Errors],
    by_seed: Mapping[int, Json],
    allowance: float,
) -> Json:
    """The metric on test after every layer, of each method's network at the allowance."""
    found = {}
    for method, names in methods.items():
        rows = [
            arms[chosen(names, one, allowance)]["test"]
            for one, arms in zip(dev, by_seed.values(), strict=True)
        ]
        found[method] = [fmean(column) for column in zip(*rows, strict=True)]
    return found


def _conditions(
    config: ArmConfig,
    networks: Sequence[Network],
    dev: Sequence[Errors],
    by_seed: Mapping[int, Json],
    allowance: float,
) -> Json:
    """Under every other condition: the constrained network's error less each rival's.

    Each method stands with its network at the allowance; more noise with NOISIER. Differences are
    fractions of plain training's error there, above 0 where the constrained network is better.
    """
    keys = [gamma_key(gamma) for gamma in unseen_gammas(config)]
    errors: dict[str, list[dict[str, float]]] = {}  # by condition: who stands for what, by seed
    for arms, one in zip(by_seed.values(), dev, strict=True):
        names = under_conditions(networks, one, allowance)
        standing = {of: arms[name] for of, name in names.items()}
        for condition in arms[PLAIN]["shifts"]:
            errors.setdefault(condition, []).append(
                {of: _error(config, arm["shifts"][condition]) for of, arm in standing.items()}
            )
        if keys:
            errors.setdefault("unseen noise", []).append(
                {
                    of: fmean(_error(config, arm["by_gamma"][key][-1]) for key in keys)
                    for of, arm in standing.items()
                }
            )
    tested: dict[str, Json] = {}
    for rival in (PLAIN, PRIMARY[1], NOISIER):
        if not all(rival in one for of in errors.values() for one in of):
            continue
        of_rival = {
            (condition, rival): [(one[rival] - one[PRIMARY[0]]) / one[PLAIN] for one in of]
            for condition, of in errors.items()
        }
        for (condition, _), outcome in decided(of_rival).items():
            tested.setdefault(condition, {})[rival] = outcome
    return tested


def _adaptive(
    methods: Mapping[str, Sequence[str]], by_seed: Mapping[int, Json], layers: int
) -> Json:
    """Of every method and budget: depth and score of the network and rule that dev chooses."""
    budgets = [budget for budget in BUDGETS if budget < layers]
    found: dict[str, Json] = {}
    for method, names in methods.items():
        with_curves = [n for n in names if "adaptive" in next(iter(by_seed.values()))[n]]
        if not with_curves:
            continue
        rows = [
            [stopped({n: arms[n]["adaptive"] for n in with_curves}, budget) for budget in budgets]
            for arms in by_seed.values()
        ]
        found[method] = [
            {
                "budget": budget,
                "depth": [row[i][0] for row in rows],
                "score": [row[i][1] for row in rows],
                "at_one_depth": [row[i][2] for row in rows],
            }
            for i, budget in enumerate(budgets)
        ]
    return found


def _stopping(adaptive: Json, by_seed: Mapping[int, Json]) -> Sequence[Json]:
    """The constrained networks whose samples stop by themselves, against others, by budget.

    Differences are fractions of the plain network's error at its last layer, above 0 where the
    constrained side is better. Rivals are the other methods whose samples stop, the constrained
    networks at one depth, and CUT, the plain network that has as many layers as the budget.
    """
    ends_S = np.array([arms[PLAIN]["test"][-1] for arms in by_seed.values()])
    ours = {of["budget"]: of for of in adaptive[PRIMARY[0]]}
    differences: dict[tuple[str, str], list[float]] = {}
    for i, budget in enumerate(ours):
        if budget not in TESTED_BUDGETS:
            continue
        rivals = {
            rival: adaptive[rival][i]["score"]
            for rival in (PRIMARY[1], PLAIN, *SAME_END)
            if rival in adaptive
        }
        rivals[ONE_DEPTH] = ours[budget]["at_one_depth"]
        rivals[CUT] = [arms[CUT]["test"][int(budget)] for arms in by_seed.values()]
        for rival, theirs in rivals.items():
            less_S = np.subtract(theirs, ours[budget]["score"]) / ends_S
            differences[f"{budget:g}", rival] = less_S.tolist()
    return [
        {
            "budget": float(budget),
            "rival": rival,
            "layers": fmean(ours[float(budget)]["depth"]),
            **of,
        }
        for (budget, rival), of in decided(differences).items()
    ]


def stopped(curves: Mapping[str, Json], budget: float) -> tuple[float, float, float]:
    """Mean layers and score on test of the best on dev within a budget; the best at one depth's.

    All samples may stop at one depth, so that stopping by sample can only be an addition. Of RMSE:
    the least score is the best.
    """
    at_one_depth = [
        (curve["dev"]["fixed"][i], float(i + 1), curve["test"]["fixed"][i])
        for curve in curves.values()
        for i in range(int(budget))
    ]
    by_sample = [
        (curve["dev"]["score"][i], curve["test"]["depth"][i], curve["test"]["score"][i])
        for curve in curves.values()
        for i, depth in enumerate(curve["dev"]["depth"])
        if depth <= budget
    ]
    _, depth, score = min(at_one_depth + by_sample)
    return depth, score, min(at_one_depth)[-1]
