"""Batches of examples of like length, so that little of a batch is padding. Pure."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from trainables.errors import InvalidValue

POOL_BATCHES = 50  # batches that are sorted by length together; more: less padding, less mixing

Ints = NDArray[np.int64]


def bucketed_order(lengths: Ints, batch_size: int, generator: torch.Generator) -> list[Ints]:
    """The batches of one epoch as indices: every example once, in batches of like length.

    The examples are shuffled and cut into pools of ``POOL_BATCHES`` batches; a pool is sorted by
    length and cut into batches; the batches of all pools are shuffled. All batches are full, but
    for one where ``batch_size`` does not divide the examples. That one is of random examples, not
    of the longest of a pool: who leaves it out leaves out no kind of text. Examples of one length
    stay in random order, so equal lengths give plain shuffled batches.

    In a pool the lengths of its batches do not overlap, so at most ``batch_size`` times the spread
    of all lengths is padded per pool, and at most so much in the incomplete batch.

    Raises InvalidValue where ``batch_size`` is not positive.

    >>> batches = bucketed_order(np.array([9, 2, 8, 1]), 2, torch.Generator().manual_seed(0))
    >>> sorted(sorted(batch.tolist()) for batch in batches)
    [[0, 2], [1, 3]]
    """
    if batch_size < 1:
        raise InvalidValue(f"batch_size must be positive, got {batch_size}.")
    shuffled = torch.randperm(len(lengths), generator=generator).numpy()
    in_full = len(shuffled) - len(shuffled) % batch_size
    batches: list[Ints] = [shuffled[in_full:]] if in_full < len(shuffled) else []
    for first in range(0, in_full, batch_size * POOL_BATCHES):
        pool = shuffled[first : min(first + batch_size * POOL_BATCHES, in_full)]
        pool = pool[np.argsort(lengths[pool], kind="stable")]
        batches += [pool[i : i + batch_size] for i in range(0, len(pool), batch_size)]
    order = torch.randperm(len(batches), generator=generator).tolist()
    return [batches[place] for place in order]
