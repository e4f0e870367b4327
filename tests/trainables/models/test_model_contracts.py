"""One contract for every model, variant and task, plug-ins too, in float32 and in bfloat16."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from tests.support.data.checkpoints import tiny_vit
from tests.support.data.instruction_runs import tiny_instructions
from tests.support.data.text_runs import tiny_text
from tests.support.oracles import TINY
from trainables.config.arm import ArmConfig
from trainables.layer_losses import layer_losses
from trainables.registry.built_in import MODELS, TASKS
from trainables_testing.models import MODEL, parameters_by_layer
from trainables_testing.tasks import TASK
from trainables_testing.tiny_runs import model_of, moved, task_of

EVERY = [(name, variant) for name, spec in MODELS.items() for variant in spec.variants]
DTYPES = ["float32", "bfloat16"]
Promise = Callable[[ArmConfig], None]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_vit(tmp_path_factory.mktemp("vit"))


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> ArmConfig:
    return tiny_text(tmp_path_factory.mktemp("text"), steps=2, report_every=1)


@pytest.fixture(scope="module")
def instructions(tmp_path_factory: pytest.TempPathFactory) -> ArmConfig:
    """A decoder's run; its folder has weights, too, which ``scratch`` does not read."""
    config = tiny_instructions(tmp_path_factory.mktemp("decoder"), steps=2, report_every=1)
    folder = str(config.model.checkpoint)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        described = AutoConfig.from_pretrained(folder)
        AutoModelForCausalLM.from_config(described).save_pretrained(folder)
    return config


@pytest.fixture
def of_model(
    checkpoint: Path, text: ArmConfig, instructions: ArmConfig
) -> Callable[[str, str], ArmConfig]:
    """A tiny constrained run of one model and variant, in float32."""

    def run(name: str, variant: str = "") -> ArmConfig:
        for config in (text, instructions):
            if MODELS[name].task == config.task:
                return config.with_fields({"model.name": name, "model.variant": variant})
        fields: dict[str, Any] = {"model.name": name, "model.variant": variant, "steps": 2}
        fields |= {"report_every": 1, "constraint.alpha": 0.1, "eval_windows": 2}
        if name == "dust":
            fields |= {"model.atoms_per_side": 6}
        if name == "vit":
            fields |= {"task": "frame_denoising", "model.checkpoint": str(checkpoint)}
            fields |= {"model.layers": 2, "data.frame_size": 16}
        return TINY.with_fields(fields)

    return run


@pytest.fixture(params=EVERY, ids=["-".join(pair) for pair in EVERY])
def single(request: pytest.FixtureRequest, of_model: Callable[[str, str], ArmConfig]) -> ArmConfig:
    return of_model(*request.param)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("promise", MODEL, ids=lambda promise: promise.__name__)
def test_a_model_keeps_its_promises(single: ArmConfig, dtype: str, promise: Promise) -> None:
    promise(replace(single, dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("promise", TASK, ids=lambda promise: promise.__name__)
@pytest.mark.parametrize("task", TASKS)
def test_a_task_keeps_its_promises(
    of_model: Callable[[str], ArmConfig], task: str, dtype: str, promise: Promise
) -> None:
    first = next(name for name, spec in MODELS.items() if spec.task == task)
    promise(replace(of_model(first), dtype=dtype))


# --- what our own models do beyond it -------------------------------------------------------------


def test_every_layer_has_parameters_of_its_own_unless_it_shares_them(single: ArmConfig) -> None:
    reached = parameters_by_layer(single)
    if single.model.variant != "shared":
        assert all(len(a) < len(b) for a, b in itertools.pairwise(reached))


def test_capacity_differs_only_where_it_is_said(single: ArmConfig) -> None:
    assert single.matched_capacity is (single.model.variant != "paper")
    task = task_of(single)
    ours, theirs = (
        sum(p.numel() for p in model_of(config, task).parameters())
        for config in (single, single.unconstrained())
    )
    assert ours == theirs * (1 if single.matched_capacity else single.model.layers)


def test_bfloat16_rounds_the_forward_pass(single: ArmConfig) -> None:
    task, rounded = task_of(single), task_of(replace(single, dtype="bfloat16"))
    model, batch = moved(model_of(single, task)), task.train_batch(0)
    exact, cast = (layer_losses(model, t, batch)[1:] for t in (task, rounded))
    assert not torch.equal(exact, cast)
