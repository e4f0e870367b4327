"""The only place where a model meets a task: the predictions of its layers become losses."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from trainables.models.base import LayerwiseModel, TextInputs, TextModel
from trainables.tasks.base import Batch, Task, Tokens, TokenTask

Model = LayerwiseModel | TextModel


def introduce(model: Model | nn.Module, task: Task) -> None:
    """Show a task of texts the model's embeddings; once, while the model has its starting weights.

    Other tasks need to know nothing of a model.
    """
    if isinstance(task, TokenTask):
        with torch.no_grad():
            task.calibrate(cast(TextModel, model).embed)


def layer_losses(model: Model | nn.Module, task: Task, batch: Batch) -> Tensor:
    """Per-sample loss of every layer's prediction, [L + 1, B], in the task's unit.

    Under ``task.autocast`` only the forward pass is cast: parameters, predictions as the loss sees
    them, losses and all that follows are of ``task.dtype`` (decision 0023).
    """
    with torch.autocast(
        batch.targets.device.type, task.autocast, enabled=task.autocast is not None
    ):
        predictions = _predictions(model, batch)
    return torch.stack([task.loss(p.to(task.dtype), batch.targets) for p in predictions])


def _predictions(model: Model | nn.Module, batch: Batch) -> list[Tensor]:
    inputs = batch.inputs
    if not isinstance(inputs, Tokens):
        return cast(LayerwiseModel, model)(inputs)
    of_texts = cast(TextModel, model)
    embeddings = of_texts.embed(inputs.ids)
    if inputs.noise is not None:
        embeddings = embeddings + inputs.noise
    return of_texts(TextInputs(embeddings, inputs.attention_mask, inputs.token_type_ids))
