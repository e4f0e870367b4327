"""Resilience: slack that a multiplier at rest grants its constraint."""

from __future__ import annotations

from trainables.config.arm import ConstraintConfig
from trainables.primal_dual.constraints import Array, DescentConstraints, allowed_losses


def slack(
    config: ConstraintConfig,
    constraints: DescentConstraints,
    multipliers_L: Array,
    losses_F: Array,
) -> Array:
    """u_L, how far resilience c lets each constraint be missed at rest, in the violations' unit.

    The dual step rests where its signal equals kappa lambda (``slack_per_multiplier``). Where the
    signal is the violation itself u = kappa lambda; where it is the violation over the loss
    allowed, u = kappa lambda x that loss. Of an augmented Lagrangian ``multipliers_L`` are mu.

    >>> import numpy as np
    >>> from trainables.primal_dual.constraints import Scales, descent_constraints
    >>> config = ConstraintConfig(alpha=0.5, resilience=0.1, scale="none", dual_signal="relative")
    >>> constraints = descent_constraints(config, 2, Scales(1.0, 1.0))
    >>> slack(config, constraints, np.array([0.0, 2.0]), np.array([1.0, 0.8, 0.5])).tolist()
    [0.0, 0.08000000000000002]
    """
    slacks_L = slack_per_multiplier(config) * multipliers_L
    return in_violations_unit(config, constraints, slacks_L, losses_F)


def slack_per_multiplier(config: ConstraintConfig) -> float:
    """The dual signal at rest over the multiplier that decays: c, or c / eta with ``bare_decay``.

    With AdamW 0: its decay bounds the multiplier by 1 / c, whatever the signal, and grants nothing.

    >>> names = ("sgd", "adam", "adamw", "bare_decay", "nupi", "augmented")
    >>> runs = [ConstraintConfig(dual_optimizer=n, resilience=0.5, dual_lr=0.1) for n in names]
    >>> list(map(slack_per_multiplier, runs))
    [0.5, 0.5, 0.0, 5.0, 0.5, 0.5]
    """
    return 0.0 if config.dual_optimizer == "adamw" else decay_rate(config)


def proportional_part(config: ConstraintConfig) -> float:
    """The most that a signal of 1 adds to a multiplier beside what its dual steps add up to.

    kappa_p, twice where a signal of -1 was projected away before; or p.
    """
    parts = {"nupi": 2.0 * config.dual_kp, "augmented": config.dual_penalty}
    return parts.get(config.dual_optimizer, 0.0)


def decay_rate(config: ConstraintConfig) -> float:
    """Fraction of a multiplier that decays a unit of dual_lr: c, or c / eta (``bare_decay``)."""
    if config.dual_optimizer == "bare_decay" and config.dual_lr > 0:
        return config.resilience / config.dual_lr
    return config.resilience


def in_violations_unit(
    config: ConstraintConfig, constraints: DescentConstraints, slacks_L: Array, losses_F: Array
) -> Array:
    """Slacks in the dual signal's unit (of the loss allowed) in that of the violations."""
    if config.dual_signal == "relative":
        return slacks_L * allowed_losses(constraints, losses_F)
    return slacks_L
