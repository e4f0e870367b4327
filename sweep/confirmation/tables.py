"""Tables of a confirmation for a paper: pairs, and contrasts with controls. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from sweep.confirmation.plan import CONSTRAINED, MEASURES, UNCONSTRAINED, Measure
from sweep.confirmation.summary import ConfirmationSummary, ConfirmedSetting, Contrast, Family
from sweep.confirmation.words import (
    ended_text,
    is_early,
    marked_text,
    p_text,
    sentences,
    units_text,
)
from sweep.glossary import DIRECTION
from sweep.render.table import NOTHING, Row, Table, number
from sweep.results.verdict_text import codes_text

QUESTIONS = {
    "matched": "only who sets the layer weights differs",
    "tuned": "each side is the best of as many tries over its own space",
    "other": "plain training that differs in one thing more",
}

EARLY = (
    "what is decided early is estimated too large; this is the estimate over all seeds that have "
    "ended, which decides nothing. All other numbers of a line are of the seeds that count."
)


def confirmed_table(entry: ConfirmationSummary) -> Table:
    """One row a family, a setting and a contrast; > 0: the constrained network is better."""
    rows: list[Row] = []
    for family in entry.families:
        rows.append({"level": "family", "setting": family.name, **_numbers(family)})
    for one in entry.settings:
        for other, contrast in one.contrasts.items():
            rows.append(_contrast_row(one, other, contrast, entry.measure))
    lines = [(one, *line) for one in entry.settings for line in one.contrasts.items()]
    contrasts = entry.contrasts
    shown = [
        ("setting", [one.setting for one, _, _ in lines]),
        ("against", [other.replace("_", " ") for _, other, _ in lines]),
        ("seeds", [str(contrast.counted) for contrast in contrasts]),
        ("gain", [number(contrast.mean, "+.3f") for contrast in contrasts]),
        ("from", [number(contrast.low, "+.3f") for contrast in contrasts]),
        ("to", [number(contrast.high, "+.3f") for contrast in contrasts]),
        ("p", [number(contrast.p_adjusted, ".2g") for contrast in contrasts]),
        ("outcome", [marked_text(contrast, entry.design) for contrast in contrasts]),
        *early_columns(contrasts),
        ("certified", [_certified(one, other) or NOTHING for one, other, _ in lines]),
    ]
    caption = f"Constrained against other training on fresh seeds, {entry.metric}, test split"
    return Table("confirmed", caption, rows, shown, _notes(entry), texts=2, headed=1)


def early_columns(contrasts: Sequence[Family]) -> list[tuple[str, list[str]]]:
    """Estimates over all ended seeds next to early decisions; no column where there is none."""
    if not any(map(is_early, contrasts)):
        return []
    cells = [ended_text(c) if is_early(c) else NOTHING for c in contrasts]
    counts = [str(c.seeds) if is_early(c) else NOTHING for c in contrasts]
    return [("ended seeds", counts), ("gain over all ended", cells)]


def _notes(entry: ConfirmationSummary) -> list[str]:
    design, every = entry.design, entry.contrasts
    intervals = {contrast.interval for contrast in every}
    questions = {contrast.question for contrast in every} if entry.controls else set()
    return [
        f"Gain: {entry.metric}, {MEASURES[entry.measure]}, in {entry.unit}; {DIRECTION}. "
        "Paired by seed; every planned seed counts, one that "
        f"ended without a result as the {entry.worst_score}.",
        f"Interval: {'; '.join(sorted(intervals))}. p: {p_text(design)}, adjusted: families first "
        f"and their settings after them (Holm); the error of the entire table is {design.error:g}"
        + (", and that of all controls together the same." if entry.controls else "."),
        *([f"Gain over all ended: {EARLY}"] if any(map(is_early, every)) else []),
        "certified: constrained networks that the test units certify as feasible, of those on the "
        f"seeds that count{_certified_over(entry)}.",
        *[f"{name}: {says}." for name, says in entry.controls.items()],
        *[f"Question {name}: {QUESTIONS[name]}." for name in QUESTIONS if name in questions],
        f"Plan {entry.plan}, stored before the test split was read.",
        *[f"Departs from the plan: {text}" for text in entry.deviations],
        *[
            f"{one.setting} against {other.replace('_', ' ')}: {text}."
            for one in entry.settings
            for other, contrast in one.contrasts.items()
            if (text := codes_text(contrast.codes))
        ],
        *sentences(entry),
    ]


def _certified_over(entry: ConfirmationSummary) -> str:
    """How many groups the test units of each setting lie in, in brackets."""
    counts = dict.fromkeys(text for one in entry.settings if (text := units_text(one.test_units)))
    return f" ({'; '.join(counts)})" if counts else ""


def _contrast_row(one: ConfirmedSetting, other: str, contrast: Contrast, measure: Measure) -> Row:
    over_units = contrast.units
    of_plain = {
        "search_gain": one.search_gain,
        "shrinkage": one.shrinkage,
        "equal_tries_gain": one.equal_tries and one.equal_tries.gain,
        "equal_tries": one.equal_tries and one.equal_tries.tries,
    }
    if other != UNCONSTRAINED:
        of_plain = dict.fromkeys(of_plain)
    counts = over_units or one.test_units
    return {
        "level": "setting",
        "setting": one.setting,
        "against": other,
        "question": contrast.question,
        **_numbers(contrast),
        "codes": "; ".join(contrast.codes),
        "constrained_mean": contrast.means[CONSTRAINED].get(measure),
        "other_mean": contrast.means[other].get(measure),
        "certified": _certified(one, other),
        "units_low": over_units and over_units.low,
        "units_high": over_units and over_units.high,
        "units": counts and counts.units,
        "unit_groups": counts and counts.groups,
        "variance_seed": over_units and over_units.variance.seed,
        "variance_unit": over_units and over_units.variance.unit,
        "variance_rest": over_units and over_units.variance.rest,
        **of_plain,
        **{f"{name}_gain": spread and spread.mean for name, spread in contrast.beside.items()},
    }


def _certified(one: ConfirmedSetting, other: str) -> str | None:
    """How many constrained networks are certified, beside the contrast with plain training."""
    ours = one.constrained
    return f"{ours.certified.feasible} of {ours.seeds}" if other == UNCONSTRAINED else None


def _numbers(contrast: Family) -> Row:
    return {
        "family": contrast.family,
        "seeds": contrast.counted,
        "seeds_ended": contrast.seeds,
        "gain": contrast.mean,
        "low": contrast.low,
        "high": contrast.high,
        "interval": contrast.interval,
        "ended_gain": contrast.ended.mean,
        "ended_low": contrast.ended.low,
        "ended_high": contrast.ended.high,
        "ended_interval": contrast.ended.interval,
        "p": contrast.p,
        "p_adjusted": contrast.p_adjusted,
        "p_equivalent": contrast.p_equivalent,
        "e_value": contrast.e_value,
        "d_z": contrast.d_z,
        "outcome": contrast.marked,
        "decided_at": contrast.decided_at,
        "sign_flip_p": contrast.sign_flip.p,
        "sign_flip_least_p": contrast.sign_flip.least_p,
    }
