"""Names of models as screens and tables show them."""

from __future__ import annotations


def model_text(name: str, variant: str) -> str:
    """A model with the forward that its variant names.

    >>> model_text("ut", "distance")
    'ut (distance)'
    """
    return f"{name} ({variant})" if variant else name
