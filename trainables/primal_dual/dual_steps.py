"""Dual steps as pure functions: how multipliers and slacks follow their signal.

On NumPy arrays and torch tensors alike, of one arm or of several at once. Shape suffix: L one per
constraint. Sign: a signal > 0 is a violation.

Source: arXiv 2601.17257, eqs. (34)-(38); resilience: Hounie et al. 2023, arXiv 2306.02426.
"""

from __future__ import annotations

from typing import Any

from trainables.primal_dual.constraints import Array

Rate = Any  # a number, or a tensor of one for each of K arms, [K, 1] in float64


def _like(rate: Rate, values_L: Array) -> Array:
    """A rate as a factor of values, rounded to their type once it is computed."""
    return rate.to(values_L.dtype) if hasattr(rate, "to") else rate


def dual_step(
    multipliers_L: Array, signal_L: Array, *, dual_lr: Rate, resilience: Rate = 0.0
) -> Array:
    """Projected dual ascent: lambda <- [(1 - eta c) lambda + eta g]_+, eq. (38).

    Layers whose loss failed to drop by the fraction alpha (g > 0) gain weight in the Lagrangian;
    satisfied layers lose it, down to zero. ``resilience`` c = 1/rho relaxes each constraint by the
    slack c lambda; with c = 0 the constraints are hard.

    >>> import numpy as np
    >>> dual_step(np.array([0.0, 1.0]), np.array([0.5, -0.2]), dual_lr=1.0).tolist()
    [0.5, 0.8]
    """
    kept = _like(1.0 - dual_lr * resilience, multipliers_L)
    return (kept * multipliers_L + _like(dual_lr, signal_L) * signal_L).clip(min=0)


def bare_decay_step(
    multipliers_L: Array, signal_L: Array, *, dual_lr: Rate, resilience: Rate = 0.0
) -> Array:
    """Projected ascent with a decay that no rate scales: lambda <- [(1 - c) lambda + eta s]_+.

    It rests at s = (c / eta) lambda, as ``dual_step`` does with c / eta in the place of c: a rate
    that falls to 0 takes the multipliers along.

    >>> import numpy as np
    >>> bare_decay_step(np.array([1.0]), np.array([0.5]), dual_lr=0.1, resilience=0.25).tolist()
    [0.8]
    """
    kept = _like(1.0 - resilience, multipliers_L)
    return (kept * multipliers_L + _like(dual_lr, signal_L) * signal_L).clip(min=0)


def nupi_step(
    multipliers_L: Array,
    signal_L: Array,
    previous_L: Array,
    *,
    dual_lr: Rate,
    kp: float,
    resilience: Rate = 0.0,
) -> Array:
    """nuPI (nu = 0): lambda <- [(1 - eta c) lambda + eta s + kappa_p (s - s_previous)]_+.

    The proportional part acts against oscillation: it pushes with the change of the signal, before
    the sum of signals follows. ``previous_L`` is 0 before the first step, so that the parts add up
    to mu + kappa_p s with mu = eta sum s wherever nothing is projected: the multiplier of the
    augmented Lagrangian after its dual step, with p = kappa_p. It rests at s = c lambda.

    The *sum* is projected, so what a projection cuts off the proportional part is lost to later
    steps: under a noisy signal a satisfied layer keeps a multiplier of kappa_p times what the
    signal stands above its lowest lately. ``augmented_multipliers`` does not.

    >>> import numpy as np
    >>> nupi_step(
    ...     np.array([1.0, 0.1]), np.array([0.5, -0.5]), np.array([0.3, 0.0]), dual_lr=0.1, kp=2.0
    ... ).round(6).tolist()
    [1.45, 0.0]

    Source: Sohrabi et al. 2024, arXiv 2406.04558; Ramirez and Lacoste-Julien, arXiv 2509.22500.
    """
    proportional_L = kp * (signal_L - previous_L)
    decayed_L = _like(1.0 - dual_lr * resilience, multipliers_L) * multipliers_L
    return (decayed_L + _like(dual_lr, signal_L) * signal_L + proportional_L).clip(min=0)


def augmented_multipliers(multipliers_L: Array, signal_L: Array, *, penalty: Rate) -> Array:
    """[mu + p s]_+, at which an augmented Lagrangian weighs the losses that gave the signal s.

    mu moves by ``dual_step``. With resilience c it rests at s = c mu, so that the effective
    multiplier lambda rests at s = lambda / (1 / c + p).

    >>> import numpy as np
    >>> mu_L, s_L = np.array([1.0, 1.0]), np.array([0.5, -2.0])
    >>> augmented_multipliers(mu_L, s_L, penalty=2.0).tolist()
    [2.0, 0.0]

    Source: Nocedal and Wright 2006, eqs. (17.64)-(17.65).
    """
    return (multipliers_L + penalty * signal_L).clip(min=0)


def slack_step(
    slacks_L: Array, multipliers_L: Array, *, dual_lr: float, resilience: float
) -> Array:
    """Projected descent of the slacks: u <- [u - eta (u / c - lambda)]_+, eqs. (34)-(36).

    The cost u^2 / (2 c) pulls u to 0, the multiplier pushes it up; it rests at u = c lambda.
    ``multipliers_L`` are those after the dual step, which saw its signal less u.

    >>> import numpy as np
    >>> slack_step(np.array([0.0, 1.0]), np.array([1.0, 0.0]), dual_lr=0.1, resilience=0.5).tolist()
    [0.1, 0.8]
    """
    return (slacks_L - dual_lr * (slacks_L / resilience - multipliers_L)).clip(min=0)
