"""Base of the tasks of texts: tokens, noise on embeddings, batches, units.

The noise is n ~ N(0, sigma^2), drawn per coordinate of every token, special ones included, never on
padding; sigma = gamma x std, one scalar over the clean word embeddings of the training split's
tokens (docs/method.md, The task).

A held-out unit is a group of texts that belong together: one review, or those of one film; a
premise with its hypotheses; an instruction with its inputs. Shape suffixes: N samples of a split, B
batch, T tokens, H width.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainables.config.arm import ArmConfig
from trainables.datasets.text.bucketing import bucketed_order
from trainables.datasets.text.load import load_text
from trainables.datasets.text.tokenized import PaddedBatch, tokenized
from trainables.datasets.text.tokenizer import Tokenizer, load_tokenizer
from trainables.random_keys import keyed_generator
from trainables.registry.task_facts import SAMPLES_PER_UNIT
from trainables.tasks.base import Batch, Embed, Tokens
from trainables.tasks.held_out_units import TaskOfUnits, evenly, split_seed

Ints = NDArray[np.int64]
_EVAL_SAMPLES = 64  # of a held-out batch, at most; scores do not depend on it but for rounding
_EVAL_TOKENS = 8192  # of a held-out batch, padding included, at most; a longer text goes alone
_EMBEDDED_AT_ONCE = 4096  # words, to bound memory


@dataclass(frozen=True)
class Text:
    """One sample of a held-out unit, disturbed or not, without noise."""

    unit: int  # index of its unit among those that are evaluated
    place: int  # its own index among all samples of those units, unit by unit
    key: tuple[str, int]  # the unit's name, and which of its samples this is: for its draws
    ids_T: Ints
    types_T: Ints | None
    label: int


class TextTask(TaskOfUnits):
    """Base of all tasks of texts."""

    sample_name = "texts"

    def __init__(self, config: ArmConfig, device: torch.device, dtype: torch.dtype) -> None:
        """Open the data set that ``config.data`` names, as tokens of the model's own tokenizer.

        Raises:
            BadData, UnknownName, InvalidValue: as ``load_text`` and ``tokenized``; or batch_size
                exceeds the training samples.
        """
        super().__init__(config, device, dtype)
        facts, data = config.facts, config.data
        self.texts = load_text(data, split_seed(config), facts.data_group)
        if config.measured_on == "test" and (shared := self.texts.shared):
            self.notes = (
                f"{shared:,} of the {self.texts.lengths['test']:,} test examples have a text that "
                f"training had, too ({self.texts.name} as it lies there): of these the test split "
                "says nothing about new texts, in either arm.",
            )
        self._tokenizer_place = str(config.model.checkpoint)
        self.tokens = tokenized(
            data, self.texts, self._tokenizer_place, data.max_length, answers=facts.answers
        )
        self.vocabulary = self.tokens.vocabulary
        self._count(len(self.tokens.train))
        self._order: tuple[int, list[Ints]] = (-1, [])
        self._read: dict[str, list[Text]] = {}  # of evaluated units, by split
        self._embedding_std = float("nan")
        self._width = 0  # H; 0: no embeddings were shown yet

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Tokenizer of the run's checkpoint."""
        return load_tokenizer(self._tokenizer_place, answers=self._config.facts.answers)

    def metric(self, mean_score: float) -> float:
        """Accuracy in [0, 1], of labels or of tokens; higher is better."""
        return mean_score

    def unchanged_losses(self, batch: Batch) -> None:
        """No losses: a text is neither a label nor an answer."""

    # --- the noise --------------------------------------------------------------------------------

    def calibrate(self, embed: Embed) -> None:
        """Measure std and width of the clean embeddings of all training tokens, in float64."""
        counts_V = np.bincount(self.tokens.train.ids_M, minlength=1)
        words = np.flatnonzero(counts_V)
        sums, squares = 0.0, 0.0
        for first in range(0, len(words), _EMBEDDED_AT_ONCE):
            chosen = words[first : first + _EMBEDDED_AT_ONCE]
            ids = torch.from_numpy(chosen)[None].to(self.device)
            rows_VH = embed(ids)[0].double().cpu().numpy()
            sums += float(counts_V[chosen] @ rows_VH.sum(axis=1))
            squares += float(counts_V[chosen] @ np.square(rows_VH).sum(axis=1))
            self._width = rows_VH.shape[1]
        total = float(counts_V.sum()) * self._width
        self._embedding_std = float(np.sqrt(squares / total - (sums / total) ** 2))

    @property
    def embedding_std(self) -> float:
        """Standard deviation of the clean training embeddings: the noise's sigma at gamma 1."""
        assert self._width, "calibrate() comes first"
        return self._embedding_std

    # --- batches ----------------------------------------------------------------------------------

    def train_batch(self, step: int) -> Batch:
        """The batch of primal step ``step`` >= 0: a function of (seed, step) and nothing else.

        Every epoch visits the training texts in a new keyed order, those of like length together.
        On CUDA nothing waits for the device.
        """
        config, split = self._config, self.tokens.train
        epoch, k = divmod(step, self.steps_per_epoch)
        chosen_B = self._epoch_order(epoch)[k]
        tokens, targets = self._posed(split.padded(chosen_B), split.labels_N[chosen_B])
        if config.noise_in_training[1] > 0:
            generator = keyed_generator(self.device, config.seed, "train_noise", step)
            shape = (*tokens.ids.shape, self._width)
            drawn = torch.randn(shape, generator=generator, device=self.device, dtype=self.dtype)
            gammas = self._training_gammas(step, len(chosen_B))
            sigma = gammas * self.embedding_std
            sigma = sigma.view(-1, 1, 1) if isinstance(sigma, Tensor) else sigma
            noise_BTH = drawn.mul_(sigma).mul_(tokens.attention_mask.unsqueeze(-1))
            tokens = replace(tokens, noise=noise_BTH)
        return Batch(tokens, targets)

    def held_out(self, split: str, gamma: float, draw: int) -> Iterator[Batch]:
        """Batches over the units of ``split`` ("train", "dev" or "test"), perturbed at ``gamma``.

        The noise of a sample is keyed by (split, unit, sample, gamma, draw) and by neither the
        training seed nor the model's weights, the batch or its padding: both arms of a pair and
        every proposal are judged on the same draws. It is drawn on the CPU in float32.
        """
        return self._batches(split, self._texts(split), gamma, draw)

    def _batches(
        self, split: str, texts: Sequence[Text], gamma: float, draw: int
    ) -> Iterator[Batch]:
        """The texts by rising length, as many at once as _EVAL_SAMPLES and _EVAL_TOKENS allow."""
        waiting: list[Text] = []
        for text in sorted(texts, key=lambda text: len(text.ids_T)):
            size = len(waiting) + 1
            if waiting and (size > _EVAL_SAMPLES or size * len(text.ids_T) > _EVAL_TOKENS):
                yield self._batch(split, waiting, gamma, draw)
                waiting = []
            waiting.append(text)
        if waiting:
            yield self._batch(split, waiting, gamma, draw)

    def _batch(self, split: str, texts: Sequence[Text], gamma: float, draw: int) -> Batch:
        shape = (len(texts), max(len(text.ids_T) for text in texts))
        ids = np.full(shape, self.tokens.pad_id, dtype=np.int64)
        types = None if texts[0].types_T is None else np.zeros(shape, dtype=np.int64)
        mask = np.zeros(shape, dtype=np.bool_)
        noise = torch.zeros(*shape, self._width) if gamma > 0 else None
        for row, text in enumerate(texts):
            length = len(text.ids_T)
            ids[row, :length], mask[row, :length] = text.ids_T, True
            if types is not None and text.types_T is not None:
                types[row, :length] = text.types_T
            if noise is not None:
                # A draw per text, on the CPU: batches, padding and device change no score.
                generator = keyed_generator("cpu", split, *text.key, float(gamma), draw)
                drawn_TH = torch.randn(length, self._width, generator=generator)
                noise[row, :length] = drawn_TH.mul_(gamma * self.embedding_std)
        labels_B = np.array([text.label for text in texts])
        tokens, targets = self._posed(PaddedBatch(ids, mask, types), labels_B)
        if noise is not None:
            tokens = replace(tokens, noise=self._moved(noise).to(self.dtype))
        places = tuple(text.place for text in texts)
        return Batch(tokens, targets, tuple(text.unit for text in texts), places)

    @abstractmethod
    def _posed(self, padded: PaddedBatch, labels_B: Ints) -> tuple[Tokens, Tensor]:
        """Clean samples as a model is given them, and what it should return, on the device."""

    # --- units ------------------------------------------------------------------------------------

    def units(self, split: str, at_most: int) -> tuple[str, ...]:
        """Names of at most ``at_most`` evenly chosen groups of ``split``, the same for all seeds.

        A group's name is a hash of its texts, so even choices among sorted names are random ones.
        Where groups are large, such as all reviews of a film, there are fewer of them: about
        SAMPLES_PER_UNIT x ``at_most`` samples cost as much time as that many small groups.
        """
        tokens = self.tokens.split(split)
        names = tokens.group_names
        within = at_most * SAMPLES_PER_UNIT * len(names) / max(1, len(tokens))
        return evenly(names, min(at_most, math.ceil(within)))

    def _unit_samples(self, split: str) -> list[Ints]:
        """``_samples_of`` of the evaluated units."""
        return self._samples_of(split, self._unit_names(split))

    def _samples_of(self, split: str, names: Sequence[str]) -> list[Ints]:
        """Per group, the indices of its samples in ``split``, rising."""
        tokens = self.tokens.split(split)
        place = {name: i for i, name in enumerate(tokens.group_names)}
        by_group = np.argsort(tokens.groups_N, kind="stable")
        ends = np.searchsorted(tokens.groups_N[by_group], np.arange(len(place) + 1))
        return [by_group[ends[place[name]] : ends[place[name] + 1]] for name in names]

    def _texts(self, split: str) -> list[Text]:
        """The samples of every evaluated unit, unit by unit, undisturbed."""
        if split not in self._read:
            tokens, names = self.tokens.split(split), self._unit_names(split)
            texts: list[Text] = []
            for unit, samples in enumerate(self._unit_samples(split)):
                for k, index in enumerate(samples.tolist()):
                    rows = slice(int(tokens.offsets[index]), int(tokens.offsets[index + 1]))
                    ids_T, types_T = tokens.ids_M[rows].astype(np.int64), None
                    if tokens.types_M is not None:
                        types_T = tokens.types_M[rows].astype(np.int64)
                    label = int(tokens.labels_N[index])
                    texts.append(Text(unit, len(texts), (names[unit], k), ids_T, types_T, label))
            self._read[split] = texts
        return self._read[split]

    def _epoch_order(self, epoch: int) -> list[Ints]:
        if self._order[0] != epoch:
            config = self._config
            generator = keyed_generator("cpu", config.seed, "order", epoch)
            batches = bucketed_order(self.tokens.train.lengths_N, config.batch_size, generator)
            self._order = (epoch, [b for b in batches if len(b) == config.batch_size])
        return self._order[1]

    def _on_device(self, array: NDArray[np.int64] | NDArray[np.bool_]) -> Tensor:
        return self._moved(torch.from_numpy(np.ascontiguousarray(array)))
