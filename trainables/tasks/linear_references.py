"""Reference predictors of denoising that need no training: identity, mean, Wiener.

The identity (return the input), the constant (the training pixels' mean), and the Wiener filter of
a patch in space (D x D) and, where a sample is a sequence, in space and time (T D x T D), each
fitted in closed form to clean training patches and matched to the noise of every test gamma: they
know what no model is told. ``wiener_train`` is the filter in space matched to train_gamma, whatever
the test gamma, as the models are. All are scored on the held-out units with the same noise draws as
the models. Fits and scores are cached: every arm of a sweep shares them.

Wiener: x^ = m + C (C + sigma^2 I)^-1 (y - m), the best linear estimate of x from y = x + n. In the
eigenbasis of C each coefficient is multiplied by e / (e + sigma^2), so one decomposition serves
every gamma. Its expected loss is trace(C - C (C + sigma^2 I)^-1 C).

Shape suffixes: R noise draws, B samples, T frames (or the patches of one frame), D pixels of a
patch, K coefficients of one vector (D, or T D).
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from torch import Tensor

from trainables.config.arm import ArmConfig
from trainables.fetching.cache import built_once
from trainables.tasks.base import References
from trainables.tasks.denoising import Denoising
from trainables.tasks.held_out_units import split_seed

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
# (noisy [R, B, T, D], clean [B, T, D], sigmas [R]) -> squared error [R], summed over the rest
Errors = Callable[[Singles, Singles, list[float]], Floats]

_FORMAT = 3  # raised when the same data would give other numbers
_MOST_SEQUENCES = 20_000  # clean training sequences that covariances are estimated from
_MOST_COEFFICIENTS = 4096  # wiener_temporal is left out above: the decomposition takes minutes
_BLOCK = 2_000  # sequences at a time, to bound memory


@dataclass(frozen=True)
class WienerFilter:
    """The best linear denoiser of vectors with this mean and covariance, at any noise level."""

    mean_K: Singles
    basis_KK: Singles  # columns: eigenvectors of the covariance
    variances_K: Floats  # its eigenvalues, >= 0

    def shrinkage(self, sigma: float) -> Floats:
        """Factor of each coefficient, in [0, 1]; 1 without noise."""
        if sigma == 0:
            return np.ones_like(self.variances_K)
        return self.variances_K / (self.variances_K + sigma**2)

    def coefficients(self, vectors: Singles) -> Singles:
        """Centred vectors [..., T, D] in the eigenbasis: [vectors, K]."""
        centred_BK = vectors.reshape(-1, len(self.mean_K)) - self.mean_K
        return np.asarray(centred_BK @ self.basis_KK, np.float32)

    def errors(self, noisy: Singles, clean: Singles, sigmas: list[float]) -> Floats:
        """Squared error of the estimates per draw, [R]; in the eigenbasis, which is shorter."""
        true_BK = self.coefficients(clean)
        seen_RBK = self.coefficients(noisy).reshape(len(sigmas), *true_BK.shape)
        kept_RK = np.stack([self.shrinkage(s) for s in sigmas]).astype(np.float32)
        return _summed_squares(seen_RBK * kept_RK[:, None] - true_BK)


def fit_wiener(blocks: Iterator[Singles]) -> WienerFilter:
    """Fit to clean vectors, given as blocks [B, K] that are read once.

    Sums within a block are in float32, over blocks in float64; the first block's mean is taken off
    before, so that the covariance is no difference of large numbers.
    """
    first = next(blocks)
    shift_K, size = first.mean(0), first.shape[1]
    count, total_K, squares_KK = 0, np.zeros(size), np.zeros((size, size))
    for block in itertools.chain([first], blocks):
        centred = block - shift_K
        count += len(centred)
        total_K += centred.sum(0, dtype=np.float64)
        squares_KK += centred.T @ centred
    offset_K = total_K / count
    variances_K, basis_KK = np.linalg.eigh(squares_KK / count - np.outer(offset_K, offset_K))
    return WienerFilter(
        mean_K=(shift_K + offset_K).astype(np.float32),
        basis_KK=basis_KK.astype(np.float32),
        variances_K=variances_K.clip(min=0),
    )


def linear_references(config: ArmConfig, task: Denoising, split: str = "dev") -> References:
    """The references of one run, from the cache where another arm has computed them.

    They depend on the data, on how sequences and units are cut, and on the gammas, but on neither
    the seed, the model nor the constraint. ``metrics`` follow ``config.test_gammas``.
    """
    key = _fit_key(config, task) | {
        "split": split,
        "train_gamma": config.train_gamma,
        "test_gammas": list(config.test_gammas),
        "eval_windows": "all" if split == "test" else config.eval_windows,
        "eval_draws": config.eval_draws,
        "dtype": config.dtype,
        **({} if config.score_draws == 1 else {"score_draws": config.score_draws}),
    }

    def build(folder: Path) -> None:
        with threadpool_limits(1):  # sums must not depend on who builds first
            references = _measure(config, task, split)
        (folder / "references.json").write_text(json.dumps(dataclasses.asdict(references)))

    folder = built_once("references", key, build)
    return References(**json.loads((folder / "references.json").read_text()))


def _measure(config: ArmConfig, task: Denoising, split: str) -> References:
    """Score every predictor, unit by unit: all draws of a unit at once share its clean pixels."""
    task = copy.copy(task)  # all draws of a batch are held at once, which is much for a GPU
    task.device = torch.device("cpu")
    every = range(config.score_draws)
    scored = [(gamma, draw) for gamma in config.test_gammas for draw in every]
    trained = [(config.train_gamma, draw) for draw in range(config.eval_draws)]
    draws = list(dict.fromkeys(scored + trained))
    sigmas = [gamma * task.std for gamma, _ in draws]
    predictors = _predictors(config, task)
    sums = {name: np.zeros(len(draws)) for name in predictors}
    count = 0
    for batches in zip(*(task.held_out(split, g, d) for g, d in draws), strict=True):
        clean = _patches(task, batches[0].targets)
        noisy = np.stack([_patches(task, batch.inputs) for batch in batches])
        count += len(clean)
        for name, errors in predictors.items():
            sums[name] += errors(noisy, clean, sigmas) / task.squares_per_loss
    loss = {n: dict(zip(draws, sums[n] / count, strict=True)) for n in predictors}
    return References(
        {
            n: {
                f"{g:.2f}": task.metric(float(np.mean([loss[n][g, d] for d in every])))
                for g in config.test_gammas
            }
            for n in loss
        },
        {n: float(np.mean([loss[n][draw] for draw in trained])) for n in loss},
    )


def _patches(task: Denoising, given: Tensor) -> Singles:
    """The grey patches [B, patches, D] of what models are given."""
    return task.patches_in(given).cpu().numpy().astype(np.float32)


def _predictors(config: ArmConfig, task: Denoising) -> dict[str, Errors]:
    """The squared errors of every predictor, by its name."""
    constant, spatial = np.float32(task.video.mean), _fitted(config, task, 1)
    sigma = config.train_gamma * task.std
    predictors: dict[str, Errors] = {
        "identity": lambda noisy, clean, sigmas: _summed_squares(noisy - clean),
        "constant": lambda noisy, clean, sigmas: np.tile(
            _summed_squares((constant - clean)[None]), len(sigmas)
        ),
        "wiener": spatial.errors,
        "wiener_train": lambda noisy, clean, sigmas: spatial.errors(
            noisy, clean, [sigma] * len(sigmas)
        ),
    }
    if task.shows_time and task.frames * task.patch_pixels <= _MOST_COEFFICIENTS:
        predictors["wiener_temporal"] = _fitted(config, task, task.frames).errors
    return predictors


def _summed_squares(errors: Singles) -> Floats:
    """Sum over all but the first axis."""
    flat = errors.reshape(len(errors), -1)
    return np.asarray(np.square(flat).sum(1, dtype=np.float64))


def _fitted(config: ArmConfig, task: Denoising, frames: int) -> WienerFilter:
    """The filter over ``frames`` frames at a time (1, or all T of a sequence), from the cache."""
    size = frames * task.patch_pixels

    def build(folder: Path) -> None:
        with threadpool_limits(1):  # as above
            fit = fit_wiener(block.reshape(-1, size) for block in _clean_blocks(task))
        for field in dataclasses.fields(fit):
            np.save(folder / f"{field.name}.npy", getattr(fit, field.name))

    folder = built_once("wiener", _fit_key(config, task) | {"frames": frames}, build)
    names = [field.name for field in dataclasses.fields(WienerFilter)]
    return WienerFilter(*(np.load(folder / f"{name}.npy") for name in names))


def _fit_key(config: ArmConfig, task: Denoising) -> dict[str, Any]:
    data = dataclasses.replace(config.data, folder=None, fingerprint=task.video.fingerprint)
    limits = {"format": _FORMAT, "most_sequences": _MOST_SEQUENCES}
    fields = data.to_json() | {"split_by_seed": split_seed(config)}
    if not data.split_by_seed:
        del fields["split_by_seed"]  # entries that were made before there was any stay valid
    return limits | {"task": config.task, "data": fields}


def _clean_blocks(task: Denoising) -> Iterator[Singles]:
    """Clean training sequences [B, T, D] in [0, 1], evenly chosen among all."""
    known = task.reference_sequences()
    count = min(known, _MOST_SEQUENCES)
    chosen = np.arange(count) * known // count
    for first in range(0, count, _BLOCK):
        pixels = task.clean_reference_sequences(chosen[first : first + _BLOCK])
        yield pixels.astype(np.float32) / np.float32(255)
