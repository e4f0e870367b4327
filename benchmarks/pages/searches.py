"""Tables and figures of what docs/spaces.md says of one layer and of searches."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator

from benchmarks.pages.made import RESULTS, Made, number, results, table
from trainables.plain import Json

START = "## What the search finds: `benchmarks/search_replay.py`"
LANDSCAPES = {"imdb_ut": "IMDb", "ped2_ut": "Ped2"}
SAMPLERS = {
    "random": "`random`",
    "quasi_random": "`quasi_random`",
    "cma": "CMA-ES, infeasible is worse",
    "tpe": "`tpe`",
    "ctpe": "c-TPE",
    "gp": "`gp`",
}
POINTS = ("10", "20", "50")  # with 5 nothing can be distinguished
ARMS = "16"
STOPPING = {
    "early_signs": "early signs, as a sweep does",
    "halving": "the better half at 1/4 and at 1/2 of the steps",
    "three_quarters": "the better three of four",
    "median": "not worse than the median so far",
}


def made() -> Made:
    """What the page has of results."""
    replayed, halved = results("search_replay"), results("halving_replay")
    tables = {f"samplers {name}": _samplers(replayed[name]) for name in LANDSCAPES}
    tables["stopping"] = _stopping(halved)
    return Made(tables, list(_facts(replayed, halved)), START)


def _short(value: float, digits: int) -> str:
    return number(value, digits, short=True)


def _samplers(of: Json) -> str:
    """Share of searches with a winner, and regret with its standard error."""

    def cell(one: Json) -> str:
        share, (regret, error) = one["with_a_winner"][0], one["regret_or_worst"]
        return f"{_short(share, 2)}; {_short(regret, 4)} ({_short(error, 4)})"

    rows = [[called, *(cell(of[name][n]) for n in POINTS)] for name, called in SAMPLERS.items()]
    return table(["", *(f"{n} points" for n in POINTS)], rows)


def _stopping(halved: Json) -> str:
    def cell(one: Json) -> str:
        lost, low, high = (f"{100 * v:.0f}" for v in one["winner_lost"])
        return f"{100 * one['saved'][0]:.0f} %, {lost} % ({low} to {high})"

    landscapes = [halved["landscapes"][of][ARMS]["stopping"] for of in LANDSCAPES]
    rows = [[called, *(cell(of[name]) for of in landscapes)] for name, called in STOPPING.items()]
    return table(["", *(f"{called}: saved, lost" for called in LANDSCAPES.values())], rows)


def _facts(replayed: Json, halved: Json) -> Iterator[str]:
    imdb, ped2 = replayed["imdb_ut"], replayed["ped2_ut"]
    assert imdb["arms"] == ped2["arms"]
    yield f"of {imdb['arms']} arms each"
    for name, called in (("imdb_ut", "on IMDb"), ("ped2_ut", "on Ped2, the Lagrangian")):
        path = RESULTS.parent / "landscape" / f"{name}.json"
        base = json.loads(path.read_text(encoding="utf-8"))["base"]
        yield f"UT with {base['model']['layers']} layers {called}, {base['steps']} steps"
    yield f"{imdb['feasible']} are feasible, {imdb['not_binding']} of these not binding"
    yield f"so that {imdb['could_win']} could win"
    yield f"{ped2['could_win']} could win"
    repeats = {name: imdb[name]["10"]["repeats"] for name in ("tpe", "gp")}
    yield f"{repeats['tpe']} repeats, {repeats['gp']} of the GP"
    yield f"and {imdb['gp']['50']['repeats']} of its 50 points"
    at = {name: imdb[name]["10"]["regret_or_worst"] for name in ("gp", "tpe")}
    apart = (at["tpe"][0] - at["gp"][0]) / math.hypot(at["tpe"][1], at["gp"][1])
    yield (
        f"with 10 points its regret is {_short(at['gp'][0], 3)} where TPE's is "
        f"{_short(at['tpe'][0], 3)}, {apart:.1f} standard errors less"
    )
    share = {name: ped2[name]["10"]["with_a_winner"][0] for name in ("gp", "tpe")}
    yield f"without a winner in {_short(1 - share['gp'], 2)}"
    assert share["tpe"] == 1
    assert imdb["random"]["20"]["with_a_winner"][0] * 2 < imdb["tpe"]["20"]["with_a_winner"][0]
    yield "With 20 points TPE finds"
    yield "with 50 points"
    yield f"Of {halved['sweeps']} resampled sweeps"
    yield f"of {ARMS} arms"
    yield "95 % interval"
