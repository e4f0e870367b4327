"""Early signs of a run that goes wrong, read off its reports: each is a sentence a user can act on.

Every sign is a warning in the arm's record. Those of a run that cannot come to anything end it as
``stopped``, with the sign as the reason (``reason_to_stop``, decision 0015). What to do about each:
docs/method.md, The arm that diverges. A sign has the same words whenever it is seen, so that a
record keeps it once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainables.config import ConstraintConfig, RunConfig
from trainables.primal_dual import TOLERANCE, Scales
from trainables.results import Report
from trainables.schedule import dual_steps, settled_from

SETTLED = 0.25  # share of the steps after which a run is expected to have found its feet
HALFWAY = 0.5  # share of the steps after which multipliers may end a run
WOUND_UP = 0.8  # of the farthest a multiplier could have come: it only ever rose
UNBOUNDED_WIND_UP = 20.0  # the same where nothing bounds how far it can come
PAID_TO_RISE = 3.0  # an early layer's loss over the input's, while its weight is negative
STALE = 0.9  # a multiplier that keeps this share of itself over a whole report interval
WELL_MET = -0.25  # mean violation below which a multiplier should fall fast
# of layer 0 under bound_zero, whose loss UT and DUST cannot change
INPUT_ADVICE = "Raise reference_loss, bound the first layer (reference=bound_first)"
IMPROVING = 0.95  # what is wrong has fallen below this share of itself since the last report


@dataclass(frozen=True)
class Sign:
    """One thing that goes wrong in one layer, or in the output."""

    text: str  # what is seen and what to do, in words that do not change
    badness: float  # how wrong it is: a run in which this falls is on its way
    ends: bool  # whether a run that keeps it can be ended
    of_constraint: bool  # it is about multipliers, which a feasible run may keep as they are


def early_signs(
    config: RunConfig, scales: Scales, reports: Sequence[Report], *, steps_per_epoch: int
) -> list[str]:
    """Warnings that the last of ``reports`` gives rise to; empty when it looks sane."""
    return [sign.text for sign in _signs(config, scales, reports, steps_per_epoch)]


def reason_to_stop(
    config: RunConfig, scales: Scales, reports: Sequence[Report], *, steps_per_epoch: int
) -> str:
    """Why to end a run after the last of ``reports``, advice included; empty: train on.

    A sign ends a run when two successive reports show it and what is wrong has not become better in
    between, after ``SETTLED`` of the steps and never at the last report. One about a constraint
    needs ``HALFWAY`` of the steps that are left once the whole constraint is in force (warm-up and
    ramp over), and a report that is infeasible: a run that meets its constraints is never ended for
    how its multipliers look.
    """
    if not config.early_stop or len(reports) < 2 or reports[-1].step >= config.steps:
        return ""
    before = {s.text: s for s in _signs(config, scales, reports[:-1], steps_per_epoch)}
    for sign in _signs(config, scales, reports, steps_per_epoch):
        stays = sign.text in before and sign.badness > IMPROVING * before[sign.text].badness
        if sign.ends and stays and _is_late_enough(config, sign, reports[-1]):
            return (
                f"ended at step {reports[-1].step} of {config.steps}: {sign.text} "
                "With early_stop=false such arms train to their end."
            )
    return ""


def _is_late_enough(config: RunConfig, sign: Sign, report: Report) -> bool:
    if not sign.of_constraint:
        averaged = 1.0 / (1.0 - config.weight_ema)  # steps that the evaluated weights look back
        return report.step >= SETTLED * config.steps + averaged - 1.0
    assert config.constraint is not None
    in_force = settled_from(config.constraint)
    is_infeasible = max(report.layers["missing_shares"]) > TOLERANCE
    return is_infeasible and report.step >= in_force + HALFWAY * (config.steps - in_force)


def _signs(
    config: RunConfig, scales: Scales, reports: Sequence[Report], steps_per_epoch: int
) -> list[Sign]:
    report = reports[-1]
    signs = list(_of_the_output(config, scales, report))
    if config.constraint is not None:
        taken = dual_steps(config.constraint, steps_per_epoch, report.step)
        signs += _wound_up(config, config.constraint, report, taken)
        signs += _paid_to_rise(scales, report)
        if config.constraint.dual_optimizer == "adam":
            signs += _stale(reports)
    return signs


def _of_the_output(config: RunConfig, scales: Scales, report: Report) -> Iterator[Sign]:
    loss = report.layers["losses"][-1]
    if not config.facts.has_identity:
        yield from _of_classifier(config, loss, report.step)
        return
    identity = scales.identity_loss / scales.constant_loss
    if loss > 1.0:
        found = "the output shows less than a grey image. Lower primal_lr, or train longer."
        if config.model.name == "ut":  # the only one with a ReLU that can die
            found = "the output may be blank (dead ReLU). Lower primal_lr or choose another "
            found += "model.variant."
        yield Sign(
            f"The held-out loss is above the constant prediction's: {found}",
            badness=loss,
            ends=True,
            of_constraint=False,
        )
    elif config.train_gamma > 0 and loss >= identity and report.step >= SETTLED * config.steps:
        yield Sign(
            "The held-out loss is not below the unchanged input's after a quarter of the steps. "
            "Train longer or raise primal_lr.",
            badness=loss,
            ends=False,
            of_constraint=False,
        )


def _of_classifier(config: RunConfig, loss: float, step: int) -> Iterator[Sign]:
    """A cross entropy above that of the label frequencies; it may yet be right in most answers."""
    if loss >= 1.0 and step >= SETTLED * config.steps:
        yield Sign(
            "The held-out loss is not below the constant prediction's after a quarter of the "
            "steps: nothing is learnt yet, or wrong answers are given with certainty. Lower "
            "primal_lr, or train longer.",
            badness=loss,
            ends=False,
            of_constraint=False,
        )


def _wound_up(
    config: RunConfig, constraint: ConstraintConfig, report: Report, taken: int
) -> Iterator[Sign]:
    bound = 1.0 if constraint.dual_optimizer == "adam" else constraint.signal_clip
    farthest = UNBOUNDED_WIND_UP if bound is None else bound * constraint.dual_lr * taken
    shares_L = report.layers["missing_shares"]
    for index, value in enumerate(report.layers["multipliers"]):
        layer = _layer(report, index)
        missed = shares_L[index] > TOLERANCE and value > 0
        if missed and report.step >= SETTLED * config.steps and value >= WOUND_UP * farthest:
            yield Sign(
                f"The multiplier of layer {layer} only ever rose and its constraint is still "
                f"missed (wound up). {'Ask for less alpha' if layer else INPUT_ADVICE}, or train "
                "longer.",
                badness=shares_L[index],
                ends=True,
                of_constraint=True,
            )


def _paid_to_rise(scales: Scales, report: Report) -> Iterator[Sign]:
    losses_F, weights_F = report.layers["losses"], report.layers["weights"]
    much = PAID_TO_RISE * max(losses_F[0], scales.identity_loss / scales.constant_loss)
    for layer in range(1, len(losses_F) - 1):
        if weights_F[layer] < 0 and losses_F[layer] > much:
            yield Sign(
                f"Layer {layer} is paid to raise its loss: its weight is negative and its loss "
                f"above {PAID_TO_RISE:g} times the input's. "
                "Lower dual_lr, or set grad_through_previous to false.",
                badness=losses_F[layer],
                ends=True,
                of_constraint=True,
            )


def _stale(reports: Sequence[Report]) -> Iterator[Sign]:
    if len(reports) < 2:
        return
    report = reports[-1]
    before_L, now_L = (r.layers["multipliers"] for r in reports[-2:])
    violations_L = report.layers["violations"]
    for index, (before, now) in enumerate(zip(before_L, now_L, strict=True)):
        if 0 < STALE * before < now and violations_L[index] < WELL_MET:
            yield Sign(
                f"The multiplier of layer {_layer(report, index)} hardly falls though its "
                "constraint is well met: Adam remembers an earlier violation (stale moments). "
                "Use dual_optimizer=sgd.",
                badness=max(report.layers["missing_shares"], default=math.nan),
                ends=True,
                of_constraint=True,
            )


def _layer(report: Report, index: int) -> int:
    """The layer that constraint ``index`` of a report is of: the last one is of layer L."""
    return index + len(report.layers["losses"]) - len(report.layers["multipliers"])
