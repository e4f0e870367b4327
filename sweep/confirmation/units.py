"""Intervals over seeds and test units of a confirmation, from unit scores.

Shape suffixes: C conditions (test gammas), K seeds, U units.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np

from sweep.confirmation.arms import SettingArms
from sweep.confirmation.measures import Outcome, measures_of
from sweep.confirmation.plan import CONSTRAINED, Measure
from sweep.confirmation.summary import OverUnits, UnitCounts, Variance
from sweep.statistics.paired import Floats
from sweep.statistics.two_sources import crossed_bootstrap, group_parts, variance_components
from trainables.config.test_conditions import family_of, seen_gammas, unseen_gammas
from trainables.primal_dual.certificate import clusters_of
from trainables.records.arms import ArmStore
from trainables.records.evaluation import Evaluation
from trainables.records.objects import ObjectStore
from trainables.records.unit_scores import at_gamma, under_shift


@dataclass(frozen=True)
class UnitMeans:
    """Losses or scores of one arm on every test unit, at the conditions of a measure."""

    names: tuple[str, ...]
    sizes_U: Floats  # weights of the units in the mean of the split
    means_CU: Floats  # of the last layer's loss, or of scores
    are_scores: bool  # higher is better, and their mean is the metric


@dataclass(frozen=True)
class Groups:
    """Groups of test units: their clip, where their names say so, else themselves."""

    by_unit: tuple[str, ...]
    counts: UnitCounts

    @classmethod
    def by_names(cls, names: Sequence[str], unit: str) -> Groups:
        """Windows ("clip08:0010") lie in clips; other units are groups already, or stand alone.

        >>> Groups.by_names(["a:0000", "a:0010", "b:0000"], "window").by_unit
        ('a', 'a', 'b')
        """
        groups, group = clusters_of(names, unit)
        counts = UnitCounts(units=len(groups), unit=unit, groups=len(set(groups)), group=group)
        return cls(groups, counts)


Read = Callable[[str], UnitMeans | None]  # by signature; None: not stored


def reader(objects: ObjectStore, arms: SettingArms, measure: Measure) -> Read:
    """Reads unit scores of a setting's arms at the conditions of a measure, each arm once."""
    conditions = conditions_of(arms, measure)
    store = ArmStore(objects)

    @cache
    def read(signature: str) -> UnitMeans | None:
        stored = store.unit_scores(signature) if conditions else None
        if stored is None or any(c not in stored.losses_UF for c, _ in conditions):
            return None
        sizes_U = np.array(stored.samples, dtype=np.float64)
        if stored.scores_N:
            if any(layer is not None for _, layer in conditions):
                return None  # scores of samples are the last layer's
            firsts = (np.cumsum(stored.samples) - stored.samples).astype(np.intp)
            sums = [
                np.add.reduceat(stored.scores_N[c].astype(np.float64), firsts)
                for c, _ in conditions
            ]
            return UnitMeans(tuple(stored.units), sizes_U, np.array(sums) / sizes_U, True)
        losses = [
            stored.losses_UF[c][:, -1 if layer is None else layer].astype(np.float64)
            for c, layer in conditions
        ]
        # The mean of a split is that of its units, whatever samples they have.
        return UnitMeans(tuple(stored.units), np.ones_like(sizes_U), np.array(losses), False)

    return read


def conditions_of(arms: SettingArms, measure: Measure) -> list[tuple[str, int | None]]:
    """Conditions of a measure, each with its layer; None: the last. None at all: not by unit."""
    config = arms.config
    if measure == "anytime_mean":
        measured = _measured(arms)  # of a checkpoint, it knows the depth
        last = len(measured.held_out_losses()) if measured else 1
        return [(at_gamma(config.train_gamma), layer) for layer in range(1, last)]
    if measure == "shift_mean":
        shifts = [(shift, family_of(shift).severities) for shift in config.shifts]
        return [(under_shift(shift, s), None) for shift, severities in shifts for s in severities]
    gammas: Sequence[float] = ()  # an area is no mean
    if measure == "unseen_mean":
        gammas = unseen_gammas(config)
    elif measure == "seen_mean":
        gammas = seen_gammas(config)
    elif measure == "mean_over_gammas":
        gammas = config.test_gammas
    return [(at_gamma(gamma), None) for gamma in gammas]


def _measured(arms: SettingArms) -> Evaluation | None:
    """The first measurement of any of the arms."""
    outcomes = (one for by_seed in arms.outcomes.values() for one in by_seed.values())
    return next((one.record.evaluation for one in outcomes if one.record.evaluation), None)


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
        if _is_measured(arms.outcomes.get(kind, {}).get(seed), measure)
    }
    first = next((one for one in own.values() if one is not None), None)
    if first is None or len(first.names) < 2:
        return None
    every = [one for one in own.values() if one is not None]
    if any((one.names, one.are_scores) != (first.names, first.are_scores) for one in every):
        return None
    measured = _measured(arms)
    factor = None if first.are_scores or measured is None else measured.root_factor
    if factor is None and not first.are_scores:
        return None
    constant = {seed: _constant(arms, seed, first, measure, factor) for seed in seeds}
    pairs = [tuple(own.get((kind, seed), constant[seed]) for kind in kinds) for seed in seeds]
    complete = [(our, their) for our, their in pairs if our is not None and their is not None]
    if len(complete) < 2:
        return None
    sizes_U, score = first.sizes_U, partial(_score, factor=factor)
    ours_CKU, theirs_CKU = (
        np.stack([one.means_CU for one in side], axis=1) for side in zip(*complete, strict=True)
    )
    parts_CKU = linearised(ours_CKU, sizes_U, factor) - linearised(theirs_CKU, sizes_U, factor)
    groups = Groups.by_names(first.names, arms.config.facts.unit)
    counts, drawn = groups.counts, groups.by_unit
    called = f"{counts.group}s"
    if counts.groups == 1:  # one clip: its windows are left
        drawn, called = first.names, f"the {counts.unit}s of one clip"
    # Keyed by what is counted alone: whoever makes the table again draws the same.
    interval = crossed_bootstrap(
        ours_CKU, theirs_CKU, sizes_U, score, key=len(complete), groups_U=drawn, called=called
    )
    name = interval.name
    if len(complete) < len(seeds):
        name += f", {len(complete)} of {len(seeds)} seeds, whose unit scores are stored"
    variance = variance_components(group_parts(parts_CKU.mean(axis=0), drawn))
    return OverUnits(
        mean=interval.mean,
        low=interval.low,
        high=interval.high,
        name=name,
        seeds=len(complete),
        variance=Variance(seed=variance.seed, unit=variance.unit, rest=variance.rest),
        **counts.keywords(),
    )


def _is_measured(outcome: Outcome | None, measure: Measure) -> bool:
    """True if an arm counts for the scores of its test units; False for one that is not there."""
    if outcome is None or outcome.record.evaluation is None or outcome.counted_as_constant:
        return False
    own = measures_of(outcome.record.config, outcome.record.evaluation)
    return measure in own and own[measure] == outcome.measures[measure]


def _constant(
    arms: SettingArms, seed: int, like: UnitMeans, measure: Measure, factor: float | None
) -> UnitMeans | None:
    """The best constant prediction, each unit at its mean; None before any arm has measured it."""
    reference = arms.reference(seed)
    if reference is None:
        return None
    # Noise does not change what is constant, and the train gamma may be no test gamma.
    score = next(iter(reference.constant_scores.values()))
    scores_C = np.full(len(conditions_of(arms, measure)), score)
    means_C = scores_C if factor is None else (scores_C / factor) ** 2
    return replace(like, means_CU=np.repeat(means_C[:, None], len(like.names), axis=1))


def _score(means: Floats, factor: float | None) -> Floats:
    """Higher is better: mean losses by their root, as RMSE is; mean scores (None) as they are."""
    return means if factor is None else -factor * np.sqrt(means)


def linearised(means_CKU: Floats, sizes_U: Floats, factor: float | None) -> Floats:
    """Contribution of each unit to its seed's score, to first order: their mean is the score.

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
    parts_CKU: Floats = _score(mean_CK, factor)[..., None] + slope_CK[..., None] * off_CKU
    return parts_CKU
