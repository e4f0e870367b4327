"""Construction of an arm from its configuration: task, network, starting weights."""

from __future__ import annotations

import hashlib
from typing import Protocol, cast

import torch
from torch import Tensor, nn

from trainables.config.arm import DataConfig, ModelConfig, RunConfig
from trainables.config.task_facts import TASKS, facts_of, task_of_model
from trainables.datasets import fetched_folders, places
from trainables.datasets.fetched_folders import Tell
from trainables.datasets.video import load as video
from trainables.errors import BadData, InvalidValue
from trainables.models.dust import DUST
from trainables.models.ut import UT
from trainables.plugins import require_no_clash, task_plugin, wrong_return
from trainables.primal_dual.weighting import weighting_of
from trainables.random_keys import seed_of
from trainables.tasks.base import References, Task, TokenTask, TrainingTask
from trainables.tasks.denoising import Denoising
from trainables.tasks.frame_denoising import FrameDenoising
from trainables.tasks.linear_references import linear_references
from trainables.tasks.video_denoising import VideoDenoising


class OwnReferences(Task, Protocol):
    """A task that measures itself what needs no training; of denoising tasks it is done for it."""

    def references(self, split: str = "dev") -> References:
        """On a split's units: 'constant', and 'identity' where returning the input is one."""
        ...


def parameter_dtype(config: RunConfig) -> torch.dtype:
    """The type of a run's parameters, batches, losses and multipliers.

    ``bfloat16`` keeps all of them in float32: only the forward pass runs under autocast
    (``layer_losses.py``).
    """
    return torch.float64 if config.dtype == "float64" else torch.float32


def build_task(
    config: RunConfig, device: torch.device, dtype: torch.dtype
) -> Denoising | OwnReferences:
    """The task that ``config.task`` names, its data opened.

    Raises:
        BadData, UnknownName, InvalidValue: as the task.
    """
    if config.task not in TASKS:
        return task_plugin(config.task, TASKS).build(config, device, dtype)
    if config.task == "text_classification":
        from trainables.tasks.text_classification import TextClassification  # and tokenizers

        return TextClassification(config, device, dtype)
    kind = FrameDenoising if config.task == "frame_denoising" else VideoDenoising
    return kind(config, device, dtype)


def check_training(config: RunConfig) -> None:
    """Raise what starting the run would, as far as its data and its constraint decide it.

    Raises:
        BadData, UnknownName, InvalidValue: as the task and the weighting; batch_size exceeds the
            sequences, say, or the run ends before its first dual step.
    """
    device, dtype = torch.device("cpu"), parameter_dtype(config)
    task = build_task(config, device, dtype)
    weighting_of(config, task.scales, device, dtype, steps_per_epoch=task.steps_per_epoch)


def require_no_clashes(config: RunConfig) -> None:
    """Misuse where the run's model or task is built in, and a package has one of the same name.

    To be asked before a sweep: it reads what is installed, which descriptions need not. Of data
    sets, whoever lists their files asks.
    """
    if config.model.plugin is None:
        require_no_clash("models", config.model.name)
    if config.task in TASKS:
        require_no_clash("tasks", config.task)


def build_references(
    config: RunConfig, task: Denoising | OwnReferences, split: str = "dev"
) -> References:
    """What needs no training, on the units of ``split``."""
    if isinstance(task, Denoising):
        return linear_references(config, task, split)
    return task.references(split)


def check_model(config: RunConfig) -> None:
    """Raise what building the run's network would, as far as it depends on files.

    Of a plug-in's network nothing is known before its task is there.
    """
    if config.model.checkpoint is None or config.model.plugin is not None:
        return
    network = _of_checkpoint(config, classes=2)
    if config.model.name != "vit":
        from trainables.datasets.text.tokenizer import load_tokenizer

        checkpoint = config.model.checkpoint
        _check_vocabulary(checkpoint, network, len(load_tokenizer(checkpoint)))


def depth_of(model: ModelConfig) -> int:
    """How many layers a checkpoint has, from its configuration alone.

    Raises:
        UnknownName, BadData, InvalidValue: as ``Checkpoint.depth``.
    """
    from trainables.checkpoints import Checkpoint
    from trainables.models.encoder import NEEDS

    return Checkpoint(str(model.checkpoint), NEEDS).depth()


def resolve_data(config: RunConfig) -> DataConfig:
    """The run's data with the fingerprint of what they hold.

    Raises:
        UnknownName, BadData: as the loader of the task's data.
    """
    if config.task not in TASKS:
        return task_plugin(config.task, TASKS).resolve(config.data)
    if config.task == "text_classification":
        from trainables.datasets.text import load as text

        return text.resolve(config.data)
    return video.resolve(config.data)


def fetch(config: RunConfig, tell: Tell) -> None:
    """Have on this machine what a run reads from addresses; ``tell`` is told how far that is.

    Raises:
        BadData, StoreError, Misuse: as ``fetched_folders.fetched``.
    """
    if config.task in TASKS:  # those of plug-ins read data in their own ways
        places.on_this_machine(config.data, tell=tell)
    if config.model.checkpoint is not None:
        fetched_folders.on_this_machine(config.model.checkpoint, tell=tell)


def model_fingerprint(model: ModelConfig) -> str:
    """16 hex digits of all that a run reads of its checkpoint; in text its tokenizer, too.

    Raises:
        BadData: files are missing, or cannot be read.
    """
    from trainables.datasets.text.tokenizer import tokenizer_fingerprint
    from trainables.models.checkpoint_files import checkpoint_fingerprint

    checkpoint = str(model.checkpoint)
    found = checkpoint_fingerprint(checkpoint)
    if not facts_of(task_of_model(model.name)).reads_texts:
        return found
    both = f"{found} {tokenizer_fingerprint(checkpoint)}"
    return hashlib.sha256(both.encode()).hexdigest()[:16]


def build_model(config: RunConfig, task: TrainingTask) -> nn.Module:
    """The run's network at its starting weights, on the CPU; move it to ``parameter_dtype``.

    The start depends on the configuration alone, never on global random state.
    """
    model = config.model
    if model.plugin is not None:
        return _of_plugin(config, task)
    if model.name == "dust":
        one_dictionary = model.variant == "paper" and config.constraint is None
        return DUST(
            layers=model.layers,
            patch_size=config.data.patch_size,
            atoms_per_side=model.atoms_per_side,
            threshold=model.threshold,
            shared=model.variant == "shared" or one_dictionary,
        )
    if model.checkpoint is not None:
        if not isinstance(task, TokenTask):
            return _of_checkpoint(config, classes=0)
        network = _of_checkpoint(config, task.classes)
        _check_vocabulary(model.checkpoint, network, task.vocabulary)
        return network
    return UT(
        layers=model.layers,
        patch_size=config.data.patch_size,
        variant=model.variant,
        noise_energy=task.scales.identity_loss,
    )


def _of_checkpoint(config: RunConfig, classes: int) -> nn.Module:
    """A network from a checkpoint, whose files must still be those of the fingerprint."""
    network = _read(config, str(config.model.checkpoint), classes)
    _require_unchanged(config.model)
    return network


def _of_plugin(config: RunConfig, task: TrainingTask) -> nn.Module:
    """A network of another package, whose draws from torch's global generator are keyed for it."""
    model = config.model
    assert model.plugin is not None
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed_of(config.seed, "start", model.name))
        network = model.plugin.build(config, task)
    if not isinstance(network, nn.Module):
        raise wrong_return("models", model.name, nn.Module, network)
    if model.checkpoint is not None:
        _require_unchanged(model)
    return network


def _require_unchanged(model: ModelConfig) -> None:
    """BadData where the files of the checkpoint are no longer those of its fingerprint."""
    if model.checkpoint_fingerprint not in ("", found := model_fingerprint(model)):
        raise BadData(
            f"the files of checkpoint {model.checkpoint!r} changed: expected fingerprint "
            f"{model.checkpoint_fingerprint}, got {found}. Results of both cannot be compared. "
            "Restore them, or clear model.checkpoint_fingerprint to start a new sweep on them."
        )


def _check_vocabulary(checkpoint: str, network: nn.Module, vocabulary: int) -> None:
    """InvalidValue where the tokenizer has tokens that the network has no word for."""
    words = len(cast(Tensor, network.words))
    if vocabulary > words:
        raise InvalidValue(
            f"the tokenizer of checkpoint {checkpoint!r} has {vocabulary} tokens, but its network "
            f"has words for {words}: they are of different models. Put the network's own tokenizer "
            "beside its weights."
        )


def _read(config: RunConfig, checkpoint: str, classes: int) -> nn.Module:
    """The network; transformers takes seconds to import, so it is where it is needed."""
    model = config.model
    if model.name == "vit":
        from trainables.models.vit import ViT

        return ViT(checkpoint, model.layers, config.data.frame_size)
    assert model.pooling is not None  # ModelConfig fills it in
    if model.name == "text_ut":
        from trainables.models.text_ut import text_ut

        return text_ut(
            checkpoint,
            layers=model.layers,
            classes=classes,
            pooling=model.pooling,
            seed=config.seed,
        )
    from trainables.models.encoder import encoder

    return encoder(
        checkpoint,
        layers=model.layers,
        classes=classes,
        pooling=model.pooling,
        seed=config.seed,
        max_length=config.data.max_length,
    )
