"""Warm-up, weight decay, the readout's own learning rate, accumulation: alike in both arms."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from tests.support.data.text_runs import text_task, tiny_text
from tests.support.oracles import TINY
from trainables.build import build_model, build_task, weighting_of
from trainables.config.arm import ArmConfig
from trainables.optimizers import Adam, optimizer_of
from trainables.primal_dual.schedule import lr_factor
from trainables.tasks.base import Task
from trainables.training import Training

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> ArmConfig:
    return tiny_text(tmp_path_factory.mktemp("text"), dtype="float64", steps=10)


def training_of(config: ArmConfig, task: Task, model: nn.Module | None = None) -> Training:
    dtype = torch.float64 if config.dtype == "float64" else torch.float32
    model = model or build_model(config, task).to(dtype)
    weighting = weighting_of(config, task.scales, CPU, dtype, steps_per_epoch=task.steps_per_epoch)
    return Training(config, task, model, weighting)


def weights_of(training: Training) -> Tensor:
    return torch.cat([p.detach().flatten() for p in training.parameters])


# --- the learning rate ----------------------------------------------------------------------------


def test_the_learning_rate_rises_stays_and_falls_linearly() -> None:
    factors = [lr_factor(step, 100, 0.5, 0.1) for step in range(100)]
    assert factors[:10] == pytest.approx([k / 10 for k in range(1, 11)])
    assert factors[10:51] == [1.0] * 41
    assert factors[50:] == pytest.approx([1 - k / 50 for k in range(50)])
    assert [lr_factor(step, 100, 0.5) for step in range(100)][50:] == factors[50:]


def test_no_step_is_taken_at_a_learning_rate_of_0() -> None:
    for steps in (1, 3, 7, 100):
        for warmup, decay in ((0.0, 0.0), (0.1, 0.9), (1.0, 0.0), (0.5, 0.5), (0.0, 1.0)):
            assert all(0 < lr_factor(s, steps, decay, warmup) <= 1 for s in range(steps))


def test_every_group_follows_the_schedule(text: ArmConfig) -> None:
    config = text.with_fields(
        {"primal_lr": 0.01, "readout_lr": 0.5, "weight_decay": 0.1, "warmup_fraction": 0.4,
         "decay_fraction": 0.6}
    )  # fmt: skip
    training = training_of(config, text_task(config))
    for step in range(10):
        training.run_to(step + 1)
        factor = lr_factor(step, 10, 0.6, 0.4)
        rates = sorted({group["lr"] for group in training.optimizer.param_groups})
        assert rates == pytest.approx([0.01 * factor, 0.5 * factor])


def test_the_dual_step_follows_the_warm_up_too() -> None:
    config = replace(TINY, warmup_fraction=0.5, decay_fraction=0.5, dtype="float64", steps=4)
    task = build_task(config, CPU, torch.float64)
    training = training_of(config, task)
    assert config.constraint is not None
    training.run_to(1)
    # UT starts as its residual: no layer descends, so every relative signal is known
    plain = training_of(replace(config, warmup_fraction=0.0), task)
    plain.run_to(1)
    ours, theirs = (t.weighting.series()["multipliers"] for t in (training, plain))
    assert theirs.max() > 0
    torch.testing.assert_close(ours, theirs * lr_factor(0, 4, 0.5, 0.5))


# --- the optimiser --------------------------------------------------------------------------------


def test_weight_decay_shrinks_matrices_and_neither_biases_nor_norms(text: ArmConfig) -> None:
    """Without gradients a step of AdamW is the decay alone, p (1 - lr x decay)."""
    config = text.with_fields({"primal_lr": 0.1, "readout_lr": 0.5, "weight_decay": 0.2})
    model = build_model(config, text_task(config)).double()
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    optimizer = optimizer_of(config, model)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for name, parameter in model.named_parameters():
        lr = 0.5 if name.startswith("readout.") else 0.1
        factor = 1 - lr * 0.2 if parameter.ndim > 1 else 1.0
        torch.testing.assert_close(parameter.detach(), factor * before[name], rtol=1e-12, atol=0)


def test_without_these_options_it_is_the_optimiser_of_before() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.LayerNorm(3))
    optimizer = optimizer_of(TINY, model)
    assert type(optimizer) is Adam
    (group,) = optimizer.param_groups
    assert [id(p) for p in group["params"]] == [id(p) for p in model.parameters()]
    assert (group["lr"], group["weight_decay"]) == (TINY.primal_lr, 0.0)


def test_the_readout_takes_its_own_steps(text: ArmConfig) -> None:
    """Adam's first step is its learning rate, whatever the gradient."""
    config = text.with_fields(
        {"primal_lr": 1e-4, "readout_lr": 1e-2, "steps": 1, "decay_fraction": 0}
    )
    task = text_task(config)
    training = training_of(config, task)
    start = {n: p.detach().clone() for n, p in training.model.named_parameters()}
    training.run_to(1)
    for name, parameter in training.model.named_parameters():
        step = (parameter.detach() - start[name]).abs().max().item()
        lr = 1e-2 if name.startswith("readout.") else 1e-4
        assert step <= lr * (1 + 1e-6)
        assert name.endswith("key.bias") or step >= 0.9 * lr  # the softmax does not see key biases


# --- accumulation ---------------------------------------------------------------------------------


@pytest.mark.parametrize("arm", ["constrained", "unconstrained"])
@pytest.mark.parametrize("count", [2, 4])
def test_a_batch_in_parts_takes_the_same_steps(text: ArmConfig, count: int, arm: str) -> None:
    config = text if arm == "constrained" else text.unconstrained()
    task = text_task(config)
    whole = training_of(config, task)
    parts = training_of(config.with_fields({"accumulate": count}), task)
    for training in (whole, parts):
        training.run_to(8)
    # float64: parts are summed in another order, and eight steps of Adam amplify that a little
    torch.testing.assert_close(weights_of(parts), weights_of(whole), rtol=1e-7, atol=1e-9)
    ours, theirs = (t.measured() for t in (parts, whole))
    assert ours[0]["train/loss"] == pytest.approx(theirs[0]["train/loss"], rel=1e-9)
    assert ours[0]["train/grad_norm"] == pytest.approx(theirs[0]["train/grad_norm"], rel=1e-7)
    for name, values in theirs[1].items():
        assert ours[1][name] == pytest.approx(values, rel=1e-7, abs=1e-12)


def test_parts_of_a_batch_of_videos_too() -> None:
    config = replace(TINY, dtype="float64", steps=6)
    task = build_task(config, CPU, torch.float64)
    whole = training_of(config, task)
    parts = training_of(replace(config, accumulate=4), task)
    for training in (whole, parts):
        training.run_to(6)
    torch.testing.assert_close(weights_of(parts), weights_of(whole), rtol=1e-9, atol=1e-12)


def test_multipliers_at_zero_train_as_the_unconstrained_arm_in_parts_too(
    text: ArmConfig,
) -> None:
    config = text.with_fields({"accumulate": 2, "constraint.dual_lr": 0.0, "dtype": "float32"})
    task = text_task(config)
    ours, theirs = (training_of(c, task) for c in (config, config.unconstrained()))
    for training in (ours, theirs):
        training.run_to(6)
    assert torch.equal(weights_of(ours), weights_of(theirs))
