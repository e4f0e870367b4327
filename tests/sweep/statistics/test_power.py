"""Power against simulations and integrals."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import integrate, stats

from sweep.statistics.decisions import staged_p
from sweep.statistics.design import Design
from sweep.statistics.power import (
    can_mark,
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


@pytest.mark.parametrize("seeds", [11, 12, 13])
@pytest.mark.parametrize("effect", [1.5, 3.0])
def test_a_few_more_than_ten_seeds_mark_what_the_rule_marks(seeds, effect) -> None:
    design = Design.planned(ONE, seeds)
    values = np.random.default_rng(1).standard_normal((1500, seeds)) + effect
    asked = replace(design, error=0.05 / 36)  # flips where t marks: what decides is the same
    marked = (staged_p(asked, values)[0] <= 0.05 / 36).any(axis=-1).mean()
    assert power(design, effect, seeds, 36) == pytest.approx(marked, abs=0.04)
    assert can_mark(design, seeds, 36) == (seeds > 11)


def test_too_few_seeds_mark_nothing_however_large() -> None:
    assert smallest_effect(Design.planned(ONE, 20, rule="any_time"), 5, 36) == math.inf
    assert power(Design.planned(ONE, 20), 9.0, 4, 1) == 0.0
