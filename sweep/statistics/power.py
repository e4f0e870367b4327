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
from sweep.statistics.paired import FEW_SEEDS

DRAWS = 10_000  # simulated comparisons: a standard error of at most .005
LARGEST_EFFECT = 20.0


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


def power(design: Design, effect: float, seeds: int, tests: int, *, key: int = 0) -> float:
    """The probability that so many seeds mark an effect, by the design's rule.

    Exact where one t test decides; else the share of DRAWS simulated comparisons, normal and keyed
    by ``key``, that any stage marks, by the p-values that decide. Sign flips of more than FEW_SEEDS
    seeds, which take long, are left out: of normal differences they mark about what t does.
    """
    level = design.error / tests
    stages, is_staged = design.stages(seeds), design.rule != "any_time"
    flips = design.sign_flips and (not is_staged or any(n <= FEW_SEEDS for n, _ in stages))
    if len(stages) == 1 and is_staged and not flips:
        return t_power(effect, stages[0][0], level * stages[0][1])
    values_DK = np.random.default_rng(key).standard_normal((DRAWS, seeds)) + effect
    asked = replace(design, error=level)  # flips are asked where t marks
    different_DN, _ = staged_p(replace(asked, sign_flips=flips and not is_staged), values_DK)
    if flips and is_staged:
        few_DN, _ = staged_p(asked, values_DK[:, :FEW_SEEDS])
        different_DN[:, : few_DN.shape[1]] = few_DN
    return float((different_DN <= level).any(axis=-1).mean())


def smallest_effect(
    design: Design, seeds: int, tests: int, *, wanted: float = 0.8, key: int = 0
) -> float:
    """The smallest d_z that so many seeds mark with probability ``wanted``; infinite if none."""

    def lacking(effect: float) -> float:
        return power(design, effect, seeds, tests, key=key) - wanted

    if lacking(LARGEST_EFFECT) < 0:
        return math.inf
    return float(brentq(lacking, 0.0, LARGEST_EFFECT, xtol=1e-3))
