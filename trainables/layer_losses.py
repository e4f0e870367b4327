"""Layer losses of a model's predictions: the only place where it meets a task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from trainables.config.arm import ArmConfig
from trainables.errors import Misuse
from trainables.heads.logits import Logits
from trainables.heads.token_losses import IGNORED
from trainables.models.base import LastPrediction, LayerwiseModel, TextInputs, TextModel
from trainables.tasks.base import (
    Batch,
    Precision,
    ScoresWithLosses,
    Task,
    Tokens,
    TokenTask,
    TrainingTask,
    autocasting,
)

Model = LayerwiseModel | TextModel
Prediction = Tensor | Logits


def introduce(model: Model | nn.Module, task: TrainingTask) -> None:
    """Show a task of texts the model's embeddings; once, while the model has its starting weights.

    Other tasks need to know nothing of a model.
    """
    if isinstance(task, TokenTask):
        with torch.no_grad():
            task.calibrate(cast(TextModel, model).embed)


@dataclass(frozen=True)
class Outcomes:
    """Losses, scores and features of every layer on one batch."""

    losses: Tensor  # [L + 1, B], in the task's unit
    scores: Tensor  # [L + 1, B]: what the metric is the mean of; the losses themselves in denoising
    features: list[Tensor] | None  # of texts with labels, [B, H] per layer: what the readout sees
    norms: Tensor
    # ^ [L + 1, B]: root mean square of what the readout sees, of predictions where there is none


def layer_losses(
    model: Model | nn.Module, task: TrainingTask, batch: Batch, *, trains_last_alone: bool = False
) -> Tensor:
    """Per-sample loss of every layer's prediction, [L + 1, B], in the task's unit.

    Under ``task.autocast`` only the forward pass is cast: parameters, predictions as the loss sees
    them, losses and all that follows are of ``task.dtype``. With ``trains_last_alone`` the losses
    before the last have no gradient: what has weight 0 is only measured, not passed back through.
    Of a batch with sampled tokens those before the last are unbiased estimates
    (heads/loss_estimators.py), with the last one's as control variate. Of one with drawn layers
    those of the others are 0.
    """
    *inner, last = layer_predictions(model, task, batch)
    if trains_last_alone:
        inner = [prediction.detach() for prediction in inner]
    if not isinstance(last, Logits):
        return torch.stack([task.loss(p, batch.targets) for p in (*inner, last)])
    assert isinstance(batch.inputs, Tokens)
    drawn, sampled = batch.inputs.layers, batch.inputs.sampled
    read, targets = cast(list[Logits], inner), batch.targets
    if drawn is not None:
        read = [read[layer] for layer in drawn]
    whole_B = task.loss(last, targets)
    if sampled is None:
        found_MB = task.loss(Logits.stacked(read), targets)
    else:
        places = sampled.clamp(min=0)  # -1 is no index; what it picks has no target below
        targets = targets.gather(1, places).where(sampled >= 0, IGNORED)
        # Of the value alone: the gradient of a control has mean 0, and would add noise and a pass.
        control_B = (whole_B - task.loss(last.select(places).detach(), targets)).detach()
        few = Logits.stacked([prediction.select(places) for prediction in read])
        found_MB = task.loss(few, targets) + control_B
    if drawn is None:
        return torch.cat([found_MB, whole_B[None]])
    rows = dict(zip(drawn, found_MB.unbind(), strict=True))
    nothing_B = torch.zeros_like(whole_B)
    return torch.stack([*(rows.get(layer, nothing_B) for layer in range(len(inner))), whole_B])


def require_every_layer(config: ArmConfig, count: int) -> None:
    """Raise Misuse unless a network made L + 1 predictions, of which ``count`` is the number."""
    wanted = config.model.layers + 1
    if count != wanted:
        raise Misuse(
            f"model {config.model.name!r} must return L + 1 = {wanted} predictions, one before its "
            f"first layer and one after each, got {count}."
        )


def last_loss(model: Model | nn.Module, task: TrainingTask, batch: Batch) -> Tensor:
    """The last row of ``layer_losses`` bit for bit, [1, B], without the work of the others."""
    (prediction,), _ = _forward(model, task, batch, last_alone=True)
    return torch.stack([task.loss(prediction, batch.targets)])  # no view: sharding refuses those


def layer_predictions(model: Model | nn.Module, task: Precision, batch: Batch) -> list[Prediction]:
    """The predictions of layers 0..L, in the type that losses are taken in."""
    predictions, _ = _forward(model, task, batch)
    return predictions


def layer_outcomes(model: Model | nn.Module, task: Task, batch: Batch) -> Outcomes:
    """``layer_losses``, and the scores and features of the same forward pass."""
    predictions, features = _forward(model, task, batch)
    losses, scores = [], []
    for prediction in predictions:
        if isinstance(task, ScoresWithLosses):
            loss, score = task.judged(prediction, batch.targets)
        else:
            loss = task.loss(prediction, batch.targets)
            score = task.scores(prediction, batch.targets, loss)
        losses.append(loss)
        scores.append(score)
    losses_FB = torch.stack(losses)
    if isinstance(predictions[0], Logits):
        norms_FB = torch.stack([_rms_at(state, batch.targets) for state in features or ()])
        return Outcomes(losses_FB, torch.stack(scores), None, norms_FB)
    seen = features or cast(list[Tensor], predictions)
    norms_FB = torch.stack([_rms(state) for state in seen])
    if all(score is loss for score, loss in zip(scores, losses, strict=True)):
        return Outcomes(losses_FB, losses_FB, features, norms_FB)
    return Outcomes(losses_FB, torch.stack(scores), features, norms_FB)


def _rms(state: Tensor) -> Tensor:
    """Root mean square of each sample [B] of a state [B, ...]."""
    return state.flatten(1).square().mean(dim=1).sqrt()


def _rms_at(state_BAH: Tensor, targets_BA: Tensor) -> Tensor:
    """The same [B] of states [B, A, H] where there is a target."""
    there_BA = (targets_BA != IGNORED).to(state_BAH.dtype)
    squares_BA = state_BAH.square().mean(dim=-1) * there_BA
    return (squares_BA.sum(dim=1) / there_BA.sum(dim=1)).sqrt()


def _forward(
    model: Model | nn.Module, task: Precision, batch: Batch, *, last_alone: bool = False
) -> tuple[list[Prediction], list[Tensor] | None]:
    """Predictions of layers 0..L, or L alone; of texts all features that the readout is given."""
    features, wanted = None, slice(-1, None) if last_alone else slice(None)
    with autocasting(task, batch.targets.device):
        if isinstance(batch.inputs, Tokens):
            of_texts, tokens = cast(TextModel, model), batch.inputs
            embeddings = of_texts.embed(tokens.ids)
            if tokens.noise is not None:
                embeddings = embeddings + tokens.noise
            inputs = TextInputs(
                embeddings, tokens.attention_mask, tokens.token_type_ids, tokens.places
            )
            features = of_texts.features(inputs)
            predictions: list[Prediction] = [of_texts.readout(f) for f in features[wanted]]
        elif last_alone and isinstance(model, LastPrediction):
            predictions = [model.last(batch.inputs)]
        else:
            predictions = list(cast(LayerwiseModel, model)(batch.inputs)[wanted])
    if features is None:
        _require_shape(cast(nn.Module, model), batch.targets, cast(list[Tensor], predictions))
    return [prediction.to(task.dtype) for prediction in predictions], features


def _require_shape(model: nn.Module, targets: Tensor, predictions: Sequence[Tensor]) -> None:
    """Raise Misuse where a prediction has another shape than its target: some would broadcast."""
    for prediction in predictions:
        if prediction.shape != targets.shape:
            kind = type(model)
            raise Misuse(
                f"network {kind.__module__}.{kind.__qualname__} must return predictions of shape "
                f"{list(targets.shape)} here, as their targets are, got {list(prediction.shape)}."
            )
