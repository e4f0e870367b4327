"""Ranges of searched fields: what they allow, their coordinates, their JSON.

A range is sampled in a *coordinate* of its own: the value itself, or for ``LogDecay`` and
``LogReach`` its effect, from which the value follows once the rest of a run is known.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import ClassVar, cast

from trainables.errors import InvalidValue
from trainables.plain import Json


def is_finite(value: Json) -> bool:
    """True for a number that a float can hold: users' files give values of any type."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return abs(value) < sys.float_info.max and math.isfinite(value)


def is_whole(value: Json) -> bool:
    """True for an integer of at most 64 bits: a longer one fits no float and no tensor."""
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63


@dataclass(frozen=True)
class _Interval:
    low: float
    high: float

    is_log: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse an empty or non-finite range, and of a log range one that is not positive."""
        least = 0 if self.is_log else -math.inf
        if not (is_finite(self.low) and is_finite(self.high) and least < self.low < self.high):
            kind, allowed = ("log range", "positive") if self.is_log else ("range", "finite")
            raise InvalidValue(
                f"a {kind} must run from a {allowed} low to a higher high, "
                f"got [{self.low!r}, {self.high!r}]."
            )

    def to_json(self) -> dict[str, Json]:
        """Plain values that ``range_from_json`` turns back into an equal range."""
        (kind,) = (name for name, cls in _KINDS.items() if type(self) is cls)
        return {kind: [self.low, self.high]}


class Uniform(_Interval):
    """A number between ``low`` and ``high``, all equally likely."""

    is_log = False


class LogUniform(_Interval):
    """A positive number between ``low`` and ``high``, its logarithm uniform."""


class LogDecay(_Interval):
    """A resilience c by the decay x it brings to a multiplier over a run, log x uniform.

    A multiplier that nothing pushes keeps exp(-x) of itself over the run, and one that is pushed
    all the time comes to (1 - exp(-x)) / x of where it would come without resilience: 0.95 at
    x = 0.1, 0.63 at 1, 0.10 at 10. With eta = dual_lr and N dual steps, each scaled as its learning
    rate is, every one keeps 1 - eta c = exp(-x / N). So x means the same at every dual_lr, length
    of run and unit of the losses, where a range of c may do nothing at all. With Adam or slacks as
    variables x = eta c N to first order, the slack that a multiplier would be granted after rising
    by eta at each of the N steps, in units of the dual signal. With ``bare_decay`` every one of
    the dual steps, whatever its rate, keeps 1 - c = exp(-x / N).
    """


class LogReach(_Interval):
    """A dual_lr by its reach, dual_lr times the run's dual steps N, its logarithm uniform.

    The reach is how far a multiplier comes under a dual signal of 1 all the time (under any signal
    with Adam), without resilience; N counts as in ``LogDecay``. It means the same at every length
    of run, where a range of dual_lr that suits a short run overshoots in a long one.
    """


@dataclass(frozen=True)
class Choice:
    """One of a few plain values."""

    values: tuple[Json, ...]

    def __post_init__(self) -> None:
        """Refuse fewer than two different values."""
        if len(set(map(repr, self.values))) < 2:
            raise InvalidValue(
                f"a choice must have at least two different values, got {list(self.values)!r}."
            )

    def to_json(self) -> dict[str, Json]:
        """Plain values that ``range_from_json`` turns back into an equal choice."""
        return {"choice": list(self.values)}


Range = Uniform | LogUniform | LogDecay | LogReach | Choice
_KINDS: dict[str, type[Uniform] | type[LogUniform] | type[LogDecay] | type[LogReach]] = {
    "uniform": Uniform,
    "log_uniform": LogUniform,
    "log_decay": LogDecay,
    "log_reach": LogReach,
}


def resilience_of(decay: float, *, dual_lr: float, dual_steps: float) -> float:
    """The resilience c that leaves exp(-decay) of a multiplier after N = ``dual_steps`` steps.

    >>> round(resilience_of(math.log(2), dual_lr=0.5, dual_steps=1), 6)
    1.0
    """
    # expm1 and log1p keep the digits of a small decay, which 1 - exp(-x) would cancel.
    return -math.expm1(-decay / dual_steps) / dual_lr


def decay_of(resilience: float, *, dual_lr: float, dual_steps: float) -> float:
    """The decay over the run that a resilience c brings: the inverse of ``resilience_of``.

    >>> round(decay_of(1.0, dual_lr=0.5, dual_steps=1), 6) == round(math.log(2), 6)
    True
    """
    step = dual_lr * resilience
    return math.inf if step >= 1 else -dual_steps * math.log1p(-step)


def ends_of(values: Range) -> tuple[Json, ...]:
    """Every value of a choice; of other ranges both ends, as floats: nothing between is whole."""
    return values.values if isinstance(values, Choice) else (float(values.low), float(values.high))


def into(values: Range, coordinate: Json) -> Json:
    """The coordinate if it lies in the range, else the nearest end; the first value of a choice."""
    if isinstance(values, Choice):
        return coordinate if coordinate in values.values else values.values[0]
    if coordinate is None:  # signal_clip: null lies in no range
        return values.low
    return min(max(cast(float, coordinate), values.low), values.high)


def at_fraction(values: Range, share: float) -> Json:
    """The coordinate that lies at this share, in [0, 1), of a range.

    >>> round(at_fraction(LogUniform(0.01, 1.0), 0.5), 6)
    0.1
    """
    if isinstance(values, Choice):
        return values.values[int(share * len(values.values))]
    if isinstance(values, Uniform):
        return into(values, values.low + share * (values.high - values.low))
    low, high = math.log(values.low), math.log(values.high)
    return into(values, math.exp(low + share * (high - low)))  # exp may round past an end


def range_from_json(name: str, plain: Json) -> Range:
    """The range that ``to_json`` wrote; ``name`` is the field's, for the message."""
    if isinstance(plain, dict) and len(plain) == 1:
        (kind, ends), *_ = plain.items()
        if kind == "choice" and isinstance(ends, list):
            return Choice(tuple(ends))
        if kind in _KINDS and isinstance(ends, list) and len(ends) == 2:
            return _KINDS[kind](*ends)
    known = ", ".join(f"{{'{kind}': [low, high]}}" for kind in _KINDS)
    raise InvalidValue(
        f"range of {name} must be one of {known}, {{'choice': [...]}}, got {plain!r}."
    )
