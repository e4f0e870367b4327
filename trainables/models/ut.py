r"""UT: unrolled transformer (Yang et al. 2022), for video as in arXiv 2601.17257.

    Z_l = softmax(scores(V_l X_{l-1})) X_{l-1}     mixes the raw tokens; V_l serves the scores alone
    X_l = ReLU(R_l + W_l Z_l),  W_l symmetric      R_l is the residual: X_{l-1}, or Z_l

The paper's literal reading (scores x'V'Vx, pixel basis) cannot denoise: inner products of patches
pick the brightest patch and not the nearest, and Adam moves a pixel-basis W_l along badly scaled
directions (docs/decisions/0012). The variants that can keep V_l and the symmetric W_l in the DCT
basis, an orthonormal change of coordinates that acts as a preconditioner, and sharpen the scores by
the noise energy.

Source: Yang et al. 2022, arXiv 2205.13891; arXiv 2601.17257, eqs. (45)-(48).
Shape suffixes: B batch, T tokens (frames), P pixels of a patch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast

import torch
from torch import Tensor, nn

from trainables.config.arm import ArmConfig
from trainables.config.mended import FOLDED_PATCH
from trainables.models.attention import inner_products, squared_norms
from trainables.models.base import Measured
from trainables.models.folded_ut import Scores, folded


@dataclass(frozen=True)
class Variant:
    """One reading of the UT layer."""

    scores: Literal["dot", "distance"]  # x_i . x_j, or -|x_i - x_j|^2 / 2 (the energy's own kernel)
    sharpness: float | None  # scores times this / (noise energy of a patch); None: times 1
    residual: Literal["input", "attention"]  # what W_l Z_l is added to
    basis: Literal["dct", "pixel"]  # where V_l and W_l live
    w_init: Literal["zero", "dct"]  # W_l = 0: the layer starts as its residual


VARIANTS: dict[str, Variant] = {
    "sharp": Variant("dot", 9.0, "input", "dct", "zero"),
    "distance": Variant("distance", 1.5, "attention", "dct", "zero"),
    "literal": Variant("dot", None, "input", "pixel", "dct"),
}


class UTLayer(nn.Module):
    """One unrolled step on tokens [B, T, P]; V and W are per layer, the same in both arms."""

    dct: Tensor

    def __init__(self, patch_size: int, variant: Variant, noise_energy: float) -> None:
        """V starts as the DCT; W as ``variant.w_init`` says."""
        super().__init__()
        pixels = patch_size * patch_size
        self.variant = variant
        self.temperature = 1.0 if variant.sharpness is None else variant.sharpness / noise_energy
        dct = dct_matrix(patch_size)
        full = torch.kron(dct, dct)  # rows are the two-dimensional cosines
        # Up to FOLDED_PATCH a product with the whole transform is faster than one along each axis:
        # a step takes .70 of the time at 8 x 8, 1.15 at 16 x 16 pixels (one thread of a CPU).
        # Not stored with the weights: it follows from the patch size.
        transform = full if patch_size <= FOLDED_PATCH else dct
        self.register_buffer("dct", transform, persistent=False)
        in_basis = torch.eye(pixels, dtype=torch.float64)  # the DCT itself, seen from the DCT basis
        self.projection = nn.Parameter(in_basis if variant.basis == "dct" else full.clone())
        zero = torch.zeros(pixels, pixels, dtype=torch.float64)
        self.mixing = nn.Parameter(zero if variant.w_init == "zero" else full.clone())

    def forward(self, x_BTP: Tensor) -> Tensor:
        """X_{l-1} to X_l, same shape."""
        tokens_BTP = self._to_basis(x_BTP)
        projected_BTP = tokens_BTP @ self.projection.mT
        scores_BTT = inner_products(projected_BTP)
        if self.variant.scores == "distance":
            # -|a - b|^2 / 2 = a.b - |a|^2/2 - |b|^2/2; the row's own norm cancels in the softmax
            scores_BTT = scores_BTT - 0.5 * squared_norms(projected_BTP).unsqueeze(-2)
        shares_BTT = torch.softmax(self.temperature * scores_BTT, dim=-1).to(tokens_BTP.dtype)
        attended_BTP = shares_BTT @ tokens_BTP
        symmetric_PP = 0.5 * (self.mixing + self.mixing.mT)
        update_BTP = attended_BTP @ symmetric_PP
        if self.variant.residual == "attention":
            return torch.relu(self._to_pixels(attended_BTP + update_BTP))
        return torch.relu(x_BTP + self._to_pixels(update_BTP))

    def _to_basis(self, x_BTP: Tensor) -> Tensor:
        return x_BTP if self.variant.basis == "pixel" else _transformed(x_BTP, self.dct)

    def _to_pixels(self, x_BTP: Tensor) -> Tensor:
        return x_BTP if self.variant.basis == "pixel" else _transformed(x_BTP, self.dct.mT)


class UT(nn.Module):
    """L layers: L + 1 predictions of [B, T, P], the noisy tokens and every layer's output."""

    def __init__(
        self,
        *,
        layers: int,
        patch_size: int,
        variant: str,
        noise_energy: float,
        folds: bool = True,
    ) -> None:
        """Build from shape and variant alone: UT's start is deterministic (DCT), no seed enters.

        ``noise_energy`` is the expected squared norm of a patch's noise at train_gamma; it sets how
        sharp the scores are. With ``folds`` all layers are one operation on a CPU, where patches
        are small; no layer's own ``forward`` is called then.
        """
        super().__init__()
        self.folds = folds
        self.layers = nn.ModuleList(
            UTLayer(patch_size, VARIANTS[variant], noise_energy) for _ in range(layers)
        )

    def forward(self, inputs_BTP: Tensor) -> list[Tensor]:
        """Predictions after layer 0 (the input itself) and after each layer."""
        layers = cast(list[UTLayer], list(self.layers))
        if self.folds and _are_foldable(layers, inputs_BTP):
            return [inputs_BTP, *_folded(layers, inputs_BTP)]
        predictions = [inputs_BTP]
        for layer in layers:
            predictions.append(layer(predictions[-1]))
        return predictions


def _are_foldable(layers: Sequence[UTLayer], x_BTP: Tensor) -> bool:
    """True of small patches on a CPU, in at least float32."""
    first = layers[0]
    return (
        x_BTP.device.type == "cpu"
        and x_BTP.ndim > 2
        and first.variant.basis == "dct"
        and first.dct.shape == first.projection.shape
        and first.projection.dtype == x_BTP.dtype
        and x_BTP.dtype.itemsize >= 4
        and not torch.is_autocast_enabled("cpu")
    )


def _folded(layers: Sequence[UTLayer], x_BTP: Tensor) -> list[Tensor]:
    """Outputs X_1..X_L of layers whose maps are folded."""
    first, kind = layers[0], layers[0].variant
    scores = Scores(first.temperature, kind.scores == "distance", kind.residual == "input")
    maps = [(layer.projection, layer.mixing) for layer in layers]
    return folded(x_BTP, first.dct, scores, maps)


def build(config: ArmConfig, task: Measured) -> UT:
    """The run's network at its start."""
    return UT(
        layers=config.model.layers,
        patch_size=config.data.patch_size,
        variant=config.model.variant,
        noise_energy=task.scales.identity_loss,
        folds=config.is_folded,
    )


def dct_matrix(size: int) -> Tensor:
    """The orthonormal DCT-II, [size, size] in float64; rows are cosines, lowest frequency first."""
    index = torch.arange(size, dtype=torch.float64)
    cosines = torch.cos(math.pi / size * (index + 0.5) * index[:, None]) * math.sqrt(2.0 / size)
    cosines[0] /= math.sqrt(2.0)
    return cosines


def _transformed(x_BTP: Tensor, matrix: Tensor) -> Tensor:
    """A transform of every patch: by the whole P x P matrix, or by one along each of its axes.

    The second has 1/8 of the products at 16 x 16 pixels, and copies between them.
    """
    size = matrix.shape[0]
    if size == x_BTP.shape[-1]:
        return x_BTP @ matrix.mT
    patches = x_BTP.reshape(-1, size, size)
    rows = (patches.reshape(-1, size) @ matrix.mT).reshape(-1, size, size)
    both = (rows.mT.reshape(-1, size) @ matrix.mT).reshape(-1, size, size)
    return both.mT.reshape(x_BTP.shape)
