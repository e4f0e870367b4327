"""Probes against conditions of the optimum, another optimiser, and features of known worth."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_limits

from trainables.errors import InvalidValue
from trainables.probes import STRENGTHS, Split, fit_path, probe_layers


def labelled(count: int, classes: int, signal: float, seed: int = 0) -> tuple[Any, Any]:
    """Features [count, 6] around one centre per class, ``signal`` apart, and their labels."""
    random = np.random.default_rng(seed)
    labels = np.arange(count) % classes
    centres = signal * np.eye(6)[:classes]
    return random.normal(size=(count, 6)) + centres[labels], labels


def split(count: int, classes: int, signals: tuple[float, ...], seed: int) -> Split:
    layers = [labelled(count, classes, signal, seed + 10 * i) for i, signal in enumerate(signals)]
    return Split([x for x, _ in layers], layers[0][1])


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("strength", [1e-3, 1e-1])
def test_a_fit_is_where_the_objectives_gradient_vanishes(classes: int, strength: float) -> None:
    """C sum_i CE_i + |W|^2 / 2 on standardised features, by autograd; two classes share one map."""
    x, labels = labelled(200, classes, 1.0)
    x = x * np.array([1e3, 1, 1e-3, 1, 1, 1]) + 7
    (fit, is_converged), *_ = fit_path(x, labels, classes, [strength])
    assert is_converged
    mean, std = x.mean(0), x.std(0)
    z = torch.from_numpy((x - mean) / std)
    weights = torch.from_numpy(fit.weights_CH * std)
    bias = torch.from_numpy(fit.bias_C + fit.weights_CH @ mean)
    if classes == 2:
        weights, bias = (v[1:] - v[:1] for v in (weights, bias))
    weights.requires_grad_()
    bias.requires_grad_()
    logits = z @ weights.T + bias
    if classes == 2:
        logits = torch.cat([torch.zeros_like(logits), logits], dim=1)
    entropy = torch.nn.functional.cross_entropy(logits, torch.from_numpy(labels), reduction="sum")
    (strength * entropy + weights.square().sum() / 2).backward()
    for gradient in (weights.grad, bias.grad):
        assert gradient is not None
        # lbfgs stops where the gradient of the mean over texts is below 1e-4
        assert float(gradient.abs().max()) < 1e-3 * strength * len(x)


def test_a_fit_is_what_another_optimiser_finds() -> None:
    x, labels = labelled(120, 3, 1.0)
    (fit, _), *_ = fit_path(x, labels, 3, [0.05])
    z = torch.from_numpy((x - x.mean(0)) / x.std(0))
    weights = torch.zeros(3, 6, dtype=torch.float64, requires_grad=True)
    bias = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([weights, bias], max_iter=500, line_search_fn="strong_wolfe")

    def objective() -> torch.Tensor:
        optimizer.zero_grad()
        entropy = torch.nn.functional.cross_entropy(
            z @ weights.T + bias, torch.from_numpy(labels), reduction="sum"
        )
        total = 0.05 * entropy + weights.square().sum() / 2
        total.backward()
        return total

    optimizer.step(objective)
    expected = torch.log_softmax(z @ weights.T + bias, dim=1).detach().numpy()
    np.testing.assert_allclose(fit.log_probabilities(x), expected, atol=2e-3)  # both stop early


def test_probes_tell_layers_that_know_more_from_layers_that_know_nothing() -> None:
    signals = (0.0, 1.0, 3.0, 12.0)
    probes = probe_layers(split(600, 3, signals, 0), split(300, 3, signals, 1000), 3)
    losses = [probe.loss for probe in probes]
    assert losses == sorted(losses, reverse=True)
    assert losses[0] == pytest.approx(math.log(3), abs=0.01)  # nothing there: chance
    assert probes[0].strength == min(STRENGTHS)
    assert probes[-1].loss < 0.01
    assert probes[-1].accuracy == 1.0
    assert all(probe.is_converged for probe in probes)
    # Bayes: p(class) from the density of its centre; no map is better in expectation
    x, labels = labelled(300, 3, 3.0, 1000 + 20)
    scores = 3.0 * x[:, :3]
    bayes = (np.log(np.exp(scores).sum(1)) - scores[np.arange(300), labels]).mean()
    assert bayes - 0.02 < losses[2] < bayes + 0.05


def test_scale_and_offset_of_a_layer_change_no_probe() -> None:
    train, dev = split(200, 2, (1.0,), 0), split(100, 2, (1.0,), 1000)
    (plain,) = probe_layers(train, dev, 2)
    moved = [Split([1e4 * s.features[0] - 3e4], s.labels) for s in (train, dev)]
    (found,) = probe_layers(moved[0], moved[1], 2)
    assert found.strength == plain.strength
    assert found.loss == pytest.approx(plain.loss, rel=1e-6)


def test_features_that_never_change_are_left_out() -> None:
    x, labels = labelled(100, 2, 2.0)
    with_constant = np.concatenate([x, np.full((100, 2), 7.3)], axis=1)
    with_constant[:, -1] = 0
    (plain, _), *_ = fit_path(x, labels, 2, [0.1])
    (found, _), *_ = fit_path(with_constant, labels, 2, [0.1])
    np.testing.assert_allclose(found.weights_CH[:, :6], plain.weights_CH, rtol=1e-6)
    assert not found.weights_CH[:, 6:].any()


def test_the_strength_is_the_best_of_the_grid_on_dev() -> None:
    train, dev = split(24, 3, (0.8,), 0), split(300, 3, (0.8,), 1000)
    (probe,) = probe_layers(train, dev, 3)
    losses = {}
    for strength in STRENGTHS:  # each from its own start
        (fit, _), *_ = fit_path(train.features[0], train.labels, 3, [strength])
        of_dev = fit.log_probabilities(dev.features[0])
        losses[strength] = -of_dev[np.arange(300), dev.labels].mean()
    assert probe.strength == min(losses, key=lambda s: losses[s])
    assert min(STRENGTHS) < probe.strength < max(STRENGTHS)
    assert probe.loss == pytest.approx(losses[probe.strength], abs=1e-3)  # stopped from two sides


def test_the_same_numbers_come_out_whatever_the_threads_and_types() -> None:
    train, dev = split(200, 3, (1.0, 2.0), 0), split(100, 3, (1.0, 2.0), 1000)
    first = probe_layers(train, dev, 3)
    with threadpool_limits(2):
        assert probe_layers(train, dev, 3) == first
    singles = [Split([x.astype(np.float32) for x in s.features], s.labels) for s in (train, dev)]
    for ours, theirs in zip(probe_layers(singles[0], singles[1], 3), first, strict=True):
        assert ours.loss == pytest.approx(theirs.loss, rel=1e-4)


def test_a_fit_that_ends_at_its_limit_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainables.probes._MOST_STEPS", 1)
    probes = probe_layers(split(100, 3, (1.0,), 0), split(60, 3, (1.0,), 1000), 3)
    assert not probes[0].is_converged


def test_data_that_no_probe_can_be_fitted_on_are_refused() -> None:
    good = split(30, 3, (1.0, 1.0), 0)
    x, y = good.features, good.labels
    broken = np.array(x[1])
    broken[3, 2] = np.nan
    for train, dev, message in [
        (Split(x[:1], y), good, r"same layers, got 1 of train and 2 of dev"),
        (Split([x[0], x[1][:9]], y), good, r"got \[9, 30\] rows and 30 labels in train"),
        (good, Split([v[:0] for v in x], y[:0]), r"0 labels in dev"),
        (good, Split([x[0], broken], y), r"finite, got others in dev: the arm diverged"),
        (good, Split(x, y + 1), r"labels must be in 0\.\.2, got 1\.\.3 in dev"),
        (Split(x, y % 2), good, r"every class, got none of \[2\] among 30"),
    ]:
        with pytest.raises(InvalidValue, match=message):
            probe_layers(train, dev, 3)
