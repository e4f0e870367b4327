"""Signs of multipliers while a run trains: wound up, paid to rise, stale."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from trainables.config.arm import ConstraintConfig
from trainables.primal_dual.constraints import (
    DescentConstraints,
    Floats,
    allowed_losses,
    descent_constraints,
    previous_losses,
)
from trainables.primal_dual.resilience import decay_rate, proportional_part
from trainables.primal_dual.schedule import effective_dual_steps
from trainables.records.arm_record import Report
from trainables.signs import limits
from trainables.signs.sign import Sign, WatchedRun

# of layer 0 under bound_zero, whose loss UT and DUST cannot change
INPUT_ADVICE = (
    "Raise constraint.reference_loss, bound the first layer (constraint.reference=bound_first)"
)
ConstraintSign = partial(Sign, of_constraint=True)


def multiplier_signs(run: WatchedRun, reports: Sequence[Report]) -> Iterator[Sign]:
    """Signs of a run with multipliers that the last of its reports shows."""
    layers = len(reports[-1].layers["losses"]) - 1
    constraints = descent_constraints(run.constraint, layers, run.scales)
    yield from _wound_up(run, constraints, reports)
    yield from _paid_to_rise(run, reports[-1])
    if run.constraint.is_adam and len(reports) > 1:
        yield from _stale(run, constraints, *reports[-2:])


def _wound_up(
    run: WatchedRun, constraints: DescentConstraints, reports: Sequence[Report]
) -> Iterator[Sign]:
    """A layer is missed whose multiplier stands where one signal all the time would put it.

    Where that signal is the largest there is (its clip; Adam's steps know no size) the sign ends a
    run; the signal of a layer that never descended at all gives rise to a warning, once half of the
    steps are over: whether such runs can end feasible was not measured.
    """
    report, constraint = reports[-1], run.constraint
    shares_L, values_L = report.layers["missing_shares"], report.layers["multipliers"]
    missed = [i for i, v in enumerate(shares_L) if v > run.tolerance and values_L[i] > 0]
    if not missed or not run.is_settled(report):
        return
    reach = _reach(run, report.step)
    bound = 1.0 if constraint.is_adam else constraint.signal_clip
    farthest = limits.UNBOUNDED_WIND_UP if bound is None else bound * reach
    largest_F = np.max([r.layers["losses"] for r in reports], axis=0)
    idle_L = reach * idle_signals(constraint, constraints, largest_F)
    is_late = run.is_past_half(report)
    for index in missed:
        layer, value = index + constraints.first_layer, values_L[index]
        ends = value >= limits.WOUND_UP * farthest
        is_idle = not constraint.is_adam and value >= limits.WOUND_UP * idle_L[index]
        if ends or (is_late and is_idle):
            yield ConstraintSign(
                f"The multiplier of layer {layer} only ever rose and its constraint is still "
                f"missed (wound up). {'Lower constraint.alpha' if layer else INPUT_ADVICE}, or "
                "train longer.",
                badness=shares_L[index],
                ends=ends,
            )


def _reach(run: WatchedRun, last: int) -> float:
    """The value that a constant signal of 1 would take a multiplier to by step ``last``.

    With the learning rate's schedule, and with resilience where it is a decay: then that of small
    dual steps, (1 - exp(-c r)) / c where hard constraints give r; at a constant rate never above
    the exact one. What nupi and augmented add in proportion to the signal is in it.
    """
    constraint, hard = run.constraint, _dual_time(run, last)
    decays = constraint.resilience_form == "decay" and constraint.dual_optimizer != "adam"
    rate = decay_rate(constraint) if decays else 0.0
    summed = hard if rate == 0 else -math.expm1(-rate * hard) / rate  # exact at small rates, too
    return proportional_part(constraint) + summed


def _dual_time(run: WatchedRun, last: int) -> float:
    """The dual learning rates of all dual steps within the first ``last`` steps, added up."""
    steps = effective_dual_steps(run.config, steps_per_epoch=run.steps_per_epoch, until=last)
    return run.constraint.dual_lr * steps


def idle_signals(
    config: ConstraintConfig, constraints: DescentConstraints, losses_F: Floats
) -> Floats:
    """The dual signal of layers that remove nothing of what they are given: missing share 1.

    The losses of the layers before are taken from ``losses_F``. Never above the clip.

    >>> from trainables.primal_dual.constraints import Scales
    >>> config = ConstraintConfig(alpha=0.2, reference="virtual_layer0", reference_unit="constant")
    >>> constraints = descent_constraints(config, 2, Scales(1.0, 1.0))
    >>> idle_signals(config, constraints, np.array([1.0, 0.9, 0.8])).round(6).tolist()
    [0.25, 0.25]
    """
    losses_F = np.asarray(losses_F, dtype=np.float64)
    signal_L = np.full(len(constraints.bounds_L), constraints.alpha)
    if constraints.form == "difference":
        signal_L = signal_L * previous_losses(constraints, losses_F) / constraints.scale_L
    if config.dual_signal == "relative":
        signal_L = signal_L / allowed_losses(constraints, losses_F)
    return signal_L if config.signal_clip is None else signal_L.clip(max=config.signal_clip)


def _paid_to_rise(run: WatchedRun, report: Report) -> Iterator[Sign]:
    losses_F, weights_F = report.layers["losses"], report.layers["weights"]
    much = limits.PAID_TO_RISE * max(
        losses_F[0], run.scales.identity_loss / run.scales.constant_loss
    )
    for layer in range(1, len(losses_F) - 1):
        if weights_F[layer] < 0 and losses_F[layer] > much:
            yield ConstraintSign(
                f"Layer {layer} is paid to raise its loss: its weight is negative and its loss "
                f"above {limits.PAID_TO_RISE:g} times the input's. "
                "Lower constraint.dual_lr (its range, where it is searched), or set "
                "constraint.grad_through_previous to false.",
                badness=losses_F[layer],
                ends=True,
            )


def _stale(
    run: WatchedRun, constraints: DescentConstraints, first: Report, last: Report
) -> Iterator[Sign]:
    """Adam's multiplier hardly falls between two reports, over a constraint that is well met."""
    fall = _dual_time(run, last.step) - _dual_time(run, first.step)
    allowed_L = allowed_losses(constraints, np.array(last.layers["losses"]))
    pairs = zip(first.layers["multipliers"], last.layers["multipliers"], strict=True)
    for index, (before, now) in enumerate(pairs):
        hardly_falls = 0 < limits.STALE * before < now and fall > (1.0 - limits.STALE) * before
        if hardly_falls and last.layers["violations"][index] < limits.WELL_MET * allowed_L[index]:
            yield ConstraintSign(
                f"The multiplier of layer {index + constraints.first_layer} hardly falls though "
                "its constraint is well met: Adam remembers an earlier violation (stale moments). "
                "Use constraint.dual_optimizer=sgd.",
                badness=max(last.layers["missing_shares"], default=math.nan),
                ends=True,
            )
