"""Ranges stated on what a field does in a run: effect of value and back.

Both count with N, the dual steps of the whole run, each scaled as its learning rate is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from search_spaces.ranges import LogDecay, LogReach, Range, decay_of, resilience_of
from trainables.config.arm import ArmConfig, ConstraintConfig
from trainables.errors import InvalidValue
from trainables.plain import Json
from trainables.primal_dual.schedule import dual_steps, effective_dual_steps

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
    return decay_of(value, **_decaying(config, values, steps))


def with_effect(config: ArmConfig, name: str, effect: float, values: Mapping[str, Json]) -> float:
    """The field's value that does this in a run with these searched values."""
    if name == DUAL_LR:
        return effect / _dual_steps(config, name, {**values, name: effect})
    steps = _dual_steps(config, name, values)
    return resilience_of(effect, **_decaying(config, values, steps))


def _decaying(
    config: ArmConfig, values: Mapping[str, Json], scaled_steps: float
) -> dict[str, float]:
    """The rate and the dual steps by which a multiplier decays."""
    constraint = cast(ConstraintConfig, config.constraint)
    if values.get("constraint.dual_optimizer", constraint.dual_optimizer) == "bare_decay":
        timing = _timing(constraint, values)  # its decay knows no rate, and no schedule
        return {"dual_lr": 1.0, "dual_steps": dual_steps(timing, 1, config.steps)}
    return {"dual_lr": values.get(DUAL_LR, constraint.dual_lr), "dual_steps": scaled_steps}


def _timing(constraint: ConstraintConfig, values: Mapping[str, Json]) -> ConstraintConfig:
    """The constraint with dual steps as these values time them."""
    names = ("dual_every", "warmup_steps")
    timed = {n: values.get(f"constraint.{n}", getattr(constraint, n)) for n in names}
    return replace(constraint, dual_every_unit="step", **timed)


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
    timed = replace(config, constraint=_timing(constraint, values))
    steps = effective_dual_steps(timed, steps_per_epoch=1, until=config.steps)
    if not (of("dual_lr") > 0 and steps > 0):
        raise InvalidValue(
            f"a {kind} range of {name} needs multipliers that move, got dual_lr "
            f"{of('dual_lr')!r} and {steps:g} dual steps."
        )
    return steps
