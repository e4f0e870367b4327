"""E-processes against integrals, their mean under the null, their reach."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import integrate, stats

from sweep.statistics import anytime, paired


@pytest.mark.parametrize(("t", "seeds", "prior"), [(0.0, 3, 1.0), (2.5, 5, 1.0), (-4.0, 20, 0.3)])
def test_the_e_value_is_a_ratio_of_mixed_likelihoods(t: float, seeds: int, prior: float) -> None:
    freedom = seeds - 1

    def mixed(effect: float) -> float:
        density = stats.nct.pdf(t, freedom, effect * math.sqrt(seeds))
        return float(density * stats.norm.pdf(effect, scale=math.sqrt(prior)))

    alternative = integrate.quad(mixed, -6, 6, limit=200)[0]
    e = float(anytime.t_e_value(np.array(t), seeds, prior))
    # scipy's noncentral density is good to about 1e-8
    assert e == pytest.approx(alternative / stats.t.pdf(t, freedom), rel=1e-5)


def test_the_mean_under_the_null_is_at_most_one_and_few_ever_reach_20() -> None:
    values = np.random.default_rng(0).normal(0, 3, (40_000, 20))
    e = np.stack(
        [anytime.t_e_value(paired.t_of(*paired.mean_and_error(values[:, :n])), n)
         for n in range(2, 21)], axis=1,
    )  # fmt: skip
    for n in (0, 3, 8, 18):
        capped = np.minimum(e[:, n], 1000)  # a mean that a sample can tell
        assert capped.mean() - 4 * capped.std() / math.sqrt(len(e)) <= 1
    crossed = int((e.max(axis=1) >= 20).sum())
    # Ville: at most .05; an exact one-sided bound of what was counted
    assert stats.binomtest(crossed, len(e)).proportion_ci(0.999).low <= 0.05
    assert crossed > 0


def test_before_two_seeds_there_is_no_evidence() -> None:
    assert float(anytime.t_e_value(np.array(0.0), 1)) == 1.0


@pytest.mark.parametrize("seeds", [5, 8, 20])
def test_the_confidence_sequence_ends_where_the_e_process_rejects(seeds: int) -> None:
    reach = anytime.sequence_reach(seeds, 0.95)
    e = anytime.t_e_value(np.array([reach * 0.999, reach, reach * 1.001]), seeds)
    assert e[1] == pytest.approx(20, rel=1e-9)
    assert e[0] < 20 < e[2]


@pytest.mark.parametrize("seeds", [2, 3, 5, 12])
def test_no_t_is_more_evidence_than_the_limit(seeds: int) -> None:
    limit = (1 + seeds * anytime.PRIOR_VARIANCE) ** ((seeds - 1) / 2)
    assert float(anytime.t_e_value(np.array(1e9), seeds)) == pytest.approx(limit, rel=1e-6)
    assert (limit < 20) == math.isinf(anytime.sequence_reach(seeds, 0.95))


def test_bets_on_signs_have_a_mean_of_one_whatever_the_sizes() -> None:
    """Over all signs of sizes that are skewed and of two basins; and every bet by itself."""
    for sizes in ([3.0, 0.2, 1.0, 40.0, 1.0, 0.0], [1.0, 1.01, 0.99, 1.0, 1.02, 1.0]):
        signs = np.array(list(itertools.product((1, -1), repeat=6)))
        e = anytime.symmetric_e_values(signs * np.array(sizes))
        assert e.mean(axis=0) == pytest.approx(np.ones(6))
        assert (e <= 2.0 ** np.arange(6) + 1e-9).all()
        later = e[:, -1].reshape(-1, 2).mean(axis=1)  # the last sign either way
        assert later == pytest.approx(e[::2, -2])


def test_a_bet_is_the_share_of_the_mixed_likelihood_of_both_signs() -> None:
    def likelihood(values: list[float]) -> float:  # mu ~ N(0, sigma^2), d log sigma
        def at(log_sigma: float) -> float:
            sigma = math.exp(log_sigma)
            cov = sigma**2 * (np.eye(len(values)) + 1)
            return float(stats.multivariate_normal.pdf(values, cov=cov))

        return float(integrate.quad(at, -4, 5, limit=200)[0])

    values = [0.4, -0.7, 1.1]
    other = likelihood([*values[:2], -values[2]])
    found = anytime.symmetric_e_values(np.array(values))
    bet = 2 * likelihood(values) / (likelihood(values) + other)
    assert found[2] / found[1] == pytest.approx(bet, rel=1e-6)
