r"""UT for texts: unrolled transformer on word embeddings (arXiv 2601.17257).

    Z_l = softmax(X_{l-1} V_l' V_l X_{l-1}') X_{l-1}     mixes the raw tokens    (47)
    X_l = ReLU(X_{l-1} + Z_l W_l),  W_l symmetric                                (48)

in rows: a token is a row of X. X_0 are the word embeddings, without position or LayerNorm, so the
order of the words does not matter. Padding is never attended to. V_l and W_l are per layer, the
same in both arms, and start as Xavier draws keyed by the seed. The width is the words'. Inner
products are not divided by sqrt(width): words of BERT's kind have norms near 1, and the paper has
no such factor.

Source: Yang et al. 2022, arXiv 2205.13891; arXiv 2601.17257, eqs. (45)-(48) and section B.3.
Shape suffixes: B batch, T tokens, H width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from trainables.checkpoints import Checkpoint
from trainables.config.arm import ArmConfig
from trainables.models.attention import inner_products
from trainables.models.base import Labelled, TextInputs
from trainables.models.readout import NEEDS, Pooling, Readout, TextClassifier, built
from trainables.random_keys import keyed_generator


class TextUTLayer(nn.Module):
    """One unrolled step on tokens [B, T, H]."""

    def __init__(self, width: int, generator: torch.Generator) -> None:
        """V and W as Xavier draws; W is made symmetric where it is used."""
        super().__init__()
        self.projection = nn.Parameter(torch.empty(width, width))
        self.mixing = nn.Parameter(torch.empty(width, width))
        for matrix in (self.projection, self.mixing):
            nn.init.xavier_uniform_(matrix, generator=generator)

    def forward(self, x_BTH: Tensor, mask_BT: Tensor) -> Tensor:
        """X_{l-1} to X_l, same shape."""
        scores_BTT = inner_products(x_BTH @ self.projection.mT)
        scores_BTT = scores_BTT.masked_fill(~mask_BT.unsqueeze(1), -torch.inf)
        attended_BTH = torch.softmax(scores_BTT, dim=-1).to(x_BTH.dtype) @ x_BTH
        symmetric_HH = 0.5 * (self.mixing + self.mixing.mT)
        return torch.relu(x_BTH + attended_BTH @ symmetric_HH)


class TextUTStates(nn.Module):
    """Words [B, T, H] and what each of L unrolled steps makes of them."""

    def __init__(self, width: int, layers: int, *, seed: int) -> None:
        """Each layer has a key of its own, so that a deeper network starts as a shallower one."""
        super().__init__()
        self.layers = nn.ModuleList(
            TextUTLayer(width, keyed_generator("cpu", seed, "start", "text_ut", layer))
            for layer in range(1, layers + 1)
        )

    def forward(self, inputs: TextInputs) -> list[Tensor]:
        """L + 1 states: the words as they are given, and every layer's output."""
        states = [inputs.embeddings]
        for layer in self.layers:
            states.append(layer(states[-1], inputs.attention_mask))
        return states


def build(config: ArmConfig, task: Labelled) -> TextClassifier:
    """The run's network at its start, with words for all tokens of its tokenizer."""
    return built(text_ut, config, task)


def text_ut(
    checkpoint: str, *, layers: int, classes: int, pooling: Pooling, seed: int
) -> TextClassifier:
    """UT on the words of a checkpoint, at its starting weights, on the CPU in float32.

    Raises:
        UnknownName, BadData: as ``Checkpoint``.
        InvalidValue: the checkpoint has no word embeddings.
    """
    words_VE = Checkpoint(checkpoint, NEEDS).word_embeddings()
    width = words_VE.shape[1]
    states = TextUTStates(width, layers, seed=seed)
    return TextClassifier(words_VE, states, Readout(width, classes, pooling, seed=seed))
