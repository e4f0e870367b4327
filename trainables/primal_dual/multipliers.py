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

from trainables.config.arm import ConstraintConfig
from trainables.primal_dual.constraints import dual_step
from trainables.primal_dual.projected_variables import ProjectedVariables


class Multipliers(ProjectedVariables):
    """lambda_L, its optimiser and its state; starts at zero, never synchronises with the host."""

    def __init__(
        self, count: int, config: ConstraintConfig, device: torch.device, dtype: torch.dtype
    ) -> None:
        """Zeros for ``count`` constraints, on the run's device."""
        self._dual_lr = config.dual_lr
        self._resilience = config.resilience if config.resilience_form == "decay" else 0.0
        adam: dict[str, Any] = {}
        if config.dual_optimizer == "adam":
            adam = {"lr": config.dual_lr, "maximize": True, "weight_decay": self._resilience}
        super().__init__(count, device, dtype, **adam)

    @torch.no_grad()
    def ascend(self, signal_L: Tensor, lr_factor: float) -> None:
        """One dual step along ``signal_L`` (> 0 raises lambda), at dual_lr times ``lr_factor``."""
        dual_lr = self._dual_lr * lr_factor
        if self._adam is None:
            self.values_L.copy_(
                dual_step(self.values_L, signal_L, dual_lr=dual_lr, resilience=self._resilience)
            )
            return
        self._adam_step(self._adam, signal_L, dual_lr)
