"""Text of a confirmation: families, settings, controls, and what it comes to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sweep.cli.options import console
from sweep.confirmation.plan import MEASURES, UNCONSTRAINED
from sweep.confirmation.summary import ConfirmationSummary, ConfirmedSetting, Family
from sweep.confirmation.tables import EARLY
from sweep.confirmation.words import (
    ended_text,
    equal_tries_text,
    groups_text,
    in_short,
    is_early,
    limits,
    marked_text,
    of_setting,
    p_text,
    units_text,
)
from sweep.glossary import DIRECTION, capitalised
from sweep.render.table import NOTHING, number
from sweep.render.terminal import Paragraph, table
from sweep.statistics.design import Design


def print_outcome(entry: ConfirmationSummary) -> None:
    """Print what a confirmation came to, in one sentence."""
    console().print(Paragraph(in_short(entry), style="bold"))


def print_confirmed(entry: ConfirmationSummary) -> None:
    """Print a confirmation, with what the numbers mean below."""
    out = console()
    out.print(
        Paragraph(
            f"{entry.name}: {entry.search} on fresh seeds, test split. {entry.whole_seeds} of "
            f"{len(entry.seeds.planned)} planned seeds count. Plan {entry.plan}.",
            style="bold",
        )
    )
    out.print()
    early, design = any(map(is_early, [*entry.families, *entry.contrasts])), entry.design
    families = [{"family": f.name, **contrast_row(f, design, early=early)} for f in entry.families]
    out.print(table(families, right=_RIGHT))
    for one in entry.settings:
        out.print()
        how = ", named by hand" if one.chosen == "named" else ""
        out.print(Paragraph(f"{one.setting}, proposal {one.proposal}{how}", style="bold"))
        rows = []
        for other, contrast in one.contrasts.items():
            numbers = contrast_row(contrast, design, early=early)
            rows.append({"  against": f"  {_plainly(other)}", **numbers})
        out.print(table(rows, right=_RIGHT, unbroken=("  against",)))
        verdict = of_setting(one, entry)
        for line in (capitalised(verdict), *_lines(one)):
            out.print(Paragraph(line, 2))
    out.print()
    for term in _legend(entry):
        out.print(Paragraph(term, hanging=2))
    for text in entry.deviations:
        out.print(Paragraph(f"Departs from the plan: {text}", style="yellow", hanging=2))
    if rest := limits(entry):
        out.print()
        out.print(Paragraph(" ".join(rest)))


def _plainly(other: str) -> str:
    """Name of a comparison's other arm."""
    return "plain training" if other == UNCONSTRAINED else other.replace("_", " ")


_RIGHT = ("seeds", "gain", "from", "to", "p")


def contrast_row(
    contrast: Family, design: Design, unit: str = "seeds", *, early: bool
) -> dict[str, str]:
    """The numbers of one comparison as a table's cells.

    Args:
        contrast: a family's or a setting's.
        design: has the smallest effect of interest.
        unit: what it counts.
        early: whether to show beside it what all say that have ended.
    """
    cell = f"{contrast.seeds}: {ended_text(contrast)}" if is_early(contrast) else NOTHING
    return {
        unit: str(contrast.counted),
        "gain": number(contrast.mean, "+.3f"),
        "from": number(contrast.low, "+.3f"),
        "to": number(contrast.high, "+.3f"),
        "p": number(contrast.p_adjusted if contrast.counted else None, ".2g"),
        "outcome": marked_text(contrast, design),
        **({f"all ended {unit}": cell} if early else {}),
    }


def _lines(one: ConfirmedSetting) -> Iterator[str]:
    """Notes below the numbers of a setting."""
    arm = one.constrained
    if arm.certified_interval is not None:
        low, high = arm.certified_interval
        yield (
            f"certified feasible: {arm.certified.feasible} of {arm.seeds} (95 % of seeds: "
            f"{100 * low:.0f} % to {100 * high:.0f} %); "
            f"infeasible: {arm.certified.infeasible}"
            + "".join(f"; {few}" for few in [units_text(one.test_units)] if few)
        )
    intervals = [
        f"{_plainly(other)} {units.low:+.3f} to {units.high:+.3f}{groups_text(units)}"
        for other, contrast in one.contrasts.items()
        if (units := contrast.units) is not None
    ]
    if intervals:
        yield f"over other seeds and test units: {'; '.join(intervals)}"
    if one.search_gain is not None:
        shrunk = "" if one.shrinkage is None else f", shrunk by {100 * one.shrinkage:.0f} %"
        yield (
            f"in search: {number(one.search_gain, '+.3f')}; confirmed: "
            f"{number(one.confirmed_gain, '+.3f')}{shrunk}"
            + (f"; in search, {equal_tries_text(one.equal_tries)}" if one.equal_tries else "")
        )


_UNITS = (
    "over other seeds and test units: 95 % crossed bootstrap of both; where it does not agree, a "
    "gain, a loss or an equivalence over seeds alone is undecided; so is a family, where it "
    "agrees in no setting that binds."
)


def _search_legend(settings: Sequence[ConfirmedSetting]) -> list[str]:
    """Legend of the lines about the search that are shown."""
    searched = [one for one in settings if one.search_gain is not None]
    if not searched:
        return []
    text = "in search: the gain on the data that selected it; confirmed: that on fresh seeds and "
    text += "on other data, the test split"
    if any(one.shrinkage is not None for one in searched):
        text += "; shrunk by: what of it is lost there"
    if any(one.equal_tries for one in searched):
        text += (
            ". best of tries against best of plain seeds: the paper's comparison, of equal numbers "
            "on both sides (in the mean over all ways to draw them), feasible or not, on the same "
            "data and measure; it confirms nothing"
        )
    return [f"{text}."]


def _legend(entry: ConfirmationSummary) -> list[str]:
    error, controls = entry.design.error, entry.controls
    by_kind: dict[str, set[str]] = {}  # controls have an error, and so intervals, of their own
    for one in entry.settings:
        for other, contrast in one.contrasts.items():
            kind = "plain training" if other == UNCONSTRAINED else "controls"
            by_kind.setdefault(kind, set()).add(contrast.interval)
    intervals = [f"against {kind} {', '.join(sorted(names))}" for kind, names in by_kind.items()]
    return [
        f"gain: {entry.metric}, {MEASURES[entry.measure]}, in {entry.unit}; "
        f"{DIRECTION}. Paired by seed; an arm that ended without a result "
        f"counts as the {entry.worst_score}.",
        f"from, to: {'; '.join(intervals)}.",
        *([f"all ended seeds: {EARLY}"] if any(map(is_early, entry.contrasts)) else []),
        f"p: {p_text(entry.design)}, adjusted: families first, then their settings (Holm), "
        f"{error:g} for the entire table"
        + (f", and {error / len(controls):.2g} for each control." if controls else "."),
        *([_UNITS] if any(contrast.units for contrast in entry.contrasts) else []),
        *_search_legend(entry.settings),
        *[f"{name.replace('_', ' ')}: {says}." for name, says in controls.items()],
    ]
