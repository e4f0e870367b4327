"""Page of a confirmation: its plan, its comparisons, and their limits. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from sweep.confirmation.plan import CONSTRAINED, MEASURES, Plan
from sweep.confirmation.summary import ConfirmationSummary, ConfirmedSetting, Contrast
from sweep.confirmation.tables import confirmed_table, early_columns
from sweep.confirmation.words import (
    answer,
    equal_tries_text,
    groups_text,
    limits,
    marked_text,
    of_family,
    of_setting,
    sentences,
    units_text,
)
from sweep.glossary import capitalised, point_text
from sweep.render.table import NOTHING, Table, number
from sweep.report.pages.markup import (
    Commands,
    Pages,
    Paragraph,
    as_json,
    fill_page,
    open_first,
    provenance_of,
)
from sweep.results.provenance import Manifest
from sweep.results.status import SweepStatus

# For the template: a setting's name, outcome, sentences, every kind of arm, every seed.
_Setting = tuple[str, str, list[str], Table, Table]


def confirmed_page(
    status: SweepStatus,
    entry: ConfirmationSummary,
    plan: Plan,
    pictures: Mapping[str, Pages],
    provenance: Manifest,
    commands: Commands,
) -> str:
    """The page of a confirmation as a text."""
    return fill_page(
        "confirmation.html.jinja",
        name=entry.name,
        what=f"{plan.search} on fresh seeds, test split",
        question=_question(entry, plan),
        answer=list(_families(entry)),
        comparison=_comparison(entry),
        sure=list(_doubts(status, entry, plan)),
        following=commands.following,
        families=_family_table(entry),
        settings=[_setting(one, entry) for one in entry.settings],
        pictures=open_first(pictures),
        rules=_rules(plan, entry.unit),
        plan=as_json(plan.to_json()),
        again=commands.again,
        origin=provenance_of(provenance),
    )


def _comparison(entry: ConfirmationSummary) -> Table:
    """The table of a paper; what a phone shows comes first, and no note repeats the page."""
    table = confirmed_table(entry)
    shown = dict(table.shown)
    first = [*list(shown)[: table.texts], "outcome", "gain", "certified"]
    repeated = set(sentences(entry))  # which stand in the first screen and beside each setting
    return replace(
        table,
        shown=[(header, shown[header]) for header in dict.fromkeys([*first, *shown])],
        notes=[note for note in table.notes if note not in repeated],
    )


def _question(entry: ConfirmationSummary, plan: Plan) -> str:
    controls = ", ".join(name.replace("_", " ") for name in plan.controls)
    return (
        f"Are the winners of {plan.search} better than plain training on seeds that no search saw, "
        f"on the test split? Compared: {entry.metric}, {MEASURES[plan.measure]}, in "
        f"{entry.unit}{f'; controls: {controls}' * bool(controls)}."
    )


def _families(entry: ConfirmationSummary) -> Iterator[str]:
    """The plan's first question, a family each; then every setting."""
    for family in entry.families:
        yield f"{family.name}, all settings together: {of_family(family, entry)}"
    yield from answer(entry)


def _doubts(
    status: SweepStatus, entry: ConfirmationSummary, plan: Plan
) -> Iterator[str | Paragraph]:
    arms = status.arms
    yield (
        f"{entry.whole_seeds} of {len(plan.seeds)} planned seeds count; {arms.final} of "
        f"{arms.wanted} arms are final. "
        f"Plan {entry.plan} was stored before the test split was read."
    )
    if status.state not in ("finished", "failed"):
        yield Paragraph(
            f"This confirmation is {status.state} and not at its end: what is undecided can "
            "still be decided.",
            is_warning=True,
        )
    for text in entry.deviations:
        yield Paragraph(f"Departs from the plan: {text}", is_warning=True)
    if not entry.deviations:
        yield "Nothing departs from the plan."
    yield from limits(entry)


def _family_table(entry: ConfirmationSummary) -> Table:
    families = entry.families
    shown = [
        ("family", [family.name for family in families]),
        ("outcome", [marked_text(family, entry.design) for family in families]),
        ("seeds", [str(family.counted) for family in families]),
        ("gain", [number(family.mean, "+.3f") for family in families]),
        ("from", [number(family.low, "+.3f") for family in families]),
        ("to", [number(family.high, "+.3f") for family in families]),
        ("p", [number(f.p_adjusted if f.counted else None, ".2g") for f in families]),
        *early_columns(families),
    ]
    return Table("families", "Families, tested first", [], shown, [], texts=2)


def _setting(one: ConfirmedSetting, entry: ConfirmationSummary) -> _Setting:
    ours, values = one.constrained, point_text(one.point)
    how = "named by hand" if one.chosen == "named" else "its winner in the search"
    verdict = of_setting(one, entry)
    lines = [capitalised(verdict), f"Proposal {one.proposal}, {how}{f': {values}' * bool(values)}."]
    if ours.certified_interval is not None:
        low, high = ours.certified_interval
        lines.append(
            f"Certified feasible: {ours.certified.feasible} of {ours.seeds} seeds (95 % "
            f"of seeds: {low:.0%} to {high:.0%}); certified infeasible: "
            f"{ours.certified.infeasible}."
            + "".join(f" Test units: {few}." for few in [units_text(one.test_units)] if few)
        )
    if one.search_gain is not None:
        shrunk = (
            ""
            if one.shrinkage is None
            else f", less by {one.shrinkage:.0%} on other seeds and other data"
        )
        lines.append(
            f"In search: {number(one.search_gain, '+.3f')}, on the data that selected it; "
            f"confirmed: {number(one.confirmed_gain, '+.3f')}{shrunk}."
            + "".join(
                f" There, {text}, each in the mean over all ways to draw as many."
                for text in [equal_tries_text(one.equal_tries)]
                if text
            )
        )
    outcome = marked_text(one.against_plain, entry.design)
    return one.setting, outcome, lines, _arms(one, entry), _seeds(one)


def _arms(one: ConfirmedSetting, entry: ConfirmationSummary) -> Table:
    """Every kind of arm, and how the constrained one stands to it."""
    kinds, measure = one.arms, entry.measure
    contrasts = [one.contrasts.get(kind) for kind in kinds]
    on_same = [c.means[CONSTRAINED].get(measure) if c else None for c in contrasts]
    counted = [(contrast or one.against_plain).counted for contrast in contrasts]
    differ = len({*counted}) > 1  # contrasts are decided at stages of their own

    def units(contrast: Contrast | None) -> str:
        if contrast is None or contrast.units is None:
            return NOTHING
        interval = contrast.units
        return f"{interval.low:+.3f} to {interval.high:+.3f}{groups_text(interval)}"

    ended = [", ".join(f"{n} {how}" for how, n in arm.ended.items()) for arm in kinds.values()]
    shown = [
        ("arm", [kind.replace("_", " ") for kind in kinds]),
        ("arms ended", [text or NOTHING for text in ended]),
        ("outcome against it", [marked_text(c, entry.design) if c else NOTHING for c in contrasts]),
        ("seeds", [str(arm.seeds) for arm in kinds.values()]),
        ("mean", [number(arm.mean.get(measure), ".3f") for arm in kinds.values()]),
        ("sd", [number(arm.sd.get(measure), ".3f") for arm in kinds.values()]),
        *(
            [("constrained on these seeds", [number(mean, ".3f") for mean in on_same])]
            if differ
            else []
        ),
        ("gain over it", [number(c.mean if c else None, "+.3f") for c in contrasts]),
        ("over seeds and test units", [units(c) for c in contrasts]),
        ("certified", [f"{arm.certified.feasible} of {arm.seeds}" for arm in kinds.values()]),
    ]
    return Table("arms", "Arms", [], shown, [], texts=3)


def _seeds(one: ConfirmedSetting) -> Table:
    contrasts = one.contrasts
    seeds = sorted({int(seed) for c in contrasts.values() for seed in c.per_seed})
    shown = [("seed", list(map(str, seeds)))]
    for other, contrast in contrasts.items():
        cells = [number(contrast.per_seed.get(str(seed)), "+.4f") for seed in seeds]
        shown.append((f"against {other.replace('_', ' ')}", cells))
    return Table("seeds", "Gains", [], shown, [], texts=0)


def _rules(plan: Plan, unit: str) -> list[str]:
    """The plan: decided before anything was trained."""
    design = plan.design
    looks = " and ".join(map(str, design.looks)) or "every number of"
    least = design.smallest_effect
    families = [f"{family}: {', '.join(names)}" for family, names in design.families.items()]
    return [
        f"Plan {plan.digest}; what it trains hashes to {plan.trained or 'nothing known'}.",
        f"{len(plan.seeds)} fresh seeds from {plan.seeds[0]}, tested at {looks} seeds "
        f"({design.rule}); error {design.error:g} for all comparisons together.",
        "No smallest difference of interest was named."
        if least is None
        else f"Equivalent below {least:g} {unit}.",
        f"An arm that ended without a result counts as the {plan.worst_score}.",
        f"Controls: {', '.join(plan.controls) or 'none'}.",
        "Trained look by look, and no further than to a decision."
        if plan.until_decided
        else "Every seed is trained, whatever is decided before.",
        *families,
    ]
