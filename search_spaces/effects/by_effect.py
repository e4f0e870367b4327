"""Ranges stated on what a field does in a run: effect of value and back.

Both count with N, the dual steps of the whole run, each scaled as its learning rate is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import cast

from search_spaces.ranges import LogDecay, LogReach, Range, decay_of, into, resilience_of
from trainables.config.arm import ArmConfig, ConstraintConfig
from trainables.errors import InvalidValue
from trainables.primal_dual.schedule import dual_steps, effective_dual_steps

DUAL_LR, RESILIENCE = "constraint.dual_lr", "constraint.resilience"
# Points, records and tables hold dual_lr and resilience, not reach and decay: a value that somebody
# gives, and one of a winner that a search starts from, stands to the bit, so that equal arms are
# trained once. value -> effect -> value does not keep every last bit. With both as fields, each
# configuration would have two spellings that every change of its length must keep in step.
# Each kind of range is of one field; dual_lr comes first, since a decay follows from it.
STATED: Mapping[type[Range], str] = {LogReach: DUAL_LR, LogDecay: RESILIENCE}
EFFECT = {DUAL_LR: "reach", RESILIENCE: "decay"}


def stated(ranges: Mapping[str, Range]) -> list[str]:
    """The fields whose range is stated on their effect; a field that others need comes first."""
    return [name for kind, name in STATED.items() if type(ranges.get(name)) is kind]


def effect_of(run: ArmConfig, name: str, value: float) -> float:
    """The effect of a field's value in a run whose other fields are these.

    Raises InvalidValue where the run's dual steps cannot be counted, or move no multiplier.
    """
    constraint = cast(ConstraintConfig, run.constraint)
    steps = _counted_steps(run, name, value if name == DUAL_LR else constraint.dual_lr)
    return value * steps if name == DUAL_LR else decay_of(value, **decaying(run))


def with_effect(run: ArmConfig, name: str, effect: float) -> float:
    """The value with this effect in a run whose other fields are these; raises as ``effect_of``."""
    constraint = cast(ConstraintConfig, run.constraint)
    steps = _counted_steps(run, name, effect if name == DUAL_LR else constraint.dual_lr)
    return effect / steps if name == DUAL_LR else resilience_of(effect, **decaying(run))


def moved(run: ArmConfig, name: str, value: float, effect: float) -> float:
    """The value itself where it has the effect, to the bit, else the one of ``with_effect``."""
    same = effect_of(run, name, value) == effect
    return value if same else with_effect(run, name, effect)


def is_within(run: ArmConfig, name: str, value: float, values: Range) -> bool:
    """True when a range has a field's value: by its effect in the run, where it is stated on that.

    Where the effect cannot be counted, the value lies in no range that is stated on it.
    """
    if not stated({name: values}):
        return bool(into(values, value) == value)
    try:
        nearest = into(values, effect_of(run, name, value))
        return math.isclose(with_effect(run, name, nearest), value, rel_tol=1e-9)
    except InvalidValue:
        return False


def decaying(run: ArmConfig) -> dict[str, float]:
    """The rate and the dual steps by which a multiplier decays, as ``decay_of`` takes them."""
    constraint = cast(ConstraintConfig, run.constraint)
    if constraint.dual_optimizer == "bare_decay":  # its decay knows no rate, and no schedule
        return {"dual_lr": 1.0, "dual_steps": dual_steps(constraint, 1, run.steps)}
    scaled = effective_dual_steps(run, steps_per_epoch=1, until=run.steps)
    return {"dual_lr": constraint.dual_lr, "dual_steps": scaled}


def _counted_steps(run: ArmConfig, name: str, dual_lr: float) -> float:
    """The dual steps N of a run; InvalidValue where they cannot be counted or move nothing."""
    constraint = cast(ConstraintConfig, run.constraint)
    kind = next(kind.__name__ for kind, field in STATED.items() if field == name)
    if constraint.dual_every_unit != "step":
        raise InvalidValue(
            f"a {kind} range of {name} needs dual_every_unit 'step', got "
            f"{constraint.dual_every_unit!r}: the number of epochs of a run depends on its data. "
            f"Give {name} a LogUniform range of plain values in a space file."
        )
    if constraint.warmup_epochs > 0:
        raise InvalidValue(
            f"a {kind} range of {name} needs warmup_epochs 0, got {constraint.warmup_epochs}: how "
            "many steps they are depends on the data. Give warmup_steps, or a LogUniform range of "
            "plain values in a space file."
        )
    steps = effective_dual_steps(run, steps_per_epoch=1, until=run.steps)
    if not (dual_lr > 0 and steps > 0):
        raise InvalidValue(
            f"a {kind} range of {name} needs multipliers that move, got dual_lr {dual_lr!r} and "
            f"{steps:g} dual steps."
        )
    return steps
