"""What an arm is judged by: held-out losses per layer, the metric over test_gammas, descent ratios.

Everything is measured in eval mode on keyed draws, the same for both arms, all proposals and all
seeds. The dev clips serve selection; the test clips are never read here. Scores under shifts beside
Gaussian noise are measured last and enter nothing else: selection never sees them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from trainables.config import RunConfig
from trainables.errors import InvalidValue
from trainables.layer_losses import layer_losses
from trainables.results import Evaluation
from trainables.shifts import family_of, gamma_key, near_shift_gammas, severity_key
from trainables.tasks.base import References, Task

Floats = NDArray[np.float64]

QUANTILES = tuple(range(0, 101, 5))  # of the per-sample descent ratios, in percent


@dataclass(frozen=True)
class Measured:
    """Losses of a split at one gamma, in the task's unit; float64."""

    units: Floats  # [units, L + 1]: mean over the samples of a unit and over the draws
    first_draw: Floats  # [units, L + 1]: of draw 0 alone
    samples: Floats  # [L + 1, samples], of draw 0


@torch.no_grad()
def measure(model: nn.Module, task: Task, split: str, gamma: float, draws: int) -> Measured:
    """Every layer's loss on the units of ``split``, over ``draws`` keyed draws."""
    model.eval()
    names = task.dev_units if split == "dev" else task.train_units
    if not names:
        raise InvalidValue(
            f"the {split} split has no unit to evaluate on, got 0 windows of held-out clips."
        )
    sums, counts = np.zeros(()), np.zeros(len(names))
    first_draw, samples = sums, []
    for draw in range(draws):
        for batch in task.held_out(split, gamma, draw):
            losses_FB = layer_losses(model, task, batch).double().cpu().numpy()
            if not sums.shape:
                sums = np.zeros((len(names), losses_FB.shape[0]))
            np.add.at(sums, list(batch.units), losses_FB.T)
            np.add.at(counts, list(batch.units), 1.0)
            if draw == 0:
                samples.append(losses_FB)
        if draw == 0:
            first_draw = sums / counts[:, None]
    return Measured(sums / counts[:, None], first_draw, np.concatenate(samples, axis=1))


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
    """The final measurement of one arm on its dev clips; see ``Evaluation`` for every field."""
    gamma = config.train_gamma
    dev = measure(model, task, "dev", gamma, config.eval_draws)
    train = unit_losses(model, task, "train", gamma, config.eval_draws)
    at_gamma = {
        g: dev.first_draw if g == gamma else unit_losses(model, task, "dev", g, 1)
        for g in config.test_gammas
    }
    by_gamma = {gamma_key(g): losses_UF.mean(axis=0) for g, losses_UF in at_gamma.items()}
    scores = {key: task.metric(float(losses_F[-1])) for key, losses_F in by_gamma.items()}
    grid, values = np.array(config.test_gammas), np.array(list(scores.values()))
    ood_auc = float(np.trapezoid(values, grid))
    near = near_shift_gammas(config)
    quantiles, share = descent_ratios(dev.samples)
    return Evaluation(
        scales=task.scales,
        dev_units=list(task.dev_units),
        dev_losses=dev.units.tolist(),
        train_units=list(task.train_units),
        train_losses=train.tolist(),
        scores=scores,
        layer_losses_by_gamma={key: losses_F.tolist() for key, losses_F in by_gamma.items()},
        references=references.metrics,
        reference_losses=references.losses,
        ood_auc=ood_auc,
        ood_mean=ood_auc / float(grid[-1] - grid[0]),
        objective=objective(scores, references.metrics["wiener"], near),
        objective_gammas=near,
        descent_ratio_quantiles=quantiles.tolist(),
        descent_share=share.tolist(),
        multipliers=multipliers,
        **shift_fields(config, task, model, references),
    )


ByShift = dict[str, dict[str, Any]]  # a value by family and severity


def shift_fields(
    config: RunConfig, task: Task, model: nn.Module, references: References
) -> dict[str, ByShift]:
    """The fields of ``Evaluation`` about shifts beside Gaussian noise, over ``config.shifts``.

    The identity is the disturbed input itself; the constant prediction's metric is the same under
    every disturbance. Nothing without shifts.
    """
    if not config.shifts:
        return {}
    scores: ByShift = {}
    losses: ByShift = {}
    identity: ByShift = {}
    constant: ByShift = {}
    known = next(iter(references.metrics["constant"].values()))
    for shift in config.shifts:
        for at in (scores, losses, identity, constant):
            at[shift] = {}
        for severity in family_of(shift).severities:
            key = severity_key(severity)
            unchanged, losses_F = measure_shifted(model, task, shift, severity)
            scores[shift][key] = task.metric(float(losses_F[-1]))
            losses[shift][key] = losses_F.tolist()
            identity[shift][key] = task.metric(unchanged)
            constant[shift][key] = known
    return {
        "shift_scores": scores,
        "shift_layer_losses": losses,
        "shift_references": {"identity": identity, "constant": constant},
    }


@torch.no_grad()
def measure_shifted(
    model: nn.Module, task: Task, shift: str, severity: float
) -> tuple[float, Floats]:
    """(the unchanged input's loss, every layer's [L + 1]) on the dev units under a shift, draw 0.

    Means over the samples of a unit, then over the units; in the task's unit.
    """
    model.eval()
    names = len(task.dev_units)
    sums, counts = np.zeros(()), np.zeros(names)
    for batch in task.shifted("dev", shift, severity, 0):
        assert isinstance(batch.inputs, torch.Tensor)
        unchanged_B = task.loss(batch.inputs, batch.targets)[None]
        rows = torch.cat([unchanged_B, layer_losses(model, task, batch)]).double().cpu().numpy()
        if not sums.shape:
            sums = np.zeros((names, len(rows)))
        np.add.at(sums, list(batch.units), rows.T)
        np.add.at(counts, list(batch.units), 1.0)
    means = (sums / counts[:, None]).mean(axis=0)
    return float(means[0]), means[1:]


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
