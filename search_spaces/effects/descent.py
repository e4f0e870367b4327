"""Descent that values of alpha ask for, beside the least one that may win.

``factors`` of 1 - alpha lie between f0 and the last layer's bound: L - 1 with ``bound_first``, else
L.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import cast

from search_spaces.ranges import Choice, at_fraction, ends_of
from search_spaces.space import SearchSpace, Setting
from trainables.plain import Json

ALPHA = "constraint.alpha"
GRID = 100  # values of a range that are looked at


def highest_alpha(reached: float, factors: int) -> float:
    """The largest alpha that can be met, to two decimals: what lies above it is not searched.

    ``reached`` is the lowest loss that the network attains, as a fraction of f0.

    >>> highest_alpha(0.134, 4)
    0.39
    """
    return math.floor(100 * (1 - math.pow(reached, 1 / factors))) / 100


def half_of(alpha: float, factors: int) -> float:
    """The least descent that asks for half of what a first alpha does, in logarithms; two decimals.

    >>> half_of(0.2, 4)
    0.36
    """
    return math.floor(100 * (1 - math.pow(1 - alpha, factors / 2)) + 1e-9) / 100


def twice(alpha: float) -> float:
    """The alpha that asks for twice the descent, in logarithms; to three decimals.

    >>> twice(0.1)
    0.19
    """
    return round(1 - (1 - alpha) ** 2, 3)


def least_alpha(least_descent: float, factors: int) -> float:
    """The smallest alpha that may win, to three decimals: what lies below it is not searched.

    >>> least_alpha(0.36, 4)
    0.106
    """
    return math.ceil(1000 * (1 - math.pow(1 - least_descent, 1 / factors)) - 1e-9) / 1000


def too_weak(space: SearchSpace, setting: Setting) -> Iterator[str]:
    """A sentence where values of alpha in the range ask for too little to win, whatever they reach.

    Nothing is said where the checkpoint decides how many layers there are.
    """
    config, values = space.base.with_fields(setting.fields), space.ranges_of(setting).get(ALPHA)
    constraint, layers, least = config.constraint, config.model.layers, setting.least_descent
    if constraint is None or constraint.is_control or values is None or not (layers and least):
        return
    from trainables.primal_dual.constraints import demanded_descent  # numpy, which no space needs

    grid = [at_fraction(values, (k + 0.5) / GRID) for k in range(GRID)]
    alphas = values.values if isinstance(values, Choice) else grid

    def asks_for(alpha: Json) -> float:
        return demanded_descent(replace(constraint, alpha=cast(float, alpha)), layers)

    weak = [alpha for alpha in alphas if asks_for(alpha) < least - 1e-9]
    if weak:
        factors = layers - 1 if constraint.reference == "bound_first" else layers
        yield (
            f"{ALPHA} cannot win in {len(weak) / len(alphas):.0%} of its range: a winner must ask "
            f"for {least:.0%} of f0 (least_descent), and below {least_alpha(least, factors):g} the "
            "layers together ask for less. Begin the range there."
        )


def largest_alpha(space: SearchSpace, setting: Setting) -> float:
    """The largest alpha that a proposal of a setting may ask for."""
    constraint = space.base.with_fields(setting.fields).constraint
    assert constraint is not None  # a space has one
    searched = space.ranges_of(setting).get(ALPHA)
    listed = [point.get(ALPHA, constraint.alpha) for point in setting.points.values()]
    values = [*listed, *(() if searched is None else ends_of(searched))] or [constraint.alpha]
    return max(float(value) for value in values if isinstance(value, int | float))
