"""Construction of an arm from its configuration: task, network, starting weights."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import nn

from trainables.config.arm import ArmConfig, DataConfig, ModelConfig
from trainables.datasets import places
from trainables.errors import BadData
from trainables.fetching import fetched_folders
from trainables.fetching.fetched_folders import Tell
from trainables.primal_dual.constraints import Scales
from trainables.primal_dual.idle_options import require_effect
from trainables.primal_dual.lagrangian import PrimalDual
from trainables.primal_dual.schedule import in_steps
from trainables.primal_dual.weighting import Control, LastLayer, Weighting
from trainables.random_keys import keyed_generator, seed_of
from trainables.registry.find_plugins import (
    facts_of,
    model_spec,
    require_no_clash,
    returning,
    task_spec,
)
from trainables.tasks.base import Task


def parameter_dtype(config: ArmConfig) -> torch.dtype:
    """The type of a run's parameters, batches, losses and multipliers.

    ``bfloat16`` keeps all of them in float32: only the forward pass runs under autocast
    (``layer_losses.py``).
    """
    return torch.float64 if config.dtype == "float64" else torch.float32


def placed(
    config: ArmConfig, network: nn.Module, device: torch.device, *, complete: bool = True
) -> nn.Module:
    """A run's network on its device, in ``parameter_dtype``.

    Under autocast the frozen weights of layers that LoRA adapts are kept in bfloat16, to which each
    use would cast them: the numbers are the same to the bit. Not where the network is shared out
    (``complete`` is False), since parts of it must have one type.
    """
    network = network.to(parameter_dtype(config))
    if complete and config.dtype == "bfloat16" and config.model.lora_rank:
        from trainables.models.pretrained import narrow_frozen  # peft, transformers

        narrow_frozen(network)
    return network.to(device)


def build_task(config: ArmConfig, device: torch.device, dtype: torch.dtype) -> Task:
    """The task that ``config.task`` names, its data opened.

    Raises BadData, UnknownName and InvalidValue as the task.
    """
    build = returning("tasks", config.task, task_spec(config.task).build, object)
    return cast(Task, build(config, device, dtype))


def task_of_arm(config: ArmConfig, device: torch.device, dtype: torch.dtype) -> Task:
    """The task of an arm; on a GPU that of this process's last arm, where it is the same."""
    same = replace(config, constraint=None)
    if device.type == "cuda" and _last_tasks and _last_tasks[0][0] == same:
        return _last_tasks[0][1]
    _last_tasks.clear()  # and what it keeps on the GPU, before another one is built
    task = build_task(config, device, dtype)
    # Not of other packages: theirs may look at the constraint.
    is_ours = type(task).__module__.startswith("trainables.")
    if device.type == "cuda" and is_ours and getattr(task, "serves_any_constraint", False):
        _last_tasks.append((same, task))
    return task


_last_tasks: list[tuple[ArmConfig, Task]] = []  # of this process: one, or none


def check_training(config: ArmConfig) -> None:
    """Raise what starting the run would, as far as its data and its constraint decide it.

    Raises as the task and the weighting: batch_size exceeds the sequences, for example, or the run
    ends before its first dual step.
    """
    device, dtype = torch.device("cpu"), parameter_dtype(config)
    task = build_task(config, device, dtype)
    weighting_of(config, task.scales, device, dtype, steps_per_epoch=task.steps_per_epoch)


def require_no_clashes(config: ArmConfig) -> None:
    """Misuse where the run's model or task is built in, and a package has one of the same name.

    To be asked before a sweep: it reads what is installed, which descriptions need not. Of data
    sets, whoever lists their files asks.
    """
    require_no_clash("models", config.model.name)
    require_no_clash("tasks", config.task)


@dataclass(frozen=True)
class _TextSizes:
    """Facts of a task of texts that its network needs before there is one."""

    checkpoint: str
    answers: bool
    classes: int = 2

    @property
    def vocabulary(self) -> int:
        """Tokens of the checkpoint's tokenizer; read after its network."""
        from trainables.datasets.text.tokenizer import load_tokenizer

        return len(load_tokenizer(self.checkpoint, answers=self.answers))


def check_model(config: ArmConfig) -> None:
    """Raise what building the run's network would, as far as it depends on files.

    Nothing is known before its task is there of a network that asks it for what is in the data.
    """
    model = config.model
    if model.checkpoint is not None and not model.spec.needs_data:
        build_model(config, _TextSizes(model.checkpoint, config.facts.answers))


def depth_of(model: ModelConfig) -> int:
    """Number of a checkpoint's layers, from its configuration alone.

    Raises UnknownName, BadData and InvalidValue as ``Checkpoint.depth``.
    """
    from trainables.checkpoints import Checkpoint
    from trainables.models.readout import NEEDS

    return Checkpoint(str(model.checkpoint), NEEDS).depth()


def fingerprinted_data(config: ArmConfig) -> DataConfig:
    """The run's data with the fingerprint of what they hold.

    Raises UnknownName and BadData as the loader of the task's data.
    """
    resolve = returning("tasks", config.task, task_spec(config.task).resolve, DataConfig)
    return resolve(config.data)


def fetch(config: ArmConfig, tell: Tell) -> None:
    """Have on this machine what a run reads from addresses; ``tell`` is told how far that is.

    Raises BadData, StoreError and Misuse as ``fetched_folders.fetched``.
    """
    if config.facts.data:  # a task that reads none of our fields has its own ways
        places.on_this_machine(config.facts.data_group, config.data, tell=tell)
    if config.model.checkpoint is not None:
        fetched_folders.on_this_machine(config.model.checkpoint, tell=tell)


def model_fingerprint(model: ModelConfig) -> str:
    """16 hex digits of all that a run reads of its checkpoint; in text its tokenizer, too.

    Raises BadData where files are missing, or cannot be read.
    """
    from trainables.datasets.text.tokenizer_files import tokenizer_fingerprint
    from trainables.fetching.checkpoint_files import checkpoint_fingerprint

    checkpoint = str(model.checkpoint)
    fingerprint = checkpoint_fingerprint(checkpoint)
    if not facts_of(model_spec(model.name).task).reads_texts:
        return fingerprint
    both = f"{fingerprint} {tokenizer_fingerprint(checkpoint)}"
    return hashlib.sha256(both.encode()).hexdigest()[:16]


def require_same_checkpoint(model: ModelConfig) -> None:
    """BadData where the files of a run's checkpoint are not those of its fingerprint."""
    known = model.checkpoint_fingerprint
    if known and (actual := model_fingerprint(model)) != known:
        raise BadData(
            f"the files of checkpoint {model.checkpoint!r} changed: expected fingerprint "
            f"{known}, got {actual}. Results of both cannot be compared. "
            "Restore them, or clear model.checkpoint_fingerprint to start a new sweep on them."
        )


def build_model(config: ArmConfig, task: object) -> nn.Module:
    """The run's network at its starting weights, on the CPU; move it to ``parameter_dtype``.

    The start depends on the configuration alone: draws from torch's global generator are keyed for
    it. The files of a checkpoint must still be those of its fingerprint once it is read.
    """
    model = config.model
    build = returning("models", model.name, model_spec(model.name).build, nn.Module)
    with torch.random.fork_rng(devices=[]):
        # Not torch.manual_seed: it seeds GPUs' generators as well, which the fork does not restore.
        torch.default_generator.manual_seed(seed_of(config.seed, "start", model.name))
        network = build(config, task)
    if model.start_jitter > 0:
        _jitter(network, model.start_jitter, config.seed)
    require_same_checkpoint(model)
    return network


@torch.no_grad()
def _jitter(network: nn.Module, share: float, seed: int) -> None:
    """Move what is trained by normal noise of ``share`` of its root mean square, keyed by name."""
    for name, parameter in network.named_parameters():
        if parameter.requires_grad:
            drawn = torch.randn(  # on the CPU, whose numbers are the same for every device
                parameter.shape, generator=keyed_generator("cpu", seed, "start", name)
            )
            scale = share * parameter.double().square().mean().sqrt()
            parameter.add_(scale * drawn)


def inference_device(config: ArmConfig) -> torch.device:
    """A GPU where the arm was trained on one and there is one, else the CPU."""
    wants_gpu = config.device == "cuda" and torch.cuda.is_available()
    return torch.device("cuda" if wants_gpu else "cpu")


def weighting_of(
    config: ArmConfig,
    scales: Scales,
    device: torch.device,
    dtype: torch.dtype,
    *,
    steps_per_epoch: int | None,
) -> Weighting:
    """The weighting that a run's constraint asks for; plain training when there is none.

    Without the run's own data ``steps_per_epoch`` is not known: None takes every step for an epoch
    and refuses nothing, to see what steps cost.

    Raises InvalidValue where an option could do nothing in this run, or not what it says.
    """
    config = in_steps(config, steps_per_epoch or 0)
    if config.constraint is None:
        return LastLayer(config.model.layers, device, dtype)
    if steps_per_epoch is not None:
        require_effect(config, config.constraint, steps_per_epoch)
    if config.constraint.is_control:
        return Control(config, scales, device, dtype)
    return PrimalDual(config, scales, device, dtype, steps_per_epoch=steps_per_epoch or 1)
