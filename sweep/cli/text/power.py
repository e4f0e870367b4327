"""Power of a confirmation, printed before anything is trained."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from sweep.cli.options import console
from sweep.render.terminal import Paragraph, table
from sweep.statistics import power
from sweep.statistics.design import Design, Rule
from sweep.statistics.paired import least_flip_p
from sweep.study.advice import counted

EFFECTS = (0.5, 1.0, 2.0)  # d_z whose power is printed


def print_power(design: Design, seeds: Sequence[int], unit: str = "seeds") -> None:
    """Print the power of so many seeds, or other units, for each number of them."""
    largest = max(map(len, design.families.values()))
    tests = {"a family": len(design.families), "a setting": len(design.families) * largest}
    rows = [
        {unit: str(count), "mark": what, **_marked(design.rule, design.error, count, number)}
        for count in seeds
        for what, number in tests.items()
    ]
    out = console()
    out.print(table(rows, right=(unit, *list(rows[0])[2:])))
    count, families = seeds[0], len(design.families)
    first, least = design.error / families, least_flip_p(count)
    planned = Design.planned(design.families, count, rule=design.rule, error=design.error)
    nothing = not power.can_mark(planned, count, families)
    out.print(
        Paragraph(
            "How often an effect is marked, by its size d_z: the mean difference over the standard "
            f"deviation of the differences between {unit}. "
            f"{counted(families, 'family')}, "
            f"{counted(len(design.settings), 'setting')}, "
            f"error {design.error:g} for the entire table. Sign flips of {count} {unit} have no p "
            f"below {least:.2g}; a family is marked from {first:.2g} on"
            + (": so few can mark nothing." if nothing else ".")
        )
    )


def tests_text(design: Design, counts: str, unit: str) -> str:
    """The design's tests in a sentence: at which counts, of seeds say, and in the metric's unit."""
    looks = " and ".join(map(str, design.looks)) or "every number of"
    return (
        f"Tested at {looks} {counts} ({design.rule}), error {design.error:g} for the entire table; "
        f"equivalent below {design.smallest_effect:g} {unit}."
    )


def power_text(design: Design, seeds: Sequence[int]) -> str:
    """Power at a difference as large as its spread, in a sentence."""
    parts = []
    for count in seeds:
        planned = Design.planned(design.families, count, rule=design.rule, error=design.error)
        share = power.power(planned, 1.0, count, len(design.families))
        often = power.can_mark(planned, count, len(design.families))
        parts.append(f"{f'in {100 * share:.0f} %' if often else 'never'} with {count}")
    return (
        "A gain of a family as large as its standard deviation between seeds would be found "
        f"{', '.join(parts[:-1])} and {parts[-1]} seeds."
    )


@cache
def _marked(rule: Rule, error: float, seeds: int, tests: int) -> dict[str, str]:
    """A row: it depends on how many families and settings there are, not on which."""
    design = Design.planned({"a family": ("a setting",)}, seeds, rule=rule, error=error)
    row = {f"d_z {d:g}": f"{power.power(design, d, seeds, tests):.2f}" for d in EFFECTS}
    return row | {"80 % from": f"{power.smallest_effect(design, seeds, tests):.2f}"}
