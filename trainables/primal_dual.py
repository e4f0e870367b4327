"""The mathematics of layerwise descent constraints, as pure functions of the losses per layer.

Everything the constraints do is affine in the losses f = (f_0, ..., f_L): the violations are
g = A f - b, and the Lagrangian f_L + sum_l lambda_l g_l therefore has the gradient of
sum_l w_l f_l with w = e_L + lambda A. ``descent_constraints`` builds A and b once; the rest is
linear algebra on NumPy arrays and torch tensors alike. No model, batch or file is known here.

Losses are in units of the constant predictor's loss f_c (decision 0010). Sign: a violation > 0 is
violated. Shape suffixes: L one per layer 1..L; F one per prediction 0..L.

Source: arXiv 2601.17257, eqs. (3)-(6), (37)-(38); resilience: Hounie et al. 2023, arXiv 2306.02426.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainables.config import ConstraintConfig

Array = Any  # a NumPy array or a torch tensor: only @, +, -, *, / and slices are used
Floats = NDArray[np.float64]

TOLERANCE = 0.10  # a layer delivers at least 90 % of the descent asked of it (decision 0001)


@dataclass(frozen=True)
class Scales:
    """Two losses of the train split that need no training, in the task's own unit."""

    constant_loss: float  # f_c: the best constant prediction
    identity_loss: float  # the unchanged input at train_gamma
    # ^ at train_gamma 0: at the smallest test gamma above it


@dataclass(frozen=True)
class DescentConstraints:
    """g(f) = A f - b and what its multipliers need, for one arm; see ``descent_constraints``."""

    alpha: float
    reference: float  # f0 over f_c
    matrix_LF: Array  # A: violations of the (scaled) constraints
    bounds_L: Array  # b
    allowed_LF: Array  # the part of -A at layer l - 1: what each layer may keep of that loss
    gradient_LF: Array  # A where the Lagrangian's gradient flows: without f_{l-1} when detached
    scale_L: Array  # s_l, or ones: g = scale x (what A f - b gives)


def descent_constraints(
    config: ConstraintConfig, layers: int, scales: Scales
) -> DescentConstraints:
    """The affine constraints of a run with ``layers`` layers.

    g_1 = f_1 - s_1 and g_l = f_l - (1 - alpha) f_{l-1} for l >= 2, where s_1 = f0
    (``bound_first``) or (1 - alpha) f0 (``virtual_layer0``). With ``scale="schedule"`` each is
    divided by s_l = (1 - alpha) s_{l-1}, a positive constant: the same feasible set, better
    conditioned multipliers (docs/method.md, The constraint).

    >>> config = ConstraintConfig(
    ...     alpha=0.5, reference_loss=1.0, reference_unit="constant", scale="none"
    ... )
    >>> constraints = descent_constraints(config, 2, Scales(constant_loss=1.0, identity_loss=1.0))
    >>> violations(constraints, np.array([1.0, 0.9, 0.6])).round(2).tolist()
    [-0.1, 0.15]
    """
    keep = 1.0 - config.alpha
    reference = reference_share(config, scales)
    first = reference if config.reference == "bound_first" else keep * reference
    schedule_L = first * keep ** np.arange(layers)
    scale_L = schedule_L if config.scale == "schedule" else np.ones(layers)
    current_LF = np.eye(layers, layers + 1, k=1)
    previous_LF = keep * np.eye(layers, layers + 1)
    previous_LF[0] = 0.0  # layer 1 answers to the reference, not to layer 0
    bounds_L = np.zeros(layers)
    bounds_L[0] = first
    matrix_LF = (current_LF - previous_LF) / scale_L[:, None]
    return DescentConstraints(
        alpha=config.alpha,
        reference=reference,
        matrix_LF=matrix_LF,
        bounds_L=bounds_L / scale_L,
        allowed_LF=previous_LF / scale_L[:, None],
        gradient_LF=matrix_LF if config.grad_through_previous else current_LF / scale_L[:, None],
        scale_L=scale_L,
    )


def reference_share(config: ConstraintConfig, scales: Scales) -> float:
    """f0 over f_c, from whichever unit the config states it in."""
    unit = {"constant": scales.constant_loss, "identity": scales.identity_loss, "absolute": 1.0}
    return config.reference_loss * unit[config.reference_unit] / scales.constant_loss


def violations(constraints: DescentConstraints, losses_F: Array) -> Array:
    """g_L, signed: > 0 violated, <= 0 satisfied. Scaled where the constraints are."""
    return constraints.matrix_LF @ losses_F - constraints.bounds_L


def allowed_losses(constraints: DescentConstraints, losses_F: Array) -> Array:
    """What each layer's constraint allows right now: s_1, then (1 - alpha) f_{l-1}.

    In the violations' unit. The violation over this is the *relative* signal that a dual step may
    follow (docs/method.md, Training).
    """
    return constraints.bounds_L + constraints.allowed_LF @ losses_F


def layer_weights(constraints: DescentConstraints, multipliers_L: Array) -> Array:
    """w_F, layers 0..L: the Lagrangian's gradient is that of sum_l w_l f_l.

    Unscaled: w_0 = 0, w_l = lambda_l - (1 - alpha) lambda_{l+1} and w_L = 1 + lambda_L
    (docs/method.md, Training). A negative weight pays the optimiser to raise that layer's loss.
    Detached: w_l = lambda_l, never negative.

    >>> config = ConstraintConfig(alpha=0.5, scale="none")
    >>> constraints = descent_constraints(config, 2, Scales(1.0, 1.0))
    >>> layer_weights(constraints, np.array([0.2, 1.0])).round(2).tolist()
    [0.0, -0.3, 2.0]
    """
    weights_F = multipliers_L @ constraints.gradient_LF
    weights_F[-1] += 1.0
    return weights_F


def lagrangian(constraints: DescentConstraints, losses_F: Array, multipliers_L: Array) -> Array:
    """L(f, lambda) = f_L + sum_l lambda_l g_l, eq. (5); a scalar."""
    return losses_F[-1] + multipliers_L @ violations(constraints, losses_F)


def dual_step(
    multipliers_L: Array, signal_L: Array, *, dual_lr: float, resilience: float = 0.0
) -> Array:
    """Projected dual ascent: lambda <- [(1 - eta c) lambda + eta g]_+, eq. (38).

    Layers whose loss failed to drop by the fraction alpha (g > 0) gain weight in the Lagrangian;
    satisfied layers lose it, down to zero. ``resilience`` c = 1/rho relaxes each constraint by the
    slack c lambda; with c = 0 the constraints are hard.

    >>> dual_step(np.array([0.0, 1.0]), np.array([0.5, -0.2]), dual_lr=1.0).tolist()
    [0.5, 0.8]
    """
    return ((1.0 - dual_lr * resilience) * multipliers_L + dual_lr * signal_L).clip(min=0)


def slack(
    config: ConstraintConfig,
    constraints: DescentConstraints,
    multipliers_L: Array,
    losses_F: Array,
) -> Array:
    """u_L, how far resilience c lets each constraint be missed at rest, in the violations' unit.

    The dual step rests where its signal equals c lambda. Where the signal is the violation itself
    u = c lambda; where it is the violation over the loss allowed, u = c lambda x that loss.

    >>> config = ConstraintConfig(alpha=0.5, resilience=0.1, scale="none", dual_signal="relative")
    >>> constraints = descent_constraints(config, 2, Scales(1.0, 1.0))
    >>> slack(config, constraints, np.array([0.0, 2.0]), np.array([1.0, 0.8, 0.5])).tolist()
    [0.0, 0.08000000000000002]
    """
    relaxed_L = config.resilience * multipliers_L
    if config.dual_signal == "relative":
        relaxed_L = relaxed_L * allowed_losses(constraints, losses_F)
    return relaxed_L


def missing_shares(
    constraints: DescentConstraints, losses_F: Array, slack_L: Array | None = None
) -> Floats:
    """v_L: the share of the demanded reduction that is missing, on the split of ``losses_F``.

    v_1 = (f_1 - s_1) / (alpha f0) and v_l = (f_l - (1 - alpha) f_{l-1}) / (alpha f_{l-1}): 0 met,
    1 no descent at all, above 1 the loss rises. Unrelaxed unless ``slack_L`` (in the violations'
    unit) is given. A layer that follows a loss of exactly 0 has nothing to remove: its share is 0
    when it stays there, else inf.

    >>> config = ConstraintConfig(alpha=0.2, reference_loss=1.0, reference_unit="constant")
    >>> constraints = descent_constraints(config, 3, Scales(1.0, 1.0))
    >>> missing_shares(constraints, np.array([1.0, 1.0, 1.0, 0.8])).round(6).tolist()
    [0.0, 1.0, 0.0]
    """
    losses_F = np.asarray(losses_F, dtype=np.float64)
    gap_L = violations(constraints, losses_F)
    if slack_L is not None:
        gap_L = gap_L - np.asarray(slack_L, dtype=np.float64)
    demanded_L = constraints.alpha * losses_F[:-1]
    demanded_L[0] = constraints.alpha * constraints.reference
    with np.errstate(divide="ignore", invalid="ignore"):
        shares_L = gap_L * constraints.scale_L / demanded_L
    nothing_left = (demanded_L == 0) & (losses_F[1:] == 0)
    return np.where(nothing_left, 0.0, shares_L)


def is_feasible(missing_share_L: Floats, tolerance: float = TOLERANCE) -> bool:
    """Every layer's missing share is at most ``tolerance``; never with NaN or no measurement.

    >>> [is_feasible(np.array(shares)) for shares in ([0.0, 0.09], [0.0, np.nan], [])]
    [True, False, False]
    """
    shares_L = np.asarray(missing_share_L, dtype=np.float64)
    return bool(shares_L.size) and bool((shares_L <= tolerance).all())
