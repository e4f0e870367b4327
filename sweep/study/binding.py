"""Alpha up to which plain training meets the constraint by itself. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from search_spaces.effects.descent import ALPHA
from search_spaces.ranges import ends_of
from search_spaces.space import SearchSpace, Setting
from trainables.primal_dual.constraints import binding_alpha, reference_fraction
from trainables.records.arm_record import ArmRecord

# What else than alpha decides whether a loss meets the constraint.
_OTHERS = frozenset(f"constraint.{n}" for n in ("reference", "reference_loss", "reference_unit"))


def plain_meets_up_to(
    space: SearchSpace, setting: Setting, records: Sequence[ArmRecord]
) -> float | None:
    """The alpha up to which unconstrained arms of a setting meet the constraint, held out.

    Judged as a pair is (``sweep/study/feasibility.py``): by the mean loss over the seeds, and by
    the median seed where that meets less. 0 where small values are missed already. None: not all of
    them have finished, the setting searches the reference loss as well, or its constrained arms are
    controls.
    """
    constraint = space.base.with_fields(setting.fields).constraint
    tried = {*space.ranges, *(name for point in setting.points.values() for name in point)}
    assert constraint is not None  # a space has one
    if constraint.is_control or tried & _OTHERS:
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


def largest_alpha(space: SearchSpace, setting: Setting) -> float:
    """The largest alpha that a proposal of a setting may ask for."""
    constraint = space.base.with_fields(setting.fields).constraint
    assert constraint is not None  # a space has one
    searched = space.ranges_of(setting).get(ALPHA)
    listed = [point.get(ALPHA, constraint.alpha) for point in setting.points.values()]
    values = [*listed, *(() if searched is None else ends_of(searched))] or [constraint.alpha]
    return max(float(value) for value in values if isinstance(value, int | float))


def never_binds(up_to: float | None, largest: float | None) -> str:
    """What to say of a setting whose every proposal plain training meets; '' where one may bind.

    >>> never_binds(0.512, 0.5)
    'plain training meets the constraint up to alpha 0.51, and no proposal asks for more than 0.5: \
none can win'
    """
    if up_to is None or largest is None or largest > up_to:
        return ""
    return (
        f"plain training meets the constraint up to alpha {up_to:.2g}, and no proposal asks for "
        f"more than {largest:.2g}: none can win"
    )
