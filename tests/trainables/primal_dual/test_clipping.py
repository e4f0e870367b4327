"""Clipping against float64 and torch's own, and the bits of a row against those of an arm alone."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from trainables.primal_dual import clipping
from trainables.primal_dual.clipping import clip, clip_rows, halved_norms

SHAPES = ((64, 64), (7, 16, 3), (33,), (), (1,))
ARMS = 5


def gradients(scale: float = 1.0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [scale * torch.randn(ARMS, *shape, generator=generator) for shape in SHAPES]


def of_arm(row: int, scale: float = 1.0) -> list[nn.Parameter]:
    arms = []
    for of_all in gradients(scale):
        arms.append(nn.Parameter(torch.zeros(of_all.shape[1:])))
        arms[-1].grad = of_all[row].clone()
    return arms


def test_halved_norms_are_norms() -> None:
    for count in (1, 2, 3, 1000, 4097):
        drawn = torch.randn(ARMS, count, generator=torch.Generator().manual_seed(count))
        exact = drawn.double().square().sum(1).sqrt()
        # sums of pairs: as many roundings as halvings, of a relative 6e-8 each
        bound = (math.log2(count) + 2) * 6e-8
        assert torch.allclose(halved_norms([drawn]).double(), exact, rtol=bound, atol=0)


@pytest.mark.parametrize("halved", [True, False])
@pytest.mark.parametrize("scale", [0.001, 1.0, 1e6])
def test_a_row_has_the_bits_of_its_arm_alone(
    halved: bool, scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clipping, "_are_halved", lambda gradients: halved)
    together = gradients(scale)
    norms_K = clip_rows(together, 1.0)
    for row in range(ARMS):
        arm = of_arm(row, scale)
        assert torch.equal(clip(arm, 1.0), norms_K[row])
        for parameter, rows in zip(arm, together, strict=True):
            assert parameter.grad is not None
            assert torch.equal(parameter.grad, rows[row])
        total = math.sqrt(
            sum(float(p.grad.double().square().sum()) for p in arm if p.grad is not None)
        )
        assert total <= 1.0 + 1e-5


def test_on_a_cpu_the_norm_is_torchs_to_the_bit() -> None:
    arm, other = of_arm(0), of_arm(0)
    other.append(nn.Parameter(torch.zeros(3)))  # without a gradient
    assert torch.equal(clip(other, 0.5), nn.utils.clip_grad_norm_(arm, 0.5))
    for mine, theirs in zip(arm, other, strict=False):
        assert mine.grad is not None
        assert theirs.grad is not None
        assert torch.equal(mine.grad, theirs.grad)
