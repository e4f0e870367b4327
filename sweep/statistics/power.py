"""Power of a design before the run. Pure.

Effects are d_z: the mean difference over the standard deviation of the differences between seeds.
What is asked of one hypothesis is the level of the procedure's first step: the error over
``tests``, which is the number of families for a family, and that times its settings for a setting
(whose family has to pass besides). Later steps have larger levels: these are lower bounds.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from scipy.optimize import brentq
from scipy.special import nctdtr, stdtrit

from sweep.statistics.decisions import staged_p
from sweep.statistics.design import Design
from sweep.statistics.paired import FEW_SEEDS, least_flip_p, mean_and_error, sign_flip_p, t_p

DRAWS = 10_000  # simulated comparisons: a standard error of at most .005
FEWER_DRAWS = 2_000  # of at most .011
FLIPPED_SEEDS = 16
LARGEST_EFFECT = 20.0
WANTED = 0.8  # power


def t_power(effect: float, seeds: int, level: float) -> float:
    """Power of the two-sided paired t test at ``level``, by the noncentral t distribution.

    >>> [round(t_power(1.0, seeds, 0.05 / 36), 2) for seeds in (5, 10, 20)]
    [0.02, 0.19, 0.75]
    """
    freedom, centre = seeds - 1, effect * math.sqrt(seeds)
    reach = stdtrit(freedom, 1 - level / 2)
    # Of the wrong sign: NaN in scipy 1.17 where it is below its precision.
    other_tail = np.nan_to_num(nctdtr(freedom, centre, -reach))
    return float(1 - nctdtr(freedom, centre, reach) + other_tail)


def can_mark(design: Design, seeds: int, tests: int) -> bool:
    """True if so many seeds could mark an effect of any size: sign flips have a least p.

    >>> [can_mark(Design.planned({"UT": ("L=4",)}, seeds), seeds, 1) for seeds in (5, 6)]
    [False, True]
    """
    return bool(_stages(design, seeds, tests))


def power(design: Design, effect: float, seeds: int, tests: int) -> float:
    """The probability that so many seeds mark an effect, by the design's rule.

    Exact where one t test decides; else the fraction of simulated normal comparisons that any stage
    marks: DRAWS of them, or FEWER_DRAWS where sign flips take long. Those of more than
    FLIPPED_SEEDS seeds are left out: of normal differences they mark what t does.
    """
    level, stages = design.error / tests, _stages(design, seeds, tests)
    flipped = [n for n, _ in stages if design.sign_flips and n <= FLIPPED_SEEDS]
    is_staged = design.rule != "any_time"
    if not stages:
        return 0.0
    if len(stages) == 1 and is_staged and not flipped:
        return t_power(effect, stages[0][0], level * stages[0][1])
    draws = FEWER_DRAWS if is_staged and max(flipped, default=0) > FEW_SEEDS else DRAWS
    # The same draws for every effect: ``smallest_effect`` needs a function without noise.
    values_DK = np.random.default_rng(0).standard_normal((draws, seeds)) + effect
    if not is_staged:
        different_DN, _ = staged_p(replace(design, error=level), values_DK)
        return float((different_DN <= level).any(axis=-1).mean())
    marked_D = np.zeros(draws, dtype=bool)
    for n, share in stages:
        here_D = ~marked_D & (t_p(*mean_and_error(values_DK[:, :n]), n) <= level * share)
        if n in flipped and here_D.any():
            here_D[here_D] = sign_flip_p(values_DK[here_D, :n]) <= level * share
        marked_D |= here_D
    return float(marked_D.mean())


def _stages(design: Design, seeds: int, tests: int) -> list[tuple[int, float]]:
    """Stages that could mark an effect; evidence of any_time has the bound of sign flips."""
    level, flips = design.error / tests, design.sign_flips
    stages = design.stages(seeds)
    return [(n, share) for n, share in stages if not flips or least_flip_p(n) <= level * share]


def smallest_effect(design: Design, seeds: int, tests: int) -> float:
    """The smallest d_z that so many seeds mark with probability WANTED; infinite if none."""

    def lacking(effect: float) -> float:
        return power(design, effect, seeds, tests) - WANTED

    if lacking(LARGEST_EFFECT) < 0:
        return math.inf
    return float(brentq(lacking, 0.0, LARGEST_EFFECT, xtol=1e-3))
