"""Dual variables: multipliers lambda >= 0, slacks u >= 0, and their optimisers.

Projected SGD and its kin are the pure steps of ``constraints``. Adam is torch's, followed by the
same projection: for multipliers it maximises, with *coupled* decay (the decayed gradient g - c
lambda is what Adam normalises). AdamW decays apart from that, and has another stationary point:
lambda rests at 1/c under any signal that stays positive (docs/decisions/0157). Only the slack forms
have slacks; the decay form puts u = c lambda in their place.

Source: arXiv 2601.17257, Algorithm 1 and eqs. (34)-(38); Hounie et al. 2023, arXiv 2306.02426.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from trainables.config.arm import ConstraintConfig
from trainables.optimizers import Adam, AdamW
from trainables.primal_dual.dual_steps import (
    augmented_multipliers,
    bare_decay_step,
    dual_step,
    nupi_step,
    slack_step,
)


class _Projected:
    """Values [L] that start at zero, are projected onto >= 0, and never wait for the device."""

    ascends: ClassVar[bool]  # whether Adam maximises, with decay, as it does for multipliers

    def __init__(
        self, count: int, config: ConstraintConfig, device: torch.device, dtype: torch.dtype
    ) -> None:
        """Start at zero for ``count`` constraints, on the run's device."""
        self.values_L = torch.zeros(count, device=device, dtype=dtype)
        self._dual_lr, self._resilience = config.dual_lr, config.resilience
        if self.ascends and config.resilience_form != "decay":
            self._resilience = 0.0  # slacks stand in its place
        self._adam: Adam | AdamW | None = None
        if config.is_adam:
            kind = Adam if config.dual_optimizer == "adam" else AdamW
            self._adam = kind(
                [self.values_L],
                lr=self._dual_lr,
                capturable=self.values_L.is_cuda,  # keeps Adam's step count on the device
                maximize=self.ascends,
                weight_decay=self._resilience if self.ascends else 0.0,
            )

    def _adam_step(self, adam: Adam | AdamW, gradient_L: Tensor, lr: float) -> None:
        adam.param_groups[0]["lr"] = lr
        self.values_L.grad = gradient_L  # by hand, without a graph: the values require none
        adam.step()
        self.values_L.clamp_(min=0)  # Adam knows no bound: projected after its step

    def state_dict(self) -> dict[str, Any]:
        """Everything a resumed run needs to continue bit for bit."""
        return {
            "values": self.values_L,
            "adam": None if self._adam is None else self._adam.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from ``state_dict``."""
        self.values_L.copy_(state["values"])  # in place: Adam holds this tensor
        if self._adam is not None:
            self._adam.load_state_dict(state["adam"])


class Multipliers(_Projected):
    """lambda_L, its optimiser and its state; of an augmented Lagrangian its mu."""

    ascends = True

    def __init__(
        self, count: int, config: ConstraintConfig, device: torch.device, dtype: torch.dtype
    ) -> None:
        """Start at zero, with no signal seen."""
        super().__init__(count, config, device, dtype)
        self._optimizer, self._kp = config.dual_optimizer, config.dual_kp
        self._penalty = config.dual_penalty
        self._previous_L = torch.zeros_like(self.values_L)  # the signal of the last dual step

    @torch.no_grad()
    def ascend(self, signal_L: Tensor, lr_factor: float) -> None:
        """One dual step along ``signal_L`` (> 0 raises lambda), at dual_lr times ``lr_factor``."""
        dual_lr = self._dual_lr * lr_factor
        if self._adam is not None:
            self._adam_step(self._adam, signal_L, dual_lr)
            return
        self.values_L.copy_(self._stepped(signal_L, dual_lr))
        self._previous_L = signal_L

    def _stepped(self, signal_L: Tensor, dual_lr: float) -> Tensor:
        rates: dict[str, Any] = {"dual_lr": dual_lr, "resilience": self._resilience}
        stepped_L: Tensor
        if self._optimizer == "nupi":
            stepped_L = nupi_step(self.values_L, signal_L, self._previous_L, kp=self._kp, **rates)
        elif self._optimizer == "bare_decay":
            stepped_L = bare_decay_step(self.values_L, signal_L, **rates)
        else:
            stepped_L = dual_step(self.values_L, signal_L, **rates)
        return stepped_L

    @property
    def follow_the_batch(self) -> bool:
        """True when the losses are weighed by something else than the values themselves."""
        return self._optimizer == "augmented"

    def effective(self, signal_L: Tensor) -> Tensor:
        """The multipliers that weigh losses of this signal: [mu + p s]_+ of an augmented one."""
        if not self.follow_the_batch:
            return self.values_L
        effective_L: Tensor = augmented_multipliers(self.values_L, signal_L, penalty=self._penalty)
        return effective_L

    def state_dict(self) -> dict[str, Any]:
        """The values, Adam's moments and the last signal."""
        return {**super().state_dict(), "previous_signal": self._previous_L}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from ``state_dict``, or from an older one that lacks what it did not need."""
        super().load_state_dict(state)
        if "previous_signal" in state:
            self._previous_L = state["previous_signal"].clone()


class Slacks(_Projected):
    """u_L in the dual signal's unit."""

    ascends = False

    @torch.no_grad()
    def descend(self, multipliers_L: Tensor, lr_factor: float) -> None:
        """One step at dual_lr times ``lr_factor``, with the multipliers after their own."""
        dual_lr = self._dual_lr * lr_factor
        if self._adam is not None:
            gradient_L = self.values_L / self._resilience - multipliers_L
            self._adam_step(self._adam, gradient_L, dual_lr)
            return
        self.values_L.copy_(
            slack_step(self.values_L, multipliers_L, dual_lr=dual_lr, resilience=self._resilience)
        )

    @torch.no_grad()
    def restart(self) -> None:
        """u and Adam's moments of it to zero, in place, after every epoch of ``slack_restart``."""
        self.values_L.zero_()
        if self._adam is not None:
            for state in self._adam.state.values():  # and its step count: bias is corrected anew
                for moment in state.values():
                    moment.zero_()
