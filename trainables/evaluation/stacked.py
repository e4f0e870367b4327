"""Held-out passes of several networks at once, as rows of one network on a GPU.

Networks of arms that differ in their constraint see the same held-out batches. Their passes are
taken when the first of them is measured, and the others find them: batches and noise are made once
for all, and the host waits once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.func import functional_call

from trainables.fused.graph import CapturedEvaluation, can_capture, captured
from trainables.fused.update import ROWS, Parameters, rows_of
from trainables.layer_losses import Outcomes, layer_outcomes
from trainables.tasks.base import Batch, Task

T = TypeVar("T")

WORTH_CAPTURING = 12  # passes of one stack, after which the next ones are captured


class StackedNetworks:
    """Networks of one shape, one or more, in stacks of ``ROWS``."""

    def __init__(self, models: Sequence[nn.Module], task: Task) -> None:
        """Copy their parameters, so that they may go on; buffers are the first one's."""
        self.count = len(models)
        self._network, self._task = _Outcomes(models[0], task), task
        self._stacks = [
            rows_of(models[start : start + ROWS]) for start in range(0, len(models), ROWS)
        ]
        self._passes = 0
        self._captured: CapturedEvaluation | None = None
        self._results: dict[Hashable, object] = {}
        self._taken: list[tuple[int, float]] = []  # the row that asked first, and seconds

    def eval(self) -> None:
        """Set the network to evaluation."""
        self._network.eval()

    def outcomes(self, batch: Batch) -> Outcomes:
        """Outcomes of every network on a batch: losses, scores, norms [K, L + 1, B]."""
        parts = [self._of_stack(stack, batch) for stack in self._stacks]
        losses, norms, *scores = (self._joined([*column]) for column in zip(*parts, strict=True))
        return Outcomes(losses, scores[0] if scores else losses, None, norms)

    def _of_stack(self, stack: Parameters, batch: Batch) -> Sequence[Tensor]:
        self._passes += 1
        if self._passes == WORTH_CAPTURING and can_capture(self._network.model, self._task, batch):
            self._captured = captured(lambda: CapturedEvaluation(self._passed, stack, batch))
        if self._captured is not None and self._captured.takes(batch):
            return self._captured.outcomes(stack, batch)
        return self._passed(stack, batch)

    def _passed(self, stack: Parameters, batch: Batch) -> Sequence[Tensor]:
        outcomes: Sequence[Tensor] = torch.vmap(
            lambda row: functional_call(self._network, row, (batch,))
        )(stack)
        return outcomes

    def once(self, key: Hashable, row: int, find: Callable[[], T]) -> T:
        """Result of ``find``, which is called for the first row that asks."""
        if key not in self._results:
            started = time.perf_counter()
            self._results[key] = find()
            self._taken.append((row, time.perf_counter() - started))
        return self._results[key]  # type: ignore[return-value]

    def taken_from(self, number: int) -> list[tuple[int, float]]:
        """Passes from ``number`` on: the row that took it for all, and its seconds."""
        return self._taken[number:]

    def _joined(self, stacks: list[Tensor]) -> Tensor:
        return torch.cat(stacks)[: self.count]


class Row:
    """One network of several that are passed at once."""

    def __init__(self, networks: StackedNetworks, number: int) -> None:
        """Take the network with this number; its seconds are not counted yet."""
        self.networks, self.number = networks, number
        self._accounted = 0

    def owed_seconds(self) -> float:
        """Its part of all passes since the last call, less the time that it took them for all."""
        taken = self.networks.taken_from(self._accounted)
        self._accounted += len(taken)
        own = sum(seconds for row, seconds in taken if row == self.number)
        return sum(seconds for _, seconds in taken) / self.networks.count - own


class _Outcomes(nn.Module):
    """Network whose forward pass returns its outcomes, with parameters that may be exchanged."""

    def __init__(self, model: nn.Module, task: Task) -> None:
        super().__init__()
        self.model = model
        self._task = (task,)

    def forward(self, batch: Batch) -> tuple[Tensor, ...]:
        """Losses, norms, and scores where they are something else."""
        outcomes = layer_outcomes(self.model, self._task[0], batch)
        has_scores = outcomes.scores is not outcomes.losses
        return (outcomes.losses, outcomes.norms, *[outcomes.scores] * has_scores)
