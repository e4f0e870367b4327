"""Logits of a language-model head that are not computed until they are asked for.

Shape suffixes: B batch, A answer tokens, H width of the states, V words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from trainables.heads.token_losses import TokenOutcomes, token_losses


@dataclass(frozen=True)
class Logits:
    """Logits [B, A, V] that are not computed until they are asked for: V is large.

    softcap tanh((W h + b) / softcap) for states h, or W h + b without a cap.
    """

    states: Tensor  # [B, A, H], as the head takes them
    weight: Tensor  # [V, H] of the head
    bias: Tensor | None = None  # [V]
    softcap: float | None = None
    narrow: torch.dtype | None = None  # what the head's products run in; None: the states' type

    @property
    def shape(self) -> torch.Size:
        """[B, A, V]."""
        return torch.Size((*self.states.shape[:-1], len(self.weight)))

    def to(self, dtype: torch.dtype) -> Logits:
        """Copy with states in this type; the weights keep that of the parameters."""
        return replace(self, states=self.states.to(dtype))

    def detach(self) -> Logits:
        """Copy without gradients."""
        bias = None if self.bias is None else self.bias.detach()
        return replace(self, states=self.states.detach(), weight=self.weight.detach(), bias=bias)

    @classmethod
    def stacked(cls, layers: Sequence[Logits]) -> Logits:
        """Logits [M, B, A, V] of M layers that share a head, for one pass through it."""
        return replace(layers[0], states=torch.stack([layer.states for layer in layers]))

    def select(self, places: Tensor) -> Logits:
        """Logits [B, K, V] at the positions ``places``, [B, K] int64, of each row."""
        index = places.unsqueeze(-1).expand(-1, -1, self.states.shape[-1])
        return replace(self, states=self.states.gather(1, index))

    def judged(self, targets: Tensor) -> TokenOutcomes:
        """Losses and hits [B, A] of tokens [B, A], without the logits of all (token_losses.py)."""
        with torch.autocast(self.states.device.type, self.narrow, enabled=self.narrow is not None):
            return token_losses(
                self.states, self.weight, targets, bias=self.bias, softcap=self.softcap
            )

    def full(self) -> Tensor:
        """The tensor [B, A, V] itself: for a few tokens, since V is large."""
        logits = torch.nn.functional.linear(
            self.states.to(self.weight.dtype), self.weight, self.bias
        )
        if self.softcap is None:
            return logits
        return self.softcap * torch.tanh(logits / self.softcap)
