"""Text of a confirmation: families, settings, controls, and what it comes to."""

from __future__ import annotations

from collections.abc import Mapping

from sweep.cli.options import console
from sweep.cli.text.table import Paragraph, table
from sweep.confirmation.comparisons import CONSTRAINED, UNCONSTRAINED
from sweep.confirmation.plan import MEASURES
from sweep.confirmation.words import sentences
from sweep.results.names import short_names
from sweep.results.tables.formats import NOTHING, number
from trainables.plain import Json


def print_confirmed(entry: Mapping[str, Json]) -> None:
    """The entry of ``confirmed`` for people, with what the numbers mean below."""
    out = console()
    seeds = entry["seeds"]
    whole = min((c["counted"] for c in _plain(entry)), default=0)
    out.print(
        Paragraph(
            f"{entry['name']}: {entry['search']} on fresh seeds, test split. {whole} of "
            f"{len(seeds['planned'])} planned seeds count. Plan {entry['plan']}.",
            style="bold",
        )
    )
    out.print()
    out.print(table([_row(f["name"], f, f["outcome"]) for f in entry["families"]], right=_RIGHT))
    out.print()
    names = short_names([one["setting"] for one in entry["settings"]])
    rows = []
    for one in entry["settings"]:
        for other, contrast in one["contrasts"].items():
            plain = other == UNCONSTRAINED
            name = f"{names[one['setting']]} p{one['proposal']}" if plain else ""
            outcome = one["marked"] if plain else contrast["outcome"]
            against = "plain" if plain else other.replace("_", " ")
            row = _row(name, contrast, outcome, against)
            rows.append(row | {"certified": _certified(one) if plain else ""})
    out.print(table(rows, right=_RIGHT, whole=("against",)))
    out.print()
    gains = [one for one in entry["settings"] if one["search_gain"] is not None]
    if gains:
        out.print(table([_gain_row(one, names) for one in gains], right=("in search", "confirmed")))
        out.print()
    for term in _legend(entry):
        out.print(Paragraph(term, hanging=2))
    for text in entry["deviations"]:
        out.print(Paragraph(f"departs from the plan: {text}", style="yellow", hanging=2))
    out.print("\n" + " ".join(sentences(entry)))


_RIGHT = ("seeds", "difference", "from", "to", "p", "p flips")


def _plain(entry: Mapping[str, Json]) -> list[Mapping[str, Json]]:
    return [one["contrasts"][UNCONSTRAINED] for one in entry["settings"]]


def _row(
    name: str, contrast: Mapping[str, Json], outcome: str, against: str | None = None
) -> dict[str, str]:
    first = {"family": name} if against is None else {"setting": name, "against": against}
    return {
        **first,
        "seeds": str(contrast["counted"]),
        "difference": number(contrast["mean"], "+.3f"),
        "from": number(contrast["low"], "+.3f"),
        "to": number(contrast["high"], "+.3f"),
        "p": number(contrast["p_adjusted"], ".2g"),
        "p flips": number(contrast["sign_flip"]["p"], ".2g"),
        "outcome": outcome,
    }


def _certified(one: Mapping[str, Json]) -> str:
    arm = one["arms"][CONSTRAINED]
    return f"{arm['certified']['feasible']} of {arm['seeds']}"


def _gain_row(one: Mapping[str, Json], names: Mapping[str, str]) -> dict[str, str]:
    shrinkage = one["shrinkage"]
    return {
        "setting": names[one["setting"]],
        "in search": number(one["search_gain"], "+.3f"),
        "confirmed": number(one["confirmed_gain"], "+.3f"),
        "shrunk by": NOTHING if shrinkage is None else f"{shrinkage:.0%}",
        "best of N against best seed": number(one["paper_protocol"], "+.3f"),
    }


def _legend(entry: Mapping[str, Json]) -> list[str]:
    design = entry["design"]
    intervals = {c["interval"] for c in _plain(entry)}
    return [
        f"difference: {entry['metric']}, {MEASURES[entry['measure']]}, in {entry['unit']}; above "
        "0 the constrained network is better. Paired by seed; an arm that ended without a result "
        f"counts as the {entry['worst_score']}.",
        f"from, to: {'; '.join(sorted(intervals))}.",
        f"p: adjusted: families first, then their settings (Holm), {design['error']:g} for the "
        "whole table. p flips: exact sign flips, unadjusted, decides nothing.",
        "certified: constrained networks that the test units certify as feasible.",
        "in search: the winner's difference on the data that selected it. best of N against best "
        "seed: the paper's protocol, which finds gains where there are none.",
        *[f"{name.replace('_', ' ')}: {says}." for name, says in entry["controls"].items()],
    ]
