"""What no training is needed for: the losses that a trained denoiser is read against.

Four predictors: the identity (return the input), the constant (the training pixels' mean), and the
Wiener filter of a patch in space (D x D) and in space and time (T D x T D), each fitted in closed
form to clean training patches and matched to the noise. All are scored on the held-out units with
the same noise draws as the models, and cached, because every arm of a sweep shares them.

Wiener: x^ = m + C (C + sigma^2 I)^-1 (y - m), the best linear estimate of x from y = x + n. In the
eigenbasis of C each coefficient is multiplied by e / (e + sigma^2), so one decomposition serves
every gamma. Its expected loss is trace(C - C (C + sigma^2 I)^-1 C).

Shape suffixes: B sequences, K coefficients of one vector (D, or T D), D pixels of a patch.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainables.config import RunConfig
from trainables.datasets.cache import built_once
from trainables.tasks.video_denoising import VideoDenoising

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Predictor = Callable[[Singles, float], Singles]  # (noisy [B, T, D], sigma) -> denoised

_FORMAT = 1  # raised when the same data would give other numbers
_MOST_SEQUENCES = 20_000  # clean training sequences that covariances are estimated from
_MOST_COEFFICIENTS = 4096  # wiener_temporal is left out above: the decomposition takes minutes
_BLOCK = 2_000  # sequences at a time, to bound memory


@dataclass(frozen=True)
class LinearReferences:
    """By predictor: identity, constant, wiener, and wiener_temporal where it is small enough."""

    metrics: dict[str, dict[str, float]]  # the task's metric by test gamma ("0.15"), draw 0
    losses: dict[str, float]  # at train_gamma, mean over eval_draws, in the task's own unit


@dataclass(frozen=True)
class WienerFilter:
    """The best linear denoiser of vectors with this mean and covariance, at any noise level."""

    mean_K: Singles
    basis_KK: Singles  # columns: eigenvectors of the covariance
    variances_K: Floats  # its eigenvalues, >= 0

    def shrinkage(self, sigma: float) -> Floats:
        """What each coefficient is multiplied by, in [0, 1]; 1 without noise."""
        if sigma == 0:
            return np.ones_like(self.variances_K)
        return self.variances_K / (self.variances_K + sigma**2)

    def expected_loss(self, sigma: float) -> float:
        """trace(C - C (C + sigma^2 I)^-1 C): the mean sum of squares left, per vector."""
        return float((self.variances_K * (1 - self.shrinkage(sigma))).sum())

    def __call__(self, noisy_BK: Singles, sigma: float) -> Singles:
        """Denoised vectors, same shape."""
        coefficients = (noisy_BK - self.mean_K) @ self.basis_KK
        coefficients *= self.shrinkage(sigma).astype(np.float32)
        return coefficients @ self.basis_KK.T + self.mean_K


def fit_wiener(blocks: Iterator[Singles]) -> WienerFilter:
    """Fit to clean vectors, given as blocks [B, K] that are read once.

    Sums of a block are in float32, sums over blocks in float64; the first block's mean is taken off
    before, so that the covariance is no difference of large numbers.
    """
    first = next(blocks)
    shift_K = first.mean(0)
    count, total_K = 0, np.zeros(first.shape[1])
    squares_KK = np.zeros((first.shape[1],) * 2)
    for block in _chain(first, blocks):
        centred = block - shift_K
        count += len(centred)
        total_K += centred.sum(0, dtype=np.float64)
        squares_KK += centred.T @ centred
    offset_K = total_K / count
    covariance = squares_KK / count - np.outer(offset_K, offset_K)
    variances_K, basis_KK = np.linalg.eigh(covariance)
    return WienerFilter(
        mean_K=(shift_K + offset_K).astype(np.float32),
        basis_KK=basis_KK.astype(np.float32),
        variances_K=variances_K.clip(min=0),
    )


def linear_references(
    config: RunConfig, task: VideoDenoising, split: str = "dev"
) -> LinearReferences:
    """The references of one run, from the cache where another arm has computed them.

    They depend on the data, on how sequences and units are cut, and on the gammas, but on neither
    the seed, the model nor the constraint.
    """
    data = dataclasses.replace(config.data, folder=None, fingerprint=task.video.fingerprint)
    key = {
        "format": _FORMAT,
        "data": data.to_json(),
        "split": split,
        "train_gamma": config.train_gamma,
        "test_gammas": list(config.test_gammas),
        "eval_windows": config.eval_windows,
        "eval_draws": config.eval_draws,
        "dtype": config.dtype,
    }

    def build(folder: Path) -> None:
        found = _measure(config, task, split)
        (folder / "references.json").write_text(json.dumps(dataclasses.asdict(found)))

    folder = built_once("references", key, build)
    stored: dict[str, Any] = json.loads((folder / "references.json").read_text())
    return LinearReferences(**stored)


def _measure(config: RunConfig, task: VideoDenoising, split: str) -> LinearReferences:
    predictors = _predictors(task)
    metrics: dict[str, dict[str, float]] = {name: {} for name in predictors}
    at_train: dict[str, list[float]] = {name: [] for name in predictors}
    draws = [(gamma, 0) for gamma in config.test_gammas]
    draws += [(config.train_gamma, d) for d in range(config.eval_draws)]
    for gamma, draw in dict.fromkeys(draws):
        for name, loss in _losses(task, predictors, split, gamma, draw).items():
            if draw == 0 and gamma in config.test_gammas:
                metrics[name][f"{gamma:.2f}"] = task.metric(loss)
            if gamma == config.train_gamma:
                at_train[name].append(loss)
    return LinearReferences(metrics, {n: float(np.mean(found)) for n, found in at_train.items()})


def _predictors(task: VideoDenoising) -> dict[str, Predictor]:
    """By name, what maps noisy sequences [B, T, D] and the noise's sigma to denoised ones."""
    constant = np.float32(task.video.mean)
    spatial = fit_wiener(b.reshape(-1, task.patch_pixels) for b in _clean_blocks(task))
    predictors: dict[str, Predictor] = {
        "identity": lambda noisy, sigma: noisy,
        "constant": lambda noisy, sigma: np.full_like(noisy, constant),
        "wiener": _shaped(spatial),
    }
    if task.frames * task.patch_pixels <= _MOST_COEFFICIENTS:
        temporal = fit_wiener(b.reshape(len(b), -1) for b in _clean_blocks(task))
        predictors["wiener_temporal"] = _shaped(temporal)
    return predictors


def _shaped(wiener: WienerFilter) -> Predictor:
    """The filter on sequences [B, T, D]: on each patch, or on whole sequences, as it was fitted."""
    size = len(wiener.mean_K)
    return lambda noisy, sigma: wiener(noisy.reshape(-1, size), sigma).reshape(noisy.shape)


def _clean_blocks(task: VideoDenoising) -> Iterator[Singles]:
    """Clean training sequences [B, T, D] in [0, 1], evenly chosen among all."""
    count = min(task.train_sequences, _MOST_SEQUENCES)
    chosen = np.arange(count) * task.train_sequences // count
    for first in range(0, count, _BLOCK):
        pixels = task.clean_train_sequences(chosen[first : first + _BLOCK])
        yield pixels.astype(np.float32) / np.float32(255)


def _losses(
    task: VideoDenoising, predictors: dict[str, Predictor], split: str, gamma: float, draw: int
) -> dict[str, float]:
    """Mean loss of each predictor over the units of ``split``, in the task's own unit."""
    sums = dict.fromkeys(predictors, 0.0)
    count = 0
    for batch in task.held_out(split, gamma, draw):
        noisy = batch.inputs.cpu().numpy().astype(np.float32)
        clean = batch.targets.cpu().numpy().astype(np.float32)
        count += len(noisy)
        for name, predict in predictors.items():
            error = predict(noisy, gamma * task.std) - clean
            sums[name] += float(np.square(error).sum(-1).mean(-1).sum(dtype=np.float64))
    return {name: total / count for name, total in sums.items()}


def _chain(first: Singles, rest: Iterator[Singles]) -> Iterator[Singles]:
    yield first
    yield from rest
