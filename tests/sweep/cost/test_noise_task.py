"""Noise in place of data has the shape of what the run's own task gives."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sweep.cost.noise_task import noise_task
from sweep.cost.timed_steps import step_times
from tests.support.oracles import TINY
from trainables.build import build_task

FRAMES = {"task": "frame_denoising", "model.name": "vit", "model.checkpoint": "never-read"}


@pytest.mark.parametrize("fields", [{}, {"data.frames": 3, "dtype": "bfloat16"}, FRAMES])
def test_a_batch_of_noise_is_like_one_of_the_task(fields: dict[str, object]) -> None:
    run = TINY.with_fields(fields)
    noise = noise_task(run)
    task = build_task(run, torch.device("cpu"), torch.float32)
    ours, theirs = noise.train_batch(0), task.train_batch(0)
    assert isinstance(ours.inputs, Tensor)
    assert isinstance(theirs.inputs, Tensor)
    assert ours.inputs.shape == theirs.inputs.shape == ours.targets.shape
    assert ours.inputs.dtype == theirs.inputs.dtype
    assert noise.autocast == task.autocast
    assert noise.loss(ours.inputs, ours.targets).shape == (run.batch_size,)
    samples = sum(len(batch.targets) for batch in task.held_out("dev", 0.1, 0))
    assert samples == len(task.dev_units) * run.facts.samples_per_unit(run.data)


@pytest.mark.parametrize(
    "fields",
    [
        {"constraint.dual_every_unit": "epoch"},
        {"constraint.resilience_form": "slack_restart", "constraint.resilience": 0.5},
    ],
    ids=str,
)
def test_what_only_the_data_can_refuse_is_timed(fields: dict[str, object]) -> None:
    """How long an epoch is, noise does not know."""
    assert len(step_times(TINY.with_fields(fields), 0.0)) >= 1
