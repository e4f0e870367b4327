"""Evaluation of an arm: held-out layer losses, metric by test gamma, ratios.

Everything is measured in eval mode on keyed draws, the same for both arms, all proposals and all
seeds. The dev split serves selection and is what is measured unless another is asked for; of the
test split not even names are read before. Scores under shifts beside Gaussian noise are measured
last and enter nothing else: selection never sees them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from trainables.config.arm import ArmConfig
from trainables.config.test_conditions import family_of, gamma_key, near_shift_gammas, severity_key
from trainables.evaluation.answers import written_answers
from trainables.evaluation.measuring import Floats, Measured, measure, measure_shifted, units_of
from trainables.evaluation.stacked import Row
from trainables.objective import objective_of
from trainables.probes import Split, probe_layers
from trainables.records.evaluation import RATIO_BINS, RATIO_BINS_TO_1, Evaluation
from trainables.records.unit_scores import UnitScores, at_gamma, under_shift
from trainables.registry.task_facts import shift_references
from trainables.tasks.base import LabelTask, References, Task

QUANTILES = tuple(range(0, 101, 5))  # of the per-sample descent ratios, in percent
RATIO_EDGES = np.arange(1, RATIO_BINS) / RATIO_BINS_TO_1  # between the bins they are counted in


def evaluate(
    config: ArmConfig,
    task: Task,
    model: nn.Module | Row,
    references: References,
    multipliers: list[float],
    split: str = "dev",
) -> tuple[Evaluation, UnitScores]:
    """The final measurement of one arm, see ``Evaluation`` for every field; and what it is made of.

    ``references`` are those of the same split. The test split is read where it is asked for, which
    is confirmation's to do.
    """
    gamma = config.train_gamma
    draws = config.eval_draws
    scored = config.score_draws
    held_out = measure(model, task, split, gamma, draws, score_draws=scored, feature_draws=1)
    train = measure(model, task, "train", gamma, draws, feature_draws=draws)
    at_gammas = {
        g: held_out if g == gamma else measure(model, task, split, g, scored, score_draws=scored)
        for g in config.test_gammas
    }
    by_layer = {gamma_key(g): measured.metrics(task) for g, measured in at_gammas.items()}
    scores = {key: metrics[-1] for key, metrics in by_layer.items()}
    near = near_shift_gammas(config)
    ratios = descent_ratios(held_out.samples)
    shifted = measure_shifts(config, task, model, split)
    evaluation = Evaluation(
        split=split,
        scales=task.scales,
        dev_units=list(units_of(task, split)),
        dev_losses=held_out.units.tolist(),
        train_units=list(task.train_units),
        train_losses=train.units.tolist(),
        scores=scores,
        layer_losses_by_gamma={
            gamma_key(g): measured.losses.tolist() for g, measured in at_gammas.items()
        },
        layer_scores_by_gamma={}
        if held_out.sample_scores is None
        else by_layer | {gamma_key(gamma): held_out.metrics(task)},
        references=references.metrics,
        reference_losses=references.losses,
        ood_auc=float(np.trapezoid(list(scores.values()), config.test_gammas)),
        objective=objective_of(config.facts.metric, scores, references.metrics, near),
        objective_gammas=near,
        descent_ratio_quantiles=ratios.quantiles.tolist(),
        descent_ratio_counts=ratios.counts.tolist(),
        descent_ratio_mean=ratios.mean.tolist(),
        descent_fraction=ratios.fraction.tolist(),
        multipliers=multipliers,
        hidden_norms=held_out.norms.tolist(),
        answers=written_answers(config, task, model, split),
        **probe_fields(task, train.features, held_out.features),
        **shift_fields(config, task, shifted, references),
    )
    by_condition = {at_gamma(g): m for g, m in at_gammas.items()}
    by_condition[at_gamma(gamma)] = held_out  # also where it is no test gamma
    by_condition |= {under_shift(*condition): m for condition, m in shifted.items()}
    of_samples = {
        n: m.sample_scores for n, m in by_condition.items() if m.sample_scores is not None
    }
    return evaluation, UnitScores(
        split=split,
        units=evaluation.dev_units,
        samples=held_out.sizes,
        losses_UF={n: m.scored.astype(np.float32) for n, m in by_condition.items()},
        scores_N={n: values.astype(np.float32) for n, values in of_samples.items()},
    )


def probe_fields(task: Task, train: Split | None, dev: Split | None) -> Fields:
    """The fields of ``Evaluation`` about probes, fitted to what ``measure`` saw at train_gamma.

    Nothing where a model has no features, where they are not finite, and where the training units
    lack a label.
    """
    if train is None or dev is None or not isinstance(task, LabelTask):
        return {}
    finite = all(np.isfinite(x).all() for split in (train, dev) for x in split.features)
    if not finite or len(np.unique(train.labels)) < task.classes:
        return {}
    probes = probe_layers(train, dev, task.classes)
    return {
        "probe_losses": [probe.loss for probe in probes],
        "probe_train_losses": [probe.train_loss for probe in probes],
        "probe_scores": [probe.accuracy for probe in probes],
    }


Fields = dict[str, Any]  # of ``Evaluation``
ByShift = dict[str, dict[str, Any]]  # a value by family and severity


def measure_shifts(
    config: ArmConfig, task: Task, model: nn.Module | Row, split: str = "dev"
) -> dict[tuple[str, float], Measured]:
    """The model under every shift and severity of the run; empty without shifts."""
    return {
        (shift, severity): measure_shifted(model, task, shift, severity, split, config.score_draws)
        for shift in config.shifts
        for severity in family_of(shift).severities
    }


def shift_fields(
    config: ArmConfig,
    task: Task,
    shifted: Mapping[tuple[str, float], Measured],
    references: References,
) -> Fields:
    """The fields of ``Evaluation`` about shifts beside Gaussian noise, over ``config.shifts``.

    The identity is the disturbed input itself, where that is a prediction; the constant
    prediction's metric is the same under every disturbance. Nothing without shifts.
    """
    if not shifted:
        return {}
    scores: ByShift = {}
    losses: ByShift = {}
    by_reference: dict[str, ByShift] = {name: {} for name in shift_references(config.facts)}
    known = next(iter(references.metrics["constant"].values()))
    for (shift, severity), measured in shifted.items():
        for table in (scores, losses, *by_reference.values()):
            table.setdefault(shift, {})
        key = severity_key(severity)
        scores[shift][key] = measured.metrics(task)[-1]
        losses[shift][key] = measured.losses.tolist()
        by_reference["constant"][shift][key] = known
        if measured.unchanged is not None:
            by_reference["identity"][shift][key] = measured.unchanged
    return {"shift_scores": scores, "shift_layer_losses": losses, "shift_references": by_reference}


@dataclass(frozen=True)
class DescentRatios:
    """Distribution over samples of the ratio f_l / f_{l-1}, in every layer 1..L."""

    quantiles: Floats  # [L, QUANTILES]
    counts: NDArray[np.int64]  # [L, RATIO_BINS]: samples
    mean: Floats  # [L]
    fraction: Floats  # [L] of samples whose loss fell


def descent_ratios(losses: Floats) -> DescentRatios:
    """Descent ratios of samples with losses [L + 1, samples]."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios_LB = losses[1:] / losses[:-1]
    ratios_LB[(losses[1:] == 0) & (losses[:-1] == 0)] = 1.0  # nothing was there, nothing came
    bins_LB = np.searchsorted(RATIO_EDGES, ratios_LB, side="right")
    return DescentRatios(
        # "lower": between a ratio and infinity there is nothing to interpolate.
        quantiles=np.percentile(ratios_LB, QUANTILES, axis=1, method="lower").T,
        counts=np.array([np.bincount(bins, minlength=RATIO_BINS) for bins in bins_LB]),
        mean=ratios_LB.mean(axis=1),
        fraction=(losses[1:] < losses[:-1]).mean(axis=1),
    )
