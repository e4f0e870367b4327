"""Layer weights of the Lagrangian, from multipliers that dual steps move."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from trainables.config.arm import ArmConfig
from trainables.primal_dual.constraints import Scales, allowed_losses, layer_weights, violations
from trainables.primal_dual.dual_variables import Multipliers, Slacks
from trainables.primal_dual.resilience import in_violations_unit, slack
from trainables.primal_dual.schedule import is_dual_step
from trainables.primal_dual.weighting import Watched


class PrimalDual(Watched):
    """Weights from multipliers, which dual steps move, on the primal steps' own forward passes."""

    def __init__(
        self,
        config: ArmConfig,
        scales: Scales,
        device: torch.device,
        dtype: torch.dtype,
        *,
        steps_per_epoch: int,
    ) -> None:
        """Start with multipliers at zero: the first step is plain, or a penalty's (augmented)."""
        super().__init__(config, scales, device, dtype)
        self._steps_per_epoch = steps_per_epoch
        count = len(self._violation_sum_L)
        self.multipliers = Multipliers(count, self.config, device, dtype)
        self.slacks: Slacks | None = None
        if self.config.resilience_form != "decay":
            self.slacks = Slacks(count, self.config, device, dtype)
        self._loss_sum_F = torch.zeros_like(self._weight_sum_F)
        self._summed = 0  # steps since the last dual step
        self._last_losses_F = torch.zeros_like(self._weight_sum_F)
        self._last_step = 0

    def _weights(self, step: int, losses_F: Tensor) -> Tensor:
        """Weights of the Lagrangian (docs/method.md, Training), or of the augmented one."""
        multipliers_L = self._effective(step, losses_F)
        weights_F: Tensor = layer_weights(self.constraints, multipliers_L, losses_F)
        return weights_F

    def _effective(self, step: int, losses_F: Tensor) -> Tensor:
        """The multipliers that weigh ``losses_F``; an augmented Lagrangian's follow the batch."""
        if not self.multipliers.follow_the_batch or self.is_plain(step):
            return self.multipliers.values_L
        return self.multipliers.effective(self.signal(losses_F))

    def observe(self, step: int, losses_F: Tensor, lr_factor: float) -> None:
        """Take the dual step if one is due; the warm-up leaves the dual state untouched."""
        super().observe(step, losses_F, lr_factor)
        self._last_losses_F, self._last_step = losses_F, step
        if step < self.config.warmup_steps:
            return
        self._loss_sum_F += losses_F
        self._summed += 1
        if is_dual_step(self.config, self._steps_per_epoch, step):
            if self._summed == 1:
                signal_L = self.signal(losses_F, self._seen_L)  # computed above, of these losses
            else:
                # Not a mean of signals: ratios and clipped values do not commute with the mean.
                signal_L = self.signal(self._loss_sum_F / self._summed)
            self._loss_sum_F = torch.zeros_like(losses_F)
            self._summed = 0
            self._dual_step(signal_L, lr_factor)
        restarts = self.slacks is not None and self.config.resilience_form == "slack_restart"
        if restarts and (step + 1) % self._steps_per_epoch == 0:
            assert self.slacks is not None
            self.slacks.restart()

    def signal(self, losses_F: Tensor, known_L: Tensor | None = None) -> Tensor:
        """The dual signal: g, or g over the loss allowed right now; clipped.

        ``known_L`` are the violations of these losses, where they were computed before.
        """
        signal_L: Tensor = violations(self.constraints, losses_F) if known_L is None else known_L
        if self.config.dual_signal == "relative":
            allowed_L: Tensor = allowed_losses(self.constraints, losses_F)
            tiny = torch.finfo(allowed_L.dtype).tiny  # a loss of 0 allows 0: 0 / 0 is met, not NaN
            signal_L = signal_L / allowed_L.clamp(min=tiny)
        clip = self.config.signal_clip
        return signal_L if clip is None else signal_L.clamp(-clip, clip)

    def _dual_step(self, signal_L: Tensor, lr_factor: float) -> None:
        if self.slacks is None:
            self.multipliers.ascend(signal_L, lr_factor)
            return
        # Multipliers first, by the old slacks; the slacks then see the new multipliers.
        self.multipliers.ascend(signal_L - self.slacks.values_L, lr_factor)
        self.slacks.descend(self.multipliers.values_L, lr_factor)

    def series(self) -> dict[str, Tensor]:
        """The means since the last report; multipliers and slacks as they stand.

        The multipliers are those that weigh the losses: of an augmented Lagrangian [mu + p s]_+ at
        the last batch seen. Its slacks are c mu, without what that batch adds.
        """
        losses_F = self._last_losses_F
        multipliers_L = self._effective(self._last_step, losses_F)
        if self.slacks is None:
            slacks_L = slack(self.config, self.constraints, self.multipliers.values_L, losses_F)
        else:
            # Copies, here and below: the next dual step writes into these tensors.
            slacks_L = in_violations_unit(
                self.config, self.constraints, self.slacks.values_L.clone(), losses_F
            )
        return {**super().series(), "multipliers": multipliers_L.clone(), "slacks": slacks_L}

    def state_dict(self) -> dict[str, Any]:
        """The dual state; the means of a report are empty whenever a checkpoint is written."""
        return {
            **self.multipliers.state_dict(),
            "slacks": None if self.slacks is None else self.slacks.state_dict(),
            "loss_sum": self._loss_sum_F,
            "summed": self._summed,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from ``state_dict``."""
        self.multipliers.load_state_dict(state)
        if self.slacks is not None:
            self.slacks.load_state_dict(state["slacks"])
        self._loss_sum_F = state["loss_sum"].clone()
        self._summed = state["summed"]
