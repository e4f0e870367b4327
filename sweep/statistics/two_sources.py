"""Two sources of error: other seeds, and other test units. Pure.

An interval over seeds is conditional on the test set. Shape suffixes: C conditions (test gammas,
shifts), K seeds, U units (clips, windows, texts), D draws.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from sweep.statistics.paired import Floats
from trainables.errors import require

DRAWS, LEVEL = 2_000, 0.95
_AT_ONCE = 50  # draws: bounds memory


@dataclass(frozen=True)
class CrossedInterval:
    """A percentile interval over seeds and units at once."""

    mean: float
    low: float
    high: float
    name: str


@dataclass(frozen=True)
class VarianceComponents:
    """Variances of a difference between seeds, between units, and what is neither; at least 0."""

    seed: float
    unit: float
    rest: float


def crossed_bootstrap(
    first_CKU: Floats,
    second_CKU: Floats,
    sizes_U: Floats,
    score: Callable[[Floats], Floats],
    *,
    key: int,
    draws: int = DRAWS,
    groups_U: Sequence[str] = (),
    called: str = "units",
) -> CrossedInterval:
    """Interval of the mean score difference over seeds and conditions, > 0: the first is better.

    Seeds and units are drawn again independently of each other, and both arms keep their pairs
    (Owen's pigeonhole bootstrap, which is conservative). Of every draw the mean losses over units,
    by their sizes, are turned into scores seed by seed (``score``: higher is better). A group is
    drawn with all of its units; without ``groups_U`` each unit is one. ``called``: what is drawn.

    Source: Owen (2007), "The pigeonhole bootstrap", Annals of Applied Statistics 1(2).
    """
    shape = first_CKU.shape
    require(shape == second_CKU.shape, "losses", second_CKU.shape, f"of one shape, {shape}")
    conditions, seeds, units = shape
    require(min(seeds, units) > 1, "losses", shape, "of at least 2 seeds and 2 units")
    generator = np.random.default_rng(key)
    place_U = places(groups_U or range(units))
    groups = max(place_U) + 1
    require(groups > 1, "groups", groups, "at least 2")
    # One matrix, so that a draw is one row of a product: arms, seeds, conditions.
    losses = np.stack([first_CKU, second_CKU]).swapaxes(1, 2).reshape(-1, units)

    def differences_DK(weights_DU: Floats) -> Floats:
        shares_DU = weights_DU / weights_DU.sum(axis=-1, keepdims=True)
        means = (shares_DU @ losses.T).reshape(-1, 2, seeds, conditions)
        difference_DK: Floats = (score(means[:, 0]) - score(means[:, 1])).mean(axis=-1)
        return difference_DK

    drawn = []
    with threadpool_limits(1):  # the same sums everywhere; and two threads only wait here
        mean = float(differences_DK(np.asarray(sizes_U, dtype=np.float64)[None]).mean())
        for start in range(0, draws, _AT_ONCE):
            count = min(_AT_ONCE, draws - start)
            units_DU = _drawn(generator, count, groups)[:, place_U]
            seeds_DK = _drawn(generator, count, seeds)
            drawn.append((differences_DK(units_DU * sizes_U) * seeds_DK).sum(axis=-1) / seeds)
    low, high = np.quantile(np.concatenate(drawn), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    name = f"crossed bootstrap of seeds and {called}, {100 * LEVEL:g} %, {draws} draws"
    return CrossedInterval(mean, float(low), float(high), name)


def places(groups: Sequence[str] | range) -> list[int]:
    """The place of each unit's group, in the order in which groups first come.

    >>> places(["b", "a", "b"])
    [0, 1, 0]
    """
    order = {group: place for place, group in enumerate(dict.fromkeys(groups))}
    return [order[group] for group in groups]


def group_parts(parts_KU: Floats, groups_U: Sequence[str]) -> Floats:
    """Part that each group adds to its seed's score, from those of its units; the mean stays.

    A group counts with the fraction of the units that it has.
    """
    place_U = places(groups_U)
    groups, units = max(place_U) + 1, len(place_U)
    mean_K = parts_KU.mean(axis=1, keepdims=True)
    sums_KG = np.zeros((len(parts_KU), groups))
    for place, off_K in zip(place_U, (parts_KU - mean_K).T, strict=True):
        sums_KG[:, place] += off_K
    group_KG: Floats = mean_K + sums_KG * groups / units
    return group_KG


def _drawn(generator: np.random.Generator, draws: int, among: int) -> NDArray[np.int64]:
    """Counts of each of ``among`` in as many draws with replacement: [D, among]."""
    picks = generator.integers(0, among, (draws, among))
    return np.stack([np.bincount(row, minlength=among) for row in picks])


def variance_components(differences_KU: Floats) -> VarianceComponents:
    """Components of paired differences by seed and unit, by the mean squares of a crossed design.

    Two-way random effects with one observation a cell: E MS_seed = rest + U seed, E MS_unit = rest
    + K unit, E MS_rest = rest. Source: Searle, Casella & McCulloch (1992), chapter 4.
    """
    seeds, units = differences_KU.shape
    require(min(seeds, units) > 1, "differences", (seeds, units), "of 2 seeds and 2 units at least")
    mean_K, mean_U = differences_KU.mean(axis=1), differences_KU.mean(axis=0)
    rest_KU = differences_KU - mean_K[:, None] - mean_U + differences_KU.mean()
    rest = float((rest_KU**2).sum() / ((seeds - 1) * (units - 1)))
    return VarianceComponents(
        seed=max(0.0, float(mean_K.var(ddof=1)) - rest / units),
        unit=max(0.0, float(mean_U.var(ddof=1)) - rest / seeds),
        rest=rest,
    )
