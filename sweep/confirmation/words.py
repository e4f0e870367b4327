"""Findings of a confirmation in sentences, from the entry of ``confirmed``. Pure.

Claims are those of the plan's test alone; whatever is undecided is told with what it leaves open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sweep.confirmation.controls import CONTROLS
from sweep.confirmation.plan import CONSTRAINED, MEASURES, UNCONSTRAINED
from trainables.plain import Json
from trainables.primal_dual.certificate import LEAST_UNITS


def sentences(entry: Mapping[str, Json]) -> list[str]:
    """What was found, a setting each; what it does not show comes last."""
    found = [f"{one['setting']}: {of_setting(one, entry)}" for one in entry["settings"]]
    return [*found, *limits(entry)]


def in_short(entry: Mapping[str, Json]) -> str:
    """How many settings came to which outcome against plain training, in one sentence."""
    marked = [one["contrasts"][UNCONSTRAINED]["marked"] for one in entry["settings"]]
    counts = {
        outcome: f"{marked.count(outcome)} setting{'s' * (marked.count(outcome) > 1)}"
        for outcome in dict.fromkeys(marked)
    }
    found = ", ".join(f"{outcome} in {count}" for outcome, count in counts.items())
    return f"On fresh seeds and the test split, constrained against plain training: {found}."


def of_setting(one: Mapping[str, Json], entry: Mapping[str, Json]) -> str:
    """The outcome of one setting, against plain training and then against its controls."""
    contrast, unit = one["contrasts"][UNCONSTRAINED], entry["unit"]
    what = MEASURES[entry["measure"]].removeprefix("mean over ")
    seeds, ended = contrast["counted"], contrast["seeds"]
    if contrast["mean"] is None or not seeds:
        return f"nothing to compare yet; {statuses_text(one)}."
    interval = interval_text(contrast)
    size = f"{abs(contrast['mean']):.3g} {unit}"
    # what is trained after the decision, or between two looks, does not count
    counted = f"{seeds}" if ended == seeds else f"{seeds} of the {ended}"
    on = f"on {what}, over {counted} fresh seed{'s' * (ended != 1)}"
    outcome = contrast["marked"]
    if one["vacuous"]:
        return (
            "plain training meets the constraint by itself (not binding), so that the pair says "
            "nothing about constraining."
        )
    if outcome in ("better", "worse"):
        texts = [f"the constrained network is {outcome} by {size} {on} ({interval})."]
    elif outcome == "equivalent":
        least = entry["design"]["smallest_effect"]
        texts = [
            f"the two are equivalent {on}: two one-sided tests rule out a difference of "
            f"{least:g} {unit} or more either way, each at the whole level, so that the interval "
            f"may reach beyond (it is {contrast['mean']:+.3g}; {interval})."
        ]
    elif contrast["outcome"] == "equivalent":
        texts = [
            f"equivalent {on} for these test units ({contrast['mean']:+.3g} {unit}; {interval}), "
            "but not where other units are drawn as well: undecided."
        ]
    elif contrast["outcome"] in ("better", "worse"):
        texts = [
            f"{contrast['outcome']} by {size} {on} for these test units ({interval}), but "
            "not where other units are drawn as well: undecided."
        ]
    else:
        texts = [f"undecided {on}: {contrast['mean']:+.3g} {unit} ({interval})."]
    if is_early(contrast):
        texts.append(
            f"Over all {ended} that ended it is {ended_text(contrast)}: what is decided early is "
            "estimated too large."
        )
    ours = one["arms"][CONSTRAINED]
    certified = ours["certified"]["feasible"]
    few = units_text(one)
    on = f" ({few})" if few else ""
    so = "" if ours["feasible"] else ", so that it is no result about feasible networks"
    texts.append(
        f"{certified} of {ours['seeds']} constrained networks are certified feasible on the test "
        f"split{on}{so}."
    )
    if outcome == "better":
        texts += _against_controls(one)
    return " ".join(texts)


def units_text(one: Mapping[str, Json]) -> str:
    """How many groups the test units lie in; '' where each stands for itself.

    >>> units_text({"test_units": {"units": 72, "unit": "window", "groups": 4, "group": "clip"}})
    '72 windows of 4 clips, too few to speak for other clips'
    """
    found = one["test_units"]
    if found is None or found["groups"] == found["units"]:
        return ""
    count, group = found["groups"], found["group"]
    text = f"{found['units']} {found['unit']}s of {count} {group}{'s' * (count > 1)}"
    return f"{text}, too few to speak for other {group}s" if count < LEAST_UNITS else text


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
    if outcome == "vacuous":
        found = "plain training meets the constraint by itself in every setting (not binding)"
    elif outcome == over_seeds:
        found = f"{outcome}; {numbers}"
        alone = [one["contrasts"][UNCONSTRAINED]["marked"] for one in of]
        if outcome != "undecided" and outcome not in alone:
            found += "; no setting is by itself"
    else:
        found = (
            f"undecided: {over_seeds} for these test units, {numbers}, but in no binding setting "
            "where other units are drawn as well"
        )
    early = ""
    if is_early(family):
        early = f" Over all {family['seeds']} seeds that ended: {ended_text(family)}."
    return f"{found}.{early}"


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


def _against_controls(one: Mapping[str, Json]) -> list[str]:
    """Whether it is the constraint, or mere supervision of inner layers, say."""
    others = {n: c for n, c in one["contrasts"].items() if n != UNCONSTRAINED}
    beaten = [name for name, c in others.items() if c["marked"] == "better"]
    open_ = [name for name, c in others.items() if c["marked"] in ("undecided", "equivalent")]
    lost = [name for name, c in others.items() if c["marked"] == "worse"]
    if not others:
        return ["Whether it is the constraint that does it, controls would tell (--controls)."]
    texts = []
    if beaten:
        texts.append(f"It is better than {_listed(beaten)}, too.")
    if open_:
        texts.append(f"It is not told apart from {_listed(open_)}: that may explain the gain.")
    matched = [name for name in lost if others[name]["question"] == "matched"]
    if matched:
        texts.append(f"It is worse than {_listed(matched)}: the constraint is not what works.")
    if rest := [name for name in lost if name not in matched]:
        texts.append(f"It is worse than {_listed(rest)}: plain training gains more that way.")
    return texts


def limits(entry: Mapping[str, Json]) -> list[str]:
    """What the table does not show."""
    contrasts = [c for one in entry["settings"] for c in one["contrasts"].values()]
    texts = []
    if any(contrast["units"] is None for contrast in contrasts):
        texts.append(
            "Where no interval over test units is given, it is about these test units alone."
        )
    drawn = [contrast["units"] for contrast in contrasts if contrast["units"] is not None]
    if any(one["groups"] < LEAST_UNITS for one in drawn):
        fewest = min(drawn, key=lambda one: one["groups"])
        texts.append(
            f"Intervals over test units draw {fewest['groups']} {fewest['group']}"
            f"{'s' * (fewest['groups'] > 1)} anew: from fewer than {LEAST_UNITS} they are too "
            "narrow."
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
    tries = f"{found['tries']} tr{'y' if found['tries'] == 1 else 'ies'}"
    plain = f"{found['tries']} plain seed{'s' * (found['tries'] > 1)}"
    return f"best of {tries} against best of {plain}: {found['gain']:+.3f}"


def _listed(names: Sequence[str]) -> str:
    plain = [name.replace("_", " ") for name in names]
    return plain[0] if len(plain) == 1 else f"{', '.join(plain[:-1])} and {plain[-1]}"
