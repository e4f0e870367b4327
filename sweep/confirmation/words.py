"""Findings of a confirmation in sentences, from the entry of ``confirmed``. Pure.

Claims are those of the plan's test alone; whatever is undecided is told with what it leaves open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sweep.confirmation.controls import CONTROLS
from sweep.confirmation.plan import CONSTRAINED, MEASURES, UNCONSTRAINED
from sweep.results.findings import is_slight, size_text
from sweep.study import advice
from trainables.plain import Json
from trainables.primal_dual.certificate import LEAST_UNITS, counted

FEW = 10  # seeds or studies, below which a claim has the p of sign flips beside it


def sentences(entry: Mapping[str, Json]) -> list[str]:
    """What was found, settings of one outcome together; what it does not show comes last."""
    return [*answer(entry), *limits(entry)]


def answer(entry: Mapping[str, Json]) -> list[str]:
    """What was found of every setting; what holds of several is said once."""
    if len(entry["settings"]) == 1:
        (one,) = entry["settings"]
        return [f"{one['setting']}: {of_setting(one, entry)}"]
    found: dict[str, list[str]] = {}
    more: dict[str, list[str]] = {}
    for one in entry["settings"]:
        contrast, verdict = one["contrasts"][UNCONSTRAINED], _verdict(one, entry)
        said, numbers = f"{verdict.outcome}{verdict.but}", ""
        if verdict.is_measured:
            late = f"; over all that ended {ended_text(contrast)}" if is_early(contrast) else ""
            numbers = f" {contrast['mean']:+.3g} ({interval_text(contrast)}{late})"
            place = _place(contrast, entry)
            said = f"against plain training: {verdict.outcome}{place}{verdict.but}"
        found.setdefault(said, []).append(f"{one['setting']}{numbers}")
        for text in _besides(one, verdict, entry):
            more.setdefault(text, []).append(one["setting"])
    texts = [f"{said[0].upper()}{said[1:]}: {', '.join(of)}." for said, of in found.items()]
    whole = len(entry["settings"])
    return texts + [
        f"{'Every setting' if len(of) == whole else ', '.join(of)}: {text}"
        for text, of in more.items()
    ]


def in_short(entry: Mapping[str, Json]) -> str:
    """How many settings came to which outcome against plain training, in one sentence."""
    by_outcome: dict[str, list[float]] = {}
    for one in entry["settings"]:
        gains = by_outcome.setdefault(_verdict(one, entry).outcome.partition(";")[0], [])
        gains.append(one["contrasts"][UNCONSTRAINED]["mean"])
    found = [
        f"{outcome} in {advice.counted(len(gains), 'setting')}{_range(gains, entry['unit'])}"
        for outcome, gains in by_outcome.items()
    ]
    return (
        "On fresh seeds and the test split, constrained against plain training: "
        f"{'; '.join(found)}."
    )


def _range(gains: Sequence[float | None], unit: str) -> str:
    known = [gain for gain in gains if gain is not None]
    if not known:
        return ""
    low, high = (f"{gain:+.3g}" for gain in (min(known), max(known)))
    return f" (gain {low if low == high else f'{low} to {high}'} {unit})"


def of_setting(one: Mapping[str, Json], entry: Mapping[str, Json]) -> str:
    """The outcome of one setting, against plain training and then against its controls."""
    contrast, verdict = one["contrasts"][UNCONSTRAINED], _verdict(one, entry)
    if not verdict.is_measured:
        return f"{verdict.outcome}{verdict.but}."
    interval = interval_text(contrast)
    texts = [f"{verdict.sized}{_place(contrast, entry)} ({interval}){verdict.but}."]
    if is_early(contrast):
        texts.append(
            f"Over all {contrast['seeds']} that ended it is {ended_text(contrast)}: what is "
            "decided early is estimated too large."
        )
    return " ".join([*texts, *_besides(one, verdict, entry)])


class Verdict(NamedTuple):
    """The outcome of a setting in words, which the outcome of others may share."""

    outcome: str  # without a number of its own
    sized: str = ""  # with its size
    but: str = ""  # what takes it back, behind the numbers
    is_measured: bool = True


def _verdict(one: Mapping[str, Json], entry: Mapping[str, Json]) -> Verdict:
    """What may be said of one setting against plain training."""
    contrast = one["contrasts"][UNCONSTRAINED]
    if contrast["mean"] is None or not contrast["counted"]:
        return Verdict(f"nothing to compare yet; {statuses_text(one)}", is_measured=False)
    if one["vacuous"]:
        return Verdict(
            "plain training meets the constraint by itself (not binding)",
            but=", so that the pair says nothing about constraining",
            is_measured=False,
        )
    outcome, sized = outcome_words(contrast, contrast["outcome"], entry)
    if contrast["marked"] == contrast["outcome"]:
        return Verdict(outcome, sized)
    but = ", for these test units, but not where other units are drawn as well"
    outcome, sized = (text.removeprefix("equivalent: ") for text in (outcome, sized))
    return Verdict(f"undecided: {outcome}", f"undecided: {sized}", but)


def outcome_words(
    contrast: Mapping[str, Json], outcome: str, entry: Mapping[str, Json]
) -> tuple[str, str]:
    """An outcome in words, without its size and with it.

    What is equivalent is slightly better or worse where the table's test of a difference says so
    as well, and its intervals lie on one side of 0.
    """
    least, mean, unit = entry["design"]["smallest_effect"], contrast["mean"], entry["unit"]
    if outcome == "undecided":
        return outcome, f"undecided: {mean:+.3g} {unit}"
    equal = "equivalent: " * (outcome == "equivalent")
    is_told = contrast["p_adjusted"] <= entry["design"]["error"] and _is_one_sided(contrast)
    if equal and not is_told:
        no = "no difference that matters"
        return (
            f"{equal}{no} (below {least:g} {unit})",
            f"{equal}{no}, {mean:+.3g} {unit} (below {least:g})",
        )
    if not is_slight(mean, least):
        return outcome, size_text(mean, least, unit)
    way = f"{equal}slightly {'better' if mean > 0 else 'worse'}"
    if equal or max(abs(contrast["low"]), abs(contrast["high"])) < least:
        return (
            f"{way}, too little to matter (below {least:g} {unit})",
            f"{equal}{size_text(mean, least, unit)}",
        )
    below = "less than what matters"  # which the interval does not rule out
    return (
        f"{way}, by an estimate that is {below} ({least:g} {unit})",
        f"{way}, by an estimated {abs(mean):.3g} {unit}, {below} ({least:g})",
    )


def marked_text(contrast: Mapping[str, Json], entry: Mapping[str, Json]) -> str:
    """What may be claimed, in a table's cell, with the word for a size that does not matter.

    >>> entry = {"design": {"smallest_effect": 0.15}}
    >>> marked_text({"marked": "better", "mean": 0.03}, entry)
    'slightly better'
    """
    marked, least = contrast["marked"], entry["design"]["smallest_effect"]
    is_small = marked in ("better", "worse") and is_slight(contrast["mean"], least)
    return f"{'slightly ' * is_small}{marked}"


def _is_one_sided(contrast: Mapping[str, Json]) -> bool:
    """Whether the interval over seeds, and the one over units where there is one, leave out 0."""
    found = [contrast, *([contrast["units"]] if contrast.get("units") else [])]
    if any(one["low"] is None or one["high"] is None for one in found):
        return False
    return all(one["low"] > 0 for one in found) or all(one["high"] < 0 for one in found)


def _place(contrast: Mapping[str, Json], entry: Mapping[str, Json]) -> str:
    """On what, and over how many seeds; what is trained after the decision does not count."""
    seeds, ended = contrast["counted"], contrast["seeds"]
    what = MEASURES[entry["measure"]].removeprefix("mean over ")
    counted = f"{seeds}" if ended == seeds else f"{seeds} of the {ended}"
    return f", on {what}, over {counted} fresh seed{'s' * (ended != 1)}"


def _besides(one: Mapping[str, Json], verdict: Verdict, entry: Mapping[str, Json]) -> list[str]:
    """What few seeds can show, how many networks are certified, and what controls say."""
    if not verdict.is_measured:
        return []
    ours = one["arms"][CONSTRAINED]
    few = units_text(one)
    on = f" ({few})" if few else ""
    so = "" if ours["feasible"] else ", so that it is no result about feasible networks"
    certified = ours["certified"]["feasible"]
    means = ours.get("feasible_by_mean", certified)  # files of before do not say it
    by_mean = "" if means == certified else f"; {means} are feasible by their means"
    texts = [
        *few_seeds(one["contrasts"][UNCONSTRAINED], entry),
        f"{certified} of {ours['seeds']} constrained networks are certified feasible on the test "
        f"split{on}{so}{by_mean}.",
    ]
    if one["contrasts"][UNCONSTRAINED]["marked"] == "better":
        texts += _against_controls(one, entry["design"]["smallest_effect"])
    return texts


def units_text(one: Mapping[str, Json]) -> str:
    """How many groups the test units lie in; '' where each stands for itself and all are many.

    >>> units_text({"test_units": {"units": 72, "unit": "window", "groups": 4, "group": "clip"}})
    '72 windows of 4 clips; fewer than 10 certify nothing'
    """
    found = one["test_units"]
    if found is None or LEAST_UNITS <= found["groups"] == found["units"]:
        return ""
    few = f"; fewer than {LEAST_UNITS} certify nothing" if found["groups"] < LEAST_UNITS else ""
    return counted(found["groups"], found["group"], found["units"]) + few


def groups_text(units: Mapping[str, Json]) -> str:
    """How many groups an interval over units drew, where they are few or not the units.

    >>> groups_text({"units": 72, "groups": 4, "group": "clip"})
    ' (4 clips)'
    """
    if units["groups"] == units["units"] and units["groups"] >= LEAST_UNITS:
        return ""
    return f" ({units['groups']} {units['group']}{'s' * (units['groups'] > 1)})"


def of_family(family: Mapping[str, Json], entry: Mapping[str, Json]) -> str:
    """The outcome of a family against plain training, and what bears it out or not."""
    if not family["counted"]:
        return "nothing to compare yet."
    names = entry["design"]["families"][family["name"]]
    of = [one for one in entry["settings"] if one["setting"] in names]
    numbers = (
        f"mean gain {family['mean']:+.3g} {entry['unit']} ({interval_text(family)}), above 0 "
        "the constrained network is better"
    )
    outcome, over_seeds = family["marked"], family["outcome"]
    words, _ = outcome_words(family, over_seeds, entry)
    if outcome == "vacuous":
        found = "plain training meets the constraint by itself in every setting (not binding)"
    elif outcome == over_seeds:
        found = f"{words}; {numbers}"
        alone = [one["contrasts"][UNCONSTRAINED]["marked"] for one in of]
        if outcome != "undecided" and outcome not in alone:
            found += "; no setting is by itself"
    else:
        found = (
            f"undecided: {words} for these test units, {numbers}, but in no binding setting "
            "where other units are drawn as well"
        )
    texts = [f"{found}."]
    if is_early(family):
        texts.append(f"Over all {family['seeds']} seeds that ended: {ended_text(family)}.")
    return " ".join([*texts, *few_seeds(family, entry)])


def is_early(contrast: Mapping[str, Json], unit: str = "seeds") -> bool:
    """Whether seeds, or studies, have ended after the ones that decided it."""
    return contrast[unit] > contrast["counted"] and contrast["decided_at"] is not None


def ended_text(contrast: Mapping[str, Json]) -> str:
    """The estimate over all seeds that have ended, with its interval where it has one.

    >>> ended_text({"ended": {"mean": 0.1, "low": -0.1, "high": 0.3}})
    '+0.1 (-0.1 to +0.3)'
    """
    found = contrast["ended"]
    between = found["low"] is None or found["high"] is None
    interval = "no interval before the next look" if between else interval_text(found)
    return f"{found['mean']:+.3g} ({interval})"


def few_seeds(
    contrast: Mapping[str, Json], entry: Mapping[str, Json], unit: str = "seeds"
) -> list[str]:
    """What sign flips say beside a difference that few seeds, or studies, are claimed to show."""
    count, flip = contrast["counted"], contrast["sign_flip"]
    if contrast["marked"] not in ("better", "worse") or count >= FEW:
        return []
    text = f"By sign flips p is {flip['p']:.2g}, and of {count} {unit} it is never below "
    text += f"{flip['least_p']:.2g}"
    if flip["p"] > entry["design"]["error"] and not entry["design"].get("sign_flips", False):
        text += ": the claim rests on differences being normal"
    return [f"{text}."]


def p_text(design: Mapping[str, Json]) -> str:
    """Whose p a table has, before it is adjusted.

    >>> p_text({"rule": "looks", "sign_flips": True})
    "the paired t test's (where t finds something, sign flips' if that is larger)"
    """
    flips = design.get("sign_flips", False)
    if design["rule"] == "any_time":
        both = "the smaller of the t e-process and of its bets on signs alone"
        return f"1 over {both if flips else 'the t e-process'}"
    t = "the paired t test's"
    return f"{t} (where t finds something, sign flips' if that is larger)" if flips else t


def _against_controls(one: Mapping[str, Json], least: float | None) -> list[str]:
    """Whether it is the constraint, or mere supervision of inner layers, say."""
    others = {n: c for n, c in one["contrasts"].items() if n != UNCONSTRAINED}
    beaten = [name for name, c in others.items() if c["marked"] == "better"]
    open_ = [name for name, c in others.items() if c["marked"] in ("undecided", "equivalent")]
    lost = [name for name, c in others.items() if c["marked"] == "worse"]
    if not others:
        return ["Whether it is the constraint that does it, controls would tell (--controls)."]

    def listed(names: Sequence[str]) -> str:
        slight = {name for name in names if is_slight(others[name]["mean"], least)}
        return _listed([f"{name} (slightly)" if name in slight else name for name in names])

    texts = []
    if beaten:
        texts.append(f"It is better than {listed(beaten)}, too.")
    if open_:
        texts.append(f"It is not told apart from {_listed(open_)}: that may explain the gain.")
    matched = [name for name in lost if others[name]["question"] == "matched"]
    if matched:
        texts.append(f"It is worse than {listed(matched)}: the constraint is not what works.")
    if rest := [name for name in lost if name not in matched]:
        texts.append(f"It is worse than {listed(rest)}: plain training gains more that way.")
    return texts


def limits(entry: Mapping[str, Json]) -> list[str]:
    """What the table does not show."""
    contrasts = [c for one in entry["settings"] for c in one["contrasts"].values()]
    texts = []
    if any(contrast["outcome"] == "equivalent" for contrast in contrasts):
        texts.append(
            f"Equivalent: two one-sided tests rule out {entry['design']['smallest_effect']:g} "
            f"{entry['unit']} or more either way, each at the whole level, so that an interval may "
            "reach beyond. It is said before better and worse, whose p stands beside it."
        )
    if any(contrast["units"] is None for contrast in contrasts):
        texts.append(
            "Where no interval over test units is given, it is about these test units alone."
        )
    drawn = [contrast["units"] for contrast in contrasts if contrast["units"] is not None]
    if any(one["groups"] < LEAST_UNITS for one in drawn):
        fewest = min(drawn, key=lambda one: one["groups"])
        of = advice.counted(fewest["groups"], fewest["group"])
        if fewest["groups"] == 1 < fewest["units"]:  # as ``over_units`` does
            of = f"the {fewest['unit']}s of {of}"
        texts.append(
            f"Intervals over test units draw {of} anew: from fewer than {LEAST_UNITS} they are too "
            "narrow."
        )
    if not entry["design"].get("sign_flips", False):
        texts.append(
            "The plan is from before sign flips had to agree: where differences are not normal its "
            "t tests err more often than they say (docs/statistics.md)."
        )
    if any(CONTROLS[name].ranges for name in entry["controls"]):
        texts.append("What was tuned was tuned once: this is about these configurations.")
    if any(contrast["seeds"] > contrast["counted"] for contrast in contrasts):
        texts.append(
            "Seeds that ended after a decision, or after the last look, do not count. Early "
            "decisions are made by large estimates: those over all ended seeds stand beside them."
        )
    return texts


def interval_text(contrast: Mapping[str, Json]) -> str:
    """The interval of a contrast; its name stands below the table.

    >>> interval_text({"low": -0.1, "high": 0.25})
    '-0.1 to +0.25'
    """
    if contrast["low"] is None or contrast["high"] is None:
        return "no interval: too few seeds, or no spread between them"
    return f"{contrast['low']:+.3g} to {contrast['high']:+.3g}"


def statuses_text(one: Mapping[str, Json]) -> str:
    """How a setting's arms ended."""
    parts = []
    for kind, arm in one["arms"].items():
        ended = ", ".join(f"{count} {status}" for status, count in arm["ended"].items())
        parts.append(f"{kind}: {ended or 'none has ended'}")
    return "; ".join(parts)


def equal_tries_text(one: Mapping[str, Json]) -> str:
    """The paper's comparison of best tries, with equal numbers of them; '' where it is not known.

    >>> equal_tries_text({"equal_tries": {"gain": 0.1, "tries": 2}})
    'best of 2 tries against best of 2 plain seeds: +0.100'
    """
    found = one["equal_tries"]
    if found is None:
        return ""
    tries, plain = (advice.counted(found["tries"], thing) for thing in ("try", "plain seed"))
    return f"best of {tries} against best of {plain}: {found['gain']:+.3f}"


def _listed(names: Sequence[str]) -> str:
    plain = [name.replace("_", " ") for name in names]
    return plain[0] if len(plain) == 1 else f"{', '.join(plain[:-1])} and {plain[-1]}"
