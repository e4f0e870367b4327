"""Layerwise descent constraints as pure functions of the losses per layer.

Constraints are affine in the losses f = (f_0, ..., f_L), A f <= b, and judged so in every form. In
the difference form the violations are g = A f - b, and the Lagrangian f_L + sum_l lambda_l g_l has
the gradient of sum_l w_l f_l with w = e_L + lambda A; in the ratio form g = (A f - b) / f_{l-1},
whose Jacobian at f takes the place of A. ``descent_constraints`` builds A and b once; the rest is
algebra on NumPy arrays and torch tensors alike. No model, batch or file is known.

Losses are in units of the constant predictor's loss f_c (docs/decisions/0010). Sign: a violation
> 0 is violated. Shape suffixes: F one per prediction 0..L; L one per constraint, which is one per
layer 1..L, and per layer 0..L with ``reference="bound_zero"`` (``DescentConstraints.first_layer``).

Source: arXiv 2601.17257, eqs. (3)-(6), (37)-(38); resilience: Hounie et al. 2023, arXiv 2306.02426.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from trainables.config.arm import ConstraintConfig
from trainables.config.constraint import TOLERANCE
from trainables.plain import StoredPlain

Array = Any  # a NumPy array or a torch tensor, of one arm or [K, ...] of K: what both have is used
Floats = NDArray[np.float64]

# Ratios are taken over at least this fraction of f_c: the square still fits float32, 0 / 0 is met.
SMALLEST_LOSS = 1e-12


@dataclass(frozen=True)
class Scales(StoredPlain):
    """Two losses of the train split that need no training, in the task's own unit."""

    constant_loss: float  # f_c: the best constant prediction
    identity_loss: float  # the unchanged input at train_gamma
    # ^ at train_gamma 0: at IDENTITY_GAMMA (config/mended.py)


@dataclass(frozen=True)
class DescentConstraints:
    """A f <= b and what its multipliers need, for one arm; see ``descent_constraints``."""

    form: Literal["difference", "ratio"]
    first_layer: int  # of the first constraint: 1, or 0 with bound_zero
    alpha: float
    reference: float  # f0 over f_c
    matrix_LF: Array  # A: f_l less what layer l may keep of f_{l-1}, over s_l
    bounds_L: Array  # b
    allowed_LF: Array  # the part of -A at layer l - 1: what each layer may keep of that loss
    gradient_LF: Array  # A where the Lagrangian's gradient flows: without f_{l-1} when detached
    scale_L: Array  # s_l, or ones: f_l - (1 - alpha) f_{l-1} = scale x (what A f - b gives)
    previous_LF: Array  # picks f_{l-1}; the first constraint has none
    start_L: Array  # f0 in the place of the f_{l-1} that the first constraint has not
    is_detached: bool  # no gradient through f_{l-1}


def descent_constraints(
    config: ConstraintConfig, layers: int, scales: Scales
) -> DescentConstraints:
    """The constraints of a run with ``layers`` layers.

    f_l <= (1 - alpha) f_{l-1} for every layer after the first that is constrained, and for that one
    f_1 <= f0 (``bound_first``), f_1 <= (1 - alpha) f0 (``virtual_layer0``) or f_0 <= f0
    (``bound_zero``: L + 1 constraints). In the difference form with ``scale="schedule"`` each is
    divided by its target s_l = (1 - alpha) s_{l-1}, a positive constant: the same feasible set,
    better conditioned multipliers (docs/method.md, The constraint). A ratio has no scale.

    >>> config = ConstraintConfig(
    ...     alpha=0.5, reference_loss=1.0, reference_unit="constant", scale="none"
    ... )
    >>> constraints = descent_constraints(config, 2, Scales(constant_loss=1.0, identity_loss=1.0))
    >>> violations(constraints, np.array([1.0, 0.9, 0.6])).round(2).tolist()
    [-0.1, 0.15]
    """
    keep = 1.0 - config.alpha
    reference = reference_fraction(config, scales)
    first_layer = 0 if config.reference == "bound_zero" else 1
    count = layers + 1 - first_layer
    is_virtual = config.reference == "virtual_layer0"
    first_bound = keep * reference if is_virtual else reference
    schedule_L = first_bound * keep ** np.arange(count)
    is_scaled = config.scale == "schedule" and config.form == "difference"
    scale_L = schedule_L if is_scaled else np.ones(count)
    current_LF = np.eye(count, layers + 1, k=first_layer)
    picks_LF = np.eye(count, layers + 1, k=first_layer - 1)
    picks_LF[0] = 0.0  # the first answers to the reference
    start_L, bounds_L = np.zeros(count), np.zeros(count)
    start_L[0] = reference
    bounds_L[0] = first_bound
    matrix_LF = (current_LF - keep * picks_LF) / scale_L[:, None]
    return DescentConstraints(
        form=config.form,
        first_layer=first_layer,
        alpha=config.alpha,
        reference=reference,
        matrix_LF=matrix_LF,
        bounds_L=bounds_L / scale_L,
        allowed_LF=keep * picks_LF / scale_L[:, None],
        gradient_LF=matrix_LF if config.grad_through_previous else current_LF / scale_L[:, None],
        scale_L=scale_L,
        previous_LF=picks_LF,
        start_L=start_L,
        is_detached=not config.grad_through_previous,
    )


def demanded_descent(config: ConstraintConfig, layers: int) -> float:
    """The fraction of the reference f0 that all layers together are asked to remove: 1 - s_L / f0.

    1 - (1 - alpha)^n, where n is how many factors of 1 - alpha lead from f0 to the last layer's
    target: L - 1 with ``bound_first``, whose first layer is bounded by f0 itself, else L. The same
    in every form; 0 asks for nothing, and so do controls, which the constraint only judges.

    >>> [
    ...     demanded_descent(ConstraintConfig(alpha=0.5, reference=reference), 3)
    ...     for reference in ("bound_first", "virtual_layer0", "bound_zero")
    ... ]
    [0.75, 0.875, 0.875]
    """
    if config.is_control:
        return 0.0
    factors = layers - 1 if config.reference == "bound_first" else layers
    return 1.0 - (1.0 - config.alpha) ** factors


def reference_fraction(config: ConstraintConfig, scales: Scales) -> float:
    """f0 over f_c, from whichever unit the config states it in."""
    unit = {"constant": scales.constant_loss, "identity": scales.identity_loss, "absolute": 1.0}
    return config.reference_loss * unit[config.reference_unit] / scales.constant_loss


def gaps(constraints: DescentConstraints, losses_F: Array) -> Array:
    """A f - b: the violations of the difference form, and what every form is judged by."""
    return _times(constraints.matrix_LF, losses_F) - constraints.bounds_L


def _times(matrix_LF: Array, values_F: Array) -> Array:
    """``matrix_LF @ values_F``, rounded alike in a stack of K arms and in one arm alone.

    As ``@`` it is not: BLAS chooses its kernel by the size of a stack, and from 5 layers on every
    stack of 2 to 64 matrices tried had other bits than its rows alone (torch 2.13, CPU). Fused arms
    keep the bits of arms alone, so both are sums of a few numbers in a fixed order.
    """
    return (matrix_LF * values_F[..., None, :]).sum(-1)


def _mixed(values_L: Array, matrix_LF: Array) -> Array:
    """``values_L @ matrix_LF``, rounded alike in a stack and alone, as in ``_times``."""
    return (values_L[..., :, None] * matrix_LF).sum(-2)


def previous_losses(constraints: DescentConstraints, losses_F: Array) -> Array:
    """f_{l-1} of every constraint, f0 for the first: what the ratio form divides by; above 0."""
    losses_L = _times(constraints.previous_LF, losses_F) + constraints.start_L
    return losses_L.clip(min=SMALLEST_LOSS)


def violations(constraints: DescentConstraints, losses_F: Array) -> Array:
    """g_L, signed: > 0 violated, <= 0 satisfied. Scaled where the constraints are.

    In the ratio form g_l = f_l / f_{l-1} - (1 - alpha), with f0 before the first layer: alpha times
    the missing share.

    >>> config = ConstraintConfig(alpha=0.5, reference_unit="constant", form="ratio")
    >>> constraints = descent_constraints(config, 2, Scales(1.0, 1.0))
    >>> violations(constraints, np.array([1.0, 0.9, 0.6])).round(3).tolist()
    [-0.1, 0.167]
    """
    gaps_L = gaps(constraints, losses_F)
    if constraints.form == "difference":
        return gaps_L
    return gaps_L / previous_losses(constraints, losses_F)


def allowed_losses(constraints: DescentConstraints, losses_F: Array) -> Array:
    """The loss that each layer's constraint allows right now: s_1, then (1 - alpha) f_{l-1}.

    In the violations' unit. The violation over this is the *relative* signal that a dual step may
    follow (docs/method.md, Training): the same in both forms.
    """
    allowed_L = constraints.bounds_L + _times(constraints.allowed_LF, losses_F)
    if constraints.form == "difference":
        return allowed_L
    return allowed_L / previous_losses(constraints, losses_F)


def layer_weights(constraints: DescentConstraints, multipliers_L: Array, losses_F: Array) -> Array:
    """w_F, layers 0..L: the Lagrangian's gradient is that of sum_l w_l f_l.

    Unscaled: w_0 = 0, w_l = lambda_l - (1 - alpha) lambda_{l+1} and w_L = 1 + lambda_L
    (docs/method.md, Training). A negative weight pays the optimiser to raise that layer's loss.
    Detached: w_l = lambda_l, never negative. In the ratio form the weights depend on the losses,
    w_l = lambda_l / f_{l-1} - lambda_{l+1} f_{l+1} / f_l^2: ``losses_F`` are those of the step that
    the weights are for, detached. The difference form does not look at them.

    >>> config = ConstraintConfig(alpha=0.5, scale="none")
    >>> constraints = descent_constraints(config, 2, Scales(1.0, 1.0))
    >>> layer_weights(constraints, np.array([0.2, 1.0]), np.ones(3)).round(2).tolist()
    [0.0, -0.3, 2.0]
    """
    if constraints.form == "difference":
        weights_F = _mixed(multipliers_L, constraints.gradient_LF)
    else:  # d/df of (A f - b) / p is A / p - g P / p, where P picks p = f_{l-1}
        shares_L = multipliers_L / previous_losses(constraints, losses_F)
        weights_F = _mixed(shares_L, constraints.gradient_LF)
        if not constraints.is_detached:
            shares_L = shares_L * violations(constraints, losses_F)
            weights_F = weights_F - _mixed(shares_L, constraints.previous_LF)
    weights_F[..., -1] += 1.0  # in place on a fresh product: no array of a caller changes
    return weights_F


def missing_shares(
    constraints: DescentConstraints, losses_F: Array, slack_L: Array | None = None
) -> Floats:
    """v_L: the fraction of the demanded reduction that is missing, on the split of ``losses_F``.

    v_l = (f_l - (1 - alpha) f_{l-1}) / (alpha f_{l-1}), and for the first constraint
    v_1 = (f_1 - s_1) / (alpha f0), or v_0 = (f_0 - f0) / (alpha f0) with ``bound_zero``: 0 met,
    1 no descent at all, above 1 the loss rises. The same in every form. Unrelaxed unless
    ``slack_L`` (in the violations' unit) is given. A layer that follows a loss of exactly 0 has
    nothing to remove: its share is 0 when it stays there, else inf.

    >>> config = ConstraintConfig(alpha=0.2, reference_loss=1.0, reference_unit="constant")
    >>> constraints = descent_constraints(config, 3, Scales(1.0, 1.0))
    >>> missing_shares(constraints, np.array([1.0, 1.0, 1.0, 0.8])).round(6).tolist()
    [0.0, 1.0, 0.0]
    """
    losses_F = np.asarray(losses_F, dtype=np.float64)
    gap_L = gaps(constraints, losses_F)
    if slack_L is not None:
        slack_L = np.asarray(slack_L, dtype=np.float64)
        if constraints.form == "ratio":
            slack_L = slack_L * previous_losses(constraints, losses_F)
        gap_L = gap_L - slack_L
    first = constraints.first_layer
    demanded_L = constraints.alpha * np.append(constraints.reference, losses_F[first:-1])
    with np.errstate(divide="ignore", invalid="ignore"):  # after a loss of 0: settled below
        shares_L = gap_L * constraints.scale_L / demanded_L
    nothing_left = (demanded_L == 0) & (losses_F[first:] == 0)
    return np.where(nothing_left, 0.0, shares_L)


def binding_alpha(
    config: ConstraintConfig, losses_F: Floats, reference: float, tolerance: float = TOLERANCE
) -> float:
    """The alpha up to which these losses meet the constraints, and above which they do not.

    0 where not every alpha below one is met: a layer adds to its loss, a loss is no number, or f0
    itself is exceeded (then some larger alpha may forgive it, within the tolerance). A layer that
    keeps the fraction k of the loss before it has the missing share 1 - (1 - k) / alpha, which
    reaches ``tolerance`` at (1 - k) / (1 - tolerance).

    Args:
        config: the constraint; its alpha is not read.
        losses_F: of layers 0..L, in units of f_c.
        reference: f0, likewise.
        tolerance: the missing share that is still feasible, in [0, 1).

    >>> round(binding_alpha(ConstraintConfig(), np.array([1.0, 0.9, 0.45]), 1.0, 0.1), 3)
    0.556
    """
    first = config.first_layer
    before_L = np.append(reference, losses_F[first:-1])
    with np.errstate(divide="ignore", invalid="ignore"):
        kept_L = np.where(before_L > 0, losses_F[first:] / before_L, np.inf)
    kept_L = np.where((before_L == 0) & (losses_F[first:] == 0), 0.0, kept_L)  # nothing to remove
    is_asked_L = np.arange(len(kept_L)) >= (config.reference != "virtual_layer0")
    limit_L = np.where(is_asked_L, (1.0 - kept_L) / (1.0 - tolerance), 1.0)
    exceeds_f0 = not is_asked_L[0] and kept_L[0] > 1.0
    if exceeds_f0 or not np.isfinite(losses_F[first:]).all():
        return 0.0
    return max(0.0, float(limit_L.min(initial=1.0)))


def is_feasible(missing_share_L: Floats, tolerance: float = TOLERANCE) -> bool:
    """Every layer's missing share is at most ``tolerance``; never with NaN or no measurement.

    >>> [is_feasible(np.array(shares)) for shares in ([0.0, 0.09], [0.0, np.nan], [])]
    [True, False, False]
    """
    shares_L = np.asarray(missing_share_L, dtype=np.float64)
    return bool(shares_L.size) and bool((shares_L <= tolerance).all())
