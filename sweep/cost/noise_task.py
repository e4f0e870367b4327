"""Tasks of noise in place of a run's own, for what a step costs without data."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from trainables.build import parameter_dtype
from trainables.config.arm import ArmConfig
from trainables.heads.logits import Logits
from trainables.primal_dual.constraints import Scales
from trainables.random_keys import keyed_generator
from trainables.tasks.base import Batch, Embed, Tokens, TrainingTask, autocast_of
from trainables.tasks.perturbations import gaussian

_VARIANCE = 0.02


class NoiseTask:
    """A training task of noise in the shape of the run's own samples."""

    steps_per_epoch = 1000

    def __init__(self, config: ArmConfig) -> None:
        shape = (config.batch_size, *config.facts.sample_shape(config.data))
        numbers = float(torch.Size(shape[1:]).numel())
        self.autocast = autocast_of(config)
        self.scales = Scales(constant_loss=numbers, identity_loss=_VARIANCE * numbers)
        self.dtype = parameter_dtype(config)
        self._clean = torch.randint(0, 256, shape, dtype=torch.uint8)

    def train_batch(self, step: int) -> Batch:
        """The same clean samples with new noise."""
        targets = self._clean.to(self.dtype).div_(255)
        generator = keyed_generator("cpu", "noise task", step)
        return Batch(gaussian(targets, _VARIANCE, generator), targets)

    def loss(self, prediction: Any, targets: Tensor) -> Tensor:
        """Sum of squares over a sample: [B] from two of the samples' shape."""
        squares: Tensor = (prediction - targets).square()
        return squares.flatten(1).sum(-1)


class NoiseTexts(NoiseTask):
    """The same for models of texts: one token over and over, and two labels."""

    classes = 2
    vocabulary = 0  # of its tokenizer; there is none

    def calibrate(self, embed: Embed) -> None:
        """No noise is added to the embeddings."""

    def train_batch(self, step: int) -> Batch:
        """Texts without padding, all of one length."""
        ids = torch.zeros(self._clean.shape, dtype=torch.int64)
        return Batch(Tokens(ids, torch.ones_like(ids, dtype=torch.bool)), ids[:, 0])

    def loss(self, prediction: Tensor, targets: Tensor) -> Tensor:
        """As in text classification: [B] from logits [B, classes] and labels [B]."""
        return cross_entropy(prediction, targets, reduction="none")


class NoiseAnswers(NoiseTask):
    """The same for decoders: every token after the first is an answer's."""

    vocabulary = 0  # of its tokenizer; there is none

    def __init__(self, config: ArmConfig) -> None:
        super().__init__(config)
        self._share, self._layers = 1.0, None
        if config.constraint is not None:
            self._share = config.constraint.inner_tokens
            count, first = config.constraint.inner_layers, config.constraint.first_layer
            self._layers = None if count is None else tuple(range(first, first + count))

    def calibrate(self, embed: Embed) -> None:
        """No noise is added to the embeddings."""

    def train_batch(self, step: int) -> Batch:
        """Texts of one length, whose every prediction counts; of a sample the first few do."""
        ids = torch.zeros(self._clean.shape, dtype=torch.int64)
        places = torch.arange(ids.shape[1] - 1).expand(len(ids), -1)
        few = places[:, : math.ceil(self._share * places.shape[1])]
        tokens = Tokens(
            ids,
            torch.ones_like(ids, dtype=torch.bool),
            places=places,
            sampled=None if self._share == 1.0 else few,
            layers=self._layers,
        )
        return Batch(tokens, ids[:, 1:])

    def loss(self, prediction: Logits, targets: Tensor) -> Tensor:
        """As in instruction tuning: [B] from logits [B, A, V] and tokens [B, A]."""
        return prediction.judged(targets).losses.mean(dim=-1).to(self.dtype)


def noise_task(config: ArmConfig) -> TrainingTask:
    """The task of noise that stands for the run's own."""
    if config.facts.answers:
        return NoiseAnswers(config)
    return NoiseTexts(config) if config.facts.reads_texts else NoiseTask(config)
