"""Independent re-implementations to test against: slow, obvious, from the formulas alone."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from trainables.config.arm import ArmConfig, ConstraintConfig, DataConfig, ModelConfig

if TYPE_CHECKING:
    from trainables.tasks.linear_references import WienerFilter

# The smallest run that is a real one: real photographs, 4 x 4 patches, three frames.
TINY = ArmConfig(
    data=DataConfig(name="photographs", frame_size=32, patch_size=4, frames=3, stride=7),
    model=ModelConfig(name="ut", layers=3),
    train_gamma=0.15,
    test_gammas=(0.0, 0.15, 0.2, 0.25, 0.5),
    steps=40,
    report_every=10,
    batch_size=8,
    eval_windows=4,
    eval_draws=2,
    constraint=ConstraintConfig(alpha=0.2, dual_lr=0.05),
)


def denoise(fit: WienerFilter, noisy: np.ndarray, sigma: float) -> np.ndarray:
    """A linear filter's estimate of the clean vectors; same shape."""
    kept = fit.coefficients(noisy) * fit.shrinkage(sigma).astype(np.float32)
    estimate = kept @ fit.basis_KK.T + fit.mean_K
    return np.asarray(estimate, np.float32).reshape(noisy.shape)


def naive_violations(
    losses: list[float],
    *,
    alpha: float,
    f0: float,
    reference: str,
    scale: str,
    form: str = "difference",
) -> list[float]:
    """g_l layer by layer, as docs/method.md writes it (The constraint); losses of layers 0..L."""
    bound = (1 - alpha) * f0 if reference == "virtual_layer0" else f0
    first = 0 if reference == "bound_zero" else 1
    gaps, ratios, schedule = [], [], []
    for layer in range(first, len(losses)):
        if layer == first:
            gaps.append(losses[layer] - bound)
            ratios.append(losses[layer] / f0 - bound / f0)
            schedule.append(bound)
        else:
            gaps.append(losses[layer] - (1 - alpha) * losses[layer - 1])
            ratios.append(losses[layer] / losses[layer - 1] - (1 - alpha))
            schedule.append((1 - alpha) * schedule[-1])
    if form == "ratio":
        return ratios
    return [g / s if scale == "schedule" else g for g, s in zip(gaps, schedule, strict=True)]


def naive_weights(multipliers: list[float], *, alpha: float, detached: bool) -> list[float]:
    """w_l of layers 0..L, unscaled: lambda_l - (1 - alpha) lambda_{l+1}, and 1 + lambda_L."""
    weights = [0.0]
    for layer, value in enumerate(multipliers, start=1):
        following = 0.0 if layer == len(multipliers) else multipliers[layer]
        weights.append(value - (0.0 if detached else (1 - alpha) * following))
    weights[-1] += 1.0
    return weights


def naive_missing_shares(
    losses: list[float], *, alpha: float, f0: float, reference: str
) -> list[float]:
    """v_l layer by layer, as docs/method.md writes it (Feasible, better than trivial, winner)."""
    bound = (1 - alpha) * f0 if reference == "virtual_layer0" else f0
    first = 0 if reference == "bound_zero" else 1
    shares = [(losses[first] - bound) / (alpha * f0)]
    for layer in range(first + 1, len(losses)):
        previous = losses[layer - 1]
        shares.append((losses[layer] - (1 - alpha) * previous) / (alpha * previous))
    return shares


class NaiveAdam:
    """Adam on one plain number: ``step`` is what to add (ascent) or to take off (descent)."""

    def __init__(self, lr: float) -> None:
        self.lr, self.mean, self.square, self.steps = lr, 0.0, 0.0, 0

    def step(self, gradient: float, factor: float = 1.0) -> float:
        self.steps += 1
        self.mean = 0.9 * self.mean + 0.1 * gradient
        self.square = 0.999 * self.square + 0.001 * gradient**2
        mean = self.mean / (1 - 0.9**self.steps)
        return self.lr * factor * mean / (math.sqrt(self.square / (1 - 0.999**self.steps)) + 1e-8)
