"""Parts of a tiny run, made as the training loop makes them, for the contracts."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from trainables.build import build_model, build_task, parameter_dtype, placed, weighting_of
from trainables.config.arm import ArmConfig
from trainables.heads.logits import Logits
from trainables.layer_losses import Prediction, introduce
from trainables.tasks.base import Batch, Task, Tokens
from trainables.training import Training

CPU = torch.device("cpu")


def task_of(config: ArmConfig) -> Task:
    """The run's task, which has seen the model's embeddings where it asks for them."""
    task = build_task(config, CPU, parameter_dtype(config))
    introduce(build_model(config, task), task)
    return task


def model_of(config: ArmConfig, task: Task) -> nn.Module:
    """The run's network at its start."""
    return placed(config, build_model(config, task), CPU)


def training_of(config: ArmConfig, task: Task) -> Training:
    """The run before its first step."""
    dtype = parameter_dtype(config)
    weighting = weighting_of(config, task.scales, CPU, dtype, steps_per_epoch=task.steps_per_epoch)
    return Training(config, task, model_of(config, task), weighting)


def moved(model: nn.Module) -> nn.Module:
    """Away from a start at which a parameter may do nothing (UT's W = 0 hides its scores)."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.02 * torch.randn(parameter.shape, generator=generator))
    return model


def as_tensor(prediction: Prediction) -> Tensor:
    """A prediction as a tensor."""
    return prediction.full() if isinstance(prediction, Logits) else prediction


def stacked(predictions: list[Prediction]) -> Tensor:
    """All layers' predictions as one tensor."""
    return torch.stack([as_tensor(prediction).float() for prediction in predictions])


def tensors_in(state: Any) -> Iterator[Tensor]:
    """Every tensor of a nested state."""
    if isinstance(state, Tensor):
        yield state
    elif isinstance(state, dict | list | tuple):
        for part in state.values() if isinstance(state, dict) else state:
            yield from tensors_in(part)


def equal(one: Batch, other: Batch) -> bool:
    """Whether a model is given the same, and should return the same, bit for bit."""
    same = (
        one.units == other.units
        and _layers_of(one) == _layers_of(other)
        and torch.equal(one.targets, other.targets)
    )
    pairs = zip(_tensors_of(one), _tensors_of(other), strict=True)
    return same and all(a is b if a is None or b is None else torch.equal(a, b) for a, b in pairs)


def _layers_of(batch: Batch) -> tuple[int, ...] | None:
    return batch.inputs.layers if isinstance(batch.inputs, Tokens) else None


def _tensors_of(batch: Batch) -> tuple[Tensor | None, ...]:
    given = batch.inputs
    if not isinstance(given, Tokens):
        return (given,)
    return (
        given.ids,
        given.attention_mask,
        given.token_type_ids,
        given.noise,
        given.places,
        given.sampled,
    )


@contextlib.contextmanager
def global_seed(seed: int) -> Iterator[None]:
    """Other draws from every global generator than under another seed, for as long as it lasts."""
    of_python, of_numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)
        try:
            yield
        finally:
            random.setstate(of_python)
            np.random.set_state(of_numpy)
