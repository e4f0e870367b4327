"""Anytime-valid tests of paired differences: e-processes. Pure.

An e-process is nonnegative, and under the null hypothesis its mean is at most 1 at every stopping
time, so that it ever reaches 1 / a with probability a at most (Ville's inequality): one may look
after every seed, and stop or go on for any reason. 1 over its largest value so far is a p-value at
all times. Source: Ramdas, Grünwald, Vovk & Shafer (2023), "Game-theoretic statistics and safe
anytime-valid inference".
"""

from __future__ import annotations

import math

import numpy as np

from sweep.statistics.paired import Floats

PRIOR_VARIANCE = 1.0  # g: of the effect in standard deviations, under the alternative


def t_e_value(t: Floats, seeds: int, prior_variance: float = PRIOR_VARIANCE) -> Floats:
    """The t e-process after n seeds, of their t statistic.

    E_n = (1 + n g)^(-1/2) [(nu + t^2) / (nu + t^2 / (1 + n g))]^((nu + 1) / 2), nu = n - 1: how
    much more likely the t is when the effect in standard deviations is N(0, g) than when it is 0.
    Assumes independent normal differences of any variance; skewed ones break the bound
    (docs/statistics.md). Source: Wang & Ramdas (2025), "Anytime-valid t-tests and confidence
    sequences for Gaussian means with unknown variance", the Gaussian mixture that is free of scale;
    the idea is Lai's (1976).
    """
    spread, freedom = 1 + seeds * prior_variance, seeds - 1
    square = np.square(t)
    # One seed has no spread, so that its t says nothing: the evidence stays 1.
    ratio = (freedom + square) / (freedom + square / spread) if freedom else np.ones_like(square)
    e: Floats = ratio ** (seeds / 2) / math.sqrt(spread)
    return np.ones_like(e) if not freedom else e


def symmetric_e_values(values_K: Floats) -> Floats:
    """The same mixture's bets on signs alone, an e-process of any symmetric differences: [..., K].

    Each difference's size is taken as known before its sign is bet on: the bet is 2 f(d) / (f(d) +
    f(-d)), f the mixture's density given all before. Where both signs are as likely, whatever the
    sizes, its mean is 1. After n seeds it is below 2^(n - 1), so five of one sign show no more than
    sign flips do.
    """
    n_K = np.arange(1, values_K.shape[-1] + 1)
    before_K = np.cumsum(values_K, axis=-1) - values_K
    squares_K = np.cumsum(np.square(values_K), axis=-1)
    shrunk_K = PRIOR_VARIANCE / (1 + n_K * PRIOR_VARIANCE)
    rest_K = squares_K - shrunk_K * np.square(before_K + values_K)
    flipped_K = squares_K - shrunk_K * np.square(before_K - values_K)
    # 0 / 0 while all values are 0: neither sign is likelier, so that nothing is bet.
    ratio_K = np.divide(rest_K, flipped_K, out=np.ones_like(rest_K), where=flipped_K > 0)
    return np.asarray(np.cumprod(2 / (1 + ratio_K ** (n_K / 2)), axis=-1), dtype=np.float64)


def sequence_reach(seeds: int, level: float) -> float:
    """Half width of the t confidence sequence after n seeds, in standard errors.

    The means that the t e-process has not rejected at 1 - level; infinite while no t could reject
    one (at .95 before the fifth seed). Covers at all n at once with probability ``level``.
    """
    spread, freedom = 1 + seeds * PRIOR_VARIANCE, seeds - 1
    ratio = (spread / (1 - level) ** 2) ** (1 / seeds)
    if ratio >= spread:
        return math.inf
    return math.sqrt(freedom * (ratio - 1) / (1 - ratio / spread))
