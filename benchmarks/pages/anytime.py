"""Tables of docs/anytime.md, from results/anytime.json."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from benchmarks.anytime.declared import SEEDS, SETTINGS
from benchmarks.anytime.judged import (
    CHOSEN_AT,
    CONSTRAINED,
    EQUIVALENT,
    LARGEST,
    SHOWN,
    SUPERVISED,
    TESTED_BUDGETS,
)
from benchmarks.pages.made import Made, number, results, table
from trainables.plain import Json

JOINT = {"constrained": "constrained, both forms", "supervised": "deep supervision, both kinds"}


def made() -> Made:
    """What the page has of results."""
    found = results("anytime")
    tables: dict[str, str] = {}
    for name, setting in found.items():
        called = name.replace("_", " ")
        tables[f"{called} frontier"] = _frontier(setting["frontiers"])
        tables[f"{called} against"] = _against(setting["frontiers"]["against"])
        tables[f"{called} ends"] = _ends(setting["ends"])
        tables[f"{called} layers"] = _layers(setting["layers"])
        tables[f"{called} exits"] = _exits(setting["adaptive"])
        tables[f"{called} stopping"] = _stopping(setting["stopping"])
        tables[f"{called} conditions"] = _conditions(setting["conditions"])
    return Made(tables, list(_facts(found)), start="At each *allowance*")


def _facts(found: Json) -> Iterator[str]:
    yield f"{SEEDS} fresh seeds"
    ut, dust = (
        [
            sum(network.method in side for network in SETTINGS[name].pilots)
            for side in (CONSTRAINED, SUPERVISED)
        ]
        for name in ("ped2_ut", "ped2_dust")
    )
    yield f"({ut[0]} and {ut[1]}; DUST {dust[0]} and {dust[1]})"
    yield f"from 0 to {100 * LARGEST:g} %"
    yield f"within {100 * EQUIVALENT:g} % of plain training's error"
    yield f"an allowance of {100 * CHOSEN_AT:g} %"
    assert CHOSEN_AT in SHOWN
    assert all(len(setting["seeds"]) == SEEDS for setting in found.values())


def percent(value: float, *, signed: bool = False) -> str:
    """A fraction in per cent, to one decimal."""
    return number(100 * value, 1, signed=signed)


def _frontier(frontiers: Json) -> str:
    """Of every method the reduction, and the end's cost, at each allowance; and their mean."""
    rows = [
        [
            JOINT.get(method, method),
            *(f"{percent(at['reduction'])}; {percent(at['cost'], signed=True)}" for at in of),
            percent(fmean(frontiers["mean reduction"][method]["by_seed"])),
        ]
        for method, of in frontiers["shown"].items()
    ]
    head = [f"at {100 * allowance:g} %" for allowance in SHOWN]
    return table(["area less; end more, in %", *head, "mean reduction"], rows)


def _against(tests: Sequence[Mapping[str, Json]]) -> str:
    """Differences of mean reductions, in points of per cent; the first is the primary one."""
    rows = [
        [*(JOINT.get(str(of[who]), str(of[who])) for who in ("side", "rival")), *_tested(of)]
        for of in tests
    ]
    return table(["network", "against", "difference", "seeds", "p", "outcome"], rows)


def _ends(ends: Json) -> str:
    """What is taken off plain training's error at the last layer, and constraints against each."""
    tested = {of["rival"]: _tested(of) for of in ends["against"]}
    rows = [
        [JOINT.get(method, method), percent(fmean(of["by_seed"])), *tested.get(method, ["—"] * 4)]
        for method, of in ends["reduction"].items()
    ]
    head = ["last layer, in %", "error less", "constrained less it", "seeds", "p", "outcome"]
    return table(head, rows)


def _tested(of: Mapping[str, Json]) -> list[str]:
    """A difference with its interval, on how many seeds it is above 0, adjusted p, the outcome."""
    low, high = of["interval"]
    return [
        f"{percent(of['mean'], signed=True)} ({percent(low)} to {percent(high)})",
        f"{of['better_in']} of {of['seeds']}",
        number(of["p"], 3, short=True),
        of["outcome"],
    ]


def _layers(layers: Mapping[str, Sequence[float]]) -> str:
    """The metric after every layer, of each method's networks at one allowance."""
    rows = [
        [JOINT.get(method, method), *(number(value, 2) for value in of[1:])]
        for method, of in layers.items()
    ]
    return table(["RMSE after layer", *map(str, range(1, len(layers["plain"])))], rows)


def _exits(adaptive: Json) -> str:
    """Mean layers used and score, of samples that stop by themselves; and all at one depth."""
    rows = []
    for method, budgets in adaptive.items():
        cells = []
        for of in budgets:
            if of["budget"] not in TESTED_BUDGETS:
                continue
            depth, score = fmean(of["depth"]), fmean(of["score"])
            alone = number(fmean(of["at_one_depth"]), 2)
            cells.append(f"{number(score, 2)} by {number(depth, 1)}; {alone}")
        rows.append([JOINT.get(method, method), *cells])
    head = [f"at most {budget:g}" for budget in TESTED_BUDGETS]
    return table(["RMSE by layers used; all at one", *head], rows)


def _stopping(tests: Sequence[Mapping[str, Json]]) -> str:
    """Constrained networks whose samples stop, against others, in % of plain's last error."""
    rows = [
        [
            number(float(of["budget"]), 0),
            JOINT.get(str(of["rival"]), str(of["rival"])),
            *_tested(of),
        ]
        for of in tests
    ]
    return table(["layers at most", "against", "error less", "seeds", "p", "outcome"], rows)


def _conditions(conditions: Mapping[str, Mapping[str, Json]]) -> str:
    """Differences of the error in % of plain training's, above 0 where constraining is better."""
    rivals = list(next(iter(conditions.values())))
    rows = [
        [
            condition,
            *(f"{percent(of[r]['mean'], signed=True)}, {of[r]['outcome']}" for r in rivals),
        ]
        for condition, of in conditions.items()
    ]
    counts = [
        ", ".join(
            f"{sum(of[rival]['outcome'] == one for of in conditions.values())} {one}"
            for one in ("better", "equivalent", "worse", "undecided")
        )
        for rival in rivals
    ]
    head = [f"against {JOINT.get(rival, rival)}" for rival in rivals]
    return table(["test condition", *head], [*rows, ["of all", *counts]])
