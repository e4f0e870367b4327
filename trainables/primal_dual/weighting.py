"""Layer weights w of the training loss: the only thing in which arms differ.

The loss is sum_l w_l f_l. ``LastLayer`` is plain training, w = (0, ..., 0, 1). ``PrimalDual``
derives w from its multipliers and moves them by the losses it is shown. ``Control`` is every other
setter: the constraint is measured and trains nothing, or by a fixed penalty.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from trainables.config.arm import ArmConfig, ConstraintConfig
from trainables.primal_dual.constraints import (
    DescentConstraints,
    Scales,
    allowed_losses,
    descent_constraints,
    layer_weights,
    violations,
)
from trainables.primal_dual.dual_variables import Multipliers, Slacks
from trainables.primal_dual.idle_options import require_effect
from trainables.primal_dual.resilience import in_violations_unit, slack
from trainables.primal_dual.schedule import is_dual_step


class Weighting(Protocol):
    """Sets w for a primal step and is shown the losses of that step afterwards."""

    watches_layers: bool  # whether ``observe`` looks at losses before the last layer's

    def is_plain(self, step: int) -> bool:
        """True when w is (0, ..., 0, 1) at ``step`` whatever the losses: the rest need no gradient.

        Where no layer is watched either, the last loss alone is shown and weighted.
        """
        ...

    def weights(self, step: int, losses_F: Tensor) -> Tensor:
        """w_F for primal step ``step``, layers 0..L, from its detached losses (over f_c)."""
        ...

    def observe(self, step: int, losses_F: Tensor, lr_factor: float) -> None:
        """See the detached losses (over f_c) of the batch that step ``step`` was taken on."""
        ...

    def series(self) -> dict[str, Tensor]:
        """The series of a report, by key of LAYER_SERIES; resets the running means."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Everything a resumed run needs to continue bit for bit."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from ``state_dict``."""
        ...


def weighting_of(
    config: ArmConfig,
    scales: Scales,
    device: torch.device,
    dtype: torch.dtype,
    *,
    steps_per_epoch: int | None,
) -> Weighting:
    """The weighting that a run's constraint asks for; plain training when there is none.

    Without the run's own data ``steps_per_epoch`` is not known: None takes every step for an epoch
    and refuses nothing, to see what steps cost.

    Raises:
        InvalidValue: an option of the constraint could do nothing in this run, or not what it says.
    """
    if config.constraint is None:
        return LastLayer(config.model.layers, device, dtype)
    if steps_per_epoch is not None:
        require_effect(config, config.constraint, steps_per_epoch)
    if config.constraint.is_control:
        return Control(config, scales, device, dtype)
    return PrimalDual(config, scales, device, dtype, steps_per_epoch=steps_per_epoch or 1)


class LastLayer:
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

    def observe(self, step: int, losses_F: Tensor, lr_factor: float) -> None:
        """Ignore the losses."""

    def series(self) -> dict[str, Tensor]:
        """Return no series: weights never change and nothing is measured."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Return an empty state: constant weights need none to resume."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Accept the empty state of ``state_dict``."""


class Watched:
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

    def _weights(self, step: int, losses_F: Tensor) -> Tensor:
        raise NotImplementedError

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

    def state_dict(self) -> dict[str, Any]:
        """Return an empty state: the means of a report are empty at every checkpoint."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Accept the empty state of ``state_dict``."""


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
