"""What an arm is judged by, against closed forms and naive sums."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.oracles import TINY
from trainables.evaluation import (
    descent_ratios,
    evaluate,
    measure,
    near_shift_gammas,
    objective,
    unit_losses,
)
from trainables.tasks.linear_references import linear_references
from trainables.tasks.video_denoising import VideoDenoising


class Shrinking(nn.Module):
    """Layer l returns the noisy input times a fixed factor: losses have closed forms."""

    factors = (1.0, 0.9, 0.5)

    def forward(self, inputs: Tensor) -> list[Tensor]:
        return [inputs * f for f in self.factors]


@pytest.fixture
def task() -> VideoDenoising:
    return VideoDenoising(TINY, torch.device("cpu"), torch.float32)


def test_unit_losses_equal_a_naive_average_over_draws_and_patches(task: VideoDenoising) -> None:
    got = unit_losses(Shrinking(), task, "dev", 0.2, 2)
    sums = np.zeros_like(got)
    counts = np.zeros(len(got))
    for draw in range(2):
        for batch in task.held_out("dev", 0.2, draw):
            for sample, unit in enumerate(batch.units):
                counts[unit] += 1
                for layer, factor in enumerate(Shrinking.factors):
                    error = factor * batch.inputs[sample].double() - batch.targets[sample].double()
                    sums[unit, layer] += float(error.square().sum(-1).mean())
    np.testing.assert_allclose(got, sums / counts[:, None], rtol=1e-5)


def test_the_first_draw_is_that_of_a_measurement_of_one_draw(task: VideoDenoising) -> None:
    more, one = (measure(Shrinking(), task, "dev", 0.2, draws) for draws in (3, 1))
    assert more.first_draw.tolist() == one.units.tolist()
    assert more.units.tolist() != one.units.tolist()


def test_the_identitys_loss_is_the_noise_energy(task: VideoDenoising) -> None:
    identity = unit_losses(Shrinking(), task, "dev", TINY.train_gamma, 2)[:, 0].mean()
    # 4 windows x 64 patches x 3 frames x 16 pixels x 2 draws: the sampling error is about 1 %
    assert identity == pytest.approx(task.scales.identity_loss, rel=0.03)


def test_scores_auc_and_objective_follow_from_the_losses(task: VideoDenoising) -> None:
    references = linear_references(TINY, task)
    measured = evaluate(TINY, task, Shrinking(), references, [0.5])
    for gamma, losses in measured.layer_losses_by_gamma.items():
        assert measured.scores[gamma] == pytest.approx(255 * np.sqrt(losses[-1] / 16))
    grid = [float(g) for g in measured.scores]
    by_hand = sum(
        0.5 * (measured.scores[f"{a:.2f}"] + measured.scores[f"{b:.2f}"]) * (b - a)
        for a, b in pairwise(grid)
    )
    assert measured.ood_auc == pytest.approx(by_hand)
    wiener = references.metrics["wiener"]
    logs = [np.log(measured.scores[g] / wiener[g]) for g in ("0.20", "0.25")]
    assert measured.objective == pytest.approx(np.mean(logs))
    assert measured.multipliers == [0.5]


def test_the_wiener_filter_itself_has_objective_zero() -> None:
    assert objective({"0.20": 3.0}, {"0.20": 3.0}, [0.2]) == 0.0


@pytest.mark.parametrize(
    ("train_gamma", "test_gammas", "expected"),
    [
        (0.15, (0.0, 0.15, 0.2, 0.25, 0.3), [0.2, 0.25]),
        (0.0, (0.0, 0.05, 0.1, 0.15), [0.05, 0.1]),
        (0.15, (0.0, 0.5), [0.5]),  # nothing near: the first beyond
        (0.5, (0.0, 0.5), [0.5]),  # nothing beyond: the largest
    ],
)
def test_the_objective_looks_just_above_the_training_gamma(
    train_gamma: float, test_gammas: tuple[float, ...], expected: list[float]
) -> None:
    assert (
        near_shift_gammas(replace(TINY, train_gamma=train_gamma, test_gammas=test_gammas))
        == expected
    )


def test_descent_ratios_are_per_sample(task: VideoDenoising) -> None:
    measured = measure(Shrinking(), task, "dev", 0.2, 2)
    quantiles, share = descent_ratios(measured.samples)
    assert quantiles.shape == (2, 21)
    assert (np.diff(quantiles, axis=1) >= 0).all()
    ratios = []
    for batch in task.held_out("dev", 0.2, 0):
        losses = [task.loss(p, batch.targets) for p in Shrinking()(batch.inputs)]
        ratios.append((losses[1] / losses[0]).numpy())
    every = np.concatenate(ratios)
    assert share[0] == pytest.approx((every < 1).mean())
    assert quantiles[0, 0] == pytest.approx(every.min(), rel=1e-5)
    assert quantiles[0, -1] == pytest.approx(every.max(), rel=1e-5)


def test_evaluation_never_opens_the_test_clips(
    monkeypatch: pytest.MonkeyPatch, task: VideoDenoising
) -> None:
    opened: list[str] = []
    original = task.held_out

    def watched(split: str, gamma: float, draw: int):  # type: ignore[no-untyped-def]
        opened.append(split)
        return original(split, gamma, draw)

    monkeypatch.setattr(task, "held_out", watched)
    evaluate(TINY, task, Shrinking(), linear_references(TINY, task), [])
    assert set(opened) == {"dev", "train"}
    assert "test" not in task._patches
