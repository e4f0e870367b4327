"""Page of a confirmation: its plan, its comparisons, and their limits. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from html import escape

from sweep.confirmation.plan import CONSTRAINED, MEASURES, UNCONSTRAINED, Plan
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
from sweep.render.table import NOTHING, Table, number
from sweep.report.pages import markup
from sweep.report.pages.markup import Picture
from sweep.report.pages.search import provenance_part, whole_seeds
from sweep.results.names import point_text
from trainables.plain import Json


def confirmed_page(
    status: Mapping[str, Json],
    entry: Mapping[str, Json],
    plan: Plan,
    figures: Mapping[str, Mapping[str, Picture]],
    provenance: Mapping[str, Json],
    commands: Mapping[str, Mapping[str, str]],
) -> str:
    """The page of a confirmation as a text.

    Args:
        status: that of ``status_entry``.
        entry: that of ``confirmed``.
        plan: of the confirmation.
        figures: pages by key, by the key of ``FIGURES``.
        provenance: what ``provenance.manifest`` says.
        commands: what to type by what it does: "next", "again".
    """
    name = entry["name"]
    whole = confirmed_table(entry)
    said = set(sentences(entry))  # which stand in the first screen and beside each setting
    heads = [head for head, _ in whole.shown]
    first = [*heads[: whole.texts], "outcome", "gain", "certified"]  # what a phone shows
    table = replace(
        whole,
        shown=sorted(whole.shown, key=lambda column: (first + heads).index(column[0])),
        notes=[note for note in whole.notes if note not in said],
    )
    answer = {
        "Question": [escape(text) for text in _asked(entry, plan)],
        "Answer": [escape(text) for text in _families(entry)],
    }
    rest = {
        "How sure": list(_believed(status, entry, plan)),
        "Next": [markup.command(what, text) for what, text in commands["next"].items()],
    }
    linked = [one["setting"] for one in entry["settings"]]
    comparisons = markup.table(table, level=2, linked=linked)
    return markup.document(
        f"{name}: report",
        markup.lead(name, f"{plan.search} on fresh seeds, test split", answer, comparisons, rest),
        {
            "Families": markup.table(_family_table(entry)),
            "Settings": "".join(_setting(one, entry) for one in entry["settings"]),
            "Figures": markup.figures(figures),
            "Plan": _plan(plan, entry["unit"]),
            "Again": "".join(markup.command(*one) for one in commands["again"].items()),
            "Provenance": provenance_part(provenance),
        },
    )


def _asked(entry: Mapping[str, Json], plan: Plan) -> Iterator[str]:
    controls = ", ".join(name.replace("_", " ") for name in plan.controls)
    yield (
        f"Are the winners of {plan.search} better than plain training on seeds that no search saw, "
        f"on the test split? Compared: {entry['metric']}, {MEASURES[plan.measure]}, in "
        f"{entry['unit']}{f'; controls: {controls}' * bool(controls)}."
    )


def _families(entry: Mapping[str, Json]) -> Iterator[str]:
    """The plan's first question, a family each; then every setting."""
    for family in entry["families"]:
        yield f"{family['name']}, all settings together: {of_family(family, entry)}"
    yield from answer(entry)


def _believed(status: Mapping[str, Json], entry: Mapping[str, Json], plan: Plan) -> Iterator[str]:
    arms, whole = status["arms"], whole_seeds(entry)
    yield escape(
        f"{whole} of {len(plan.seeds)} planned seeds count; {arms['final']} of {arms['wanted']} "
        f"arms are final. Plan {entry['plan']} was stored before the test split was read."
    )
    if status["state"] not in ("finished", "failed"):
        yield markup.warning(
            f"This confirmation is {status['state']} and not at its end: what is undecided can "
            "still be decided."
        )
    for text in entry["deviations"]:
        yield markup.warning(f"Departs from the plan: {text}")
    if not entry["deviations"]:
        yield "Nothing departs from the plan."
    yield from (escape(text) for text in limits(entry))


def _family_table(entry: Mapping[str, Json]) -> Table:
    families = entry["families"]
    shown = [
        ("family", [family["name"] for family in families]),
        ("outcome", [marked_text(family, entry) for family in families]),
        ("seeds", [str(family["counted"]) for family in families]),
        ("gain", [number(family["mean"], "+.3f") for family in families]),
        ("from", [number(family["low"], "+.3f") for family in families]),
        ("to", [number(family["high"], "+.3f") for family in families]),
        ("p", [number(f["p_adjusted"] if f["counted"] else None, ".2g") for f in families]),
        *early_columns(families),
    ]
    return Table("families", "Families, tested first", [], shown, [], texts=2)


def _setting(one: Mapping[str, Json], entry: Mapping[str, Json]) -> str:
    name, ours = escape(one["setting"]), one["arms"][CONSTRAINED]
    plain = one["contrasts"][UNCONSTRAINED]
    values = point_text(one["point"])
    how = "named by hand" if one["chosen"] == "named" else "its winner in the search"
    said = of_setting(one, entry)
    lines = [
        said[0].upper() + said[1:],
        f"Proposal {one['proposal']}, {how}{f': {values}' * bool(values)}.",
    ]
    if ours["certified_interval"] is not None:
        low, high = ours["certified_interval"]
        lines.append(
            f"Certified feasible: {ours['certified']['feasible']} of {ours['seeds']} seeds (95 % "
            f"of seeds: {low:.0%} to {high:.0%}); certified infeasible: "
            f"{ours['certified']['infeasible']}."
            + "".join(f" Test units: {few}." for few in [units_text(one)] if few)
        )
    if one["search_gain"] is not None:
        shrunk = (
            ""
            if one["shrinkage"] is None
            else f", less by {one['shrinkage']:.0%} on other seeds and other data"
        )
        lines.append(
            f"In search: {number(one['search_gain'], '+.3f')}, on the data that selected it; "
            f"confirmed: {number(one['confirmed_gain'], '+.3f')}{shrunk}."
            + "".join(
                f" There, {text}, each in the mean over all ways to draw as many."
                for text in [equal_tries_text(one)]
                if text
            )
        )
    return (
        f'<section aria-labelledby="{name}"><h3 id="{name}">{name}</h3>'
        f"<p><span class=tag>{escape(marked_text(plain, entry))}</span></p>{markup.bullets(lines)}"
        f"{markup.table(_arms(one, entry), level=4)}"
        f"{markup.details('Gains seed by seed', markup.table(_seeds(one), level=4))}"
        "</section>"
    )


def _arms(one: Mapping[str, Json], entry: Mapping[str, Json]) -> Table:
    """Every kind of arm, and how the constrained one stands to it."""
    kinds, measure, plain = one["arms"], entry["measure"], one["contrasts"][UNCONSTRAINED]
    contrasts = [one["contrasts"].get(kind) or {} for kind in kinds]
    on_same = [c.get("means", {}).get(CONSTRAINED, {}).get(measure) for c in contrasts]
    counted = [one["contrasts"].get(kind, plain)["counted"] for kind in kinds]
    differ = len({*counted}) > 1  # contrasts are decided at stages of their own

    def units(contrast: Mapping[str, Json]) -> str:
        found = contrast.get("units")
        if found is None:
            return NOTHING
        return f"{found['low']:+.3f} to {found['high']:+.3f}{groups_text(found)}"

    ended = [", ".join(f"{n} {how}" for how, n in arm["ended"].items()) for arm in kinds.values()]
    shown = [
        ("arm", [kind.replace("_", " ") for kind in kinds]),
        ("arms ended", [text or NOTHING for text in ended]),
        ("outcome against it", [marked_text(c, entry) if c else NOTHING for c in contrasts]),
        ("seeds", [str(arm["seeds"]) for arm in kinds.values()]),
        ("mean", [number(arm["mean"].get(measure), ".3f") for arm in kinds.values()]),
        ("sd", [number(arm["sd"].get(measure), ".3f") for arm in kinds.values()]),
        *(
            [("constrained on these seeds", [number(mean, ".3f") for mean in on_same])]
            if differ
            else []
        ),
        ("gain over it", [number(c.get("mean"), "+.3f") for c in contrasts]),
        ("over seeds and test units", [units(c) for c in contrasts]),
        (
            "certified",
            [f"{arm['certified']['feasible']} of {arm['seeds']}" for arm in kinds.values()],
        ),
    ]
    return Table("arms", "Arms", [], shown, [], texts=3)


def _seeds(one: Mapping[str, Json]) -> Table:
    contrasts = one["contrasts"]
    seeds = sorted({int(seed) for c in contrasts.values() for seed in c["per_seed"]})
    shown = [("seed", list(map(str, seeds)))]
    for other, contrast in contrasts.items():
        cells = [number(contrast["per_seed"].get(str(seed)), "+.4f") for seed in seeds]
        shown.append((f"against {other.replace('_', ' ')}", cells))
    return Table("seeds", "Gains", [], shown, [], texts=0)


def _plan(plan: Plan, unit: str) -> str:
    """What was decided before anything was trained."""
    design = plan.design
    looks = " and ".join(map(str, design.looks)) or "every number of"
    least = design.smallest_effect
    families = [f"{family}: {', '.join(of)}" for family, of in design.families.items()]
    rules = [
        f"Plan {plan.digest}; what it trains hashes to {plan.trained or 'nothing known'}.",
        f"{len(plan.seeds)} fresh seeds from {plan.seeds[0]}, tested at {looks} seeds "
        f"({design.rule}); error {design.error:g} for the whole table.",
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
    whole = markup.details("The plan, as JSON", markup.as_json(plan.to_json()), printed=False)
    return markup.bullets(rules) + whole
