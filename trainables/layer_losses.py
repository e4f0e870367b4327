"""The only place where a model meets a task: the predictions of its layers become losses."""

from __future__ import annotations

import torch
from torch import Tensor

from trainables.models.base import LayerwiseModel
from trainables.tasks.base import Batch, Task


def layer_losses(model: LayerwiseModel, task: Task, batch: Batch) -> Tensor:
    """Per-sample loss of every layer's prediction, [L + 1, B], in the task's unit."""
    return torch.stack([task.loss(prediction, batch.targets) for prediction in model(batch.inputs)])
