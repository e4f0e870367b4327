"""Paired statistics of one comparison: t and sign flips. Pure.

What is analysed are differences, one per seed, of two arms that share it: ``Delta_k`` = score of
the first arm less that of the second, signed so that > 0 is better for the first. The unit is the
seed. Shape suffix: K one per seed; leading axes are free where a function takes ``[..., K]``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from sweep.statistics.row import ExactTest

Floats = NDArray[np.float64]

ROUNDING = 1e-12  # of the largest value: differences that differ by less are the same one
EXACT_SEEDS = 32  # two halves of 2**16 sums each; above that sign flips are drawn
DRAWN_FLIPS = 100_000
FEW_SEEDS = 10  # up to which all signs of many rows are one product
_AT_ONCE = 2_000  # rows of it: bounds memory


def paired_differences(
    first: Mapping[int, float], second: Mapping[int, float], *, higher_is_better: bool
) -> dict[int, float]:
    """Difference of two arms' scores on every seed that both have; > 0: the first is better.

    >>> paired_differences({0: 3.0, 7: 5.0}, {7: 4.0, 2: 9.0}, higher_is_better=False)
    {7: -1.0}
    """
    sign = 1.0 if higher_is_better else -1.0
    return {seed: sign * (first[seed] - second[seed]) for seed in sorted(first.keys() & second)}


def mean_and_error(values_K: Floats) -> tuple[Floats, Floats]:
    """Mean over the last axis and its standard error, [...] each.

    The error is 0 where all seeds give the same value: they are no replicates, and nothing is
    concluded from them. NaN where a value is, or where there is one seed.
    """
    seeds = values_K.shape[-1]
    mean = values_K.mean(axis=-1)
    if seeds < 2:
        return mean, np.full_like(mean, np.nan)
    error = values_K.std(axis=-1, ddof=1) / math.sqrt(seeds)
    is_flat = np.ptp(values_K, axis=-1) <= ROUNDING * np.abs(values_K).max(axis=-1)
    return mean, np.where(is_flat, 0.0, error)


def t_of(mean: Floats, error: Floats, null: float = 0.0) -> Floats:
    """t of a mean against ``null``; 0 where the seeds have no spread."""
    t: Floats = np.divide(mean - null, error, out=np.zeros_like(mean), where=error != 0)
    return t


def t_p(mean: Floats, error: Floats, seeds: int) -> Floats:
    """Two-sided p of the paired t test."""
    p: Floats = 2 * stdtr(seeds - 1, -np.abs(t_of(mean, error)))
    return p


def equivalence_p(mean: Floats, error: Floats, seeds: int, smallest_effect: float) -> Floats:
    """p of the two one-sided t tests (TOST): small where |effect| < smallest_effect is shown.

    The larger of the p-values against Delta <= -smallest_effect and Delta >= smallest_effect. At
    level a it rejects where the 1 - 2a interval lies within the two. Source: Schuirmann (1987).
    """
    below = stdtr(seeds - 1, t_of(mean, error, smallest_effect))
    above = stdtr(seeds - 1, -t_of(mean, error, -smallest_effect))
    p: Floats = np.where(error == 0, 1.0, np.maximum(below, above))
    return p


def t_reach(seeds: int, level: float) -> float:
    """Half width of the two-sided paired t interval of this level, in standard errors."""
    return float(stdtrit(seeds - 1, (1 + level) / 2)) if seeds > 1 else math.nan


def t_interval(values_K: Floats, level: float = 0.95) -> tuple[Floats, Floats]:
    """The paired t interval over the last axis; NaN where the seeds have no spread."""
    mean, error = mean_and_error(np.asarray(values_K, dtype=np.float64))
    half = np.where(error == 0, np.nan, error) * t_reach(np.shape(values_K)[-1], level)
    return mean - half, mean + half


def standardised_effect(values_K: Floats) -> float:
    """d_z: mean difference over the standard deviation of the differences; NaN without spread."""
    mean, error = mean_and_error(np.asarray(values_K, dtype=np.float64))
    return float(mean / (error * math.sqrt(len(values_K)))) if error > 0 else math.nan


def least_flip_p(seeds: int) -> float:
    """The smallest p of sign flips of so many seeds, whatever their values.

    >>> [least_flip_p(seeds) for seeds in (0, 5, 6)]
    [1.0, 0.0625, 0.03125]
    """
    return 1 / (1 + DRAWN_FLIPS) if seeds > EXACT_SEEDS else 2.0 ** (1 - max(seeds, 1))


def sign_flip(values_K: Floats) -> ExactTest:
    """Sign-flip test of the mean: the share of all 2^K signs that give at least as large a |sum|.

    Exact where the two arms of a pair could be exchanged. Every sign is the sum of one of the first
    half of the seeds and one of the second, which are sorted and counted, so none is drawn up to
    EXACT_SEEDS; above, DRAWN_FLIPS are drawn, the same each time, and the observed one counts.
    Source: Fisher (1935), section 21; Phipson & Smyth (2010) for drawn ones.
    """
    values_K = np.asarray(values_K, dtype=np.float64)
    seeds = len(values_K)
    least = least_flip_p(seeds)
    # Flips with the same sum but for rounding count as reached; so p is never too small.
    reached = abs(values_K.sum()) - ROUNDING * np.abs(values_K).sum()
    if seeds > EXACT_SEEDS:
        extreme = np.count_nonzero(np.abs(_drawn_signs(seeds) @ values_K) >= reached)
        return ExactTest((1 + extreme) / (1 + DRAWN_FLIPS), least)
    if reached <= 0:
        return ExactTest(1.0, least)
    left, right = _signed_sums(values_K[: seeds // 2]), _signed_sums(values_K[seeds // 2 :])
    extreme = (len(right) - np.searchsorted(right, reached - left)).sum()
    # Twice: by symmetry as many sums are at most -reached.
    return ExactTest(min(1.0, 2 * float(extreme) / 2.0**seeds), least)


def sign_flip_p(values_K: Floats) -> Floats:
    """p of ``sign_flip`` over the last axis, [...]; few seeds at once, by all signs of all rows."""
    seeds = values_K.shape[-1]
    rows_RK = values_K.reshape(-1, seeds)
    if seeds > FEW_SEEDS:
        tests_p = [sign_flip(row_K).p for row_K in rows_RK]
        return np.array(tests_p, dtype=np.float64).reshape(values_K.shape[:-1])
    # The first sign stays: a flip of all signs gives the same |sum|.
    signs_KD = 1.0 - 2.0 * (np.arange(2 ** (seeds - 1)) >> np.arange(seeds)[:, None] & 1)
    p_R = np.empty(len(rows_RK))
    for start in range(0, len(rows_RK), _AT_ONCE):
        part_RK = rows_RK[start : start + _AT_ONCE]
        reached_R = np.abs(part_RK.sum(axis=-1)) - ROUNDING * np.abs(part_RK).sum(axis=-1)
        extreme_RD = np.abs(part_RK @ signs_KD) >= reached_R[:, None]
        p_R[start : start + _AT_ONCE] = extreme_RD.mean(axis=-1)
    return p_R.reshape(values_K.shape[:-1])


# One alone is kept: of 33 seeds it is 26 MB.
@lru_cache(maxsize=1)
def _drawn_signs(seeds: int) -> Floats:
    """Drawn signs, [DRAWN_FLIPS, K]: the same of every test of so many seeds."""
    drawn = np.random.default_rng(0).integers(0, 2, (DRAWN_FLIPS, seeds), dtype=np.int8)
    return (2 * drawn - 1).astype(np.float64)


def _signed_sums(values_K: Floats) -> Floats:
    """Sums of the values under all 2^K signs, sorted."""
    sums = np.zeros(1)
    for value in values_K:
        sums = np.concatenate([sums - value, sums + value])
    return np.sort(sums)
