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
        return {
            f.name: plain_of(getattr(self, f.name))
            for f in fields(self)  # type: ignore[arg-type]
            if f.metadata != LATER or getattr(self, f.name) != f.default
        }

    def keywords(self) -> dict[str, Any]:
        """Fields by name, for the constructor of a class that has more."""
        return {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]

    @classmethod
    def from_json(cls, plain: Mapping[str, Json]) -> Self:
        """Build from plain values, unchecked; fields that are not in them have their defaults."""
        readers = _readers(cls)  # type: ignore[arg-type]  # a class hashes
        there = _checked(plain, Mapping)
        return cls(**{name: read(there[name]) for name, read in readers.items() if name in there})


class StoredPlain(Plain):
    """A ``Plain`` of the store: a key that is no field is refused, as of another version."""

    __slots__ = ()

    @classmethod
    def from_json(cls, plain: Mapping[str, Json]) -> Self:
        """Build from plain values; TypeError for a key that is no field."""
        readers = _readers(cls)  # type: ignore[arg-type]
        there = _checked(plain, Mapping).items()
        return cls(**{name: readers.get(name, _as_it_is)(value) for name, value in there})


# Metadata of a field that earlier versions lacked: at its default it is not written, so that the
# digests of what they stored stay.
LATER = {"later": True}


@cache
def _readers(kind: type) -> dict[str, Callable[[Json], Json]]:
    return {name: _reader(hint) for name, hint in get_type_hints(kind).items()}


def _reader(kind: Any) -> Callable[[Json], Json]:
    """The function that makes a ``kind`` of plain values; None stays None."""
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):  # one kind, or None
        return _reader(args[0])
    if hasattr(kind, "from_json"):
        return lambda plain: plain if plain is None else kind.from_json(plain)
    if origin not in _HOLDERS:
        return _as_it_is
    inner = _reader(args[-1 if origin is Mapping else 0])
    if origin is tuple:
        return lambda plain: tuple(map(inner, plain)) if isinstance(plain, list) else plain
    if inner is _as_it_is:  # as JSON has it, however many numbers are in it
        holder = Mapping if origin is Mapping else Sequence
        return lambda plain: plain if plain is None else _checked(plain, holder)
    if origin is Mapping:
        return lambda plain: plain if plain is None else {k: inner(v) for k, v in plain.items()}
    return lambda plain: plain if plain is None else list(map(inner, plain))


_HOLDERS = (Mapping, Sequence, list, tuple)


def _checked(plain: Json, kind: type) -> Json:
    """The value if it is of this kind; TypeError for another, and for text."""
    if isinstance(plain, kind) and not isinstance(plain, str):
        return plain
    raise TypeError(f"{plain!r} is no {kind.__name__}")


def _as_it_is(plain: Json) -> Json:
    return plain


def plain_of(value: Json) -> Json:
    """The value with mappings, lists and objects that have ``to_json`` as JSON has them."""
    if hasattr(value, "to_json"):
        return value.to_json()
    if isinstance(value, Mapping):
        return {key: plain_of(v) for key, v in value.items()}
    return [plain_of(v) for v in value] if isinstance(value, (list, tuple)) else value


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
