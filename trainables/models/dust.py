r"""DUST: deep unrolled sparse transformer (De Weerdt et al. 2023), for video.

One layer is a proximal gradient step on 1/2 |Y - D A|^2 + lambda_1 |A|_1, taken from codes that
attention has mixed; the step is coupled to the layer's dictionary D_l, the only thing trained:

    A_{l-1/2} = A_{l-1} softmax(A_{l-1}' D_l' D_l A_{l-1})       each code becomes a mean of all
    A_l = S(W_l A_{l-1/2} + U_l Y),   W_l = I - D_l' D_l / c,   U_l = D_l' / c


The prediction is D_l A_l; A_0 = 0, so that of layer 0 is 0. S is the soft threshold at lambda_1 /
c, and c = 1.05 |D_start|_2^2 bounds the Lipschitz constant at the start. Both numbers stay fixed:
learned ones let a term vanish, which meets constraints trivially (docs/decisions/0020). Neither D'D
nor W is ever formed:
W A + U Y = A + D'(Y - D A) / c, and D A_{l-1/2} is the mean of the columns of D A_{l-1} that
attention takes.

Source: arXiv 2601.17257, eqs. (74)-(76); the start is the overcomplete DCT of K-SVD.
Shape suffixes: B batch, T tokens (frames), P pixels of a patch, K atoms.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import softshrink

from trainables.config.arm import ArmConfig
from trainables.errors import InvalidValue
from trainables.models.attention import inner_products


class DUST(nn.Module):
    """L layers: L + 1 predictions of [B, T, P]; the first is zero, the others D_l A_l."""

    def __init__(
        self, *, layers: int, patch_size: int, atoms_per_side: int, threshold: float, shared: bool
    ) -> None:
        """Build from shapes alone: the start is deterministic (DCT), no seed enters.

        A dictionary has ``atoms_per_side`` squared atoms of ``patch_size`` squared pixels; layers
        have one each unless it is ``shared``. The fixed ``threshold`` is lambda_1 / c.
        """
        super().__init__()
        start_PK = overcomplete_dct(patch_size, atoms_per_side)
        self.step_size = 1.0 / (1.05 * float(torch.linalg.matrix_norm(start_PK, ord=2)) ** 2)
        self.threshold = threshold
        self.layers = layers
        self.dictionaries = nn.ParameterList(
            nn.Parameter(start_PK.clone()) for _ in range(1 if shared else layers)
        )

    def forward(self, inputs_BTP: Tensor) -> list[Tensor]:
        """Predictions after layer 0 (the zero code) and after each layer."""
        return [torch.zeros_like(inputs_BTP), *self._predictions(inputs_BTP, first=1)]

    def last(self, inputs_BTP: Tensor) -> Tensor:
        """The last of ``forward``'s predictions, without the products D_l A_l of the others."""
        (prediction_BTP,) = self._predictions(inputs_BTP, first=self.layers)
        return prediction_BTP

    def _predictions(self, inputs_BTP: Tensor, *, first: int) -> list[Tensor]:
        """D_l A_l of the layers from ``first`` on."""
        predictions: list[Tensor] = []
        shared = len(self.dictionaries) == 1
        code_BTK: Tensor | None = None
        for layer in range(1, self.layers + 1):
            dictionary_PK = self.dictionaries[0 if shared else layer - 1]
            if code_BTK is None:  # A_0 = 0: nothing to mix, and nothing is explained yet
                code_BTK = self._shrunk(inputs_BTP @ dictionary_PK * self.step_size)
            else:
                # one dictionary: the layer before has predicted it
                is_known = shared and predictions
                seen_BTP = predictions[-1] if is_known else code_BTK @ dictionary_PK.mT
                attention_BTT = torch.softmax(inner_products(seen_BTP), dim=-1).to(seen_BTP.dtype)
                rest_BTP = inputs_BTP - attention_BTT @ seen_BTP
                step_BTK = rest_BTP @ dictionary_PK * self.step_size
                code_BTK = self._shrunk(attention_BTT @ code_BTK + step_BTK)
            if layer >= first:
                predictions.append(code_BTK @ dictionary_PK.mT)
        return predictions

    def _shrunk(self, code_BTK: Tensor) -> Tensor:
        shrunk: Tensor = softshrink(code_BTK, self.threshold)
        return shrunk


def build(config: ArmConfig, task: object) -> DUST:
    """The run's network at its start; the ``paper`` variant's plain arm has one dictionary."""
    model = config.model
    one_dictionary = model.variant == "paper" and config.constraint is None
    return DUST(
        layers=model.layers,
        patch_size=config.data.patch_size,
        atoms_per_side=model.atoms_per_side,
        threshold=model.threshold,
        shared=model.variant == "shared" or one_dictionary,
    )


def overcomplete_dct(patch_size: int, atoms_per_side: int) -> Tensor:
    """The dictionary [patch_size^2, atoms_per_side^2] of separable cosines, unit columns, float64.

    In one dimension cos(pi i k / m), i < patch_size, k < m, less its mean for k > 0; then the
    Kronecker square.

    Raises InvalidValue for a patch of one pixel, where every cosine but the first vanishes.
    """
    if patch_size < 2:
        raise InvalidValue(f"patch_size must be at least 2 for dust, got {patch_size}.")
    pixel = torch.arange(patch_size, dtype=torch.float64)[:, None]
    frequency = torch.arange(atoms_per_side, dtype=torch.float64)
    cosines = torch.cos(math.pi / atoms_per_side * pixel * frequency)
    cosines[:, 1:] -= cosines[:, 1:].mean(dim=0)
    cosines /= cosines.norm(dim=0)
    atoms = torch.kron(cosines, cosines)
    unit_columns: Tensor = atoms / atoms.norm(dim=0)
    return unit_columns
