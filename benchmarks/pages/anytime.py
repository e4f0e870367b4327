"""Tables of docs/anytime.md, from results/anytime.json."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from benchmarks.anytime.declared import PLAIN, SEEDS, SETTINGS
from benchmarks.anytime.judged import (
    CHOSEN_AT,
    CONSTRAINED,
    CUT,
    EQUIVALENT,
    FROZEN,
    JOINT,
    LARGEST,
    ONE_DEPTH,
    PRIMARY,
    REPLAYS,
    SAME_END,
    SHOWN,
    SUPERVISED,
    TESTED_BUDGETS,
)
from benchmarks.pages.made import Made, number, results, table
from trainables.plain import Json

SMALL = 0.005  # an allowance in the prose


def made() -> Made:
    """What the page has of results."""
    found = {name: of for name, of in results("anytime").items() if name in SETTINGS}
    tables: dict[str, str] = {}
    for name, setting in found.items():
        called = name.replace("_", " ")
        tables[f"{called} frontier"] = _frontier(setting["frontiers"])
        tables[f"{called} against"] = _against(setting["frontiers"]["against"])
        tables[f"{called} ends"] = _ends(setting["ends"])
        tables[f"{called} layers"] = _layers(setting["layers"])
        tables[f"{called} exits"] = _exits(setting["adaptive"])
        tables[f"{called} stopping"] = _stopping(setting["stopping"])
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
    yield f"an allowance of {100 * CHOSEN_AT:g} % (DUST: {100 * LARGEST:g} %)"
    yield "the 95 % interval, which is not corrected"  # benchmarks/anytime/judged.py
    yield f"within {100 * EQUIVALENT:g} % of plain training's error"
    yield f"With a clip of {SETTINGS['ped2_dust'].base.grad_clip:g}"
    for of in found.values():
        yield from _of_every(of)
    yield from _of_photographs(found["photographs_ut"])
    yield from _of_dust(found["ped2_dust"])
    assert CHOSEN_AT in SHOWN
    assert all(len(setting["seeds"]) == SEEDS for setting in found.values())


def _of_every(of: Json) -> Iterator[str]:
    """Deep supervision's lead over constraints, and what depth is worth to plain training."""
    primary = of["frontiers"]["against"][0]
    low, high = (-end for end in reversed(primary["interval"]))
    assert primary["outcome"] == "worse"
    yield f"by {percent(-primary['mean'])} points ({percent(low)} to {percent(high)})"
    cut = of["layers"][SAME_END[1]]
    yield f"an error of {number(cut[1], 2)} with one layer and of {number(cut[-1], 2)} with all"


def _of_photographs(of: Json) -> Iterator[str]:
    base = SETTINGS["photographs_ut"].base
    yield f"UT with {base.model.layers} layers, {base.steps:,} steps"
    led = []
    for allowance in (SMALL, CHOSEN_AT):
        shown = (of["frontiers"]["shown"][side][SHOWN.index(allowance)] for side in PRIMARY)
        ours, theirs = (at["reduction"] for at in shown)
        assert ours > theirs
        led.append(f"{percent(ours)} against {percent(theirs)}")
    yield f"At allowances of {100 * SMALL:g} and {100 * CHOSEN_AT:g} % constraints do"
    yield f"({', '.join(led)})"
    replayed = next(o for o in of["frontiers"]["against"] if o["rival"] == REPLAYS[0])
    low, high = replayed["interval"]
    yield f"{percent(replayed['mean'])} points ({percent(low)} to {percent(high)}) less"
    ends = [one["outcome"] for one in of["ends"]["against"]]
    assert set(ends) == {"equivalent"}
    assert {one["better_in"] for one in of["ends"]["against"]} == {0}
    yield f"on {SEEDS} of {SEEDS} seeds"
    beside = [
        f"{one['outcome']} with {one['budget']:g}"
        for one in of["stopping"]
        if one["rival"] == PRIMARY[1]
    ]
    yield f"{', '.join(beside)}"
    deeper = [one for one in of["stopping"] if one["rival"] == CUT]
    assert all(one["outcome"] == "worse" for one in deeper)
    between = _gains_of_stopping(of)
    gained = {budget: gain for budget, (gain, seeds) in between.items() if seeds == SEEDS}
    (few,) = (b for b, (_, seeds) in between.items() if b in TESTED_BUDGETS and seeds)
    assert (few, between[few][1]) == (TESTED_BUDGETS[0], 1)
    assert TESTED_BUDGETS == (2, 3, 4)
    yield "At 2, 3 and 4 layers"
    yield "A plain network of 2, 3 or 4 layers"
    *_, one, other = gained
    yield f"by {percent(gained[one])} % at {one:g} layers"
    yield f"by {percent(gained[other])} % at {other:g}"


def _gains_of_stopping(of: Json) -> dict[float, tuple[float, int]]:
    """By budget: what stopping by sample takes off one depth's error, and on how many seeds.

    Of the constrained networks, as a fraction of plain training's error at the last layer.
    """
    ends = of["networks"][PLAIN]["test end"]
    gains = {
        one["budget"]: [
            (alone - score) / end
            for alone, score, end in zip(one["at_one_depth"], one["score"], ends, strict=True)
        ]
        for one in of["adaptive"][PRIMARY[0]]
    }
    return {budget: (fmean(by), sum(g > 0 for g in by)) for budget, by in gains.items()}


def _of_dust(of: Json) -> Iterator[str]:
    base = SETTINGS["ped2_dust"].base
    yield f"DUST with {base.model.layers} layers, a dictionary for each, {base.steps:,} steps"
    frontiers = of["frontiers"]
    ours, theirs = (frontiers["shown"][side] for side in PRIMARY)
    at = SHOWN.index(CHOSEN_AT)
    yield f"at {100 * CHOSEN_AT:g} % plain training stands in for them on {ours[at]['plain_on']}"
    yield f"of {SEEDS} seeds"
    assert (theirs[at]["plain_on"], ours[-1]["plain_on"], SHOWN[-1]) == (0, 0, LARGEST)
    assert of["shown_at"] == LARGEST
    taken = " and ".join(percent(side[-1]["reduction"]) for side in (ours, theirs))
    yield f"At {100 * LARGEST:g} % both take off almost all there is, {taken} %"
    replaced = [frontiers["plain_instead"][one] for one in (*REPLAYS, FROZEN)]
    yield f"at {number(100 * min(replaced), 0)} to {number(100 * max(replaced), 0)} % of the"
    assert frontiers["plain_instead"]["plain, longer"] == 1
    exits, cuts = (frontiers["shown"][rival][0] for rival in SAME_END)
    yield f"exits on a frozen plain network ({percent(exits['reduction'])})".capitalize()
    yield f"a network for each depth ({percent(cuts['reduction'])})"
    ends = {one["rival"]: one["outcome"] for one in of["ends"]["against"]}
    assert ends == {
        PLAIN: "equivalent",
        "plain, longer": "worse",
        "learnt weights": "equivalent",
        PRIMARY[1]: "worse",
    }
    less = {method: fmean(one["by_seed"]) for method, one in of["ends"]["reduction"].items()}
    yield f"take {percent(less[SUPERVISED[1]])} % off"
    yield f"takes off {percent(less['plain, longer'])} %"
    stopping = {(one["budget"], one["rival"]): one["outcome"] for one in of["stopping"]}
    beside = [stopping[budget, PRIMARY[1]] for budget in TESTED_BUDGETS]
    assert beside == ["worse", "worse", "undecided"]
    yield "worse with 2 and with 3 layers, undecided with 4"
    for rival, outcome in ((ONE_DEPTH, "equivalent"), (SAME_END[0], "better"), (CUT, "worse")):
        assert {stopping[budget, rival] for budget in TESTED_BUDGETS} == {outcome}
    between = _gains_of_stopping(of)
    assert not any(between[budget][1] for budget in TESTED_BUDGETS)
    ((budget, gain),) = ((b, gain) for b, (gain, seeds) in between.items() if seeds == SEEDS)
    yield f"by {percent(gain)} % at {budget:g}"


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
            number(100 * frontiers["plain_instead"][method], 0) if method != PLAIN else "",
        ]
        for method, of in frontiers["shown"].items()
    ]
    head = [f"at {100 * allowance:g} %" for allowance in SHOWN]
    return table(
        ["reduction of area; loss at the end, in %", *head, "mean reduction", "plain instead"], rows
    )


def _against(tests: Sequence[Mapping[str, Json]]) -> str:
    """Differences of mean reductions, in points of per cent; the first is the primary one."""
    rows = [
        [*(JOINT.get(str(of[who]), str(of[who])) for who in ("side", "rival")), *_tested(of)]
        for of in tests
    ]
    return table(["network", "against", "difference", "seeds better", "p", "outcome"], rows)


def _ends(ends: Json) -> str:
    """What is taken off plain training's error at the last layer, and constraints against each."""
    tested = {of["rival"]: _tested(of) for of in ends["against"]}
    rows = [
        [JOINT.get(method, method), percent(fmean(of["by_seed"])), *tested.get(method, ["—"] * 4)]
        for method, of in ends["reduction"].items()
    ]
    head = ["last layer, in %", "error less", "constraints gain", "seeds better", "p", "outcome"]
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
    return table(["RMSE at layers used; all at one depth", *head], rows)


def _stopping(tests: Sequence[Mapping[str, Json]]) -> str:
    """Constrained networks whose samples stop, against others, in % of plain's last error."""
    rows = [
        [
            number(float(of["budget"]), 0),
            number(of["layers"], 1),
            JOINT.get(str(of["rival"]), str(of["rival"])),
            *_tested(of),
        ]
        for of in tests
    ]
    head = ["layers at most", "used", "against", "gain, in %", "seeds better", "p", "outcome"]
    return table(head, rows)
