"""Estimates of cost: operations, parameters and memory against torch's own counts."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode

from search_spaces import catalog
from sweep.cost import estimate as estimates
from sweep.cost.timed_steps import NoiseTask
from tests.support.data.checkpoints import tiny_vit
from trainables.build import build_model
from trainables.config.arm import ConstraintConfig, DataConfig, ModelConfig, RunConfig
from trainables.errors import UnknownName
from trainables.layer_losses import layer_losses
from trainables.models.vit import ViT

DATA = DataConfig(frame_size=64, patch_size=16, frames=10)
BATCH = 4


def config(**model: object) -> RunConfig:
    return RunConfig(
        data=DATA, model=ModelConfig(**model), batch_size=BATCH, constraint=ConstraintConfig()
    )


MODELS = {
    "ut": config(name="ut", layers=5),
    "ut sharp": config(name="ut", layers=3, variant="sharp"),
    "ut literal": config(name="ut", layers=3, variant="literal"),
    "dust": config(name="dust", layers=5),
    "dust of many atoms": config(name="dust", layers=3, atoms_per_side=32),
    "dust paper, constrained": config(name="dust", layers=3, variant="paper"),
    "dust paper, unconstrained": config(name="dust", layers=3, variant="paper").unconstrained(),
    "dust shared": config(name="dust", layers=3, variant="shared"),
}


@pytest.mark.parametrize("name", MODELS)
def test_operations_and_parameters_are_those_that_torch_counts(name: str) -> None:
    run = MODELS[name]
    task = NoiseTask(run)
    model = build_model(run, task).float()
    work = estimates.work_of(run)
    assert work.parameters == sum(p.numel() for p in model.parameters())
    with FlopCounterMode(display=False) as forward, torch.no_grad():
        losses_FB = layer_losses(model, task, task.train_batch(0))
    counted = forward.get_total_flops() / BATCH
    assert work.forward_flops == pytest.approx(counted, rel=0.02)
    with FlopCounterMode(display=False) as step:
        losses_FB = layer_losses(model, task, task.train_batch(0))
        losses_FB[1:].mean().backward()
    ratio = step.get_total_flops() / forward.get_total_flops()
    assert ratio == pytest.approx(1 + estimates.BACKWARD, rel=0.2)


def kept_bytes(run: RunConfig, model: torch.nn.Module, inputs: torch.Tensor) -> float:
    """What autograd keeps for backward, parameters left out, each storage once."""
    parameters = {p.untyped_storage().data_ptr() for p in model.parameters()}
    sizes: dict[int, int] = {}
    alive = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            sizes[storage.data_ptr()] = storage.nbytes()
            alive.append(tensor)  # or its memory, and so its address, would be used again
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        losses = torch.stack([p.square().mean() for p in model(inputs)])
    losses.sum().backward()
    return float(sum(sizes.values()))


@pytest.mark.parametrize("name", MODELS)
def test_what_backward_needs_is_within_a_factor_of_2(name: str) -> None:
    run = MODELS[name]
    task = NoiseTask(run)
    kept = kept_bytes(run, build_model(run, task).float(), task.train_batch(0).inputs) / BATCH
    assert 0.5 < estimates.work_of(run).activation_bytes / kept < 2


def test_a_vision_transformer_is_counted_from_its_shape_alone(tmp_path: Path) -> None:
    """16 heads' worth of width 768 = 3 x 16 x 16; two blocks of the true shape, random weights."""
    size = {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}
    folder = tiny_vit(tmp_path, image_size=64, patch_size=16, **size)
    model = ViT(str(folder), 2, 64)
    run = RunConfig(
        task="frame_denoising",
        data=DataConfig(frame_size=64, patch_size=16),
        model=ModelConfig(name="vit", layers=2, checkpoint="never-read"),
    )
    work = estimates.work_of(run)
    blocks = sum(p.numel() for n, p in model.named_parameters() if ".layer" in n)
    assert work.parameters == pytest.approx(blocks, rel=0.01)
    with FlopCounterMode(display=False) as forward, torch.no_grad():
        model(torch.rand(BATCH, 3, 64, 64))
    assert work.forward_flops == pytest.approx(forward.get_total_flops() / BATCH, rel=0.15)
    kept = kept_bytes(run, model, torch.rand(BATCH, 3, 64, 64)) / BATCH
    assert 0.5 < work.activation_bytes / kept < 2


def test_an_arm_costs_its_steps_and_its_evaluation() -> None:
    run = MODELS["ut"].with_fields({"steps": 1000, "report_every": 300, "eval_windows": 8})
    passes = 4 + len(run.test_gammas) + 2 * run.eval_draws  # 4 reports: 300, 600, 900, 1000
    assert estimates.evaluated_samples(run) == passes * 8 * 16  # 16 patches a frame
    frames = RunConfig(
        task="frame_denoising", model=ModelConfig(name="vit", checkpoint="x"), eval_windows=8
    )
    assert estimates.evaluated_samples(frames) % (8 * frames.data.frames) == 0
    gpu = "h100"
    once, twice = (
        estimates.arm_seconds(run.with_fields({"steps": n, "report_every": n}), gpu)
        for n in (10**6, 2 * 10**6)
    )
    assert twice - estimates.START_S == pytest.approx(2 * (once - estimates.START_S), rel=0.01)


def test_texts_are_counted_as_they_are_scored() -> None:
    """Windows stand for three samples each, of which there are no more than the data set has."""
    fields = {
        "steps": 1000,
        "report_every": 300,
        "eval_windows": 200,
        "data.dev_share": 0.1,
        "shifts": ["typos"],
    }
    run = RunConfig(
        task="text_classification",
        data=DataConfig(name="imdb"),
        model=ModelConfig(name="text_ut", checkpoint="x"),
    ).with_fields(fields)
    passes = 4 + len(run.test_gammas) + run.eval_draws + 3
    assert estimates.evaluated_samples(run) == (passes + run.eval_draws) * 600
    most = run.with_fields({"eval_windows": 10**6})
    assert estimates.evaluated_samples(most) == passes * 2_500 + run.eval_draws * 22_500


def test_the_sum_counts_a_shared_unconstrained_arm_once() -> None:
    space = catalog.find("ped2_ut").space
    cost = estimates.estimate(space, "a100")
    arms = [estimates.arm_seconds(space.run(s, {}, seed=0), "a100") * 2 * 8 for s in space.settings]
    plain = catalog.unconstrained_arms(space).values()
    assert len(plain) == 4
    expected = sum(arms) + sum(estimates.arm_seconds(arm, "a100") for arm in plain)
    assert cost.device_hours == pytest.approx(expected / 3600)
    assert cost.arms == catalog.arm_count(space) == 68


def test_an_unknown_gpu_names_the_known_ones() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'rtx3090'"):
        estimates.estimate(catalog.find("quickstart").space, "rtx3091")


@pytest.mark.parametrize(
    "fields",
    [
        {"batch_size": 10**9},
        {"steps": 10**18, "report_every": 1},
        {"data.patch_size": 160, "model.layers": 64},
        {"data.frames": 10**6},
        {"model.name": "dust", "model.atoms_per_side": 256},
    ],
)
def test_what_is_too_large_to_be_timed_is_counted(fields: dict[str, object]) -> None:
    """Nothing of this size is built: an estimate must never be what fills the memory."""
    run = RunConfig(constraint=ConstraintConfig(alpha=0.1)).with_fields(fields)
    assert estimates.is_timed(run) == ("steps" in fields)
    assert math.isfinite(estimates.arm_seconds(run))
    assert estimates.arm_memory_gb(run) > estimates.PROCESS_GB
