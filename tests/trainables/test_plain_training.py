"""Plain training takes the last layer's loss alone; its numbers are those of the long way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.support.data.checkpoints import tiny_vit
from tests.support.data.text_runs import tiny_text
from tests.support.oracles import TINY
from trainables.build import build_task, parameter_dtype, weighting_of
from trainables.config.arm import ArmConfig, DataConfig, ModelConfig
from trainables.evaluation.evaluate import evaluate
from trainables.layer_losses import introduce
from trainables.primal_dual.lagrangian import PrimalDual
from trainables.primal_dual.weighting import LastLayer, Weighting
from trainables.tasks.base import Task
from trainables.training import Training
from trainables_testing.tiny_runs import model_of, moved, task_of, tensors_in

CPU = torch.device("cpu")
DUST = {"model.name": "dust", "model.atoms_per_side": 6}
STEPS = 6


class EveryLoss(LastLayer):
    """The same weights by the long way: every layer's loss is taken, times 0, and passed back."""

    watches_layers = True

    def is_plain(self, step: int) -> bool:
        return False


class EveryLossInWarmUp(PrimalDual):
    """The same of a constrained arm's warm-up."""

    def is_plain(self, step: int) -> bool:
        return False

    def _weights(self, step: int, losses_F: Tensor) -> Tensor:
        if step < self.config.warmup_steps:
            return self._plain.weights(step, losses_F)
        return super()._weights(step, losses_F)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ArmConfig]:
    tiny = replace(TINY, steps=STEPS, shifts=("blur",))
    text = tiny_text(tmp_path_factory.mktemp("text"), steps=STEPS)
    frames = DataConfig(name="photographs", frame_size=16, patch_size=4, frames=2, stride=7)
    vit = ModelConfig(
        name="vit", layers=2, checkpoint=str(tiny_vit(tmp_path_factory.mktemp("vit")))
    )
    return {
        "ut": tiny,
        "ut sharp bfloat16": tiny.with_fields({"model.variant": "sharp", "dtype": "bfloat16"}),
        "ut averaged": replace(tiny, weight_ema=0.5),
        "dust": tiny.with_fields(DUST),
        "dust shared": tiny.with_fields(DUST | {"model.variant": "shared"}),
        "dust paper bfloat16": tiny.with_fields(
            DUST | {"model.variant": "paper", "dtype": "bfloat16"}
        ),
        "vit": replace(tiny, task="frame_denoising", data=frames, model=vit),
        "encoder": text,
        "encoder in parts": text.with_fields(
            {"accumulate": 2, "weight_decay": 0.1, "warmup_fraction": 0.2, "dtype": "bfloat16"}
        ),
        "text_ut": text.with_fields({"model.name": "text_ut", "model.layers": 3}),
    }


RUNS = (
    "ut", "ut sharp bfloat16", "ut averaged", "dust", "dust shared", "dust paper bfloat16", "vit",
    "encoder", "encoder in parts", "text_ut",
)  # fmt: skip


def training_of(config: ArmConfig, task: Task, weighting: Weighting | None = None) -> Training:
    dtype = parameter_dtype(config)
    weighting = weighting or weighting_of(
        config, task.scales, CPU, dtype, steps_per_epoch=task.steps_per_epoch
    )
    return Training(config, task, moved(model_of(config, task)), weighting)


def outcome(training: Training) -> tuple[dict[str, float], list[Tensor]]:
    """What a report says of the steps, and everything that a checkpoint keeps."""
    scalars, layers = training.measured()
    timed = ("train/seconds", "train/steps_per_s")
    return (
        {name: value for name, value in scalars.items() if name not in timed}
        | {f"{name} {i}": v for name, values in layers.items() for i, v in enumerate(values)},
        list(tensors_in(training.state_dict())),
    )


def same(ours: Training, theirs: Training) -> bool:
    for half in (STEPS // 2, STEPS):
        for training in (ours, theirs):
            training.run_to(half)
        (scalars, kept), (others, others_kept) = outcome(ours), outcome(theirs)
        assert scalars == others
        assert len(kept) == len(others_kept)
        if not all(map(torch.equal, kept, others_kept)):
            return False
    return True


@pytest.mark.parametrize("name", RUNS)
def test_weights_reports_and_result_are_those_of_the_long_way(
    runs: dict[str, ArmConfig], name: str
) -> None:
    config = runs[name].unconstrained()
    task = build_task(config, CPU, parameter_dtype(config))
    introduce(model_of(config, task), task)
    every = EveryLoss(config.model.layers, CPU, parameter_dtype(config))
    ours, theirs = training_of(config, task), training_of(config, task, every)
    assert same(ours, theirs)
    references = task.references()
    results = [evaluate(config, task, t.evaluated, references, [])[0] for t in (ours, theirs)]
    assert results[0] == results[1]


@pytest.mark.parametrize("name", ["ut", "dust", "vit", "encoder in parts", "text_ut"])
def test_a_warm_up_is_that_of_the_long_way(runs: dict[str, ArmConfig], name: str) -> None:
    config = runs[name].with_fields({"constraint.warmup_steps": STEPS - 2})
    task = task_of(config)
    every = EveryLossInWarmUp(
        config, task.scales, CPU, parameter_dtype(config), steps_per_epoch=task.steps_per_epoch
    )
    assert same(training_of(config, task), training_of(config, task, every))


class Counting:
    """A task that counts how many losses were taken, and how many of them have a gradient."""

    def __init__(self, task: Task) -> None:
        self._task, self.taken, self.trained = task, 0, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._task, name)

    def loss(self, prediction: Tensor, targets: Tensor) -> Tensor:
        losses = self._task.loss(prediction, targets)
        self.taken += 1
        self.trained += losses.requires_grad
        return losses


@pytest.mark.parametrize(
    ("fields", "taken", "trained"),
    [
        (None, 1, 1),  # the unconstrained arm
        ({"constraint.warmup_steps": 6}, 4, 1),  # the warm-up: watched, not trained
        ({}, 4, 3),  # all but the input itself
    ],
    ids=["unconstrained", "warm-up", "constrained"],
)
def test_losses_of_weight_0_are_left_out(
    fields: dict[str, Any] | None, taken: int, trained: int
) -> None:
    config = TINY.unconstrained() if fields is None else TINY.with_fields(fields)
    task = Counting(task_of(config))
    training_of(config, task).run_to(2)  # type: ignore[arg-type]  # it has all of a task's
    assert (task.taken, task.trained) == (2 * taken, 2 * trained)


def test_a_layer_that_nobody_asks_about_cannot_end_a_plain_run() -> None:
    """0 times infinity is no number: by the long way the gradient would be lost."""
    config = TINY.unconstrained()
    task = task_of(config)

    class Exploding(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(()))

        def forward(self, inputs: Tensor) -> list[Tensor]:
            inner = inputs * self.weight
            return [inputs, inner * torch.inf, inner, inner]

    training = Training(config, task, Exploding(), LastLayer(3, CPU, torch.float32))
    training.run_to(3)
    assert bool(training.parameters[0].isfinite())
