"""Trainings of tiny runs, and their task in another unit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from trainables.build import weighting_of
from trainables.config.arm import ArmConfig
from trainables.models.ut import UT
from trainables.primal_dual.weighting import Weighting
from trainables.tasks.base import Batch
from trainables.tasks.video_denoising import VideoDenoising
from trainables.training import Training

CPU = torch.device("cpu")


def task_of(config: ArmConfig) -> VideoDenoising:
    return VideoDenoising(config, CPU, getattr(torch, config.dtype))


def training_of(config: ArmConfig, task: Any = None) -> Training:
    task = task or task_of(config)
    model = UT(
        layers=config.model.layers,
        patch_size=4,
        variant=config.model.variant,
        noise_energy=task.scales.identity_loss,
    )
    dtype = getattr(torch, config.dtype)
    return Training(config, task, model.to(dtype), weighting_for(config, task, dtype))


def weighting_for(config: ArmConfig, task: Any, dtype: torch.dtype) -> Weighting:
    return weighting_of(config, task.scales, CPU, dtype, steps_per_epoch=task.steps_per_epoch)


class Louder:
    """The same task, its loss in another unit."""

    def __init__(self, task: VideoDenoising, factor: float) -> None:
        self._task, self._factor, self.autocast = task, factor, task.autocast
        self.dtype = task.dtype
        self.steps_per_epoch = task.steps_per_epoch
        self.scales = replace(
            task.scales,
            constant_loss=factor * task.scales.constant_loss,
            identity_loss=factor * task.scales.identity_loss,
        )

    def train_batch(self, step: int) -> Batch:
        return self._task.train_batch(step)

    def loss(self, prediction: Tensor, targets: Tensor) -> Tensor:
        return self._factor * self._task.loss(prediction, targets)
