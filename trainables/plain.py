"""Plain values: what `json.loads` returns and `json.dumps` takes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

Json = Any


def finite(value: Json) -> Json:
    """The value with NaN and infinities as None: JSON has neither.

    >>> finite({"loss": math.inf, "layers": (0.5, math.nan)})
    {'loss': None, 'layers': [0.5, None]}
    """
    return with_leaves(value, float, lambda number: number if math.isfinite(number) else None)


def with_leaves(value: Json, kind: type, change: Callable[[Any], Json]) -> Json:
    """The value with ``change`` of each ``kind`` that its dicts, lists and tuples hold."""
    if isinstance(value, kind):
        return change(value)
    if isinstance(value, dict):
        return {key: with_leaves(v, kind, change) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [with_leaves(v, kind, change) for v in value]
    return value
