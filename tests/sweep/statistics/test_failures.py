"""Rates of failure, and of what is certified, against binomial sums."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from sweep.statistics import failures
from trainables.errors import InvalidValue


@pytest.mark.parametrize(("only_first", "only_second"), [(6, 0), (5, 2), (3, 3), (0, 0)])
def test_mcnemar_is_a_binomial_test_of_the_pairs_that_differ(only_first, only_second) -> None:
    first = [True] * only_first + [False] * only_second + [True, False, False]
    second = [False] * only_first + [True] * only_second + [True, False, False]
    discordant = only_first + only_second
    expected = stats.binomtest(only_first, discordant).pvalue if discordant else 1.0
    assert failures.failure_rates_p(first, second) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("count", "of"), [(0, 5), (3, 5), (5, 5), (19, 20)])
def test_clopper_pearson_ends_where_the_tails_are_half_the_error(count, of) -> None:
    low, high = failures.clopper_pearson(count, of, 0.9)
    if count:
        assert stats.binom.sf(count - 1, of, low) == pytest.approx(0.05, rel=1e-9)
    if count < of:
        assert stats.binom.cdf(count, of, high) == pytest.approx(0.05, rel=1e-9)
    assert (low == 0) == (count == 0)
    assert (high == 1) == (count == of)


def test_the_interval_covers_at_least_its_level() -> None:
    bounds = np.array([failures.clopper_pearson(count, 10) for count in range(11)])
    for share in np.linspace(0.01, 0.99, 25):
        inside = (bounds[:, 0] <= share) & (share <= bounds[:, 1])
        assert math.fsum(stats.binom.pmf(np.arange(11), 10, share)[inside]) >= 0.95


def test_what_cannot_be_counted_is_refused() -> None:
    for count, of in ((3, 2), (-1, 5), (0, 0)):
        with pytest.raises(InvalidValue, match="count must be"):
            failures.clopper_pearson(count, of)
    with pytest.raises(InvalidValue, match="as many as the others"):
        failures.failure_rates_p([True], [])
