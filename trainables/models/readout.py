"""Readout of text models: one linear map on pooled tokens, shared by all layers.

    logits_l = R pool(X_l) + r,   pool: the first token ([CLS]), or the mean over tokens

so that layer losses differ by what the layers hold, not by who reads them (arXiv 2601.17257,
section 5; no LayerNorm comes before R). Words enter as the checkpoint has them and stay so: they
are the input that is disturbed (docs/decisions/0038).

Shape suffixes: B batch, T tokens, H width of the states, E of the words, C classes, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from trainables.config.arm import ArmConfig
from trainables.models.base import Labelled, TextInputs
from trainables.models.pretrained import require_words
from trainables.random_keys import keyed_generator

NEEDS = ("config.json", "model.safetensors")  # what a network is read from
Pooling = Literal["cls", "mean"]


class Readout(nn.Module):
    """Tokens [B, T, H] pooled to [B, H], and the linear map of those to logits [B, C]."""

    def __init__(self, width: int, classes: int, pooling: Pooling, *, seed: int) -> None:
        """Xavier weights keyed by ``seed``, a bias of 0: the same start for both arms."""
        super().__init__()
        self.pooling = pooling
        generator = keyed_generator("cpu", seed, "start", "readout")
        self.weight = nn.Parameter(torch.empty(classes, width))
        nn.init.xavier_uniform_(self.weight, generator=generator)
        self.bias = nn.Parameter(torch.zeros(classes))

    def pool(self, state_BTH: Tensor, mask_BT: Tensor) -> Tensor:
        """[B, H] in the readout's own type: a mean in bfloat16 would lose its third digit."""
        if self.pooling == "cls":
            return state_BTH[:, 0].to(self.weight.dtype)
        # Filled, not multiplied by 0: infinity times 0 is NaN.
        tokens_BTH = state_BTH.to(self.weight.dtype).masked_fill(~mask_BT.unsqueeze(-1), 0)
        return tokens_BTH.sum(1) / mask_BT.sum(1, keepdim=True)

    def forward(self, pooled_BH: Tensor) -> Tensor:
        """Logits [B, C]; not under autocast, whose 8 bits would be the cross entropy's."""
        with torch.autocast(pooled_BH.device.type, enabled=False):
            return nn.functional.linear(pooled_BH, self.weight, self.bias)


class TextClassifier(nn.Module):
    """Texts to L + 1 predictions: words, the states of the layers, and the readout they share."""

    words: Tensor

    def __init__(self, words_VE: Tensor, states: nn.Module, readout: Readout) -> None:
        """Put the parts together: words, states, and a readout of their width.

        ``states`` makes L + 1 states [B, T, H] of TextInputs; padding may hold anything finite.

        Words are never trained, and not in ``state_dict``: the checkpoint has them, and at UT's
        size they would be most of every stored arm.
        """
        super().__init__()
        self.register_buffer("words", words_VE, persistent=False)
        self.states = states
        self.readout = readout

    def embed(self, ids: Tensor) -> Tensor:
        """Clean word embeddings [B, T, E] of token ids [B, T], before positions and LayerNorm."""
        return nn.functional.embedding(ids, self.words)

    def features(self, inputs: TextInputs) -> list[Tensor]:
        """Pooled states, [B, H] for each of L + 1: inputs of the readout and of probes."""
        return [self.readout.pool(s, inputs.attention_mask) for s in self.states(inputs)]

    def forward(self, inputs: TextInputs) -> list[Tensor]:
        """L + 1 predictions in reading order: logits [B, C]."""
        return [self.readout(pooled_BH) for pooled_BH in self.features(inputs)]


def built(
    network: Callable[..., TextClassifier], config: ArmConfig, task: Labelled, **options: int
) -> TextClassifier:
    """A run's ``network``, ``encoder`` or ``text_ut``, at its start; ``options`` are its own.

    InvalidValue where its tokenizer has tokens that it has no word for.
    """
    model = config.model
    made = network(
        model.checkpoint,
        layers=model.layers,
        classes=task.classes,
        pooling=model.pooling,
        seed=config.seed,
        **options,
    )
    require_words(model, task.vocabulary, len(made.words))
    return made
