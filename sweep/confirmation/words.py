"""Findings of a confirmation in sentences, from its summary. Pure.

Claims are those of the plan's test alone; whatever is undecided is told with what it leaves open.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sweep.confirmation.controls import CONTROLS
from sweep.confirmation.plan import MEASURES, UNCONSTRAINED, EqualTries
from sweep.confirmation.summary import (
    ConfirmationSummary,
    ConfirmedSetting,
    Contrast,
    Family,
    OverUnits,
    UnitCounts,
)
from sweep.glossary import DIRECTION, TERMS, brief, capitalised
from sweep.results.verdict_text import is_slight, size_text
from sweep.statistics.design import Design
from sweep.statistics.row import Estimate
from sweep.study import advice
from trainables.primal_dual.certificate import LEAST_UNITS, counted

FEW = 10  # seeds or replications, below which a claim has the p of sign flips beside it


def sentences(entry: ConfirmationSummary) -> list[str]:
    """The findings, settings of one outcome together, and then their limits."""
    return [*answer(entry), *limits(entry)]


def answer(entry: ConfirmationSummary) -> list[str]:
    """The findings of every setting; one sentence for all settings of the same outcome."""
    if len(entry.settings) == 1:
        (one,) = entry.settings
        return [f"{one.setting}: {of_setting(one, entry)}"]
    numbers_of: dict[str, list[str]] = {}
    more: dict[str, list[str]] = {}
    for one in entry.settings:
        contrast, verdict = one.against_plain, _verdict(one, entry)
        outcome, numbers = f"{verdict.outcome}{verdict.but}", ""
        if verdict.is_measured:
            late = f"; over all that ended {ended_text(contrast)}" if is_early(contrast) else ""
            numbers = f" {contrast.mean:+.3g} ({interval_text(contrast)}{late})"
            place = _place(contrast, entry)
            outcome = f"against plain training: {verdict.outcome}{place}{verdict.but}"
        numbers_of.setdefault(outcome, []).append(f"{one.setting}{numbers}")
        for text in _besides(one, verdict, entry):
            more.setdefault(text, []).append(one.setting)
    texts = [
        f"{capitalised(outcome)}: {', '.join(settings)}."
        for outcome, settings in numbers_of.items()
    ]
    return texts + [
        f"{'Every setting' if len(names) == len(entry.settings) else ', '.join(names)}: {text}"
        for text, names in more.items()
    ]


def in_short(entry: ConfirmationSummary) -> str:
    """How many settings came to which outcome against plain training, in one sentence."""
    by_outcome: dict[str, list[float | None]] = {}
    for one in entry.settings:
        gains = by_outcome.setdefault(_verdict(one, entry).outcome.partition(";")[0], [])
        gains.append(one.against_plain.mean)
    outcomes = [
        f"{outcome} in {advice.counted(len(gains), 'setting')}{_range(gains, entry.unit)}"
        for outcome, gains in by_outcome.items()
    ]
    return (
        "On fresh seeds and the test split, constrained against plain training: "
        f"{'; '.join(outcomes)}."
    )


def _range(gains: Sequence[float | None], unit: str) -> str:
    known = [gain for gain in gains if gain is not None]
    if not known:
        return ""
    low, high = (f"{gain:+.3g}" for gain in (min(known), max(known)))
    return f" (gain {low if low == high else f'{low} to {high}'} {unit})"


def of_setting(one: ConfirmedSetting, entry: ConfirmationSummary) -> str:
    """The outcome of one setting, against plain training and then against its controls."""
    contrast, verdict = one.against_plain, _verdict(one, entry)
    if not verdict.is_measured:
        return f"{verdict.outcome}{verdict.but}."
    interval = interval_text(contrast)
    texts = [f"{verdict.sized}{_place(contrast, entry)} ({interval}){verdict.but}."]
    if is_early(contrast):
        texts.append(
            f"Over all {contrast.seeds} that ended it is {ended_text(contrast)}: what is "
            "decided early is estimated too large."
        )
    return " ".join([*texts, *_besides(one, verdict, entry)])


class Verdict(NamedTuple):
    """The outcome of a setting in words, which the outcome of others may share."""

    outcome: str  # without a number of its own
    sized: str = ""  # with its size
    but: str = ""  # what takes it back, behind the numbers
    is_measured: bool = True


def _verdict(one: ConfirmedSetting, entry: ConfirmationSummary) -> Verdict:
    """The claim about one setting against plain training."""
    contrast = one.against_plain
    if contrast.mean is None or not contrast.counted:
        return Verdict(f"nothing to compare yet; {statuses_text(one)}", is_measured=False)
    if one.not_binding:
        return Verdict(brief("not binding"), is_measured=False)
    outcome, sized = outcome_words(contrast, contrast.outcome, entry)
    if contrast.marked == contrast.outcome:
        return Verdict(outcome, sized)
    but = ", for these test units, but not where other units are drawn as well"
    outcome, sized = (text.removeprefix("equivalent: ") for text in (outcome, sized))
    return Verdict(f"undecided: {outcome}", f"undecided: {sized}", but)


def outcome_words(contrast: Family, outcome: str, entry: ConfirmationSummary) -> tuple[str, str]:
    """An outcome in words, without its size and with it.

    What is equivalent is slightly better or worse where the table's test of a difference says so
    as well, and its intervals lie on one side of 0.
    """
    least, mean, unit = entry.design.smallest_effect, contrast.mean, entry.unit
    assert mean is not None  # of seeds that count
    if outcome == "undecided":
        return outcome, f"undecided: {mean:+.3g} {unit}"
    equal = "equivalent: " * (outcome == "equivalent")
    p, ends = contrast.p_adjusted, (contrast.low, contrast.high)
    is_different = p is not None and p <= entry.design.error and _is_one_sided(contrast)
    if equal and not is_different:
        no = "no difference that matters"
        return (
            f"{equal}{no} (below {least:g} {unit})",
            f"{equal}{no}, {mean:+.3g} {unit} (below {least:g})",
        )
    if not is_slight(mean, least):
        return outcome, size_text(mean, least, unit)
    way = f"{equal}slightly {'better' if mean > 0 else 'worse'}"
    if equal or all(end is not None and is_slight(end, least) for end in ends):
        return (
            f"{way}, too little to matter (below {least:g} {unit})",
            f"{equal}{size_text(mean, least, unit)}",
        )
    below = "less than what matters"  # which the interval does not rule out
    return (
        f"{way}, by an estimate that is {below} ({least:g} {unit})",
        f"{way}, by an estimated {abs(mean):.3g} {unit}, {below} ({least:g})",
    )


def marked_text(contrast: Family, design: Design) -> str:
    """A claim as a table's cell: "slightly" better below the smallest effect of interest."""
    mean = contrast.mean
    is_small = (
        contrast.marked in ("better", "worse")
        and mean is not None
        and is_slight(mean, design.smallest_effect)
    )
    return f"{'slightly ' * is_small}{contrast.marked}"


def _is_one_sided(contrast: Family) -> bool:
    """True if the interval over seeds, and the one over units if any, exclude 0."""
    over_units = contrast.units if isinstance(contrast, Contrast) else None
    ends = [contrast.low, contrast.high]
    ends += [over_units.low, over_units.high] if over_units else []
    known = [end for end in ends if end is not None]
    return len(known) == len(ends) and (min(known) > 0 or max(known) < 0)


def _place(contrast: Family, entry: ConfirmationSummary) -> str:
    """On what, and over how many seeds; what is trained after the decision does not count."""
    seeds, ended = contrast.counted, contrast.seeds
    what = MEASURES[entry.measure].removeprefix("mean over ")
    counted = f"{seeds}" if ended == seeds else f"{seeds} of the {ended}"
    return f", on {what}, over {counted} fresh seed{'s' * (ended != 1)}"


def _besides(one: ConfirmedSetting, verdict: Verdict, entry: ConfirmationSummary) -> list[str]:
    """Limits of few seeds, counts of certified networks, comparisons with controls."""
    if not verdict.is_measured:
        return []
    ours = one.constrained
    few = units_text(one.test_units)
    on = f" ({few})" if few else ""
    so = "" if ours.feasible else ", so that it is no result about feasible networks"
    certified, means = ours.certified.feasible, ours.feasible_by_mean
    by_mean = "" if means in (None, certified) else f"; {means} are feasible by their means"
    texts = [
        *few_seeds(one.against_plain, entry.design),
        f"{certified} of {ours.seeds} constrained networks are certified feasible on the test "
        f"split{on}{so}{by_mean}.",
    ]
    if one.against_plain.marked == "better":
        texts += _against_controls(one, entry.design.smallest_effect)
    return texts


def units_text(counts: UnitCounts | None) -> str:
    """How many groups the test units lie in; '' where each stands for itself and all are many.

    >>> units_text(UnitCounts(units=72, unit="window", groups=4, group="clip"))
    '72 windows of 4 clips; fewer than 10 certify nothing'
    """
    if counts is None or LEAST_UNITS <= counts.groups == counts.units:
        return ""
    few = f"; fewer than {LEAST_UNITS} certify nothing" if counts.groups < LEAST_UNITS else ""
    return counted(counts.groups, counts.group, counts.units) + few


def groups_text(counts: UnitCounts | OverUnits) -> str:
    """How many groups an interval over units drew, where they are few or not the units.

    >>> groups_text(UnitCounts(units=72, unit="window", groups=4, group="clip"))
    ' (4 clips)'
    """
    if counts.groups == counts.units and counts.groups >= LEAST_UNITS:
        return ""
    return f" ({counts.groups} {counts.group}{'s' * (counts.groups > 1)})"


def of_family(family: Family, entry: ConfirmationSummary) -> str:
    """The outcome of a family against plain training, and what bears it out or not."""
    if not family.counted:
        return "nothing to compare yet."
    names = entry.design.families[family.name]
    numbers = f"mean gain {family.mean:+.3g} {entry.unit} ({interval_text(family)}), {DIRECTION}"
    outcome, over_seeds = family.marked, family.outcome
    words, _ = outcome_words(family, over_seeds, entry)
    if outcome == "not binding":
        text = f"{TERMS['not binding'].brief} in every setting (not binding)"
    elif outcome == over_seeds:
        text = f"{words}; {numbers}"
        alone = [one.against_plain.marked for one in entry.settings if one.setting in names]
        if outcome != "undecided" and outcome not in alone:
            text += "; no setting alone is"
    else:
        text = (
            f"undecided: {words} for these test units, {numbers}, but in no binding setting "
            "where other units are drawn as well"
        )
    texts = [f"{text}."]
    if is_early(family):
        texts.append(f"Over all {family.seeds} seeds that ended: {ended_text(family)}.")
    return " ".join([*texts, *few_seeds(family, entry.design)])


def is_early(contrast: Family) -> bool:
    """True if seeds, or replications, have ended after those that decided it."""
    return contrast.seeds > contrast.counted and contrast.decided_at is not None


def ended_text(contrast: Family) -> str:
    """The estimate over all seeds that have ended, with its interval where it has one."""
    ended = contrast.ended
    between = ended.low is None or ended.high is None
    interval = "no interval before the next look" if between else interval_text(ended)
    return f"{ended.mean:+.3g} ({interval})"


def few_seeds(contrast: Family, design: Design, unit: str = "seeds") -> list[str]:
    """The sign-flip p-value of a difference that few seeds, or replications, show, as a list."""
    count, flip = contrast.counted, contrast.sign_flip
    if contrast.marked not in ("better", "worse") or count >= FEW:
        return []
    text = f"By sign flips p is {flip.p:.2g}, and of {count} {unit} it is never below "
    text += f"{flip.least_p:.2g}"
    if flip.p > design.error and not design.sign_flips:
        text += ": the claim rests on differences being normal"
    return [f"{text}."]


def p_text(design: Design) -> str:
    """Whose p a table has, before it is adjusted.

    >>> p_text(Design.planned({"UT": ("L=4",)}, seeds=20))
    "the paired t test's (where t finds something, sign flips' if that is larger)"
    """
    if design.rule == "any_time":
        both = "the smaller of the t e-process and of its bets on signs alone"
        return f"1 over {both if design.sign_flips else 'the t e-process'}"
    t = "the paired t test's"
    smaller = " (where t finds something, sign flips' if that is larger)"
    return t + smaller * design.sign_flips


def _against_controls(one: ConfirmedSetting, least: float | None) -> list[str]:
    """Comparison with the controls: is it the constraint, or supervision of inner layers?"""
    others = {name: c for name, c in one.contrasts.items() if name != UNCONSTRAINED}
    beaten = [name for name, c in others.items() if c.marked == "better"]
    open_ = [name for name, c in others.items() if c.marked in ("undecided", "equivalent")]
    lost = [name for name, c in others.items() if c.marked == "worse"]
    if not others:
        return ["Controls (--controls) would show whether it is the constraint that does it."]

    def listed(names: Sequence[str]) -> str:
        slight = {name for name in names if is_slight(others[name].mean or 0.0, least)}
        return _listed([f"{name} (slightly)" if name in slight else name for name in names])

    texts = []
    if beaten:
        texts.append(f"It is better than {listed(beaten)}, too.")
    if open_:
        texts.append(f"It is not shown to beat {_listed(open_)}: that may explain the gain.")
    matched = [name for name in lost if others[name].question == "matched"]
    if matched:
        texts.append(f"It is worse than {listed(matched)}: the constraint is not what works.")
    if rest := [name for name in lost if name not in matched]:
        texts.append(f"It is worse than {listed(rest)}: plain training gains more that way.")
    return texts


def limits(entry: ConfirmationSummary) -> list[str]:
    """Limits of the table."""
    texts = []
    if any(contrast.outcome == "equivalent" for contrast in entry.contrasts):
        texts.append(
            f"Equivalent: two one-sided tests rule out {entry.design.smallest_effect:g} "
            f"{entry.unit} or more either way, each at the full level, so that an interval may "
            "reach beyond. It takes precedence over better and worse, whose p is given as well."
        )
    drawn = [contrast.units for contrast in entry.contrasts if contrast.units is not None]
    if len(drawn) < len(entry.contrasts):
        texts.append(
            "Where no interval over test units is given, it is about these test units alone."
        )
    if any(one.groups < LEAST_UNITS for one in drawn):
        fewest = min(drawn, key=lambda one: one.groups)
        groups = advice.counted(fewest.groups, fewest.group)
        if fewest.groups == 1 < fewest.units:  # as ``over_units`` does
            groups = f"the {fewest.unit}s of {groups}"
        texts.append(
            f"Intervals over test units draw {groups} anew: from fewer than {LEAST_UNITS} they are "
            "too narrow."
        )
    if not entry.design.sign_flips:
        texts.append(
            "The plan is from before sign flips had to agree: where differences are not normal its "
            "t tests err more often than they promise (docs/statistics.md)."
        )
    if any(CONTROLS[name].ranges for name in entry.controls):
        texts.append("What was tuned was tuned once: this is about these configurations.")
    if any(contrast.seeds > contrast.counted for contrast in entry.contrasts):
        texts.append(
            "Seeds that ended after a decision, or after the last look, do not count. Early "
            "decisions are made by large estimates: those over all ended seeds are given as well."
        )
    return texts


def interval_text(contrast: Family | Estimate) -> str:
    """The interval of a contrast; its name stands below the table.

    >>> interval_text(Estimate(mean=0.1, low=-0.1, high=0.25, interval="95 % t"))
    '-0.1 to +0.25'
    """
    if contrast.low is None or contrast.high is None:
        return "no interval: too few seeds, or no spread between them"
    return f"{contrast.low:+.3g} to {contrast.high:+.3g}"


def statuses_text(one: ConfirmedSetting) -> str:
    """How a setting's arms ended."""
    parts = []
    for kind, arm in one.arms.items():
        ended = ", ".join(f"{count} {status}" for status, count in arm.ended.items())
        parts.append(f"{kind}: {ended or 'none has ended'}")
    return "; ".join(parts)


def equal_tries_text(best: EqualTries | None) -> str:
    """The paper's comparison of best tries, with equal numbers of them; '' where it is not known.

    >>> equal_tries_text(EqualTries(gain=0.1, tries=2))
    'best of 2 tries against best of 2 plain seeds: +0.100'
    """
    if best is None:
        return ""
    tries, plain = (advice.counted(best.tries, thing) for thing in ("try", "plain seed"))
    return f"best of {tries} against best of {plain}: {best.gain:+.3f}"


def _listed(names: Sequence[str]) -> str:
    plain = [name.replace("_", " ") for name in names]
    return plain[0] if len(plain) == 1 else f"{', '.join(plain[:-1])} and {plain[-1]}"
