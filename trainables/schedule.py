"""What a constrained run does when, as functions of the step alone: dual steps, and alpha's ramp.

A step counts from 0; an epoch is ``steps_per_epoch`` steps of the task, from step 0 on. The warm-up
has no dual step and no multipliers; violations are measured in it all the same, at the whole alpha,
or at none of it where a ramp follows.
"""

from __future__ import annotations

from trainables.config import ConstraintConfig


def is_dual_step(config: ConstraintConfig, steps_per_epoch: int, step: int) -> bool:
    """Whether a dual step follows primal step ``step``.

    With ``dual_every_unit="step"`` every ``dual_every`` steps from the warm-up's end on; with
    ``"epoch"`` at the end of every ``dual_every`` epochs of the data.

    >>> every_third = ConstraintConfig(dual_every=3, warmup_steps=1)
    >>> [is_dual_step(every_third, 5, step) for step in range(7)]
    [False, False, False, True, False, False, True]
    """
    return dual_steps(config, steps_per_epoch, step + 1) > dual_steps(config, steps_per_epoch, step)


def dual_steps(config: ConstraintConfig, steps_per_epoch: int, steps: int) -> int:
    """How many dual steps the first ``steps`` primal steps bring.

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


def alpha_share(config: ConstraintConfig, step: int) -> float:
    """How much of alpha is asked at ``step``: 0 at the warm-up's end, 1 once the ramp is over.

    >>> ramp = ConstraintConfig(alpha_ramp_steps=4, warmup_steps=2)
    >>> [alpha_share(ramp, step) for step in (0, 2, 3, 6, 9)]
    [0.0, 0.0, 0.25, 1.0, 1.0]
    """
    if config.alpha_ramp_steps == 0:
        return 1.0
    return min(max((step - config.warmup_steps) / config.alpha_ramp_steps, 0.0), 1.0)


def settled_from(config: ConstraintConfig) -> int:
    """The step from which the whole constraint is in force."""
    return config.warmup_steps + config.alpha_ramp_steps
