"""Fused training against training alone: every bit of every arm's state."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.data.text_runs import tiny_text
from tests.support.oracles import TINY
from tests.support.training.forms import EPOCH, FORMS, config_of
from trainables.build import parameter_dtype, weighting_of
from trainables.config.arm import ArmConfig
from trainables.fused.agreement import may_fuse
from trainables.fused.training import FusedTraining
from trainables.tasks.base import Task
from trainables.training import Training
from trainables_testing.tiny_runs import CPU, model_of, task_of

STEPS = 26  # two epochs of the forms, and a little
FEW = ("ratio", "every epoch", "slack, adam", "adamw", "augmented, ratio", "all at once")
NETWORKS: dict[str, dict[str, Any]] = {
    "ut-distance": {},  # in every form
    "ut-sharp": {"model.variant": "sharp"},
    "ut-literal": {"model.variant": "literal"},
    "dust-per_layer": {"model.name": "dust", "model.variant": "per_layer"},
    "dust-shared": {"model.name": "dust", "model.variant": "shared"},
}


def arm_of(config: ArmConfig, task: Task) -> Training:
    """With epochs so short that every form takes its dual steps."""
    dtype = parameter_dtype(config)
    weighting = weighting_of(config, task.scales, CPU, dtype, steps_per_epoch=EPOCH)
    return Training(config, task, model_of(config, task), weighting)


def trained(configs: list[ArmConfig], steps: int, *, fused: bool) -> list[Training]:
    task = task_of(configs[0])
    arms = [arm_of(config, task) for config in configs]
    if fused:
        assert may_fuse(arms)
        FusedTraining(arms).run_to(steps)
    else:
        for arm in arms:
            arm.run_to(steps)
    return arms


def require_same_bits(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, other)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            require_same_bits(one[key], other[key])
    elif isinstance(one, list | tuple):
        for mine, theirs in zip(one, other, strict=True):
            require_same_bits(mine, theirs)
    else:
        assert one == other


def require_same(alone: list[Training], together: list[Training]) -> None:
    for mine, theirs in zip(alone, together, strict=True):
        states = mine.state_dict(), theirs.state_dict()
        for state in states:
            del state["seconds"]
        require_same_bits(*states)


@pytest.mark.parametrize("network", NETWORKS)
def test_a_fused_arm_has_the_bits_of_the_arm_alone(network: str) -> None:
    of_network = {"weight_ema": 0.9, "dtype": "float32", **NETWORKS[network]}
    if "dust" in network:
        of_network["model.atoms_per_side"] = 6
    forms = [
        config_of(FORMS[form], dtype="float32").with_fields(of_network)
        for form in (FORMS if network == "ut-distance" else FEW)
    ]
    configs = [*forms, forms[0].unconstrained()]
    require_same(trained(configs, STEPS, fused=False), trained(configs, STEPS, fused=True))


def test_batches_in_parts_are_added_up_as_alone() -> None:
    detached = TINY.with_fields({"constraint.grad_through_previous": False, "accumulate": 2})
    configs = [detached, detached.with_fields({"constraint.alpha": 0.5}), detached.unconstrained()]
    require_same(trained(configs, 15, fused=False), trained(configs, 15, fused=True))


def test_a_model_of_texts_fuses_where_its_products_are_of_common_size(tmp_path: Path) -> None:
    base = tiny_text(tmp_path, batch_size=15, **{"model.name": "text_ut"})
    configs = [base, base.with_fields({"constraint.alpha": 0.3}), base.unconstrained()]
    require_same(trained(configs, 4, fused=False), trained(configs, 4, fused=True))


@pytest.mark.parametrize("of", ["bfloat16", "small products"])
def test_other_bits_are_found(of: str, tmp_path: Path) -> None:
    config = replace(TINY, dtype="bfloat16")
    if of == "small products":  # 8 x 4 x 4 multiplications: a stack takes them in another order
        config = tiny_text(tmp_path, batch_size=4, **{"model.name": "text_ut"})
    task = task_of(config)
    arms = [arm_of(one, task) for one in (config, config.unconstrained())]
    assert not may_fuse(arms)


def test_a_model_whose_steps_change_a_buffer_is_not_fused() -> None:
    """A stack has one set of buffers; what the trial changed is put back."""

    def counted(model: Any, inputs: Any) -> None:
        model.calls.add_(1)

    task = task_of(TINY)
    arms = [arm_of(one, task) for one in (TINY, TINY.unconstrained())]
    for arm in arms:
        arm.model.register_buffer("calls", torch.zeros(()))
        arm.model.register_forward_pre_hook(counted)
    assert not may_fuse(arms)
    assert [float(arm.model.calls) for arm in arms] == [0.0, 0.0]


@pytest.mark.parametrize("at", [0, 5, 35])
def test_arms_whose_learning_rate_is_on_its_way_fuse(at: int) -> None:
    """In the warm-up, and in the decay: the step before was taken at another rate."""
    config = TINY.with_fields({"warmup_fraction": 0.2, "decay_fraction": 0.5})
    task = task_of(config)
    arms = [arm_of(one, task) for one in (config, config.unconstrained())]
    for arm in arms:
        arm.run_to(at)
    assert may_fuse(arms)


def test_a_model_of_its_own_for_each_arm_is_not_fused() -> None:
    """The first arm's model would train the others."""
    task = task_of(TINY)
    arms = [arm_of(one, task) for one in (TINY, TINY.unconstrained())]
    assert may_fuse(arms)
    arms[1].model.register_forward_hook(lambda model, _, out: [2.0 * layer for layer in out])
    assert not may_fuse(arms)
