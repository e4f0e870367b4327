"""Names of settings and models as screens and tables show them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence


def short_names(settings: Sequence[str]) -> dict[str, str]:
    """Names of settings without the words that all of them begin with.

    >>> short_names(["ped2-ut-L3-g0.15", "ped2-ut-L3-g0.15-detached", "ped2-ut-L5-g0.15"])
    {'ped2-ut-L3-g0.15': 'L3-g0.15', 'ped2-ut-L3-g0.15-detached': 'L3-g0.15-detached', \
'ped2-ut-L5-g0.15': 'L5-g0.15'}
    """
    words = [name.split("-") for name in settings]
    if len(words) < 2:
        return {name: name for name in settings}
    columns = itertools.takewhile(
        lambda column: len(set(column)) == 1, zip(*(w[:-1] for w in words), strict=False)
    )
    shared = len(list(columns))
    return {name: "-".join(w[shared:]) for name, w in zip(settings, words, strict=True)}


def model_text(name: str, variant: str) -> str:
    """A model with the forward that its variant names.

    >>> model_text("ut", "distance")
    'ut (distance)'
    """
    return f"{name} ({variant})" if variant else name
