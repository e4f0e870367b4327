"""Schedules as functions of the step: learning rates and dual steps.

A step counts from 0; an epoch is ``steps_per_epoch`` steps of the task, from step 0 on. The warm-up
has no dual step and no multipliers; violations are measured in it all the same.
"""

from __future__ import annotations

import functools
import math
from dataclasses import replace

from trainables.config.arm import ArmConfig, ConstraintConfig
from trainables.errors import InvalidValue


def lr_factor(step: int, steps: int, decay_fraction: float, warmup_fraction: float = 0.0) -> float:
    """The factor of both learning rates at ``step``: up to 1, 1, then linearly towards 0.

    Primal-dual last iterates oscillate at a constant rate; the decay lets them settle. A warm-up is
    what pretrained weights need while Adam's second moments are those of a few batches.

    >>> [round(lr_factor(s, 10, 0.4), 2) for s in (0, 6, 7, 9)]
    [1.0, 1.0, 0.75, 0.25]
    >>> [round(lr_factor(s, 10, 0.4, 0.2), 2) for s in (0, 1, 2, 9)]
    [0.5, 1.0, 1.0, 0.25]
    """
    rising, decaying = warmup_fraction * steps, decay_fraction * steps
    factor = 1.0 if decaying == 0 else min(1.0, (steps - step) / decaying)
    return factor if rising == 0 else min(factor, (step + 1) / rising)


def in_steps(config: ArmConfig, steps_per_epoch: int) -> ArmConfig:
    """A run with its whole warm-up in steps, once the data say how long an epoch is.

    Raises InvalidValue where the warm-up leaves no step for the constraints.
    """
    constraint = config.constraint
    if constraint is None or constraint.warmup_epochs == 0:
        return config
    warmup = constraint.warmup_steps + constraint.warmup_epochs * steps_per_epoch
    if warmup >= config.steps:
        most = (config.steps - constraint.warmup_steps - 1) // steps_per_epoch
        raise InvalidValue(
            f"warmup_epochs must be at most {max(most, 0)} in a run of {config.steps} steps, "
            f"{steps_per_epoch} an epoch, got {constraint.warmup_epochs}: the constraints act "
            "after it. Train longer."
        )
    return replace(config, constraint=replace(constraint, warmup_steps=warmup, warmup_epochs=0))


def is_dual_step(config: ConstraintConfig, steps_per_epoch: int, step: int) -> bool:
    """True when a dual step follows primal step ``step``.

    With ``dual_every_unit="step"`` every ``dual_every`` steps from the warm-up's end on; with
    ``"epoch"`` at the end of every ``dual_every`` epochs of the data.

    >>> every_third = ConstraintConfig(dual_every=3, warmup_steps=1)
    >>> [is_dual_step(every_third, 5, step) for step in range(7)]
    [False, False, False, True, False, False, True]
    """
    return dual_steps(config, steps_per_epoch, step + 1) > dual_steps(config, steps_per_epoch, step)


def dual_steps(config: ConstraintConfig, steps_per_epoch: int, steps: int) -> int:
    """The number of dual steps within the first ``steps`` primal steps.

    >>> every_epoch = ConstraintConfig(dual_every_unit="epoch", warmup_steps=7)
    >>> [dual_steps(every_epoch, 5, steps) for steps in (7, 9, 10, 15)]
    [0, 0, 1, 2]
    """
    warmup = config.warmup_steps
    if steps <= warmup:
        return 0
    if config.dual_every_unit == "step":
        return (steps - warmup) // config.dual_every
    period = config.dual_every * steps_per_epoch
    return steps // period - warmup // period


def effective_dual_steps(config: ArmConfig, *, steps_per_epoch: int, until: int) -> float:
    """The dual steps within the first ``until`` primal steps, each scaled as its learning rate is.

    dual_lr times this is the farthest that a multiplier comes by a dual signal of 1 (SGD), or by
    any signal (Adam). 0 without constraints.

    >>> run = ArmConfig(steps=10, decay_fraction=0.4, constraint=ConstraintConfig(warmup_steps=2))
    >>> [effective_dual_steps(run, steps_per_epoch=5, until=step) for step in (2, 6, 10)]
    [0.0, 4.0, 6.5]
    """
    constraint = config.constraint
    if constraint is None:
        return 0.0
    timing = ConstraintConfig(
        dual_every=constraint.dual_every,
        dual_every_unit=constraint.dual_every_unit,
        warmup_steps=constraint.warmup_steps,
    )
    shape = (config.steps, config.decay_fraction, config.warmup_fraction)
    return _effective_dual_steps(timing, shape, steps_per_epoch, until)


@functools.lru_cache(maxsize=256)  # a search asks for the same few again and again
def _effective_dual_steps(
    timing: ConstraintConfig, shape: tuple[int, float, float], steps_per_epoch: int, until: int
) -> float:
    return math.fsum(
        lr_factor(step, *shape)
        for step in range(until)
        if is_dual_step(timing, steps_per_epoch, step)
    )
