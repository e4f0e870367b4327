"""The only place where a model meets a task: predictions of every layer become a [L + 1, B] tensor of losses."""

from __future__ import annotations

import torch
from torch import Tensor

from trainables.models.base import LayerwiseModel
from trainables.tasks.base import Batch, Task


def layer_losses(model: LayerwiseModel, task: Task, batch: Batch) -> Tensor:
    """Per-sample loss of every layer's prediction, [L + 1, B], in the task's own unit; layer 0 first."""
    return torch.stack([task.loss(prediction, batch.targets) for prediction in model(batch.inputs)])
