"""Table of the frontier: best objective against demanded descent. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sweep.glossary import brief
from sweep.render.table import Column, Table, table_of
from sweep.results.summary import SettingSummary
from sweep.results.tables.columns import SettingLine
from sweep.results.verdict_text import certified_over
from sweep.study.selection import FrontierPoint


@dataclass(frozen=True)
class Line(SettingLine):
    """A proposal of a setting's frontier."""

    point: FrontierPoint

    @property
    def is_winner(self) -> bool:
        """True for the setting's winner."""
        return self.summary.winner and self.point.number == self.summary.proposal


COLUMNS: Sequence[Column[Line]] = (
    Column("setting", lambda one: one.summary.setting),
    Column("proposal", lambda one: f"{one.point.number}{' (winner)' * one.is_winner}", name=""),
    Column("", lambda one: one.point.number, name="proposal"),
    Column("", lambda one: one.is_winner, name="winner"),
    Column("descent asked", lambda one: one.point.demanded_descent, ".3f", "demanded_descent"),
    Column("", lambda one: one.summary.least_descent, name="least_descent"),
    Column("objective", lambda one: one.point.objective, ".4f"),
    Column(
        "missing share", lambda one: one.point.worst_missing_share, ".2f", "worst_missing_share"
    ),
    Column("certificate", lambda one: one.point.certificate),
)


def frontier_table(summaries: Sequence[SettingSummary]) -> Table:
    """Per setting the proposals that no other beats in both objective and demanded descent."""
    notes = [
        "feasible, binding proposals that beat the trivial predictors and that no other "
        "one of their setting beats in both columns; lower objectives are better.",
        f"{brief('descent asked', 'certificate')}"
        f"{certified_over(summary.constrained for summary in summaries)}.",
        *(
            f"{summary.setting}: a winner must ask for {summary.least_descent:.3g} at least."
            for summary in summaries
            if summary.least_descent
        ),
    ]
    lines = [Line(summary, point) for summary in summaries for point in summary.frontier]
    return table_of("frontier", "Objective against demanded descent", COLUMNS, lines, notes)
