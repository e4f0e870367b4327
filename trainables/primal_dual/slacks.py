"""The slack variables of resilience: u >= 0, one per constraint, and the optimiser that moves them.

Only the slack forms have them; the decay form puts u = c lambda in their place. Projected SGD is
``primal_dual.slack_step``; Adam is torch's, on the same gradient u / c - lambda, then the same
projection. Both take dual_lr. A restart (after every epoch, ``slack_restart``) zeroes u and what
Adam remembers of it; the multipliers stay.

Source: arXiv 2601.17257, eqs. (34)-(36); Hounie et al. 2023, arXiv 2306.02426.
"""

from __future__ import annotations

import torch
from torch import Tensor

from trainables.config.arm import ConstraintConfig
from trainables.primal_dual.constraints import slack_step
from trainables.primal_dual.projected_variables import ProjectedVariables


class Slacks(ProjectedVariables):
    """u_L in the dual signal's unit; starts at zero, never synchronises with the host."""

    def __init__(
        self, count: int, config: ConstraintConfig, device: torch.device, dtype: torch.dtype
    ) -> None:
        """Zeros for ``count`` constraints, on the run's device."""
        self._dual_lr = config.dual_lr
        self._resilience = config.resilience
        adam = {"lr": config.dual_lr} if config.dual_optimizer == "adam" else {}
        super().__init__(count, device, dtype, **adam)

    @torch.no_grad()
    def descend(self, multipliers_L: Tensor, lr_factor: float) -> None:
        """One step at dual_lr times ``lr_factor``, with the multipliers after their own."""
        dual_lr = self._dual_lr * lr_factor
        if self._adam is None:
            self.values_L.copy_(
                slack_step(
                    self.values_L, multipliers_L, dual_lr=dual_lr, resilience=self._resilience
                )
            )
            return
        gradient_L = self.values_L / self._resilience - multipliers_L
        self._adam_step(self._adam, gradient_L, dual_lr)

    @torch.no_grad()
    def restart(self) -> None:
        """u and Adam's moments of it to zero, in place: nothing waits for the device."""
        self.values_L.zero_()
        if self._adam is not None:
            for state in self._adam.state.values():
                for moment in state.values():
                    moment.zero_()
