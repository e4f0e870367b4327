"""Noise in training alone: fixed at another gamma, or drawn for each sample."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.support.data.text_runs import text_task, tiny_text
from tests.support.oracles import TINY
from trainables.build import build_task
from trainables.config.arm import ArmConfig
from trainables.errors import InvalidValue
from trainables.tasks.base import Batch, Tokens

CPU = torch.device("cpu")
GAMMAS = {"train_gamma_low": 0.1, "train_gamma_high": 0.6}


@pytest.fixture(params=["video", "texts"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> ArmConfig:
    return replace(TINY, batch_size=64) if request.param == "video" else tiny_text(tmp_path)


def task_of(config: ArmConfig) -> Any:
    return text_task(config) if config.facts.reads_texts else build_task(config, CPU, torch.float32)


def noise(batch: Batch) -> Tensor:
    """Of each sample, [B, ...]."""
    if isinstance(batch.inputs, Tokens):
        assert batch.inputs.noise is not None
        return batch.inputs.noise
    return batch.inputs - batch.targets


def per_sample(batch: Batch, unit: Batch) -> Tensor:
    """By what each sample's noise is that of ``unit``, [B]: one factor for all its coordinates."""
    ours, theirs = noise(batch).flatten(1), noise(unit).flatten(1)
    factor = (ours * theirs).sum(1) / theirs.square().sum(1)
    # 1e-4 of a pixel's noise: inputs less targets lose digits in float32
    torch.testing.assert_close(ours, factor[:, None] * theirs, rtol=1e-3, atol=1e-4)
    return factor


def test_both_ends_alike_are_the_noise_of_that_gamma(run: ArmConfig) -> None:
    louder = replace(run, train_gamma=0.5)
    ours = task_of(replace(run, train_gamma_low=0.5, train_gamma_high=0.5))
    theirs = task_of(louder)
    assert torch.equal(noise(ours.train_batch(3)), noise(theirs.train_batch(3)))
    assert ours.scales == task_of(run).scales  # what is asked and judged stays
    first, second = (next(iter(t.held_out("dev", 0.15, 0))) for t in (ours, task_of(run)))
    assert torch.equal(noise(first), noise(second))


def test_mixed_noise_is_uniform_between_its_ends_and_keyed(run: ArmConfig) -> None:
    mixed = replace(run, **GAMMAS)
    task, unit = task_of(mixed), task_of(replace(run, train_gamma=1.0))
    factors = [per_sample(task.train_batch(s), unit.train_batch(s)) for s in range(30)]
    found = torch.cat(factors)
    assert float(found.min()) > 0.1 - 1e-3
    assert float(found.max()) < 0.6 + 1e-3
    # 4 standard errors of a uniform mean
    assert abs(float(found.mean()) - 0.35) < 4 * 0.5 / 12**0.5 / len(found) ** 0.5
    assert len({round(float(f), 4) for f in factors[0]}) == len(factors[0])
    again = task_of(mixed.unconstrained())
    assert torch.equal(noise(again.train_batch(7)), noise(task.train_batch(7)))
    other = task_of(replace(mixed, seed=1))
    assert not torch.equal(noise(other.train_batch(7)), noise(task.train_batch(7)))


def test_one_end_alone_mixes_from_train_gamma(run: ArmConfig) -> None:
    assert replace(run, train_gamma_high=0.9).noise_in_training == (run.train_gamma, 0.9)
    assert replace(run, train_gamma_low=0.0).noise_in_training == (0.0, run.train_gamma)
    with pytest.raises(InvalidValue, match="train_gamma_high must be at least train_gamma_low"):
        replace(run, train_gamma_high=0.01)
    quiet = replace(run, train_gamma=0.0, train_gamma_high=0.4)
    assert noise(task_of(quiet).train_batch(0)).any()
