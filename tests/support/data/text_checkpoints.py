"""Tiny encoders of texts as save_pretrained writes them, for tests of what reads checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import (
    AlbertConfig,
    AutoModel,
    BertConfig,
    DebertaV2Config,
    DistilBertConfig,
    ElectraConfig,
    ModernBertConfig,
    MPNetConfig,
    RobertaConfig,
)

LAYERS = 3
WORDS = 40
_SHAPE = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2}
KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "bert": (BertConfig, _SHAPE),
    "distilbert": (DistilBertConfig, {"dim": 16, "hidden_dim": 32, "n_heads": 2, "n_layers": 3}),
    "roberta": (RobertaConfig, _SHAPE | {"type_vocab_size": 1, "pad_token_id": 1}),
    "electra": (ElectraConfig, _SHAPE | {"embedding_size": 8}),
    "albert": (AlbertConfig, _SHAPE | {"embedding_size": 8}),
    "mpnet": (MPNetConfig, _SHAPE | {"pad_token_id": 1}),
    "deberta-v2": (
        DebertaV2Config,
        _SHAPE | {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
    ),
    "modernbert": (
        ModernBertConfig,
        _SHAPE
        | {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1}
        | {"sep_token_id": 2, "local_attention": 4},
    ),
}


def tiny_encoder(folder: Path, kind: str = "distilbert", **fields: Any) -> Path:
    """A checkpoint of random weights: 3 blocks of width 16, 40 words, 24 positions.

    Args:
        folder: where it is written.
        kind: a key of KINDS.
        fields: fields of the configuration.
    """
    config_class, shape = KINDS[kind]
    depth = {} if kind == "distilbert" else {"num_hidden_layers": LAYERS}
    config = config_class(
        **({"vocab_size": WORDS, "max_position_embeddings": 24} | shape | depth | fields)
    )
    write(folder, config)
    return folder


def write(folder: Path, config: Any) -> None:
    """The base network of ``config``, its weights far from the start, where blocks do little."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = AutoModel.from_config(config)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.2 * torch.randn(parameter.shape)
    model.save_pretrained(folder)
