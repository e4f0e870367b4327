"""Rank correlations of searched values with objective and missing share. Pure.

Searched values vary together, and a search looks where it is good: a correlation is no effect.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from search_spaces.ranges import is_finite
from sweep.results.summary import Correlations, Importance
from sweep.results.sweep_view import SettingView

FEWEST = 5  # proposals that a rank correlation is said of
ENOUGH = 8  # finished proposals from which it is said in the text


def importance(setting: SettingView, searched: Sequence[str]) -> Importance:
    """Rank correlations of each searched number, and of how many proposals they are.

    With the objective over feasible proposals, with the missing share over finished ones.
    None of fewer than FEWEST, and where one of both is constant.
    """
    points = {proposal.number: proposal.point for proposal in setting.proposals}
    finished = [one for one in setting.results if math.isfinite(one.worst_missing_share)]
    feasible = [one for one in finished if one.outcome == "feasible"]

    def rho(field: str, measure: str) -> float | None:
        among = feasible if measure == "objective" else finished
        x = [points[one.number].get(field) for one in among]
        if len(among) < FEWEST or not all(map(is_finite, x)):
            return None
        correlation = rank_correlation(np.array(x), [getattr(one, measure) for one in among])
        return None if math.isnan(correlation) else correlation

    rank_correlations = {
        field: Correlations(
            objective=rho(field, "objective"),
            worst_missing_share=rho(field, "worst_missing_share"),
        )
        for field in searched
    }
    return Importance(feasible=len(feasible), finished=len(finished), by_field=rank_correlations)


def rank_correlation(x: npt.ArrayLike, y: npt.ArrayLike) -> float:
    """Spearman's: that of the ranks of pairs without NaN, ties by their mean.

    NaN where one of both is constant.

    >>> rank_correlation([1, 2, 3, 4], [10, 30, 20, 40])
    0.8
    """
    from scipy.stats import rankdata  # `sweep run` starts without it

    pairs = np.array([x, y], dtype=float)
    ranks = rankdata(pairs[:, ~np.isnan(pairs).any(axis=0)], axis=1)
    if any(len(np.unique(rank)) < 2 for rank in ranks):
        return math.nan
    return round(float(np.corrcoef(*ranks)[0, 1]), 12)
