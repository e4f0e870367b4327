"""Instruction tuning: answers, token by token, under noise on embeddings.

A sample is a prompt and its answer (datasets/text/alpaca.py). The loss of a layer is the cross
entropy in nats of the answer's tokens alone, its end included, each given the prompt and the answer
before it (teacher forcing): the mean over the tokens of a sample, so that samples count alike. The
metric is token accuracy, the fraction of those tokens that the largest logit names, by
sample as well. The noise is on all tokens, of prompt and answer (tasks/texts.py).

The best constant prediction is the fraction of each word among the answers of the training split,
with 1 added to every word's count, so that none is impossible; its entropy there is the unit of
every loss. The input is no prediction (docs/decisions/0010).

Source: arXiv 2601.17257, section 6. Shape suffixes: B batch, T tokens, A tokens of the longest
answer, N samples, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainables.config.arm import ArmConfig
from trainables.config.test_conditions import gamma_key
from trainables.datasets.text.alpaca import prompt as templated
from trainables.datasets.text.answers import prompt_tokens
from trainables.datasets.text.tokenized import PaddedBatch, TokenizedSplit
from trainables.errors import InvalidValue, UnknownName
from trainables.heads.logits import Logits
from trainables.heads.loss_estimators import draw_layers, sample_places
from trainables.heads.token_losses import IGNORED
from trainables.primal_dual.constraints import Scales
from trainables.random_keys import keyed_generator
from trainables.tasks.base import Batch, Prompt, References, Tokens
from trainables.tasks.held_out_units import evenly
from trainables.tasks.texts import Ints, TextTask


class InstructionTuning(TextTask):
    """The task of one run, as ``tasks/base.py`` asks."""

    sample_name = "instructions"

    def __init__(self, config: ArmConfig, device: torch.device, dtype: torch.dtype) -> None:
        """Open the data and count the words of the answers. Raises as ``TextTask``."""
        super().__init__(config, device, dtype)
        words_M = _answers(self.tokens.train)
        counts_V = np.bincount(words_M, minlength=self.vocabulary) + 1.0
        self.frequencies = counts_V / counts_V.sum()  # of words, in the training split's answers
        entropy = float(-np.log(self.frequencies[words_M]).mean())
        self.scales = Scales(constant_loss=entropy, identity_loss=entropy)
        self.longest = config.data.max_length
        self._lengths: list[int] = []  # tokens of the last batch's answers, on the host

    @property
    def end(self) -> int:
        """The token that ends an answer."""
        return int(self.tokenizer.eos_token_id)

    # --- what a prediction is judged by -----------------------------------------------------------

    def loss(self, prediction: Logits, targets: Tensor) -> Tensor:
        """Cross entropy in nats, [B]: mean over the tokens [B, A] that are targets."""
        return self.judged(prediction, targets)[0]

    def scores(self, prediction: Logits, targets: Tensor, losses: Tensor) -> Tensor:
        """Share of a sample's targets that the largest logit names, [B]; NaN where one is none."""
        return self.judged(prediction, targets)[1]

    def judged(self, prediction: Logits, targets: Tensor) -> tuple[Tensor, Tensor]:
        """``loss`` and ``scores``, [B] each, of one pass through the head."""
        by_token = prediction.judged(targets)
        counts_B = (targets != IGNORED).sum(dim=-1)
        losses_B, right_B = (x.sum(dim=-1) / counts_B for x in (by_token.losses, by_token.right))
        return losses_B.to(self.dtype), right_B.to(self.dtype)

    def references(self, split: str = "dev") -> References:
        """The constant prediction on a split's units: it looks at no text, no gamma changes it."""
        logs_V, likeliest = np.log(self.frequencies), int(self.frequencies.argmax())
        tokens = self.tokens.split(split)
        by_unit, right = [], []
        for samples in self._unit_samples(split):
            answers = [_answer(tokens, sample) for sample in samples.tolist()]
            by_unit.append(np.mean([-logs_V[answer].mean() for answer in answers]))
            right += [float((answer == likeliest).mean()) for answer in answers]
        accuracy = {gamma_key(g): float(np.mean(right)) for g in self._config.test_gammas}
        return References({"constant": accuracy}, {"constant": float(np.mean(by_unit))})

    # --- prompts ----------------------------------------------------------------------------------

    def prompts(self, split: str, count: int) -> list[Prompt]:
        """The first sample of evenly chosen units, their tokens' noise keyed by unit and place."""
        return self._prompts(split, evenly(self._unit_names(split), count))

    def unseen_prompts(self, count: int) -> list[Prompt]:
        """Prompts of dev units that no arm is measured on; of measured units, where all are.

        The first by their names, which are hashes: fewer are a part of more.
        """
        every = self.tokens.split("dev").group_names
        measured = set(self.dev_units)
        unseen = [name for name in every if name not in measured]
        return self._prompts("dev", (unseen or every)[:count])

    def _prompts(self, split: str, names: Sequence[str]) -> list[Prompt]:
        tokens, examples = self.tokens.split(split), self.texts.split(split)
        prompts = []
        for name, samples in zip(names, self._samples_of(split, names), strict=True):
            index = int(samples[0])
            example = examples[index]
            length = len(tokens.tokens(index)) - len(_answer(tokens, index))
            ids = tokens.tokens(index)[:length].tolist()
            noise = partial(self._noise_of_token, (split, name))
            prompts.append(Prompt(example.text, example.pair or "", ids, noise))
        return prompts

    def prompt(self, instruction: str, context: str = "") -> Prompt:
        """Prompt that is in no data set. Raises as ``Asks``."""
        text = templated(self._config.data.template, instruction, context)
        ids = prompt_tokens(self.tokenizer, [text])[0]
        if len(ids) >= self.longest:
            raise InvalidValue(
                f"a prompt must have at most {self.longest - 1} tokens, one less than "
                f"data.max_length, got {len(ids)}."
            )
        return Prompt(text, "", ids, partial(self._noise_of_token, ("asked", text)))

    def _noise_of_token(self, key: tuple[str, str], gamma: float, place: int) -> Tensor:
        generator = keyed_generator("cpu", *key, "written", float(gamma), place)
        return torch.randn(self._width, generator=generator) * (gamma * self.embedding_std)

    def text(self, ids: Sequence[int]) -> str:
        """The text of some tokens, without those that stand for no text."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=True))

    # --- batches ----------------------------------------------------------------------------------

    def train_batch(self, step: int) -> Batch:
        """Batch as of every text task, with the run's sample of tokens and of inner layers.

        Which is keyed by (seed, step), and no part of what a model is given.
        """
        batch, constraint = super().train_batch(step), self._config.constraint
        if constraint is None:
            return batch
        assert isinstance(batch.inputs, Tokens)
        inputs, seed = batch.inputs, self._config.seed
        if constraint.inner_tokens < 1.0:
            generator = keyed_generator("cpu", seed, "inner_tokens", step)
            drawn = sample_places(self._lengths, constraint.inner_tokens, generator)
            places_BK = drawn.places_BK.masked_fill(~drawn.drawn_BK, -1)
            inputs = replace(inputs, sampled=self._moved(places_BK))
        if constraint.inner_layers is not None:
            generator = keyed_generator("cpu", seed, "inner_layers", step)
            first = constraint.first_layer
            among = self._config.model.layers - first
            layers = draw_layers(among, constraint.inner_layers, generator)
            inputs = replace(inputs, layers=tuple(first + place for place in layers))
        return replace(batch, inputs=inputs)

    def shifted(self, split: str, shift: str, severity: float, draw: int) -> Iterator[Batch]:
        """UnknownName: there are no shifts of answers."""
        raise UnknownName.among("shift of instructions", shift, ())

    def _posed(self, padded: PaddedBatch, labels_B: Ints) -> tuple[Tokens, Tensor]:
        """Each answer's tokens are targets of the tokens before them."""
        assert padded.types is not None  # 1 on answers
        answered_BT = (padded.types == 1) & padded.mask
        counts_B = answered_BT.sum(axis=1)
        first_B = answered_BT.argmax(axis=1)
        offsets_A = np.arange(counts_B.max())
        there_BA = offsets_A < counts_B[:, None]
        answers_BA = first_B[:, None] + np.where(there_BA, offsets_A, 0)
        targets_BA = np.take_along_axis(padded.ids, answers_BA, axis=1)
        self._lengths = counts_B.tolist()
        tokens = Tokens(
            self._on_device(padded.ids),
            self._on_device(padded.mask),
            places=self._on_device(answers_BA - 1),
        )
        return tokens, self._on_device(np.where(there_BA, targets_BA, IGNORED))


def _answers(tokens: TokenizedSplit) -> NDArray[np.int32]:
    """The words of all answers of a split, one after the other."""
    assert tokens.types_M is not None
    words: NDArray[np.int32] = tokens.ids_M[tokens.types_M == 1]
    return words


def _answer(tokens: TokenizedSplit, sample: int) -> NDArray[np.int32]:
    assert tokens.types_M is not None
    types_T = tokens.types_M[tokens.offsets[sample] : tokens.offsets[sample + 1]]
    words: NDArray[np.int32] = tokens.tokens(sample)[types_T == 1]
    return words
