"""Benchmark of penalty-barrier multipliers: they weigh losses as the library's own surrogate."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from humancompatible.train.dual_optim import PBM

from benchmarks import penalty_barrier as module
from trainables.config.arm import ConstraintConfig


@pytest.mark.parametrize("variant", module.VARIANTS)
def test_weights_are_the_gradient_of_the_librarys_surrogate(variant: str) -> None:
    config = ConstraintConfig.from_json({"dual_optimizer": "augmented", "dual_lr": 0.9})
    ours = module.PenaltyBarrier(variant, 3, config, torch.device("cpu"), torch.float32)
    theirs = PBM(3, gamma=1 - 0.9, **module.VARIANTS[variant])
    generator = torch.Generator().manual_seed(0)
    for _ in range(60):
        signal_L = torch.rand(3, generator=generator) * 2 - torch.tensor([0.2, 1.0, 1.8])
        seen_L = signal_L.clone().requires_grad_()
        theirs.forward(torch.zeros(()), seen_L).backward()
        np.testing.assert_allclose(ours.effective(signal_L), seen_L.grad, rtol=1e-5)
        theirs.update(signal_L)
        ours.ascend(signal_L, 0.5)
    assert ours.values_L[0] > 1 > 0.1 > ours.values_L[2]  # violated, and satisfied


def test_every_variant_has_as_many_tries_as_the_augmented_lagrangian() -> None:
    assert len(module.GAMMAS) == len(module.REACHES)


def test_a_row_counts_what_the_arms_came_to() -> None:
    came = {("a", seed): {"feasible": seed < 3} for seed in range(5)}
    came |= {("b", seed): {"feasible": seed == 0} for seed in range(5)}
    tuning = {("a", 0.1): {"feasible": True}, ("b", 0.1): {"feasible": False}}
    row = module.row(came, {"a": 0.1, "b": 0.1}, tuning)
    assert (row["feasible"], row["arms"], row["tries_feasible"]) == (4, 10, 1)
    assert row["settings_most_seeds_feasible"] == 1
