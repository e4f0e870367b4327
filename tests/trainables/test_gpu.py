"""GPU behaviour: no training step waits for the device, judging is the CPU's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from tests.support.data.text_runs import text_task, tiny_text
from tests.support.gpu.devices import GPUS, gpu_of
from tests.support.oracles import TINY
from tests.support.training.forms import EPOCH, FORMS, config_of
from trainables.arm_run import ArmRun
from trainables.build import build_model, build_task, weighting_of
from trainables.records.arms import ArmStore
from trainables.records.objects import ObjectStore
from trainables.tasks.base import Tokens
from trainables.tasks.video_denoising import VideoDenoising
from trainables.training import Training

if TYPE_CHECKING:
    from tests.support.gpu.tensors import Gpu


@pytest.fixture(params=GPUS, autouse=True)
def gpu(request: pytest.FixtureRequest) -> Iterator[Gpu | None]:
    with gpu_of(request.param) as here:
        yield here


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


def test_texts_train_here_and_are_judged_on_the_draws_of_the_cpu(tmp_path: Path) -> None:
    config = tiny_text(tmp_path, device="cuda", dtype="bfloat16", accumulate=2)
    store = ArmStore(ObjectStore(tmp_path / "store"))
    for run in (config, config.unconstrained()):
        arm = ArmRun(run, store)
        while not arm.advance().is_final:
            pass
        assert arm.record.status == "finished", arm.record.reason
    here, there = (text_task(config, device) for device in ("cuda", "cpu"))
    assert here.embedding_std == pytest.approx(there.embedding_std, rel=1e-12)
    batches = (task.held_out("dev", 0.6, 1) for task in (here, there))
    for a, b in zip(*batches, strict=True):
        assert isinstance(a.inputs, Tokens)
        assert isinstance(b.inputs, Tokens)
        assert a.inputs.noise is not None
        assert b.inputs.noise is not None
        assert torch.equal(a.inputs.noise.cpu(), b.inputs.noise)
        assert torch.equal(a.inputs.ids.cpu(), b.inputs.ids)


def test_training_batches_never_wait_for_the_device() -> None:
    here, there = (VideoDenoising(TINY, torch.device(d), torch.float32) for d in ("cuda", "cpu"))
    here.train_batch(0)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        batch = here.train_batch(1)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    expected = there.train_batch(1).targets
    torch.testing.assert_close(batch.targets.cpu(), expected, rtol=1e-6, atol=0)
    # whose batches may be larger
    inputs = [torch.cat([b.inputs.cpu() for b in t.held_out("dev", 0.2, 0)]) for t in (here, there)]
    assert torch.equal(*inputs)


def take_steps(training: Training, *, settled: int) -> None:
    training.run_to(settled)  # lazily created optimiser state may synchronise once
    torch.cuda.set_sync_debug_mode("error")
    try:
        training.run_to(settled + EPOCH + 1)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    scalars, _ = training.measured()
    assert scalars["train/loss"] > 0
