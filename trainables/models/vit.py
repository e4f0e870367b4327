"""ViT: a pretrained vision transformer whose every block is read as a frame (arXiv 2601.17257).

Any Hugging Face ViT by name or folder. Its classifier, pooler and final layer norm are dropped: a
block's own output is the reconstruction, and a normalised token could not carry a patch's
brightness (decision 0021). The patch tokens become the frame, hidden = patch x patch x 3 numbers
each, in the order row, column, channel; class, distillation and register tokens are left out.
Layer 0 is the embedding of patches and positions. The checkpoint's own image processor says how
pixels in [0, 1] are normalised; predictions are taken back by the same numbers.

Nothing is random here: dropout is off in training too, so both arms of a pair compute the same.
Nothing is downloaded here: an arm runs where there may be no network, many at a time.

Shape suffixes: B batch, C channels, S frame_size, N tokens, H hidden size.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from huggingface_hub.constants import HF_HUB_CACHE
from torch import Tensor, nn
from transformers import AutoConfig, AutoImageProcessor, AutoModel
from transformers.utils import logging

from trainables.errors import BadData, InvalidValue, UnknownName

CHANNELS = 3
# Known to put patch tokens last, and to return what each block does before the final norm.
FAMILIES = ("vit", "deit", "vit_msn", "dinov2", "dinov2_with_registers")
_OF_ANY_SIZE = ("dinov2", "dinov2_with_registers")  # their positions are interpolated


class ViT(nn.Module):
    """RGB frames [B, 3, S, S] in [0, 1] to L + 1 predictions of the same shape and scale."""

    pixel_mean: Tensor
    pixel_std: Tensor

    def __init__(self, checkpoint: str, layers: int, frame_size: int) -> None:
        """Load the checkpoint, on the CPU in float32.

        Args:
            checkpoint: the name of a downloaded Hugging Face model, or a folder.
            layers: L; must be the checkpoint's depth.
            frame_size: S; must be what its image processor makes of an image.

        Raises:
            UnknownName: it is neither a folder nor among the downloads.
            BadData: files are missing or damaged.
            InvalidValue: it is no ViT whose tokens fit a frame, or ``layers`` or ``frame_size`` is
                not the checkpoint's.
        """
        super().__init__()
        place = _place(checkpoint)
        config = _read("configuration", AutoConfig, checkpoint, place)
        self.patch_size = _checked_patch_size(checkpoint, config, layers)
        processor = _read("image processor", AutoImageProcessor, checkpoint, place, backend="pil")
        _check_frame_size(checkpoint, config, processor, frame_size, self.patch_size)
        self.patches_per_side = frame_size // self.patch_size
        mean, std, self.scale = _normalisation(processor)
        self.register_buffer("pixel_mean", torch.tensor(mean).view(-1, 1, 1), persistent=False)
        self.register_buffer("pixel_std", torch.tensor(std).view(-1, 1, 1), persistent=False)
        self.encoder: nn.Module = _encoder(checkpoint, place)

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


def _place(checkpoint: str) -> str:
    """The folder or the name to load. UnknownName where it looks like a folder and is none."""
    try:
        folder = Path(checkpoint).expanduser()
    except RuntimeError:  # no such user
        folder = Path(checkpoint)
    if folder.is_dir():
        return str(folder)
    if checkpoint.startswith((".", "/", "~")) or checkpoint.count("/") > 1:
        raise UnknownName(
            f"no checkpoint {checkpoint!r}: there is no such folder ({folder.absolute()}). "
            "model.checkpoint must be a folder with config.json, preprocessor_config.json and "
            "model.safetensors, or the name of a downloaded Hugging Face model."
        )
    return checkpoint


def _read(what: str, reader: Any, checkpoint: str, place: str, **options: Any) -> Any:
    """``reader.from_pretrained`` on files of this machine, its many errors as two of ours."""
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        # without trust_remote_code it would ask at a terminal whether to run code of the files
        return reader.from_pretrained(
            place, local_files_only=True, trust_remote_code=False, **options
        )
    except Exception as error:
        if what == "configuration" and not Path(place).is_dir():
            raise UnknownName(
                f"no checkpoint {checkpoint!r}: it is neither a folder below {Path.cwd()} nor a "
                f"complete download in {HF_HUB_CACHE}, and training downloads nothing. Where there "
                f"is a network, run `hf download {checkpoint}` (HF_HOME says where to), or copy "
                "the model's folder here and give model.checkpoint its path."
            ) from error
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise BadData(
            f"cannot read the {what} of checkpoint {checkpoint!r}: {reason.rstrip('.')}. It needs "
            "config.json, preprocessor_config.json and model.safetensors, as save_pretrained "
            "writes them: download or copy it again."
        ) from error
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def _checked_patch_size(checkpoint: str, config: Any, layers: int) -> int:
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
    if layers != config.num_hidden_layers:
        raise InvalidValue(
            f"model.layers must be {config.num_hidden_layers}, the depth of checkpoint "
            f"{checkpoint!r}, got {layers}."
        )
    return patch


def _check_frame_size(
    checkpoint: str, config: Any, processor: Any, frame_size: int, patch: int
) -> None:
    """InvalidValue unless frames have the size that the image processor gives every image."""
    size = processor.crop_size if getattr(processor, "do_center_crop", False) else processor.size
    sides = (size.get("height"), size.get("width"))
    if sides != (frame_size, frame_size):
        asked = sides[0] if sides[0] == sides[1] and sides[0] else f"none: it makes {dict(size)}"
        raise InvalidValue(
            f"data.frame_size must be that of checkpoint {checkpoint!r}'s image processor, "
            f"{asked}, got {frame_size}."
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


def _encoder(checkpoint: str, place: str) -> nn.Module:
    """The blocks at their pretrained weights, without what comes after the last one."""
    with torch.random.fork_rng(
        devices=[]
    ):  # weights that a checkpoint lacks are drawn, then dropped
        encoder, loading = _read(
            "weights", AutoModel, checkpoint, place, dtype=torch.float32, output_loading_info=True
        )
    lacking = sorted(k for k in loading["missing_keys"] if not k.startswith("pooler."))
    if lacking:
        raise BadData(
            f"checkpoint {checkpoint!r} lacks {len(lacking)} weights of its own network, the first "
            f"being {lacking[0]}. Download or copy it again."
        )
    encoder.pooler = None
    encoder.layernorm = nn.Identity()
    for name, parameter in encoder.named_parameters():
        if name.endswith("mask_token"):  # of masked pretraining; no frame is masked here
            parameter.requires_grad_(False)
    blocks: nn.Module = encoder.eval()
    return blocks
