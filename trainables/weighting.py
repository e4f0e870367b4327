"""Who sets the layer weights: training minimises sum_l w_l f_l, and the arms differ only in w.

``LastLayer`` is plain training, w = (0, ..., 0, 1). ``PrimalDual`` derives w from its multipliers
and moves them by the losses it is shown. Other setters (fixed, replayed, penalty) look the same.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol

import torch
from torch import Tensor

from trainables.config import RunConfig
from trainables.multipliers import Multipliers
from trainables.primal_dual import (
    DescentConstraints,
    Scales,
    allowed_losses,
    descent_constraints,
    layer_weights,
    slack,
    violations,
)


class Weighting(Protocol):
    """Sets w before a primal step and is shown the losses of that step afterwards."""

    def weights(self, step: int) -> Tensor:
        """w_F for primal step ``step``, layers 0..L."""
        ...

    def observe(self, step: int, losses_F: Tensor, lr_factor: float) -> None:
        """See the detached losses (over f_c) of the batch that step ``step`` was taken on."""
        ...

    def series(self) -> dict[str, Tensor]:
        """What a report shows of it, by key of results.LAYER_SERIES; resets the running means."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Everything a resumed run needs to continue bit for bit."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from ``state_dict``."""
        ...


def weighting_of(
    config: RunConfig, scales: Scales, device: torch.device, dtype: torch.dtype
) -> Weighting:
    """The weighting that a run's constraint asks for; plain training when there is none."""
    layers = config.model.layers
    if config.constraint is None:
        return LastLayer(layers, device, dtype)
    return PrimalDual(config, descent_constraints(config.constraint, layers, scales), device, dtype)


class LastLayer:
    """Plain training: the last layer's loss alone."""

    def __init__(self, layers: int, device: torch.device, dtype: torch.dtype) -> None:
        """w = (0, ..., 0, 1) for ``layers`` layers."""
        self._weights_F = torch.zeros(layers + 1, device=device, dtype=dtype)
        self._weights_F[-1] = 1.0

    def weights(self, step: int) -> Tensor:
        """The same at every step."""
        return self._weights_F

    def observe(self, step: int, losses_F: Tensor, lr_factor: float) -> None:
        """Nothing to learn."""

    def series(self) -> dict[str, Tensor]:
        """Nothing to show."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """No state."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """No state."""


class PrimalDual:
    """Weights from multipliers; one dual step per primal step, on the same forward pass."""

    def __init__(
        self,
        config: RunConfig,
        constraints: DescentConstraints,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        """Multipliers at zero: the first step is a plain one."""
        assert config.constraint is not None
        self.config = config.constraint
        self.constraints = on_device(constraints, device, dtype)
        self.multipliers = Multipliers(config.model.layers, self.config, device, dtype)
        self._plain = LastLayer(config.model.layers, device, dtype)
        self._violation_sum_L = torch.zeros(config.model.layers, device=device, dtype=dtype)
        self._last_losses_F = torch.zeros(config.model.layers + 1, device=device, dtype=dtype)
        self._observed = 0

    def weights(self, step: int) -> Tensor:
        """Plain during the warm-up, then the Lagrangian's (docs/method.md, Training)."""
        if step < self.config.warmup_steps:
            return self._plain.weights(step)
        weights_F: Tensor = layer_weights(self.constraints, self.multipliers.values_L)
        return weights_F

    def observe(self, step: int, losses_F: Tensor, lr_factor: float) -> None:
        """Take the dual step, except during the warm-up, which leaves the dual state untouched."""
        violations_L: Tensor = violations(self.constraints, losses_F)
        self._violation_sum_L += violations_L
        self._last_losses_F = losses_F
        self._observed += 1
        if step >= self.config.warmup_steps:
            self.multipliers.ascend(self.signal(violations_L, losses_F), lr_factor)

    def signal(self, violations_L: Tensor, losses_F: Tensor) -> Tensor:
        """What the dual step follows: g, or g over the loss allowed right now; clipped."""
        signal_L = violations_L
        if self.config.dual_signal == "relative":
            allowed_L: Tensor = allowed_losses(self.constraints, losses_F)
            tiny = torch.finfo(allowed_L.dtype).tiny  # a loss of 0 allows 0: 0 / 0 is met, not NaN
            signal_L = violations_L / allowed_L.clamp(min=tiny)
        clip = self.config.signal_clip
        return signal_L if clip is None else signal_L.clamp(-clip, clip)

    def series(self) -> dict[str, Tensor]:
        """Mean violation since the last report; multipliers, slacks and weights as they stand."""
        mean_L = self._violation_sum_L / max(self._observed, 1)
        self._violation_sum_L = torch.zeros_like(self._violation_sum_L)
        self._observed = 0
        multipliers_L = self.multipliers.values_L
        return {
            "violations": mean_L,
            "multipliers": multipliers_L.clone(),
            "slacks": slack(self.config, self.constraints, multipliers_L, self._last_losses_F),
            "weights": layer_weights(self.constraints, multipliers_L),
        }

    def state_dict(self) -> dict[str, Any]:
        """The dual state; the running means are empty whenever a checkpoint is written."""
        return self.multipliers.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from ``state_dict``."""
        self.multipliers.load_state_dict(state)


def on_device(
    constraints: DescentConstraints, device: torch.device, dtype: torch.dtype
) -> DescentConstraints:
    """The same constraints as tensors of ``dtype`` on ``device``."""

    def moved(array: Any) -> Tensor:
        return torch.as_tensor(array, device=device, dtype=dtype)

    return dataclasses.replace(
        constraints,
        matrix_LF=moved(constraints.matrix_LF),
        bounds_L=moved(constraints.bounds_L),
        allowed_LF=moved(constraints.allowed_LF),
        gradient_LF=moved(constraints.gradient_LF),
        scale_L=moved(constraints.scale_L),
    )
