"""Power against simulations and integrals; the least seeds; the best of N."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, stats

from sweep.statistics import paired
from sweep.statistics.design import Design
from sweep.statistics.power import (
    expected_best,
    family_effect,
    least_seeds,
    power,
    smallest_effect,
    t_power,
)  # fmt: skip

ONE = {"UT": ("a",)}


@pytest.mark.parametrize("effect", [0.0, 0.5, 2.0, 5.0])
@pytest.mark.parametrize("seeds", [3, 10, 40])
@pytest.mark.parametrize("tests", [1, 36])
def test_power_of_t_is_the_integral_over_the_standard_deviation(effect, seeds, tests) -> None:
    level, freedom = 0.05 / tests, seeds - 1
    reach, centre = stats.t.isf(level / 2, freedom), effect * math.sqrt(seeds)

    def marked(s: float) -> float:
        tails = stats.norm.sf(reach * s - centre) + stats.norm.cdf(-reach * s - centre)
        return float(stats.chi.pdf(s * math.sqrt(freedom), freedom) * math.sqrt(freedom) * tails)

    expected = integrate.quad(marked, 0, 6, limit=400)[0]
    assert t_power(effect, seeds, level) == pytest.approx(expected, abs=1e-7)


def test_families_gain_by_the_mean_of_their_settings() -> None:
    values = np.random.default_rng(0).normal(size=(200_000, 7))
    settings = 0.5 + math.sqrt(0.7) * values[:, :6] + math.sqrt(0.3) * values[:, 6:]
    mean = settings.mean(axis=1)
    assert family_effect(0.5, 6, 0.3) == pytest.approx(mean.mean() / mean.std(), rel=0.02)


@pytest.mark.parametrize("rule", ["looks", "any_time"])
def test_looking_early_costs_power_and_keeps_the_error(rule) -> None:
    design = Design.planned(ONE, 20, rule=rule)
    assert power(design, 0.0, 20, 1) <= 0.05
    found = [power(design, effect, 20, 1) for effect in (0.3, 0.6, 1.0)]
    assert found == sorted(found)
    fixed = [t_power(effect, 20, 0.05) for effect in (0.3, 0.6, 1.0)]
    # Looking more often can mark a little more by luck: three standard errors.
    assert all(a <= b + 0.011 for a, b in zip(found, fixed, strict=True))


@pytest.mark.parametrize("rule", ["fixed", "looks"])
def test_the_smallest_effect_is_marked_as_often_as_wanted(rule) -> None:
    design = Design.planned(ONE, 10, rule=rule)
    effect = smallest_effect(design, 10, 6)
    assert power(design, effect, 10, 6) == pytest.approx(0.8, abs=0.005)


def test_too_few_seeds_mark_nothing_however_large() -> None:
    assert smallest_effect(Design.planned(ONE, 20, rule="any_time"), 5, 36) == math.inf
    assert power(Design.planned(ONE, 20), 9.0, 4, 1) == 0.0


@pytest.mark.parametrize("tests", [1, 6, 36])
def test_the_least_seeds_are_the_first_with_a_small_enough_p(tests) -> None:
    seeds = least_seeds(tests)
    assert paired.sign_flip(np.arange(1.0, seeds + 1)).p <= 0.05 / tests
    assert paired.sign_flip(np.arange(1.0, seeds)).p > 0.05 / tests


def test_the_best_of_some_normals_is_that_of_their_mean_maximum() -> None:
    best = np.random.default_rng(1).normal(size=(400_000, 5)).max(axis=1)
    assert expected_best(5) == pytest.approx(best.mean(), abs=0.005)
    assert expected_best(2) == pytest.approx(1 / math.sqrt(math.pi), rel=1e-9)
    assert expected_best(1000) == pytest.approx(3.24, abs=0.01)
