"""What a task is: batches, a perturbation, the loss of one prediction, and a metric.

A task never sees a model: the two meet in ``layer_losses.py`` alone. Every random draw is keyed by
(seed, purpose, ...) so that both arms of a pair, and a resumed run, see the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from trainables.config import RunConfig
from trainables.primal_dual import Scales


@dataclass(frozen=True)
class Batch:
    """One batch on the run's device: what the model is given, and what it should return."""

    inputs: Tensor  # perturbed, [B, T, D] for video, [B, 3, S, S] for frames
    targets: Tensor  # clean, same shape
    units: tuple[int, ...] = ()  # per sample, the index of its held-out unit; empty while training


class References(Protocol):
    """Predictors that need no training, measured on the models' own held-out draws, by name."""

    @property
    def metrics(self) -> dict[str, dict[str, float]]:
        """The task's metric by test gamma ("0.15")."""
        ...

    @property
    def losses(self) -> dict[str, float]:
        """Loss at train_gamma, in the task's own unit."""
        ...


class Task(Protocol):
    """A task bound to one run's data, device and dtype."""

    scales: Scales
    autocast: torch.dtype | None  # what a model's forward pass runs in; None: as its parameters
    dev_units: tuple[str, ...]  # names of the held-out units (windows of whole held-out clips)
    train_units: tuple[str, ...]  # names of the training units that fresh draws are measured on
    steps_per_epoch: int

    def train_batch(self, step: int) -> Batch:
        """The batch of primal step ``step``: a function of (seed, step) and nothing else."""
        ...

    def held_out(self, split: str, gamma: float, draw: int) -> Iterator[Batch]:
        """Batches over the units of ``split`` (train, dev or test), perturbed by draw ``draw``."""
        ...

    def shifted(self, split: str, shift: str, severity: float, draw: int) -> Iterator[Batch]:
        """As ``held_out`` at train_gamma, disturbed by a family of ``shifts.FAMILIES`` as well."""
        ...

    def loss(self, prediction: Tensor, targets: Tensor) -> Tensor:
        """Per-sample loss of one prediction, [B], in the task's own unit."""
        ...

    def metric(self, mean_loss: float) -> float:
        """The reported metric from a split's mean last-layer loss (video: RMSE in grey levels)."""
        ...


def autocast_of(config: RunConfig) -> torch.dtype | None:
    """The type that a run's forward pass is cast to: bfloat16 where ``config.dtype`` says so."""
    return torch.bfloat16 if config.dtype == "bfloat16" else None
