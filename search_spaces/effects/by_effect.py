"""Ranges stated on what a field does in a run: effect of value and back.

Both count with N, the dual steps of the whole run, each scaled as its learning rate is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from search_spaces.ranges import LogDecay, LogReach, Range, decay_of, into, resilience_of
from trainables.config.arm import ArmConfig, ConstraintConfig
from trainables.errors import InvalidValue
from trainables.plain import Json
from trainables.primal_dual.schedule import dual_steps, effective_dual_steps

DUAL_LR, RESILIENCE = "constraint.dual_lr", "constraint.resilience"
# Each kind of range is of one field; dual_lr comes first, since a decay follows from it.
STATED: Mapping[type[Range], str] = {LogReach: DUAL_LR, LogDecay: RESILIENCE}
EFFECT = {DUAL_LR: "reach", RESILIENCE: "decay"}


def stated(ranges: Mapping[str, Range]) -> list[str]:
    """The fields whose range is stated on what they do, those that others need first."""
    return [name for kind, name in STATED.items() if type(ranges.get(name)) is kind]


def effect_of(config: ArmConfig, name: str, value: float, values: Mapping[str, Json]) -> float:
    """What a field's value does in a run with these searched values.

    Raises:
        InvalidValue: the run's dual steps cannot be counted, or move no multiplier.
    """
    at = {**values, name: value}
    _require_effect(config, name, at)
    if name == DUAL_LR:
        return value * _scaled_steps(config, at)
    return decay_of(value, **decaying(config, at))


def with_effect(config: ArmConfig, name: str, effect: float, values: Mapping[str, Json]) -> float:
    """The field's value that does this in a run with these searched values; raises as effect_of."""
    at = {**values, name: effect}
    _require_effect(config, name, at)
    if name == DUAL_LR:
        return effect / _scaled_steps(config, at)
    return resilience_of(effect, **decaying(config, at))


def moved(
    config: ArmConfig, name: str, value: float, effect: float, values: Mapping[str, Json]
) -> float:
    """This value where it has the effect, to the bit, else the one that has it (with_effect)."""
    same = effect_of(config, name, value, values) == effect
    return value if same else with_effect(config, name, effect, values)


def is_within(config: ArmConfig, name: str, values: Range, point: Mapping[str, Json]) -> bool:
    """Whether a range has a point's value of a field: by its effect, where it is stated on that.

    Args:
        config: the run of the point's primal fields; those of its constraint are the point's.
        name: the field.
        values: its range.
        point: values of fields, this one among them.

    Where the effect cannot be counted, the value lies in no range that is stated on it.
    """
    value = point[name]
    if not stated({name: values}):
        return bool(into(values, value) == value)
    try:
        nearest = into(values, effect_of(config, name, value, point))
        return math.isclose(with_effect(config, name, nearest, point), value, rel_tol=1e-9)
    except InvalidValue:
        return False


def decaying(config: ArmConfig, values: Mapping[str, Json]) -> dict[str, float]:
    """The rate and the dual steps by which a multiplier decays, as ``decay_of`` takes them."""
    constraint = cast(ConstraintConfig, config.constraint)
    if values.get("constraint.dual_optimizer", constraint.dual_optimizer) == "bare_decay":
        timing = _timing(constraint, values)  # its decay knows no rate, and no schedule
        return {"dual_lr": 1.0, "dual_steps": dual_steps(timing, 1, config.steps)}
    dual_lr = values.get(DUAL_LR, constraint.dual_lr)
    return {"dual_lr": dual_lr, "dual_steps": _scaled_steps(config, values)}


def _timing(constraint: ConstraintConfig, values: Mapping[str, Json]) -> ConstraintConfig:
    """The constraint with dual steps as these values time them."""
    names = ("dual_every", "warmup_steps")
    timed = {n: values.get(f"constraint.{n}", getattr(constraint, n)) for n in names}
    return replace(constraint, dual_every_unit="step", **timed)


def _scaled_steps(config: ArmConfig, values: Mapping[str, Json]) -> float:
    """N of a run with these values."""
    timed = replace(config, constraint=_timing(cast(ConstraintConfig, config.constraint), values))
    return effective_dual_steps(timed, steps_per_epoch=1, until=config.steps)


def _require_effect(config: ArmConfig, name: str, values: Mapping[str, Json]) -> None:
    """Refuse a run in which nobody can count what a field does, or in which nothing moves."""
    constraint = cast(ConstraintConfig, config.constraint)
    kind = next(kind.__name__ for kind, of in STATED.items() if of == name)
    unit = values.get("constraint.dual_every_unit", constraint.dual_every_unit)
    if unit != "step":
        raise InvalidValue(
            f"a {kind} range of {name} needs dual_every_unit 'step', got {unit!r}: how many epochs "
            f"a run has, only its data say. Give {name} a LogUniform range of plain values in a "
            "space file."
        )
    dual_lr, steps = values.get(DUAL_LR, constraint.dual_lr), _scaled_steps(config, values)
    if not (dual_lr > 0 and steps > 0):
        raise InvalidValue(
            f"a {kind} range of {name} needs multipliers that move, got dual_lr {dual_lr!r} and "
            f"{steps:g} dual steps."
        )
