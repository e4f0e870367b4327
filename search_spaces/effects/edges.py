"""Searched values at an edge of their range, where the box may bind. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping

from search_spaces.ranges import Choice, LogDecay, Range, Uniform
from search_spaces.space import SearchSpace, Setting
from trainables.plain import Json

NEAR = 0.02  # of a range's length, on its own scale
# Effect of a low and of a high value of a searched field on the demands on a network.
_EFFECTS = {
    "constraint.alpha": ("asks for the least", "asks for the most"),
    "constraint.dual_lr": ("presses the least", "presses the most"),
    "constraint.resilience": ("grants the least slack", "grants the most slack"),
    "constraint.reference_loss": ("asks for the most", "asks for the least"),
}


def edges_of(space: SearchSpace, setting: Setting, point: Mapping[str, Json]) -> list[str]:
    """Sentences on searched values of a point at an end of their range; a choice has no ends.

    A best value there shows where the range ends, not where the optimum is.
    """
    coordinates = space.coordinates_of(setting, point)
    texts = {n: _edge(n, r, coordinates[n], point[n]) for n, r in space.ranges_of(setting).items()}
    start = {} if setting.points else space.default_point(setting)
    own = space.base.with_fields(setting.fields)
    return [
        text + _moved(own.value_of(name)) * (start.get(name) == point[name] != own.value_of(name))
        for name, text in texts.items()
        if text
    ]


def _moved(own: Json) -> str:
    return f"; the first proposal begins there, since the base's own {own} lies outside"


def _edge(name: str, values: Range, coordinate: Json, value: Json) -> str:
    """The end that the coordinate lies at, in words; empty where it lies at none.

    >>> _edge("constraint.alpha", Uniform(0.1, 0.3), 0.297, 0.297)
    'alpha 0.297 is at the high end of its range, which asks for the most'
    >>> _edge("constraint.dual_kp", LogDecay(0.1, 10), 0.1, 3.68)
    'dual_kp 3.68 is at the low end of its range (searched by its decay over a run: 0.1 of 0.1 \
to 10)'
    """
    if isinstance(values, Choice) or not isinstance(coordinate, int | float):
        return ""
    if not values.low <= coordinate <= values.high:
        return ""  # a listed point may lie outside
    scale = float if isinstance(values, Uniform) else math.log
    low, high = scale(values.low), scale(values.high)
    share = (scale(coordinate) - low) / (high - low)
    if NEAR < share < 1 - NEAR:
        return ""
    end = share >= 0.5
    effect = _EFFECTS.get(name)
    searched = ""
    if coordinate != value:
        by = "its decay over a run" if isinstance(values, LogDecay) else "its reach"
        searched = f" (searched by {by}: {coordinate:.3g} of {values.low:g} to {values.high:g})"
    return (
        f"{name.removeprefix('constraint.')} {value:.3g} is at the {'high' if end else 'low'} end "
        f"of its range{searched}" + (f", which {effect[end]}" if effect else "")
    )
