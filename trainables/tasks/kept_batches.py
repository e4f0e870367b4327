"""Held-out batches that stay on a GPU for all arms of a process.

Noise is drawn and batches are cut on the CPU, which takes longer than to pass them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator

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
            yield from self._kept[key]
            return
        made: list[Batch] = []
        for batch in make():
            yield batch
            made.append(batch)
        size = sum(batch.inputs.nbytes for batch in made if isinstance(batch.inputs, Tensor))
        if self._takes(size):
            self._kept[key] = made

    def targets(self, key: Hashable, make: Callable[[], Tensor]) -> Tensor:
        """The targets of ``key``, which batches of every draw share."""
        if key not in self._targets:
            made = make()
            if not self._takes(made.nbytes):
                return made
            self._targets[key] = made
        return self._targets[key]

    def _takes(self, size: int) -> bool:
        fits = self._bytes + size <= memory.most_kept_bytes()
        self._bytes += size if fits else 0
        return fits
