"""Probes: what a layer holds, read by the best linear map for that layer alone.

The shared readout shows what a layer says to the last layer's reader. The unconstrained arm never
trains it on inner layers, so its curve over the depth is not what these layers know. A probe is
fitted after training, on frozen features of the training split, per layer and in the same way for
both arms: multinomial logistic regression, its strength C chosen on the dev split.

    min_W,b   C sum_i -log softmax(W z_i + b)[y_i] + |W|^2 / 2,     z = (x - mean) / std

Features are standardised by the training split, so that one grid of C serves every layer: LayerNorm
and ReLU give them very different scales. Nothing here is random, and nothing knows a model.

Shape suffixes: N texts, H features, C classes.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from trainables.errors import InvalidValue

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]

STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)  # C; larger ones fit the training split of any real layer
_MOST_STEPS = 500


@dataclass(frozen=True)
class Split:
    """Frozen features of some texts, of every layer, and their labels."""

    features: Sequence[NDArray[Any]]  # L + 1 arrays [N, H]
    labels: NDArray[Any]  # [N], 0 .. C - 1


@dataclass(frozen=True)
class Probe:
    """Scores of one layer's probe on the dev split.

    C is chosen there too, among few: the figures are a little too good, alike for both arms.
    """

    strength: float  # C
    loss: float  # mean cross entropy, nats
    accuracy: float
    train_loss: float
    is_converged: bool  # False: the fit ended at its step limit, so a better one exists


@dataclass(frozen=True)
class Fit:
    """A probe's weights, on features as they come."""

    weights_CH: Floats
    bias_C: Floats

    def log_probabilities(self, features_NH: NDArray[Any]) -> Floats:
        """log p(class | features), [N, C]."""
        logits_NC = features_NH.astype(np.float64) @ self.weights_CH.T + self.bias_C
        shifted_NC = logits_NC - logits_NC.max(axis=1, keepdims=True)
        return np.asarray(shifted_NC - np.log(np.exp(shifted_NC).sum(axis=1, keepdims=True)))


def probe_layers(train: Split, dev: Split, classes: int) -> list[Probe]:
    """A probe per layer, in reading order; some thousand training texts are enough.

    Raises InvalidValue where the splits do not fit each other, hold what is not finite, or the
    training split lacks a class.
    """
    _check(train, dev, classes)
    labels_N, dev_labels_N = (s.labels.astype(np.int64) for s in (train, dev))
    with threadpool_limits(1):  # sums must not depend on how many threads a worker has
        return [
            _best_probe(x_NH, labels_N, dev_NH, dev_labels_N, classes)
            for x_NH, dev_NH in zip(train.features, dev.features, strict=True)
        ]


def fit_path(
    features_NH: NDArray[Any], labels_N: Labels, classes: int, strengths: Sequence[float]
) -> list[tuple[Fit, bool]]:
    """One fit per strength, each started from the one before; whether each converged beside it."""
    from sklearn.exceptions import ConvergenceWarning  # arms without texts do without
    from sklearn.linear_model import LogisticRegression

    x_NH = features_NH.astype(np.float64)
    mean_H, std_H = x_NH.mean(axis=0), x_NH.std(axis=0)
    std_H[std_H <= 1e-12 * np.abs(mean_H)] = np.inf  # a constant tells nothing: weight 0
    z_NH = (x_NH - mean_H) / std_H
    model = LogisticRegression(max_iter=_MOST_STEPS, warm_start=True)
    fits = []
    for strength in strengths:
        model.set_params(C=strength)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # is told by the flag instead
            model.fit(z_NH, labels_N)
        weights_CH, bias_C = np.array(model.coef_), np.array(model.intercept_)
        if classes == 2:  # one map, of the second class against the first
            weights_CH = np.concatenate([np.zeros_like(weights_CH), weights_CH])
            bias_C = np.concatenate([np.zeros_like(bias_C), bias_C])
        weights_CH = weights_CH / std_H
        fit = Fit(weights_CH, bias_C - weights_CH @ mean_H)
        fits.append((fit, int(np.max(model.n_iter_)) < _MOST_STEPS))
    return fits


def _best_probe(
    x_NH: NDArray[Any], labels_N: Labels, dev_NH: NDArray[Any], dev_labels_N: Labels, classes: int
) -> Probe:
    """The probe whose C has the lowest dev cross entropy; of equals the strongest penalty."""
    best: Probe | None = None
    for strength, (fit, is_converged) in zip(
        STRENGTHS, fit_path(x_NH, labels_N, classes, STRENGTHS), strict=True
    ):
        of_dev_NC = fit.log_probabilities(dev_NH)
        loss = _cross_entropy(of_dev_NC, dev_labels_N)
        if best is None or loss < best.loss:
            best = Probe(
                strength=strength,
                loss=loss,
                accuracy=float((of_dev_NC.argmax(axis=1) == dev_labels_N).mean()),
                train_loss=_cross_entropy(fit.log_probabilities(x_NH), labels_N),
                is_converged=is_converged,
            )
    assert best is not None  # STRENGTHS is not empty
    return best


def _cross_entropy(log_probabilities_NC: Floats, labels_N: Labels) -> float:
    return float(-log_probabilities_NC[np.arange(len(labels_N)), labels_N].mean())


def _check(train: Split, dev: Split, classes: int) -> None:
    if len(train.features) != len(dev.features):
        raise InvalidValue(
            f"both splits must have features of the same layers, got {len(train.features)} of "
            f"train and {len(dev.features)} of dev."
        )
    for name, split in (("train", train), ("dev", dev)):
        shapes = {len(x_NH) for x_NH in split.features}
        if not len(split.labels) or shapes != {len(split.labels)}:
            raise InvalidValue(
                f"every layer must have one row of features per label, got {sorted(shapes)} rows "
                f"and {len(split.labels)} labels in {name}."
            )
        if not all(np.isfinite(x_NH).all() for x_NH in split.features):
            raise InvalidValue(f"features must be finite, got others in {name}: the arm diverged.")
        if split.labels.min() < 0 or split.labels.max() >= classes:
            raise InvalidValue(
                f"labels must be in 0..{classes - 1}, got {split.labels.min()}.."
                f"{split.labels.max()} in {name}."
            )
    lacking = sorted(set(range(classes)) - set(train.labels.tolist()))
    if lacking:
        raise InvalidValue(
            f"a probe must be fitted on texts of every class, got none of {lacking} among "
            f"{len(train.labels)} of the training split: take more of it."
        )
