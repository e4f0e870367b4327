"""Tiny encoders and decoders as save_pretrained writes them, for tests of checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import (
    AlbertConfig,
    AutoModel,
    AutoModelForCausalLM,
    BertConfig,
    DebertaV2Config,
    DistilBertConfig,
    ElectraConfig,
    Gemma2Config,
    GPT2Config,
    GPTNeoXConfig,
    LlamaConfig,
    ModernBertConfig,
    MPNetConfig,
    Qwen2Config,
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
_HEADS = _SHAPE | {"num_key_value_heads": 1, "head_dim": 8}
DECODERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "llama": (LlamaConfig, _SHAPE),
    "gpt2": (GPT2Config, {"n_embd": 16, "n_head": 2, "n_inner": 32}),
    "qwen2": (Qwen2Config, _HEADS),
    "gemma2": (Gemma2Config, _HEADS | {"query_pre_attn_scalar": 8, "final_logit_softcapping": 2.0}),
    "gpt_neox": (GPTNeoXConfig, _SHAPE),
}


def decoder_config(kind: str = "llama", **fields: Any) -> Any:
    """A configuration of 3 blocks of width 16, 40 words, 24 positions, no token ids of its own."""
    config_class, shape = DECODERS[kind]
    ids = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))
    sizes = {"vocab_size": WORDS, "max_position_embeddings": 24, "num_hidden_layers": LAYERS}
    return config_class(**(ids | sizes | shape | fields))


def tiny_decoder(folder: Path, kind: str = "llama", **fields: Any) -> Path:
    """A checkpoint of random weights with ``decoder_config``."""
    _write(folder, decoder_config(kind, **fields), AutoModelForCausalLM)
    return folder


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
    _write(folder, config, AutoModel)


def _write(folder: Path, config: Any, kind: Any) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = kind.from_config(config)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.2 * torch.randn(parameter.shape)
    model.save_pretrained(folder)
