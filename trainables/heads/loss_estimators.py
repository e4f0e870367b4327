"""Unbiased estimates of inner layers' losses, from sampled tokens or layers.

A language-model head on every layer costs more than the network below it. Both estimates read the
head less often, leave the last layer exact, and are affine in the losses, so that violations,
f_l - (1 - alpha) f_(l-1), and gradients are unbiased as well. Draws come from a CPU generator that
the caller keys by the step; nothing here waits for another device.

Sampled tokens: a random fraction of every answer's places, the same for all layers. Of n places k
are drawn without replacement, so the mean over them has variance (1 - k / n) s^2 / k, where s^2 is
the variance of the n losses (divisor n - 1); Cochran, Sampling Techniques, theorem 2.2. With a
violation per token in the loss's place it is that of the violation. The last layer's losses, known
at every place, are a control variate: mean(f_L) + sampled mean(f_l - f_L) is unbiased, too, with
s^2 of the differences, which is smaller where layers agree on which tokens are hard.

Sampled layers: m of the M inner ones, all of their tokens. With a control variate c_l, which must
not depend on the draw,

    F_l = c_l + [l drawn] (M / m) (f_l - c_l)

is f_l on average. With d = f - c and q = M / m - 1 its covariances are

    Var F_l = q d_l^2,    Cov(F_l, F_j) = -q d_l d_j / (M - 1)    for l != j

and those of violations A F + b are A Cov(F) A^T. The gradient is that of M / m times the drawn
losses; no control variate makes its variance smaller.

Shape suffixes: B samples, K places of the longest draw, M inner layers in reading order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from trainables.errors import InvalidValue


class SampledPlaces(NamedTuple):
    """Drawn places of every sample's answer, as a rectangle."""

    places_BK: Tensor
    """int64, ascending, counted from the answer's first token; 0 where the draw is shorter."""
    drawn_BK: Tensor
    """bool: True at the k of every row that were drawn."""


def sample_places(
    lengths: Sequence[int], fraction: float, generator: torch.Generator
) -> SampledPlaces:
    """ceil(fraction n) of the n places of every sample, uniformly without replacement.

    Args:
        lengths: n of every sample: tokens that have a loss.
        fraction: in (0, 1]; 1 takes every place.
        generator: on the CPU, where the result is, too.

    Raises InvalidValue where ``fraction`` is not in (0, 1], or a sample has no place.
    """
    if not 0 < fraction <= 1:
        raise InvalidValue(f"fraction must be in (0, 1], got {fraction}: 1 takes all tokens.")
    if min(lengths, default=0) < 1:
        raise InvalidValue(
            "every sample must have 1 answer token or more to draw from, got lengths "
            f"{list(lengths)}: leave out samples whose answer was cut off."
        )
    lengths_BK = torch.tensor(lengths).unsqueeze(1)
    # 0.07 x 100 is 7, not 8: a product of floats may lie just above
    counts_BK = (lengths_BK.double() * fraction - 1e-9).ceil().clamp(min=1).long()
    longest = int(lengths_BK.max())
    order = torch.rand(len(lengths), longest, dtype=torch.float64, generator=generator)
    order.masked_fill_(torch.arange(longest) >= lengths_BK, 2)  # behind every place there is
    drawn_BK = torch.arange(int(counts_BK.max())) < counts_BK
    places_BK = order.argsort(1)[:, : drawn_BK.shape[1]]
    places_BK = places_BK.masked_fill(~drawn_BK, longest).sort(1).values
    return SampledPlaces(places_BK.masked_fill(~drawn_BK, 0), drawn_BK)


def draw_layers(inner: int, drawn: int, generator: torch.Generator) -> tuple[int, ...]:
    """``drawn`` of the positions 0 ... ``inner`` - 1, ascending, every set equally likely.

    Raises InvalidValue where ``drawn`` is below 1 or above ``inner``.
    """
    if not 1 <= drawn <= inner:
        raise InvalidValue(f"layers drawn must be 1 to {inner}, all inner ones, got {drawn}.")
    return tuple(sorted(torch.randperm(inner, generator=generator)[:drawn].tolist()))


def estimated_losses(losses: Mapping[int, Tensor], controls_M: Tensor) -> Tensor:
    """F [M], the unbiased estimates of all inner losses, with the gradient of the drawn ones.

    Args:
        losses: f_l of the layers that ``draw_layers`` gave, by position: scalars.
        controls_M: c, which may not depend on the draw: running means of the steps before, say.
    """
    weight = len(controls_M) / len(losses)
    controls = controls_M.detach().unbind()
    return torch.stack(
        [
            c + weight * (losses[layer] - c) if layer in losses else c
            for layer, c in enumerate(controls)
        ]
    )


def updated_controls(controls_M: Tensor, losses: Mapping[int, Tensor], rate: float) -> Tensor:
    """Running means c_l + rate (f_l - c_l) of the drawn layers, for the next step's estimates.

    Args:
        controls_M: before; they start anywhere, at the reference loss for instance.
        losses: as in ``estimated_losses``, after it.
        rate: in (0, 1]; 1 keeps what was seen last.
    """
    controls = controls_M.detach().unbind()
    return torch.stack(
        [
            c + rate * (losses[layer].detach() - c) if layer in losses else c
            for layer, c in enumerate(controls)
        ]
    )
