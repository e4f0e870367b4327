"""Ways to train a network of transformers in less memory: LoRA, recomputed blocks.

LoRA (arXiv 2106.09685, by the package peft): every linear layer x -> W x of the blocks becomes
x -> W x + 2 B A x, with A [rank, in] drawn and B [out, rank] at 0, so that the start is the
checkpoint's own. Of the pretrained network A and B alone are trained; all else is frozen, and not
in ``state_dict``: the checkpoint has it, and its fingerprint says that it is the same. A
classifier's readout is outside of it, and is trained.
"""

from __future__ import annotations

import functools
import socket
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers.pytorch_utils import Conv1D

from trainables.config.model import ModelConfig
from trainables.errors import BadData, InvalidValue

_SCALE = 2  # lora_alpha / rank


def blocks_of(base: Any) -> Sequence[nn.Module]:
    """The blocks of a base network; empty where it has no one list of them."""
    layers = base.config.num_hidden_layers
    lists = (m for m in base.modules() if isinstance(m, nn.ModuleList) and len(m) == layers)
    return list(next(lists, ()))


def prepare(network: Any, base: Any, config: ModelConfig) -> None:
    """Make a network train as ``config`` asks; its predictions stay what they are.

    ``base`` is the part of the PreTrainedModel that has the blocks, or the network itself.

    Raises:
        BadData: peft is not installed.
        InvalidValue: the network has no blocks or no linear layers.
    """
    blocks = blocks_of(base)
    if (config.recompute or config.lora_rank) and not blocks:
        raise InvalidValue(
            f"checkpoint {config.checkpoint!r} is of type {base.config.model_type!r}, whose blocks "
            "were not found (it may pass one block again and again, as ALBERT does): leave "
            "model.lora_rank at 0 and model.recompute at False."
        )
    if config.lora_rank:
        _freeze_but_adapters(network, blocks, config)
    if config.recompute:
        # The switch of transformers is off in eval mode, in which both arms train (no dropout).
        # Not reentrant: that gives no gradient where the input needs none, as frozen words do. A
        # block draws nothing, so that no generator's state has to be kept.
        for block in blocks:
            block.forward = functools.partial(  # through the module: its hooks stay outside
                checkpoint, block.forward, use_reentrant=False, preserve_rng_state=False
            )


def _freeze_but_adapters(network: Any, blocks: Sequence[nn.Module], config: ModelConfig) -> None:
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError:
        raise BadData(  # of this machine: no outcome of an arm
            f"model.lora_rank={config.lora_rank} needs the package peft, which is not installed "
            f"on {socket.gethostname()}. Install it with descent-sweep[lora] on every machine that "
            "trains (in cluster.yaml: SWEEP_EXTRAS=lora), or leave it at 0."
        ) from None
    names = {id(module): name for name, module in network.named_modules()}
    linear = [m for block in blocks for m in block.modules() if isinstance(m, nn.Linear | Conv1D)]
    if not linear:
        raise InvalidValue(
            f"checkpoint {config.checkpoint!r} is of type {network.config.model_type!r}, whose "
            "blocks have no linear layers that LoRA could adapt: leave model.lora_rank at 0."
        )
    rank = config.lora_rank
    lora = LoraConfig(
        r=rank,
        lora_alpha=_SCALE * rank,
        target_modules=[names[id(module)] for module in linear],
        fan_in_fan_out=isinstance(linear[0], Conv1D),  # weights lie down: GPT-2's
    )
    network.requires_grad_(False)
    inject_adapter_in_model(lora, network)
    every = network.named_parameters(remove_duplicate=False)  # a head may be the words' table, too
    frozen = {name for name, parameter in every if not parameter.requires_grad}
    network.register_state_dict_post_hook(functools.partial(_leave_out, frozen))
    network.register_load_state_dict_post_hook(functools.partial(_miss_nothing, frozen))


def require_words(config: ModelConfig, tokens: int, words: int) -> None:
    """InvalidValue where a checkpoint's tokenizer has more tokens than its network has words."""
    if tokens > words:
        raise InvalidValue(
            f"the tokenizer of checkpoint {config.checkpoint!r} has {tokens} tokens, but its "
            f"network has words for {words}: they are of different models, or tokens such as "
            "[PAD] were added. Put the network's own tokenizer next to its weights, or give the "
            f"network words for them: resize_token_embeddings({tokens}), then save_pretrained."
        )


def narrow_frozen(network: nn.Module) -> None:
    """Keep in bfloat16 the frozen weights that LoRA's updates are added to."""
    from peft.tuners.lora import LoraLayer

    for module in network.modules():
        if isinstance(module, LoraLayer):
            weight = module.get_base_layer().weight
            # .data: the module keeps its parameter, which is frozen.
            weight.data = weight.data.to(torch.bfloat16)


def _leave_out(
    frozen: set[str], _: nn.Module, state: dict[str, Tensor], prefix: str, *__: object
) -> None:
    for name in frozen:
        state.pop(prefix + name, None)


def _miss_nothing(frozen: set[str], _: nn.Module, keys: Any) -> None:
    keys.missing_keys[:] = [
        key for key in keys.missing_keys if not any(key.endswith(name) for name in frozen)
    ]
