"""Tables of docs/shifts.md, from results/anytime.json."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from benchmarks.anytime.declared import NOISIER, PLAIN, SEEDS
from benchmarks.anytime.judged import (
    CHOSEN_AT,
    CONDITIONED_AT,
    EQUIVALENT,
    JOINT,
    LARGEST,
    PRIMARY,
    SHOWN,
)
from benchmarks.pages.anytime import percent
from benchmarks.pages.made import Made, results, table
from benchmarks.text_shifts import CONSTRAINED
from benchmarks.text_shifts import SETTINGS as TEXTS
from trainables.plain import Json

SUPERVISED = PRIMARY[1]
OUTCOMES = ("better", "equivalent", "worse", "undecided")
Tested = Mapping[str, Mapping[str, Json]]  # by condition and rival
RIVALS = {
    PLAIN: "plain training",
    **JOINT,
    NOISIER: "plain training on more noise",
    "plain, twice the noise": "plain training on twice the noise",
    "plain, noise of 0 to twice": "plain training on noise up to twice",
    "deep supervision": "deep supervision",
}


def made() -> Made:
    """What the page has of results."""
    settings = results("anytime")
    shares: dict[str, Tested] = {}
    tables: dict[str, str] = {}
    for name, of in settings.items():
        called = name.replace("_", " ")
        if name in TEXTS:
            by_form = {form: _of_form(of["tested"], form) for form in CONSTRAINED}
            shares |= {f"{called}, {form}": tested for form, tested in by_form.items()}
            tables |= {f"{called} {form}": _table(tested) for form, tested in by_form.items()}
        else:
            at = {key: most for key, most in CONDITIONED_AT.items() if most >= of["shown_at"]}
            for key, allowance in at.items():
                shares[f"{called}, at {100 * allowance:g} %"] = of[key]
            tables[called] = _table(of[next(iter(at))])
    facts = [*_facts(settings), *_of_texts(settings)]
    return Made({"shares": _shares(shares), **tables}, facts)


def _facts(settings: Mapping[str, Json]) -> Iterator[str]:
    yield f"{SEEDS} fresh seeds"
    clips = {
        data: of["clips"]
        for name, one in settings.items()
        if name not in TEXTS
        for data, of in one["units"].items()
    }
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
    yield f"{percent(cost)} % above plain training's, of the {100 * CHOSEN_AT:g} % it was allowed"
    yield f"more noise costs {percent(_cost_of_noise(settings['photographs_ut']))} %"
    most = settings["photographs_ut"]["conditions_at_most"]
    assert {name for name in most if _outcome(most, name, SUPERVISED) == "better"} == {
        name for name in most if name.startswith("occlusion")
    }
    others = ("ucsd_ped2", "cuhk_avenue")
    assert {_outcome(most, name, PLAIN) for name in others} == {"worse"}
    lost = " and ".join(percent(-most[name][PLAIN]["mean"]) for name in others)
    yield f"At {100 * LARGEST:g} % it is also worse on both other data sets, by {lost} %"
    yield f"At an allowance of {100 * CHOSEN_AT:g} %. Without a shift"
    yield from _of_dust(settings["ped2_dust"])
    yield from _together(
        [settings["photographs_ut"]["conditions"], settings["ped2_dust"]["conditions_at_most"]]
    )
    yield "the 95 % interval, which is not corrected"  # benchmarks/anytime/judged.py
    yield f"within {100 * EQUIVALENT:g} % of plain training's error in that condition"
    yield f"an allowance of {100 * CHOSEN_AT:g} %"


def _together(tables: Sequence[Tested]) -> Iterator[str]:
    """What the first paragraph says of the two tables by condition."""
    found = [of[PLAIN]["outcome"] for tests in tables for of in tests.values()]
    alike = f"{found.count('equivalent')} of {len(found)} conditions of videos"
    yield f"In {alike} it is within {100 * EQUIVALENT:g} %"
    yield f"in {found.count('worse')} it is worse, and in {found.count('better')} better"


def _cost_of_noise(setting: Json) -> float:
    """How much more error training on more noise has without a shift."""
    ends = (setting["networks"][name]["test end"] for name in (NOISIER, PLAIN))
    return fmean(noisier / plain - 1 for noisier, plain in zip(*ends, strict=True))


def _outcome(tests: Tested, condition: str, rival: str) -> str:
    return str(tests[condition][rival]["outcome"])


def _of_dust(setting: Json) -> Iterator[str]:
    ours = setting["frontiers"]["shown"][PRIMARY[0]]
    yield f"on {ours[SHOWN.index(CHOSEN_AT)]['plain_on']} of {SEEDS} seeds at {100 * CHOSEN_AT:g} %"
    assert ours[-1]["plain_on"] == 0
    yield f"an allowance of {100 * SHOWN[-1]:g} %"
    yield f"{percent(ours[-1]['cost'])} % above plain training's"
    of = setting["conditions_at_most"]
    plain = {one: _count(of, PLAIN, one) for one in OUTCOMES}
    yield (
        f"better in {plain['better']} of {len(of)} conditions, equivalent in {plain['equivalent']},"
        f" worse in {plain['worse']} and undecided in {plain['undecided']}"
    )
    mean = {
        name: {rival: one["mean"] for rival, one in rivals.items()} for name, rivals in of.items()
    }
    occluded = {name for name in of if name.startswith("occlusion")}
    assert {name for name in of if _outcome(of, name, PLAIN) == "better"} == occluded
    better = sorted(mean[name][PLAIN] for name in occluded)
    yield f"more noise costs {percent(_cost_of_noise(setting))} %"
    yield f"by {' and '.join(percent(value) for value in better)} %"
    least = sorted(mean, key=lambda name: mean[name][PLAIN])[:3]
    assert least == ["salt_and_pepper 0.025", "salt_and_pepper 0.006", "unseen noise"]
    salted = " and ".join(percent(mean[name][PLAIN]) for name in reversed(least[:2]))
    yield f"({salted} %) and unseen noise ({percent(mean[least[2]][PLAIN])} %)"
    supervised = {one: int(_count(of, SUPERVISED, one)) for one in OUTCOMES}
    assert supervised["equivalent"] + supervised["undecided"] == len(of)
    yield f"it is equivalent in {supervised['equivalent']} of {len(of)} conditions and undecided"
    by_noise = sorted(mean, key=lambda name: mean[name][NOISIER])
    assert (by_noise[0], by_noise[-1]) == ("salt_and_pepper 0.025", "photographs")
    gained, lost = (percent(abs(mean[by_noise[end]][NOISIER])) for end in (0, -1))
    yield f"salt and pepper ({gained} %), and loses most on the photographs ({lost} %)"


def _of_texts(settings: Mapping[str, Json]) -> Iterator[str]:
    assert all(len(settings[name]["by_seed"]) == SEEDS for name in TEXTS if name in settings)
    yield from ()


def _of_form(tested: Mapping[str, Sequence[Json]], form: str) -> Tested:
    """Of one form of the constraint the tests, by condition and rival."""
    found: dict[str, dict[str, Json]] = {}
    for rival, tests in tested.items():
        for of in tests:
            if of["form"] == form:
                found.setdefault(of["condition"], {})[rival] = of
    return found


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
