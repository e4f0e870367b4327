"""Rank correlations of searched values, over feasible and over finished proposals."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from sweep.results.best import best_summaries
from sweep.results.importance import rank_correlation
from sweep.results.summary import SettingSummary
from sweep.results.sweep_view import load_sweep
from sweep.results.verdict_text import verdict_lines
from tests.support.sweeps import DIVERGED, FEASIBLE, FIRST, INFEASIBLE, SPACE, Losses, store_sweep
from trainables.records.objects import ObjectStore

OBJECTIVES = [-0.2, -0.5, -0.3, -0.1, -0.4, -0.6]  # of the feasible ones, by rising alpha


def entry_of(objects: ObjectStore, came_to: list[Losses]) -> SettingSummary:
    """Alpha rises with the number of a proposal."""
    store_sweep(
        objects,
        {FIRST: came_to},
        space=replace(SPACE, n_proposals=len(came_to)),
        objectives={(FIRST, number): value for number, value in enumerate(OBJECTIVES)},
    )
    return best_summaries(load_sweep(objects, "tiny"), {})[0]


def test_objectives_count_over_feasible_and_shares_over_finished_proposals(
    objects: ObjectStore,
) -> None:
    entry = entry_of(objects, [*[FEASIBLE] * 6, INFEASIBLE, INFEASIBLE, DIVERGED])
    found = entry.importance
    assert found is not None
    assert (found.feasible, found.finished) == (6, 8)
    rho = found.by_field["constraint.alpha"]
    assert rho.objective == pytest.approx(stats.spearmanr(range(6), OBJECTIVES).statistic)
    assert 0.5 < rho.worst_missing_share < 1  # the two that miss ask for the most
    (line,) = [line for line in verdict_lines(entry) if line.startswith("rank correlation")]
    said = f"alpha {rho.objective:+.2f}, {rho.worst_missing_share:+.2f}"
    assert line.endswith(f"(6 feasible proposals) and the missing share (8 finished): {said}")


def test_with_few_proposals_nothing_is_said(objects: ObjectStore) -> None:
    entry = entry_of(objects, [*[FEASIBLE] * 4, INFEASIBLE, INFEASIBLE])
    assert entry.importance is not None
    rho = entry.importance.by_field["constraint.alpha"]
    assert rho.objective is None  # of four
    assert rho.worst_missing_share > 0.5  # of six
    assert not [line for line in verdict_lines(entry) if line.startswith("rank correlation")]


@pytest.mark.parametrize("seed", range(3))
def test_rank_correlations_are_spearmans(seed: int) -> None:
    x, y = np.random.default_rng(seed).integers(0, 9, (2, 30))  # ties as well
    assert rank_correlation(x, y) == pytest.approx(stats.spearmanr(x, y).statistic)
    assert math.isnan(rank_correlation(x, np.ones(30)))
    holes = [math.nan, *x], [1, *y]  # what is not known on one side counts on neither
    assert rank_correlation(*holes) == rank_correlation(x, y)
