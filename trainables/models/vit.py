"""ViT: pretrained vision transformer, every block read as a frame.

As in arXiv 2601.17257. Any Hugging Face ViT by name or folder. Its classifier, pooler and final
layer norm are dropped: a block's own output is the reconstruction, and a normalised token could not
carry a patch's brightness. The patch tokens become the frame, hidden = patch x patch x 3 numbers
each, in the order row, column, channel; class, distillation and register tokens are left out. Layer
0 is the embedding of patches and positions. The checkpoint's own image processor says how pixels in
[0, 1] are normalised; predictions are taken back by the same numbers.

Nothing is random here: dropout is off in training too, so both arms of a pair compute the same.
Nothing is downloaded here: an arm runs where there may be no network, many at a time.

Shape suffixes: B batch, C channels, S frame_size, N tokens, H hidden size.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoImageProcessor

from trainables.checkpoints import Checkpoint
from trainables.config.arm import ArmConfig
from trainables.errors import InvalidValue

CHANNELS = 3
# Known to put patch tokens last, and to return what each block does before the final norm.
FAMILIES = ("vit", "deit", "vit_msn", "dinov2", "dinov2_with_registers")
NEEDS = ("config.json", "preprocessor_config.json", "model.safetensors")
_OF_ANY_SIZE = ("dinov2", "dinov2_with_registers")  # their positions are interpolated


class ViT(nn.Module):
    """RGB frames [B, 3, S, S] in [0, 1] to L + 1 predictions of the same shape and scale."""

    pixel_mean: Tensor
    pixel_std: Tensor

    def __init__(self, checkpoint: str, layers: int, frame_size: int) -> None:
        """Load the checkpoint, on the CPU in float32.

        Raises:
            UnknownName, BadData: as ``Checkpoint``.
            InvalidValue: it is no ViT whose tokens fit a frame, or ``layers`` or ``frame_size`` is
                not the checkpoint's.
        """
        super().__init__()
        opened = Checkpoint(checkpoint, NEEDS)
        config = opened.config()
        self.patch_size = _checked_patch_size(checkpoint, config)
        opened.check_depth(layers)
        processor = opened.read("image processor", AutoImageProcessor, backend="pil")
        _check_frame_size(checkpoint, config, processor, frame_size, self.patch_size)
        self.patches_per_side = frame_size // self.patch_size
        mean, std, self.scale = _normalisation(processor)
        self.register_buffer("pixel_mean", torch.tensor(mean).view(-1, 1, 1), persistent=False)
        self.register_buffer("pixel_std", torch.tensor(std).view(-1, 1, 1), persistent=False)
        self.encoder: nn.Module = _encoder(opened)

    def forward(self, inputs_BCSS: Tensor) -> list[Tensor]:
        """Predictions after the embedding and after each block."""
        pixels_BCSS = (inputs_BCSS * self.scale - self.pixel_mean) / self.pixel_std
        states = self.encoder(pixel_values=pixels_BCSS, output_hidden_states=True).hidden_states
        return [self._frame(state_BNH) for state_BNH in states]

    def train(self, mode: bool = True) -> ViT:
        """As every module, but the encoder stays in eval mode: its dropout would be unkeyed."""
        super().train(mode)
        self.encoder.eval()
        return self

    def _frame(self, state_BNH: Tensor) -> Tensor:
        side, patch = self.patches_per_side, self.patch_size
        tokens_BNH = state_BNH[:, -(side * side) :]
        grid = tokens_BNH.reshape(-1, side, side, patch, patch, CHANNELS)
        pixels_BCSS = grid.permute(0, 5, 1, 3, 2, 4).reshape(-1, CHANNELS, *[side * patch] * 2)
        return (pixels_BCSS * self.pixel_std + self.pixel_mean) / self.scale


def build(config: ArmConfig, task: object) -> ViT:
    """The run's network at its checkpoint's weights."""
    return ViT(str(config.model.checkpoint), config.model.layers, config.data.frame_size)


def _checked_patch_size(checkpoint: str, config: Any) -> int:
    """The side of a patch. InvalidValue when the checkpoint cannot be read as frames."""
    if config.model_type not in FAMILIES:
        raise InvalidValue(
            f"checkpoint {checkpoint!r} is of type {config.model_type!r}; model vit takes one of "
            f"{', '.join(FAMILIES)}."
        )
    sides = config.patch_size
    patch = int(sides if isinstance(sides, int) else sides[0])
    square = isinstance(sides, int) or tuple(sides) == (patch, patch)
    size = patch * patch * CHANNELS
    if not square or config.num_channels != CHANNELS or config.hidden_size != size:
        raise InvalidValue(
            f"the tokens of checkpoint {checkpoint!r} do not fit a frame: hidden size "
            f"{config.hidden_size}, patches of {sides} pixels, {config.num_channels} channels. A "
            f"token must hold its own patch, hidden size = patch x patch x {CHANNELS}, as in "
            "ViT-B/16 (768 = 16 x 16 x 3)."
        )
    return patch


def _check_frame_size(
    checkpoint: str, config: Any, processor: Any, frame_size: int, patch: int
) -> None:
    """InvalidValue unless frames have the size that the image processor gives every image."""
    size = processor.crop_size if getattr(processor, "do_center_crop", False) else processor.size
    sides = (size.get("height"), size.get("width"))
    if sides != (frame_size, frame_size):
        wanted = sides[0] if sides[0] == sides[1] and sides[0] else f"none: it makes {dict(size)}"
        raise InvalidValue(
            f"data.frame_size must be that of checkpoint {checkpoint!r}'s image processor, "
            f"{wanted}, got {frame_size}."
        )
    size = config.image_size
    images = [size, size] if isinstance(size, int) else list(size)
    if config.model_type not in _OF_ANY_SIZE and images != [frame_size, frame_size]:
        raise InvalidValue(
            f"checkpoint {checkpoint!r} takes images of {images[0]} x {images[1]} pixels, but its "
            f"image processor makes {frame_size}. Correct its preprocessor_config.json."
        )
    if frame_size % patch:
        raise InvalidValue(
            f"data.frame_size must be a multiple of the patch size {patch} of checkpoint "
            f"{checkpoint!r}, got {frame_size}."
        )


def _normalisation(processor: Any) -> tuple[list[float], list[float], float]:
    """(mean, std) per channel and the scale of pixels in [0, 1] before them."""
    scale = 255.0 * (processor.rescale_factor if processor.do_rescale else 1.0)
    if not processor.do_normalize:
        return [0.0] * CHANNELS, [1.0] * CHANNELS, scale
    return list(processor.image_mean), list(processor.image_std), scale


def _encoder(checkpoint: Checkpoint) -> nn.Module:
    """The blocks at their pretrained weights, without what comes after the last one."""
    encoder = checkpoint.network()
    encoder.layernorm = nn.Identity()
    for name, parameter in encoder.named_parameters():
        if name.endswith("mask_token"):  # of masked pretraining; no frame is masked here
            parameter.requires_grad_(False)
    return encoder
