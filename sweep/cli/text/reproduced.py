"""Text of a reproduction: old and new numbers side by side, and a verdict."""

from __future__ import annotations

import math
from collections.abc import Iterable

from sweep.cli.options import console
from sweep.render.table import NOTHING
from sweep.render.terminal import Paragraph, table
from sweep.results.reproduction import (
    VERDICTS,
    ReproducedArm,
    ReproducedCell,
    Reproduction,
    Verdict,
    is_same_place,
)
from sweep.study.advice import counted
from trainables.plain import Json

FEW_CELLS = 2  # of more, those that are the same get a line each


def print_reproduced(entry: Reproduction) -> None:
    """Print old and new numbers of every cell, and the verdict."""
    out = console()
    cells = entry.cells
    for cell in cells:
        out.print()
        heading = f"{_cell_text(cell)}: {_verdict_text(cell.verdict, cell.arms)}"
        out.print(Paragraph(heading, style="bold"))
        if cell.numbers and (len(cells) <= FEW_CELLS or cell.verdict == "differs"):
            rows = [
                {
                    "": f"  {row.number}",
                    "old": _number(row.old),
                    "new": _number(row.new),
                    "change": _change(row.change),
                }
                for row in cell.numbers
            ]
            out.print(table(rows, right=("old", "new", "change"), unbroken=("",)))
        for arm in cell.arms:
            if arm.verdict != "identical":
                _print_arm(arm)
    arms = [arm for cell in cells for arm in cell.arms]
    out.print()
    count = f"{counted(len(arms), 'arm')} trained again"
    out.print(Paragraph(f"{count}: {_verdict_text(entry.verdict, arms)}", style="bold"))
    if entry.records is not None:
        out.print(Paragraph(f"The new records stay below {entry.records}."))


def _cell_text(cell: ReproducedCell) -> str:
    proposal = "" if cell.proposal is None else f", proposal {cell.proposal}"
    seeds = cell.seeds
    mean = ", numbers are means" * (len(seeds) > 1)
    seed = f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}{mean}"
    return f"{cell.setting}, {cell.arm}{proposal}, {seed}"


def _verdict_text(verdict: Verdict, arms: Iterable[ReproducedArm]) -> str:
    """The verdict, and the largest relative difference if there is one."""
    if verdict == "identical":
        return VERDICTS[verdict]
    relative = [arm.largest_relative for arm in arms]
    farthest = [far for far in relative if far is not None]
    if len(farthest) < len(relative):  # not a number, before or now
        return VERDICTS[verdict]
    return f"{VERDICTS[verdict]}, by {max(farthest):.1g} of a number at most"


def _print_arm(arm: ReproducedArm) -> None:
    out = console()
    what = f"{arm.signature} seed {arm.seed}: {arm.different} numbers differ"
    out.print(Paragraph(what + "; the first:" * (arm.different > len(arm.differences)), 2))
    for one in arm.differences:
        out.print(Paragraph(f"{one.what}: {_short(one.old)} old, {_short(one.new)} new", 4))
    out.print(
        Paragraph(
            "on the same machine type and versions, where equal bits are promised"
            if is_same_place(arm.environment)
            else "equal bits are promised on one machine type and one set of versions; here:",
            2,
        )
    )
    for one in arm.environment:
        out.print(Paragraph(f"{one.what}: {one.old!r} old, {one.new!r} new", 4))


def _short(value: Json) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _number(value: float | None) -> str:
    return NOTHING if value is None or not math.isfinite(value) else f"{value:.6g}"


def _change(value: float | None) -> str:
    return NOTHING if value is None else "0" if value == 0 else f"{value:+.2g}"
