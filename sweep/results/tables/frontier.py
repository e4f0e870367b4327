"""Table of the frontier: best objective against demanded descent. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from search_spaces.space import SearchSpace
from sweep.render.table import Row, Table, number
from sweep.results.summary import ArmSummary
from sweep.results.verdict_text import certified_over
from trainables.plain import Json


def frontier_table(space: SearchSpace, entries: Sequence[Mapping[str, Json]]) -> Table:
    """Per setting the proposals that no other beats in both objective and demanded descent."""
    rows: list[Row] = [
        {
            "setting": entry["setting"],
            "proposal": point["number"],
            "winner": entry["winner"] and point["number"] == entry["proposal"],
            "demanded_descent": point["demanded_descent"],
            "least_descent": entry["least_descent"],
            "objective": point["objective"],
            "worst_missing_share": point["worst_missing_share"],
            "certificate": point["certificate"],
        }
        for entry in entries
        for point in entry["frontier"]
    ]
    arms = [ArmSummary.from_json(entry["constrained"] or {}) for entry in entries]
    shown = [
        ("setting", [row["setting"] for row in rows]),
        ("proposal", [f"{r['proposal']}{' (winner)' * r['winner']}" for r in rows]),
        ("descent asked", [number(row["demanded_descent"], ".3f") for row in rows]),
        ("objective", [number(row["objective"], ".4f") for row in rows]),
        ("missing share", [number(row["worst_missing_share"], ".2f") for row in rows]),
        ("certificate", [row["certificate"] for row in rows]),
    ]
    notes = [
        "feasible, useful and non-vacuous proposals that no other one of their setting beats in "
        "both columns; lower objectives are better.",
        "descent asked: the share of f0 that all layers together are asked to remove. certificate: "
        f"what 95 % bounds over the held-out units say{certified_over(arms)}.",
        *(
            f"{entry['setting']}: a winner must ask for {entry['least_descent']:.3g} at least."
            for entry in entries
            if entry["least_descent"]
        ),
    ]
    caption = "Objective against demanded descent"
    return Table("frontier", caption, rows, shown, notes)
