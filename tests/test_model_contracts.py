"""One contract for every model and variant, in float32 and bfloat16, on the loop's own parts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.checkpoints import tiny_vit
from tests.oracles import TINY
from tests.text_runs import tiny_text
from trainables.arm_run import ArmRun
from trainables.build import build_model, build_task, parameter_dtype
from trainables.config import VARIANTS, RunConfig
from trainables.evaluation import measure
from trainables.layer_losses import introduce, layer_losses, layer_predictions
from trainables.object_store import ObjectStore
from trainables.run_store import RunStore
from trainables.tasks.base import Task, Tokens
from trainables.training import Training, from_bytes, to_bytes
from trainables.weighting import weighting_of

CPU = torch.device("cpu")
EVERY = [(name, variant) for name, variants in VARIANTS.items() for variant in variants]
DTYPES = ["float32", "bfloat16"]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_vit(tmp_path_factory.mktemp("vit"))


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    return tiny_text(tmp_path_factory.mktemp("text"), steps=2, report_every=1)


@pytest.fixture(params=EVERY, ids=["-".join(pair) for pair in EVERY])
def single(request: pytest.FixtureRequest, checkpoint: Path, text: RunConfig) -> RunConfig:
    """A tiny constrained run of one model and variant, in float32."""
    name, variant = request.param
    if name in text.facts.models:
        return text.with_fields({"model.name": name, "model.variant": variant})
    fields: dict[str, Any] = {"model.name": name, "model.variant": variant, "steps": 2}
    fields |= {"report_every": 1, "constraint.alpha": 0.1, "eval_windows": 2}
    if name == "dust":
        fields |= {"model.atoms_per_side": 6}
    if name == "vit":
        fields |= {"task": "frame_denoising", "model.checkpoint": str(checkpoint)}
        fields |= {"model.layers": 2, "data.frame_size": 16}
    return TINY.with_fields(fields)


@pytest.fixture(params=DTYPES)
def config(request: pytest.FixtureRequest, single: RunConfig) -> RunConfig:
    return replace(single, dtype=request.param)


def task_of(config: RunConfig) -> Task:
    task = build_task(config, CPU, parameter_dtype(config))
    introduce(build_model(config, task), task)
    return task


def model_of(config: RunConfig, task: Task) -> nn.Module:
    return build_model(config, task).to(parameter_dtype(config))


def moved(model: nn.Module) -> nn.Module:
    """Away from a start at which a parameter may do nothing (UT's W = 0 hides its scores)."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.02 * torch.randn(parameter.shape, generator=generator)
    return model


def training_of(config: RunConfig, task: Task) -> Training:
    dtype = parameter_dtype(config)
    weighting = weighting_of(config, task.scales, CPU, dtype, steps_per_epoch=task.steps_per_epoch)
    return Training(config, task, model_of(config, task), weighting)


def predictions_of(config: RunConfig, task: Task, model: nn.Module) -> list[Tensor]:
    return layer_predictions(model, task, task.train_batch(0))


def tensors_in(state: Any) -> Iterator[Tensor]:
    """Every tensor of a nested state."""
    if isinstance(state, Tensor):
        yield state
    elif isinstance(state, dict | list | tuple):
        for part in state.values() if isinstance(state, dict) else state:
            yield from tensors_in(part)


def test_there_is_a_prediction_after_every_layer(config: RunConfig) -> None:
    task = task_of(config)
    batch, model = task.train_batch(0), moved(model_of(config, task))
    predictions = predictions_of(config, task, model)
    assert len(predictions) == config.model.layers + 1
    for prediction in predictions:
        if isinstance(batch.inputs, Tokens):
            assert prediction.shape == (config.batch_size, 2)
        else:
            assert prediction.shape == batch.targets.shape == batch.inputs.shape
        assert torch.isfinite(prediction).all()
    losses_FB = layer_losses(model, task, batch)
    assert losses_FB.shape == (config.model.layers + 1, config.batch_size)
    assert torch.isfinite(losses_FB).all()
    assert (losses_FB >= 0).all()


def test_parameters_losses_and_multipliers_are_in_float32(config: RunConfig) -> None:
    task = task_of(config)
    training = training_of(config, task)
    training.run_to(1)
    assert {p.dtype for p in training.parameters} == {torch.float32}
    assert {p.grad.dtype for p in training.parameters if p.grad is not None} == {torch.float32}
    assert layer_losses(training.model, task, task.train_batch(0)).dtype == torch.float32
    numbers = [t for t in tensors_in(training.state_dict()) if t.is_floating_point()]
    assert {t.dtype for t in numbers} == {torch.float32}


def test_bfloat16_rounds_the_forward_pass_and_no_more(single: RunConfig) -> None:
    task, rounded = task_of(single), task_of(replace(single, dtype="bfloat16"))
    model, batch = moved(model_of(single, task)), task.train_batch(0)
    exact, cast = (layer_losses(model, t, batch)[1:].mean(1) for t in (task, rounded))
    assert not torch.equal(exact, cast)
    # 8 bits: 2^-8 = .4 % a rounding, in a few of them, doubled by the square
    torch.testing.assert_close(cast, exact, rtol=0.05, atol=1e-3 * task.scales.constant_loss)


def test_start_and_forward_are_the_same_whatever_the_global_seed(config: RunConfig) -> None:
    outputs = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        task = task_of(config)
        model = model_of(config, task).train()
        for _ in range(2):  # neither does a forward pass leave anything behind
            outputs.append(torch.stack([p.float() for p in predictions_of(config, task, model)]))
    assert all(torch.equal(outputs[0], other) for other in outputs[1:])


def test_the_last_loss_reaches_every_parameter(config: RunConfig) -> None:
    task = task_of(config)
    model = moved(model_of(config, task))
    layer_losses(model, task, task.train_batch(0))[-1].mean().backward()
    trained = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    assert trained
    for name, parameter in trained:
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
        assert parameter.grad.abs().sum() > 0, name


def test_a_layers_loss_depends_on_no_later_layer(config: RunConfig) -> None:
    task = task_of(config)
    model = moved(model_of(config, task))
    losses_F = layer_losses(model, task, task.train_batch(0)).mean(1)
    parameters = [p for p in model.parameters() if p.requires_grad]
    reached = []
    for loss in losses_F:
        grads = (
            torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)
            if loss.requires_grad
            else [None] * len(parameters)
        )
        reached.append({i for i, g in enumerate(grads) if g is not None and g.abs().sum() > 0})
    for fewer, more in itertools.pairwise(reached):
        assert fewer <= more
    if config.model.variant != "shared":
        assert all(len(a) < len(b) for a, b in itertools.pairwise(reached))


def test_both_arms_see_the_same_perturbations(config: RunConfig) -> None:
    ours, theirs = task_of(config), task_of(config.unconstrained())
    pairs = [(ours.train_batch(s), theirs.train_batch(s)) for s in (0, ours.steps_per_epoch)]
    held_out = (t.held_out("dev", 0.2, 1) for t in (ours, theirs))
    for a, b in [*pairs, *zip(*held_out, strict=True)]:
        assert torch.equal(a.targets, b.targets)
        if isinstance(a.inputs, Tokens):
            assert isinstance(b.inputs, Tokens)
            assert torch.equal(a.inputs.ids, b.inputs.ids)
            assert a.inputs.noise is not None
            assert b.inputs.noise is not None
            assert torch.equal(a.inputs.noise, b.inputs.noise)
            assert a.inputs.noise.any()
        else:
            assert torch.equal(a.inputs, b.inputs)
            assert not torch.equal(a.inputs, a.targets)


def test_both_arms_start_alike_and_capacity_differs_only_where_it_is_said(
    config: RunConfig,
) -> None:
    task = task_of(config)
    ours, theirs = (model_of(c, task) for c in (config, config.unconstrained()))
    predictions = (predictions_of(config, task, m) for m in (ours, theirs))
    assert all(torch.equal(a, b) for a, b in zip(*predictions, strict=True))
    ours_count, theirs_count = (sum(p.numel() for p in m.parameters()) for m in (ours, theirs))
    assert (ours_count == theirs_count) is config.matched_capacity
    assert config.matched_capacity is (config.model.variant != "paper")
    if not config.matched_capacity:
        assert ours_count == config.model.layers * theirs_count


def test_saving_and_loading_is_exact(config: RunConfig) -> None:
    task = task_of(config)
    training = training_of(config, task)
    training.run_to(2)
    restored = model_of(config, task)
    state = from_bytes(to_bytes({"model": training.model.state_dict()}), CPU)
    restored.load_state_dict(state["model"])
    pairs = zip(
        predictions_of(config, task, training.model),
        predictions_of(config, task, restored),
        strict=True,
    )
    assert all(torch.equal(a, b) for a, b in pairs)
    resumed = training_of(config, task)
    resumed.load_state_dict(from_bytes(to_bytes(training.state_dict()), CPU))
    for arm in (training, resumed):
        arm.run_to(4)
    pairs = zip(training.parameters, resumed.parameters, strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


def test_a_pair_of_arms_runs_and_its_weights_come_back(config: RunConfig, tmp_path: Path) -> None:
    store = RunStore(ObjectStore(tmp_path))
    for arm_config in (config, config.unconstrained()):
        arm = ArmRun(arm_config, store)
        while not arm.advance().is_final:
            pass
        assert arm.record.status == "finished", arm.record.reason
        measured = arm.record.evaluation
        assert measured is not None
        assert math.isfinite(measured.objective)
        assert len(measured.held_out_losses()) == config.model.layers + 1
        task = task_of(arm_config)
        model = model_of(arm_config, task)
        content = store.weights(arm.signature)
        assert content is not None
        model.load_state_dict(from_bytes(content, CPU)["model"])
        last = measure(model, task, "dev", config.test_gammas[-1], 1).metrics(task)[-1]
        score = measured.scores[f"{config.test_gammas[-1]:.2f}"]
        assert last == pytest.approx(score, rel=1e-6)
