"""From a configuration to what an arm trains: its task, and its network at the starting weights."""

from __future__ import annotations

import torch
from torch import nn

from trainables.config import RunConfig
from trainables.errors import BadData
from trainables.models.dust import DUST
from trainables.models.ut import UT
from trainables.tasks.base import Task
from trainables.tasks.denoising import Denoising
from trainables.tasks.frame_denoising import FrameDenoising
from trainables.tasks.video_denoising import VideoDenoising
from trainables.weighting import weighting_of


def parameter_dtype(config: RunConfig) -> torch.dtype:
    """The type of a run's parameters, batches, losses and multipliers.

    ``bfloat16`` keeps all of them in float32: only the forward pass runs under autocast
    (``layer_losses.py``).
    """
    return torch.float64 if config.dtype == "float64" else torch.float32


def build_task(config: RunConfig, device: torch.device, dtype: torch.dtype) -> Denoising:
    """The task that ``config.task`` names, its data opened.

    Raises:
        BadData, UnknownName, InvalidValue: as the task.
    """
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


def check_model(config: RunConfig) -> None:
    """Raise what building the run's network would, as far as it depends on files."""
    if config.model.name == "vit":
        _vit(config)


def build_model(config: RunConfig, task: Task) -> nn.Module:
    """The run's network at its starting weights, on the CPU; move it to ``parameter_dtype``.

    The start depends on the configuration alone, never on global random state.
    """
    model = config.model
    if model.name == "dust":
        one_dictionary = model.variant == "paper" and config.constraint is None
        return DUST(
            layers=model.layers,
            patch_size=config.data.patch_size,
            atoms_per_side=model.atoms_per_side,
            threshold=model.threshold,
            shared=model.variant == "shared" or one_dictionary,
        )
    if model.name == "vit":
        return _vit(config)
    return UT(
        layers=model.layers,
        patch_size=config.data.patch_size,
        variant=model.variant,
        noise_energy=task.scales.identity_loss,
    )


def _vit(config: RunConfig) -> nn.Module:
    """A ViT from its checkpoint, whose files must still be those of the fingerprint."""
    from trainables.models.checkpoint_files import checkpoint_fingerprint
    from trainables.models.vit import ViT  # transformers takes seconds to import

    model = config.model
    checkpoint = str(model.checkpoint)
    network = ViT(checkpoint, model.layers, config.data.frame_size)
    if model.checkpoint_fingerprint not in ("", found := checkpoint_fingerprint(checkpoint)):
        raise BadData(
            f"the files of checkpoint {checkpoint!r} changed: expected fingerprint "
            f"{model.checkpoint_fingerprint}, got {found}. Results of both cannot be compared. "
            "Restore them, or clear model.checkpoint_fingerprint to start a new sweep on them."
        )
    return network
