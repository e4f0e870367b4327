"""Model interface: predictions after layer 0 and after each layer.

Models of videos take tensors; models of texts take word embeddings, which they give themselves: in
between, the task disturbs them (``layer_losses.py``, tasks/base.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import Tensor, nn

from trainables.heads.logits import Logits
from trainables.primal_dual.constraints import Scales


class LayerwiseModel(Protocol):
    """A torch module; layer 0 is the embedding or the input itself."""

    def __call__(self, inputs: Tensor) -> list[Tensor]:
        """L + 1 predictions, in reading order, each of the targets' shape."""


class Measured(Protocol):
    """Facts of its task that a model of videos may use before training: the scale of losses."""

    @property
    def scales(self) -> Scales:
        """Losses of the constant prediction and of the unchanged input."""


class WithVocabulary(Protocol):
    """Facts of its task that a decoder uses before training."""

    @property
    def vocabulary(self) -> int:
        """Token ids are below it."""


class Labelled(WithVocabulary, Protocol):
    """Facts of its task that a classifier of texts may use before training."""

    classes: int  # how many labels there are: the width of a prediction


@runtime_checkable
class LastPrediction(Protocol):
    """Extension of a ``LayerwiseModel`` whose predictions of inner layers cost extra work."""

    def last(self, inputs: Tensor) -> Tensor:
        """The last of its predictions bit for bit: all that plain training asks for."""


@runtime_checkable
class WithBlocks(Protocol):
    """Extension of a model whose blocks may be gathered one by one (sharding/ranks.py)."""

    def blocks(self) -> Sequence[nn.Module]:
        """Modules that are called in turn, and whose parameters nothing else reads."""


@dataclass(frozen=True)
class TextInputs:
    """Input of a model of texts: a batch of T tokens, texts first, padding behind them."""

    embeddings: Tensor  # [B, T, H]: of words alone, disturbed; no position and no LayerNorm yet
    attention_mask: Tensor  # [B, T] bool: True for tokens, False for padding
    token_type_ids: Tensor | None = None  # [B, T]: which of two texts; None: there is but one type
    places: Tensor | None = None  # [B, A]: of decoders, the tokens that predictions are read off


@runtime_checkable
class Writer(Protocol):
    """Extension of a ``TextModel`` that writes texts."""

    def write(
        self, ids: Sequence[int], *, end: int, most: int, noise: Callable[[int], Tensor] | None
    ) -> list[int]:
        """The likeliest tokens after some others, one by one.

        Args:
            ids: of the prompt.
            end: the token that ends an answer; it is not returned.
            most: so many tokens at most.
            noise: of the token at a place, [H], added to its embedding; None: clean.
        """


class TextModel(Protocol):
    """A torch module that classifies texts, or writes them.

    No prediction may depend on what stands in padding. The readout is a linear map, the same for
    all layers; its parameters' names start with ``readout.`` (training gives it ``readout_lr``). A
    decoder's features are states [B, A, H] at ``places``, its predictions ``Logits``.
    """

    def embed(self, ids: Tensor) -> Tensor:
        """Word embeddings [B, T, H] of token ids [B, T]: clean, before positions and LayerNorm."""

    def features(self, inputs: TextInputs) -> list[Tensor]:
        """Inputs of the readout at layers 0..L, in reading order: [B, H] each."""

    def readout(self, features: Tensor) -> Tensor | Logits:
        """Logits [B, classes] from features [B, H]: a layer's prediction."""

    def __call__(self, inputs: TextInputs) -> list[Tensor] | list[Logits]:
        """L + 1 predictions: the readout of each layer's features."""
