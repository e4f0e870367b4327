"""The one-layer bound: the features are the layers' own, and the fit is the least-squares one."""

from __future__ import annotations

import math
import sys

import pytest
import torch

from benchmarks.one_layer_bound import (
    best_map,
    bounds,
    dust_candidate,
    held_out_loss,
    main,
    ut_candidate,
)
from tests.support.oracles import TINY
from trainables.config.arm import ModelConfig
from trainables.models.ut import VARIANTS, UTLayer, dct_matrix
from trainables.tasks.video_denoising import VideoDenoising

CONFIG = TINY.unconstrained()
PATCH = CONFIG.data.patch_size
SMALL_DUST = ModelConfig(name="dust", atoms_per_side=6)


@pytest.fixture(scope="module")
def task() -> VideoDenoising:
    return VideoDenoising(CONFIG, torch.device("cpu"), torch.float64)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_ut_layer_is_its_residual_plus_its_features_times_its_map(variant: str) -> None:
    torch.manual_seed(0)
    layer, x = UTLayer(PATCH, VARIANTS[variant], 0.3), torch.rand(2, 5, PATCH**2).double()
    with torch.no_grad():
        layer.mixing.copy_(0.1 * torch.randn_like(layer.mixing))
    symmetric = 0.5 * (layer.mixing + layer.mixing.mT)
    if layer.variant.basis == "dct":
        full = torch.kron(dct_matrix(PATCH), dct_matrix(PATCH))
        symmetric = full.mT @ symmetric @ full
    residual, features = ut_candidate(variant, PATCH, 0.3).split(x)
    torch.testing.assert_close(torch.relu(residual + features @ symmetric), layer(x))


@pytest.mark.parametrize("depth", [1, 2])
def test_a_dust_layer_is_its_code_times_its_dictionary(depth: int) -> None:
    torch.manual_seed(0)
    x = torch.rand(2, 5, PATCH**2).double()
    candidate = dust_candidate(depth, PATCH, SMALL_DUST)
    residual, code = candidate.split(x)
    assert not residual.any()
    from trainables.models.dust import overcomplete_dct

    torch.testing.assert_close(code @ overcomplete_dct(PATCH, 6).mT, candidate.at_start(x))


def test_no_other_map_does_better_on_what_it_was_fitted_to(task: VideoDenoising) -> None:
    """The gradient of the fitted loss vanishes, and steps in any direction raise it."""
    candidate = ut_candidate("distance", PATCH, 0.3)
    fitted = best_map(candidate, task, 20).requires_grad_()

    def loss(weights: torch.Tensor) -> torch.Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for step in range(20):
            batch = task.train_batch(step)
            residual, features = candidate.split(batch.inputs)
            total = total + task.loss(residual + features @ weights, batch.targets).mean()
        return total

    at_best = loss(fitted)
    (gradient,) = torch.autograd.grad(at_best, fitted)
    assert gradient.abs().max() < 1e-5 * at_best
    for seed in range(5):
        other = fitted + 0.01 * torch.randn(
            fitted.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
        )
        assert loss(other.detach()) > at_best


def test_with_one_frame_the_bound_is_the_wiener_filter_of_second_moments() -> None:
    """One token attends to itself: Z = X, and the best linear map is M (M + sigma^2 I)^-1."""
    one = CONFIG.with_fields({"data.frames": 1, "data.stride": 1, "batch_size": 64})
    task = VideoDenoising(one, torch.device("cpu"), torch.float64)
    sigma = one.train_gamma * task.std
    batches = [task.train_batch(step) for step in range(40)]
    clean = torch.cat([batch.targets for batch in batches]).flatten(0, 1)
    second = clean.mT @ clean / len(clean)
    wiener = torch.linalg.solve(
        second + sigma**2 * torch.eye(PATCH**2, dtype=torch.float64), second
    )
    candidate = ut_candidate("sharp", PATCH, 0.3)
    fitted = best_map(candidate, task, 40) + torch.eye(PATCH**2, dtype=torch.float64)
    losses = [held_out_loss(lambda x, w=w: x @ w, task, one) for w in (wiener, fitted)]
    assert losses[0] == pytest.approx(losses[1], rel=0.02)  # 2,560 noisy patches of 16 pixels


def test_the_table_puts_every_variant_beside_the_references() -> None:
    found = bounds(CONFIG, 30)
    assert {"identity", "constant", "wiener", "wiener_temporal"} <= found["references"].keys()
    assert found["variants"].keys() == {
        *(f"ut {name}" for name in VARIANTS),
        "dust layer 1",
        "dust layer 2",
    }
    for row in found["variants"].values():
        assert all(math.isfinite(value) for value in row.values())
        assert row["best_over_identity"] == pytest.approx(
            row["best_linear"] / found["references"]["identity"]
        )


def test_without_noise_there_is_no_bound(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["one_layer_bound.py", "--gamma", "0"])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert "--gamma must be above 0, got 0.0" in capsys.readouterr().err
