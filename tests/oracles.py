"""Independent re-implementations to test against: slow, obvious, from the formulas alone."""

from __future__ import annotations

from trainables.config import ConstraintConfig, DataConfig, ModelConfig, RunConfig

# The smallest run that is a real one: real photographs, 4 x 4 patches, three frames.
TINY = RunConfig(
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


def naive_violations(
    losses: list[float], *, alpha: float, f0: float, reference: str, scale: str
) -> list[float]:
    """g_l layer by layer, as docs/method.md writes it (The constraint); losses of layers 0..L."""
    first = f0 if reference == "bound_first" else (1 - alpha) * f0
    gaps, schedule = [], []
    for layer in range(1, len(losses)):
        if layer == 1:
            gaps.append(losses[1] - first)
            schedule.append(first)
        else:
            gaps.append(losses[layer] - (1 - alpha) * losses[layer - 1])
            schedule.append((1 - alpha) * schedule[-1])
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
    """v_l layer by layer, as docs/method.md writes it (Feasible, useful, winner)."""
    first = f0 if reference == "bound_first" else (1 - alpha) * f0
    shares = [(losses[1] - first) / (alpha * f0)]
    for layer in range(2, len(losses)):
        previous = losses[layer - 1]
        shares.append((losses[layer] - (1 - alpha) * previous) / (alpha * previous))
    return shares
