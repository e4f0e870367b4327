"""Task interface: batches, a perturbation, the loss of one prediction, a metric.

A task never sees a model: the two meet in ``layer_losses.py`` alone. Every random draw is keyed by
(seed, purpose, ...) so that both arms of a pair, and a resumed run, see the same numbers.

How texts are disturbed. The noise is on word embeddings, which only the model has. So a task of
texts gives ``Tokens``: the ids, and the noise that it drew for them, in the unit of the embeddings
and zero at padding. ``layer_losses.py`` asks the model for the embeddings, adds the noise and gives
the model the sum. The noise's sigma is gamma times the standard deviation of the clean embeddings
of the training split; the task measures that once (``TokenTask.calibrate``), at the starting
weights, so that it is one number for both arms and does not follow the training. Shifts that move
or drop tokens, or mistype words, change the ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from trainables.config.arm import ArmConfig
from trainables.primal_dual.constraints import Scales

Embed = Callable[[Tensor], Tensor]  # token ids [B, T] -> clean word embeddings [B, T, H]


@dataclass(frozen=True)
class Tokens:
    """A batch of texts as a task gives it: T tokens each, the text first, padding behind it."""

    ids: Tensor  # [B, T] int64
    attention_mask: Tensor  # [B, T] bool: True for tokens, False for padding
    token_type_ids: Tensor | None = None  # [B, T] int64; None where the tokenizer gives none
    noise: Tensor | None = None  # [B, T, H], added to the embeddings, 0 at padding; None: clean
    places: Tensor | None = None
    # ^ [B, A] int64: the tokens that predictions are read off; None: as the model pools them
    sampled: Tensor | None = None
    # ^ [B, K] int64: which of ``places`` inner layers' losses are of, -1 beyond; None: all of them
    layers: tuple[int, ...] | None = None  # before the last, whose losses are taken; None: all

    def __len__(self) -> int:
        """B."""
        return len(self.ids)

    def __getitem__(self, rows: slice) -> Tokens:
        """The same of some rows of the batch, as a tensor's."""

        def of_rows(part: Tensor | None) -> Tensor | None:
            return None if part is None else part[rows]

        return replace(
            self,
            ids=self.ids[rows],
            attention_mask=self.attention_mask[rows],
            token_type_ids=of_rows(self.token_type_ids),
            noise=of_rows(self.noise),
            places=of_rows(self.places),
            sampled=of_rows(self.sampled),
        )


@dataclass(frozen=True)
class Batch:
    """One batch on the run's device: what the model is given, and what it should return."""

    inputs: Tensor | Tokens  # perturbed: [B, T, D] for video, [B, 3, S, S] for frames, or texts
    targets: Tensor
    # ^ clean, same shape; of texts their labels, [B] int64, or the tokens after ``places``, [B, A]
    units: tuple[int, ...] = ()  # per sample, the index of its held-out unit; empty while training
    samples: tuple[int, ...] = ()
    # ^ per sample, its number among all of its split's, unit by unit; empty: in this very order

    def parts(self, count: int) -> list[Batch]:
        """A training batch in ``count`` equal parts, which divides it."""
        if count == 1:
            return [self]
        size = len(self.targets) // count
        return [
            self.rows(slice(start, start + size)) for start in range(0, len(self.targets), size)
        ]

    def rows(self, rows: slice) -> Batch:
        """Some rows of a training batch."""
        return Batch(self.inputs[rows], self.targets[rows])


@dataclass(frozen=True)
class References:
    """Predictors that need no training, measured on the models' own held-out draws, by name."""

    metrics: dict[str, dict[str, float]]  # the task's metric by test gamma ("0.15")
    losses: dict[str, float]  # at train_gamma, in the task's own unit


class Precision(Protocol):
    """Facts of a task that a forward pass needs."""

    dtype: torch.dtype  # of predictions as the loss sees them, of losses and multipliers
    autocast: torch.dtype | None  # what a model's forward pass runs in; None: as its parameters


class TrainingTask(Precision, Protocol):
    """Part of a task that training needs: batches, their loss and its scales."""

    scales: Scales
    steps_per_epoch: int

    def train_batch(self, step: int) -> Batch:
        """The batch of primal step ``step``: a function of (seed, step) and nothing else."""

    def loss(self, prediction: Any, targets: Tensor) -> Tensor:
        """Per-sample loss of one prediction (a tensor, or ``Logits``), [B], in the task's unit."""


class Task(TrainingTask, Protocol):
    """A task bound to one run's data, device and dtype: for training, and for evaluation."""

    dev_units: tuple[str, ...]  # names of the held-out units: windows of held-out clips, or texts
    train_units: tuple[str, ...]  # names of the training units that fresh draws are measured on

    @property
    def test_units(self) -> tuple[str, ...]:
        """Names of the units of the test split, which is opened when they are first asked for."""

    def held_out(self, split: str, gamma: float, draw: int) -> Iterator[Batch]:
        """Batches over the units of ``split`` (train, dev or test), perturbed by draw ``draw``."""

    def shifted(self, split: str, shift: str, severity: float, draw: int) -> Iterator[Batch]:
        """Batches as ``held_out`` at train_gamma, with a shift of ``test_conditions.FAMILIES``."""

    def scores(self, prediction: Any, targets: Tensor, losses: Tensor) -> Tensor:
        """Per sample, what the metric is made of the mean of, [B]: in text 1 where it is right.

        ``losses``, the very tensor, where the metric follows from the mean loss.
        """

    def metric(self, mean_score: float) -> float:
        """The reported metric (``config.facts.metric``) from a split's mean last-layer score."""

    def unchanged_losses(self, batch: Batch) -> Tensor | None:
        """Loss of the input itself as the prediction, [B]; None where it is no prediction."""

    def references(self, split: str = "dev") -> References:
        """References on a split: 'constant', and 'identity' where the input is a prediction."""


@runtime_checkable
class TokenTask(Protocol):
    """Extension of ``Task`` whose batches hold ``Tokens``."""

    vocabulary: int  # token ids are below it

    def calibrate(self, embed: Embed) -> None:
        """Measure the clean embeddings of the training split: sigma's unit, and H.

        To be called once, before any batch with noise is asked for, with the model's embeddings at
        its starting weights.
        """


@runtime_checkable
class LabelTask(TokenTask, Protocol):
    """Extension of ``TokenTask`` whose texts have labels."""

    classes: int  # how many labels there are: the width of a prediction


@dataclass(frozen=True)
class Prompt:
    """Text that a network answers, with its tokens and their noise."""

    text: str
    reference: str  # the data set's answer
    ids: Sequence[int]  # of the text
    noise: Callable[[float, int], Tensor]  # at a gamma, of the token at a place: [H]


@runtime_checkable
class Asks(Precision, Protocol):
    """Extension of ``TokenTask`` whose texts are answered in words."""

    device: torch.device
    end: int  # the token that ends an answer
    longest: int  # tokens of prompt and answer

    def prompts(self, split: str, count: int) -> list[Prompt]:
        """Choose at most ``count`` prompts of ``split`` evenly, the same for all arms and seeds."""

    def unseen_prompts(self, count: int) -> list[Prompt]:
        """Prompts of dev units that no arm is measured on; of measured units, where all are.

        Fewer are a part of more.
        """

    def prompt(self, instruction: str, context: str = "") -> Prompt:
        """Prompt that is in no data set, in the run's template, its noise keyed by its text.

        Raises InvalidValue where it leaves no room for an answer.
        """

    def text(self, ids: Sequence[int]) -> str:
        """The text of some tokens."""


@runtime_checkable
class ScoresWithLosses(Protocol):
    """Extension of ``Task`` that gets losses and scores from one pass through a head."""

    def judged(self, prediction: Any, targets: Tensor) -> tuple[Tensor, Tensor]:
        """``loss`` and ``scores`` of one prediction."""


def autocasting(precision: Precision, device: torch.device) -> torch.autocast:
    """Context of a forward pass on a device; it does nothing without ``autocast``."""
    # The forward pass alone: in bfloat16 small updates of weights and multipliers would vanish.
    cast = precision.autocast
    return torch.autocast(device.type, cast, enabled=cast is not None)


def autocast_of(config: ArmConfig) -> torch.dtype | None:
    """The type that a run's forward pass is cast to: bfloat16 where ``config.dtype`` says so."""
    return torch.bfloat16 if config.dtype == "bfloat16" else None
