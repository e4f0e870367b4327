"""Clipping of gradients, with the same bits for an arm alone and in a group.

On a CPU the norm is torch's: that of every tensor, then that of those. On a GPU the order in which
torch's kernels sum depends on how many rows they are given. There squares are added in halves,
number by number, until one is left: every row has the bits that it has alone, on any device.

Shape suffixes: K arms, N numbers of an arm's gradients.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

# Numbers of an arm's gradients. Above, where nobody fuses arms, a GPU takes torch's norm, too:
# halves cost a copy of the gradients.
MOST_HALVED = 2**24


@torch.no_grad()
def clip(parameters: Iterable[nn.Parameter | Tensor], most: float) -> Tensor:
    """Scale the gradients of one arm so that their norm is at most ``most``; the norm before."""
    known = [p for p in parameters if p.grad is not None]
    gradients = [p.grad[None] for p in known if p.grad is not None]
    if not _are_halved(gradients):
        return nn.utils.clip_grad_norm_(known, most)
    return clip_rows(gradients, most)[0]


@torch.no_grad()
def clip_rows(gradients: Sequence[Tensor], most: float) -> Tensor:
    """Clip gradients [K, ...] of K arms row by row to norm ``most``; the norms [K] before."""
    norms_K = (halved_norms if _are_halved(gradients) else _norms)(gradients)
    factors_K = (most / (norms_K + 1e-6)).clamp(max=1.0)  # as torch has it, to the bit
    for gradient in gradients:
        gradient.mul_(factors_K.view(-1, *(1,) * (gradient.ndim - 1)))
    return norms_K


def halved_norms(gradients: Sequence[Tensor]) -> Tensor:
    """Norms [K] of the rows of gradients [K, ...], by sums of numbers two at a time."""
    squares_KN = torch.cat([g.reshape(len(g), -1) for g in gradients], dim=1).square_()
    size = squares_KN.shape[1]
    while size > 1:
        half = (size + 1) // 2  # of an odd size the middle number waits for the next round
        squares_KN[:, : size - half].add_(squares_KN[:, half:size])
        size = half
    return squares_KN[:, 0].sqrt()


def _norms(gradients: Sequence[Tensor]) -> Tensor:
    """Norms [K] of the rows, summed in the order of ``nn.utils.clip_grad_norm_`` on a CPU."""
    norms_KP = torch.stack(
        [torch.linalg.vector_norm(g.reshape(len(g), -1), dim=1) for g in gradients], 1
    )
    norms_K: Tensor = torch.linalg.vector_norm(norms_KP, dim=1)
    return norms_K


def _are_halved(gradients: Sequence[Tensor]) -> bool:
    if not gradients or not gradients[0].is_cuda:
        return False
    return sum(g[0].numel() for g in gradients) <= MOST_HALVED
