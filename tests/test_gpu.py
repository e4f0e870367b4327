"""What only a GPU can show: nothing in a training step waits for the device."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.oracles import TINY
from tests.test_forms import EPOCH, FORMS, config_of
from trainables.build import build_model, build_task
from trainables.training import Training
from trainables.weighting import weighting_of

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine"),
]


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("constrained", [True, False])
def test_no_step_synchronises_with_the_host(optimizer: str, constrained: bool) -> None:
    assert TINY.constraint is not None
    constraint = replace(TINY.constraint, dual_optimizer=optimizer, resilience=0.1)
    config = replace(TINY, device="cuda", constraint=constraint if constrained else None)
    device = torch.device("cuda")
    task = build_task(config, device, torch.float32)
    model = build_model(config, task).to(device=device, dtype=torch.float32)
    weighting = weighting_of(
        config, task.scales, device, torch.float32, steps_per_epoch=task.steps_per_epoch
    )
    take_steps(Training(config, task, model, weighting), settled=2)


@pytest.mark.parametrize("name", FORMS)
def test_no_step_of_any_form_synchronises_with_the_host(name: str) -> None:
    config = config_of(FORMS[name], device="cuda", dtype="float32", weight_ema=0.9, steps=60)
    device = torch.device("cuda")
    task = build_task(config, device, torch.float32)
    model = build_model(config, task).to(device=device, dtype=torch.float32)
    weighting = weighting_of(config, task.scales, device, torch.float32, steps_per_epoch=EPOCH)
    # past the first dual step of every form, which creates optimiser state
    take_steps(Training(config, task, model, weighting), settled=2 * EPOCH + 1)


def take_steps(training: Training, *, settled: int) -> None:
    training.run_to(settled)  # lazily created optimiser state may synchronise once
    torch.cuda.set_sync_debug_mode("error")
    try:
        training.run_to(settled + 30)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    scalars, _ = training.measured()
    assert scalars["train/loss"] > 0
