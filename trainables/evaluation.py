"""What an arm is judged by: held-out losses per layer, the metric over test_gammas, descent ratios.

Everything is measured in eval mode on keyed draws, the same for both arms, all proposals and all
seeds. The dev split serves selection; the test split is never read here. Scores under shifts beside
Gaussian noise are measured last and enter nothing else: selection never sees them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from trainables.config import RunConfig
from trainables.errors import InvalidValue
from trainables.layer_losses import layer_outcomes
from trainables.results import Evaluation
from trainables.shifts import family_of, gamma_key, near_shift_gammas, severity_key
from trainables.task_facts import Metric, shift_references
from trainables.tasks.base import References, Task, TokenTask

Floats = NDArray[np.float64]

MOST_FEATURES = 2000  # rows that probes are fitted to: more take time, and say little more
QUANTILES = tuple(range(0, 101, 5))  # of the per-sample descent ratios, in percent


@dataclass(frozen=True)
class Features:
    """What the readout of a model of texts saw of every layer, and the labels."""

    layers: list[NDArray[np.float32]]  # L + 1 of [samples, H], float32
    labels: NDArray[np.int64]  # [samples]


@dataclass(frozen=True)
class Measured:
    """Losses of a split at one gamma, in the task's unit, and what its metric is made of."""

    units: Floats  # [units, L + 1]: mean loss over the samples of a unit and over the draws
    first_draw: Floats  # [units, L + 1]: of draw 0 alone
    samples: Floats  # [L + 1, samples]: losses of draw 0
    scores: Floats | None  # [L + 1]: mean score of draw 0 over samples; None: scores are the losses
    features: Features | None = None  # where they were asked for

    def metrics(self, task: Task) -> list[float]:
        """The metric of every layer's prediction, of draw 0."""
        mean_F = self.first_draw.mean(axis=0) if self.scores is None else self.scores
        return [task.metric(float(score)) for score in mean_F]


@torch.no_grad()
def measure(
    model: nn.Module,
    task: Task,
    split: str,
    gamma: float,
    draws: int,
    *,
    feature_draws: int = 0,
) -> Measured:
    """Every layer's loss on the units of ``split``, over ``draws`` keyed draws.

    Features are kept of the first ``feature_draws`` of them, where the model has any, and of no
    more draws once there are MOST_FEATURES rows.
    """
    model.eval()
    names = task.dev_units if split == "dev" else task.train_units
    if not names:
        raise InvalidValue(
            f"the {split} split must have a unit to evaluate on, got none: give it more data."
        )
    sums, counts = np.zeros(()), np.zeros(len(names))
    first_draw, samples, scores = sums, [], []
    kept: list[tuple[list[Tensor], Tensor]] = []
    enough = feature_draws
    for draw in range(draws):
        for batch in task.held_out(split, gamma, draw):
            found = layer_outcomes(model, task, batch)
            losses_FB = _plain(found.losses)
            if draw < enough and found.features is not None:
                kept.append(([x.float().cpu() for x in found.features], batch.targets.cpu()))
            if not sums.shape:
                sums = np.zeros((len(names), losses_FB.shape[0]))
            np.add.at(sums, list(batch.units), losses_FB.T)
            np.add.at(counts, list(batch.units), 1.0)
            if draw == 0:
                samples.append(losses_FB)
                scores += [] if found.scores is found.losses else [_plain(found.scores)]
        if draw == 0:
            first_draw = sums / counts[:, None]
        if sum(len(labels) for _, labels in kept) >= MOST_FEATURES:
            enough = min(enough, draw + 1)
    mean_F = np.concatenate(scores, axis=1).mean(axis=1) if scores else None
    return Measured(
        units=sums / counts[:, None],
        first_draw=first_draw,
        samples=np.concatenate(samples, axis=1),
        scores=mean_F,
        features=_joined(kept),
    )


def _joined(kept: list[tuple[list[Tensor], Tensor]]) -> Features | None:
    if not kept:
        return None
    by_layer = zip(*(layers for layers, _ in kept), strict=True)
    return Features(
        [torch.cat(parts).numpy() for parts in by_layer],
        torch.cat([labels for _, labels in kept]).numpy(),
    )


def _plain(losses: Tensor) -> Floats:
    plain: Floats = losses.double().cpu().numpy()
    return plain


def unit_losses(model: nn.Module, task: Task, split: str, gamma: float, draws: int) -> Floats:
    """Mean loss of every unit and layer over ``draws`` keyed draws, [units, L + 1], task unit."""
    return measure(model, task, split, gamma, draws).units


def evaluate(
    config: RunConfig,
    task: Task,
    model: nn.Module,
    references: References,
    multipliers: list[float],
) -> Evaluation:
    """The final measurement of one arm on its dev split; see ``Evaluation`` for every field."""
    gamma = config.train_gamma
    draws = config.eval_draws
    dev = measure(model, task, "dev", gamma, draws, feature_draws=1)
    train = measure(model, task, "train", gamma, draws, feature_draws=draws)
    at_gamma = {
        gamma_key(g): dev if g == gamma else measure(model, task, "dev", g, 1)
        for g in config.test_gammas
    }
    by_layer = {key: measured.metrics(task) for key, measured in at_gamma.items()}
    scores = {key: metrics[-1] for key, metrics in by_layer.items()}
    near = near_shift_gammas(config)
    quantiles, share = descent_ratios(dev.samples)
    return Evaluation(
        scales=task.scales,
        dev_units=list(task.dev_units),
        dev_losses=dev.units.tolist(),
        train_units=list(task.train_units),
        train_losses=train.units.tolist(),
        scores=scores,
        layer_losses_by_gamma={
            key: measured.first_draw.mean(axis=0).tolist() for key, measured in at_gamma.items()
        },
        layer_scores_by_gamma={}
        if dev.scores is None
        else by_layer | {gamma_key(gamma): dev.metrics(task)},
        references=references.metrics,
        reference_losses=references.losses,
        ood_auc=float(np.trapezoid(list(scores.values()), config.test_gammas)),
        objective=objective_of(config.facts.metric, scores, references, near),
        objective_gammas=near,
        descent_ratio_quantiles=quantiles.tolist(),
        descent_share=share.tolist(),
        multipliers=multipliers,
        **probe_fields(task, train.features, dev.features),
        **shift_fields(config, task, model, references),
    )


def probe_fields(task: Task, train: Features | None, dev: Features | None) -> Fields:
    """The fields of ``Evaluation`` about probes, fitted to what ``measure`` saw at train_gamma.

    Nothing where a model has no features, where they are not finite, and where the training units
    lack a label.
    """
    if train is None or dev is None or not isinstance(task, TokenTask):
        return {}
    finite = all(np.isfinite(x).all() for split in (train, dev) for x in split.layers)
    if not finite or len(np.unique(train.labels)) < task.classes:
        return {}
    from trainables.probes import Split, probe_layers  # loads scikit-learn

    of_train, of_dev = (Split(split.layers, split.labels) for split in (train, dev))
    probes = probe_layers(of_train, of_dev, task.classes)
    return {
        "probe_losses": [probe.loss for probe in probes],
        "probe_train_losses": [probe.train_loss for probe in probes],
        "probe_scores": [probe.accuracy for probe in probes],
    }


Fields = dict[str, Any]  # of ``Evaluation``
ByShift = dict[str, dict[str, Any]]  # a value by family and severity


def shift_fields(config: RunConfig, task: Task, model: nn.Module, references: References) -> Fields:
    """The fields of ``Evaluation`` about shifts beside Gaussian noise, over ``config.shifts``.

    The identity is the disturbed input itself, where that is a prediction; the constant
    prediction's metric is the same under every disturbance. Nothing without shifts.
    """
    if not config.shifts:
        return {}
    scores: ByShift = {}
    losses: ByShift = {}
    found: dict[str, ByShift] = {name: {} for name in shift_references(config.facts)}
    known = next(iter(references.metrics["constant"].values()))
    for shift in config.shifts:
        for at in (scores, losses, *found.values()):
            at[shift] = {}
        for severity in family_of(shift).severities:
            key = severity_key(severity)
            measured = measure_shifted(model, task, shift, severity)
            scores[shift][key] = measured.metric
            losses[shift][key] = measured.losses.tolist()
            found["constant"][shift][key] = known
            if measured.unchanged is not None:
                found["identity"][shift][key] = measured.unchanged
    return {"shift_scores": scores, "shift_layer_losses": losses, "shift_references": found}


@dataclass(frozen=True)
class Shifted:
    """A model under one shift, on the dev units, draw 0."""

    losses: Floats  # [L + 1]: mean over the samples of a unit, then over the units; task's unit
    metric: float
    unchanged: float | None  # the metric of the input itself; None where it is no prediction


@torch.no_grad()
def measure_shifted(model: nn.Module, task: Task, shift: str, severity: float) -> Shifted:
    """Every layer's loss and the metric under a shift of ``shifts.FAMILIES``."""
    model.eval()
    names = len(task.dev_units)
    sums, counts = np.zeros(()), np.zeros(names)
    scores = []
    for batch in task.shifted("dev", shift, severity, 0):
        unchanged = task.unchanged_losses(batch)
        found = layer_outcomes(model, task, batch)
        losses = found.losses if unchanged is None else torch.cat([found.losses, unchanged[None]])
        rows = _plain(losses)
        if not sums.shape:
            sums = np.zeros((names, len(rows)))
        np.add.at(sums, list(batch.units), rows.T)
        np.add.at(counts, list(batch.units), 1.0)
        scores += [] if found.scores is found.losses else [_plain(found.scores[-1:])]
    means = (sums / counts[:, None]).mean(axis=0)
    layers = means if unchanged is None else means[:-1]
    score = float(np.concatenate(scores, axis=1).mean()) if scores else float(layers[-1])
    return Shifted(
        losses=layers,
        metric=task.metric(score),
        unchanged=None if unchanged is None else task.metric(float(means[-1])),
    )


def objective_of(
    metric: Metric, scores: dict[str, float], references: References, gammas: list[float]
) -> float:
    """What the search minimises, from the metric at ``gammas``; lower is better for every task.

    Of a metric of which higher is better, up to 1: what is missing to 1. Else relative to the
    Wiener filter, or to the constant prediction where a task has no such filter.
    """
    if metric.higher_is_better:
        return 1.0 - mean_over(scores, gammas)
    by_gamma = references.metrics
    return objective(scores, by_gamma.get("wiener", by_gamma["constant"]), gammas)


def mean_over(scores: dict[str, float], gammas: list[float]) -> float:
    """Trapezoid mean of the metric over ``gammas``; the value itself where there is but one."""
    values = [scores[gamma_key(g)] for g in gammas]
    if len(values) == 1:
        return values[0]
    return float(np.trapezoid(values, gammas)) / (gammas[-1] - gammas[0])


def objective(scores: dict[str, float], wiener: dict[str, float], gammas: list[float]) -> float:
    """Mean over ``gammas`` of log(metric / the Wiener filter's metric); lower is better.

    The plain mean is ruled by the largest gamma; relative to a linear filter fitted at each gamma,
    all count.
    """
    ratios = [scores[gamma_key(g)] / wiener[gamma_key(g)] for g in gammas]
    return float(np.mean(np.log(ratios)))


def descent_ratios(losses: Floats) -> tuple[Floats, Floats]:
    """f_l / f_{l-1} of samples with losses [L + 1, samples].

    Returns ([L, quantiles], [L] share of samples whose loss fell).
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios_LB = losses[1:] / losses[:-1]
    ratios_LB[(losses[1:] == 0) & (losses[:-1] == 0)] = 1.0  # nothing was there, nothing came
    quantiles = np.percentile(ratios_LB, QUANTILES, axis=1, method="lower").T
    return quantiles, (losses[1:] < losses[:-1]).mean(axis=1)
