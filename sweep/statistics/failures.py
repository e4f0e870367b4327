"""Rates of failures, and of what is certified. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.proportion import proportion_confint

from trainables.errors import require


def failure_rates_p(first: Sequence[bool], second: Sequence[bool]) -> float:
    """Two-sided exact McNemar test that two arms fail equally often, paired by seed.

    Pairs count as independent: of one setting they are, of several that share seeds not quite.
    """
    require(
        len(first) == len(second), "failures", len(second), f"as many as the others, {len(first)}"
    )
    table = np.zeros((2, 2), dtype=np.int64)
    np.add.at(table, (np.asarray(first, dtype=int), np.asarray(second, dtype=int)), 1)
    return float(mcnemar(table, exact=True).pvalue)


def clopper_pearson(count: int, total: int, level: float = 0.95) -> tuple[float, float]:
    """Exact interval of a share, such as of seeds certified feasible; at least ``level``.

    >>> [round(bound, 3) for bound in clopper_pearson(5, 5)]
    [0.478, 1.0]
    """
    require(
        0 <= count <= total and total > 0, "count", count, f"from 0 to {total}, and that above 0"
    )
    low, high = proportion_confint(count, total, alpha=1 - level, method="beta")
    return float(low), float(high)
