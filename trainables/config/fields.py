"""Configuration sections: frozen dataclasses of checked fields, and their JSON.

Files, the command line and settings give plain values; the annotations say what each may be: a
type, and with a ``Rule`` its range. What fields may be together, a section says in ``_check``.
Nothing here knows what the fields mean.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self, TypeVar, cast

from trainables.errors import UnknownName, require
from trainables.plain import Json

_LARGEST = 1e300  # no field needs more, and a Python int may not fit a float


@dataclass(frozen=True, eq=False)  # hashed at every check, quickly
class Rule:
    """Which values of its type a field may have, as part of its annotation; None is not asked."""

    holds: Callable[[Any], bool]
    allowed: str
    advice: str = ""


def at_least(least: int, advice: str = "") -> Rule:
    """The numbers from ``least`` up."""
    return Rule(lambda value: value >= least, f"at least {least}", advice)


T = TypeVar("T")
Positive = Annotated[T, Rule(lambda value: value > 0, "positive")]
NotNegative = Annotated[T, at_least(0)]


class Section:
    """JSON round trip and validation shared by the config dataclasses."""

    def __post_init__(self) -> None:
        """Check every field's type and range; each message names the field and what is allowed."""
        hints = _hints(type(self))  # type: ignore[arg-type]  # a class hashes
        for name, hint in hints.items():
            object.__setattr__(self, name, _checked(name, getattr(self, name), hint))
        self._check()

    def _check(self) -> None:
        """What the fields may be together; overridden by sections that have such rules."""

    def require(self, ok: bool, name: str, allowed: str, advice: str = "") -> None:
        """Raise InvalidValue for the field called ``name`` unless ``ok``."""
        require(ok, name, _plain(getattr(self, name)), allowed, advice)

    def to_json(self) -> dict[str, Json]:
        """Plain values that ``from_json`` turns back into an equal object."""
        return {name: _plain(getattr(self, name)) for name in _hints(type(self))}  # type: ignore[arg-type]

    def changed(self) -> dict[str, Json]:
        """``to_json`` of the fields that are not at their defaults.

        A section that may be None is there when it is not, however little of it is changed.
        """
        found = {}
        for f in dataclasses.fields(self):  # type: ignore[arg-type]  # every section is one
            value = getattr(self, f.name)
            if isinstance(value, Section):
                inner = value.changed()
                if inner or f.default is None:
                    found[f.name] = inner
            elif value != f.default:
                found[f.name] = _plain(value)
        return found

    @classmethod
    def from_json(cls, values: Mapping[str, Json]) -> Self:
        """Build from plain values; unknown fields and wrong values are errors."""
        known = _hints(cls)  # type: ignore[arg-type]
        for name in values:
            if name not in known:
                raise UnknownName.of(f"field of {cls.__name__}", name, known)
        return cls(**values)


@functools.cache
def _hints(section: type) -> dict[str, Any]:
    """The annotations of a section's fields, in their order."""
    hints = typing.get_type_hints(section, include_extras=True)
    return {f.name: hints[f.name] for f in dataclasses.fields(section)}


@functools.cache
def _parts(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    return typing.get_origin(hint), typing.get_args(hint)


def _plain(value: Json) -> Json:
    if isinstance(value, Section):
        return value.to_json()
    return [_plain(v) for v in value] if isinstance(value, tuple) else value


def _checked(name: str, value: object, hint: Any) -> object:
    """Return ``value`` as the type that the annotation ``hint`` asks for, or raise InvalidValue."""
    origin, args = _parts(hint)
    if origin is Annotated:
        kind, rule = args
        value = _checked(name, value, kind)
        if value is not None and not rule.holds(value):
            allowed = rule.allowed + " or null" * (type(None) in _parts(kind)[1])
            require(False, name, value, allowed, rule.advice)
        return value
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in args:
            return None
        return _checked(name, value, next(a for a in args if a is not type(None)))
    if origin is Literal:
        require(value in args, name, value, "one of " + ", ".join(map(repr, args)))
        return value
    if origin is tuple:
        require(isinstance(value, list | tuple), name, value, "a list")
        return tuple(_checked(name, v, args[0]) for v in cast(list[object], value))
    if isinstance(hint, type) and issubclass(hint, Section):
        if isinstance(value, Mapping):
            return hint.from_json(value)
        require(isinstance(value, hint), name, value, f"a {hint.__name__}")
        return value
    if hint is float:
        ok = isinstance(value, int | float) and not isinstance(value, bool)
        ok = ok and abs(cast(float, value)) < _LARGEST
        require(ok and math.isfinite(cast(float, value)), name, value, "a finite number")
        return float(cast(float, value))
    if hint is int:
        require(
            isinstance(value, int) and not isinstance(value, bool), name, value, "a whole number"
        )
        require(abs(cast(int, value)) < 2**63, name, value, "a whole number of 64 bits")
        return value
    require(isinstance(value, hint), name, value, f"a {hint.__name__}")
    return value
