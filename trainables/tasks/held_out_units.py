"""Base of tasks of videos and texts: device, steps of an epoch, held-out units."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from trainables.config.arm import ArmConfig
from trainables.datasets.by_split import split_named
from trainables.errors import InvalidValue
from trainables.random_keys import keyed_generator
from trainables.tasks.base import autocast_of


def split_seed(config: ArmConfig) -> int | None:
    """Seed that draws dev from the training split; None: dev is the same for all seeds."""
    return config.seed if config.data.split_by_seed else None


class TaskOfUnits(ABC):
    """Base of tasks of videos and of texts: device, steps of an epoch, held-out units."""

    sample_name: str  # what training samples are called in messages
    notes: tuple[str, ...] = ()  # what a reader of results must know of the data, a sentence each

    def __init__(self, config: ArmConfig, device: torch.device, dtype: torch.dtype) -> None:
        self.device, self.dtype = device, dtype
        self.autocast = autocast_of(config)
        self._config = config

    def _count(self, samples: int, advice: str = "Give a smaller batch_size.") -> None:
        """Count the steps of an epoch of so many training samples, and name the evaluated units.

        The incomplete batch is dropped; InvalidValue where there is no other.
        """
        config = self._config
        self.train_units = self.units("train", config.eval_windows)
        self.dev_units = self.units("dev", config.eval_windows)
        self.steps_per_epoch = samples // config.batch_size
        if self.steps_per_epoch == 0:
            raise InvalidValue(
                f"batch_size must be at most {samples}, the number of training "
                f"{self.sample_name}, got {config.batch_size}. {advice}"
            )

    @abstractmethod
    def units(self, split: str, at_most: int) -> tuple[str, ...]:
        """Names of at most ``at_most`` evenly chosen units of ``split``, the same for all seeds."""

    @cached_property
    def test_units(self) -> tuple[str, ...]:
        """Names of all units of the test split, which is opened for confirmation only."""
        return self.units("test", sys.maxsize)

    def _training_gammas(self, step: int, samples: int) -> float | Tensor:
        """The noise of a training batch: one gamma, or one for each of its samples, [B]."""
        low, high = self._config.noise_in_training
        if low == high:
            return low
        generator = keyed_generator(self.device, self._config.seed, "train_gamma", step)
        drawn = torch.rand(samples, generator=generator, device=self.device, dtype=self.dtype)
        return low + (high - low) * drawn

    def _unit_names(self, split: str) -> tuple[str, ...]:
        if split_named(split) == "test":
            return self.test_units
        return self.train_units if split == "train" else self.dev_units

    def _moved(self, batch: Tensor) -> Tensor:
        if self.device.type == "cuda":  # from pinned memory the copy does not block
            return batch.pin_memory().to(self.device, non_blocking=True)
        return batch


def evenly(names: Sequence[str], at_most: int) -> tuple[str, ...]:
    """The middle name of each of ``at_most`` equal stretches; all where there are no more."""
    if len(names) <= at_most:
        return tuple(names)
    return tuple(names[(2 * i + 1) * len(names) // (2 * at_most)] for i in range(at_most))
