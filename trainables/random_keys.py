"""Random generators keyed by what a draw is for, not by global state or order.

Both arms of a pair, and a run that is resumed, see the same numbers (common random numbers),
whoever draws: data sets, tasks, and models at their start.
"""

from __future__ import annotations

import hashlib

import torch

from trainables.errors import InvalidValue


def seed_of(*key: str | int | float) -> int:
    """A seed in [0, 2**63) from what a draw is for, the same in every process and on every machine.

    >>> seed_of(0, "train_noise", 7) == seed_of(0, "train_noise", 7) != seed_of(0, "train_noise", 8)
    True

    Raises InvalidValue where a part is not a plain str, int or float: NumPy's print differently.
    """
    for part in key:
        if type(part) not in (str, int, float):
            raise InvalidValue(
                f"a key's parts must be str, int or float, got {part!r} ({type(part).__name__}): "
                "convert it, so that the key reads the same everywhere."
            )
    return int.from_bytes(hashlib.sha256(repr(key).encode()).digest()[:8], "big") >> 1


def keyed_generator(device: torch.device | str, *key: str | int | float) -> torch.Generator:
    """A fresh generator on ``device``, seeded by ``key`` alone.

    On the CPU torch uses the low 32 bits of the seed.
    """
    return torch.Generator(device).manual_seed(seed_of(*key))
