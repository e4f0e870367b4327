"""Tables of docs/anytime.md, from results/anytime.json."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from benchmarks.anytime.declared import SEEDS
from benchmarks.anytime.judged import EQUIVALENT, LARGEST, SHOWN
from benchmarks.pages.made import Made, number, results, table
from trainables.plain import Json

JOINT = {"constrained": "constrained, both forms", "supervised": "deep supervision, both kinds"}


def made() -> Made:
    """What the page has of results."""
    found = results("anytime")
    tables: dict[str, str] = {}
    for name, setting in found.items():
        called = name.replace("_", " ")
        tables[f"{called} frontier"] = _frontier(setting["frontiers"]["area"])
        tables[f"{called} against"] = _against(setting["frontiers"]["area"])
        tables[f"{called} unseen"] = _frontier(setting["frontiers"]["unseen"])
        tables[f"{called} layers"] = _layers(setting)
        tables[f"{called} exits"] = _exits(setting["adaptive"])
        tables[f"{called} shifts"] = _shifts(setting["shifts"])
    return Made(tables, list(_facts(found)), start="## What was found")


def _facts(found: Json) -> Iterator[str]:
    yield f"{SEEDS} fresh seeds"
    yield f"from 0 to {100 * LARGEST:g} %"
    yield f"within {100 * EQUIVALENT:g} % of plain training's error"
    assert all(len(setting["seeds"]) == SEEDS for setting in found.values())


def percent(value: float) -> str:
    """A fraction in per cent, to one decimal."""
    return number(100 * value, 1)


def _frontier(frontier: Json) -> str:
    """Of every family the largest reduction at each allowance, and its reach; in per cent."""
    rows = [
        [
            JOINT.get(family, family),
            *(percent(value) for value in frontier["at"][family]),
            _mean(of),
        ]
        for family, of in frontier["reach"].items()
    ]
    head = [f"at {100 * allowance:g} %" for allowance in SHOWN]
    return table(["reduction in %", *head, "reach"], rows)


def _mean(of: Mapping[str, Json]) -> str:
    return percent(fmean(of["by_seed"]))


def _against(frontier: Json) -> str:
    """Differences of reach, in points of per cent, with paired intervals over seeds."""
    rows = []
    for side, rivals in frontier["against"].items():
        for rival, of in rivals.items():
            rows.append([JOINT.get(side, side), JOINT.get(rival, rival), *_tested(of)])
    return table(["network", "against", "difference of reach", "seeds", "p", "outcome"], rows)


def _tested(of: Mapping[str, Json]) -> list[str]:
    """A difference with its interval, on how many seeds it is above 0, p, and the outcome."""
    if "interval" not in of:
        return [percent(fmean(of["by_seed"])), f"of {of['seeds']}", "", "too few seeds"]
    low, high = of["interval"]
    mean = number(100 * of["mean"], 1, signed=True)
    return [
        f"{mean} ({percent(low)} to {percent(high)})",
        f"{of['better_in']} of {of['seeds']}",
        number(of["sign_flip_p"], 3, short=True),
        of["outcome"],
    ]


def _layers(setting: Json) -> str:
    """The metric after every layer, of each family's network of the least area within 2 %."""
    networks = setting["networks"]
    plain = networks["plain"]
    chosen: dict[str, str] = {}
    for name, network in networks.items():
        if fmean(network["end"]) > 1.02 * fmean(plain["end"]):
            continue
        best = chosen.get(network["family"])
        if best is None or fmean(network["area"]) < fmean(networks[best]["area"]):
            chosen[network["family"]] = name
    rows = [
        [name, *(number(value, 2) for value in networks[name]["layers"][1:])]
        for name in chosen.values()
    ]
    count = len(plain["layers"]) - 1
    return table(["RMSE after layer", *map(str, range(1, count + 1))], rows)


def _exits(adaptive: Json) -> str:
    """Mean layers used and score, of samples that stop by themselves; and all at one depth."""
    rows = []
    for family, budgets in adaptive.items():
        cells = []
        for of in budgets:
            depth, score = fmean(of["depth"]), fmean(of["score"])
            alone = number(fmean(of["at_one_depth"]), 2)
            cells.append(f"{number(score, 2)} by {number(depth, 1)}; {alone}")
        rows.append([JOINT.get(family, family), *cells])
    head = [f"at most {of['budget']:g}" for of in adaptive["plain"]]
    return table(["RMSE by layers used", *head], rows)


def _shifts(shifts: Json) -> str:
    """Differences of reach under each condition, the constraint's less each rival's."""
    rivals: Sequence[str] = list(next(iter(shifts.values())))
    rows = []
    for condition, of in shifts.items():
        cells = [
            f"{number(100 * one['mean'], 1, signed=True)}, {one['outcome']}" for one in of.values()
        ]
        rows.append([condition, *cells])
    counts = [
        ", ".join(
            f"{sum(of[rival]['outcome'] == one for of in shifts.values())} {one}"
            for one in ("better", "equivalent", "worse", "undecided")
        )
        for rival in rivals
    ]
    rows.append(["of all", *counts])
    return table(["condition", *(JOINT.get(rival, rival) for rival in rivals)], rows)
