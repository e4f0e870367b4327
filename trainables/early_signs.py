"""Early signs of a run that goes wrong, read off a report: each is a sentence a user can act on.

They warn and never end a run. What to do about each: docs/method.md, The arm that diverges.
"""

from __future__ import annotations

from trainables.config import RunConfig
from trainables.primal_dual import Scales
from trainables.results import Report

WIND_UP = 20.0  # a multiplier beyond this no longer follows its constraint
PAID_TO_RISE = 3.0  # an early layer's loss over the reference, while its weight is negative


def early_signs(config: RunConfig, scales: Scales, report: Report) -> list[str]:
    """Warnings that this report gives rise to; empty when it looks sane."""
    signs: list[str] = []
    losses_F = report.layers["losses"]
    identity = scales.identity_loss / scales.constant_loss
    if losses_F[-1] > 1.0:
        signs.append(
            f"held-out loss is {losses_F[-1]:.2g} times the constant prediction's: the output may "
            "be blank (dead ReLU). Lower primal_lr or choose another model.variant."
        )
    elif config.train_gamma > 0 and report.step >= config.steps / 4 and losses_F[-1] >= identity:
        signs.append(
            "held-out loss is not below the unchanged input's after a quarter of the steps. "
            "Train longer or raise primal_lr."
        )
    multipliers_L = report.layers.get("multipliers", [])
    for layer, value in enumerate(multipliers_L, start=1):
        if value > WIND_UP:
            signs.append(
                f"the multiplier of layer {layer} wound up to {value:.3g}. "
                "Lower dual_lr, clip the dual signal, or ask for less alpha."
            )
    weights_F = report.layers.get("weights", [])
    for layer in range(1, len(losses_F) - 1):
        if (
            weights_F
            and weights_F[layer] < 0
            and losses_F[layer] > PAID_TO_RISE * max(losses_F[0], identity)
        ):
            signs.append(
                f"layer {layer} is paid to raise its loss (weight {weights_F[layer]:.3g}, "
                f"loss {losses_F[layer]:.3g} over f_c). "
                "Lower dual_lr, or set grad_through_previous to false."
            )
    return signs
