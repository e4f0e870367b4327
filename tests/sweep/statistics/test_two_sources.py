"""Crossed bootstrap and variance components against what was put in."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sweep.statistics.two_sources import crossed_bootstrap, variance_components
from trainables.errors import InvalidValue


def losses(key: int, *, effect: float = 0.0, conditions=2, seeds=6, units=40):
    generator = np.random.default_rng(key)
    shared = generator.normal(10, 1, (conditions, 1, units))
    first = shared + generator.normal(0, 0.3, (conditions, seeds, units)) - effect
    return first, shared + generator.normal(0, 0.3, (conditions, seeds, units))


def test_the_mean_is_that_of_scores_by_seed_and_condition() -> None:
    first, second = losses(0)
    sizes = np.arange(1.0, 41)
    found = crossed_bootstrap(first, second, sizes, lambda loss: -np.sqrt(loss), key=0)
    by_hand = [
        math.sqrt(np.average(second[c, k], weights=sizes))
        - math.sqrt(np.average(first[c, k], weights=sizes))
        for c in range(2) for k in range(6)
    ]  # fmt: skip
    assert found.mean == pytest.approx(np.mean(by_hand), rel=1e-12)
    assert found.low < found.mean < found.high
    assert found == crossed_bootstrap(first, second, sizes, lambda loss: -np.sqrt(loss), key=0)
    assert "95 %, 2000 draws" in found.name


def test_a_score_may_differ_between_conditions() -> None:
    first, second = losses(5)
    scale_C = np.array([1.0, 100.0])
    found = crossed_bootstrap(first, second, np.ones(40), lambda loss_C: -loss_C * scale_C, key=0)
    by_hand = ((second - first).mean(axis=(1, 2)) * scale_C).mean()
    assert found.mean == pytest.approx(by_hand, rel=1e-9)


def test_its_spread_is_that_of_both_sources() -> None:
    generator = np.random.default_rng(1)
    seed = generator.normal(0, 1, (1, 12, 1))
    unit = generator.normal(0, 2, (1, 1, 30))
    differences = seed + unit + generator.normal(0, 1, (1, 12, 30))
    second = np.zeros_like(differences)
    found = crossed_bootstrap(-differences, second, np.ones(30), lambda loss: -loss, key=3)
    components = variance_components(differences[0])
    expected = math.sqrt(components.seed / 12 + components.unit / 30 + components.rest / (12 * 30))
    # A bootstrap's variance is short by 1 - 1/K, and counts what is neither about three times.
    spread = (found.high - found.low) / (2 * 1.96)
    assert 0.85 * expected < spread < 1.3 * expected
    seeds_alone = differences.mean(axis=(0, 2)).std(ddof=1) / math.sqrt(12)
    assert spread > seeds_alone


def test_small_units_weigh_little_in_every_draw() -> None:
    first, second = losses(3)
    sizes = np.where(np.arange(40) < 20, 1.0, 1e-9)
    odd = first + np.where(sizes < 1, 1000.0, 0.0)
    found = crossed_bootstrap(odd, second, sizes, np.negative, key=0)
    assert max(abs(found.low), abs(found.high)) < 1


def test_equal_arms_differ_by_nothing_and_a_better_first_arm_is_above_0() -> None:
    first, second = losses(2, effect=1.0)
    same = crossed_bootstrap(first, first, np.ones(40), lambda loss: -loss, key=0)
    assert (same.mean, same.low, same.high) == (0, 0, 0)
    assert crossed_bootstrap(first, second, np.ones(40), lambda loss: -loss, key=0).low > 0


def test_components_are_those_that_were_put_in() -> None:
    generator = np.random.default_rng(4)
    found = [
        variance_components(
            generator.normal(0, 1, (30, 1)) + generator.normal(0, 2, 50)
            + generator.normal(0, 0.5, (30, 50))
        )
        for _ in range(200)
    ]  # fmt: skip
    for name, value in (("seed", 1.0), ("unit", 4.0), ("rest", 0.25)):
        values = np.array([getattr(one, name) for one in found])
        error = values.std() / math.sqrt(len(values))
        assert values.mean() == pytest.approx(value, abs=4 * error)
    assert variance_components(np.ones((3, 4))).seed == 0.0


@pytest.mark.parametrize(("together", "lowest", "highest"), [(True, 0.85, 1.0), (False, 0.0, 0.8)])
def test_where_units_of_one_group_are_alike_groups_are_drawn_whole(
    together: bool, lowest: float, highest: float
) -> None:
    """Half of the variance lies between 12 groups of 18 units; of 100 intervals most cover 0."""
    generator, covered = np.random.default_rng(1), 0
    groups_U = [f"c{u // 18}" for u in range(12 * 18)]
    for key in range(100):
        unit_U = np.repeat(generator.normal(0.0, 0.7, 12), 18) + generator.normal(0.0, 0.7, 216)
        seed_K = generator.normal(0.0, 0.3, 10)
        parts_KU = unit_U + seed_K[:, None] + generator.normal(0.0, 0.5, (10, 216))
        found = crossed_bootstrap(
            parts_KU[None], np.zeros((1, 10, 216)), np.ones(216), lambda means: means,
            key=key, draws=400, groups_U=groups_U if together else (),
        )  # fmt: skip
        covered += found.low <= 0 <= found.high
    assert lowest <= covered / 100 <= highest


def test_one_group_is_refused() -> None:
    losses = np.zeros((1, 3, 4))
    with pytest.raises(InvalidValue):
        crossed_bootstrap(losses, losses, np.ones(4), lambda m: m, key=0, groups_U=["a"] * 4)


def test_one_seed_or_one_unit_is_refused() -> None:
    with pytest.raises(InvalidValue, match="at least 2"):
        crossed_bootstrap(np.ones((1, 1, 5)), np.ones((1, 1, 5)), np.ones(5), np.negative, key=0)
    with pytest.raises(InvalidValue, match="of one shape"):
        crossed_bootstrap(np.ones((1, 2, 5)), np.ones((1, 3, 5)), np.ones(5), np.negative, key=0)
    with pytest.raises(InvalidValue, match="at least"):
        variance_components(np.ones((1, 4)))
