"""Configuration sections: frozen dataclasses of checked fields, and their JSON.

Files, the command line and settings give plain values; the annotations say what each may be: a
type, and with a ``Rule`` its range. What fields may be together, a section says in ``_check``.
Nothing here knows what the fields mean.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import re
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self, TypeVar, cast

from trainables.config.renamed import RENAMED, renamed
from trainables.errors import InvalidValue, RemovedOption, UnknownName, require
from trainables.plain import Json, Plain, plain_of

Check = Callable[[str, object], object]  # of a field's name and value; the value to keep

_LARGEST = 1e300  # no field needs more, and a Python int may not fit a float


@dataclass(frozen=True, eq=False)  # hashed at every check, quickly
class Rule:
    """The values of its type that a field may have, as part of its annotation; None is allowed."""

    holds: Callable[[Any], bool]
    allowed: str
    advice: str = ""
    any_type: bool = False  # asked about values of every type, and None, in place of the type

    def check(self, name: str, value: object) -> object:
        """Return the value, or raise InvalidValue."""
        require(self.holds(value), name, value, self.allowed, self.advice)
        return value


Untyped = functools.partial(Rule, any_type=True)


def at_least(least: int, advice: str = "") -> Rule:
    """The rule that allows numbers from ``least`` up."""
    return Rule(lambda value: value >= least, f"at least {least}", advice)


T = TypeVar("T")
Positive = Annotated[T, Rule(lambda value: value > 0, "positive")]
NotNegative = Annotated[T, at_least(0)]


class NamedFields:
    """Base of dataclasses that answer an unknown keyword with the nearest field."""

    def __new__(cls, *_: object, **fields: object) -> Self:
        """Refuse unknown fields; their values are checked later."""
        known = cls.__dataclass_fields__  # type: ignore[attr-defined]  # every one is a dataclass
        for name in fields:
            if name not in known:
                if RENAMED.get(name) in known:
                    raise RemovedOption(
                        f"unknown field {name!r}: it is called {RENAMED[name]} now."
                    )
                raise UnknownName.among(f"field of {cls.__name__}", name, known)
        return super().__new__(cls)


class Section(NamedFields, Plain):
    """JSON round trip and validation shared by the config dataclasses."""

    def __post_init__(self) -> None:
        """Check every field's type and range; each message names the field and what is allowed."""
        for name, check in _checks(type(self)).items():  # type: ignore[arg-type]  # a class hashes
            object.__setattr__(self, name, check(name, getattr(self, name)))
        self._check()

    def _check(self) -> None:
        """Check rules between fields; overridden by sections that have such rules."""

    def require(self, ok: bool, name: str, allowed: str, advice: str = "") -> None:
        """Raise InvalidValue for the field called ``name`` unless ``ok``."""
        require(ok, name, plain_of(getattr(self, name)), allowed, advice)

    def changed(self) -> dict[str, Json]:
        """``to_json`` of the fields that are not at their defaults.

        A section that may be None is there when it is not, however little of it is changed.
        """
        values = {}
        for f in dataclasses.fields(self):  # type: ignore[arg-type]  # every section is one
            value = getattr(self, f.name)
            if isinstance(value, Section):
                inner = value.changed()
                if inner or f.default is None:
                    values[f.name] = inner
            elif value != f.default:
                values[f.name] = plain_of(value)
        return values

    @classmethod
    def from_json(cls, values: Mapping[str, Json]) -> Self:
        """Build from plain values, whose fields may have earlier names; others are errors."""
        return cls(**(values if RENAMED.keys().isdisjoint(values) else renamed(values)))


def check_ruled(holder: Any, label: Callable[[str], str] = str) -> None:
    """Check the fields of a dataclass that have a ``Rule``; ``label`` says what to call one."""
    for name, hint in _hints(type(holder)).items():  # type: ignore[arg-type]  # a class hashes
        if typing.get_origin(hint) is Annotated:
            check = _checks(type(holder))[name]  # type: ignore[arg-type]
            object.__setattr__(holder, name, check(label(name), getattr(holder, name)))


@functools.cache
def _hints(section: type) -> dict[str, Any]:
    """The annotations of a section's fields, in their order."""
    hints = typing.get_type_hints(section, include_extras=True)
    return {f.name: hints[f.name] for f in dataclasses.fields(section)}


@functools.cache
def _checks(section: type) -> dict[str, Check]:
    """The check of every field of a section, in their order; read off the annotations once."""
    return {name: _check_of(hint) for name, hint in _hints(section).items()}


def _check_of(hint: Any) -> Check:
    """The function that turns a value into the annotated type, or raises InvalidValue."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return _ruled(args[0], args[1])
    if origin in (typing.Union, types.UnionType):
        inner = _check_of(next(a for a in args if a is not type(None)))
        if type(None) not in args:
            return inner
        return lambda name, value: None if value is None else inner(name, value)
    if origin is Literal:
        return _one_of(args)
    if origin is tuple:
        return _list_of(_check_of(args[0]))
    if isinstance(hint, type) and issubclass(hint, Section):
        return _section(hint)
    return {float: _number, int: _whole_number}.get(hint) or _instance(hint)


def _ruled(hint: Any, rule: Rule) -> Check:
    if rule.any_type:
        return rule.check
    kind = _check_of(hint)
    null = " or null" * (type(None) in typing.get_args(hint))
    ruled = dataclasses.replace(rule, allowed=rule.allowed + null)

    def check(name: str, value: object) -> object:
        value = kind(name, value)
        return None if value is None else ruled.check(name, value)

    return check


def _one_of(choices: tuple[Any, ...]) -> Check:
    allowed = "one of " + ", ".join(map(repr, choices))

    def check(name: str, value: object) -> object:
        require(value in choices, name, value, allowed)
        return value

    return check


def _list_of(item: Check) -> Check:
    def check(name: str, value: object) -> object:
        example = f" like {json.dumps([value])}" if isinstance(value, str | float | int) else ""
        if isinstance(value, str) and value.startswith("["):  # JSON with a slip, such as [0.0 0.4]
            example = f" like [{', '.join(re.findall(r'[^][ ,;]+', value))}]"
        require(isinstance(value, list | tuple), name, value, f"a list{example}")
        return tuple([item(name, v) for v in cast(list[object], value)])

    return check


def _section(kind: type[Section]) -> Check:
    def check(name: str, value: object) -> object:
        if isinstance(value, kind):
            return value
        if isinstance(value, Mapping):
            try:
                return kind.from_json(value)
            except InvalidValue as error:
                is_named = re.split(r"\W", str(error))[0] in _hints(kind)  # type: ignore[arg-type]
                raise InvalidValue(f"{name}.{error}" if is_named else str(error)) from error
        require(False, name, value, f"a {kind.__name__}")
        return value

    return check


def _instance(kind: type) -> Check:
    def check(name: str, value: object) -> object:
        require(isinstance(value, kind), name, value, f"a {kind.__name__}")
        return value

    return check


def _number(name: str, value: object) -> object:
    if isinstance(value, float) and -_LARGEST < value < _LARGEST:
        return float(value)
    ok = isinstance(value, int) and not isinstance(value, bool) and abs(value) < _LARGEST
    require(ok, name, value, "a finite number")
    return float(cast(int, value))


def _whole_number(name: str, value: object) -> object:
    require(isinstance(value, int) and not isinstance(value, bool), name, value, "a whole number")
    require(abs(cast(int, value)) < 2**63, name, value, "a whole number of 64 bits")
    return value


def named_gamma(gamma: float) -> float:
    """The two decimals that a gamma is but for rounding, or the gamma itself; 0 has no sign.

    >>> named_gamma(0.1 + 0.2), named_gamma(0.123), str(named_gamma(-0.0))
    (0.3, 0.123, '0.0')
    """
    named = round(gamma, 2) + 0.0
    return named if math.isclose(gamma, named) else gamma
