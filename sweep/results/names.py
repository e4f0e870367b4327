"""Names of models, and searched values, as screens and pages show them."""

from __future__ import annotations

from collections.abc import Mapping

from trainables.plain import Json


def model_text(name: str, variant: str) -> str:
    """A model with the forward that its variant names.

    >>> model_text("ut", "distance")
    'ut (distance)'
    """
    return f"{name} ({variant})" if variant else name


def point_text(point: Mapping[str, Json]) -> str:
    """The searched values of a pair.

    >>> point_text({"constraint.alpha": 0.12345, "constraint.form": "ratio"})
    'alpha 0.1235, form ratio'
    """
    values = {n: f"{v:.4g}" if isinstance(v, float) else str(v) for n, v in point.items()}
    return ", ".join(f"{n.removeprefix('constraint.')} {v}" for n, v in values.items())
