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
    predictions = _predictions(model, task, batch)
    return torch.stack([task.loss(p, batch.targets) for p in predictions])


def layer_outcomes(model: Model | nn.Module, task: Task, batch: Batch) -> tuple[Tensor, Tensor]:
    """``layer_losses``, and the scores of the same predictions, [L + 1, B] both.

    One tensor twice where the scores are the losses.
    """
    losses, scores = [], []
    for prediction in _predictions(model, task, batch):
        losses.append(task.loss(prediction, batch.targets))
        scores.append(task.scores(prediction, batch.targets, losses[-1]))
    losses_FB = torch.stack(losses)
    if all(score is loss for score, loss in zip(scores, losses, strict=True)):
        return losses_FB, losses_FB
    return losses_FB, torch.stack(scores)


def _predictions(model: Model | nn.Module, task: Task, batch: Batch) -> list[Tensor]:
    """Of layers 0..L, in the type that losses are taken in."""
    device = batch.targets.device.type
    with torch.autocast(device, task.autocast, enabled=task.autocast is not None):
        predictions = _forward(model, batch)
    return [prediction.to(task.dtype) for prediction in predictions]


def _forward(model: Model | nn.Module, batch: Batch) -> list[Tensor]:
    inputs = batch.inputs
    if not isinstance(inputs, Tokens):
        return cast(LayerwiseModel, model)(inputs)
    of_texts = cast(TextModel, model)
    embeddings = of_texts.embed(inputs.ids)
    if inputs.noise is not None:
        embeddings = embeddings + inputs.noise
    return of_texts(TextInputs(embeddings, inputs.attention_mask, inputs.token_type_ids))
