"""Text of replications: their plan, and the table of the tuned question."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sweep.cli.options import console
from sweep.cli.spaces import hours_text
from sweep.cli.text.confirmed import contrast_row
from sweep.cli.text.power import print_power, tests_text
from sweep.confirmation.plan import CONSTRAINED, MEASURES, ReplicationsPlan
from sweep.confirmation.replications import TUNED
from sweep.confirmation.summary import ReplicationsSummary
from sweep.confirmation.words import few_seeds, groups_text, is_early, p_text
from sweep.render.terminal import Paragraph, table

_UNIT = "replications"
_RIGHT = (_UNIT, "gain", "from", "to", "p", "no winner", "certified")


def print_replications_plan(
    plan: ReplicationsPlan, arms: Mapping[str, int], hours: float | None, unit: str
) -> None:
    """Print what would be trained and tested, with which power and at what price.

    ``arms`` are those of one replication, by their purpose; ``hours`` would all take here.
    """
    out, design = console(), plan.design
    out.print(Paragraph(f"{plan.name}: {plan.count} replications of {plan.search}", style="bold"))
    families = [{"family": name, "settings": ", ".join(s)} for name, s in design.families.items()]
    out.print(table(families))
    first = plan.search_seeds[0]
    each = f"{len(first)} seed{'s' * (len(first) > 1)}"
    out.print(
        Paragraph(
            f"Each replication repeats the search with {plan.n_proposals} tries a setting on "
            f"{each} of its own, from {first[0]} on, tunes plain training by as many, and trains "
            f"both winners on one fresh seed, from {plan.seeds[0]} on. "
            f"{tests_text(design, _UNIT, unit)}"
        )
    )
    print_power(design, [plan.count], unit=_UNIT)
    price = "" if hours is None else f", about {hours_text(hours)} (within a factor of 2)"
    most = plan.count * sum(arms.values())
    out.print(
        Paragraph(
            f"Cost: {most:,} arms at most{price} here. A replication: {arms['search']} of the "
            f"search, {arms[TUNED]} of {TUNED}, {arms['confirmation']} on the fresh seed."
        )
    )


def print_replicated(entry: ReplicationsSummary) -> None:
    """Print replications, with what the numbers mean below."""
    out, replications = console(), entry.replications
    out.print(
        Paragraph(
            f"{entry.name}: both sides of {entry.search} tuned anew in every replication, test "
            f"split. {replications.complete} of {replications.planned} planned {_UNIT} are "
            f"complete. Plan {entry.plan}.",
            style="bold",
        )
    )
    out.print()
    early = any(map(is_early, [*entry.families, *entry.settings]))
    families = [
        {"family": family.name, **contrast_row(family, entry.design, _UNIT, early=early)}
        for family in entry.families
    ]
    out.print(table(families, right=_RIGHT))
    out.print()
    rows = []
    for one in entry.settings:
        row = {
            "setting": one.name,
            **contrast_row(one, entry.design, _UNIT, early=early),
            "no winner": f"{one.no_winner[CONSTRAINED]}, {one.no_winner[TUNED]}",
            "certified": f"{one.certified.feasible} of {one.certified.trained}",
        }
        rows.append(row)
    out.print(table(rows, right=_RIGHT, unbroken=("setting",)))
    out.print()
    for term in _legend(entry):
        out.print(Paragraph(term, hanging=2))
    for text in entry.deviations:
        out.print(Paragraph(f"Departs from the plan: {text}", style="yellow", hanging=2))


def _legend(entry: ReplicationsSummary) -> Iterator[str]:
    design, settings = entry.design, entry.settings
    yield (
        "The question is the tuned one: which would one use, each side tuned by "
        f"{entry.replications.n_proposals} tries a setting? The unit is the replication; a matched "
        "comparison is a table of its own."
    )
    yield (
        f"gain: {entry.metric}, {MEASURES[entry.measure]}, in {entry.unit}; above 0 the "
        "constrained winner is better than the tuned plain one. A final arm that ended without a "
        f"result counts as the {entry.worst_score}."
    )
    yield f"from, to: {'; '.join(sorted({one.interval for one in settings}))}."
    if any(map(is_early, settings)):
        yield (
            "all ended replications: what is decided early is estimated too large; this is the "
            "estimate over all replications that have ended, which decides nothing."
        )
    yield (
        f"p: {p_text(design)}, adjusted: families first, then their settings (Holm), "
        f"{design.error:g} for the entire table."
    )
    for one in settings:
        yield from (f"{one.name}: {text}" for text in few_seeds(one, design, _UNIT))
    yield (
        "no winner: in so many of these replications the search of the constrained side, of the "
        "plain side, found none. Without a constrained winner one trains plainly, so the "
        f"replication counts as a gain of 0; without a plain one, its score is the "
        f"{entry.worst_score}."
    )
    yield "certified: constrained winners that the test units certify as feasible, of the trained."
    intervals = [
        f"{one.name} {units.low:+.3f} to {units.high:+.3f}{groups_text(units)}"
        for one in settings
        if (units := one.units) is not None
    ]
    if intervals:
        yield (
            "A setting's gain, loss or equivalence is claimed only where the 95 % crossed "
            "bootstrap over replications and test units agrees, a family's only where one of its "
            f"settings' does: {'; '.join(intervals)}."
        )
