"""Classification of texts whose word embeddings are disturbed by Gaussian noise.

A sample is one text, or two merged as the tokenizer merges pairs. The loss is the cross entropy of
the label, in nats; the metric the fraction of samples whose largest logit is the label's, each
sample counted alike. The noise: tasks/texts.py.

The best constant prediction are the label frequencies of the training split, whose entropy is the
unit of every loss. The input is no prediction: where denoising has the identity, the constant
prediction stands (docs/decisions/0010).

Shape suffixes: N samples of a split, B batch, T tokens, H width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from trainables.config.arm import ArmConfig
from trainables.config.test_conditions import TEXT_FAMILIES, gamma_key
from trainables.datasets.text.examples import Example
from trainables.datasets.text.tokenized import PaddedBatch
from trainables.datasets.text.tokenizer import encode
from trainables.errors import UnknownName
from trainables.primal_dual.constraints import Scales
from trainables.random_keys import keyed_generator
from trainables.tasks.base import Batch, References, Tokens
from trainables.tasks.text_shifts import kept_tokens, mistyped, swapped_tokens
from trainables.tasks.texts import Ints, Text, TextTask

Draws = Callable[[Text], torch.Generator]  # where a text's draws come from


class TextClassification(TextTask):
    """The task of one run, as ``tasks/base.py`` asks."""

    def __init__(self, config: ArmConfig, device: torch.device, dtype: torch.dtype) -> None:
        """Open the data and count their labels. Raises as ``TextTask``."""
        super().__init__(config, device, dtype)
        self.classes = len(self.texts.labels)
        counts = np.bincount(self.tokens.train.labels_N, minlength=self.classes)
        self.frequencies = counts / counts.sum()  # of the labels, in the training split
        entropy = float(-(self.frequencies * np.log(self.frequencies)).sum())
        self.scales = Scales(constant_loss=entropy, identity_loss=entropy)

    # --- what a prediction is judged by -----------------------------------------------------------

    def loss(self, prediction: Tensor, targets: Tensor) -> Tensor:
        """Cross entropy in nats, [B] from logits [B, classes] and labels [B]."""
        return torch.nn.functional.cross_entropy(prediction, targets, reduction="none")

    def scores(self, prediction: Tensor, targets: Tensor, losses: Tensor) -> Tensor:
        """1 where the largest logit is the label's, else 0; NaN where a logit is none: [B]."""
        right_B = (prediction.argmax(dim=-1) == targets).to(prediction.dtype)
        return right_B.where(prediction.isfinite().all(dim=-1), torch.nan)

    def references(self, split: str = "dev") -> References:
        """The constant prediction on a split's units: it looks at no text, no gamma changes it."""
        samples = self._unit_samples(split)
        labels_N = self.tokens.split(split).labels_N
        losses = [-np.log(self.frequencies[labels_N[of_unit]]).mean() for of_unit in samples]
        right_N = labels_N[np.concatenate(samples)] == self.frequencies.argmax()
        accuracy = {gamma_key(g): float(right_N.mean()) for g in self._config.test_gammas}
        return References({"constant": accuracy}, {"constant": float(np.mean(losses))})

    def _posed(self, padded: PaddedBatch, labels_B: Ints) -> tuple[Tokens, Tensor]:
        types_BT = None if padded.types is None else self._on_device(padded.types)
        tokens = Tokens(self._on_device(padded.ids), self._on_device(padded.mask), types_BT)
        return tokens, self._on_device(labels_B)

    # --- shifts -----------------------------------------------------------------------------------

    def shifted(self, split: str, shift: str, severity: float, draw: int) -> Iterator[Batch]:
        """Batches as ``held_out`` at train_gamma, of texts disturbed by ``shift`` before the noise.

        What a shift draws is keyed by (split, unit, sample, shift, draw) and not by the severity.

        Raises:
            UnknownName, InvalidValue: there is no such shift of texts, or no such severity.
        """

        def draws(text: Text) -> torch.Generator:
            return keyed_generator("cpu", split, *text.key, shift, draw)

        return self._batches(
            split, self._disturbed(split, shift, severity, draws), self._config.train_gamma, draw
        )

    def _disturbed(self, split: str, shift: str, severity: float, draws: Draws) -> list[Text]:
        """The evaluated texts of ``split`` under a shift."""
        if shift == "typos":
            return self._mistyped(split, severity, draws)
        places = {"token_drop": kept_tokens, "token_swap": swapped_tokens}.get(shift)
        if places is None:
            raise UnknownName.among("shift of texts", shift, TEXT_FAMILIES)
        disturbed = []
        for text in self._texts(split):
            is_special_T = np.isin(text.ids_T, self.tokens.special_ids)
            chosen = places(is_special_T, severity, draws(text))
            types_T = None if text.types_T is None else text.types_T[chosen]
            disturbed.append(replace(text, ids_T=text.ids_T[chosen], types_T=types_T))
        return disturbed

    def _mistyped(self, split: str, fraction: float, draws: Draws) -> list[Text]:
        """The texts mistyped before they become tokens; the second of a pair after the first."""
        texts = self._texts(split)
        wanted = np.concatenate(self._unit_samples(split))
        examples = self.texts.split(split)
        typed = []
        for text, index in zip(texts, wanted.tolist(), strict=True):
            example, generator = examples[index], draws(text)
            first = mistyped(example.text, fraction, generator)
            second = None if example.pair is None else mistyped(example.pair, fraction, generator)
            typed.append(Example(first, second, example.label, example.group))
        made = encode(self.tokenizer, typed, self._config.data.max_length)
        return [
            replace(
                text,
                ids_T=np.array(made.ids[i], dtype=np.int64),
                types_T=None if made.types is None else np.array(made.types[i], dtype=np.int64),
            )
            for i, text in enumerate(texts)
        ]
