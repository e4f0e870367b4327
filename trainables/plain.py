"""Plain values: what `json.loads` returns and `json.dumps` takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import cache
from types import UnionType
from typing import Any, Self, TypeVar, Union, get_args, get_origin, get_type_hints

Json = Any
T = TypeVar("T")


class Plain:
    """A dataclass that is written as JSON: its fields are the keys, in their order."""

    __slots__ = ()

    def to_json(self) -> dict[str, Json]:
        """Plain values, from which ``from_json`` makes an equal object."""
        return {name: _plain(value) for name, value in self.keywords().items()}

    def keywords(self) -> dict[str, Any]:
        """Fields by name, for the constructor of a class that has more."""
        return {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]

    @classmethod
    def from_json(cls, plain: Mapping[str, Json]) -> Self:
        """Build from plain values, unchecked; fields that are not in them have their defaults."""
        hints = _hints(cls)  # type: ignore[arg-type]  # a class hashes
        return cls(
            **{name: _read(kind, plain[name]) for name, kind in hints.items() if name in plain}
        )


_hints = cache(get_type_hints)


def _plain(value: Json) -> Json:
    if hasattr(value, "to_json"):
        return value.to_json()
    if isinstance(value, Mapping):
        return {key: _plain(v) for key, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, (list, tuple)) else value


def _read(kind: Any, plain: Json) -> Json:
    origin, args = get_origin(kind), get_args(kind)
    if plain is None:
        return None
    if origin in (Union, UnionType):  # one kind, or None
        return _read(args[0], plain)
    if origin is Mapping:
        return {key: _read(args[1], value) for key, value in plain.items()}
    if origin is Sequence:
        return [_read(args[0], value) for value in plain]
    return kind.from_json(plain) if hasattr(kind, "from_json") else plain


def with_names(plain: Json, names: Mapping[str, str]) -> Json:
    """A copy of plain values in which the keys in ``names``, at any depth, are called otherwise.

    >>> with_names({"a": [{"b": 1}]}, {"b": "c"})
    {'a': [{'c': 1}]}
    """
    if isinstance(plain, Mapping):
        return {names.get(key, key): with_names(value, names) for key, value in plain.items()}
    return [with_names(v, names) for v in plain] if isinstance(plain, list | tuple) else plain


def finite(value: T) -> T:
    """The value with NaN and infinities as None: JSON has neither.

    >>> finite({"loss": math.inf, "layers": (0.5, math.nan)})
    {'loss': None, 'layers': [0.5, None]}
    """
    changed: T = with_leaves(value, float, lambda n: n if math.isfinite(n) else None)
    return changed


def with_leaves(value: Json, kind: type, change: Callable[[Any], Json]) -> Json:
    """The value with ``change`` of each ``kind`` that its dicts, lists, tuples and Plain hold."""
    if isinstance(value, kind):
        return change(value)
    if isinstance(value, dict):
        return {key: with_leaves(v, kind, change) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [with_leaves(v, kind, change) for v in value]
    if isinstance(value, Plain) and is_dataclass(value):
        changed = {f.name: with_leaves(getattr(value, f.name), kind, change) for f in fields(value)}
        return replace(value, **changed)
    return value
