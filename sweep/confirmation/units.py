"""Intervals over seeds and test units of a confirmation, from unit scores.

Shape suffixes: C conditions (test gammas), K seeds, U units.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np

from sweep.confirmation.arms import SettingArms
from sweep.confirmation.measures import Outcome, measures_of
from sweep.confirmation.plan import CONSTRAINED, Measure
from sweep.confirmation.summary import UnitCounts
from sweep.statistics.paired import Floats
from sweep.statistics.two_sources import (
    CrossedInterval,
    VarianceComponents,
    crossed_bootstrap,
    group_parts,
    variance_components,
)
from trainables.config.test_conditions import gamma_key, unseen_gammas
from trainables.plain import Json
from trainables.primal_dual.certificate import clusters_of
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore
from trainables.records.unit_scores import at_gamma


@dataclass(frozen=True)
class UnitMeans:
    """What one arm came to on every test unit, at the conditions of a measure."""

    names: tuple[str, ...]
    sizes_U: Floats  # what each unit weighs in the mean of the split
    means_CU: Floats  # of the last layer's loss, or of scores
    are_scores: bool  # higher is better, and their mean is the metric


@dataclass(frozen=True)
class Groups:
    """Test units by what they lie in: their clip, where their names say so, else themselves."""

    of_units: tuple[str, ...]
    called: str
    unit: str

    @classmethod
    def of(cls, names: Sequence[str], unit: str) -> Groups:
        """Windows ("clip08:0010") lie in clips; other units are groups already, or stand alone.

        >>> Groups.of(["a:0000", "a:0010", "b:0000"], "window").of_units
        ('a', 'a', 'b')
        """
        return cls(*clusters_of(names, unit), unit)

    @property
    def count(self) -> int:
        """How many there are."""
        return len(set(self.of_units))

    def counts(self) -> UnitCounts:
        """Their numbers, for the summary of a confirmation."""
        return UnitCounts(
            units=len(self.of_units), unit=self.unit, groups=self.count, group=self.called
        )


Read = Callable[[str], UnitMeans | None]  # by signature; None: not stored


def reader(objects: ObjectStore, arms: SettingArms, measure: Measure) -> Read:
    """Reads unit scores of a setting's arms at the conditions of a measure, each arm once."""
    conditions = [at_gamma(gamma) for gamma in _gammas(arms, measure)]
    store = ArmStore(objects)

    @cache
    def read(signature: str) -> UnitMeans | None:
        stored = store.unit_scores(signature) if conditions else None
        if stored is None:
            return None
        sizes_U = np.array(stored.samples, dtype=np.float64)
        if stored.scores_N:
            firsts = (np.cumsum(stored.samples) - stored.samples).astype(np.intp)
            sums = [
                np.add.reduceat(stored.scores_N[c].astype(np.float64), firsts) for c in conditions
            ]
            return UnitMeans(tuple(stored.units), sizes_U, np.array(sums) / sizes_U, True)
        losses = [stored.losses_UF[c][:, -1].astype(np.float64) for c in conditions]
        # The mean of a split is that of its units, whatever samples they have.
        return UnitMeans(tuple(stored.units), np.ones_like(sizes_U), np.array(losses), False)

    return read


def _gammas(arms: SettingArms, measure: Measure) -> Sequence[float]:
    """The conditions of a measure; none where unit scores do not say it."""
    if measure == "unseen_mean":
        return unseen_gammas(arms.config)
    return arms.config.test_gammas if measure == "mean_over_gammas" else ()


@dataclass(frozen=True)
class OverUnits:
    """A contrast where test units are drawn anew, too."""

    interval: CrossedInterval
    variance: VarianceComponents  # of the difference, between seeds and between units
    seeds: int  # that have unit scores, of those that were asked for
    groups: Groups  # what was drawn

    def to_json(self) -> dict[str, Json]:
        """Plain values."""
        return {
            **vars(self.interval),
            "variance": vars(self.variance),
            "seeds": self.seeds,
            **self.groups.counts().to_json(),
        }


def over_units(
    arms: SettingArms, other: str, seeds: Sequence[int], measure: Measure, read: Read
) -> OverUnits | None:
    """The constrained arms against ``other``'s over seeds and test units.

    An arm that counts as the constant prediction comes to that on every unit: to leave its seed out
    would not be intention to treat, and to give no interval would ask less of a claim. A seed whose
    unit scores are not stored is left out, which the interval's name says. None where that leaves
    fewer than two seeds, or the metric does not follow from unit scores.
    """
    kinds = (CONSTRAINED, other)
    own = {
        (kind, seed): read(arms.signatures[kind][seed])
        for kind in kinds
        for seed in seeds
        if _measured(arms.outcomes.get(kind, {}).get(seed), measure)
    }
    first = next((one for one in own.values() if one is not None), None)
    if first is None or len(first.names) < 2:
        return None
    every = [one for one in own.values() if one is not None]
    if any((one.names, one.are_scores) != (first.names, first.are_scores) for one in every):
        return None
    factor = None if first.are_scores else _root_factor(arms)
    if factor is None and not first.are_scores:
        return None
    constant = {seed: _constant(arms, seed, first, measure, factor) for seed in seeds}
    pairs = [tuple(own.get((kind, seed), constant[seed]) for kind in kinds) for seed in seeds]
    whole = [(our, their) for our, their in pairs if our is not None and their is not None]
    if len(whole) < 2:
        return None
    sizes_U, score = first.sizes_U, partial(_score, factor=factor)
    ours_CKU, theirs_CKU = (
        np.stack([one.means_CU for one in of], axis=1) for of in zip(*whole, strict=True)
    )
    parts_CKU = linearised(ours_CKU, sizes_U, factor) - linearised(theirs_CKU, sizes_U, factor)
    groups = Groups.of(first.names, arms.config.facts.unit)
    drawn = groups.of_units if groups.count > 1 else first.names  # one clip: its windows are left
    called = f"{groups.called}s" if groups.count > 1 else f"the {groups.unit}s of one clip"
    interval = crossed_bootstrap(
        ours_CKU, theirs_CKU, sizes_U, score, key=len(whole), groups_U=drawn, called=called
    )
    if len(whole) < len(seeds):
        left = f"{len(whole)} of {len(seeds)} seeds, whose unit scores are stored"
        interval = replace(interval, name=f"{interval.name}, {left}")
    variance = variance_components(group_parts(parts_CKU.mean(axis=0), drawn))
    return OverUnits(interval, variance, len(whole), groups)


def _measured(outcome: Outcome | None, measure: Measure) -> bool:
    """Whether an arm counts for what its test units came to; one that is not there does not."""
    if outcome is None or outcome.record.evaluation is None or outcome.counted_as_constant:
        return False
    own = measures_of(outcome.record.config, outcome.record.evaluation)
    return measure in own and own[measure] == outcome.measures[measure]


def _constant(
    arms: SettingArms, seed: int, like: UnitMeans, measure: Measure, factor: float | None
) -> UnitMeans | None:
    """The best constant prediction as if every unit came to its mean; None: nothing says that."""
    reference = arms.reference(seed)
    if reference is None:
        return None
    scores = reference.references["constant"]
    found_C = np.array([scores[gamma_key(g)] for g in _gammas(arms, measure)])
    means_C = found_C if factor is None else (found_C / factor) ** 2
    return replace(like, means_CU=np.repeat(means_C[:, None], len(like.names), axis=1))


def _score(means: Floats, factor: float | None) -> Floats:
    """Higher is better: mean losses by their root, as RMSE is; mean scores (None) as they are."""
    return means if factor is None else -factor * np.sqrt(means)


def linearised(means_CKU: Floats, sizes_U: Floats, factor: float | None) -> Floats:
    """What each unit adds to its seed's score, to first order: their mean over units is the score.

    The score of the mean, and its slope there times how far the unit is from the mean, weighed as
    the unit is (the influence function): what varies between units, of a score that is no mean.
    """
    mean_CK = np.average(means_CKU, axis=-1, weights=sizes_U)
    slope_CK = np.ones_like(mean_CK)
    if factor is not None:
        slope_CK = np.divide(
            -factor / 2, np.sqrt(mean_CK), out=np.zeros_like(mean_CK), where=mean_CK > 0
        )
    off_CKU = (means_CKU - mean_CK[..., None]) * (sizes_U / sizes_U.mean())
    found: Floats = _score(mean_CK, factor)[..., None] + slope_CK[..., None] * off_CKU
    return found


def _root_factor(arms: SettingArms) -> float | None:
    """c where the metric is c times the root of the mean loss at every gamma (RMSE); else None."""
    for outcome in (one for of in arms.outcomes.values() for one in of.values()):
        found = outcome.record.evaluation
        if found is not None:
            factors = [
                score / math.sqrt(found.layer_losses_by_gamma[gamma][-1])
                for gamma, score in found.scores.items()
                if found.layer_losses_by_gamma[gamma][-1] > 0
            ]
            return factors[0] if factors and np.ptp(factors) < 1e-6 * factors[0] else None
    return None
