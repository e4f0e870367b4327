"""Layer weights w of the training loss: the only thing in which arms differ.

The loss is sum_l w_l f_l. ``LastLayer`` is plain training, w = (0, ..., 0, 1). ``PrimalDual``
(lagrangian.py) derives w from its multipliers and moves them by the losses it is shown. ``Control``
is every other setter: the constraint is measured and trains nothing, or by a fixed penalty.
"""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from trainables.config.arm import ArmConfig, ConstraintConfig
from trainables.primal_dual.constraints import (
    DescentConstraints,
    Scales,
    descent_constraints,
    layer_weights,
    violations,
)


class Weighting(Protocol):
    """Sets w for a primal step and is shown the losses of that step afterwards."""

    watches_layers: bool  # whether ``observe`` looks at losses before the last layer's

    @abstractmethod
    def is_plain(self, step: int) -> bool:
        """True when w is (0, ..., 0, 1) at ``step`` whatever the losses: the rest need no gradient.

        Where no layer is watched either, the last loss alone is shown and weighted.
        """

    @abstractmethod
    def weights(self, step: int, losses_F: Tensor) -> Tensor:
        """w_F for primal step ``step``, layers 0..L, from its detached losses (over f_c)."""

    def observe(self, step: int, losses_F: Tensor, lr_factor: float) -> None:
        """See the detached losses (over f_c) of the batch that step ``step`` was taken on."""
        return

    def series(self) -> dict[str, Tensor]:
        """The series of a report, by key of LAYER_SERIES; resets the running means."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Everything a resumed run needs to continue bit for bit; running means are empty then."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from ``state_dict``."""
        return


class LastLayer(Weighting):
    """Plain training: the last layer's loss alone."""

    watches_layers = False

    def __init__(self, layers: int, device: torch.device, dtype: torch.dtype) -> None:
        """Set w = (0, ..., 0, 1) for ``layers`` layers."""
        self._weights_F = torch.zeros(layers + 1, device=device, dtype=dtype)
        self._weights_F[-1] = 1.0

    def is_plain(self, step: int) -> bool:
        """True at every step."""
        return True

    def weights(self, step: int, losses_F: Tensor) -> Tensor:
        """Constant weights, for as many of the last layers as there are losses."""
        return self._weights_F[..., -losses_F.shape[-1] :]


class Watched(Weighting):
    """Base of the weightings that measure violations."""

    watches_layers = True

    def __init__(
        self, config: ArmConfig, scales: Scales, device: torch.device, dtype: torch.dtype
    ) -> None:
        """Start with empty sums."""
        assert config.constraint is not None
        self.config = config.constraint
        layers = config.model.layers
        constraints = descent_constraints(self.config, layers, scales)
        self.constraints = on_device(constraints, device, dtype)
        self._plain = LastLayer(layers, device, dtype)
        self._violation_sum_L = torch.zeros(len(constraints.bounds_L), device=device, dtype=dtype)
        self._observed = 0  # steps since the last report
        self._seen_L: Tensor | None = None  # the violations of the step before, since then
        self._change_sum_L = torch.zeros_like(self._violation_sum_L)  # of squares, between steps
        self._weight_sum_F = torch.zeros(layers + 1, device=device, dtype=dtype)
        self._weighed = 0  # parts of batches since the last report

    def is_plain(self, step: int) -> bool:
        """True during the warm-up."""
        return step < self.config.warmup_steps

    def weights(self, step: int, losses_F: Tensor) -> Tensor:
        """Plain weights during the warm-up, then those of the setter; both are averaged."""
        setter = self._plain.weights if self.is_plain(step) else self._weights
        weights_F = setter(step, losses_F)
        self._weight_sum_F += weights_F
        self._weighed += 1
        return weights_F

    @abstractmethod
    def _weights(self, step: int, losses_F: Tensor) -> Tensor:
        """Weights after the warm-up."""

    def observe(self, step: int, losses_F: Tensor, lr_factor: float) -> None:
        """Add the violations of these losses to the means of the report."""
        measured_L: Tensor = violations(self.constraints, losses_F)
        self._violation_sum_L += measured_L
        if self._seen_L is not None:
            self._change_sum_L += (measured_L - self._seen_L).square()
        self._seen_L = measured_L
        self._observed += 1

    def series(self) -> dict[str, Tensor]:
        """Means over the steps since the last report, which it resets.

        The noise of a violation is the root of half its mean squared change from step to step (von
        Neumann et al. 1941): the standard deviation of independent draws, whatever its slow drift.
        """
        means = {
            "violations": self._violation_sum_L / max(self._observed, 1),
            "violation_noise": (self._change_sum_L / max(2 * (self._observed - 1), 1)).sqrt(),
            "weights": self._weight_sum_F / max(self._weighed, 1),
        }
        self._violation_sum_L = torch.zeros_like(self._violation_sum_L)
        self._change_sum_L = torch.zeros_like(self._violation_sum_L)
        self._seen_L = None
        self._weight_sum_F = torch.zeros_like(self._weight_sum_F)
        self._observed = self._weighed = 0
        return means


class Control(Watched):
    """Weights that no multiplier sets: fixed ones, those of a penalty, or plain training's."""

    def __init__(
        self, config: ArmConfig, scales: Scales, device: torch.device, dtype: torch.dtype
    ) -> None:
        """Fix the weights, where no loss sets them."""
        super().__init__(config, scales, device, dtype)
        fixed_F = fixed_weights(self.config, config.model.layers)
        self._fixed_F = torch.as_tensor(fixed_F, device=device, dtype=dtype)

    def is_plain(self, step: int) -> bool:
        """True during the warm-up, or at every step of a plainly trained control."""
        return self.config.weights_by == "last_layer" or super().is_plain(step)

    def _weights(self, step: int, losses_F: Tensor) -> Tensor:
        """Fixed weights, or those of a penalty's gradient, whose multipliers are 2 mu max(g, 0)."""
        if self.config.weights_by != "penalty":
            return self._fixed_F
        violations_L = violations(self.constraints, losses_F)
        pushes_L = 2.0 * self.config.penalty * violations_L.clip(min=0)
        weights_F: Tensor = layer_weights(self.constraints, pushes_L, losses_F)
        return weights_F


def fixed_weights(config: ConstraintConfig, layers: int) -> list[float]:
    """w_F of layers 0..L, the same at every step, where the setter is none that follows the losses.

    Deep supervision: w_L = 1 and w_l = omega q^(L - l) for the layers before it, but for layer 0,
    which is the input.

    >>> by = ConstraintConfig(weights_by="deep_supervision", supervision=2, supervision_decay=0.5)
    >>> fixed_weights(by, 3)
    [0.0, 0.5, 1.0, 1.0]
    """
    if config.weights_by == "replayed":
        return list(config.replayed_weights)
    omega = config.supervision if config.weights_by == "deep_supervision" else 0.0
    inner = [omega * config.supervision_decay ** (layers - layer) for layer in range(1, layers)]
    return [0.0, *inner, 1.0]


def on_device(
    constraints: DescentConstraints, device: torch.device, dtype: torch.dtype
) -> DescentConstraints:
    """The same constraints with their arrays as tensors of ``dtype`` on ``device``."""
    moved: dict[str, Any] = {
        name: torch.as_tensor(value, device=device, dtype=dtype)
        for name, value in vars(constraints).items()
        if isinstance(value, np.ndarray)
    }
    return dataclasses.replace(constraints, **moved)
