"""Optimisers of networks and multipliers: torch's own, without its compiler.

torch imports its compiler wherever an optimiser is made or takes a step: 0.9 s and 83 MB in every
process, of which nothing is used here. What is computed is torch's own.
"""

from __future__ import annotations

import inspect
from typing import cast

import torch
from torch import nn
from torch.optim import Optimizer

from trainables.config.arm import ArmConfig


class _Uncompiled:
    """The methods of an optimiser under the decorators that import the compiler."""

    add_param_group = inspect.unwrap(Optimizer.add_param_group)
    load_state_dict = inspect.unwrap(Optimizer.load_state_dict)
    state_dict = inspect.unwrap(Optimizer.state_dict)
    zero_grad = inspect.unwrap(Optimizer.zero_grad)
    step = torch.no_grad()(inspect.unwrap(torch.optim.Adam.step))  # AdamW's, too


class Adam(_Uncompiled, torch.optim.Adam):
    """``torch.optim.Adam``."""


class AdamW(_Uncompiled, torch.optim.AdamW):
    """``torch.optim.AdamW``."""


def optimizer_of(config: ArmConfig, model: nn.Module) -> Adam | AdamW:
    """Adam over all that is trained, or AdamW where ``weight_decay`` is above 0.

    The readout may have a learning rate of its own: it starts untrained where the rest of a
    pretrained network does not. Biases and the weights of norms, which are vectors, never decay.
    """
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            is_readout = name.startswith("readout.") and config.readout_lr is not None
            lr = config.readout_lr if is_readout else config.primal_lr
            decay = config.weight_decay if parameter.ndim > 1 else 0.0
            groups.setdefault((cast(float, lr), decay), []).append(parameter)
    kind = AdamW if config.weight_decay > 0 else Adam
    return kind(
        [{"params": p, "lr": lr, "weight_decay": decay} for (lr, decay), p in groups.items()],
        fused=True,  # rounds otherwise than foreach: a change is another TRAINING_VERSION
    )
