"""Table of a judge's win rates."""

from __future__ import annotations

from collections.abc import Sequence

import click

from sweep.cli.options import console
from sweep.render.terminal import table
from sweep.report.win_rates import PairRate


def print_rates(rates: Sequence[PairRate]) -> None:
    """Print how often a judge preferred the constrained arm's answers."""
    rows = []
    for rate in rates:
        row = {
            "setting": rate.setting,
            "seed": str(rate.seed),
            "gamma": f"{rate.gamma:g}",
            "judged": str(rate.judged),
            "equal": str(rate.equal),
            "win rate": f"{rate.win_rate:.1f} ± {rate.standard_error:.1f}",
        }
        if rate.length_controlled is not None:
            controlled = f"{rate.length_controlled:.1f} ± {rate.lc_standard_error:.1f}"
            row |= {"length-controlled": controlled}
        rows.append(row)
    click.echo("How often the judge prefers the constrained arm's answer, in % (equal ones: half).")
    click.echo("These are winners of one search: no confirmed result.")
    console().print(table(rows, right=tuple(rows[0])[1:]))
