"""Imitated scores of sweeps: settings in families, seeds, configurations, two arms.

score = a(configuration) + effect + sigma_s (shared and own part of the seed) + unit noise; higher
is better. sigma_s^2 is 4 / chi2_4, a seed's noise correlates .3 between settings and .5 between the
two arms of a pair. Shape suffixes: B sweeps, S settings, N configurations, K seeds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.special import log_ndtr

from sweep.study.selection import winner_of

Floats = NDArray[np.float64]

FAMILIES = {f"family {f}": tuple(f"setting {f}.{s}" for s in range(6)) for f in range(6)}
SETTINGS = 36
BETWEEN_SETTINGS = 0.3
BETWEEN_ARMS = 0.5
UNITS, UNIT_NOISE = 40, 0.5
SEARCH_SEEDS = 2
AT_ONCE = 500  # sweeps: bounds memory


@dataclass(frozen=True, slots=True)
class Candidate:
    """A proposal, as the rule for winners sees it."""

    number: int
    objective: float
    can_win: bool
    demanded_descent: float = 0.0  # of all alike


def batches(sweeps: int) -> Iterator[int]:
    """Sizes of the batches that make so many sweeps."""
    for start in range(0, sweeps, AT_ONCE):
        yield min(AT_ONCE, sweeps - start)


def scales(generator: np.random.Generator, sweeps: int) -> Floats:
    """sigma_s, [B, S]."""
    return np.asarray(np.sqrt(4 / generator.chisquare(4, (sweeps, SETTINGS))))


def noise(generator: np.random.Generator, sigma_BS: Floats, seeds: int) -> Floats:
    """Noise of the constrained and the unconstrained arm, [2, B, S, K]."""
    shape = (3, *sigma_BS.shape, seeds)  # of both, and of each arm
    seed = generator.standard_normal((3, len(sigma_BS), 1, seeds))
    own = generator.standard_normal(shape)
    part = math.sqrt(BETWEEN_SETTINGS) * seed + math.sqrt(1 - BETWEEN_SETTINGS) * own
    arms = math.sqrt(BETWEEN_ARMS) * part[0] + math.sqrt(1 - BETWEEN_ARMS) * part[1:]
    units = generator.standard_normal(arms.shape) * UNIT_NOISE / math.sqrt(UNITS)
    return np.asarray(arms * sigma_BS[..., None] + units)


def searched(
    generator: np.random.Generator, sigma_BS: Floats, configurations: int, spread: float,
    *, can_win: bool = True,
) -> tuple[Floats, Floats]:  # fmt: skip
    """True worth of each setting's winner and its score in the search, [B, S]; NaN: no winner.

    Every configuration is worth N(0, spread^2), is scored on the search seeds, and the winner is
    the production rule's.
    """
    worth_NBS = generator.normal(0, spread, (configurations, *sigma_BS.shape))
    found = [
        worth_BS + noise(generator, sigma_BS, SEARCH_SEEDS)[0].mean(axis=-1)
        for worth_BS in worth_NBS
    ]
    score_NBS = np.stack(found)
    winner_BS = np.full(sigma_BS.shape, -1)
    for place in np.ndindex(sigma_BS.shape):
        column = (slice(None), *place)
        winner = winner_of(  # type: ignore[type-var]
            Candidate(n, -score, can_win) for n, score in enumerate(score_NBS[column].tolist())
        )
        winner_BS[place] = -1 if winner is None else winner.number
    picked = winner_BS[None].clip(min=0)
    worth_BS, score_BS = (
        np.where(winner_BS >= 0, np.take_along_axis(values, picked, axis=0)[0], np.nan)
        for values in (worth_NBS, score_NBS)
    )
    return worth_BS, score_BS


def family_effect(effect: float, settings: int, correlation: float) -> float:
    """d_z of a family's mean, of settings with one d_z each and equally correlated differences.

    >>> round(family_effect(1.0, 6, 0.3), 2)
    1.55
    """
    return effect * math.sqrt(settings / (1 + (settings - 1) * correlation))


def expected_best(tries: int) -> float:
    """Expected best of N equal tries, in standard deviations of one: what tuning adds by luck.

    E max of N standard normals, the integral of x N phi(x) Phi(x)^(N - 1).

    >>> [round(expected_best(tries), 2) for tries in (1, 2, 5, 20)]
    [0.0, 0.56, 1.16, 1.87]
    """

    def weighed(x: float) -> float:
        log_density = -x * x / 2 + (tries - 1) * float(log_ndtr(x))
        return x * tries * math.exp(log_density) / math.sqrt(2 * math.pi)

    return float(quad(weighed, -12, 12, limit=200)[0])
