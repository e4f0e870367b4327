"""Effects of searched fields in a run, which ranges may be stated on.

From a value to its effect, and from an effect to its value; both count with N, the dual
steps of the whole run, each scaled as its learning rate is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from search_spaces.ranges import LogDecay, LogReach, Range, decay_of, resilience_of
from trainables.config.arm import ArmConfig, ConstraintConfig
from trainables.errors import InvalidValue
from trainables.plain import Json
from trainables.primal_dual.schedule import effective_dual_steps

DUAL_LR, RESILIENCE = "constraint.dual_lr", "constraint.resilience"
# Each kind of range is of one field; dual_lr comes first, since a decay follows from it.
STATED: Mapping[type[Range], str] = {LogReach: DUAL_LR, LogDecay: RESILIENCE}


def stated(ranges: Mapping[str, Range]) -> list[str]:
    """The fields whose range is stated on what they do, those that others need first."""
    return [name for kind, name in STATED.items() if type(ranges.get(name)) is kind]


def effect_of(config: ArmConfig, name: str, value: float, values: Mapping[str, Json]) -> float:
    """What a field's value does in a run with these searched values."""
    steps = _dual_steps(config, name, {**values, name: value})
    if name == DUAL_LR:
        return value * steps
    return decay_of(value, dual_lr=_dual_lr(config, values), dual_steps=steps)


def with_effect(config: ArmConfig, name: str, effect: float, values: Mapping[str, Json]) -> float:
    """The field's value that does this in a run with these searched values."""
    if name == DUAL_LR:
        return effect / _dual_steps(config, name, {**values, name: effect})
    steps = _dual_steps(config, name, values)
    return resilience_of(effect, dual_lr=_dual_lr(config, values), dual_steps=steps)


def _dual_lr(config: ArmConfig, values: Mapping[str, Json]) -> float:
    constraint = cast(ConstraintConfig, config.constraint)
    return cast(float, values.get(DUAL_LR, constraint.dual_lr))


def _dual_steps(config: ArmConfig, name: str, values: Mapping[str, Json]) -> float:
    """N of a run with these searched values, of which an effect of ``name`` is stated."""
    constraint = cast(ConstraintConfig, config.constraint)
    kind = next(kind.__name__ for kind, of in STATED.items() if of == name)

    def of(field: str) -> Json:
        return values.get(f"constraint.{field}", getattr(constraint, field))

    if of("dual_every_unit") != "step":
        raise InvalidValue(
            f"a {kind} range of {name} needs dual_every_unit 'step', got "
            f"{of('dual_every_unit')!r}: how many epochs a run has, only its data say. Give "
            f"{name} a LogUniform range of plain values in a space file."
        )
    timing = replace(
        constraint,
        dual_every=of("dual_every"),
        dual_every_unit="step",
        warmup_steps=of("warmup_steps"),
    )
    steps = effective_dual_steps(
        replace(config, constraint=timing), steps_per_epoch=1, until=config.steps
    )
    if not (of("dual_lr") > 0 and steps > 0):
        raise InvalidValue(
            f"a {kind} range of {name} needs multipliers that move, got dual_lr "
            f"{of('dual_lr')!r} and {steps:g} dual steps."
        )
    return steps
