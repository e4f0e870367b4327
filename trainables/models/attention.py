"""Attention scores in at least float32, whatever the forward pass runs in.

The inner product of two patches is in the tens and small differences decide the softmax: rounded to
bfloat16 it is off by tenths, and a temperature multiplies that.
"""

from __future__ import annotations

import torch
from torch import Tensor


def inner_products(tokens_BTP: Tensor) -> Tensor:
    """x_i . x_j of all tokens of a sequence: [B, T, T] from [B, T, P]."""
    with torch.autocast(tokens_BTP.device.type, enabled=False):
        wide_BTP = _wide(tokens_BTP)
        return wide_BTP @ wide_BTP.mT


def squared_norms(tokens_BTP: Tensor) -> Tensor:
    """|x_i|^2 of every token: [B, T] from [B, T, P]."""
    return _wide(tokens_BTP).square().sum(-1)


def _wide(tokens: Tensor) -> Tensor:
    return tokens if tokens.dtype.itemsize >= 4 else tokens.float()
