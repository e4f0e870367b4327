"""Options of a constraint that could do nothing in a run: refused before training.

Checked with the data at hand, which say how long an epoch is, and not when a configuration is made:
records of arms that were trained with such options stay readable.
"""

from __future__ import annotations

from trainables.config.arm import ArmConfig, ConstraintConfig
from trainables.errors import InvalidValue
from trainables.primal_dual.schedule import dual_steps


def require_effect(config: ArmConfig, constraint: ConstraintConfig, steps_per_epoch: int) -> None:
    """Raise InvalidValue where an option could do nothing, or not what it says.

    A run that its warm-up keeps plain to its end is not refused for its dual steps.
    """
    _require_unbiased(constraint)
    if constraint.warmup_steps >= config.steps or constraint.is_control:
        return
    _require_a_dual_step(config, constraint, steps_per_epoch)
    if constraint.resilience_form == "slack_restart":
        _require_slack_at_dual_steps(constraint, steps_per_epoch)
        _require_a_restart(config, constraint, steps_per_epoch)


def _require_unbiased(constraint: ConstraintConfig) -> None:
    """Refuse weights that follow drawn losses, and so their draw: gradients would be biased."""
    if constraint.inner_tokens < 1 and constraint.weights_follow_losses:
        raise InvalidValue(
            f"inner_tokens must be 1.0 with form {constraint.form!r}, dual_optimizer "
            f"{constraint.dual_optimizer!r} and weights_by {constraint.weights_by!r}, got "
            f"{constraint.inner_tokens:g}: their layer weights follow the drawn losses, and the "
            "gradient would be biased. Read all tokens, or choose form 'difference' with another "
            "optimiser."
        )


def _require_a_dual_step(
    config: ArmConfig, constraint: ConstraintConfig, steps_per_epoch: int
) -> None:
    """Refuse multipliers that first move after the run's last step, and so weigh nothing.

    An augmented Lagrangian is allowed, since it follows the batch itself, and so is a run of one
    step, which has no other place for a dual step.
    """
    seldom = constraint.dual_every > 1 or constraint.dual_every_unit == "epoch"
    acts_later = seldom and constraint.dual_optimizer != "augmented"
    until = config.steps - 1 if acts_later else config.steps
    if dual_steps(constraint, steps_per_epoch, until) == 0:
        raise InvalidValue(
            f"dual_every must bring a dual step within the {config.steps} steps of the run, and "
            f"before the last, got {constraint.dual_every} {constraint.dual_every_unit} "
            f"({steps_per_epoch} steps an epoch, {constraint.warmup_steps} of warm-up): "
            "train longer, or update more often."
        )


def _require_slack_at_dual_steps(constraint: ConstraintConfig, steps_per_epoch: int) -> None:
    """Refuse restarts between any two dual steps: each undoes a slack before it can act."""
    if constraint.dual_every_unit == "epoch" or constraint.dual_every >= steps_per_epoch:
        raise InvalidValue(
            "resilience_form 'slack_restart' needs two dual steps within an epoch "
            f"({steps_per_epoch} steps), got dual_every {constraint.dual_every} "
            f"{constraint.dual_every_unit}: every dual step would find the slack at zero, as "
            "without resilience. Update more often, or choose resilience_form 'slack' or 'decay'."
        )


def _require_a_restart(
    config: ArmConfig, constraint: ConstraintConfig, steps_per_epoch: int
) -> None:
    """Refuse a run in which no epoch ends between its first dual step and a later one."""
    first, last = constraint.warmup_steps + constraint.dual_every, config.steps - 1
    if last // steps_per_epoch <= (first - 1) // steps_per_epoch:
        raise InvalidValue(
            f"resilience_form 'slack_restart' needs the end of an epoch ({steps_per_epoch} steps) "
            f"between its first dual step and the end of the run, got {config.steps} steps, "
            f"{constraint.warmup_steps} of warm-up: it would train as 'slack' does. Train longer, "
            "give larger batches or fewer data, or choose resilience_form 'slack' or 'decay'."
        )
