"""From a configuration to what an arm trains: its task, and its network at the starting weights."""

from __future__ import annotations

import torch
from torch import nn

from trainables.config import RunConfig
from trainables.models.ut import UT
from trainables.tasks.base import Task
from trainables.tasks.video_denoising import VideoDenoising


def parameter_dtype(config: RunConfig) -> torch.dtype:
    """The type of a run's parameters, batches, losses and multipliers.

    ``bfloat16`` keeps all of them in float32: only the forward pass runs under autocast
    (``layer_losses.py``).
    """
    return torch.float64 if config.dtype == "float64" else torch.float32


def build_task(config: RunConfig, device: torch.device, dtype: torch.dtype) -> VideoDenoising:
    """The task that ``config.task`` names, its data opened.

    Raises:
        BadData, UnknownName, InvalidValue: as the task.
    """
    return VideoDenoising(config, device, dtype)


def build_model(config: RunConfig, task: Task) -> nn.Module:
    """The run's network at its starting weights, on the CPU; move it to ``parameter_dtype``.

    The start depends on the configuration alone, never on global random state.
    """
    return UT(
        layers=config.model.layers,
        patch_size=config.data.patch_size,
        variant=config.model.variant,
        noise_energy=task.scales.identity_loss,
    )
