"""Tables and figures of what docs/spaces.md says of one layer and of searches."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator

from benchmarks.pages.made import RESULTS, Made, number, results, table
from trainables.plain import Json

START = "## Can one layer denoise? `benchmarks/one_layer_bound.py`"
LANDSCAPES = {"imdb_ut": "IMDb", "ped2_ut": "Ped2"}
SAMPLERS = {
    "random": "`random`",
    "quasi_random": "`quasi_random`",
    "cma": "CMA-ES, infeasible is worse",
    "tpe": "`tpe`",
    "ctpe": "c-TPE",
    "gp": "`gp`",
}
STOPPING = {
    "early_signs": "early signs, as a sweep does",
    "halving": "the better half at 1/4 and at 1/2 of the steps",
    "three_quarters": "the better three of four",
    "median": "not worse than the median so far",
}
TELLING = {
    "none stopped": "none stopped",
    "nothing": "stopped, tells nothing",
    "as a sweep does": "is infeasible, as a sweep tells it",
    "what it was heading to": "is infeasible by the share that it would have ended with",
}


def made() -> Made:
    """What the page has of results."""
    replayed, halved = results("search_replay"), results("halving_replay")
    tables = {f"samplers {name}": _samplers(replayed[name]) for name in LANDSCAPES}
    tables |= {"stopping": _stopping(halved), "telling": _telling(halved)}
    bound = results("one_layer_bound")
    tables["one layer"] = _one_layer(bound)
    return Made(tables, list(_facts(replayed, halved, bound)), START)


def _short(value: float, digits: int) -> str:
    return number(value, digits, short=True)


def _one_layer(bound: Json) -> str:
    """Losses at the start and with the best linear map, below those of two filters."""
    identity = bound["references"]["identity"]
    filters = {"wiener": "a Wiener filter", "wiener_temporal": "a Wiener filter of all frames"}
    rows = [["the input", number(identity, 3), "", ""]]
    for name, called in filters.items():
        loss = bound["references"][name]
        rows.append([called, "", number(loss, 3), number(loss / identity, 2)])
    for name, of in bound["variants"].items():
        best = number(of["best_linear"], 3), number(of["best_over_identity"], 2)
        rows.append([name, number(of["at_start"], 3), *best])
    return table(["layer", "at the start", "best linear map", "over the input"], rows)


def _samplers(of: Json) -> str:
    """Share of searches with a winner, and regret with its standard error."""

    def cell(one: Json) -> str:
        share, (regret, error) = one["with_a_winner"][0], one["regret_or_worst"]
        return f"{_short(share, 2)}; {_short(regret, 4)} ({_short(error, 4)})"

    rows = []
    for name, called in SAMPLERS.items():
        asks = [one["seconds_an_ask"][0] * 1000 for one in of[name].values()]
        ends = dict.fromkeys(f"{ask:.0f}" for ask in (min(asks), max(asks)))
        rows.append([called, *map(cell, of[name].values()), " to ".join(ends)])
    return table(["", *(f"{n} points" for n in of["tpe"]), "ms an ask"], rows)


def _stopping(halved: Json) -> str:
    def cell(one: Json) -> str:
        lost, low, high = (f"{100 * v:.0f}" for v in one["winner_lost"])
        return f"{100 * one['saved'][0]:.0f} %, {lost} % ({low} to {high})"

    sizes = [(of, n) for of in LANDSCAPES for n in halved["landscapes"][of]]
    rows = [
        [called, *(cell(halved["landscapes"][of][n]["stopping"][name]) for of, n in sizes)]
        for name, called in STOPPING.items()
    ]
    return table(["", *(f"{LANDSCAPES[of]}, {n} arms: saved, lost" for of, n in sizes)], rows)


def _telling(halved: Json) -> str:
    def cell(one: Json) -> str:
        share, regret = one["with_a_winner"][0], one["regret_or_worst"][0]
        return f"{one['proposals'][0]:.0f}, {_short(share, 2)}, {_short(regret, 3)}"

    rows = [
        [called, *(cell(halved["landscapes"][of]["16"]["telling"][name]) for of in LANDSCAPES)]
        for name, called in TELLING.items()
    ]
    return table(["", *(f"{one}: proposals, winner, regret" for one in LANDSCAPES.values())], rows)


def _facts(replayed: Json, halved: Json, bound: Json) -> Iterator[str]:
    yield f"gamma {bound['train_gamma']:g}, sequences of {bound['frames']} frames"
    imdb, ped2 = replayed["imdb_ut"], replayed["ped2_ut"]
    assert imdb["arms"] == ped2["arms"]
    yield f"of {imdb['arms']} arms each"
    for name, called in (("imdb_ut", "on IMDb"), ("ped2_ut", "on Ped2, the Lagrangian")):
        path = RESULTS.parent / "landscape" / f"{name}.json"
        base = json.loads(path.read_text(encoding="utf-8"))["base"]
        yield f"UT with {base['model']['layers']} layers {called}, {base['steps']} steps"
    yield f"{imdb['feasible']} are feasible, {imdb['vacuous']} of these vacuous"
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
    yield "With 5 points nothing"  # the smallest of both tables
    yield "with 20 TPE finds"
    yield "with 50 points"
    yield f"({halved['sweeps']} each)"
    yield f"of {halved['searches']} searches"
    yield "of 8 and of 16 arms"
    yield "of 16 whole arms"
    yield "95 % interval"
