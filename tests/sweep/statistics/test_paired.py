"""Paired statistics against naive loops, scipy, and what must not change them."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from sweep.statistics import paired

VALUES = arrays(np.float64, st.integers(3, 9), elements=st.integers(-60, 60).map(float))


def naive_sign_flip(values: np.ndarray) -> float:
    observed = abs(values.sum()) * (1 - 1e-9)
    flips = itertools.product((-1, 1), repeat=len(values))
    return float(np.mean([abs(np.dot(signs, values)) >= observed for signs in flips]))


@given(VALUES)
def test_sign_flips_are_those_of_all_signs(values: np.ndarray) -> None:
    assert paired.sign_flip(values).p == naive_sign_flip(values)
    assert (
        paired.sign_flip(values / 10).p == paired.sign_flip(values).p
    )  # sums tie but for rounding


@pytest.mark.parametrize("seeds", [3, 5, 10, 20])
def test_t_is_that_of_scipy(seeds: int) -> None:
    values = np.random.default_rng(seeds).normal(0.4, 1, seeds)
    mean, error = paired.mean_and_error(values)
    found = stats.ttest_1samp(values, 0)
    assert float(paired.t_p(mean, error, seeds)) == pytest.approx(found.pvalue, rel=1e-12)
    interval = found.confidence_interval(0.9)
    assert paired.t_interval(values, 0.9) == pytest.approx(tuple(interval), rel=1e-10)
    assert paired.standardised_effect(values) == pytest.approx(mean / values.std(ddof=1))


@pytest.mark.parametrize("seeds", [5, 10, 20, 31])
def test_the_smallest_p_is_that_of_all_seeds_on_one_side(seeds: int) -> None:
    values = np.arange(1.0, seeds + 1)
    for test in (paired.sign_flip(values), paired.sign_flip(-values)):
        assert test.p == test.least_p == 2.0 ** (1 - seeds)


def test_many_seeds_are_flipped_by_draws_that_are_the_same_each_time() -> None:
    values = np.random.default_rng(0).normal(0.3, 1, 40)
    drawn = paired.sign_flip(values)
    assert drawn == paired.sign_flip(values)
    # A draw's standard error is below .0016; the t test is close for so many seeds.
    assert drawn.p == pytest.approx(stats.ttest_1samp(values, 0).pvalue, abs=0.01)
    assert paired.sign_flip(values + 100).p == drawn.least_p


@given(VALUES, st.randoms(use_true_random=False))
def test_order_and_sign_of_the_arms_change_nothing(values: np.ndarray, random) -> None:
    shuffled = np.array(random.sample(list(values), len(values)))
    here, there = paired.sign_flip(shuffled), paired.sign_flip(-values)
    assert paired.sign_flip(values).p == here.p == there.p


def test_equivalence_is_two_one_sided_tests() -> None:
    values = np.random.default_rng(3).normal(0.1, 0.5, 12)
    below = stats.ttest_1samp(values, 0.4, alternative="less").pvalue
    above = stats.ttest_1samp(values, -0.4, alternative="greater").pvalue
    p = float(paired.equivalence_p(*paired.mean_and_error(values), 12, 0.4))
    assert p == pytest.approx(max(below, above), rel=1e-12)
    low, high = paired.t_interval(values, 1 - 2 * p)  # TOST rejects where this lies inside
    assert max(abs(low), abs(high)) == pytest.approx(0.4, rel=1e-9)


def test_seeds_that_all_agree_conclude_nothing() -> None:
    values = np.array([0.3 - 0.2, 0.2 - 0.1, 0.1])  # equal but for rounding
    mean, error = paired.mean_and_error(values)
    assert error == 0
    assert float(paired.t_p(mean, error, 3)) == 1.0
    assert float(paired.equivalence_p(mean, error, 3, 5.0)) == 1.0
    assert np.isnan(paired.t_interval(values)).all()
    assert math.isnan(paired.standardised_effect(values))
    assert paired.sign_flip(np.zeros(5)).p == 1.0


def test_pairs_are_joined_by_seed() -> None:
    first, second = {3: 1.0, 1: 5.0, 8: 0.0}, {1: 2.0, 3: 4.0, 9: 7.0}
    assert paired.paired_differences(first, second, higher_is_better=True) == {1: 3.0, 3: -3.0}


@pytest.mark.parametrize("seeds", [1, 2, 7, 10, 13])
def test_sign_flips_of_many_rows_are_those_of_each(seeds: int) -> None:
    rows = np.random.default_rng(seeds).normal(0.4, 1, (2, 3, seeds)).round(1)  # ties, too
    rows[0, 0] = 0.0
    found = paired.sign_flip_p(rows)
    assert found.shape == (2, 3)
    for place in np.ndindex(2, 3):
        assert found[place] == paired.sign_flip(rows[place]).p
