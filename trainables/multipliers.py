"""The dual variables: lambda >= 0, one per constraint, and the optimiser that moves them.

Projected SGD is ``primal_dual.dual_step``; the paper's Adam is torch's, maximising, with *coupled*
decay (the decayed gradient g - c lambda is what Adam normalises), then the same projection.
Decoupled decay (AdamW) has another stationary point and is not offered (decision 0002). In the
slack forms nothing decays: slacks.py has what relaxes the constraints instead.

Source: arXiv 2601.17257, Algorithm 1 and eq. (38).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from trainables.config import ConstraintConfig
from trainables.primal_dual import dual_step


class Multipliers:
    """lambda_L, its optimiser and its state; starts at zero, never synchronises with the host."""

    def __init__(
        self, count: int, config: ConstraintConfig, device: torch.device, dtype: torch.dtype
    ) -> None:
        """Zeros for ``count`` constraints, on the run's device."""
        self.values_L = torch.zeros(count, device=device, dtype=dtype)
        self._dual_lr = config.dual_lr
        self._resilience = config.resilience if config.resilience_form == "decay" else 0.0
        self._adam: torch.optim.Adam | None = None
        if config.dual_optimizer == "adam":
            self._adam = torch.optim.Adam(
                [self.values_L],
                lr=config.dual_lr,
                maximize=True,
                weight_decay=self._resilience,
                capturable=device.type == "cuda",  # keeps Adam's step count on the device
            )

    @torch.no_grad()
    def ascend(self, signal_L: Tensor, lr_factor: float) -> None:
        """One dual step along ``signal_L`` (> 0 raises lambda), at dual_lr times ``lr_factor``."""
        dual_lr = self._dual_lr * lr_factor
        if self._adam is None:
            self.values_L.copy_(
                dual_step(self.values_L, signal_L, dual_lr=dual_lr, resilience=self._resilience)
            )
            return
        self._adam.param_groups[0]["lr"] = dual_lr
        self.values_L.grad = signal_L
        self._adam.step()
        self.values_L.clamp_(min=0)

    def state_dict(self) -> dict[str, Any]:
        """Everything a resumed run needs to continue bit for bit."""
        return {
            "values": self.values_L,
            "adam": None if self._adam is None else self._adam.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from ``state_dict``."""
        self.values_L.copy_(state["values"])
        if self._adam is not None:
            self._adam.load_state_dict(state["adam"])
