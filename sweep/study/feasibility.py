"""Feasibility: verdict on arms by their held-out losses under a constraint. Pure.

Arms that differ in their seed alone are judged by the mean of their losses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from search_spaces.space import SearchSpace, Setting
from trainables.config.arm import ConstraintConfig
from trainables.config.constraint import TOLERANCE
from trainables.errors import InvalidValue
from trainables.primal_dual.certificate import Certificate, certify, clusters_of, upper_shares
from trainables.primal_dual.constraints import (
    DescentConstraints,
    Floats,
    binding_alpha,
    descent_constraints,
    is_feasible,
    missing_shares,
    reference_fraction,
)
from trainables.primal_dual.resilience import slack
from trainables.records.arm_record import ArmRecord, first_layer
from trainables.records.evaluation import Evaluation

Shares = tuple[float, ...]


@dataclass(frozen=True)
class Judgement:
    """Finished arms under one constraint: missing shares of their mean losses, and the verdict."""

    held_out: Shares  # dev units at train_gamma, unrelaxed: what feasibility is judged by
    training: Shares  # training units, fresh draws, unrelaxed
    # ^ tells a generalisation gap from a failed optimisation
    relaxed: Shares | None  # dev, with the slack c lambda, or where slacks are variables with those
    # ^ of the last report; None for an arm without multipliers
    feasible: bool
    beats_trivial: bool
    why_not_better: str  # empty when beats_trivial
    certificate: Certificate  # what the dev units say of that verdict, with its error
    seeds_upper: Shares | None  # upper 95 % bound of the shares over the seeds; None for one seed
    first_layer: int = 1  # the layer of the first share: 0 with ``bound_zero``

    @property
    def worst(self) -> float:
        """The worst layer's missing share on held-out data."""
        return float(np.max(self.held_out))  # NaN stays NaN

    @property
    def worst_layer(self) -> int:
        """The layer that misses most, as layers are numbered: the input is 0."""
        return self.first_layer + int(np.argmax(self.held_out))


def judge(
    records: Sequence[ArmRecord], constraint: ConstraintConfig, tolerance: float = TOLERANCE
) -> Judgement | None:
    """Judge arms that differ in their seed alone by their mean losses; None unless all finished.

    Constraints are linear in the losses, so the mean over seeds is what the arms come to on
    average. Networks that miss in different layers can average to one that meets every constraint
    and that nobody trained: where the median seed (the better one of two) misses more than the
    mean, it is judged in its place, on its own losses (docs/decisions/0068). The constraint may be
    that of the arms they are baselines of.
    """
    measured = [r.evaluation for r in records if r.evaluation is not None]
    if not records or len(measured) < len(records):
        return None
    if any(record.status != "finished" for record in records):
        return None  # its result could not be stored, say: it is measured all the same
    first, config = measured[0], records[0].config
    if any(m.dev_units != first.dev_units for m in measured):
        raise InvalidValue(
            f"arms {', '.join(r.signature for r in records)} were measured on other held-out "
            "units, so their mean is that of no unit. Train them again on one data set."
        )
    constraints = descent_constraints(constraint, config.model.layers, first.scales)
    units_S = np.array([m.scales.constant_loss for m in measured])  # their own: seeds may draw dev
    dev_SJF = np.array([m.dev_losses for m in measured]) / units_S[:, None, None]
    seeds_SF = np.array([m.held_out_losses() for m in measured]) / units_S[:, None]
    judged = _judged_seeds(constraints, seeds_SF)
    held_out_F = seeds_SF[judged].mean(axis=0)
    training_SF = np.array([m.training_losses() for m in measured]) / units_S[:, None]
    training_F = training_SF[judged].mean(axis=0)
    held_out_L = missing_shares(constraints, held_out_F)
    relaxed: Shares | None = None
    if all(m.multipliers for m in measured):
        slacks = [
            _slack(*arm, constraint, constraints) for arm in zip(records, seeds_SF, strict=True)
        ]
        relaxed_L = missing_shares(constraints, held_out_F, np.array(slacks)[judged].mean(axis=0))
        relaxed = tuple(relaxed_L.tolist())
    clusters, cluster = clusters_of(first.dev_units, config.facts.unit)
    why = _why_not_better(records[0], first, float(held_out_F[-1]) * first.scales.constant_loss)
    return Judgement(
        held_out=tuple(held_out_L.tolist()),
        training=tuple(missing_shares(constraints, training_F).tolist()),
        relaxed=relaxed,
        feasible=is_feasible(held_out_L, tolerance),
        beats_trivial=not why,
        why_not_better=why,
        certificate=certify(
            constraints,
            dev_SJF[judged].mean(axis=0),
            tolerance=tolerance,
            clusters=clusters,
            cluster=cluster,
        ),
        seeds_upper=upper_shares(constraints, seeds_SF, tolerance),
        first_layer=first_layer(len(held_out_F), len(held_out_L)),
    )


def _judged_seeds(constraints: DescentConstraints, seeds_SF: Floats) -> list[int]:
    """The seeds to judge by their mean: all, or the median seed alone where it misses more."""
    every = list(range(len(seeds_SF)))
    worst_S = [missing_shares(constraints, losses_F).max() for losses_F in seeds_SF]
    median = sorted(every, key=lambda seed: worst_S[seed])[(len(every) - 1) // 2]
    mean_worst = missing_shares(constraints, seeds_SF.mean(axis=0)).max()
    return [median] if worst_S[median] > mean_worst else every


def _slack(
    record: ArmRecord,
    held_out_F: Floats,
    constraint: ConstraintConfig,
    constraints: DescentConstraints,
) -> Floats:
    """The slack that resilience grants one arm, in the violations' unit."""
    assert record.evaluation is not None  # it finished
    slack_L: Floats = np.array(record.reports[-1].layers.get("slacks", ()))
    # slacks that are variables, or c mu where multipliers are mu + p s, are as the report has them
    is_reported = constraint.resilience_form != "decay" or constraint.dual_optimizer == "augmented"
    if not is_reported or not slack_L.size:
        multipliers_L = np.array(record.evaluation.multipliers)
        slack_L = slack(constraint, constraints, multipliers_L, held_out_F)
    return slack_L


def _why_not_better(record: ArmRecord, measured: Evaluation, loss: float) -> str:
    """The reason why finished arms of this held-out loss are no better than trivial; else empty.

    Better: the held-out loss at train_gamma is below that of the best constant prediction and,
    where the unchanged input is a prediction, of that (identity): there the input is its own answer
    at train_gamma 0, so nothing beats it (docs/method.md, Feasible, better than trivial, winner).
    """
    facts = record.config.facts
    if facts.has_identity and record.config.train_gamma == 0:
        return "train_gamma is 0: the input is its own answer"
    for name in ("identity", "constant") if facts.has_identity else ("constant",):
        reference = measured.reference_losses[name]
        # Not ``>=``: a loss that is NaN is below nothing.
        if not loss < reference:
            return f"held-out loss {loss:.4g} is not below the {name} prediction's {reference:.4g}"
    return ""


# --- what plain training meets by itself ----------------------------------------------------------

# What else than alpha decides whether a loss meets the constraint.
_OTHERS = frozenset(
    f"constraint.{name}" for name in ("reference", "reference_loss", "reference_unit", "weights_by")
)


def plain_meets_up_to(
    space: SearchSpace, setting: Setting, records: Sequence[ArmRecord]
) -> float | None:
    """The alpha up to which unconstrained arms of a setting meet the constraint, held out.

    Judged as a pair is (``sweep/study/feasibility.py``): by the mean loss over the seeds, and by
    the median seed where that meets less. 0 where not every smaller alpha is met. None: not all of
    them have finished, a proposal may have another reference or be a control, or the space is of a
    confirmation, which has no winners.
    """
    constraint = space.base.with_fields(setting.fields).constraint
    tried = {*space.ranges, *(name for point in setting.points.values() for name in point)}
    assert constraint is not None  # a space has one
    if constraint.is_control or tried & _OTHERS or space.phase == "confirmation":
        return None
    measured = [r.evaluation for r in records if r.status == "finished" and r.evaluation]
    if not measured or len(measured) < len(records):
        return None
    f0 = reference_fraction(constraint, measured[0].scales)
    losses_SF = np.array([m.held_out_losses() for m in measured])
    losses_SF /= np.array([m.scales.constant_loss for m in measured])[:, None]
    limits = [binding_alpha(constraint, losses_F, f0, space.tolerance) for losses_F in losses_SF]
    median = sorted(limits, reverse=True)[(len(limits) - 1) // 2]
    return min(median, binding_alpha(constraint, losses_SF.mean(axis=0), f0, space.tolerance))


def never_binds(up_to: float | None, largest: float | None) -> str:
    """Words on a setting whose every proposal plain training meets; '' where one may bind.

    >>> never_binds(0.512, 0.5)
    'plain training meets the constraint up to alpha 0.512, and no proposal asks for more than \
0.5: none can win'
    """
    if up_to is None or largest is None or largest > up_to:
        return ""
    return (
        f"plain training meets the constraint up to alpha {up_to:.3g}, and no proposal asks for "
        f"more than {largest:.3g}: none can win"
    )
