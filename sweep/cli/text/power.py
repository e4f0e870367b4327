"""Power of a confirmation, printed before anything is trained."""

from __future__ import annotations

from collections.abc import Sequence

from sweep.cli.options import console
from sweep.cli.text.table import Paragraph, table
from sweep.statistics import power
from sweep.statistics.design import Design

EFFECTS = (0.5, 1.0, 2.0)  # d_z whose power is printed
SEEDS = 10  # of a confirmation, unless more are asked for


def print_power(design: Design, seeds: Sequence[int]) -> None:
    """How often so many seeds mark an effect, by the design's rule, for each number of them."""
    largest = max(map(len, design.families.values()))
    rows = []
    for count in seeds:
        asked = Design.planned(
            design.families, count, rule=design.rule, error=design.error
        )  # fmt: skip
        for what, tests in (
            ("a family", len(design.families)),
            ("a setting", len(design.families) * largest),
        ):
            marked = {f"d_z {d:g}": f"{power.power(asked, d, count, tests):.2f}" for d in EFFECTS}
            least = power.smallest_effect(asked, count, tests)
            rows.append({"seeds": str(count), "mark": what, **marked, "80 % from": f"{least:.2f}"})
    out = console()
    out.print(table(rows, right=("seeds", *list(rows[0])[2:])))
    count = seeds[0]
    out.print(
        Paragraph(
            "How often an effect is marked, by its size d_z: the mean difference over the standard "
            f"deviation of the differences between seeds. {len(design.families)} "
            f"famil{'y' if len(design.families) == 1 else 'ies'}, {len(design.settings)} settings, "
            f"error {design.error:g} for the whole table. The most extreme sign-flip p of {count} "
            f"seeds is {2 / 2**count:.2g}."
        )
    )
