"""Plain values: what `json.loads` returns and `json.dumps` takes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

Json = Any


def finite(value: Json) -> Json:
    """The value with NaN and infinities as None: JSON has neither.

    >>> finite({"loss": math.inf, "layers": (0.5, math.nan)})
    {'loss': None, 'layers': [0.5, None]}
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [finite(v) for v in value]
    return value
