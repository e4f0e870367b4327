r"""All layers of UT as one operation: maps folded with the DCT, a backward by hand.

With D the two-dimensional DCT, S = (W + W') / 2, tokens in the rows of X, and t the sharpness:

    P = X G',  G = V D                       tokens as the scores see them
    A = softmax(t P P'), or of t (p_i . p_j - |p_j|^2 / 2) by distance
    X_l = ReLU(R + A X M),  M = D' S D       R is X, or A X

A layer has two products with all tokens, not four, and a network is one node of autograd's graph,
not some 400. At 8 x 8 pixels a step is 1.4 times as fast; at 16 x 16 folding costs more than it
saves. ``UTLayer``, which autograd differentiates, has the same values and gradients within rounding
and is the oracle of the tests.

Shape suffixes: B batch, T tokens (frames), P pixels of a patch, L layers, N = B T. Under
``torch.vmap`` all but D have an axis of networks in front, K; X_0 may do without.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Scores(NamedTuple):
    """The scores of all layers of a network."""

    sharpness: float  # factor t of the scores
    by_distance: bool
    adds_input: bool  # R = X; else A X


class FoldedUT(torch.autograd.Function):
    """Outputs X_1..X_L [B, T, P] of every layer, then what the backward pass needs."""

    @staticmethod
    def forward(
        x_BTP: Tensor, dct_PP: Tensor, scores: Scores, *weights: Tensor
    ) -> tuple[Tensor, ...]:
        """``weights`` are the layers' V, then their W, each [P, P]."""
        kept: list[Tensor] = []
        outputs, maps = _outputs(x_BTP, dct_PP, scores, weights, kept.extend)
        return *outputs, *kept, *maps

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        """Keep what the backward pass needs."""
        x_BTP, dct_PP, ctx.scores, *weights = inputs
        ctx.layers = len(weights) // 2
        ctx.mark_non_differentiable(*output[ctx.layers :])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x_BTP, dct_PP, *output)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor | None) -> tuple[Tensor | None, ...]:
        """Gradients of X_0, of every V and of every W, by those of the layers' outputs."""
        if torch.is_grad_enabled():  # create_graph, and torch.func.grad
            raise NotImplementedError(
                "UT's layers as one operation are differentiated once: their gradient has no "
                "gradient. Build UT(..., folds=False) for one."
            )
        scores: Scores = ctx.scores
        first_BTP, dct_PP, *saved = ctx.saved_tensors
        maps_LPP, mixing_LPP = saved[-2:]
        outputs, kept = saved[: ctx.layers], saved[ctx.layers : -2]
        of_maps, of_mixing = [], []
        slope_BTP = slopes[ctx.layers - 1]
        if slope_BTP is None:
            slope_BTP = torch.zeros_like(outputs[-1])
        for layer in reversed(range(ctx.layers)):
            seen_BTP, mixed_BTP, shares_BTT = kept[3 * layer : 3 * layer + 3]
            x_NP = (outputs[layer - 1] if layer else first_BTP).flatten(-3, -2)
            sum_BTP = _relu_backward(slope_BTP, outputs[layer])
            of_shares_BTT = (sum_BTP @ mixed_BTP.mT) * shares_BTT
            of_scores_BTT = of_shares_BTT - shares_BTT * of_shares_BTT.sum(-1, keepdim=True)
            both_BTT = of_scores_BTT + of_scores_BTT.mT
            if scores.by_distance:  # -|p_j|^2 / 2 of each column
                both_BTT = both_BTT - torch.diag_embed(of_scores_BTT.sum(-2))
            seen_NP = scores.sharpness * (both_BTT @ seen_BTP).flatten(-3, -2)
            mixed_NP = (shares_BTT.mT @ sum_BTP).flatten(-3, -2)
            of_maps.append(seen_NP.mT @ x_NP)
            of_mixing.append(mixed_NP.mT @ x_NP)
            if not layer and not ctx.needs_input_grad[0]:
                break
            rest_NP = sum_BTP.flatten(-3, -2) if scores.adds_input else mixed_NP
            back_NP = rest_NP + seen_NP @ maps_LPP[layer] + mixed_NP @ mixing_LPP[layer]
            slope_BTP = _cut(back_NP, first_BTP)
            if layer and (own_BTP := slopes[layer - 1]) is not None:
                slope_BTP = own_BTP + slope_BTP
        projections_LPP = torch.stack(of_maps[::-1]) @ dct_PP.mT
        mixings_LPP = _both_sides(torch.stack(of_mixing[::-1]), dct_PP.mT)
        of_input = slope_BTP.sum_to_size(first_BTP.shape) if ctx.needs_input_grad[0] else None
        return of_input, None, None, *projections_LPP.unbind(), *mixings_LPP.unbind()

    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[Any, ...],
        x: Tensor,
        dct: Tensor,
        scores: Scores,
        *weights: Tensor,
    ) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        """The same of K networks at once, as ``torch.vmap`` asks for it."""
        of_x, of_dct, _, *of_weights = in_dims
        x = x if of_x is None else x.movedim(of_x, 0)
        rows = [
            weight.expand(info.batch_size, *weight.shape) if dim is None else weight.movedim(dim, 0)
            for weight, dim in zip(weights, of_weights, strict=True)
        ]
        if of_dct is not None or x.ndim > 4 or any(row.ndim > 3 for row in rows):
            raise NotImplementedError(
                "UT's layers as one operation take one axis of networks, and one D for all. Build "
                "UT(..., folds=False) for more."
            )
        outputs = FoldedUT.apply(x, dct, scores, *rows)  # type: ignore[no-untyped-call]
        return outputs, (*(0 for _ in outputs[:-2]), 1, 1)


def folded(
    x_BTP: Tensor, dct_PP: Tensor, scores: Scores, layers: Sequence[tuple[Tensor, Tensor]]
) -> list[Tensor]:
    """Outputs X_1..X_L [B, T, P] of layers with these (V, W), of a network whose D is one matrix.

    They are differentiated once: NotImplementedError at a gradient that is to have a gradient.
    """
    projections, mixings = zip(*layers, strict=True)
    weights = (*projections, *mixings)
    if not torch.is_grad_enabled():
        return _outputs(x_BTP, dct_PP, scores, weights, lambda kept: None)[0]
    return list(FoldedUT.apply(x_BTP, dct_PP, scores, *weights)[: len(layers)])  # type: ignore[no-untyped-call]


def _outputs(
    x_BTP: Tensor,
    dct_PP: Tensor,
    scores: Scores,
    weights: tuple[Tensor, ...],
    keep: Callable[[Sequence[Tensor]], None],
) -> tuple[list[Tensor], tuple[Tensor, Tensor]]:
    """Outputs of every layer, and the folded maps G and M [L, P, P].

    ``keep`` gets every layer's P, X M (or X + X M) and A.
    """
    # Rows of a group keep their arms' bits (fused/agreement.py): products and sums one by one,
    # since a batched addmm rounds otherwise than one of matrices.
    layers = len(weights) // 2
    maps_LPP = torch.stack(weights[:layers]) @ dct_PP
    mixing_LPP = _both_sides(torch.stack(weights[layers:]), dct_PP)
    outputs = []
    for map_PP, mix_PP in zip(maps_LPP.unbind(), mixing_LPP.unbind(), strict=True):
        x_NP = x_BTP.flatten(-3, -2)
        seen_BTP = _cut(x_NP @ map_PP.mT, x_BTP)
        mixed_BTP = _cut(x_NP @ mix_PP, x_BTP)
        scores_BTT = seen_BTP @ seen_BTP.mT
        if scores.by_distance:
            scores_BTT = scores_BTT - 0.5 * seen_BTP.square().sum(-1).unsqueeze(-2)
        shares_BTT = _softmax(scores.sharpness * scores_BTT)
        if not scores.adds_input:
            mixed_BTP = mixed_BTP + x_BTP
        sum_BTP = shares_BTT @ mixed_BTP
        x_BTP = torch.relu(x_BTP + sum_BTP if scores.adds_input else sum_BTP)
        outputs.append(x_BTP)
        keep((seen_BTP, mixed_BTP, shares_BTT))
    return outputs, (maps_LPP, mixing_LPP)


def _cut(tokens_NP: Tensor, like_BTP: Tensor) -> Tensor:
    """All tokens in sequences again."""
    return tokens_NP.view(*tokens_NP.shape[:-2], *like_BTP.shape[-3:])


def _both_sides(square_LPP: Tensor, dct_PP: Tensor) -> Tensor:
    """D' S D of the symmetric part S of every matrix."""
    left_LPP = (square_LPP + square_LPP.mT) @ (0.5 * dct_PP)
    return left_LPP.mT @ dct_PP


def _softmax(scores_BTT: Tensor) -> Tensor:
    """Over the last axis; torch's own takes 3 to 4 times as long over some ten numbers."""
    powers_BTT = torch.exp(scores_BTT - scores_BTT.amax(-1, keepdim=True))
    return powers_BTT / powers_BTT.sum(-1, keepdim=True)


def _relu_backward(slope: Tensor, output: Tensor) -> Tensor:
    return torch.ops.aten.threshold_backward(slope, output, 0)  # type: ignore[no-any-return]
