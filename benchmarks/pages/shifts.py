"""Tables of docs/shifts.md, from results/anytime.json."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from benchmarks.anytime.declared import NOISIER, PLAIN, SEEDS
from benchmarks.anytime.judged import CHOSEN_AT, EQUIVALENT, JOINT, PRIMARY, SHOWN
from benchmarks.pages.anytime import percent
from benchmarks.pages.made import Made, results, table
from trainables.plain import Json

SUPERVISED = PRIMARY[1]
OUTCOMES = ("better", "equivalent", "worse", "undecided")
Tested = Mapping[str, Mapping[str, Json]]  # by condition and rival
RIVALS = {PLAIN: "plain training", **JOINT, NOISIER: "plain training on more noise"}


def made() -> Made:
    """What the page has of results."""
    settings = results("anytime")
    found = {name.replace("_", " "): of["conditions"] for name, of in settings.items()}
    tables = {name: _table(of) for name, of in found.items()}
    return Made({"shares": _shares(found), **tables}, list(_facts(settings)))


def _facts(settings: Mapping[str, Json]) -> Iterator[str]:
    yield f"{SEEDS} fresh seeds"
    clips = {data: of["clips"] for one in settings.values() for data, of in one["units"].items()}
    photographs, ped2, avenue = (clips[of] for of in ("photographs", "ucsd_ped2", "cuhk_avenue"))
    yield f"{photographs} of the photographs, {ped2} of Ped2 and {avenue} of Avenue"
    of = settings["photographs_ut"]["conditions"]
    plain, supervised = (
        {one: _count(of, rival, one) for one in OUTCOMES} for rival in (PLAIN, SUPERVISED)
    )
    assert (plain["better"], plain["undecided"], supervised["better"]) == ("0", "0", "0")
    alike, worse = plain["equivalent"], plain["worse"]
    yield f"equivalent in {alike} of {len(of)} conditions and worse in {worse}:"
    assert _worse(of, PLAIN) == {"occlusion", "salt and pepper"}
    assert (supervised["worse"], _worse(of, SUPERVISED)) == ("1", {"salt and pepper"})
    yield f"equivalent in {supervised['equivalent']} of {len(of)} conditions"
    won, lost = _count(of, NOISIER, "worse"), _count(of, NOISIER, "better")
    yield f"beats the constraint in {won} of {len(of)} conditions, and loses in {lost}"
    by_noise = sorted(of, key=lambda name: of[name][NOISIER]["mean"])
    assert by_noise[0] == "unseen noise"
    assert {by_noise[-1], by_noise[-2]} == {"cuhk_avenue", "ucsd_ped2"}
    shown = settings["photographs_ut"]["frontiers"]["shown"][PRIMARY[0]]
    cost = shown[SHOWN.index(CHOSEN_AT)]["cost"]
    yield f"{percent(cost)} % above plain training's: so much it was allowed to lose"
    yield "the 95 % interval, which is not corrected"  # benchmarks/anytime/judged.py
    yield f"within {100 * EQUIVALENT:g} % of plain training's error"
    yield f"an allowance of {100 * CHOSEN_AT:g} %"


def _shares(found: Mapping[str, Tested]) -> str:
    """Of every setting and rival, in how many of the conditions which outcome."""
    rows = [
        [name, RIVALS[rival], *(_count(of, rival, outcome) for outcome in OUTCOMES), str(len(of))]
        for name, of in found.items()
        for rival in next(iter(of.values()))
    ]
    return table(["setting", "constrained against", *OUTCOMES, "conditions"], rows)


def _worse(tests: Tested, rival: str) -> set[str]:
    """Conditions, without their strengths, in which the constrained network is worse."""
    return {
        name.replace("_", " ").rstrip(" .0123456789")
        for name, of in tests.items()
        if of[rival]["outcome"] == "worse"
    }


def _count(tests: Tested, rival: str, outcome: str) -> str:
    return str(sum(of[rival]["outcome"] == outcome for of in tests.values()))


def _table(tests: Tested) -> str:
    """Differences of the error in % of plain training's, above 0 where constraining is better."""
    rivals = list(next(iter(tests.values())))
    rows = [
        [condition.replace("_", " "), *(_cell(of[rival]) for rival in rivals)]
        for condition, of in tests.items()
    ]
    return table(["test condition", *(f"against {RIVALS[rival]}" for rival in rivals)], rows)


def _cell(of: Mapping[str, Json]) -> str:
    low, high = (percent(end) for end in of["interval"])
    return f"{percent(of['mean'], signed=True)} ({low} to {high}), {of['outcome']}"
