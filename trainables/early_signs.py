"""Early signs of a run that goes wrong, read off its reports: each is a sentence a user can act on.

They warn and never end a run (decision 0013). What to do about each: docs/method.md, The arm that
diverges. A sign has the same words whenever it is seen, so that a record keeps it once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainables.config import ConstraintConfig, RunConfig
from trainables.primal_dual import TOLERANCE, Scales
from trainables.results import Report

SETTLED = 0.25  # share of the steps after which a run is expected to have found its feet
WOUND_UP = 0.8  # of the farthest a multiplier could have come: it only ever rose
UNBOUNDED_WIND_UP = 20.0  # the same where nothing bounds how far it can come
PAID_TO_RISE = 3.0  # an early layer's loss over the input's, while its weight is negative
STALE = 0.9  # a multiplier that keeps this share of itself over a whole report interval
WELL_MET = -0.25  # mean violation below which a multiplier should fall fast


def early_signs(config: RunConfig, scales: Scales, reports: Sequence[Report]) -> list[str]:
    """Warnings that the last of ``reports`` gives rise to; empty when it looks sane."""
    report = reports[-1]
    signs = list(_of_the_output(config, scales, report))
    if config.constraint is not None:
        signs += _wound_up(config, config.constraint, report)
        signs += _paid_to_rise(scales, report)
        if config.constraint.dual_optimizer == "adam":
            signs += _stale(reports)
    return signs


def _of_the_output(config: RunConfig, scales: Scales, report: Report) -> Iterator[str]:
    loss = report.layers["losses"][-1]
    identity = scales.identity_loss / scales.constant_loss
    if loss > 1.0:
        yield (
            "The held-out loss is above the constant prediction's: the output may be blank (dead "
            "ReLU). Lower primal_lr or choose another model.variant."
        )
    elif config.train_gamma > 0 and loss >= identity and report.step >= SETTLED * config.steps:
        yield (
            "The held-out loss is not below the unchanged input's after a quarter of the steps. "
            "Train longer or raise primal_lr."
        )


def _wound_up(config: RunConfig, constraint: ConstraintConfig, report: Report) -> Iterator[str]:
    dual_steps = max(0, report.step - constraint.warmup_steps)
    bound = 1.0 if constraint.dual_optimizer == "adam" else constraint.signal_clip
    farthest = UNBOUNDED_WIND_UP if bound is None else bound * constraint.dual_lr * dual_steps
    shares_L = report.layers["missing_shares"]
    for layer, value in enumerate(report.layers["multipliers"], start=1):
        missed = shares_L[layer - 1] > TOLERANCE and value > 0
        if missed and report.step >= SETTLED * config.steps and value >= WOUND_UP * farthest:
            yield (
                f"The multiplier of layer {layer} only ever rose and its constraint is still "
                "missed (wound up). Ask for less alpha, or train longer."
            )


def _paid_to_rise(scales: Scales, report: Report) -> Iterator[str]:
    losses_F, weights_F = report.layers["losses"], report.layers["weights"]
    much = PAID_TO_RISE * max(losses_F[0], scales.identity_loss / scales.constant_loss)
    for layer in range(1, len(losses_F) - 1):
        if weights_F[layer] < 0 and losses_F[layer] > much:
            yield (
                f"Layer {layer} is paid to raise its loss: its weight is negative and its loss "
                f"above {PAID_TO_RISE:g} times the input's. "
                "Lower dual_lr, or set grad_through_previous to false."
            )


def _stale(reports: Sequence[Report]) -> Iterator[str]:
    if len(reports) < 2:
        return
    before_L, now_L = (r.layers["multipliers"] for r in reports[-2:])
    violations_L = reports[-1].layers["violations"]
    for layer, (before, now) in enumerate(zip(before_L, now_L, strict=True), start=1):
        if 0 < STALE * before < now and violations_L[layer - 1] < WELL_MET:
            yield (
                f"The multiplier of layer {layer} hardly falls though its constraint is well met: "
                "Adam remembers an earlier violation (stale moments). Use dual_optimizer=sgd."
            )
