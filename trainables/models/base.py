"""What a model is: a module that returns its prediction after layer 0 and after each layer."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class LayerwiseModel(Protocol):
    """A torch module; layer 0 is the embedding or the input itself."""

    def __call__(self, inputs: Tensor) -> list[Tensor]:
        """L + 1 predictions, in reading order, each of the targets' shape."""
        ...
