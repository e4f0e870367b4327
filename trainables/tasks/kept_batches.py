"""Held-out batches that stay on a GPU for all arms of a process.

Noise is drawn and batches are cut on the CPU, which takes longer than to pass them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace

from torch import Tensor

from trainables import memory
from trainables.tasks.base import Batch


class KeptBatches:
    """Batches by split, disturbance and draw, as many as fit."""

    def __init__(self) -> None:
        """Keep nothing yet."""
        self._kept: dict[Hashable, list[Batch]] = {}
        self._targets: dict[Hashable, Tensor] = {}
        self._bytes = 0

    def batches(self, key: Hashable, make: Callable[[], Iterator[Batch]]) -> Iterator[Batch]:
        """The batches of ``key``, made where they are not kept, and kept where they fit."""
        if key in self._kept:
            yield from map(_own, self._kept[key])
            return
        made: list[Batch] | None = []
        size = 0
        for batch in make():
            assert isinstance(batch.inputs, Tensor)
            size += batch.inputs.untyped_storage().nbytes()
            if not self._fits(size):
                made = None  # before there is more of it than may be kept
            if made is not None:
                made.append(batch)
            yield batch if made is None else _own(batch)
        if made is not None:
            self._kept[key] = made
            self._bytes += size

    def targets(self, key: Hashable, make: Callable[[], Tensor]) -> Tensor:
        """The targets of ``key``, which batches of every draw share."""
        if key not in self._targets:
            made = make()
            size = made.untyped_storage().nbytes()
            if not self._fits(size):
                return made
            self._targets[key] = made
            self._bytes += size
        return self._targets[key]

    def _fits(self, size: int) -> bool:
        return self._bytes + size <= memory.most_kept_bytes()


def _own(batch: Batch) -> Batch:
    """The batch with inputs of its own: a network may write into those that it is given."""
    assert isinstance(batch.inputs, Tensor)
    return replace(batch, inputs=batch.inputs.clone())
