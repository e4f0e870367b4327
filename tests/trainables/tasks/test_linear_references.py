"""Linear references against closed forms and against sums written out by hand."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.support.oracles import denoise
from trainables.config.arm import ArmConfig, ConstraintConfig, DataConfig
from trainables.tasks import linear_references as module
from trainables.tasks.base import References
from trainables.tasks.linear_references import fit_wiener, linear_references
from trainables.tasks.video_denoising import VideoDenoising

DATA = DataConfig(frame_size=32, patch_size=4, frames=3)
RUN = ArmConfig(
    data=DATA, train_gamma=0.2, test_gammas=(0.0, 0.2, 0.5), eval_windows=80, eval_draws=2
)

pytestmark = pytest.mark.usefixtures("cache_of_the_file")


def task_of(config: ArmConfig = RUN, dtype: torch.dtype = torch.float32) -> VideoDenoising:
    return VideoDenoising(config, torch.device("cpu"), dtype)


def references_of(config: ArmConfig = RUN, split: str = "dev") -> References:
    return linear_references(config, task_of(config), split)


def gaussian_vectors(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Vectors of six numbers with a known mean and covariance, of condition 1,000: (x, m, C)."""
    random = np.random.default_rng(7)
    rotation = np.linalg.qr(random.standard_normal((6, 6)))[0]
    spread, mean = np.geomspace(1.0, 1e-3, 6), random.uniform(0.0, 1.0, 6)
    draws = np.random.default_rng(seed).standard_normal((count, 6)) * np.sqrt(spread)
    return draws @ rotation.T + mean, mean, rotation @ np.diag(spread) @ rotation.T


def closed_form_loss(covariance: np.ndarray, sigma: float) -> float:
    """trace(C - C (C + sigma^2 I)^-1 C), by solving instead of by eigenvectors."""
    noisy = covariance + sigma**2 * np.eye(len(covariance))
    return float(np.trace(covariance - covariance @ np.linalg.solve(noisy, covariance)))


def fitted(vectors: np.ndarray) -> module.WienerFilter:
    return fit_wiener(iter(np.array_split(vectors.astype(np.float32), 7)))


def expected_loss(wiener: module.WienerFilter, sigma: float) -> float:
    """trace(C - C (C + sigma^2 I)^-1 C): the mean sum of squares left, per vector."""
    return float((wiener.variances_K * (1 - wiener.shrinkage(sigma))).sum())


@pytest.mark.parametrize("sigma", [0.03, 0.3, 3.0])
def test_the_wiener_loss_is_the_closed_form_on_gaussian_data(sigma: float) -> None:
    wiener = fitted(gaussian_vectors(100_000)[0])
    clean, _, covariance = gaussian_vectors(20_000, seed=1)
    expected = closed_form_loss(covariance, sigma)
    # fitted to 100,000 vectors: each variance is known to sqrt(2/n) = .45 %; 4 of it
    assert expected_loss(wiener, sigma) == pytest.approx(expected, rel=0.018)
    noise = sigma * np.random.default_rng(2).standard_normal(clean.shape)
    (error,) = wiener.errors(
        (clean + noise)[None].astype(np.float32), clean.astype(np.float32), [sigma]
    )
    # a mean over 20,000 squared errors in one to six directions: at most sqrt(2/n) = 1 %; 4 of it
    assert error / 20_000 == pytest.approx(expected, rel=0.04)


def test_no_other_shrinkage_of_a_coefficient_does_better() -> None:
    clean, _, _ = gaussian_vectors(50_000)
    wiener, sigma = fitted(clean), 0.2
    noise = sigma * np.random.default_rng(3).standard_normal(clean.shape)
    true = wiener.coefficients(clean.astype(np.float32)).astype(float)
    seen = wiener.coefficients((clean + noise).astype(np.float32)).astype(float)
    best = (seen * true).mean(0) / (seen * seen).mean(
        0
    )  # least squares, coefficient by coefficient
    np.testing.assert_allclose(wiener.shrinkage(sigma), best, atol=0.01)


def test_the_filter_is_the_matrix_formula() -> None:
    clean, _, _ = gaussian_vectors(2_000)
    wiener, sigma = fitted(clean), 0.1
    mean, covariance = clean.mean(0), np.cov(clean.T, bias=True)
    noisy = clean[:50] + sigma * np.random.default_rng(4).standard_normal((50, 6))
    gain = covariance @ np.linalg.inv(covariance + sigma**2 * np.eye(6))
    expected = mean + (noisy - mean) @ gain.T
    found = denoise(wiener, noisy.astype(np.float32), sigma)
    np.testing.assert_allclose(found, expected, atol=2e-5)  # float32


def test_errors_are_those_of_the_denoised_vectors() -> None:
    clean = gaussian_vectors(240)[0].reshape(40, 3, 12).astype(np.float32)
    wiener = fitted(gaussian_vectors(2_000)[0].reshape(-1, 12))
    random = np.random.default_rng(5)
    sigmas = [0.0, 0.1, 0.7]
    noisy = np.stack([clean + s * random.standard_normal(clean.shape) for s in sigmas])
    found = wiener.errors(noisy.astype(np.float32), clean, sigmas)
    for i, sigma in enumerate(sigmas):
        error = denoise(wiener, noisy[i].astype(np.float32), sigma) - clean
        assert found[i] == pytest.approx(np.square(error).sum(), rel=1e-4, abs=1e-8)


def test_without_noise_the_filter_returns_its_input() -> None:
    clean = gaussian_vectors(500)[0].astype(np.float32)
    constant = np.concatenate([clean, np.ones((500, 2), np.float32)], axis=1)  # variance 0
    np.testing.assert_allclose(denoise(fitted(constant), constant, 0.0), constant, atol=1e-5)


def test_the_identity_loses_exactly_the_noise() -> None:
    found, task = references_of(), task_of()
    for gamma in (0.2, 0.5):
        # 80 windows x 64 patches x 3 x 16 pixels = 245,760 draws: sqrt(1/2n) = .0014; 4 of it
        expected = 255 * gamma * task.std
        assert found.metrics["identity"][f"{gamma:.2f}"] == pytest.approx(expected, rel=0.0058)
    assert found.metrics["identity"]["0.00"] == 0.0
    assert found.losses["identity"] == pytest.approx(task.scales.identity_loss, rel=0.0083)


def test_the_constant_predicts_the_mean_training_pixel_whatever_the_noise() -> None:
    found, task = references_of(), task_of()
    clean = torch.cat([batch.targets for batch in task.held_out("dev", 0.0, 0)]).double().numpy()
    expected = 255 * np.sqrt(np.square(clean - task.video.mean).mean())
    for gamma in ("0.00", "0.20", "0.50"):
        assert found.metrics["constant"][gamma] == pytest.approx(expected, rel=1e-5)


def test_on_its_own_training_pixels_the_constant_loses_their_variance() -> None:
    every = dataclasses.replace(RUN, eval_windows=10**6)  # 120 frames are 40 whole windows of 3
    found, task = references_of(every, "train"), task_of(every)
    assert found.losses["constant"] == pytest.approx(task.scales.constant_loss, rel=1e-5)
    assert found.metrics["constant"]["0.20"] == pytest.approx(255 * task.std, rel=1e-5)


def test_on_training_clips_the_filters_lose_what_their_closed_forms_say() -> None:
    every = dataclasses.replace(RUN, eval_windows=10**6)
    found, task = references_of(every, "train"), task_of(every)
    for name, frames in (("wiener", 1), ("wiener_temporal", 3)):
        fit = module._fitted(every, task, frames)
        for gamma in (0.2, 0.5):
            expected = expected_loss(fit, gamma * task.std) / frames
            # 15,360 sequences, correlated within scenes, against 17,664 overlapping ones
            measured = found.metrics[name][f"{gamma:.2f}"]
            assert measured == pytest.approx(task.metric(expected), rel=0.03)


def test_the_order_of_the_references_on_training_clips() -> None:
    found = references_of(RUN, "train").losses
    assert found["wiener_temporal"] < found["wiener"] < found["identity"] < found["constant"]


def test_references_are_scored_on_the_draws_that_the_models_get() -> None:
    found, task = references_of(), task_of()
    spatial = module._fitted(RUN, task, 1)
    for gamma in RUN.test_gammas:
        error = total = 0.0
        for batch in task.held_out("dev", gamma, 0):
            denoised = denoise(spatial, batch.inputs.numpy(), gamma * task.std)
            loss = task.loss(torch.from_numpy(denoised), batch.targets)
            error, total = error + loss.double().sum().item(), total + len(loss)
        expected = task.metric(error / total)
        assert found.metrics["wiener"][f"{gamma:.2f}"] == pytest.approx(
            expected, rel=1e-4, abs=1e-3
        )


def test_the_filter_fitted_at_train_gamma_never_learns_the_test_gamma() -> None:
    """As the models: one shrinkage for every test gamma. The refitted one is its lower bound."""
    found, task = references_of(RUN, "train"), task_of()
    spatial = module._fitted(RUN, task, 1)
    fixed, refitted = found.metrics["wiener_train"], found.metrics["wiener"]
    for gamma in RUN.test_gammas:
        error = total = 0.0
        for batch in task.held_out("train", gamma, 0):
            denoised = denoise(spatial, batch.inputs.numpy(), RUN.train_gamma * task.std)
            loss = task.loss(torch.from_numpy(denoised), batch.targets)
            error, total = error + loss.double().sum().item(), total + len(loss)
        assert fixed[f"{gamma:.2f}"] == pytest.approx(task.metric(error / total), rel=1e-4)
    assert fixed["0.20"] == refitted["0.20"]
    assert found.losses["wiener_train"] == found.losses["wiener"]
    assert fixed["0.00"] > refitted["0.00"]
    assert fixed["0.50"] > 1.1 * refitted["0.50"]


def test_losses_at_train_gamma_are_the_mean_over_all_draws() -> None:
    task = task_of()
    by_draw = [
        torch.cat([task.loss(b.inputs, b.targets) for b in task.held_out("dev", 0.2, draw)]).mean()
        for draw in range(2)
    ]
    assert by_draw[0] != by_draw[1]
    expected = (by_draw[0] + by_draw[1]).item() / 2
    assert references_of().losses["identity"] == pytest.approx(expected, rel=1e-5)


def test_every_arm_of_a_sweep_shares_one_computation(monkeypatch: pytest.MonkeyPatch) -> None:
    first = references_of()
    monkeypatch.delattr(module, "_measure")
    other = dataclasses.replace(
        RUN, seed=3, steps=7, primal_lr=0.1, constraint=ConstraintConfig(alpha=0.5)
    )
    assert references_of(other) == first


def test_other_gammas_and_cuts_are_computed_anew() -> None:
    first = references_of()
    for changed in (
        dataclasses.replace(RUN, train_gamma=0.25),
        dataclasses.replace(RUN, eval_windows=5),
        dataclasses.replace(RUN, data=dataclasses.replace(DATA, stride=7)),
    ):
        assert references_of(changed) != first


def test_sequences_too_long_for_a_decomposition_have_no_temporal_filter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_MOST_COEFFICIENTS", 3 * 16 - 1)
    found = references_of(dataclasses.replace(RUN, test_gammas=(0.1, 0.2)))
    assert (
        set(found.metrics)
        == set(found.losses)
        == {"identity", "constant", "wiener", "wiener_train"}
    )


@pytest.mark.slow
def test_real_ped2_references_are_near_those_measured_before(real_data: Path) -> None:
    data = DataConfig(name="ucsd_ped2", folder=str(real_data / "ped2"))
    config = ArmConfig(data=data, train_gamma=0.13)
    found = linear_references(config, task_of(config), "test")
    means = {name: np.mean(list(scores.values())) for name, scores in found.metrics.items()}
    # An independent implementation gave these on other windows of the same clips
    assert means["identity"] == pytest.approx(11.39, rel=0.01)
    assert means["wiener"] == pytest.approx(5.34, rel=0.10)
    assert means["wiener_temporal"] == pytest.approx(4.51, rel=0.10)
