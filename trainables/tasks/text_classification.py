"""Classification of texts whose word embeddings are disturbed by Gaussian noise.

A sample is one text, or two merged as the tokenizer merges pairs. The loss is the cross entropy of
the label, in nats; the metric the share of samples whose largest logit is the label's, each sample
counted alike. The noise is n ~ N(0, sigma^2), drawn per coordinate of every token, special ones
included, never on padding; sigma = gamma x std, one scalar over the clean word embeddings of the
training split's tokens (docs/method.md, The task; decision: noise on words is keyed by sample).

The best constant prediction are the label frequencies of the training split, whose entropy is the
unit of every loss. The input is no prediction: where denoising has the identity, the constant
prediction stands (decision: the constant stands for the identity).

A held-out unit is a group of texts that belong together: one review, or those of one film; a
premise with its hypotheses. Shape suffixes: N samples of a split, B batch, T tokens, H width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainables.config.arm import ArmConfig
from trainables.config.test_conditions import TEXT_FAMILIES, gamma_key
from trainables.datasets.text.bucketing import bucketed_order
from trainables.datasets.text.examples import Example
from trainables.datasets.text.load import load_text
from trainables.datasets.text.tokenized import tokenized
from trainables.datasets.text.tokenizer import Tokenizer, encode, load_tokenizer
from trainables.errors import UnknownName
from trainables.primal_dual.constraints import Scales
from trainables.random_keys import keyed_generator
from trainables.registry.task_facts import SAMPLES_PER_UNIT
from trainables.tasks.base import (
    Batch,
    Embed,
    References,
    TaskOfUnits,
    Tokens,
    evenly,
    split_seed,
)
from trainables.tasks.text_shifts import kept_tokens, mistyped, swapped_tokens

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


Draws = Callable[[Text], torch.Generator]  # where a text's draws come from


class TextClassification(TaskOfUnits):
    """The task of one run, as ``tasks/base.py`` asks."""

    sample_name = "texts"

    def __init__(self, config: ArmConfig, device: torch.device, dtype: torch.dtype) -> None:
        """Open the data set that ``config.data`` names, as tokens of the model's own tokenizer.

        Raises:
            BadData, UnknownName, InvalidValue: as ``load_text`` and ``tokenized``; or batch_size
                exceeds the training samples.
        """
        super().__init__(config, device, dtype)
        self.texts = load_text(config.data, split_seed(config))
        self._tokenizer_place = str(config.model.checkpoint)
        self.tokens = tokenized(
            config.data, self.texts, self._tokenizer_place, config.data.max_length
        )
        self.classes = len(self.texts.labels)
        self.vocabulary = self.tokens.vocabulary
        counts = np.bincount(self.tokens.train.labels_N, minlength=self.classes)
        self.frequencies = counts / counts.sum()  # of the labels, in the training split
        entropy = float(-(self.frequencies * np.log(self.frequencies)).sum())
        self.scales = Scales(constant_loss=entropy, identity_loss=entropy)
        self._count(len(self.tokens.train))
        self._order: tuple[int, list[Ints]] = (-1, [])
        self._read: dict[str, list[Text]] = {}  # of evaluated units, by split
        self._embedding_std = float("nan")
        self._width = 0  # H; 0: no embeddings were shown yet

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
        """Of the clean word embeddings of the training split: the noise's sigma at gamma 1."""
        assert self._width, "calibrate() comes first"
        return self._embedding_std

    # --- what a prediction is judged by -----------------------------------------------------------

    def loss(self, prediction: Tensor, targets: Tensor) -> Tensor:
        """Cross entropy in nats, [B] from logits [B, classes] and labels [B]."""
        return torch.nn.functional.cross_entropy(prediction, targets, reduction="none")

    def scores(self, prediction: Tensor, targets: Tensor, losses: Tensor) -> Tensor:
        """1 where the largest logit is the label's, else 0; NaN where a logit is none: [B]."""
        right_B = (prediction.argmax(dim=-1) == targets).to(prediction.dtype)
        return right_B.where(prediction.isfinite().all(dim=-1), torch.nan)

    def metric(self, mean_score: float) -> float:
        """Accuracy in [0, 1]; higher is better."""
        return mean_score

    def unchanged_losses(self, batch: Batch) -> None:
        """A text is no label."""

    def references(self, split: str = "dev") -> References:
        """The constant prediction on a split's units: it looks at no text, no gamma changes it."""
        samples = self._unit_samples(split)
        labels_N = self.tokens.split(split).labels_N
        losses = [-np.log(self.frequencies[labels_N[of_unit]]).mean() for of_unit in samples]
        right_N = labels_N[np.concatenate(samples)] == self.frequencies.argmax()
        accuracy = {gamma_key(g): float(right_N.mean()) for g in self._config.test_gammas}
        return References({"constant": accuracy}, {"constant": float(np.mean(losses))})

    # --- batches ----------------------------------------------------------------------------------

    def train_batch(self, step: int) -> Batch:
        """The batch of primal step ``step`` >= 0: a function of (seed, step) and nothing else.

        Every epoch visits the training texts in a new keyed order, those of like length together.
        On CUDA nothing waits for the device.
        """
        config, split = self._config, self.tokens.train
        epoch, k = divmod(step, self.steps_per_epoch)
        chosen_B = self._epoch_order(epoch)[k]
        padded = split.padded(chosen_B)
        mask_BT = self._on_device(padded.mask)
        noise_BTH = None
        if config.noise_in_training[1] > 0:
            generator = keyed_generator(self.device, config.seed, "train_noise", step)
            shape = (*padded.mask.shape, self._width)
            drawn = torch.randn(shape, generator=generator, device=self.device, dtype=self.dtype)
            gammas = self._training_gammas(step, len(chosen_B))
            sigma = gammas * self.embedding_std
            sigma = sigma.view(-1, 1, 1) if isinstance(sigma, Tensor) else sigma
            noise_BTH = drawn.mul_(sigma).mul_(mask_BT.unsqueeze(-1))
        types_BT = None if padded.types is None else self._on_device(padded.types)
        tokens = Tokens(self._on_device(padded.ids), mask_BT, types_BT, noise_BTH)
        return Batch(tokens, self._on_device(split.labels_N[chosen_B]))

    def held_out(self, split: str, gamma: float, draw: int) -> Iterator[Batch]:
        """Batches over the units of ``split`` ("train", "dev" or "test"), perturbed at ``gamma``.

        The noise of a sample is keyed by (split, unit, sample, gamma, draw) and by neither the
        training seed nor the model's weights, the batch or its padding: both arms of a pair and
        every proposal are judged on the same draws. It is drawn on the CPU in float32.
        """
        return self._batches(split, self._texts(split), gamma, draw)

    def shifted(self, split: str, shift: str, severity: float, draw: int) -> Iterator[Batch]:
        """As ``held_out`` at train_gamma, with texts disturbed by ``shift`` before the noise.

        What a shift draws is keyed by (split, unit, sample, shift, draw) and not by the severity.

        Raises:
            UnknownName, InvalidValue: there is no such shift of texts, or no such severity.
        """

        def draws(text: Text) -> torch.Generator:
            return keyed_generator("cpu", split, *text.key, shift, draw)

        return self._batches(
            split, self._disturbed(split, shift, severity, draws), self._config.train_gamma, draw
        )

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
                generator = keyed_generator("cpu", split, *text.key, float(gamma), draw)
                drawn_TH = torch.randn(length, self._width, generator=generator)
                noise[row, :length] = drawn_TH.mul_(gamma * self.embedding_std)
        tokens = Tokens(
            self._on_device(ids),
            self._on_device(mask),
            None if types is None else self._on_device(types),
            None if noise is None else noise.to(self.device, self.dtype),
        )
        labels = self._on_device(np.array([text.label for text in texts]))
        places = tuple(text.place for text in texts)
        return Batch(tokens, labels, tuple(text.unit for text in texts), places)

    # --- shifts -----------------------------------------------------------------------------------

    def _disturbed(self, split: str, shift: str, severity: float, draws: Draws) -> list[Text]:
        """The evaluated texts of ``split`` under a shift."""
        if shift == "typos":
            return self._mistyped(split, severity, draws)
        places = {"token_drop": kept_tokens, "token_swap": swapped_tokens}.get(shift)
        if places is None:
            raise UnknownName.of("shift of texts", shift, TEXT_FAMILIES)
        disturbed = []
        for text in self._texts(split):
            is_special_T = np.isin(text.ids_T, self.tokens.special_ids)
            chosen = places(is_special_T, severity, draws(text))
            types_T = None if text.types_T is None else text.types_T[chosen]
            disturbed.append(replace(text, ids_T=text.ids_T[chosen], types_T=types_T))
        return disturbed

    def _mistyped(self, split: str, share: float, draws: Draws) -> list[Text]:
        """The texts mistyped before they become tokens; the second of a pair after the first."""
        texts = self._texts(split)
        wanted = np.concatenate(self._unit_samples(split))
        examples = self.texts.split(split)
        typed = []
        for text, index in zip(texts, wanted.tolist(), strict=True):
            example, generator = examples[index], draws(text)
            first = mistyped(example.text, share, generator)
            second = None if example.pair is None else mistyped(example.pair, share, generator)
            typed.append(Example(first, second, example.label, example.group))
        made = encode(self._tokenizer, typed, self._config.data.max_length)
        return [
            replace(
                text,
                ids_T=np.array(made.ids[i], dtype=np.int64),
                types_T=None if made.types is None else np.array(made.types[i], dtype=np.int64),
            )
            for i, text in enumerate(texts)
        ]

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        return load_tokenizer(self._tokenizer_place)

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
        """Per evaluated unit, the indices of its samples in ``split``, rising."""
        tokens = self.tokens.split(split)
        place = {name: i for i, name in enumerate(tokens.group_names)}
        by_group = np.argsort(tokens.groups_N, kind="stable")
        ends = np.searchsorted(tokens.groups_N[by_group], np.arange(len(place) + 1))
        wanted = [place[name] for name in self._unit_names(split)]
        return [by_group[ends[group] : ends[group + 1]] for group in wanted]

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
