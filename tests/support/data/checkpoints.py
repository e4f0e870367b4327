"""Tiny vision transformers as save_pretrained writes them, for tests of what reads checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModel,
    DeiTConfig,
    Dinov2Config,
    Dinov2WithRegistersConfig,
    ViTConfig,
    ViTMSNConfig,
)
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

SHAPE = {"hidden_size": 48, "num_attention_heads": 3, "num_hidden_layers": 2}
KINDS: dict[str, Any] = {
    "vit": ViTConfig,
    "deit": DeiTConfig,
    "vit_msn": ViTMSNConfig,
    "dinov2": Dinov2Config,
    "dinov2_with_registers": Dinov2WithRegistersConfig,
}


def tiny_vit(
    folder: Path, kind: str = "vit", processor: dict[str, Any] | None = None, **fields: Any
) -> Path:
    """A checkpoint of random weights: images of 16 pixels, patches of 4, 48 = 4 x 4 x 3, 2 blocks.

    Args:
        folder: where it is written.
        kind: a key of KINDS.
        processor: fields of the image processor, other than its size.
        fields: fields of the configuration.
    """
    size = {"image_size": 16, "patch_size": 4}
    mlp = {"intermediate_size": 96} if "dinov2" not in kind else {"mlp_ratio": 2}
    config = KINDS[kind](**(SHAPE | size | mlp | fields))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = AutoModel.from_config(config)
        with torch.no_grad():
            for parameter in model.parameters():  # far from the start, where blocks do nothing
                parameter += 0.05 * torch.randn(parameter.shape)
    model.save_pretrained(folder)
    side = config.image_size
    options = {"size": {"height": side, "width": side}} | (processor or {})
    ViTImageProcessorPil(**options).save_pretrained(folder)
    return folder
