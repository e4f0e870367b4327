"""The only place where a model meets a task: the predictions of its layers become losses."""

from __future__ import annotations

import torch
from torch import Tensor

from trainables.models.base import LayerwiseModel
from trainables.tasks.base import Batch, Task


def layer_losses(model: LayerwiseModel, task: Task, batch: Batch) -> Tensor:
    """Per-sample loss of every layer's prediction, [L + 1, B], in the task's unit.

    Under ``task.autocast`` only the forward pass is cast: parameters, predictions as the loss sees
    them, losses and all that follows keep the targets' type (decision 0023).
    """
    with torch.autocast(batch.inputs.device.type, task.autocast, enabled=task.autocast is not None):
        predictions = model(batch.inputs)
    return torch.stack([task.loss(p.to(batch.targets.dtype), batch.targets) for p in predictions])
