"""Rates of a calibration: keyed random numbers, and shares with their exact intervals."""

from __future__ import annotations

import numpy as np

from sweep.statistics import failures
from trainables.plain import Json
from trainables.random_keys import seed_of


def generator_of(*key: str | int | float) -> np.random.Generator:
    """Random numbers keyed by what they are for."""
    return np.random.default_rng(seed_of("calibration", *key))


def rate(count: int, of: int, allowed: float | None = None) -> Json:
    """A share with its exact interval; whether it is within what is allowed."""
    low, high = failures.clopper_pearson(count, of)
    found: dict[str, Json] = {"rate": count / of, "of": of, "interval": [low, high]}
    return found if allowed is None else {**found, "allowed": allowed, "passes": low <= allowed}
